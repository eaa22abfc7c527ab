"""What is emitted when: by hand, and against the slow oracle over whole logs."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.codec import decode, encode
from schemas.errors import SchemaError
from schemas.records import StreamEnd, TransitionBatch, Unroll
from schemas.tensors import Tensor
from stream_processors.acks import Window
from stream_processors.tails import (
    Action,
    Emit,
    ReturnOptions,
    TailCounts,
    Tails,
)
from tests.unit.test_processor_oracle import (
    Owed,
    Row,
    assert_same,
    make_end,
    make_unroll,
    owed_by_log,
    rows_of,
)

Record = Unroll | StreamEnd
THREE = ReturnOptions(n=3, gamma=0.5)


def tails(options: ReturnOptions = THREE, counts: TailCounts | None = None) -> Tails:
    return Tails("trajectories", 3, options, counts)


def feed(machine: Tails, log: Sequence[Record], start: int = 0) -> list[list[str]]:
    """Feed; return what each record brought about: `+4` emitted, `-4` done."""
    return [
        [name(action) for action in machine.feed(start + offset, record)]
        for offset, record in enumerate(log)
    ]


def name(action: Action) -> str:
    return f"{'+' if isinstance(action, Emit) else '-'}{action.offset}"


def stream(*lengths: int, end: bool = False, **options: int) -> list[Unroll]:
    """Consecutive unrolls of the given lengths; rewards are 1, 2, 3, ..."""
    found, step = [], 0
    for sequence, length in enumerate(lengths):
        rewards = [[float(step + i + 1)] for i in range(length)]
        last = end and sequence == len(lengths) - 1
        found.append(
            make_unroll(
                rewards, sequence=sequence, first_step=step, end=last, **options
            )
        )
        step += length
    return found


def test_one_step_returns_are_emitted_at_once() -> None:
    machine = tails(ReturnOptions(n=1, gamma=0.5))
    assert feed(machine, stream(4, 2)) == [["+0"], ["+1"]]


@pytest.mark.parametrize(
    ("lengths", "n", "expected", "reason"),
    [
        ((2, 2, 2), 3, [[], ["+0"], ["+1"]], "two rows after the last are enough"),
        ((4, 1, 1, 1), 3, [[], [], ["+0"], ["+1"]], "short unrolls: two of them"),
        ((1, 1, 4), 5, [[], [], ["+0", "+1"]], "a long one completes several"),
        ((1,) * 5, 5, [[], [], [], [], ["+0"]], "ceil((n - 1) / T) = 4 further"),
    ],
)
def test_an_unroll_waits_for_the_horizon_of_its_last_row(
    lengths: tuple[int, ...], n: int, expected: list[list[str]], reason: str
) -> None:
    machine = tails(ReturnOptions(n=n, gamma=0.5))
    assert feed(machine, stream(*lengths)) == expected, reason


@pytest.mark.parametrize(
    ("last", "expected", "reason"),
    [
        (make_unroll([[1.0]], incarnation=9), ["+0"], "a newer incarnation"),
        (make_end(incarnation=9), ["+0", "-1"], "the end of a newer incarnation"),
        (make_end(incarnation=5), ["+0", "-1"], "its own end"),
        (make_end(incarnation=4), ["-1"], "the end of an older one: not of this"),
        (make_end(worker="w1", incarnation=9), ["-1"], "another worker's end"),
        (
            make_unroll([[1.0]], incarnation=5, sequence=2, first_step=2),
            ["+0"],
            "a hole in the sequence",
        ),
        (
            make_unroll([[1.0]], incarnation=5, sequence=1, first_step=7),
            ["+0"],
            "a hole in the steps",
        ),
        (
            make_unroll([[1.0, 1.0]], incarnation=5, sequence=1, first_step=2),
            ["+0"],
            "another number of environments",
        ),
        (
            make_unroll([[1.0]], incarnation=5, sequence=1, first_step=2, end=True),
            ["+0", "+1"],
            "its last unroll",
        ),
        (
            make_unroll([[1.0]], incarnation=5, sequence=1, first_step=2),
            [],
            "it goes on: wait",
        ),
        (make_unroll([[1.0]], worker="w1", incarnation=9), [], "another worker"),
    ],
)
def test_what_closes_a_segment(last: Record, expected: list[str], reason: str) -> None:
    machine = tails()
    first = make_unroll([[1.0], [1.0]], incarnation=5)
    assert feed(machine, [first, last]) == [[], expected], reason


@pytest.mark.parametrize(
    ("last", "ends", "reason"),
    [
        (make_end(incarnation=5), [False, True], "the last batch, and no other"),
        (make_end(incarnation=9), [False, True], "of a newer one: this is over too"),
        (make_unroll([[1.0]], incarnation=9), [False] * 2, "learners see that"),
        (
            make_unroll([[1.0]], incarnation=5, sequence=5, first_step=9),
            [False] * 2,
            "a hole: the stream goes on behind it",
        ),
    ],
)
def test_the_last_batch_that_a_stream_end_closes_says_so(
    last: Record, ends: list[bool], reason: str
) -> None:
    machine = tails()
    feed(machine, stream(1, 1, incarnation=5))
    closed = [a for a in machine.feed(2, last) if isinstance(a, Emit)]
    assert [action.batch.end_of_stream for action in closed] == ends, reason


def test_a_closed_segment_has_shorter_returns() -> None:
    (action,) = tails().feed(7, stream(4, end=True)[0])
    assert isinstance(action, Emit)
    batch = action.batch
    assert batch.returns.array()[:, 0].tolist() == [2.75, 4.5, 5.0, 4.0]
    assert batch.discounts.array()[:, 0].tolist() == [0.125, 0.125, 0.25, 0.5]
    assert batch.bootstrap_steps.array()[:, 0].tolist() == [3, 3, 2, 1]
    assert action.num_valid == 4


def test_everything_of_the_unroll_passes_through_as_it_came() -> None:
    unroll = make_unroll([[1.0], [2.0]], encoding="ZSTD", end=True, sequence=6)
    (action,) = tails().feed(42, unroll)
    assert isinstance(action, Emit)
    for each in dataclasses.fields(Unroll):
        assert getattr(action.batch, each.name) is getattr(unroll, each.name)
    assert dataclasses.astuple(action.batch.source) == ("trajectories", 3, 42)
    assert decode(encode(action.batch), TransitionBatch) == action.batch


def test_a_repeated_record_is_done_at_once_and_changes_nothing() -> None:
    counts = TailCounts()
    first, second, third = stream(2, 2, 2)
    found = feed(tails(counts=counts), [first, first, second, first, third])
    assert found == [[], ["-1"], ["+0"], ["-3"], ["+2"]]
    assert counts.repeated_records == 2 and counts.holes == 0


def test_a_late_record_of_an_older_incarnation_opens_a_segment_of_its_own() -> None:
    counts = TailCounts()
    old = stream(2, 2, 2, incarnation=1)
    new = stream(2, 2, 2, incarnation=2)
    log = [old[0], new[0], old[1], old[2], new[1], new[2]]
    # new[1] closes old[2], whose rows nothing can follow any more.
    assert feed(tails(counts=counts), log) == [
        [], ["+0"], [], ["+2"], ["+3", "+1"], ["+4"],
    ]  # fmt: skip
    assert counts.late_records == 2


def test_an_unroll_behind_its_own_stream_stands_alone() -> None:
    counts = TailCounts()
    unrolls = stream(1, 1, 1, 1, 1)
    log = [unrolls[0], unrolls[2], unrolls[1], unrolls[3], unrolls[4]]
    assert feed(tails(counts=counts), log) == [[], ["+0"], ["+2"], [], ["+1"]]
    assert (counts.holes, counts.late_records) == (1, 1)


def test_an_unroll_that_was_put_back_stands_alone_whatever_is_known_of_it() -> None:
    first, second, third = stream(2, 2, 2)
    machine = tails()
    assert feed(machine, [first, second]) == [[], ["+0"]]
    # Its batch was made, and refused for its size; later it is put back.
    (action,) = machine.feed(2, first, alone=True)
    assert isinstance(action, Emit)
    assert (action.offset, action.batch.sequence) == (2, 0)
    # Two rewards for the first row, one for the last: nothing follows.
    assert action.batch.bootstrap_steps.array()[:, 0].tolist() == [2, 1]
    # Its stream goes on as if nothing had been.
    (after,) = machine.feed(3, third)
    assert isinstance(after, Emit) and after.offset == 1
    # The last unroll of a stream that is put back ends it.
    end = stream(2, 2, 2, 2, end=True)[3]
    offsets = [each.offset for each in machine.feed(4, end, alone=True)]
    assert offsets == [4, 3]


def test_a_record_that_cannot_be_used_changes_nothing() -> None:
    first, second, third = stream(2, 2, 2)
    broken = dataclasses.replace(
        second, rewards=Tensor("<f4", (2, 1), "ZSTD", b"not zstd")
    )
    infinite = make_unroll([[float("inf")], [1.0]], sequence=1, first_step=2)
    machine = tails()
    machine.feed(0, first)
    for bad in (broken, infinite):
        with pytest.raises(SchemaError):
            machine.feed(1, bad)
    assert feed(machine, [second, third], start=2) == [["+0"], ["+2"]]


def test_the_value_at_a_seam_is_the_one_of_the_policy_that_led_there() -> None:
    def behaviour(*values: float) -> dict[str, np.ndarray]:
        return {
            "q_max": np.array(values, np.float32)[:, None],
            "q_taken": np.zeros((1, 1), np.float32),
        }

    log = [
        make_unroll([[1.0]], behaviour=behaviour(9, 8)),
        make_unroll([[1.0]], sequence=1, first_step=1, behaviour=behaviour(100, 16)),
        make_unroll([[1.0]], sequence=2, first_step=2, behaviour=behaviour(7, 32)),
    ]
    machine = tails(ReturnOptions(n=2, gamma=0.5, priority_epsilon=0.25))
    actions = [a for i, record in enumerate(log) for a in machine.feed(i, record)]
    priorities = [a.batch.priorities.array()[0, 0] for a in actions]  # type: ignore[union-attr]
    # 1 + .5 + .25 * 16 + .25: the second unroll's own last row, not the third's first.
    assert priorities == [5.75, 1.5 + 0.25 * 32 + 0.25]


def test_without_behaviour_priorities_are_nan_and_actor_critics_use_values() -> None:
    values = {"value": np.array([[4], [2]], np.float32)}
    for behaviour, expected in (({}, np.nan), (values, 3.0 - 1e-6 + 1e-6)):
        (action,) = tails(ReturnOptions(1, 0.0, 1.0, 1e-9)).feed(
            0, make_unroll([[1.0]], behaviour=behaviour)
        )
        found = action.batch.priorities.array()[0, 0]  # type: ignore[union-attr]
        assert found == pytest.approx(expected, nan_ok=True)


def test_an_observation_that_is_not_finite_takes_the_bootstrap_away() -> None:
    observations = np.zeros((3, 2, 4), np.float32)
    observations[2, 1, 3] = np.nan
    log = [
        make_unroll([[1.0, 1.0]] * 2, observations=observations),
        make_unroll([[1.0, 1.0]] * 2, sequence=1, first_step=2),
    ]
    machine = tails(ReturnOptions(n=2, gamma=0.5))
    actions = [a for i, record in enumerate(log) for a in machine.feed(i, record)]
    discounts = actions[0].batch.discounts.array()  # type: ignore[union-attr]
    assert discounts.tolist() == [[0.25, 0.0], [0.25, 0.25]]


def test_what_is_held_does_not_grow_over_ten_thousand_episodes() -> None:
    def unroll(turn: int, worker: str) -> Unroll:
        """Ten episodes of one step; every tenth unroll is of a new incarnation."""
        return make_unroll(
            [[0.0] * 10, [1.0] * 10],
            worker=worker,
            incarnation=turn // 10,
            sequence=turn % 10,
            first_step=2 * (turn % 10),
            terminated=[(1, env) for env in range(10)],
            invalid=[(0, env) for env in range(10)],
        )

    machine, done = tails(), 0
    alive_before = alive()
    for offset in range(1000):
        done += len(machine.feed(offset, unroll(offset // 4, f"w{offset % 4}")))
        if offset % 200 == 199:
            # One unroll of each of 4 workers waits for the rows after it.
            assert done == offset + 1 - 4
            assert alive() - alive_before == 2 * 4
    ends = [machine.feed(1000 + i, make_end(f"w{i}", 1_000)) for i in range(4)]
    assert done + sum(len(actions) for actions in ends) == 1004


def alive() -> int:
    """How many unrolls and segments there are in this process."""
    gc.collect()
    kinds = {"_Held", "_Segment"}
    return sum(type(each).__name__ in kinds for each in gc.get_objects())


# ---- whole logs


@st.composite
def logs(draw: st.DrawFn) -> list[Record]:
    """A partition's log: a few workers, incarnations, cut anyhow, with repetitions."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    lanes = [_worker_log(rng, f"w{i}") for i in range(draw(st.integers(1, 3)))]
    log: list[Record] = []
    while any(lanes):
        lane = draw(st.sampled_from([lane for lane in lanes if lane]))
        log.append(lane.pop(0))
        if rng.random() < 0.1:  # written again
            log.append(log[int(rng.integers(max(0, len(log) - 3), len(log)))])
    return log


