import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from producers.episodes import ABORTED, TERMINATED, TRUNCATED, EpisodeTracker, Rows


def rows_of(rewards, ends="", valid=None, failed=None):
    """One environment; ends: a character a row, T, C (truncated), B (both) or '-'."""
    rewards = np.array(rewards, float)[:, None]
    marks = np.array(list(ends))[:, None]
    shape = rewards.shape
    return Rows(
        rewards,
        np.isin(marks, ["T", "B"]),
        np.isin(marks, ["C", "B"]),
        np.ones(shape, bool) if valid is None else np.array(valid, bool)[:, None],
        np.zeros(shape, bool) if failed is None else np.array(failed, bool)[:, None],
    )


def listed(columns, *names):
    return [columns[name].tolist() for name in names]


def test_an_episode_that_spans_unrolls_is_summed_up():
    tracker = EpisodeTracker(1)
    assert len(tracker.take(rows_of([1, 2], "--"), 3)["envs"]) == 0
    # Row 1 of the second unroll is the reset row.
    found = tracker.take(rows_of([4, 0, 8], "T--", valid=[1, 0, 1]), 4)
    assert listed(found, "episodes", "returns", "lengths", "endings", "versions") == [
        [0],
        [7.0],
        [3],
        [TERMINATED],
        [4],
    ]
    found = tracker.take(rows_of([16], "C"), 5)
    assert listed(found, "episodes", "returns", "lengths", "endings") == [
        [1],
        [24.0],
        [2],
        [TRUNCATED],
    ]
    assert tracker.numbers.tolist() == [2]


def test_termination_wins_when_both_flags_are_set():
    found = EpisodeTracker(1).take(rows_of([1], "B"), 0)
    assert found["endings"].tolist() == [TERMINATED]


def test_a_crash_aborts_the_episode_and_its_row_does_not_count():
    rows = rows_of([1, 5], "-C", valid=[1, 0], failed=[0, 1])
    found = EpisodeTracker(1).take(rows, 0)
    assert listed(found, "returns", "lengths", "endings") == [[1.0], [1], [ABORTED]]


def test_an_environment_that_is_being_rebuilt_has_no_episodes_to_show():
    tracker = EpisodeTracker(1)
    rows = rows_of([1, 0, 0], "-CC", valid=[1, 0, 0], failed=[0, 1, 1])
    assert tracker.take(rows, 0)["episodes"].tolist() == [0]
    assert tracker.numbers.tolist() == [2]


def test_a_reward_that_is_not_finite_spoils_no_return():
    rows = rows_of([1, np.nan, np.inf, 2], "---T", valid=[1, 0, 0, 1])
    assert EpisodeTracker(1).take(rows, 0)["returns"].tolist() == [3.0]


def test_the_return_goes_on_where_the_environment_says_nothing_ended():
    # A life lost is no end unless terminated or truncated says so.
    found = EpisodeTracker(1).take(rows_of([1, 1, 1, 1], "---T"), 0)
    assert found["returns"].tolist() == [4.0]


def slow_oracle(unrolls, num_envs):
    episodes, sums, lengths, found = (
        [0] * num_envs,
        [0.0] * num_envs,
        [0] * num_envs,
        [],
    )
    for rewards, ends, valid in unrolls:
        part = []
        for b in range(num_envs):
            for t in range(len(rewards)):
                if valid[t, b]:
                    sums[b] += rewards[t, b]
                    lengths[b] += 1
                if ends[t, b]:
                    if lengths[b]:
                        part.append((b, episodes[b], sums[b], lengths[b]))
                    episodes[b] += 1
                    sums[b], lengths[b] = 0.0, 0
        found.append(part)
    return found, episodes


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 4), st.lists(st.integers(1, 7), min_size=1, max_size=4), st.data()
)
def test_columns_are_those_of_a_loop_over_rows(num_envs, lengths, data):
    unrolls = []
    for length in lengths:
        shape = (length, num_envs)
        rewards = data.draw(hnp.arrays(float, shape, elements=st.integers(-9, 9)))
        ends, valid = (data.draw(hnp.arrays(bool, shape)) for _ in range(2))
        unrolls.append((rewards, ends, valid))
    tracker, none = EpisodeTracker(num_envs), np.zeros
    expected, numbers = slow_oracle(unrolls, num_envs)
    for (rewards, ends, valid), part in zip(unrolls, expected, strict=True):
        no = none(ends.shape, bool)
        columns = tracker.take(Rows(rewards, ends, no, valid, no), 0)
        names = ("envs", "episodes", "returns", "lengths")
        assert list(zip(*listed(columns, *names), strict=True)) == part
    assert tracker.numbers.tolist() == numbers
