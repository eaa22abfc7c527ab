"""A worker that must not act at random, on the real broker."""

import numpy as np
import pytest

from infra.control.role import EXIT_OK
from infra.monitoring.event_kinds import KINDS
from schemas.records import PolicyRef, SpaceField
from schemas.topics import EVENTS, MEMBERS
from tests.integration.test_worker import WORKERS, points, run_beside, trial  # noqa: F401
from tests.unit.envs.graphs import graph_record, recurrent, version_record
from tests.unit.envs.trial import check_streams, until

pytestmark = pytest.mark.kafka

ON_POLICY = {"algorithm": "ppo"}
STATES = 5


def publish(t, epoch, version):
    """A recurrent policy of one epoch, as its learner would publish it."""
    env = t.records(MEMBERS)[0].env
    graph = graph_record(
        recurrent(4, STATES, {"logits": 2, "value": 0}),
        env,
        experiment=t.name,
        epoch=epoch,
        head="categorical",
        exploration="sample",
        exploration_options={},
        states=tuple(SpaceField(name, "box", "<f4", (STATES,)) for name in "hc"),
    )
    rng = np.random.default_rng(version)
    sizes = {"wc": (4, STATES), "wh": (STATES, STATES), "w_value": (STATES,)}
    sizes["w_logits"] = (STATES, 2)
    arrays = {n: rng.normal(size=s).astype(np.float32) for n, s in sizes.items()}
    t.send_policy(graph)
    t.send_policy(version_record(graph, version, arrays))


def waited(t, name):
    newest = {point.incarnation: point.values[name] for point in points(t)}
    return sum(newest.values())


def start(trial, mode):  # noqa: F811
    return trial(
        workers=WORKERS,
        learner=ON_POLICY,
        processor={"nStep": 1},
        flow={"mode": mode},
    )


@pytest.mark.parametrize("mode", ["credit", "free"])
def test_on_policy_nothing_is_done_before_the_first_policy(trial, mode):  # noqa: F811
    """However long it takes, it is one wait: not one incarnation after the other."""
    t = start(trial, mode)

    def play():
        until(lambda: waited(t, "waited_policy_s") > 2.5)
        assert len(t.ends()) == 1, "after half a second, and never again"
        # A learner that comes and has no policy yet ends no wait either.
        t.grant(t.messages(MEMBERS)[0].offset, 10**6, epoch=3)
        before = waited(t, "waited_policy_s")
        until(lambda: waited(t, "waited_policy_s") > before + 1.5)
        assert len(t.messages(MEMBERS)) == 1 and not t.unrolls()
        assert waited(t, "waited_credit_s") == 0, "it is not credit that it lacks"
        publish(t, 3, 0)
        until(lambda: len(t.unrolls()) >= 2)

    assert run_beside(t, play, idle_after_s=0.5) == EXIT_OK
    first, second, *_ = unrolls = t.unrolls()
    assert {unroll.policy for unroll in unrolls} == {PolicyRef(3, 0)}
    assert len(t.messages(MEMBERS)) == 2
    assert t.ends()[0].reason == "no policy for 0.5 s"
    idle, *_ = [e for e in t.records(EVENTS) if e.kind == "worker-idle"]
    assert idle.reason == "no policy for 0.5 s" and idle.kind in KINDS
    assert {n: c.shape for n, c in first.behaviour.items()} == {
        "value": (17, 8),
        "log_prob": (16, 8),
    }
    assert not first.states["h"].array().any(), "it begins with none"
    assert second.states["h"].array().any()


def test_a_learner_that_began_again_is_waited_for(trial):  # noqa: F811
    t = start(trial, "credit")

    def play():
        (member,) = until(lambda: t.messages(MEMBERS))
        publish(t, 3, 7)
        until(lambda: len(t.unrolls()) == 2)
        t.grant(member.offset, 10**6, epoch=4, min_policy=PolicyRef(4, 0))
        before = waited(t, "waited_policy_s")
        until(lambda: waited(t, "waited_policy_s") > before + 1.5)
        publish(t, 4, 8)
        until(lambda: t.unrolls()[-1].policy == PolicyRef(4, 8))

    assert run_beside(t, play) == EXIT_OK
    unrolls = t.unrolls()
    assert len(check_streams(unrolls)) == 1, "its stream goes on"
    acted = [unroll.policy for unroll in unrolls]
    at = acted.index(PolicyRef(4, 8))
    assert set(acted[:at]) == {PolicyRef(3, 7)} and set(acted[at:]) == {PolicyRef(4, 8)}
    # Both have states of the same shape: what is remembered stays.
    assert unrolls[at].states["h"].array().any()
