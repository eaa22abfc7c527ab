"""``rollstream lag``: what it prints, what it looks at, and its exit codes."""

from __future__ import annotations

import io
import json
import sys

import pytest
from rich.console import Console

from infra.errors import KafkaUnavailable
from infra.monitoring.lag.model import LagReport
from infra.settings import Settings
from rollstream import lag_groups, lag_watch, machine
from rollstream.cli import main
from rollstream.lag_groups import Choice
from rollstream.lag_rows import rows_of
from rollstream.lag_table import CSV_HEADER
from tests.unit.lag_reports import AT_S, group, partition, report

FINE = report(group("g", partition(0), partition(1, lag=2)))
BAD = report(
    group("fine", partition(group="fine")),
    group("bad", partition(3, "STALLED", group="bad", lag=1234)),
    group("late", partition(group="late", state="WARN")),
)


@pytest.fixture
def lag(monkeypatch, capsys):
    """Run the command on a report, or an error; return its code and what it printed."""

    def run(found, *arguments):
        def look(choice):
            if isinstance(found, Exception):
                raise found
            return choice.shown(found)

        monkeypatch.setattr(machine, "running", Settings)
        monkeypatch.setattr(lag_groups, "read_experiment", lambda *_: None)
        monkeypatch.setattr(Choice, "look", look)
        monkeypatch.setattr(sys, "argv", ["rollstream", "lag", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code or 0, *capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("found", "arguments", "code", "says", "reason"),
    [
        (FINE, (), 0, "", ""),
        (BAD, (), 2, "", "one stands"),
        (report(group("late", partition(state="WARN"))), (), 1, "", ""),
        (report(), (), 0, "no group", "a cluster without groups is fine"),
        (report(), ("-r", "pay"), 3, "no group whose id has 'pay'", "it is expected"),
        (report(), ("e",), 3, "no group of e", "likewise"),
        (report(problem="away"), (), 3, "away", "nothing is known"),
        (KafkaUnavailable("they are away", "wait"), (), 3, "they are away", ""),
        (FINE, ("--format", "xml"), 3, "text, wide, json, csv", ""),
        (FINE, ("--regex", "("), 3, "regular expression", ""),
        (FINE, ("No Name",), 3, "experiment name", ""),
        (FINE, ("--every", "0"), 3, "--every", ""),
        (FINE, ("--unknown",), 3, "No such option", ""),
        (FINE, ("a", "b"), 3, "unexpected extra argument", ""),
    ],
)
def test_the_exit_code_says_how_it_is(lag, found, arguments, code, says, reason):
    ended, out, err = lag(found, *arguments)
    assert (ended, says in err) == (code, True), reason or err
    assert bool(out) == (isinstance(found, LagReport) and "Usage" not in err)


def test_bare_machines_and_wrong_variables_have_the_code_of_errors(
    monkeypatch, capsys, data_dir
):
    monkeypatch.setenv("ROLLSTREAM_DATA_DIR", str(data_dir))
    monkeypatch.setattr(sys, "argv", ["rollstream", "lag"])
    for value in (None, "nonsense"):
        if value:
            monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", value)
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 3
        assert ("expected host:port" if value else "found none") in capsys.readouterr()[
            1
        ]


def test_the_worst_comes_first_and_why_is_told(lag):
    _, out, _ = lag(BAD)
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "GROUP TOPIC PARTITIONS CURRENT-OFFSET LOG-END-OFFSET LAG LAG-S STATE",
        "bad t 1 10 10 1,234 0.0 STALLED",
        "late t 1 10 10 0 0.0 WARN",
        "fine t 1 10 10 0 0.0 OK",
        "",
        "STALLED bad t: it is STALLED",
        "WARN late t: it is WARN",
    ]
    _, out, _ = lag(BAD, "-p")
    assert "STALLED bad t[3]: it is STALLED" in out.splitlines()


def test_many_reasons_are_not_all_told(lag):
    groups = [group(f"g{n}", partition(group=f"g{n}", state="LOST")) for n in range(10)]
    _, out, _ = lag(report(*groups))
    assert sum(line.startswith("LOST ") for line in out.splitlines()) == 8
    assert out.endswith("... and 2 more; --format wide\n")
    _, out, _ = lag(report(*groups), "--format", "wide")
    assert "..." not in out and len(out.splitlines()) == 11


def test_json_is_one_object_of_everything(lag):
    code, out, _ = lag(BAD, "--format", "json")
    assert code == 2 and out.count("\n") == 1
    found = json.loads(out)
    assert (found["at_s"], found["took_s"], found["problem"]) == (AT_S, 0.125, "")
    bad = next(each for each in found["groups"] if each["group"] == "bad")
    assert (bad["lag"], bad["lag_s"], bad["members"]) == (1234, 0.0, 1)
    assert bad["verdict"] == {"state": "STALLED", "rule": 1, "reason": "it is STALLED"}
    (of_it,) = bad["partitions"]
    assert (of_it["group"], of_it["topic"], of_it["partition"]) == ("bad", "t", 3)
    assert of_it["verdict"]["state"] == "STALLED" and of_it["end"] == 10


def test_json_has_no_words_for_what_is_no_number(lag):
    endless = partition(catch_up_s=float("inf"), lag_s=float("nan"))
    _, out, _ = lag(report(group("g", endless)), "--format", "json")
    assert "NaN" not in out and "Infinity" not in out
    (found,) = json.loads(out)["groups"]
    assert found["partitions"][0]["catch_up_s"] is None is found["lag_s"]


