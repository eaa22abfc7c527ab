"""The buffer of sequences against one that is slow and obvious."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.sequence_buffer import SequenceBuffer
from tests.unit.replay_batches import ENV, replay
from tests.unit.sequences.histories import STATES, Oracle, histories


def empty(capacity, length, burn_in):
    # With alpha 0 all items are alike, and equal parts find each of them.
    return SequenceBuffer(
        ENV,
        replay(capacity, alpha=0.0),
        unroll_length=1,
        sequence_length=length,
        burn_in=burn_in,
        states=STATES,
    )


def drawn(buffer, length, count, seed=0):
    """{index: its number in the sample}, and a sample of ``count`` sequences."""
    sample = buffer.sample(count * length, 0.4, np.random.default_rng(seed))
    return {int(index): n for n, index in enumerate(sample.indices)}, sample


def check(buffer, oracle):
    expected = oracle.items()
    if not expected:
        with pytest.raises(ValueError, match="above zero"):
            drawn(buffer, oracle.length, 1)
        assert buffer.samplable_rows == 0
        return
    found, sample = drawn(buffer, oracle.length, 2 * len(expected))
    assert found.keys() == expected.keys()
    for index, (piece, env, reach) in expected.items():
        check_sequence(sample, found[index], piece, env, reach)


def check_sequence(sample, n, piece, env, reach):
    stream, first = piece.stream, piece.first
    steps = range(first, first + reach)
    seen = stream.observations[first : first + reach + 1, env]
    assert np.array_equal(sample.observations[""][: reach + 1, n], seen)
    assert sample.states["h"][n].tolist() == piece.state()[env].tolist()
    assert sample.valid[:reach, n].tolist() == [
        bool(stream.valid[s, env]) for s in steps
    ]
    assert not sample.valid[reach:, n].any()
    assert sample.actions[""][:reach, n].tolist() == [s % 1000 for s in steps]
    nothing = (0.0, 0.0, 0)
    targets = [
        stream.target(s, env) if stream.valid[s, env] else nothing for s in steps
    ]
    targets += [nothing] * (len(sample.valid) - reach)
    returns, discounts, ahead = zip(*targets, strict=True)
    assert sample.returns[:, n].tolist() == pytest.approx(returns)
    assert sample.discounts[:, n].tolist() == pytest.approx(discounts)
    assert sample.bootstrap_steps[:, n].tolist() == list(ahead)


def fill(order, capacity, length, burn_in):
    buffer, oracle = empty(capacity, length, burn_in), Oracle(capacity, length, burn_in)
    log = []
    for offset, piece in enumerate(order):
        batch = piece.batch()
        log.append((0, offset, batch))
        oracle.take(piece)
        if piece.is_blank:
            buffer.pass_over(batch)
        else:
            assert buffer.insert(batch, 0, offset) == batch.valid.array().sum()
        check(buffer, oracle)
    return buffer, oracle, log


@settings(max_examples=250, deadline=None)
@given(histories(), st.integers(72, 200), st.integers(1, 12), st.integers(0, 4))
def test_buffer_gives_what_the_log_says(order, capacity, learnt, burn_in):
    buffer, oracle, _ = fill(order, capacity, burn_in + learnt, burn_in)
    rows = [piece.stream.valid[piece.first : piece.last] for _, piece in oracle.held]
    assert buffer.rows == sum(int(valid.sum()) for valid in rows)
    assert buffer.learnable_rows == sum(
        int(valid[: oracle.length].sum()) for valid in rows
    )
    everything = sum(
        int(p.stream.valid[p.first : p.last].sum()) for p in order if not p.is_blank
    )
    assert buffer.dropped_rows + buffer.learnable_rows <= everything


@settings(max_examples=100, deadline=None)
@given(st.data(), histories(), st.integers(72, 200), st.integers(1, 12))
def test_restored_buffer_gives_the_same(data, order, capacity, length):
    buffer, oracle, log = fill(order, capacity, length, 0)
    references = buffer.references()
    restored = empty(capacity, length, 0)
    assert restored.restore(references, data.draw(st.permutations(log))) == 0
    for name in ("rows", "learnable_rows", "dropped_rows"):
        assert getattr(restored, name) == getattr(buffer, name), name
    assert restored.oldest_offsets() == buffer.oldest_offsets()
    oracle = oracle.restored()
    for worker, (incarnation, step) in references.blanks.newest.items():
        heard = oracle.newest.get(worker, (-1, -1))
        oracle.newest[worker] = max(heard, (incarnation, step))
    check(restored, oracle)
    assert restored.references().chunks == references.chunks
    assert np.array_equal(restored.references().priorities, references.priorities)
