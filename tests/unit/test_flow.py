"""What a Credit says: how far, and with which policy at least."""

from types import SimpleNamespace

import pytest

from learner.assembly import make_limiter, make_windows
from learner.dedup import Ledger
from learner.flow import Flow
from schemas.codec import decode
from schemas.records import NO_POLICY, Credit, PolicyRef, WorkerCredit
from tests.unit.learner_specs import spec

EPOCH = 7


class FakeSender:
    def __init__(self):
        self.sent = []

    def send(self, topic, value, key):
        self.sent.append(decode(value, Credit))


def make_flow(learner, sender=None):
    n_step = 1 if "algorithm" in learner else 3
    found = spec({"nStep": n_step}, **learner)
    context = SimpleNamespace(
        spec=found,
        experiment=SimpleNamespace(name="test"),
        run_id="run",
        member_key="learner/0",
        topic=str,
    )
    ledger = Ledger("run")
    windows = make_windows(found, ledger)
    windows.started("w0", 1)
    limiter = make_limiter(found, comes_once=True)
    return Flow(context, EPOCH, sender, None, windows, limiter, ledger)


@pytest.mark.parametrize(
    ("learner", "version", "published", "expected"),
    [
        ({"algorithm": "ppo", "maxPolicyLag": 0}, 5, 1, PolicyRef(EPOCH, 5)),
        ({"algorithm": "ppo"}, 5, 1, PolicyRef(EPOCH, 4)),
        ({"algorithm": "impala"}, 5, 1, PolicyRef(EPOCH, 0)),
        # A resumed one that has not published: the policy before may act.
        ({"algorithm": "ppo"}, 5, 0, NO_POLICY),
        ({"maxPolicyLag": 3}, 5, 1, NO_POLICY),
    ],
)
def test_on_policy_workers_wait_for_a_policy_that_is_not_too_old(
    learner, version, published, expected
):
    assert make_flow(learner).least_policy(version, published) == expected


def test_one_record_brings_credit_and_the_policy_that_it_is_for():
    sender = FakeSender()
    flow = make_flow({"algorithm": "ppo", "maxPolicyLag": 0}, sender)
    flow.grant(0.0, room=1.0, min_policy=PolicyRef(EPOCH, 3))
    (credit,) = sender.sent
    assert (credit.epoch, credit.min_policy) == (EPOCH, PolicyRef(EPOCH, 3))
    assert credit.allowed == {"w0": WorkerCredit(1, 32)}


def test_streams_are_over_with_a_newer_member_or_none():
    """A tombstone's offset is beyond all incarnations before it."""
    flow = make_flow({})
    flow._roster = SimpleNamespace(
        poll=lambda: None,
        incarnations={"w0": 5},
        take_removed=lambda: {"w1": 9},
    )
    assert flow.follow_members() == {"w0": 5, "w1": 9}
