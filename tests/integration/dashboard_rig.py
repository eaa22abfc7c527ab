"""An experiment's metrics, written at times that a test chooses, and read again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from infra.kafka.clients import make_producer
from infra.kafka.topic_admin import TopicConfig, delete_topics, ensure_topics
from infra.settings import Settings
from schemas.codec import encode
from schemas.records import (
    EpisodesFinished,
    Evaluation,
    MetricsPoint,
    PolicyRef,
    Position,
)
from schemas.tensors import pack
from schemas.topics import METRICS, topic_name

ROOT = Path(__file__).parents[2]
RUN = "20261130T000000-abcdef"


class MetricsWriter:
    """Writes the metrics of an experiment that nobody runs."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.name = f"d-{uuid.uuid4().hex[:10]}"
        self.topic = topic_name(METRICS, self.name)
        self._producer = make_producer(
            settings, client_id="test", overrides={"linger.ms": 5}
        )
        self.make()

    def make(self) -> None:
        """Make the topic; its records have the times that they were given."""
        config = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
        ensure_topics(self.settings, [TopicConfig(self.topic, 1, config)])

    def delete(self) -> None:
        """Delete the topic."""
        delete_topics(self.settings, [self.topic])

    def point(self, at_s, values, role="learner", run_id=RUN, positions=()):
        point = MetricsPoint(
            self.name, run_id, role, 0, 5, 0, dict(values), tuple(positions)
        )
        self.raw(f"{role}/0", encode(point), at_s)

    def learner(self, at_s, env_steps, run_id=RUN, **more):
        where = (Position(topic_name(METRICS, self.name), 0, 9, 9, 0),)
        self.point(at_s, {"env_steps": env_steps, **more}, "learner", run_id, where)

    def episodes(self, at_s, returns, worker=0, run_id=RUN):
        n = len(returns)
        record = EpisodesFinished(
            self.name, run_id, f"w{worker}", 5, 0,
            pack(np.zeros(n, "<i4")), pack(np.zeros(n, "<i8")),
            pack(np.array(returns, "<f8")), pack(np.ones(n, "<i4")),
            pack(np.zeros(n, "|i1")), pack(np.zeros(n, "<i8")),
        )  # fmt: skip
        self.raw(f"worker/{worker}", encode(record), at_s)

    def evaluation(self, at_s, returns, run_id=RUN):
        record = Evaluation(
            self.name, run_id, PolicyRef(1, 1), 1, pack(np.array(returns, "<f8")),
            pack(np.ones(len(returns), "<i4")), False, 0,
        )  # fmt: skip
        self.raw("evaluator/0", encode(record), at_s)

    def raw(self, key, value, at_s):
        while True:
            try:
                self._producer.produce(
                    self.topic, value, key, timestamp=int(at_s * 1000)
                )
                return
            except BufferError:
                self._producer.poll(0.1)

    def flush(self) -> None:
        assert self._producer.flush(60) == 0


@contextmanager
def running_dashboard(settings: Settings, *arguments: str) -> Iterator[str]:
    """Run the command on a free port; yield its URL; Ctrl-C has to end it with 130."""
    assert settings.bootstrap_servers and settings.zookeeper
    child = subprocess.Popen(
        [sys.executable, "-m", "rollstream.cli", "dashboard",
         "--listen", "127.0.0.1:0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={
            **os.environ,
            "KAFKA_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
            "ROLLSTREAM_ZOOKEEPER": settings.zookeeper,
        },
    )  # fmt: skip
    assert child.stdout is not None
    try:
        line = child.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        if found is None:
            child.kill()
            raise AssertionError((line, child.communicate(timeout=60)))
        try:
            yield found[0]
        except Exception as exc:
            code = child.poll()
            child.kill()
            exc.add_note(f"dashboard, code {code}: {child.communicate(timeout=60)}")
            raise
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=60)
        assert child.returncode == 130, errors
        # A slow broker is told of, and nothing else.
        assert all("answer" in line for line in errors.splitlines()), errors
    finally:
        child.kill()
        child.communicate()


def ask_json(url: str):
    """Return what a GET answers."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.loads(answer.read())