def _worker_log(rng: np.random.Generator, worker: str) -> list[Record]:
    log: list[Record] = []
    envs = int(rng.integers(1, 3))
    for incarnation in np.cumsum(rng.integers(1, 4, size=3)).tolist():
        count, step = int(rng.integers(1, 6)), 0
        for sequence in range(count):
            length = int(rng.integers(1, 5))
            if rng.random() > 0.1:  # else it never arrived
                log.append(
                    _unroll(rng, worker, incarnation, sequence, step, (length, envs))
                )
            step += length
        if log and rng.random() < 0.3:
            log.append(make_end(worker, incarnation))
    return log


def _unroll(
    rng: np.random.Generator,
    worker: str,
    incarnation: int,
    sequence: int,
    step: int,
    shape: tuple[int, int],
) -> Unroll:
    marks = [[tuple(p) for p in np.argwhere(rng.random(shape) < 0.15)] for _ in "abc"]
    return make_unroll(
        rng.normal(size=shape).tolist(),
        worker=worker,
        incarnation=incarnation,
        sequence=sequence,
        first_step=step,
        terminated=marks[0],
        truncated=marks[1],
        invalid=marks[2],
        end=bool(rng.random() < 0.05),
    )


class Reader:
    """Reads a log as a processor does, again from what it acknowledged."""

    def __init__(self, log: Sequence[Record], options: ReturnOptions) -> None:
        self.log, self.options = log, options
        self.committed = 0
        self.sent: list[tuple[int, bytes]] = []
        self.found: dict[Row, Owed] = {}

    def run(self, records: int) -> None:
        """Begin at the committed offset, with no memory, and read so many records."""
        machine = Tails("t", 0, self.options)
        window: Window[int] = Window()
        for offset in range(self.committed, len(self.log))[:records]:
            window.add(offset, offset)
            for action in machine.feed(offset, self.log[offset]):
                if isinstance(action, Emit):
                    self._deliver(action)
                for acked in window.done(action.offset):
                    assert acked == self.committed  # in order, without a hole
                    self.committed = acked + 1

    def _deliver(self, action: Emit) -> None:
        self.sent.append((action.offset, encode(action.batch)))
        for row, owed in rows_of(action.batch).items():
            self.found.setdefault(row, owed)  # the learner drops repetitions


