"""``rollstream lag``: of anybody's groups, and of ours."""

import contextlib
import csv
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
import uuid

import pytest
from confluent_kafka import TopicPartition

from infra.clock import now_ms
from infra.monitoring.status import read_status
from rollstream.lag_columns import columns_of
from schemas.codec import encode
from schemas.records import MetricsPoint, Position
from schemas.topics import METRICS, TRAJECTORIES, group_name, topic_name
from tests.integration.command_rig import interrupted, lines_of
from tests.integration.control_rig import rig  # noqa: F401
from tests.integration.foreign_groups import (
    commit_many,
    commit_offsets,
    commit_with,
    forget,
    member,
    produce,
    produce_in_transaction,
)

pytestmark = pytest.mark.kafka

WITHIN_S = 120.0


@pytest.fixture
def group(settings):
    """The name of a group; it is deleted."""
    name = f"foreign-{uuid.uuid4().hex[:12]}"
    yield name
    forget(settings, [name])


def seen(rollstream, *arguments):
    """Run the command; return its code, and the groups by name."""
    code, out, err = rollstream("lag", *arguments, "--format", "json")
    assert out, err
    return code, {each["group"]: each for each in json.loads(out)["groups"]}


def test_a_foreign_group_is_as_far_behind_as_it_is(
    settings, make_topic, group, rollstream
):
    topic = make_topic(2)
    produce(settings, topic, 0, 10)
    produce(settings, topic, 1, 10)
    with member(settings, group, topic) as reader:
        places = [TopicPartition(topic, *place) for place in ((0, 10), (1, 4))]
        commit_with(reader, places)
        code, groups = seen(rollstream, "-r", group)
        assert (code, groups[group]["members"]) == (0, 1), "it may be about to read"
        assert groups[group]["partitions"][1]["owner"].startswith("member@")
    code, groups = seen(rollstream, "-r", group)
    assert groups.keys() == {group} and groups[group]["members"] == 0
    first, second = groups[group]["partitions"]
    assert (first["lag"], second["lag"], groups[group]["lag"]) == (0, 6, 6)
    assert (second["current"], second["end"], second["topic"]) == (4, 10, topic)
    assert 0 <= groups[group]["lag_s"] < 600
    # Nobody is there who would read them.
    assert (code, second["verdict"]["state"]) == (2, "STOPPED")
    code, out, _ = rollstream("lag", "-r", group, "-p")
    rows = [line.split() for line in out.splitlines()]
    assert code == 2 and rows[1][:6] == [group, topic, "1", "4", "10", "6"]
    assert rows[2][:6] == [group, topic, "0", "10", "10", "0"]
    code, out, _ = rollstream("lag", "-r", group, "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert (row["current"], row["end"], row["lag"]) == ("14", "20", "6")
    commit_offsets(settings, group, topic, {1: 10})
    code, groups = seen(rollstream, "-r", group)
    assert (code, groups[group]["lag"]) == (0, 0)


def test_marks_of_transactions_are_no_lag(settings, make_topic, group, rollstream):
    topic = make_topic(1)
    produce_in_transaction(settings, topic, 0, 5)
    commit_offsets(settings, group, topic, {0: 5})
    code, groups = seen(rollstream, "-r", group)
    (found,) = groups[group]["partitions"]
    assert (code, found["lag"], found["raw_lag"]) == (0, 0, 1)


def test_names_that_others_gave_do_not_steer_the_terminal(
    settings, make_topic, rollstream
):
    topic = make_topic(1)
    produce(settings, topic, 0, 1)
    end = uuid.uuid4().hex[:12]
    evil = f"\x1b[2J\n{end}"
    commit_offsets(settings, evil, topic, {0: 0})
    try:
        for form in ("text", "wide", "csv"):
            _, out, _ = rollstream("lag", "-r", end, "--format", form)
            assert end in out and all(c.isprintable() or c == "\n" for c in out)
    finally:
        forget(settings, [evil])


def test_what_our_roles_hold_is_shown_and_is_no_lag(rig, rollstream):  # noqa: F811
    published = rig.launch(rig.spec()).published
    name, run_id = published.experiment.name, published.run_id
    topic = topic_name(TRAJECTORIES, name)
    produce(rig.settings, topic, 0, 5)
    commit_offsets(rig.settings, group_name(name, "processor"), topic, {0: 2})
    _, groups = seen(rollstream, name)
    assert set(groups) == {group_name(name, role) for role in ("processor", "learner")}
    processor = groups[group_name(name, "processor")]
    assert (processor["lag"], processor["partitions"][0]["held"]) == (3, 0)

    # It has handled all, and holds two of them back.
    point = MetricsPoint(
        name, run_id, "processor", 0, 1, now_ms(), {"batches": 5.0},
        (Position(topic, 0, 5, 2, 2),),
    )  # fmt: skip
    rig.sender.send_and_wait(topic_name(METRICS, name), encode(point), "processor/0")
    for arguments in ((name,), ("-r", re.escape(group_name(name, "")))):
        _, groups = seen(rollstream, *arguments)
        (found,) = groups[group_name(name, "processor")]["partitions"]
        assert (found["current"], found["committed"], found["lag"]) == (5, 2, 0)
        assert (found["held"], found["unsaved"]) == (2, 3)
        assert found["verdict"]["state"] == "OK"
    code, out, _ = rollstream("lag", name, "--format", "wide")
    header, *rows = out.splitlines()
    assert code in (0, 1), "the learner has committed nothing, nor is there anything"
    titles = [each.title for each in columns_of(wide=True, by_partition=False)]
    assert header.split() == titles and len(rows) == 2
    with pytest.raises(AssertionError):
        seen(rollstream, "never-launched")


def test_status_and_lag_mean_the_same(rig, rollstream):  # noqa: F811
    published = rig.launch(rig.spec()).published
    name = published.experiment.name
    topic, processor = topic_name(TRAJECTORIES, name), group_name(name, "processor")
    produce_in_transaction(rig.settings, topic, 0, 3)
    commit_offsets(rig.settings, processor, topic, {0: 3})
    status = read_status(rig.settings, name)
    assert [(each.role, each.topic) for each in status.groups] == [
        ("processor", topic), ("learner", topic.replace("trajectories", "replay")),
    ]  # fmt: skip
    assert status.groups[0].lag == 0, "a mark is no record"
    produce(rig.settings, topic, 0, 2)
    _, groups = seen(rollstream, name)
    assert (
        read_status(rig.settings, name).groups[0].lag == groups[processor]["lag"] == 2
    )


def test_nobodys_experiment_is_an_error(settings, rollstream):
    code, out, err = rollstream("lag", "never-launched")
    assert (code, out) == (3, "") and "found 'never-launched'" in err


def test_it_follows_until_ctrl_c(settings, make_topic, group, command):
    topic = make_topic(1)
    commit_offsets(settings, group, topic, {0: 0})
    process, out, err = command("lag", "-r", group, "-w", "--format", "json")

    def has_lag(count):
        return any(
            each["lag"] == count for look in lines_of(out) for each in look["groups"]
        )

    wait_until(lambda: has_lag(0), process, err)
    produce(settings, topic, 0, 7)
    wait_until(lambda: has_lag(7), process, err)
    commit_offsets(settings, group, topic, {0: 7})
    shown = len(lines_of(out))
    wait_until(
        lambda: any(
            each["lag"] == 0
            for look in lines_of(out)[shown:]
            for each in look["groups"]
        ),
        process,
        err,
    )
    assert interrupted(process) == 130
    # A slow broker is told of, and nothing else.
    told = [line for line in err.read_text().splitlines() if "answer" not in line]
    assert told == []


def test_a_terminal_shows_it_in_place(settings, make_topic, group):
    topic = make_topic(1)
    produce(settings, topic, 0, 3)
    commit_offsets(settings, group, topic, {0: 1})
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "rollstream.cli", "lag", "-r", group, "-w"],
        stdin=theirs, stdout=theirs, stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "30"},
    )  # fmt: skip
    os.close(theirs)
    try:
        text = read_until(ours, "LOG-END-OFFSET", "STATE")
        text += read_until(ours, "1 group, seen in")
        assert "looking ..." in text
        process.send_signal(signal.SIGINT)
        read_to_end(ours)
        assert process.wait(WITHIN_S) == 130
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_to_end(descriptor):
    """Until nobody writes any more: a terminal that is full holds up who does."""
    with contextlib.suppress(OSError):
        while os.read(descriptor, 65_536):
            pass


