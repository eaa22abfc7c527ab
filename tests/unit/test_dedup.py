"""The ledger: each step of a stream is taken once, and what is missing is counted."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.dedup import MAX_INCARNATIONS, Identity, Ledger, Verdict

T, B = 4, 3


def batch(sequence, worker="w0", incarnation=7, run_id="run", steps=T):
    return Identity(run_id, worker, incarnation, sequence, sequence * T, steps, B)


def judge(ledger, *sequences, **more):
    return [ledger.judge(batch(s, **more)).verdict.value for s in sequences]


@pytest.mark.parametrize(
    ("sequences", "verdicts", "lost", "recovered"),
    [
        # In order: all new.
        ([0, 1, 2], ["new"] * 3, 0, 0),
        # Read again after a crash: dropped.
        ([0, 1, 0, 1, 2], ["new", "new", "duplicate", "duplicate", "new"], 0, 0),
        # 1 and 2 are missing: 2 unrolls x 4 steps x 3 environments.
        ([0, 3], ["new", "new"], 24, 0),
        # 1 comes later: 12 of the 24 move to recovered.
        ([0, 3, 1], ["new", "new", "recovered"], 12, 12),
        # Each fills once, the second time it is a duplicate.
        ([0, 3, 2, 1, 2], ["new", "new", "recovered", "recovered", "duplicate"], 0, 24),
        # The beginning is missing too.
        ([2], ["new"], 24, 0),
        # Two holes.
        ([0, 2, 4, 3], ["new", "new", "new", "recovered"], 12, 12),
    ],
)
def test_batches_are_judged_by_what_came_before(sequences, verdicts, lost, recovered):
    ledger = Ledger("run")
    assert judge(ledger, *sequences) == verdicts
    assert (ledger.lost_steps, ledger.recovered_steps) == (lost, recovered)


def test_other_runs_are_foreign_and_leave_no_trace():
    ledger = Ledger("run")
    assert judge(ledger, 5, run_id="other") == ["foreign"]
    assert judge(ledger, 0, 1) == ["new", "new"]
    assert ledger.lost_steps == 0


def test_incarnations_are_streams_of_their_own():
    ledger = Ledger("run")
    judge(ledger, 0, 1, incarnation=7)
    assert judge(ledger, 0, incarnation=9) == ["new"]
    # A late record of the older one, which the crash had held back.
    assert judge(ledger, 2, incarnation=7) == ["new"]
    assert list(ledger.newest()) == [("w0", 9, T)]


def test_only_the_first_stream_of_a_cut_log_sets_its_own_baseline():
    ledger = Ledger("run")
    assert ledger.judge(batch(5), log_was_cut=True).lost_steps == 0
    assert judge(ledger, 4, 6) == ["duplicate", "new"]
    # A newer incarnation of that worker began after the log did: sequence 0 is lost.
    newer = ledger.judge(batch(1, incarnation=8), log_was_cut=True)
    assert newer.lost_steps == T * B


def test_a_batch_that_does_not_fit_its_hole_is_dropped_and_told():
    ledger = Ledger("run")
    judge(ledger, 0, 3)
    odd = Identity("run", "w0", 7, 1, 10, T, B)  # 10 + 4 > 12, where the hole ends
    judgement = ledger.judge(odd)
    assert judgement.verdict is Verdict.DUPLICATE
    assert "expected steps within 4 to 12, found 10 to 14" in judgement.note
    assert ledger.lost_steps == 24


def test_steps_that_no_batch_can_bring_stay_lost():
    ledger = Ledger("run")
    judge(ledger, 0, 3)
    # Sequence 1 was written with 2 of the 4 steps: the other 2 stay missing.
    ledger.judge(batch(1, steps=2))
    ledger.judge(batch(2))
    assert (ledger.lost_steps, ledger.recovered_steps) == (2 * B, (2 + T) * B)


def test_old_incarnations_are_forgotten_and_then_dropped():
    ledger = Ledger("run")
    for incarnation in range(MAX_INCARNATIONS + 5):
        judge(ledger, 0, incarnation=incarnation)
    assert len(ledger.state()["streams"]) == MAX_INCARNATIONS
    forgotten = ledger.judge(batch(1, incarnation=2))
    assert forgotten.verdict is Verdict.DUPLICATE
    assert "too old" in forgotten.note


@st.composite
def deliveries(draw):
    """Some batches of two streams, any of them repeated, missing or late."""
    sent = [(inc, seq) for inc in (3, 8) for seq in range(draw(st.integers(1, 8)))]
    return draw(st.lists(st.sampled_from(sent), max_size=40))


@given(deliveries(), st.integers(0, 40))
def test_any_delivery_takes_each_batch_once_and_counts_the_rest(arrivals, cut):
    """Against a set of what was taken; in between, the state goes through JSON."""
    ledger, taken, ends = Ledger("run"), set(), {}
    for index, (incarnation, sequence) in enumerate(arrivals):
        if index == cut:
            ledger = Ledger.from_state(json.loads(json.dumps(ledger.state())))
        verdict = ledger.judge(batch(sequence, incarnation=incarnation)).verdict
        is_new = (incarnation, sequence) not in taken
        late = sequence < ends.get(incarnation, 0)
        expected = Verdict.RECOVERED if late else Verdict.NEW
        assert verdict is (expected if is_new else Verdict.DUPLICATE)
        taken.add((incarnation, sequence))
        ends[incarnation] = max(ends.get(incarnation, 0), sequence + 1)
        missing = sum(ends.values()) - len(taken)
        assert ledger.lost_steps == missing * T * B
    holes = sum(hole.lost for _, _, hole in ledger.holes())
    assert holes == ledger.lost_steps
