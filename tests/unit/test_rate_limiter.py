"""The limiter against a slow model that counts one item at a time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.rate_limiter import RateLimiter, error_buffer_for
from schemas.experiment import from_values


class OneByOne:
    """Reverb's rules, item by item, straight from its documentation."""

    def __init__(self, ratio, min_size, low, high):
        self.ratio, self.min_size, self.low, self.high = ratio, min_size, low, high
        self.inserts = self.samples = self.deletes = 0

    def try_insert(self):
        filling = self.inserts + 1 - self.deletes <= self.min_size
        if not filling and (self.inserts + 1) * self.ratio - self.samples > self.high:
            return False
        self.inserts += 1
        return True

    def try_sample(self):
        if self.inserts - self.deletes < self.min_size:
            return False
        if self.inserts * self.ratio - self.samples - 1 < self.low:
            return False
        self.samples += 1
        return True


@given(
    st.sampled_from([0.25, 0.5, 1.0, 2.0, 8.0]),
    st.integers(1, 20),
    st.integers(0, 30),
    st.lists(st.sampled_from(["insert", "sample", "delete"]), max_size=200),
)
def test_limiter_allows_exactly_what_reverb_allows(ratio, min_size, extra, actions):
    buffer = max(1.0, ratio) + extra
    limiter = RateLimiter(ratio, min_size, buffer)
    model = OneByOne(ratio, min_size, ratio * min_size - buffer, limiter.max_diff)
    assert limiter.min_diff == model.low
    for action in actions:
        if action == "insert":
            allowed = limiter.can_insert()
            assert allowed == model.try_insert()
            limiter.insert(int(allowed))
        elif action == "sample":
            allowed = limiter.can_sample()
            assert allowed == model.try_sample()
            limiter.sample(int(allowed))
        elif limiter.size:
            model.deletes += 1
            limiter.resize(limiter.size - 1)


@given(
    st.sampled_from([0.1, 0.5, 1.0, 4.0]),
    st.integers(1, 3000),
    st.integers(1, 4096),
    st.integers(1, 4),
    st.integers(1, 1024),
    st.data(),
)
def test_batches_and_samples_never_wait_for_each_other(
    ratio, min_size, rows, workers, batch_size, data
):
    """With whole batches of ``rows`` and draws of ``batch_size``, one may go on."""
    values = {
        "apiVersion": "rollstream/v1",
        "kind": "Experiment",
        "metadata": {"name": "test"},
        "spec": {
            "env": {"id": "CartPole-v1"},
            "workers": {"envsPerWorker": 1, "unrollLength": rows},
            "learner": {"batchSize": batch_size, "samplesPerInsert": ratio},
        },
    }
    buffer = error_buffer_for(from_values(values).spec, workers)
    limiter = RateLimiter(ratio, min_size, buffer)
    for prefers_insert in data.draw(st.lists(st.booleans(), max_size=60)):
        may = limiter.can_insert_batch(rows), limiter.can_sample(batch_size)
        assert any(may)
        if may[0] and (prefers_insert or not may[1]):
            limiter.insert(rows)
        else:
            limiter.sample(batch_size)


def test_a_worked_example():
    # 2 samples an insert, 10 to start with, 8 off: diff may be 20 - 8 to 20 + 8.
    limiter = RateLimiter(2.0, 10, 8.0)
    limiter.insert(10)
    assert limiter.can_sample(8) and not limiter.can_sample(9)
    assert limiter.can_insert(4) and not limiter.can_insert(5)
    limiter.sample(8)
    assert not limiter.can_sample() and limiter.can_insert(8)


def test_rows_lost_at_a_restart_do_not_block_both_sides():
    limiter = RateLimiter(1.0, 100, 50.0)
    limiter.insert(1000)
    limiter.sample(850)  # diff 150 = max_diff: nothing may be inserted
    limiter.resize(0)  # and the log kept nothing
    assert not limiter.can_sample()
    while limiter.size < 100:
        assert limiter.can_insert_batch(32)
        limiter.insert(32)
    assert limiter.can_sample(32)


def test_counters_go_on_after_a_restart():
    before = RateLimiter(1.0, 100, 50.0, inserts=1000, samples=880, deletes=300)
    after = RateLimiter(1.0, 100, 50.0)
    after.restore(before.state())
    assert after == before


def test_another_ratio_holds_from_the_restart_on_without_a_burst():
    before = RateLimiter(1.0, 100, 50.0, inserts=1000, samples=890)
    after = RateLimiter(4.0, 100, 200.0)
    after.restore(before.state())
    # 10 samples were owed above the centre, and are still: not 4 x 1000.
    assert after.diff == 4 * 100 + 10


@pytest.mark.parametrize(
    ("ratio", "min_size", "buffer"), [(0.0, 1, 5.0), (1.0, 0, 5.0), (4.0, 1, 3.9)]
)
def test_settings_that_block_both_sides_are_refused(ratio, min_size, buffer):
    with pytest.raises(ValueError, match="expected"):
        RateLimiter(ratio, min_size, buffer)
