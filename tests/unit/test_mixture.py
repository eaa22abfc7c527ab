"""Several buffers sampled as one: shares, weights, priorities; against slow oracles."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.mixture import Mixture, divide, divided_replay
from learner.replay_buffer import ReplayBuffer
from schemas.tensors import pack
from tests.unit.replay_batches import ENV, Stream, replay
from tests.unit.test_replay_buffer import rng


class Offset:
    """A generator whose one number is known."""

    def __init__(self, value):
        self._value = value

    def random(self):
        return self._value


SHARES = st.lists(
    st.one_of(st.just(0.0), st.floats(1e-3, 1e3)), min_size=1, max_size=6
).filter(any)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 600), SHARES, st.floats(0, 1, exclude_max=True))
def test_a_division_is_whole_and_off_by_less_than_one(count, shares, offset):
    counts = divide(count, np.array(shares), Offset(offset))
    assert sum(counts) == count
    for share, found in zip(shares, counts, strict=True):
        exact = count * share / sum(shares)
        assert abs(found - exact) < 1 + 1e-9
        assert share > 0 or found == 0


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.lists(st.integers(1, 9), min_size=2, max_size=5))
def test_a_division_is_exact_on_average(count, shares):
    """Over offsets in the middle of equal steps that divide all fractions there are."""
    steps = sum(shares)
    sums = np.zeros(len(shares), np.int64)
    for step in range(steps):
        sums += divide(count, np.array(shares, float), Offset((step + 0.5) / steps))
    assert sums.tolist() == [count * share for share in shares]


def test_an_offset_next_to_one_gives_no_row_too_many():
    for count in (32, 512, 4096):
        assert divide(count, np.array([1.0, 0.0]), Offset(1 - 2**-53)) == (count, 0)
        assert divide(count, np.array([1, 1e-18]), Offset(1 - 2**-53)) == (count, 0)
        first, second = divide(count, np.array([3.0, 1.0]), Offset(1 - 2**-53))
        assert first + second == count and second >= count // 4 - 1


def filled(number, priorities, **changes):
    """A buffer of worker ``number`` whose row of step i has priority i of these."""
    buffer = ReplayBuffer(
        ENV, replay(100, priority_epsilon=1e-9, **changes), unroll_length=8
    )
    if priorities:
        stream = Stream(f"w{number}", steps=len(priorities), lengths=(999,), n=1)
        values = np.array(priorities, "<f4").reshape(-1, 1)
        batch = stream.batch(0, len(priorities), priorities=pack(values))
        buffer.insert(batch, 0, 0)
    return buffer


def weights_by_hand(priorities, alpha, beta, drawn=None):
    """{(source, step): weight}; over the largest of all rows, or of those drawn."""
    raw = {}
    for number, each in enumerate(priorities):
        powers = [float(np.float32(p)) ** alpha for p in each]
        for step, power in enumerate(powers):
            raw[number, step] = (len(powers) * power / sum(powers)) ** -beta
    most = max(raw[row] for row in (drawn or raw))
    return {row: weight / most for row, weight in raw.items()}


def origins(sample):
    """(source, step) of each row, by its observation; and that it is one row."""
    found = sample.observations[""][:, [0, 2]].astype(int).tolist()
    after = sample.bootstrap_observations[""][:, [0, 2]].astype(int).tolist()
    assert after == [[number, step + 1] for number, step in found]
    assert sample.actions[""].tolist() == [step for _, step in found]
    return [tuple(row) for row in found]


PRIORITIES = st.lists(st.floats(0.05, 20), min_size=0, max_size=12)


@settings(max_examples=80, deadline=None)
@given(
    priorities=st.lists(PRIORITIES, min_size=2, max_size=4).filter(any),
    shares=st.lists(st.floats(0.05, 5), min_size=4, max_size=4),
    beta=st.sampled_from([0.0, 0.4, 1.0]),
    alpha=st.sampled_from([0.0, 0.6, 1.0]),
    by=st.sampled_from(["buffer", "batch"]),
    batch_size=st.integers(1, 64),
)
def test_a_mixed_sample_agrees_with_the_slow_one(
    priorities, shares, beta, alpha, by, batch_size
):
    shares = shares[: len(priorities)]
    buffers = [
        filled(number, each, alpha=alpha, weights_normalised_by=by)
        for number, each in enumerate(priorities)
    ]
    mixture = Mixture(buffers, shares)
    assert mixture.samplable_rows == sum(map(len, priorities))
    sample = mixture.sample(batch_size, beta, rng())
    rows = origins(sample)
    # What an empty source would have had is shared among the others, by their shares.
    there = [s if p else 0.0 for s, p in zip(shares, priorities, strict=True)]
    for number, share in enumerate(there):
        count = sum(source == number for source, _ in rows)
        assert count == sample.counts[number]
        assert abs(count - batch_size * share / sum(there)) < 1 + 1e-9
    drawn = set(rows) if by == "batch" else None
    expected = weights_by_hand(priorities, alpha, beta, drawn)
    assert sample.weights.tolist() == pytest.approx(
        [expected[row] for row in rows], rel=1e-5
    )
    assert sample.weights.max() <= 1 + 1e-6


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_with_beta_1_the_loss_is_the_shares_of_each_sources_mean(alpha):
    """Losses of 1, 2, ... in the first source and 10, 20, ... in the second."""
    priorities = [[1.0, 2.0, 30.0], [5.0, 5.0, 0.1, 0.2, 9.0]]
    buffers = [filled(n, each, alpha=alpha) for n, each in enumerate(priorities)]
    mixture, generator, weights = Mixture(buffers, [3, 1]), rng(), {}
    while len(weights) < 8:
        sample = mixture.sample(64, 1.0, generator)
        for row, weight in zip(origins(sample), sample.weights.tolist(), strict=True):
            assert weights.setdefault(row, weight) == pytest.approx(weight)
    loss = whole = 0.0
    for (number, step), weight in weights.items():
        powers = [priority**alpha for priority in priorities[number]]
        probability = [0.75, 0.25][number] * powers[step] / sum(powers)
        loss += probability * weight * (step + 1) * (10 if number else 1)
        whole += probability * weight
    assert loss / whole == pytest.approx(0.75 * 2.0 + 0.25 * 30.0, rel=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.lists(PRIORITIES, min_size=2, max_size=4).filter(any), st.integers(1, 40))
def test_priorities_go_back_to_the_rows_that_they_are_of(priorities, batch_size):
    buffers = [filled(number, each) for number, each in enumerate(priorities)]
    mixture = Mixture(buffers, [1.0] * len(buffers))
    sample = mixture.sample(batch_size, 0.4, rng())
    errors = np.array([100 * n + s + 1 for n, s in origins(sample)], np.float32)
    mixture.update_priorities(sample.indices, errors)
    drawn = set(origins(sample))
    for number, each in enumerate(priorities):
        found = buffers[number].references().priorities.tolist()
        assert found == pytest.approx(
            [
                100 * number + step + 1 if (number, step) in drawn else before
                for step, before in enumerate(each)
            ],
            rel=1e-5,
        )


def test_rows_evicted_since_do_not_give_their_priority_to_another():
    spec = replay(4)
    buffers = [ReplayBuffer(ENV, spec, unroll_length=2) for _ in range(2)]
    streams = [Stream(f"w{n}", 8, lengths=(99,), n=1) for n in range(2)]
    for buffer, stream in zip(buffers, streams, strict=True):
        for first in (0, 2):
            buffer.insert(stream.batch(first, first + 2), 0, first)
    mixture = Mixture(buffers, [1, 1])
    old = mixture.sample(64, 0.4, rng()).indices
    for first in (4, 6):
        buffers[0].insert(streams[0].batch(first, first + 2), 0, first)
    mixture.update_priorities(old, np.full(64, 9.0, np.float32))
    assert buffers[0].references().priorities.tolist() == [1.0] * 4
    assert min(buffers[1].references().priorities) == pytest.approx(9.001)


def test_one_buffer_is_sampled_as_if_there_were_no_mixture():
    plain, mixed = (filled(0, [1.0, 2.0, 3.0]) for _ in range(2))
    mixture = Mixture([mixed], [0.2])
    one, other = rng(), rng()
    for _ in range(5):
        a, b = plain.sample(32, 0.4, one), mixture.sample(32, 0.4, other)
        assert a.indices.tolist() == b.indices.tolist()
        assert a.weights.tolist() == b.weights.tolist()
        plain.update_priorities(a.indices, a.returns)
        mixture.update_priorities(b.indices, b.returns)
    assert one.bit_generator.state == other.bit_generator.state
    assert b.counts == ()


def test_an_empty_mixture_cannot_be_sampled_and_one_without_shares_not_made():
    with pytest.raises(ValueError, match="found none"):
        Mixture([filled(0, []), filled(1, [])], [1, 1]).sample(1, 0.4, rng())
    for shares in ([1], [1, 0]):
        with pytest.raises(ValueError, match="a share above 0 for each of 2 buffers"):
            Mixture([filled(0, []), filled(1, [])], shares)


def test_capacity_is_divided_by_share_and_never_grows():
    whole = replay(1000)
    shares = [1 / 3, 1 / 3, 1 / 3]
    parts = [divided_replay(whole, share).capacity for share in shares]
    assert parts == [333, 333, 333]
    assert divided_replay(whole, 1.0) == whole
    assert divided_replay(whole, 1e-9).capacity == 1
    tenths = [divided_replay(whole, share / 10).capacity for share in (1, 2, 7)]
    assert math.isclose(sum(tenths), 1000, abs_tol=3) and sum(tenths) <= 1000
