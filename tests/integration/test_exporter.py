"""Real groups and real commands -> what a scrape of theirs says."""

import contextlib
import re
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from infra.control.deletion import delete_experiment
from infra.control.edits import in_state
from infra.control.launching import change
from schemas.topics import group_name
from tests.integration.agent_rig import small
from tests.integration.control_rig import rig  # noqa: F401
from tests.integration.foreign_groups import commit_offsets, produce
from tests.integration.test_watch import tell

pytestmark = pytest.mark.kafka
PATIENCE_S = 90.0
# Three processes start, of which each loads what it computes with.
LEARNS_WITHIN_S = 200.0
ROOT = Path(__file__).parents[2]


def until(condition, what, timeout_s=PATIENCE_S):
    deadline_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, what() if callable(what) else what
        time.sleep(0.1)
    return found


def scrape(url):
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def of(found, name, **labels):
    values = [
        value
        for (each, pairs), value in found.items()
        if each == name and labels.items() <= dict(pairs).items()
    ]
    return values[0] if len(values) == 1 else None


@contextlib.contextmanager
def exporting(folder):
    """`rollstream exporter`, and where its metrics are."""
    out, error = folder / "out", folder / "error"
    with out.open("wb") as stdout, error.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "rollstream.cli", "exporter",
             "--listen", "127.0.0.1:0", "--every", "0.5", "--cluster-name", "here"],
            stdout=stdout, stderr=stderr, cwd=ROOT,
        )  # fmt: skip

    def announced():
        assert process.poll() is None, error.read_text()
        return re.match(
            r"metrics at (http://127\.0\.0\.1:\d+/metrics); ", out.read_text()
        )

    try:
        yield process, until(announced, error.read_text)[1]
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def url(settings, tmp_path_factory):
    """Where the metrics are of one that runs for all tests that only scrape."""
    with exporting(tmp_path_factory.mktemp("exporter")) as (_, found):
        yield found


def test_a_foreign_groups_lag_is_followed_by_every_name(settings, topic, url):
    group = f"foreign-{secrets.token_hex(4)}"
    produce(settings, topic, 0, 20)
    names = {
        "kafka_consumergroup_group_lag": {"group": group, "topic": topic},
        "kafka_consumergroup_group_sum_lag": {"group": group},
        "kafka_consumergroup_group_max_lag": {"group": group},
        "kafka_consumergroup_lag": {"consumergroup": group, "partition": "0"},
    }

    def seen(lag):
        found = scrape(url)
        lags = {of(found, name, **labels) for name, labels in names.items()}
        is_up = of(found, "rollstream_exporter_up") == 1
        return found if is_up and lags == {lag} else None

    for committed, lag in ((5, 15), (12, 8), (20, 0)):
        commit_offsets(settings, group, topic, {0: committed})
        found = until(lambda lag=lag: seen(lag), f"what waits at {committed}")
    where = {"topic": topic, "partition": "0", "cluster_name": "here"}
    assert of(found, "kafka_partition_latest_offset", **where) == 20
    assert of(found, "kafka_consumergroup_group_offset", group=group) == 20


def test_an_experiments_series_come_and_go_with_it(rig, settings, url):  # noqa: F811
    published = rig.launch(rig.spec()).published
    name = published.experiment.name

    def steps():
        return of(scrape(url), "rollstream_env_steps_total", experiment=name)

    def is_up():
        # As one does that lives: who is silent for a while is not up.
        tell(rig, published, env_steps=120.0, updates=7.0, loss=0.5)
        found = scrape(url)
        up = of(found, "rollstream_process_up", experiment=name, role="learner")
        return found if up == 1 else None

    found = until(is_up, "its learner")
    assert of(found, "rollstream_env_steps_total", experiment=name) == 120
    assert of(found, "rollstream_loss", experiment=name) == 0.5
    assert of(found, "rollstream_experiment_state", experiment=name, state="pending")
    rig.finish(published)
    until(lambda: steps() is None, "it is over")
    afresh = rig.launch(published.experiment, fresh=True).published
    tell(rig, afresh, env_steps=3.0)
    until(lambda: steps() == 3, "another run")
    delete_experiment(settings, rig.coordination, name)
    until(lambda: not any(name in str(key) for key in scrape(url)), "it is deleted")


def test_what_it_cannot_listen_on_is_told(url, command):
    port = url.rpartition(":")[2].partition("/")[0]
    other, _, error = command("exporter", "--listen", f"127.0.0.1:{port}")
    wrong, _, usage = command("exporter", "--listen", "nowhere")
    assert other.wait(PATIENCE_S) == 1
    assert f"cannot be served on 127.0.0.1:{port}" in error.read_text()
    assert wrong.wait(PATIENCE_S) == 2 and "HOST:PORT" in usage.read_text()


def test_it_is_well_until_ctrl_c(settings, tmp_path):
    with exporting(tmp_path) as (process, url):
        health = url.replace("/metrics", "/healthz")

        def is_well():
            with contextlib.suppress(urllib.error.HTTPError):  # before the first look
                with urllib.request.urlopen(health, timeout=PATIENCE_S) as answer:
                    return answer.read() == b"ok\n"

        until(is_well, "health")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130


def test_an_agent_serves_them_as_well_and_they_are_of_what_runs(fleet):
    agent = fleet.start("--metrics", "127.0.0.1:0")
    assert agent.name
    url = agent.said[0]["metrics"]
    name = f"exported-{secrets.token_hex(3)}"
    fleet.launch(small(name))

    def learns():
        found = scrape(url)
        up = {
            (dict(pairs)["role"], value)
            for (metric, pairs), value in found.items()
            if metric == "rollstream_process_up" and dict(pairs)["experiment"] == name
        }
        running = {"experiment": name, "state": "running"}
        is_so = (
            up == {("worker", 1), ("processor", 1), ("learner", 1)}
            and (of(found, "rollstream_updates_total", experiment=name) or 0) > 0
            and of(found, "rollstream_exporter_up") == 1
            and of(found, "rollstream_experiment_state", **running)
        )
        return found if is_so else None

    found = until(learns, lambda: agent.text, LEARNS_WITHIN_S)
    steps = of(found, "rollstream_env_steps_total", experiment=name)
    assert steps >= 200, "as many as learning needs"

    def value(metric, **labels):
        return of(scrape(url), metric, **labels)

    worker = {"experiment": name, "role": "worker"}
    until(
        lambda: (value("rollstream_process_env_steps_total", **worker) or 0) >= steps,
        "the worker has told of them as well",
    )
    until(
        lambda: all(
            value("kafka_consumergroup_group_sum_lag", group=group) is not None
            and value("rollstream_consumergroup_state", group=group, state="OK")
            for group in (group_name(name, role) for role in ("processor", "learner"))
        ),
        "nobody is behind",
    )
    of_it = {"experiment": name, "stat": "p95"}
    until(lambda: value("rollstream_policy_lag_versions", **of_it) is not None, "age")
    change(fleet.settings, name, lambda e: in_state(e, "stopped"))
    until(lambda: not any(name in str(key) for key in scrape(url)), "it is over")
    assert agent.stop(PATIENCE_S) == 143
    with pytest.raises(urllib.error.URLError):
        scrape(url)