@settings(max_examples=120, deadline=None)
@given(
    log=logs(),
    n=st.integers(1, 8),
    restarts=st.lists(st.integers(1, 25), max_size=6),
)
def test_any_log_read_with_any_restarts_equals_the_oracle(
    log: list[Record], n: int, restarts: list[int]
) -> None:
    # Whatever is still open at the end of the log is closed by its workers' ends.
    log = [*log, *(make_end(f"w{i}", 1_000) for i in range(3))]
    options = ReturnOptions(n=n, gamma=0.9, reward_scale=0.5)
    reader = Reader(log, options)
    for records in [*restarts, len(log)]:
        reader.run(records)
    assert reader.committed == len(log)
    assert_same(reader.found, owed_by_log(log, n, 0.9, 0.5))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 8),
    restarts=st.lists(st.integers(1, 25), max_size=6),
)
def test_the_same_log_gives_the_same_bytes_wherever_reading_begins(
    seed: int, n: int, restarts: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    log = [*_worker_log(rng, "w0"), make_end("w0", 1_000)]
    options = ReturnOptions(n=n, gamma=0.9)
    once, often = Reader(log, options), Reader(log, options)
    once.run(len(log))
    for records in [*restarts, len(log)]:
        often.run(records)
    assert set(often.sent) == set(once.sent)
    assert len(once.sent) == sum(isinstance(record, Unroll) for record in log)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 10))
