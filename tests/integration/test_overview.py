"""`rollstream ps`, the Client, and following what others run."""

import json
import os
import secrets
import signal
import subprocess
import sys
from contextlib import ExitStack

import numpy as np
import pytest

from infra.clock import now_ms
from infra.control import znodes
from infra.control.deletion import delete_experiment
from infra.control.edits import in_state
from infra.control.experiments import new_run_id
from infra.control.launching import change
from infra.kafka.topic_admin import TopicConfig, ensure_topics
from infra.monitoring import live, metric_tails
from infra.monitoring.overview import read_overview
from rollstream import Client
from schemas.codec import encode
from schemas.records import EpisodesFinished, MetricsPoint
from schemas.tensors import pack
from schemas.topics import EXPERIMENTS, METRICS, topic_name
from tests.integration.control_rig import rig  # noqa: F401
from tests.unit.test_experiment import SAMPLE

pytestmark = pytest.mark.kafka
RUN = new_run_id()


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    """Who cannot wait is not told all; the tests have the time."""
    monkeypatch.setattr(live, "_ANSWER_S", 60.0)
    monkeypatch.setattr(znodes, "_ANSWER_S", 60.0)
    monkeypatch.setattr(metric_tails, "_TIMEOUT_S", 60.0)


def learner_point(name, run_id, steps):
    return MetricsPoint(
        name, run_id, "learner", 0, 1, now_ms(), {"env_steps": steps, "updates": 5.0}
    )


def episodes(name, run_id, *returns):
    size = len(returns)
    return EpisodesFinished(
        name, run_id, "w0", 1, now_ms(), pack(np.zeros(size, "<i4")),
        pack(np.zeros(size, "<i8")), pack(np.array(returns, "<f8")),
        pack(np.ones(size, "<i4")), pack(np.zeros(size, "i1")),
        pack(np.zeros(size, "<i8")),
    )  # fmt: skip


def test_100_experiments_are_listed_from_a_few_records_of_each(
    rig,  # noqa: F811
    monkeypatch,
):
    token = secrets.token_hex(3)
    names = [f"many-{token}-{number}" for number in range(100)]
    topics = [topic_name(METRICS, name) for name in names]
    ensure_topics(rig.settings, [TopicConfig(topic, 1) for topic in topics])
    first = rig.launch(rig.spec()).published.experiment.name
    for name, topic in zip(names, topics, strict=True):
        rig.publish(rig.spec(name), -1, RUN)
        rig.sender.send(topic, encode(learner_point(name, RUN, 7.0)), "learner/0")
        rig.sender.send(topic, encode(learner_point(name, "old", 9.0)), "learner/0")
        rig.sender.send(topic, encode(episodes(name, RUN, 20.0, 30.0)), "worker/0")
    # One has a long past, of which nothing may be read.
    for _ in range(3_000):
        rig.sender.send(topics[0], b"of long ago", "worker/0")
    rig.sender.send(topics[0], encode(learner_point(names[0], RUN, 8.0)), "learner/0")
    rig.sender.flush(60)
    rig.coordination.register_role(names[1], "worker/0", 1)
    read, real = [], metric_tails.to_message

    def count(raw):
        if raw.topic() in topics:  # others may have left theirs on this cluster
            read.append(1)
        return real(raw)

    monkeypatch.setattr(metric_tails, "to_message", count)
    rig.wait_until_no_agent_lives()
    found = read_overview(rig.settings)
    rows = {row.experiment: row for row in found.experiments}
    assert rows.keys() >= {*names, first}
    assert (rows[names[0]].env_steps, rows[names[0]].mean_return) == (8, None)
    for name in names[1:]:
        row = rows[name]
        assert (row.env_steps, row.mean_return, row.is_greedy) == (7, 25.0, False)
        assert (row.state, row.wanted, row.roles_wanted) == ("pending", "running", 5)
    assert (rows[names[1]].roles_running, rows[names[2]].roles_running) == (1, 0)
    assert rows[names[1]].agents == (rig.coordination.name,)
    assert rows[names[1]].age_ms >= 0  # since this file was imported
    assert found.agents == ()
    # Which is what makes it quick.
    assert len(read) < 100 * 3 + 100


def test_what_is_refused_deleted_or_hostile(rig):  # noqa: F811
    published = rig.launch(rig.spec()).published
    finished = rig.launch(rig.spec()).published
    rig.finish(finished)
    gone = rig.launch(rig.spec()).published.experiment.name
    delete_experiment(rig.settings, rig.coordination, gone)
    unreadable = rig.spec().name
    topic = topic_name(EXPERIMENTS)
    for key in (published.experiment.name, unreadable, "\x1b[31m", "a/b"):
        rig.sender.send_and_wait(topic, b"garbage", key)
    rows = {row.experiment: row for row in read_overview(rig.settings).experiments}
    assert gone not in rows and "a/b" not in rows and "\x1b[31m" not in rows
    row = rows[published.experiment.name]
    assert row.wanted == "running" and "newest spec: expected the first" in row.reason
    row = rows[unreadable]
    assert (row.state, row.wanted, row.roles_wanted) == ("refused", "", 0)
    row = rows[finished.experiment.name]
    assert (row.state, row.env_steps, row.mean_return) == ("finished", 7_000, 480.5)
    for key in ("\x1b[31m", "a/b"):
        rig.sender.send_and_wait(topic, None, key)


