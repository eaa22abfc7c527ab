"""Receive windows: how far each worker may step."""

import pytest

from learner.credits import MAX_WINDOW, SILENCE_S, CreditWindows
from producers.credit import CreditGate
from schemas.flow import floor_window, is_counted, least_window
from schemas.records import WorkerCredit
from tests.unit.learner_specs import spec

T = 32


def windows(fixed=0, n_step=16):
    return CreditWindows(fixed_window=fixed, n_step=n_step, unroll_length=T)


@pytest.mark.parametrize(
    ("n_step", "unroll_length", "expected"),
    [
        (1, 32, 2),  # emitted at once; 2 keep an off-policy worker busy
        (16, 32, 2),  # one further unroll completes 15 more rows
        (33, 32, 2),  # exactly one: 32 more rows
        (34, 32, 3),  # 33 more rows take two
        (5, 1, 5),
    ],
)
def test_floor_lets_the_last_row_of_a_batch_complete(n_step, unroll_length, expected):
    assert floor_window(n_step, unroll_length) == expected


@pytest.mark.parametrize(
    ("learner", "least", "counted"),
    [
        ({"algorithm": "ppo", "maxPolicyLag": 0}, 1, True),
        ({"algorithm": "ppo"}, 2, True),  # one version behind
        ({"algorithm": "ppo", "maxPolicyLag": 2}, 2, False),
        ({"algorithm": "impala"}, 2, False),  # 20
        ({"maxPolicyLag": 0}, 2, False),  # off-policy: each row comes again
    ],
)
def test_on_policy_a_worker_is_ahead_by_one_unroll_for_each_version(
    learner, least, counted
):
    n_step = 1 if "algorithm" in learner else 3
    found = spec({"nStep": n_step}, **learner)
    assert least_window(found.learner) == least
    assert is_counted(found.learner) is counted
    assert floor_window(1, 32, least=least) == least
    assert floor_window(1, 32, 5, least=least) == 5
    gate = CreditGate.open(found, "w0", "run", 1)
    assert gate.allowed_step == least * found.workers.unroll_length


def test_counted_room_goes_to_who_has_waited_longest_and_not_beyond():
    credit = CreditWindows(
        fixed_window=0, n_step=1, unroll_length=T, least=1, counted=True
    )
    for worker in ("w0", "w1", "w2"):
        credit.started(worker, 5)
    credit.grant(0.0, room=2.0)  # all have one anyway: one more than there is room for
    assert [credit.allowed_step(f"w{n}") for n in range(3)] == [T, T, T]
    for number, worker in enumerate(["w2", "w0", "w1"]):
        credit.arrived(worker, 5, T, T, 0.1 + number / 100)
    credit.grant(0.2, room=0.0)
    assert [credit.allowed_step(f"w{n}") for n in range(3)] == [T, T, T]
    credit.grant(0.3, room=1.1)  # a part of an unroll takes a whole one
    assert [credit.allowed_step(f"w{n}") for n in range(3)] == [2 * T, 2 * T, T]
    credit.grant(0.4, room=2.0)  # which are under way
    assert [credit.allowed_step(f"w{n}") for n in range(3)] == [2 * T, 2 * T, T]
    credit.arrived("w0", 5, 2 * T, T, 0.5)
    credit.grant(0.6, room=2.0)  # w1 has one yet; w2 has waited for longer than w0
    assert [credit.allowed_step(f"w{n}") for n in range(3)] == [2 * T, 2 * T, 2 * T]


def test_counted_room_is_not_held_by_the_rest_of_an_unroll_that_was_cut():
    credit = CreditWindows(
        fixed_window=0, n_step=1, unroll_length=T, least=1, counted=True
    )
    credit.started("w0", 5)
    credit.grant(0.0, room=1.0)
    credit.arrived("w0", 5, T - 12, T - 12, 0.1)
    credit.grant(0.2, room=12 / T)  # it makes no unroll of the 12 steps it has left
    assert credit.allowed_step("w0") == T - 12 + T


def test_a_worker_starts_with_one_floor_window_even_when_the_buffer_is_ahead():
    credit = windows()
    credit.started("w0", 5)
    assert credit.grant(0.0, room=0.9) == {"w0": WorkerCredit(5, 2 * T)}


def test_windows_move_with_arrivals_only_while_the_limiter_allows():
    credit = windows(fixed=4)
    credit.started("w0", 5)
    credit.grant(0.0, room=99.0)
    assert credit.allowed_step("w0") == 4 * T
    credit.arrived("w0", 5, 2 * T, T, 0.1)
    credit.grant(0.1, room=0.9)
    assert credit.allowed_step("w0") == 4 * T
    credit.grant(0.2, room=99.0)
    assert credit.allowed_step("w0") == 6 * T


