"""2 is for what is refused as it is given, 1 for errors; `diff` is as diff(1)."""

from __future__ import annotations

import sys

import pytest

from infra.control.deletion import Belongings
from rollstream import experiments_command
from rollstream.cli import main
from rollstream.errors import BadInput
from schemas.experiment import from_values
from schemas.spec_diff import SpecDiff, compare
from tests.unit.test_experiment import SAMPLE, values

BARE = "expected a running cluster, found none"


@pytest.fixture
def run(monkeypatch, capsys, data_dir):
    """Run a command on a bare machine; return its code and what it said on stderr."""
    monkeypatch.setenv("ROLLSTREAM_DATA_DIR", str(data_dir))

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["rollstream", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return end.value.code or 0, " ".join(f"{out} {err}".replace("│", " ").split())

    return call


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["diff", SAMPLE], 2, BARE),  # 1 would be a difference
        (["get", "e"], 1, BARE),
        (["launch", SAMPLE], 1, BARE),
        (
            ["validate", SAMPLE, "--set", "spec.env.id=No-v0"],
            2,
            "is refused",
        ),
        (["init", "--env", "No-v0", "/dev/null"], 2, "spec.env.id: expected"),
        (["validate", SAMPLE.parent], 2, "expected a regular file or -"),
        (["logs", "e", "--since", "soon"], 2, "expected 30s, 10m, 2h, 1d"),
    ],
)
def test_codes(run, arguments, code, says):
    found, text = run(*arguments)
    assert found == code and says in text


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("ROLLSTREAM_LOG_LEVEL", "foo", "debug, info, warning, error, critical, found"),
        ("KAFKA_BOOTSTRAP_SERVERS", "nonsense", "expected host:port"),
    ],
)
def test_a_variable_that_says_nothing_is_refused(run, monkeypatch, name, value, says):
    monkeypatch.setenv(name, value)
    code, text = run("get", "e")
    assert code == 2 and name in text and says in text


def test_a_level_is_one_however_it_is_written(run, monkeypatch):
    for level in ("Info", "WARN", ""):
        monkeypatch.setenv("ROLLSTREAM_LOG_LEVEL", level)
        assert run("get", "e")[0] == 1


KNOWN = from_values(values())


@pytest.mark.parametrize(
    ("found", "is_new", "code"),
    [
        (compare(KNOWN, KNOWN), False, 0),
        (compare(KNOWN, from_values(values(spec__seed=9))), False, 1),
        (SpecDiff((), (), ()), True, 1),
        (compare(KNOWN, from_values(values(spec__processor__gamma=0.1))), False, 2),
    ],
)
def test_diff_tells_same_other_and_trouble_apart(run, monkeypatch, found, is_new, code):
    monkeypatch.setattr(experiments_command, "_compare", lambda spec: (found, is_new))
    assert run("diff", SAMPLE)[0] == code


def test_who_cannot_be_asked_is_told_what_to_say():
    with pytest.raises(BadInput) as refused:
        experiments_command._ask("e", Belongings(("t",), (), ()))
    assert "1 topics" in refused.value.problem
    assert refused.value.mend == "`rollstream delete e --yes`"
