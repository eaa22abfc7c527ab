"""What buffers are told, what they are filled with, and when ours is fast enough."""

import pytest

from benchmarks.beside.sampling import REVERB, SAMPLING, job
from benchmarks.beside.scripts.replay_work import CHUNK, chunks, measure
from benchmarks.beside.section import OURS, Place


def place(logs, *, quick):
    return Place(None, {}, logs, quick, print)


def test_all_are_told_the_same_but_reverb_of_fewer_rows(tmp_path):
    told = job(1_000_000)(place(tmp_path, quick=False))
    assert told == {"rows": 1_000_000, "batch": 512, "seconds": 5.0}
    quick = place(tmp_path, quick=True)
    assert job(65_536, 8_192)(quick) == {"rows": 8_192, "batch": 512, "seconds": 1.0}
    assert [side.name for side in SAMPLING.sides if side.is_ours] == [OURS]
    assert REVERB in [side.name for side in SAMPLING.sides]


@pytest.mark.parametrize("rows", [1, CHUNK, CHUNK + 1])
def test_chunks_are_so_many_rows_and_each_has_a_priority(rows):
    found = list(chunks(rows))
    assert sum(len(chunk["action"]) for chunk in found) == rows
    assert all((chunk["priority"] > 0).all() for chunk in found)
    assert found[0]["observation"].shape == (min(rows, CHUNK), 4)


def test_all_is_inserted_before_anything_is_drawn():
    calls = []
    figures = measure(
        2 * CHUNK, 512, 0.0, lambda c: calls.append(len(c["action"])),
        lambda: calls.append("cycle"),
    )  # fmt: skip
    assert calls[:2] == [CHUNK, CHUNK]
    assert set(calls[2:]) == {"cycle"}
    assert figures["rows"] == 2 * CHUNK


@pytest.mark.parametrize(("rate", "reached"), [(2.9e6, False), (3e6, True)])
def test_three_million_rows_a_second_are_the_goal(rate, reached):
    (goal,) = SAMPLING.goals
    assert goal.reached({OURS: {"items_per_s": rate}}) is reached