def test_csv_has_a_header_and_a_line_of_each_row(lag):
    _, out, _ = lag(BAD, "--format", "csv")
    header, *lines = out.splitlines()
    assert header.split(",") == CSV_HEADER
    assert [line.split(",")[1] for line in lines] == ["bad", "late", "fine"]
    _, out, _ = lag(FINE, "--format", "csv", "-p")
    assert [line.split(",")[3] for line in out.splitlines()[1:]] == ["1", "0"]


def test_escapes_in_names_are_harmless(lag):
    evil = report(group("\x1b[2J", partition(topic="\x07", state="LOST")))
    for form in ("text", "wide", "json", "csv"):
        _, out, _ = lag(evil, "--format", form)
        assert out and all(c.isprintable() or c == "\n" for c in out), form


@pytest.mark.parametrize(
    ("experiment", "regex", "wanted"),
    [
        ("e", None, ["processor", "learner", "archiver"]),
        ("e", "learn", ["learner"]),
        ("e", r"\.e\.proc", ["processor"]),
        ("e", "other", []),
    ],
)
def test_an_experiment_has_its_groups_by_name(experiment, regex, wanted):
    found = Choice(Settings(), experiment, regex).wanted
    assert found == [f"rollstream.e.{role}" for role in wanted]


def test_of_all_groups_those_are_wanted_that_match():
    assert Choice(Settings(), None, None).wanted("any")
    wanted = Choice(Settings(), None, "pay(ments)?$").wanted
    assert wanted("app-payments") and not wanted("payments-2")


def test_an_archiver_is_shown_where_there_is_one():
    name = "rollstream.e.archiver"
    absent = group(name, partition(group=name, committed=None), members=0)
    stopped = group(name, partition(group=name), members=0)
    working = group(name, partition(group=name, committed=None), members=1)
    choice = Choice(Settings(), "e", None)
    for found, shown in ((absent, 0), (stopped, 1), (working, 1)):
        assert len(choice.shown(report(found)).groups) == shown


class Looks:
    """A monitor whose looks are known; then Ctrl-C comes."""

    def __init__(self, *reports):
        self._left = list(reports)
        self.is_closed = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.is_closed = True

    def wait_for_newer(self, at_s, timeout_s):
        if not self._left:
            raise KeyboardInterrupt
        return self._left.pop(0)


@pytest.fixture
def watched(lag, monkeypatch):
    """Run the command with -w on looks; return its code and what it printed."""

    def run(*reports, form="text"):
        looks = Looks(*reports)
        monkeypatch.setattr(Choice, "looking", lambda choice, every_s: looks)
        found = lag(FINE, "-w", "--format", form)
        assert looks.is_closed
        return found

    return run


def later(found, at_s):
    return LagReport(at_s, found.groups, found.took_s, found.problem)


def test_each_look_is_a_block_and_ctrl_c_ends_it(watched):
    code, out, err = watched(FINE, FINE, later(BAD, AT_S + 1))
    assert (code, err) == (130, "")
    first, second = out.split("2027-01-15T08:00:01Z  3 groups, seen in 0.12 s\n")
    assert first.startswith("2027-01-15T08:00:00Z  1 group, seen in 0.12 s\nGROUP ")
    assert "STALLED bad t: it is STALLED" in second


def test_each_look_is_a_line_of_json(watched):
    _, out, _ = watched(FINE, later(BAD, AT_S + 1), form="json")
    assert [len(json.loads(line)["groups"]) for line in out.splitlines()] == [1, 3]


def test_csv_has_its_header_once(watched):
    _, out, _ = watched(FINE, later(FINE, AT_S + 1), form="csv")
    assert [line.split(",")[0] for line in out.splitlines()] == [
        "at_s", str(AT_S), str(AT_S + 1),
    ]  # fmt: skip


def test_an_outage_is_told_once_and_old_rows_are_not_repeated(watched):
    away = LagReport(AT_S, FINE.groups, 0.1, "the brokers do not answer")
    _, out, err = watched(FINE, away, away, later(FINE, AT_S + 9))
    assert err == "rollstream: the brokers do not answer\n"
    assert out.count("GROUP") == 2
    _, out, _ = watched(FINE, away, later(FINE, AT_S + 9), form="json")
    problems = [json.loads(line)["problem"] for line in out.splitlines()]
    assert problems == ["", "the brokers do not answer", ""]


def drawn(found, *, width=120, height=20, wide=False):
    console = Console(file=io.StringIO(), width=width, height=height)
    shown = lag_watch.screen(
        found, rows_of(found, by_partition=True), wide=wide, by_partition=True,
        width=width, height=height,
    )  # fmt: skip
    console.print(shown)
    return console.file.getvalue().splitlines()


def test_a_screen_holds_the_worst_and_why():
    groups = [group(f"g{n}", partition(group=f"g{n}", lag=n)) for n in range(100)]
    bad = group("bad", partition(group="bad", state="LOST"))
    lines = drawn(report(*groups, bad))
    assert len(lines) <= 20 and lines[0].endswith("101 groups, seen in 0.12 s")
    assert lines[2].startswith("bad") and lines[3].startswith("g99 ")
    assert lines[-3] == "... and 87 more" and lines[-1].startswith("LOST bad t[0]: ")
    assert all(len(line) <= 40 for line in drawn(report(*groups, bad), width=40))


def test_a_screen_tells_of_an_outage():
    (first, *_) = drawn(report(group("g", partition()), problem="away\x1b[2J"))
    assert first.endswith("seen in 0.12 s  away\N{REPLACEMENT CHARACTER}[2J")
