"""Logs of any content are read, over their rotations, without a line lost or twice."""

import json
import logging
import random
import shutil
import subprocess
import time

import pytest

from infra.log_files import LogFile, find_logs
from infra.log_lines import LineParser
from infra.log_rotation import BACKUPS, EmptiedInPlace
from tests.unit.logged_lines import NOON_MS, at, logged, write


@pytest.fixture
def path(tmp_path):
    return tmp_path / "worker-0.log"


def messages(lines):
    return [line.message for line in lines]


@pytest.fixture
def handler(path):
    made = []

    def make(max_bytes, backups=BACKUPS):
        made.append(new_handler(path, max_bytes, backups))
        return made[-1]

    yield make
    for each in made:
        each.close()


def new_handler(path, max_bytes, backups):
    made = EmptiedInPlace(path, max_bytes, backups)
    made.setFormatter(
        logging.Formatter(
            '{"time": "%(asctime)s", "level": "%(levelname)s", "logger": "x", '
            '"message": "%(message)s"}'
        )
    )
    made.formatter.default_time_format = "%Y-%m-%dT%H:%M:%S"
    made.formatter.default_msec_format = "%s.%03dZ"
    return made


def say(made, *texts):
    for text in texts:
        record = logging.LogRecord("x", logging.INFO, "", 0, str(text), (), None)
        made.handle(record)


def test_the_last_lines_come_from_as_far_back_as_needed(handler, path):
    made = handler(max_bytes=1_000)
    say(made, *range(40))
    assert path.with_name("worker-0.log.3").exists()
    log = LogFile(path, "worker", 0)
    assert messages(log.tail(3)) == ["37", "38", "39"]
    assert messages(log.tail(35)) == [str(n) for n in range(5, 40)]
    assert log.tail(0) == []
    odd = log.tail(4, wanted=lambda line: int(line.message) % 10 == 1)
    assert messages(odd) == ["1", "11", "21", "31"]
    assert len(log.tail(None)) == 40


def test_lines_before_a_time_are_left_out(path):
    log = LogFile(path, "worker", 0)
    write(path, *(logged(str(n), at=at(n)) for n in range(10, 17)))
    assert messages(log.tail(None, since_ms=NOON_MS + 13_000)) == [
        "13", "14", "15", "16",
    ]  # fmt: skip
    assert messages(log.tail(2, since_ms=NOON_MS + 13_000)) == ["15", "16"]


def test_a_large_log_is_read_from_its_end(path, monkeypatch):
    write(path, *(logged(f"{n:05d}" + "x" * 100) for n in range(20_000)))
    read = []
    real = LineParser.parse

    def counting(self, lines, written_at_ms):
        lines = list(lines)
        read.append(len(lines))
        return real(self, lines, written_at_ms)

    monkeypatch.setattr(LineParser, "parse", counting)
    lines = LogFile(path, "worker", 0).tail(10)
    assert [line.message[:5] for line in lines] == [
        f"{n:05d}" for n in range(19_990, 20_000)
    ]
    assert sum(read) < 2_000


def test_new_lines_follow_the_last_ones_and_wait_for_their_end(path):
    write(path, logged("one"), logged("two")[:20], end="")
    log = LogFile(path, "worker", 0)
    assert messages(log.tail(5)) == ["one"]
    assert messages(log.unfinished()) == [logged("two")[:20]]
    assert log.new() == []
    write(path, logged("two")[20:], logged("three"))
    assert messages(log.new()) == ["two", "three"]
    assert log.new() == []


def test_a_log_that_begins_later_is_followed_from_its_start(path):
    log = LogFile(path, "worker", 0)
    assert log.tail(5) == [] and log.new() == []
    write(path, logged("first"))
    assert messages(log.new()) == ["first"]


def test_a_log_that_somebody_has_cut_is_followed_from_its_start(path):
    write(path, *(logged(n) for n in "abc"))
    log = LogFile(path, "worker", 0)
    log.tail(1)
    path.write_text(logged("after") + "\n")
    assert messages(log.new() + log.new()) == ["after"]


