"""How lag looks: rows, the worst first, in columns, colours and CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import fields

import pytest

from infra.monitoring.lag.model import ORDER, SEVERITY
from rollstream.lag_columns import columns_of
from rollstream.lag_rows import LagRow, exit_code, rows_of
from rollstream.lag_table import (
    CSV_HEADER,
    coloured,
    csv_lines,
    fitted_lines,
    reason_line,
    style_of,
    table_lines,
)
from tests.unit.lag_reports import AT_S, group, partition, report


def rows(*groups, by_partition=False):
    return rows_of(report(*groups), by_partition=by_partition)


def lines(found, *, wide=False, by_partition=False):
    columns = columns_of(wide=wide, by_partition=by_partition)
    return table_lines(found, columns)


def test_each_state_has_its_place_the_worst_first():
    groups = [
        group(state, partition(state=state, group=state)) for state in reversed(ORDER)
    ]
    assert [row.state for row in rows(*groups)] == list(ORDER)


def test_of_the_same_state_the_larger_lag_is_worse_then_the_name():
    groups = [
        group("b", partition(0, group="b", lag=1), partition(1, group="b", lag=4)),
        group("a", partition(group="a", lag=3)),
        group("d", partition(group="d", lag=None)),
        group("c", partition(group="c", lag=0)),
    ]
    assert [row.group for row in rows(*groups)] == ["b", "a", "c", "d"]
    shown = [
        (row.group, row.partition, row.lag) for row in rows(*groups, by_partition=True)
    ]
    assert shown == [("b", 1, 4), ("a", 0, 3), ("b", 0, 1), ("c", 0, 0), ("d", 0, None)]


def test_a_topic_is_the_sum_of_its_partitions_and_as_bad_as_the_worst():
    found = group(
        "g",
        partition(0, lag=3, lag_s=1.5, current=7, produced_per_s=2.0, held=1,
                  unsaved=2, catch_up_s=4.0, retention_used=0.1, owner="c@h"),
        partition(1, "STALLED", lag=5, lag_s=9.0, lag_s_method="interpolated",
                  current=5, produced_per_s=3.5, held=2, unsaved=4, catch_up_s=7.0,
                  retention_used=0.4, owner="c@h", lag_env_steps=40),
        partition(0, topic="u"),
    )  # fmt: skip
    first, second = rows(found)
    assert (first.topic, first.partition, first.partitions) == ("t", None, 2)
    assert (first.current, first.end, first.lag) == (12, 20, 8)
    assert (first.lag_s, first.lag_s_method) == (9.0, "interpolated")
    assert (first.held, first.unsaved, first.lag_env_steps) == (3, 6, 40)
    assert (first.produced_per_s, first.consumed_per_s) == (5.5, None)
    assert (first.catch_up_s, first.retention_used) == (7.0, 0.4)
    assert (first.state, first.owner) == ("STALLED", "c@h")
    assert first.reason == "[1] it is STALLED"
    assert (second.topic, second.partitions, second.reason) == ("u", 1, "it is OK")


def test_what_is_not_known_of_one_partition_is_not_made_up_for_the_topic():
    found = group(
        "g",
        partition(0, lag=3, current=7, committed=7, catch_up_s=4.0, owner="a@h"),
        partition(1, "NO_COMMIT", lag=None, current=None, committed=None, unsaved=None,
                  owner="b@h"),
        partition(2, lag=2, catch_up_s=None),
    )  # fmt: skip
    (row,) = rows(found)
    assert (row.current, row.committed, row.catch_up_s) == (None, None, None)
    assert (row.lag, row.unsaved, row.end) == (5, 0, 30)
    assert (row.state, row.owner) == ("NO_COMMIT", "2 members")


@pytest.mark.parametrize(
    ("groups", "code", "reason"),
    [
        ([], 0, "nothing is behind"),
        ([group("g", partition())], 0, "all is read"),
        ([group("g", partition(state="EMPTY"))], 0, "nothing to read"),
        ([group("g", partition(state="WARN"))], 1, ""),
        ([group("g", partition(state="NO_COMMIT"))], 1, ""),
        ([group("g", partition(0), partition(1, "WARN"))], 1, "one of several"),
        ([group("g", partition(state="STALLED"))], 2, ""),
        ([group("g", partition(state="STOPPED"))], 2, ""),
        ([group("g", partition(state="REWIND"))], 2, ""),
        ([group("g", partition(state="LOST"))], 2, ""),
        ([group("g", partition(0, "WARN"), partition(1, "LOST"))], 2, "the worst"),
        ([group("g", partition(), problem="no answer")], 1, "it may be bad"),
        ([group("g", problem="no answer")], 1, "nothing is known"),
        ([group("g")], 0, "it reads nothing"),
    ],
)
def test_the_exit_code_is_of_the_worst(groups, code, reason):
    assert exit_code(rows(*groups)) == code, reason
    assert exit_code(rows(*groups, by_partition=True)) == code, reason


def test_groups_without_partitions_are_shown_and_those_in_trouble_first():
    found = rows(group("a"), group("z", problem="not allowed"), group("g", partition()))
    assert [row.group for row in found] == ["z", "g", "a"]
    text = lines(found, wide=True)
    assert text[1].split()[:4] == ["z", "-", "0", "-"]
    assert text[1].endswith("not allowed")
    assert text[3].endswith("reads nothing, and has committed nothing")
    assert reason_line(found[0]) == "z: not allowed"


def test_the_columns_are_those_that_are_known_from_other_tools():
    found = rows(
        group("g", partition(3, "WARN", lag=1234, current=1, end=1235, lag_s=12.345))
    )
    assert lines(found) == [
        "GROUP  TOPIC  PARTITIONS  CURRENT-OFFSET  LOG-END-OFFSET    LAG  LAG-S  STATE",
        "g      t               1               1           1,235  1,234     12  WARN",
    ]
    by_partition = rows(
        group("g", partition(3, lag_s=2.25, lag_s_method="interpolated")),
        by_partition=True,
    )
    assert lines(by_partition, by_partition=True) == [
        "GROUP  TOPIC  PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  LAG-S  STATE",
        "g      t              3              10              10    0   ~2.2  OK",
    ]


def test_wide_shows_all_of_it():
    found = rows(
        group(
            "g",
            partition(0, "WARN", committed=4, held=2, unsaved=6, open_records=1,
                      lag_env_steps=640, produced_per_s=1234.56, consumed_per_s=0.0,
                      catch_up_s=150.0, retention_used=0.125, owner="w@127.0.0.1"),
        ),
        by_partition=True,
    )  # fmt: skip
    header, line = lines(found, wide=True, by_partition=True)
    assert dict(zip(header.split()[8:], line.split(maxsplit=19)[8:], strict=False)) == {
        "CONSUMER": "w@127.0.0.1", "ENV-STEPS": "640", "COMMITTED": "4", "HELD": "2",
        "UNSAVED": "6", "OPEN": "1", "PRODUCED/S": "1,234.6", "CONSUMED/S": "0.0",
        "CATCH-UP": "2", "RETENTION": "min", "REASON": "12%",
    }  # fmt: skip
    assert line.endswith("12%  it is WARN")


def test_what_is_not_known_is_a_dash():
    unknown = partition(
        state="NO_COMMIT", current=None, committed=None, lag=None, lag_s=None,
        unsaved=None, raw_lag=None,
    )  # fmt: skip
    _, line = lines(rows(group("g", unknown)), wide=True)
    assert line.split() == [
        "g", "t", "1", "-", "10", "-", "-", "NO_COMMIT", "-", "-", "-", "0", "-", "0",
        "-", "-", "-", "-", "it", "is", "NO_COMMIT",
    ]  # fmt: skip


def test_names_of_others_do_not_steer_a_terminal():
    evil = "\x1b[2J\x07g\nh"
    found = rows(
        group(evil, partition(group=evil, topic="\x9b31m", owner="a\rb"),
              problem="\x1b]0;t\x07")
    )  # fmt: skip
    text = [*lines(found, wide=True), *map(reason_line, found), csv_lines(0.0, found)]
    assert len(lines(found, wide=True)) == 2
    for line in text:
        assert all(c.isprintable() for c in line.rstrip("\n"))


def test_wide_names_keep_the_columns_apart():
    found = rows(group("宽", partition(group="宽")), group("g", partition(topic="é")))
    text = lines(found)
    assert [text[0][:12], text[1][:12]] == ["GROUP  TOPIC", "g      é    "]
    assert text[2][:11] == "宽     t    ", "one character, of two cells"


def fitted(found, width, *, may_wrap=False, wide=False):
    columns = columns_of(wide=wide, by_partition=False)
    return fitted_lines(found, columns, width, may_wrap=may_wrap)


NAME = "a-group-with-quite-a-long-name-of-50-characters-xx"


@pytest.mark.parametrize(
    ("width", "names", "end", "reason"),
    [
        (200, f"{NAME}  {NAME}  ", "WARN", "all of it has its place"),
        (
            120,
            "a-group-with-…-name-of-50-characters-xx  a-gro…racters-xx  ",
            "WARN",
            "names are cut, the topic first",
        ),
        (97, "a-gro…racters-xx  a-gro…racters-xx  ", "WARN", "both to the least"),
        (
            80,
            "a-group-wi…-of-50-characters-xx  a-gro…racters-xx  ",
            "WARN",
            "without offsets",
        ),
        (40, "a-gro…racters-xx  a-gro…racters-xx  ", "…", "it can be seen"),
    ],
)
def test_a_line_fits_where_it_may_not_be_wrapped(width, names, end, reason):
    found = rows(group(NAME, partition(0, "WARN", group=NAME, topic=NAME)))
    text = fitted(found, width)
    assert max(map(len, text)) <= width, reason
    assert text[1].startswith(names) and text[1].endswith(end), reason


def test_a_line_that_may_be_wrapped_has_its_names_whole():
    found = rows(group(NAME, partition(0, "WARN", group=NAME, topic=NAME)))
    assert fitted(found, 80, may_wrap=True) == lines(found)


def test_the_reason_is_cut_to_what_fits_but_not_to_slivers():
    long = partition(state="WARN", retention_used=0.1)
    found = rows(group("g", long, problem="x" * 300))
    assert len(lines(found, wide=True)[1]) > 400
    for may_wrap in (True, False):
        assert len(fitted(found, 250, wide=True, may_wrap=may_wrap)[1]) == 250
    cut = fitted(found, 80, wide=True, may_wrap=True)
    assert cut[1].endswith("  it is WARN; xxxxxxxxxxx…")


@pytest.mark.parametrize("state", ORDER)
def test_colours_say_how_bad_it_is(state):
    (row,) = rows(group("g", partition(state=state)))
    style = {0: "", 1: "yellow", 2: "red"}[SEVERITY[state]]
    assert style_of(row) == ("dim" if state == "EMPTY" else style)
    text = coloured(lines([row]), [row])
    assert text.plain.splitlines() == lines([row])


def test_csv_is_read_back_by_anybody():
    found = rows(group('g,"h"', partition(2, lag=1, current=None)), by_partition=True)
    text = ",".join(CSV_HEADER) + "\n" + csv_lines(AT_S, found)
    (row,) = csv.DictReader(io.StringIO(text))
    assert row.keys() == {"at_s", *(field.name for field in fields(LagRow))}
    assert (row["at_s"], row["group"], row["partition"]) == (str(AT_S), 'g,"h"', "2")
    assert (row["lag"], row["current"], row["lag_s"]) == ("1", "", "0.0")


def test_thousands_of_rows_are_laid_out_at_once():
    import time

    groups = [
        group(f"group-{n}", *(partition(p, group=f"group-{n}") for p in range(12)))
        for n in range(200)
    ]
    began_s = time.process_time()
    found = rows(*groups, by_partition=True)
    assert len(lines(found, wide=True, by_partition=True)) == 2_401
    assert time.process_time() - began_s < 2.0  # 0.1 s on a quiet machine


def test_one_name_without_end_does_not_widen_all_rows():
    endless = "x" * 30_000
    found = rows(group(endless, partition(group=endless)), group("b", partition()))
    assert max(map(len, lines(found, wide=True))) < 1_500
    assert "…" in lines(found)[1] + lines(found)[2]
