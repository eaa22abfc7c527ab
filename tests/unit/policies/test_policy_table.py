"""Rows of versions as a person sees them, and as JSON."""

import json
from dataclasses import replace

import pytest
from rich.console import Console

from infra.policies.evaluations import Judged
from infra.policies.shelf import Kept
from rollstream.policy_rows import Overview, PolicyRow, row_of
from rollstream.policy_table import make_table, notes, shown_rows
from schemas.records import SourceRef
from tests.unit.policies.records import version
from tests.unit.policies.test_policy_evaluations import by_evaluator, evaluation

WHERE = SourceRef("topic", 0, 0)


def row(number, *kept_as, **more):
    values = {
        "version": number, "epoch": 8, "train_step": 1_000 * number, "env_steps": None,
        "created_at_ms": 0, "age_ms": 35_000, "bytes": 70_176, "parameters": 17_414,
        "kept_as": kept_as or ("history",), "evaluation": None,
    }  # fmt: skip
    return PolicyRow(**(values | more))


BEST = row(
    4,
    "best",
    "history",
    env_steps=27_647,
    evaluation=Judged(200, 498.5, 392, 500, True),
)
FOUND = Overview("exp", "run1", True, (row(7, "current"), row(5), BEST, row(3)))


def lines(found, count=0, width=200):
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(make_table(found, count, console))
    return [" ".join(line.split()) for line in captured.get().splitlines()]


def test_a_row_a_version_the_newest_first():
    assert lines(FOUND) == [
        "VERSION EPOCH UPDATES ENV STEPS AGE BYTES PARAMETERS RETURN LOWEST HIGHEST "
        "EPISODES KEPT AS",
        "7 8 7,000 - 35 s 70,176 17,414 - - - - current",
        "5 8 5,000 - 35 s 70,176 17,414 - - - - history",
        "4 8 4,000 27,647 35 s 70,176 17,414 498.5 392.0 500.0 200 best, history",
        "3 8 3,000 - 35 s 70,176 17,414 - - - - history",
    ]


@pytest.mark.parametrize("width", [200, 100, 80, 60])
def test_what_does_not_fit_is_left_out_whole(width):
    shown = lines(FOUND, width=width)
    assert all("…" not in line for line in shown)
    assert {"VERSION", "RETURN", "KEPT"} <= set(shown[0].split())


def test_of_many_the_newest_are_shown_and_the_best_in_any_case():
    assert [r.version for r in shown_rows(FOUND, 1)] == [7, 4]
    assert [r.version for r in shown_rows(FOUND, 3)] == [7, 5, 4]
    assert len(shown_rows(FOUND, 0)) == 4
    assert list(notes(FOUND, 1)) == ["2 older ones are not shown: -n 0 shows all"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        ({"rows": ()}, ["exp: no policy yet of run run1"]),
        ({"has_evaluator": False}, ["nobody evaluates"]),
        ({"gone": (1, 2)}, ["2 are told of, but"]),
        ({"refused": 3}, ["3 records cannot be read"]),
    ],
)
def test_what_has_to_be_known_is_said(changes, words):
    said = list(notes(replace(FOUND, **changes), 0))
    assert len(said) == len(words)
    assert all(word in line for word, line in zip(words, said, strict=True))


def test_a_row_is_made_of_what_is_kept_and_what_was_told():
    kept = Kept(version(3, created_at_ms=5_000), WHERE, WHERE, (WHERE,), 99, 9,
                is_current=True, in_history=True)  # fmt: skip
    found = row_of(kept, by_evaluator(evaluation(3, [1, 2])), now_s=7.5)
    assert (found.version, found.train_step, found.age_ms) == (3, 30, 2_500)
    assert found.kept_as == ("current", "history") and found.evaluation.mean == 1.5
    # A learner whose clock is ahead.
    assert row_of(kept, by_evaluator(), now_s=1.0).age_ms == 0


def test_json_has_it_all():
    found = json.loads(json.dumps(FOUND.to_json()))
    assert [each["version"] for each in found["rows"]] == [7, 5, 4, 3]
    assert found["rows"][2]["evaluation"] == {
        "episodes": 200, "mean": 498.5, "least": 392, "most": 500, "confirmed": True,
    }  # fmt: skip
    assert found["rows"][0]["evaluation"] is None
