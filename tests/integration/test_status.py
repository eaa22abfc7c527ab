"""``rollstream status``: right though nothing of the experiment runs any more."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest

from infra.clock import now_ms
from infra.control.experiments import PublishedExperiment
from infra.control.members import ensure_experiment_topics
from infra.control.statuses import publish_status
from infra.kafka.dead_letters import dead_letter
from infra.kafka.topic_admin import delete_topics
from infra.monitoring.reporter import Reporter
from infra.monitoring.status import read_status
from rollstream.status_command import status
from schemas.codec import encode
from schemas.records import MetricsPoint, Position, SourceRef
from schemas.topics import METRICS, REPLAY, TRAJECTORIES
from tests.integration.learner_rig import (  # noqa: F401
    Rig,
    cached_export,
    experiment,
)

pytestmark = pytest.mark.kafka

ROWS = 8 * 8 - 1  # of a batch; one of its 64 is not valid


def as_json(rig, capsys):
    code = status(rig.settings, rig.name, as_json=True)
    return code, json.loads(capsys.readouterr().out)


def group(found, role):
    (each,) = [each for each in found["groups"] if each["role"] == role]
    return each


def test_all_is_known_from_the_topics_alone(rig, capsys):
    incarnation = rig.start_worker(0)
    published = PublishedExperiment(rig.experiment, rig.run_id, rig.spec_offset)
    publish_status(rig.sender, published, "running", "launched")
    rig.send("w0", incarnation, *range(4))
    rig.run_until(lambda: rig.committed().get(0) == 4)
    code, found = as_json(rig, capsys)
    assert (code, found["alerts"]) == (0, [])
    assert (found["wanted"], found["summary"]["state"]) == ("running", "running")

    rig.send("w0", incarnation, 4, 7)  # 5 and 6 are missing
    rig.run_until(lambda: rig.committed().get(0) == 6)
    rig.send("w0", incarnation, 8, 9, 10)  # nobody is there to read them
    report = Reporter(rig.sender, rig.context("worker", 0), incarnation)
    report.metrics({"env_steps": 700.0, "undelivered_steps": 12.0})
    report.event("undelivered-steps", "alert", "stopped with 12 steps not delivered")
    report.event("worker-env-crashed", "warning", "no alert")
    processor = rig.context("processor", 0)
    Reporter(rig.sender, processor, 5).metrics(
        {"expired_records": 3.0},
        (Position(rig.topic(TRAJECTORIES), 0, 0, 0, 0),),
    )
    source = SourceRef(rig.topic(TRAJECTORIES), 0, 1)
    dead_letter(rig.sender, processor, source, b"w0", b"bad", "it is bad")
    other = Reporter(
        rig.sender, dataclasses.replace(processor, run_id="another-run"), 6
    )
    other.event("not-ours", "alert", "of another run")
    other.metrics({"expired_records": 99.0})
    rig.sender.flush(30)

    code, found = as_json(rig, capsys)
    assert code == 3
    summary = found["summary"]
    assert (summary["env_steps"], summary["lost_steps"]) == (6 * ROWS, 2 * 64)
    assert (summary["undelivered_steps"], summary["expired_records"]) == (12, 3)
    assert (found["letters"], found["letters_put_back"]) == (1, 0)
    assert [alert["kind"] for alert in found["alerts"]] == [
        "undelivered-steps",
        "lost-steps",
    ]
    assert all(0 <= alert["age_ms"] < 120_000 for alert in found["alerts"])
    learner = group(found, "learner")
    assert (learner["lag"], learner["verdict"]["state"]) == (3, "OK")
    first, second = learner["partitions"]
    assert (first["current"], first["raw_lag"], first["held"]) == (6, 3, 0)
    assert (second["lag"], second["verdict"]["state"]) == (0, "EMPTY")
    # It has read nothing of what there is.
    processor = group(found, "processor")
    assert processor["verdict"]["state"] == "EMPTY" and processor["lag"] in (0, None)
    roles = {f"{r['role']}/{r['index']}": r for r in found["roles"]}
    assert roles["worker/0"]["incarnation"] == incarnation
    assert roles["worker/0"]["pid"] == os.getpid()
    assert 0 <= roles["learner/0"]["metrics_age_ms"] < 120_000
    assert status(rig.settings, rig.name, as_json=False) == 3
    text = capsys.readouterr().out
    assert "128 steps (0 recovered)" in text and "3 records, deleted unread" in text
    assert "undelivered-steps: stopped with 12 steps" in text


def test_a_clock_that_is_wrong_does_not_make_ages_wrong(rig):
    context = rig.context("worker", 0)
    hour_ms = 3_600_000
    point = MetricsPoint(
        rig.name, rig.run_id, "worker", 0, 1, now_ms() - hour_ms, {"env_steps": 1.0}
    )
    rig.sender.send(rig.topic(METRICS), encode(point), context.member_key)
    rig.sender.flush(30)
    (worker,) = read_status(rig.settings, rig.name).roles
    assert worker.metrics_age_ms < hour_ms / 2


def test_a_topic_that_was_made_anew_has_no_lag_that_is_made_up(rig, capsys):
    incarnation = rig.start_worker(0)
    rig.send("w0", incarnation, *range(4))
    rig.run_until(lambda: rig.committed().get(0) == 4)
    delete_topics(rig.settings, [rig.topic(REPLAY)])
    _, found = as_json(rig, capsys)
    assert "there is no such topic" in group(found, "learner")["problem"]
    ensure_experiment_topics(rig.settings, rig.experiment)
    rig.send("w0", incarnation, 4)
    _, found = as_json(rig, capsys)
    learner = group(found, "learner")
    assert (learner["lag"], learner["verdict"]["state"]) == (0, "LOST")
    status(rig.settings, rig.name, as_json=False)
    assert "offset 4 is beyond the log's end 1" in capsys.readouterr().out


def test_an_experiment_that_nobody_launched_is_an_error(settings, rig):
    found = subprocess.run(
        [sys.executable, "-m", "rollstream.cli", "status", "nobody"],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "ROLLSTREAM_DATA_DIR": str(settings.data_dir)},
    )
    assert found.returncode == 1 and found.stdout == ""
    assert "experiment: expected one of" in found.stderr and "'nobody'" in found.stderr


@pytest.fixture
def rig(settings, cached_export):  # noqa: F811
    rig = Rig(settings, experiment())
    yield rig
    rig.close()