@pytest.mark.parametrize("seed", range(20))
def test_whoever_follows_sees_every_line_once_whatever_is_rotated(handler, path, seed):
    rng = random.Random(seed)
    made = handler(max_bytes=600)
    said = rng.randrange(20)
    say(made, *range(said))
    log = LogFile(path, "worker", 0)
    shown = rng.choice([0, 1, 5])
    seen = [str(n) for n in range(said - min(said, shown))]
    seen += messages(log.tail(shown))
    for _ in range(60):
        # A file holds 6 or 7: at most two rotations between two looks.
        more = rng.randrange(12)
        say(made, *range(said, said + more))
        said += more
        seen += messages(log.new())
    assert seen == [str(n) for n in range(said)]


def test_who_looks_too_rarely_goes_on_with_the_oldest_that_is_left(handler, path):
    made = handler(max_bytes=600)
    say(made, *range(10))
    log = LogFile(path, "worker", 0)
    log.tail(0)
    say(made, *range(10, 200))
    seen = [int(text) for text in messages(log.new())]
    assert seen == list(range(seen[0], 200)) and len(seen) > 15


def test_nothing_that_is_logged_is_lost_when_files_are_full(handler, path):
    made = handler(max_bytes=1_000, backups=100)
    say(made, *range(300))
    files = sorted(path.parent.glob("worker-0.log*"), key=lambda p: -number(p))
    assert len(files) > 10 and all(p.stat().st_size <= 1_000 for p in files)
    text = [json.loads(x) for p in files for x in p.read_text().splitlines()]
    assert [line["message"] for line in text] == [str(n) for n in range(300)]


def number(path):
    return int(path.suffix[1:]) if path.suffix != ".log" else 0


def test_the_file_stays_the_one_that_children_write_to(handler, path):
    with path.open("ab") as output:
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=output)
    made = handler(max_bytes=600)
    for n in range(30):
        child.stdin.write(f"child {n:03d}\n".encode())
        child.stdin.flush()
        wait_for(path, f"child {n:03d}")
        say(made, f"{n:03d}")
    child.stdin.close()
    assert child.wait(timeout=60) == 0
    log = LogFile(path, "worker", 0)
    wanted = [text for n in range(30) for text in (f"child {n:03d}", f"{n:03d}")]
    lines = messages(log.tail(None))
    assert lines == wanted[-len(lines) :] and len(lines) > 20
    assert path.stat().st_size <= 600


def wait_for(path, text):
    deadline_s = time.monotonic() + 60
    while text not in path.read_text():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def test_raw_text_alone_fills_no_disk(handler, path):
    made = handler(max_bytes=600)
    for _ in range(10):
        write(path, "x" * 700)
        made.roll_if_full()
    files = list(path.parent.iterdir())
    assert len(files) == 1 + BACKUPS and path.stat().st_size == 0
    assert sum(p.stat().st_size for p in files) <= BACKUPS * 701


def test_a_full_disk_takes_no_line_away(handler, path, monkeypatch):
    def no_space(*arguments):
        raise OSError(28, "No space left on device")

    made = handler(max_bytes=600)
    monkeypatch.setattr(shutil, "copyfileobj", no_space)
    say(made, *range(30))
    assert [p.name for p in path.parent.iterdir()] == ["worker-0.log"]
    assert len(path.read_text().splitlines()) == 30
    monkeypatch.undo()
    say(made, 30)
    assert messages(LogFile(path, "worker", 0).tail(None)) == [
        str(n) for n in range(31)
    ]


def test_logs_of_roles_are_found_by_their_names(tmp_path):
    for name in ("worker-10.log", "worker-2.log", "worker-2.log.1", "x.log", "a-1.txt"):
        (tmp_path / name).touch()
    assert list(find_logs(tmp_path)) == [("worker", 2), ("worker", 10)]
    assert find_logs(tmp_path / "none") == {}