def test_any_cutting_of_a_stream_into_unrolls_gives_the_same_rows(
    seed: int, n: int
) -> None:
    rng = np.random.default_rng(seed)
    whole = _unroll(rng, "w0", 0, 0, 0, (12, 2))
    cuts = sorted({0, 12, *rng.integers(1, 12, size=4).tolist()})
    log: list[Record] = [
        *(
            _cut(whole, i, start, stop)
            for i, (start, stop) in enumerate(zip(cuts, cuts[1:], strict=False))
        ),
        make_end("w0", 0),
    ]
    options = ReturnOptions(n=n, gamma=0.9)
    found = []
    for records in (log, [whole, make_end("w0", 0)]):
        reader = Reader(records, options)
        reader.run(len(records))
        found.append(reader.found)
    assert_same(*found)


def _cut(whole: Unroll, sequence: int, start: int, stop: int) -> Unroll:
    places = {
        name: [tuple(p) for p in np.argwhere(column.array()[start:stop])]
        for name, column in (
            ("terminated", whole.terminated),
            ("truncated", whole.truncated),
        )
    }
    return make_unroll(
        whole.rewards.array()[start:stop].tolist(),
        sequence=sequence,
        first_step=start,
        invalid=[tuple(p) for p in np.argwhere(~whole.valid.array()[start:stop])],
        **places,  # type: ignore[arg-type]
    )