def read_until(descriptor, *wanted):
    found, deadline_s = "", time.monotonic() + WITHIN_S
    while not all(each in found for each in wanted):
        assert time.monotonic() < deadline_s, found
        found += os.read(descriptor, 65_536).decode(errors="replace")
    return found


def wait_until(condition, process, err):
    deadline_s = time.monotonic() + WITHIN_S
    while not condition():
        assert process.poll() is None, err.read_text()
        assert time.monotonic() < deadline_s, err.read_text()
        time.sleep(0.05)


def test_200_groups_of_12_partitions_are_shown_soon(settings, make_topic):
    topic = make_topic(12)
    for partition in range(12):
        produce(settings, topic, partition, 20)
    prefix = f"many-{uuid.uuid4().hex[:8]}"
    names = [f"{prefix}-{number}" for number in range(200)]
    offsets = {
        name: {p: (n + p) % 20 for p in range(12)} for n, name in enumerate(names)
    }
    wanted = {
        (name, p): 20 - offset
        for name, of_it in offsets.items()
        for p, offset in of_it.items()
    }
    took_s = {}
    try:
        commit_many(settings, offsets, topic)
        # What was committed last may be listed a moment later.
        deadline_s = time.monotonic() + WITHIN_S
        while "-p" not in took_s:
            assert time.monotonic() < deadline_s, "not all groups are shown"
            one_s, out = lag("-p")
            if lags_of(out, prefix) == wanted:
                took_s["-p"] = one_s
        took_s["-w"] = lag("-w")[0]
    finally:
        forget(settings, names)
    print({key: f"{value:.2f} s" for key, value in took_s.items()})
    # Below 2 s on a machine that does nothing else.
    assert max(took_s.values()) < WITHIN_S


def lag(*arguments):
    """Seconds to the first line, and what followed it."""
    began_s = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "rollstream.cli", "lag", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    first = process.stdout.readline()
    took_s = time.monotonic() - began_s
    if "-w" in arguments:
        process.kill()
    # Not by communicate(): what is buffered here would be lost.
    out, err = process.stdout.read(), process.stderr.read()
    process.wait(WITHIN_S)
    process.stdout.close(), process.stderr.close()
    assert first, err
    return took_s, out


def lags_of(out, prefix):
    rows = (row.split() for row in out.splitlines())
    return {
        (row[0], int(row[2])): int(row[5])
        for row in rows
        if row and row[0].startswith(prefix)
    }
