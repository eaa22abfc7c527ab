"""What is known of an experiment -> its state and the reason."""

from __future__ import annotations

from dataclasses import replace

from infra.control.desired import Entry, PublishedExperiment, Refusal, one_line
from infra.control.placement import RoleKey
from infra.control.standings import Facts, Standing, standing
from schemas.experiment import from_values
from schemas.records import RoleStatus
from tests.unit.test_experiment import values

WORKER, LEARNER = RoleKey("e", "worker", 0), RoleKey("e", "learner", 0)
PLACED = {WORKER: "h-1", LEARNER: "h-2"}


def facts(state="running", **more):
    experiment = from_values(values(spec__state=state))
    entry = Entry(PublishedExperiment(experiment, "r1", 7, "agents"), 7)
    known = {"entry": entry, "placed": PLACED, "pending": {}, "roles": {}}
    return Facts(**{**known, **more})


def status(role, index, state, reason=""):
    return RoleStatus("e", "r1", role, index, state, "h", 1, 6, reason, 0)


def test_what_is_wanted_is_the_state():
    assert standing(facts()) == Standing("running", "2 roles on 2 agents")
    assert standing(facts("paused")).state == "paused"
    assert standing(facts("stopped", live=2)) == Standing(
        "stopped", "2 roles are still ending"
    )
    assert standing(facts("stopped")) == Standing("stopped", "no role runs")


def test_a_role_that_was_given_up_degrades():
    given_up = {"worker/0": status("worker", 0, "failed", "boom")}
    pending = {RoleKey("e", "worker", 1): "no agent fits"}
    found = standing(facts(roles=given_up, pending=pending))
    assert found == Standing("degraded", "worker/0: boom")
    # Of one that is not wanted any more nobody needs to hear.
    gone = {"worker/9": status("worker", 9, "failed", "boom")}
    assert standing(facts(roles=gone)).state == "running"


def test_what_has_no_place_is_pending_and_says_why():
    pending = {RoleKey("e", "worker", n): "no agent fits" for n in (3, 1, 2)}
    assert standing(facts(pending=pending)) == Standing(
        "pending", "worker/1, worker/2 and worker/3: no agent fits"
    )
    assert standing(facts(waits_for="its topics")) == Standing("pending", "its topics")


def test_a_refusal_is_named_beside_the_state():
    refusal = Refusal(9, "unknown key")
    refused = facts(entry=replace(facts().entry, last_refused=refusal))
    said = "the spec at offset 9 is refused: unknown key"
    assert standing(refused) == Standing("running", f"2 roles on 2 agents; {said}")
    nothing = facts(entry=Entry(None, 9, refusal, last_refused=refusal))
    assert standing(nothing) == Standing("refused", said)


def test_roles_that_share_a_reason_are_told_of_together():
    pending = {LEARNER: "no agent fits: h-1 lacks gpu 1 (free 0)"}
    pending |= {RoleKey("e", "worker", n): "waits for learner/0" for n in range(12)}
    pending |= {RoleKey("e", "processor", n): f"lacks {n}" for n in range(3)}
    assert standing(facts(pending=pending)) == Standing(
        "pending",
        "learner/0: no agent fits: h-1 lacks gpu 1 (free 0); "
        "worker/0, worker/1 and 10 more: waits for learner/0 (and 3 roles more)",
    )
    placed = {RoleKey("e", "worker", n): "h-1" for n in range(12)}
    given_up = {f"worker/{n}": status("worker", n, "failed", "boom") for n in range(11)}
    assert standing(facts(placed=placed, roles=given_up)) == Standing(
        "degraded", "worker/0, worker/1 and 9 more: boom"
    )


def test_a_state_is_what_can_be_published_and_read_back():
    """One that is cut on its way would be published again and again."""
    pending = {WORKER: "x" * 400 + "\n", LEARNER: "y" * 400}
    refusal = Refusal(9, "unknown key")
    for known in (facts(pending=pending), facts(waits_for="z\x1b" * 600)):
        found = standing(known)
        assert found.reason == one_line(found.reason)
        refused = replace(known, entry=replace(known.entry, last_refused=refusal))
        both = standing(refused).reason
        assert both == one_line(both)
        assert both.endswith("the spec at offset 9 is refused: unknown key")
