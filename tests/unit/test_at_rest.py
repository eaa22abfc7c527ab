"""Groups that nobody has to read for any more."""

import pytest

from infra.control.desired import PublishedExperiment
from infra.control.statuses import make_status
from infra.monitoring.at_rest import excused, why_at_rest
from schemas.experiment import from_values
from tests.unit.lag_reports import group, partition


def published(**spec):
    values = {
        "apiVersion": "rollstream/v1",
        "kind": "Experiment",
        "metadata": {"name": "e"},
        "spec": {"env": {"id": "CartPole-v1"}} | spec,
    }
    return PublishedExperiment(from_values(values), "r1", 7, "agents")


def status(state, run_id="r1"):
    return make_status("e", run_id, "experiment", 0, state, "")


@pytest.mark.parametrize(
    ("role", "spec", "said", "why"),
    [
        ("processor", {}, None, ""),
        ("processor", {}, status("running"), ""),
        ("processor", {}, status("finished"), "the run is finished"),
        ("learner", {}, status("failed"), "the run is failed"),
        ("learner", {}, status("finished", run_id="r0"), ""),
        ("learner", {"state": "stopped"}, None, "the experiment is to be stopped"),
        ("learner", {"state": "paused"}, None, ""),
        ("archiver", {}, status("running"), "no archiver is wanted"),
        ("archiver", {"archive": True}, status("running"), ""),
    ],
)
def test_somebody_has_to_read_as_long_as_that_is_wanted(role, spec, said, why):
    assert why_at_rest(f"rollstream.e.{role}", published(**spec), said) == why


@pytest.mark.parametrize("state", ["STOPPED", "STALLED", "WARN", "NO_COMMIT"])
def test_a_group_at_rest_is_fine_and_says_why(state):
    (part,) = excused(group("g", partition(state=state)), "it is over").partitions
    assert part.verdict.state == "OK"
    assert part.verdict.reason.startswith("it is over: ")


@pytest.mark.parametrize("state", ["LOST", "REWIND", "OK", "EMPTY"])
def test_what_is_lost_stays_lost(state):
    found = group("g", partition(state=state))
    assert excused(found, "it is over") == found


def test_who_has_to_read_is_not_excused():
    found = group("g", partition(state="STOPPED"))
    assert excused(found, "") is found
