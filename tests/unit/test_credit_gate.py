import pytest

from producers.credit import CreditGate, Superseded
from schemas.experiment import from_values
from schemas.records import NO_POLICY, Credit, PolicyRef, WorkerCredit


def make_spec(n=16, t=32, mode="credit", window=0, **learner):
    values = {
        "apiVersion": "rollstream/v1",
        "kind": "Experiment",
        "metadata": {"name": "exp"},
        "spec": {
            "env": {"id": "CartPole-v1"},
            "workers": {"unrollLength": t},
            "processor": {"nStep": n},
            "flow": {"mode": mode, "window": window},
            "learner": learner,
        },
    }
    return from_values(values).spec


def credit(
    allowed, *, incarnation=5, epoch=1, run_id="run1", worker="w0", policy=NO_POLICY
):
    return Credit(
        experiment="exp",
        run_id=run_id,
        learner="learner/0",
        epoch=epoch,
        min_policy=policy,
        allowed={worker: WorkerCredit(incarnation, allowed)},
        produced_at_ms=0,
    )


def make_gate(spec=None, incarnation=5):
    return CreditGate.open(spec or make_spec(), "w0", "run1", incarnation)


@pytest.mark.parametrize(
    ("n", "t", "window", "expected", "why"),
    [
        (1, 32, 0, 2, "at least two: one under way while one is learnt"),
        (16, 32, 0, 2, "15 more steps close with the next unroll"),
        (33, 32, 0, 2, "32 more steps: exactly the next unroll"),
        (34, 32, 0, 3, "33 more steps reach into a third"),
        (10, 1, 0, 10, "each unroll is one step"),
        (1, 32, 1, 1, "the spec says so"),
        (10, 1, 40, 40, "the spec says so"),
        (10, 1, 4, 10, "a batch would wait for the worker, and the worker for it"),
    ],
)
def test_a_gate_opens_with_the_floor_window(n, t, window, expected, why):
    spec = make_spec(n, t, window=window)
    assert CreditGate.open(spec, "w0", "run1", 5).allowed_step == expected * t, why


def test_a_new_incarnation_may_make_one_floor_window():
    gate = make_gate()
    assert gate.may_step(0, 32, NO_POLICY)
    assert gate.may_step(32, 32, NO_POLICY)
    assert not gate.may_step(64, 32, NO_POLICY)
    assert not gate.may_step(63, 2, NO_POLICY), "an unroll may not pass the limit"


@pytest.mark.parametrize(
    ("record", "allowed", "why"),
    [
        (credit(320), 320, "newer credit extends"),
        (credit(32), 64, "credit once given is not taken back"),
        (credit(320, run_id="run0"), 64, "another run's"),
        (credit(320, worker="w1"), 64, "another worker's"),
        (credit(320, incarnation=4), 64, "our former life's"),
    ],
)
def test_what_a_record_allows(record, allowed, why):
    gate = make_gate()
    gate.take(record)
    assert gate.allowed_step == allowed, why


def test_an_older_learner_is_ignored_once_a_newer_was_seen():
    gate = make_gate()
    gate.take(credit(100, epoch=7))
    gate.take(credit(900, epoch=6, policy=PolicyRef(6, 50)))
    assert (gate.allowed_step, gate.epoch, gate.min_policy) == (100, 7, NO_POLICY)


def test_a_new_learner_is_known_even_when_it_has_nothing_for_us_yet():
    gate = make_gate()
    gate.take(credit(100, epoch=8, worker="w1"))
    gate.take(credit(900, epoch=7))
    assert (gate.allowed_step, gate.grants) == (64, 1)


def test_a_newer_incarnation_ends_this_one():
    with pytest.raises(Superseded, match="expected incarnation 5 .* found 6"):
        make_gate().take(credit(100, incarnation=6))


def test_a_worker_waits_for_the_policy_it_needs():
    gate = make_gate()
    gate.take(credit(1000, policy=PolicyRef(1, 3)))
    assert not gate.may_step(0, 32, NO_POLICY)
    assert not gate.may_step(0, 32, PolicyRef(1, 2))
    assert gate.may_step(0, 32, PolicyRef(1, 3))
    assert gate.may_step(0, 32, PolicyRef(2, 0)), "a newer epoch is newer"


def test_the_needed_policy_does_not_go_back():
    gate = make_gate()
    gate.take(credit(100, policy=PolicyRef(1, 3)))
    gate.take(credit(100, policy=PolicyRef(1, 2)))
    assert gate.min_policy == PolicyRef(1, 3)


def test_free_flow_never_waits_for_credit():
    gate = make_gate(make_spec(mode="free"))
    gate.take(credit(10, policy=PolicyRef(1, 3)))
    assert gate.may_step(10**9, 32, PolicyRef(1, 3))
    assert not gate.may_step(0, 32, PolicyRef(1, 2)), "but for what must act"


@pytest.mark.parametrize("mode", ["credit", "free"])
@pytest.mark.parametrize("algorithm", ["ppo", "impala"])
def test_on_policy_nothing_is_done_at_random(mode, algorithm):
    gate = make_gate(make_spec(1, mode=mode, algorithm=algorithm))
    assert not gate.may_step(0, 32, NO_POLICY)
    assert gate.may_step(0, 32, PolicyRef(0, 0)), "whichever is the first"
    gate.take(credit(320, epoch=4))
    assert not gate.may_step(0, 32, NO_POLICY), "a learner that asks for none"
    assert not gate.renew(make_spec(1, mode=mode, algorithm=algorithm), 6).may_step(
        0, 32, NO_POLICY
    )
    assert gate.may_step(0, 32, PolicyRef(2, 7)), "of the learner before"


@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_off_policy_the_first_steps_are_random(algorithm):
    gate = make_gate(make_spec(algorithm=algorithm))
    assert gate.may_step(0, 32, NO_POLICY)


def test_a_new_learner_may_need_less_than_the_one_before():
    gate = make_gate(make_spec(1, algorithm="ppo"))
    gate.take(credit(320, epoch=4, policy=PolicyRef(4, 9)))
    gate.take(credit(320, epoch=5, policy=PolicyRef(4, 2)))
    assert gate.min_policy == PolicyRef(4, 2)


def test_repeated_records_are_no_new_grants():
    gate = make_gate()
    for record in (credit(96), credit(96), credit(90), credit(128)):
        gate.take(record)
    assert gate.grants == 1 + 2, "one for the learner, two that went farther"


def test_the_next_incarnation_starts_with_a_floor_window_and_knows_its_learner():
    gate = make_gate()
    gate.take(credit(1000, epoch=3, policy=PolicyRef(3, 4)))
    after = gate.renew(make_spec(), 9)
    assert (after.incarnation, after.allowed_step) == (9, 64)
    assert (after.epoch, after.min_policy) == (3, PolicyRef(3, 4))
    after.take(credit(1000, incarnation=5, epoch=3))
    assert after.allowed_step == 64
