"""Journals of processes that are killed while they write."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.journal import Journal, Journals


def test_a_torn_last_line_is_passed_over_and_read_when_it_is_whole(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path, "worker-3")
    journal.write("ack", error=None, valid=12)
    (path,) = tmp_path.glob("*.jsonl")
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind": "sent", "at')
    journals = Journals(tmp_path)
    assert [len(life.lines) for life in journals.lives("worker-3")] == [2]
    path.write_bytes(whole + b'{"kind": "sent", "at_s": 1.0}\n')
    assert [len(life.lines) for life in journals.lives("worker")] == [3]
    assert [life.acked for life in journals.lives()] == [12]
    assert journals.lives("learner") == []