def test_credit_is_sent_when_a_quarter_has_moved_and_not_too_often():
    credit = windows(fixed=8)
    credit.started("w0", 5)
    assert credit.grant(0.0, room=99.0)
    credit.arrived("w0", 5, T, T, 0.06)
    assert not credit.grant(0.06, room=99.0)  # an eighth
    credit.arrived("w0", 5, 2 * T, T, 0.07)
    assert credit.grant(0.07, room=99.0) == {"w0": WorkerCredit(5, 10 * T)}
    credit.arrived("w0", 5, 4 * T, T, 0.09)
    assert not credit.grant(0.10, room=99.0)  # 30 ms after the last
    assert credit.grant(0.13, room=99.0) == {"w0": WorkerCredit(5, 12 * T)}


def test_credit_is_repeated_every_second_though_nothing_moved():
    credit = windows(fixed=2)
    credit.started("w0", 5)
    first = credit.grant(0.0, room=99.0)
    assert not credit.grant(0.99, room=99.0)
    assert credit.grant(1.0, room=99.0) == first


def test_a_restarted_worker_is_told_at_once_and_its_old_batches_change_nothing():
    credit = windows(fixed=2)
    credit.started("w0", 5)
    credit.arrived("w0", 5, 10 * T, T, 0.0)
    credit.grant(0.0, room=99.0)
    credit.started("w0", 9)
    assert credit.grant(0.01, room=99.0) == {"w0": WorkerCredit(9, 2 * T)}
    credit.arrived("w0", 5, 11 * T, T, 0.02)
    assert credit.allowed_step("w0") == 2 * T
    # Its batches may tell of it before the topic of members does.
    credit.arrived("w1", 3, T, T, 0.02)
    assert credit.grant(0.02, room=99.0)["w1"] == WorkerCredit(3, 3 * T)


def test_a_resumed_learner_goes_on_at_the_streams_step():
    credit = windows(fixed=3)
    credit.started("w0", 5, next_step=100)
    assert credit.grant(0.0, room=99.0) == {"w0": WorkerCredit(5, 100 + 3 * T)}


def test_what_expired_unread_is_forgiven():
    credit = windows(fixed=2)
    credit.started("w0", 5)
    credit.grant(0.0, room=99.0)
    credit.forgive("w0")
    assert credit.grant(1.0, room=99.0) == {"w0": WorkerCredit(5, 4 * T)}


def test_a_newer_incarnation_owes_nothing_for_what_was_granted_before_it():
    credit = windows()
    credit.started("w0", 5)
    credit.grant(0.0, room=99.0)
    credit.started("w0", 9)  # nothing of the older one has come, and nothing will
    assert credit.grant(0.1, room=99.0) == {"w0": WorkerCredit(9, 2 * T)}


def test_a_worker_whose_whole_window_never_arrives_goes_on_after_a_while():
    credit = windows()
    credit.started("w0", 5)
    credit.grant(0.0, room=99.0)
    credit.grant(SILENCE_S - 0.1, room=99.0)
    assert credit.allowed_step("w0") == 2 * T
    assert credit.grant(SILENCE_S, room=99.0) == {"w0": WorkerCredit(5, 4 * T)}
    # The next time it takes twice as long.
    credit.grant(3 * SILENCE_S - 0.1, room=99.0)
    assert credit.allowed_step("w0") == 4 * T
    credit.grant(3 * SILENCE_S, room=99.0)
    assert credit.allowed_step("w0") == 6 * T


def test_a_slow_worker_is_not_forgiven_ever_more():
    credit = windows()
    credit.started("w0", 5)
    for unroll in range(200):  # each takes longer than the learner's patience
        now_s = 1.5 * SILENCE_S * unroll
        for tick in range(3):
            credit.grant(now_s + tick * SILENCE_S / 2, room=99.0)
        credit.arrived("w0", 5, (unroll + 1) * T, T, now_s + 1.5 * SILENCE_S)
    in_flight = credit.allowed_step("w0") - 200 * T
    assert in_flight <= (MAX_WINDOW + 2) * T


def test_silence_says_nothing_while_the_limiter_has_no_room():
    credit = windows()
    credit.started("w0", 5)
    for now_s in range(100):
        credit.grant(float(now_s), room=0.0)
    credit.grant(100.0, room=99.0)
    assert credit.allowed_step("w0") == 2 * T


@pytest.mark.parametrize("fixed", [0, 4])
def test_an_unroll_that_was_cut_leaves_credit_for_a_whole_one(fixed):
    credit = windows(fixed=fixed)
    credit.started("w0", 5)
    credit.arrived("w0", 5, T, T, 0.0)
    credit.arrived("w0", 5, T + 5, 5, 0.1)
    credit.grant(0.1, room=99.0)
    assert credit.allowed_step("w0") >= T + 5 + 2 * T