def test_a_client_does_what_the_commands_do(rig):  # noqa: F811
    experiment = rig.spec()
    rig.wait_until_no_agent_lives()
    with Client(rig.settings) as client:
        launched = client.launch(experiment, overrides=["spec.workers.replicas=3"])
        name = experiment.name
        assert client.get(name) == launched.published
        assert client.get(name).experiment.spec.workers.replicas == 3
        assert name in [row.experiment for row in client.list()]
        assert client.pause(name).published.experiment.spec.state == "paused"
        assert not client.pause(name).changed
        assert client.scale(name, workers=(2, 4)).changed
        assert client.resume(name).published.experiment.spec.workers.max == 4
        assert client.status(name).wanted == "running"
        assert client.agents() == ()
        moments = client.watch(name)
        assert (next(moments).state, next(moments).is_over) == ("pending", False)
        rig.finish(client.get(name))
        *_, last = moments
        assert (last.state, last.is_over, last.summary.env_steps) == (
            "finished", True, 7_000,
        )  # fmt: skip
        assert client.stop(name, timeout_s=5).changed
        assert len(client.delete(name).topics) == 11


def test_who_watches_sees_stop_deletion_and_a_fresh_run(rig):  # noqa: F811
    experiment = rig.spec()
    first = rig.launch(experiment).published
    with Client(rig.settings) as client:
        moments = client.watch(experiment.name)
        assert next(moments).published == first
        second = rig.launch(experiment, fresh=True).published
        seen = next(m for m in moments if m.published.run_id != first.run_id)
        assert seen.published == second
        assert seen.tick.progress.run_id in (first.run_id, second.run_id)
        change(rig.settings, experiment.name, lambda e: in_state(e, "stopped"))
        assert not next(moments).is_over  # nobody has said that it is
        delete_experiment(rig.settings, rig.coordination, experiment.name)
        *_, last = moments
        assert (last.state, last.is_over) == ("deleted", True)


@pytest.fixture
def start():
    """Start commands; what a failed test has left of them is ended."""
    with ExitStack() as started:

        def run(*arguments):
            process = started.enter_context(subprocess.Popen(
                [sys.executable, "-m", "rollstream.cli", *arguments],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            ))  # fmt: skip
            started.callback(process.kill)
            return process

        yield run


def test_commands_answer_in_json_and_with_their_exit_codes(
    rig,  # noqa: F811
    rollstream,
    tmp_path,
):
    name = rig.spec().name
    rig.wait_until_no_agent_lives()
    of_it = (str(SAMPLE), "--set", f"metadata.name={name}")
    assert rollstream("diff", *of_it)[0] == 1
    code, out, err = rollstream("launch", *of_it, "--json")
    assert (code, json.loads(out)["changed"]) == (0, True)
    assert "no agent runs: start one with `rollstream agent`" in err
    assert rollstream("diff", *of_it)[0] == 0
    code, out, _ = rollstream(
        "diff", *of_it, "--set", "spec.learner.batchSize=64", "--json"
    )
    found = json.loads(out)
    assert (code, found["restarts"], len(found["changes"])) == (1, ["learner"], 1)
    assert rollstream("diff", *of_it, "--set", "spec.processor.gamma=0.1")[0] == 2
    assert rollstream("diff", *of_it, "--set", "spec.sed=1")[0] == 2
    code, out, _ = rollstream("scale", name, "workers=3", "--json")
    assert (code, json.loads(out)["changed"]) == (0, True)
    assert rollstream("scale", name, "workers=many")[0] == 2
    code, out, _ = rollstream("get", name)
    path = tmp_path / "got.yaml"
    path.write_text(out)
    assert (code, rollstream("diff", str(path))[0]) == (0, 0)
    code, out, _ = rollstream("ps", "--json")
    (row,) = [row for row in json.loads(out) if row["experiment"] == name]
    assert (code, row["roles_wanted"], row["wanted"]) == (0, 6, "running")
    code, _, err = rollstream("delete", name)
    assert (code, "expected --yes" in err, "11 topics" in err) == (2, True, True)
    assert f"To mend: `rollstream delete {name} --yes`" in err
    code, out, _ = rollstream("status", name)
    assert code == 0 and "no agent runs: start one with `rollstream agent`\n" in out
    code, out, _ = rollstream("stop", name, "--json")
    assert (code, json.loads(out)["state"]) == (0, "stopped")
    code, out, _ = rollstream("delete", name, "--yes", "--json")
    assert (code, len(json.loads(out)["topics"])) == (0, 11)
    for command in (("get", name), ("pause", name), ("delete", name, "--yes")):
        code, out, err = rollstream(*command)
        assert (code, out) == (1, "") and f"found '{name}'" in err


def test_follow_ends_as_run_does_and_ctrl_c_ends_only_that(rig, start):  # noqa: F811
    name = rig.spec().name
    rig.wait_until_no_agent_lives()
    command = ("launch", str(SAMPLE), "--set", f"metadata.name={name}", "--follow")
    followed = start(*command)
    wait_for_line(followed.stdout, "pending: nobody has taken it on yet")
    wait_for_line(followed.stdout, "no agent runs: start one with `rollstream agent`")
    wait_for_line(followed.stdout, "env steps")
    followed.send_signal(signal.SIGINT)
    out, _ = followed.communicate(timeout=120)
    assert followed.returncode == 130 and f"{name} goes on" in out
    with Client(rig.settings) as client:
        published = client.get(name)
    assert published.experiment.spec.state == "running"
    followed = start(*command, "--json")
    wait_for_line(followed.stderr, "env steps")
    rig.finish(published)
    out, err = followed.communicate(timeout=120)
    assert (followed.returncode, json.loads(out)["env_steps"]) == (0, 7_000), err


def wait_for_line(stream, text):
    while line := stream.readline():
        if text in line:
            return
    raise AssertionError("it has ended")


def test_importing_rollstream_imports_next_to_nothing():
    code = "import sys, rollstream; print('infra' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False"
