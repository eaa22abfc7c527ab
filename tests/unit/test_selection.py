"""What people write of the past that they want, and which rows that is."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archive.finished_episodes import FinishedEpisodes, episode_numbers
from archive.selection import BadSelection, Bound, Condition, Selection
from schemas.records import PolicyRef, SourceRef, Unroll
from tests.unit.pasts import stream

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
NOON_MS = 1_796_040_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-30T12:00:00Z", Bound("time", NOON_MS)),
        ("2026-11-30T13:30:00.5+01:30", Bound("time", NOON_MS + 500)),
        ("offset:17", Bound("offset", 17)),
        ("step:0", Bound("step", 0)),
    ],
)
def test_a_bound_is_a_time_with_its_zone_an_offset_or_a_step(text, expected):
    assert NOON.timestamp() * 1000 == NOON_MS
    selection = Selection.parse(since=text, until=text)
    assert selection == Selection(since=expected, until=expected)
    assert Selection.parse(since=str(expected)).since == expected


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("since", "2026-11-30T12:00:00", "with its zone"),
        ("until", "2026-11-30", "with its zone"),
        ("since", "yesterday", "found 'yesterday'"),
        ("since", "offset:-1", "offset:N"),
        ("since", "step:1e3", "step:N"),
        ("versions", "..", "A..B"),
        ("versions", "", "A..B"),
        ("versions", "9..3", "at most 3"),
        ("workers", "0,", "0,2-5"),
        ("workers", "5-2", "at most 2"),
        ("workers", "w1", "found 'w1'"),
        ("episodes", "return=200", "return>=200"),
        ("episodes", "score>1", "return>=200"),
        ("episodes", "", "return>=200"),
    ],
)
def test_what_says_nothing_is_refused(name, text, says):
    with pytest.raises(BadSelection, match=says):
        Selection.parse(**{name: text})


@pytest.mark.parametrize(
    ("text", "versions"),
    [("3..9", (3, 9)), ("3..", (3, None)), ("..9", (None, 9)), ("4", (4, 4)),
     ("-1", (-1, -1)), ("-1..2", (-1, 2))],
)  # fmt: skip
def test_versions_are_a_range_with_both_ends(text, versions):
    assert Selection.parse(versions=text).versions == versions


def test_what_means_the_same_has_the_same_json():
    one = Selection.parse(
        since="2026-11-30T12:00:00Z",
        workers="3,0,1-2,9",
        episodes="length<500, return >= 200",
    )
    other = Selection.parse(
        since="2026-11-30T13:00:00+01:00",
        workers="0-3,9",
        episodes="return>=200.0,length<500",
    )
    assert one == other and one.to_json() == other.to_json()
    assert json.loads(one.to_json()) == {
        "since": "2026-11-30T12:00:00.000Z",
        "workers": [[0, 3], [9, 9]],
        "episodes": ["length<500", "return>=200"],
    }
    assert Selection().to_json() == "{}" and Selection().is_all and not one.is_all


BOUNDS = st.none() | st.builds(
    Bound, st.sampled_from(["time", "offset", "step"]), st.integers(0, 60)
)
OPEN = st.none() | st.integers(-1, 3)
SELECTIONS = st.builds(
    Selection,
    since=BOUNDS,
    until=BOUNDS,
    versions=st.none() | st.tuples(OPEN, OPEN),
    workers=st.sampled_from([(), ((0, 0),), ((0, 1), (3, 4))]),
)


@given(SELECTIONS, st.integers(0, 2**32), st.sampled_from(["w0", "w1", "w2"]))
def test_rows_are_chosen_as_a_reader_of_one_row_would(selection, seed, worker):
    unrolls = stream(np.random.default_rng(seed), worker, crashes=0.1)
    for offset, unroll in enumerate(unrolls):
        found = selection.choose(SourceRef("t", 0, offset * 9), unroll)
        assert found.tolist() == [
            [wanted(selection, offset * 9, unroll, step, env) for env in (0, 1)]
            for step in range(unroll.num_steps)
        ]


def wanted(selection: Selection, offset: int, unroll: Unroll, step: int, env: int):
    places = {
        "time": unroll.produced_at_ms,
        "offset": offset,
        "step": unroll.first_step + step,
    }
    if not unroll.valid.array()[step, env]:
        return False
    if selection.since and places[selection.since.kind] < selection.since.value:
        return False
    if selection.until and places[selection.until.kind] >= selection.until.value:
        return False
    first, last = selection.versions or (None, None)
    if first is not None and unroll.policy.version < first:
        return False
    if last is not None and unroll.policy.version > last:
        return False
    index = int(unroll.worker[1:])
    ranges = selection.workers
    return not ranges or any(index in range(a, b + 1) for a, b in ranges)


def read_by_row(unrolls: list[Unroll], tests) -> set[tuple[int, int]]:
    """Which (env, episode) are whole and pass, one row at a time."""
    passed = set()
    for env in range(unrolls[0].num_envs):
        total, length, is_whole, after_end = 0.0, 0, True, False
        number, expected = int(unrolls[0].episodes.array()[env]), 0
        for unroll in unrolls:
            if unroll.sequence != expected:
                is_whole, number = False, int(unroll.episodes.array()[env])
            expected = unroll.sequence + 1
            columns = (unroll.rewards, unroll.valid, unroll.terminated,
                       unroll.truncated)  # fmt: skip
            rows = zip(*(column.array()[:, env] for column in columns), strict=True)
            for reward, valid, terminated, truncated in rows:
                if valid:
                    total, length = total + float(reward), length + 1
                elif not after_end:
                    is_whole = False
                after_end = bool(terminated or truncated)
                if after_end:
                    if is_whole and length and tests(total, length):
                        passed.add((env, number))
                    total, length, is_whole = 0.0, 0, True
                    number += 1
    return passed


@given(
    seed=st.integers(0, 2**32),
    lost=st.sets(st.integers(0, 9), max_size=2),
    least=st.integers(0, 12),
    crashes=st.sampled_from([0.0, 0.1]),
)
def test_episodes_are_chosen_when_each_of_their_rows_is_there(
    seed, lost, least, crashes
):
    whole = stream(np.random.default_rng(seed), records=10, crashes=crashes)
    unrolls = [each for each in whole if each.sequence not in lost]
    conditions = (Condition("return", ">=", least), Condition("length", "<", 9))
    found = FinishedEpisodes(conditions)
    for unroll in unrolls:
        found.add(unroll)
        found.add(unroll)  # a repeated record tells nothing new
    expected = read_by_row(unrolls, lambda total, n: total >= least and n < 9)
    if 0 in lost:  # its first episodes' beginnings are missing
        begun = unrolls[0].episodes.array()
        expected -= {(env, int(begun[env])) for env in range(2)}
    assert len(found) == len(expected)
    for unroll in unrolls:
        numbers = episode_numbers(unroll)
        assert found.choose(unroll).tolist() == [
            [(env, int(numbers[step, env])) in expected for env in range(2)]
            for step in range(unroll.num_steps)
        ]


def test_what_an_episode_is_worth_is_known_over_records_and_incarnations():
    one = stream(np.random.default_rng(0), incarnation=3)
    found = FinishedEpisodes((Condition("return", ">=", 0.0),))
    for unroll in one:
        found.add(unroll)
    other = stream(np.random.default_rng(0), incarnation=4)[0]
    assert found.choose(one[0]).any() and not found.choose(other).any()
    chosen = Selection.parse(episodes="return>=0", versions="0..")
    taken = [chosen.choose(SourceRef("t", 0, 0), each, found) for each in one]
    assert [each.policy for each in one][:3] == [PolicyRef(-1, -1)] * 2 + [
        PolicyRef(0, 0)
    ]
    assert not taken[0].any() and taken[2].any()


def test_no_two_conditions_are_written_alike():
    one, other = (Selection.parse(episodes=f"return>={n}") for n in (1234567, 1234574))
    assert one.to_json() != other.to_json()
    assert "return>=200" in Selection.parse(episodes="return>=200.0").to_json()
