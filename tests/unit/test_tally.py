"""Which rows can be learnt from: worked out by hand, and by a loop over all numbers."""

import math

import numpy as np
import pytest

from producers.episodes import Rows
from producers.tally import Tally, tally

STEPS, ENVS = 5, 3


def rows_of(rewards=None, failed=(), terminated=(), resets=()):
    shape = (STEPS, ENVS)
    rewards = np.ones(shape) if rewards is None else rewards
    flags = [np.zeros(shape, np.bool_) for _ in range(4)]
    for flag, places in zip(flags, (failed, terminated, (), resets), strict=True):
        for place in places:
            flag[place] = True
    has_failed, ends, cut, is_reset = flags
    valid = ~(is_reset | has_failed) & np.isfinite(rewards)
    return Rows(rewards, ends, cut, valid, has_failed), is_reset


def camera(*bad, dtype=np.float32):
    """Observations [T + 1, B, 2], not a number at some places."""
    column = np.ones((STEPS + 1, ENVS, 2), dtype)
    for place in bad:
        column[place] = np.nan
    return {"step": np.zeros((STEPS + 1, ENVS), np.int64), "camera/left": column}


@pytest.mark.parametrize(
    ("because", "rows", "bad", "expected"),
    [
        ("all is well", {}, [], Tally(15, 0)),
        ("a failure costs its row", {"failed": [(2, 1)]}, [], Tally(14, 1)),
        ("a reset is neither", {"resets": [(2, 1), (3, 2)]}, [], Tally(13, 0)),
        (
            "an observation is seen after a step and before the next",
            {},
            [(2, 1, 0)],
            Tally(
                13, 2, "environment 1: the observation camera/left of step 12 is nan "
                "at [0]",
            ),
        ),
        (
            "the first row begins with one, which no row led to",
            {},
            [(0, 2, 1)],
            Tally(
                14, 1, "environment 2: the observation camera/left of step 10 is nan "
                "at [1]",
            ),
        ),
        (
            "nobody looks after an episode's last step; the reset is neither",
            {"terminated": [(1, 0)], "resets": [(2, 0)]},
            [(2, 0, 0)],
            Tally(14, 0),
        ),
    ],
)  # fmt: skip
def test_tallies(because, rows, bad, expected):
    assert tally(*rows_of(**rows), camera(*bad), 10) == expected, because


def test_one_bad_environment_among_good_ones_leaves_theirs():
    rewards = np.ones((STEPS, ENVS))
    rewards[:, 1] = np.inf
    found = tally(*rows_of(rewards), camera(), 100)
    assert found == Tally(10, 5, "environment 1: the reward of step 100 is inf")


def test_numbers_that_are_too_large_to_be_summed_are_numbers():
    column = np.full((STEPS + 1, ENVS), np.finfo(np.float32).max, np.float32)
    assert tally(*rows_of(), {"": column}, 0) == Tally(15, 0)


@pytest.mark.parametrize("seed", range(20))
def test_as_a_loop_over_all_rows_counts(seed):
    rng = np.random.default_rng(seed)

    def some(share):
        return [tuple(p) for p in np.argwhere(rng.random((STEPS, ENVS)) < share)]

    rewards = np.where(rng.random((STEPS, ENVS)) < 0.1, np.nan, 1.0)
    rows, is_reset = rows_of(rewards, some(0.1), some(0.2), some(0.2))
    seen = camera(*(tuple(p) for p in np.argwhere(rng.random((6, ENVS, 2)) < 0.05)))
    left = seen["camera/left"]
    usable = unusable = 0
    for t in range(STEPS):
        for b in range(ENVS):
            if is_reset[t, b]:
                continue
            before = all(map(math.isfinite, left[t, b]))
            after = all(map(math.isfinite, left[t + 1, b])) or rows.terminated[t, b]
            good = not rows.failed[t, b] and math.isfinite(rewards[t, b])
            usable += good and before and after
            unusable += not (good and before and after)
    found = tally(rows, is_reset, seen, 0)
    assert (found.usable, found.unusable) == (usable, unusable)


def test_tallies_add_up_and_keep_what_was_odd_last():
    first, second = Tally(3, 1, "this"), Tally(4, 2, "that")
    assert first.plus(second) == Tally(7, 3, "that")
    assert first.plus(Tally(1)) == Tally(4, 1, "this")
