"""Sampled stacks -> shares, against numbers counted by hand."""

import pytest

from benchmarks.stacks import (
    Share,
    from_flight_recorder,
    from_folded,
    shares,
)

FOLDED = """\
thread (7): MainThread;main (app.py:3);step (env.py:10) 3
thread (7): MainThread;main (app.py:4);step (env.py:12) 2
thread (7): MainThread;main (app.py:5);send (/x/lib/python3.11/site-packages/k/p.py:1) 4
thread (9): other;wait (/x/lib/python3.11/threading.py:2) 1
nonsense
"""


def test_lines_of_one_function_are_one():
    assert from_folded(FOLDED) == {
        ("main (app.py)", "step (env.py)"): 5,
        ("main (app.py)", "send (k/p.py)"): 4,
        ("wait (threading.py)",): 1,
    }


def test_shares_are_of_all_samples():
    found = shares(from_folded(FOLDED), 2)
    assert found == [
        Share("step (env.py)", 0.5, 0.5),
        Share("send (k/p.py)", 0.4, 0.4),
    ]


def test_a_function_that_calls_itself_is_counted_once():
    assert shares(from_folded("f (a.py);f (a.py) 2\n"), 5) == [
        Share("f (a.py)", 1.0, 1.0)
    ]


def test_no_samples_have_no_shares():
    assert shares(from_folded(""), 5) == []


def _frame(kind, name):
    return {"method": {"type": {"name": kind}, "name": name}}


@pytest.mark.parametrize("trace", [None, {"frames": []}])
def test_a_jvm_sample_without_a_stack_is_left_out(trace):
    assert from_flight_recorder([{"values": {"stackTrace": trace}}]) == {}


def test_a_jvm_lists_the_innermost_first():
    frames = [_frame("java/util/zip/CRC32C", "update"), _frame("kafka/Log", "append")]
    event = {"values": {"stackTrace": {"frames": frames}}}
    assert from_flight_recorder([event, event]) == {("Log.append", "CRC32C.update"): 2}
