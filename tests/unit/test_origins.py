"""What is drawn of the buffer is told by who acted in it, whatever is evicted."""

from collections import Counter
from functools import cache

import numpy as np
import pytest

from learner.origins import Origins
from learner.replay_buffer import ReplayBuffer
from learner.stored_rows import Ring
from schemas.records import NO_POLICY, PolicyRef
from tests.unit.replay_batches import ENV, Stream, replay

RANDOM = None
ENDLESS = (10**9,)


def make_buffer(capacity):
    buffer = ReplayBuffer(ENV, replay(capacity), unroll_length=1)
    buffer.origins.watch()
    return buffer


@cache
def stream_of(worker):
    return Stream(worker, 1000, 1, ENDLESS, 1)


def batch_of(worker, first, last, version, at_s):
    """Rows first to last - 1 of a worker, all valid."""
    policy = NO_POLICY if version is RANDOM else PolicyRef(3, version)
    produced_at_ms = int(at_s * 1000)
    return stream_of(worker).batch(
        first, last, policy=policy, produced_at_ms=produced_at_ms
    )


def draw(buffer, *slots):
    buffer.gather(np.array(slots), np.ones(len(slots)))


def taken(origins):
    """Rows by (worker, version, time)."""
    acted = origins.take()
    if acted is None:
        return {}
    versions = [RANDOM if np.isnan(v) else int(v) for v in acted.versions]
    workers = [origins.workers[number] for number in acted.workers]
    keys = zip(workers, versions, acted.at_s.tolist(), strict=True)
    return dict(zip(keys, acted.counts.tolist(), strict=True))


def test_rows_have_the_origin_of_their_batch():
    buffer = make_buffer(10)
    buffer.insert(batch_of("w0", 0, 3, RANDOM, 100.5), 0, 0)  # slots 0 to 2
    buffer.insert(batch_of("w1", 0, 2, 0, 101.0), 0, 1)  # 3 and 4
    buffer.insert(batch_of("w0", 3, 8, 7, 102.25), 0, 2)  # 5 to 9
    draw(buffer, 0, 2, 2, 3)
    draw(buffer, 9, 5, 6, 2)
    assert taken(buffer.origins) == {
        ("w0", RANDOM, 100.5): 4,
        ("w1", 0, 101.0): 1,
        ("w0", 7, 102.25): 3,
    }
    assert taken(buffer.origins) == {}


def test_what_was_drawn_is_told_though_it_was_evicted_since():
    buffer = make_buffer(4)
    buffer.insert(batch_of("w0", 0, 2, 1, 10), 0, 0)  # slots 0 and 1
    buffer.insert(batch_of("w0", 2, 4, 2, 20), 0, 1)  # 2 and 3
    draw(buffer, 0, 1, 2)
    buffer.insert(batch_of("w0", 4, 6, 3, 30), 0, 2)  # evicts the first
    draw(buffer, 0)
    assert taken(buffer.origins) == {
        ("w0", 1, 10): 2,
        ("w0", 2, 20): 1,
        ("w0", 3, 30): 1,
    }


def test_a_restored_buffer_tells_the_same():
    buffer, restored = make_buffer(6), make_buffer(6)
    batches = [
        batch_of(f"w{k % 2}", 2 * k, 2 * k + 2, RANDOM if k == 2 else k, 10 * k)
        for k in range(5)
    ]
    for offset, batch in enumerate(batches):
        buffer.insert(batch, 0, offset)
    log = [(0, offset, batch) for offset, batch in enumerate(batches)]
    assert restored.restore(buffer.references(), reversed(log)) == 0
    for each in (buffer, restored):
        draw(each, *range(6))
    expected = {("w0", RANDOM, 20): 2, ("w1", 3, 30): 2, ("w0", 4, 40): 2}
    assert taken(buffer.origins) == taken(restored.origins) == expected


@pytest.mark.parametrize("is_watched", [True, False])
def test_numbers_go_round_so_that_nothing_grows(is_watched):
    buffer = ReplayBuffer(ENV, replay(8), unroll_length=1)
    if is_watched:
        buffer.origins.watch()
    for step in range(1000):
        buffer.insert(batch_of("w0", step, step + 1, step, step), 0, step)
        draw(buffer, step % 8)
        if is_watched:
            assert taken(buffer.origins) == {("w0", step, step): 1}
    assert len(buffer.origins._at_s) <= 64
    assert len(buffer.origins._by_version) <= 8
    assert buffer.origins._drawn == []


def test_a_buffer_that_nobody_watches_notes_nothing():
    buffer = ReplayBuffer(ENV, replay(8), unroll_length=1)
    buffer.insert(batch_of("w0", 0, 4, 1, 10), 0, 0)
    draw(buffer, 0, 1)
    assert buffer.origins.take() is None


def test_draws_and_evictions_in_any_order_agree_with_a_slow_count():
    rng = np.random.default_rng(7)
    buffer, expected, slots = make_buffer(200), Counter(), {}
    steps, position = Counter(), 0
    for offset in range(600):
        worker, length = f"w{rng.integers(5)}", int(rng.integers(1, 6))
        version = RANDOM if rng.random() < 0.2 else int(rng.integers(100))
        first = steps[worker]
        steps[worker] += length
        batch = batch_of(worker, first, first + length, version, offset)
        buffer.insert(batch, 0, offset)
        for _ in range(length):
            slots[position % 200] = (worker, version, float(offset))
            position += 1
        for _ in range(rng.integers(3)):
            # Of rows that are held in any case: the observations' ring may be fuller.
            back = rng.integers(1, min(position, 50) + 1, 8)
            drawn = (position - back) % 200
            draw(buffer, *drawn)
            expected.update(slots[slot] for slot in drawn.tolist())
        if rng.random() < 0.1:
            assert taken(buffer.origins) == expected
            expected.clear()
    assert taken(buffer.origins) == expected


def test_more_chunks_than_there_was_room_for_at_first():
    buffer = make_buffer(500)
    for step in range(500):
        buffer.insert(batch_of("w0", step, step + 1, step, step), 0, step)
    draw(buffer, *range(500))
    assert taken(buffer.origins) == {("w0", step, step): 1 for step in range(500)}


def test_an_empty_one_has_nothing():
    assert Origins(Ring(4, np.int32)).take() is None