@pytest.mark.parametrize("fixed", [0, 4])
def test_what_is_remembered_of_arrivals_does_not_grow(fixed):
    """Nobody grants where the flow is free, and no window is measured if fixed."""
    credit = windows(fixed=fixed)
    credit.started("w0", 5)
    for number in range(1, 5_000):
        if fixed:
            credit.grant(number / 10, room=99.0)
        credit.arrived("w0", 5, number * T, T, number / 10)
    state = credit._workers["w0"]
    kept = (state.arrivals, state.grants, state.round_trips)
    assert max(map(len, kept)) < 500


def test_a_window_that_could_never_move_is_widened():
    # n = 65, T = 32: a batch is emitted with the second unroll after it.
    assert _first_grant(windows(fixed=1, n_step=65)) == 3 * T
    assert _first_grant(windows(fixed=1, n_step=1)) == T  # as the spec says


def _first_grant(credit):
    credit.started("w0", 1)
    return credit.grant(0.0, room=99.0)["w0"].allowed_step


def _pipeline(credit, round_trip_s, rate, until_s):
    """A worker that takes ``round_trip_s`` a step and makes ``rate`` unrolls/s."""
    credit.started("w0", 1)
    now, step, sent, in_flight, busy_until = 0.0, 0, 2 * T, [(0.0, 2 * T)], 0.0
    allowed = [(0.0, 0)]
    while now < until_s:
        granted = credit.grant(now, room=99.0)
        if granted:
            allowed.append((now, granted["w0"].allowed_step))
        limit = max(step for _, step in allowed)
        while sent + T <= limit and busy_until <= now:
            busy_until = max(busy_until, now - 0.005) + 1 / rate
            sent += T
            in_flight.append((now + round_trip_s, sent))
        while in_flight and in_flight[0][0] <= now:
            step = in_flight.pop(0)[1]
            credit.arrived("w0", 1, step, T, now)
        now += 0.005
    return credit.window("w0", now, 99.0), step / T / until_s


@pytest.mark.parametrize(
    ("round_trip_s", "rate", "least"),
    [
        # Little's law: 50 unrolls/s x 0.2 s = 10 in flight; with a window of 2 the
        # worker would reach 10 unrolls/s, a fifth.
        (0.2, 50, 0.85),
        (0.05, 20, 0.85),
    ],
)
def test_auto_window_reaches_the_rate_of_the_worker(round_trip_s, rate, least):
    window, reached = _pipeline(windows(), round_trip_s, rate, until_s=10.0)
    assert reached >= least * rate
    assert rate * round_trip_s <= window <= MAX_WINDOW


def test_a_window_opens_within_moments():
    # Doubling in each two seconds that rates were measured over it took 10; without
    # what comes between two credits it stayed at a third.
    window, _ = _pipeline(windows(), 0.05, 300, until_s=2.0)
    assert window >= 0.9 * 0.05 * 300


def test_a_few_unrolls_that_come_together_make_no_rate():
    credit = windows()
    _pipeline(credit, 0.5, 2, until_s=10.0)
    for step in range(25, 31):
        credit.arrived("w0", 1, step * T, T, 10.0)
    assert credit.window("w0", 10.0, room=99.0) <= 10  # not 30


def test_a_window_holds_two_pipelines_with_room_and_one_without():
    credit = windows()
    _pipeline(credit, 0.2, 50, until_s=10.0)  # 10 unrolls fill it
    assert 20 <= credit.window("w0", 10.0, room=99.0) <= 24
    assert 10 <= credit.window("w0", 10.0, room=0.0) <= 12
    assert 13 <= credit.window("w0", 10.0, room=3.0) <= 15


def test_a_backlog_that_is_found_at_the_start_opens_no_window():
    credit = windows()
    credit.started("w0", 5)
    credit.grant(0.0, room=99.0)
    # What the worker did before there was a learner arrives all at once.
    credit.arrived("w0", 5, T, T, 1.0)
    credit.arrived("w0", 5, 2 * T, T, 1.0)
    assert credit.grant(1.0, room=99.0) == {"w0": WorkerCredit(5, 4 * T)}


def test_queues_before_a_full_buffer_are_no_round_trips():
    credit = windows()
    credit.started("w0", 5)
    credit.grant(0.0, room=99.0)
    credit.arrived("w0", 5, 2 * T, T, 0.1)
    credit.grant(0.1, room=99.0)  # allows 4 T ...
    credit.grant(0.2, room=0.0)  # ... which then wait in the log
    credit.arrived("w0", 5, 4 * T, T, 5.1)
    assert credit.window("w0", 5.1, room=99.0) == 2
