"""What our broker carries for Kafka's own clients, and what of it the pipeline uses.

ProducerPerformance and ConsumerPerformance send and read records of our sizes, at the
same time, until they are ended; what is counted is what the log and the readers got.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.beside.perf_output import carried_bytes_per_s
from benchmarks.beside.scripts.job import versions_of
from benchmarks.beside.section import Figure, Goal, Measured, Place, Section, Side
from benchmarks.children import ChildFailed, last_line
from benchmarks.pipeline import Load
from benchmarks.pipeline import measure as measure_pipeline
from infra.cluster.jars import ensure_jars
from infra.cluster.service import java_environment, java_path
from infra.kafka.clients import make_admin
from infra.kafka.offsets import END, ask_offsets
from infra.kafka.topic_admin import TopicConfig, delete_topics, ensure_topics
from infra.settings import Settings
from schemas.sizes import RETURN_BYTES

OURS, TWICE, ONCE = (
    "rollstream",
    "Kafka's own clients, two producers and two consumers",
    "Kafka's own clients, one producer and one consumer",
)
TOOLS = "org.apache.kafka.tools."
ENDLESS = "1000000000"

_STEPS = 32 * 256
_ROW_BYTES = 44
UNROLL_BYTES = _STEPS * _ROW_BYTES
BATCH_BYTES = _STEPS * (_ROW_BYTES + RETURN_BYTES)

_PARTITIONS = 8
_START_S = 30.0
_WARM_UP_S = 3.0
_ASK_S = 10.0
_POLL_S = 0.1
_FETCH_BYTES = 16 << 20
# Of the tools' own defaults only what cannot carry such records, or would be slow.
_PRODUCER = (
    "acks=all", "batch.size=1048576", "buffer.memory=67108864",
    "max.request.size=16777216", "compression.type=none",
)  # fmt: skip
_CONSUMER = (f"fetch.max.bytes={4 * _FETCH_BYTES}",)


@dataclass(frozen=True)
class Stream:
    """A topic that is written and read, and the size of its records."""

    topic: str
    record_bytes: int


def _seconds(place: Place) -> float:
    return 3.0 if place.quick else 10.0


def _measure_ours(place: Place) -> Measured:
    load = Load(1, 256, 32, 3, _seconds(place), 0.0, "credit")
    found = measure_pipeline(place.settings, load, load.flow, dict(place.services))
    rate = pipeline_bytes_per_s(
        found["worker_steps_per_s"],
        found["learner_ready_steps_per_s"],
        found["bytes_per_step"],
        found["valid_share"],
    )
    figures = {
        "mb_per_s": rate / 1e6,
        "steps_per_s": found["learner_ready_steps_per_s"],
    }
    return Measured(figures, _versions())


def pipeline_bytes_per_s(
    worker_steps_per_s: float,
    ready_steps_per_s: float,
    bytes_per_step: float,
    valid_share: float,
) -> float:
    """Return what is written to both topics; steps are valid rows, rows have sizes."""
    batch_bytes = bytes_per_step + RETURN_BYTES / valid_share
    return worker_steps_per_s * bytes_per_step + ready_steps_per_s * batch_bytes


def _plain(name: str, sizes: tuple[int, ...]) -> Side:
    def measure(place: Place) -> Measured:
        stamp = time.time_ns() // 1_000_000
        streams = [
            Stream(f"bench-limit-{stamp}-{number}", size)
            for number, size in enumerate(sizes)
        ]
        rate = _carried(place, streams)
        return Measured({"mb_per_s": rate / 1e6}, _versions())

    return Side(name, measure)


def _carried(place: Place, streams: list[Stream]) -> float:
    """Write and read for some seconds; return bytes a second that came through."""
    settings = place.settings
    with ExitStack() as closing:
        topics = [
            TopicConfig(s.topic, _PARTITIONS, {"max.message.bytes": str(12 << 20)})
            for s in streams
        ]
        ensure_topics(settings, topics)
        closing.callback(delete_topics, settings, [s.topic for s in streams])
        class_path = ensure_jars(settings.cache_dir, place.show)
        logs = [place.logs / f"{s.topic}.consumer" for s in streams]
        tools = [
            closing.enter_context(_tool(class_path, arguments, log))
            for stream, log in zip(streams, logs, strict=True)
            for arguments, log in (
                (consumer_arguments(settings, stream), log),
                (producer_arguments(settings, stream), log.with_suffix(".producer")),
            )
        ]
        _wait_for_rows(tools, logs)
        _run_on(tools, _WARM_UP_S)
        began_s, first = time.time(), _written(settings, streams)
        _run_on(tools, _seconds(place))
        ended_s, last = time.time(), _written(settings, streams)
        written = (last - first) / (ended_s - began_s)
        texts = [log.read_text() for log in logs]
    return min(written, carried_bytes_per_s(texts, began_s, ended_s))


def producer_arguments(settings: Settings, stream: Stream) -> list[str]:
    """Return the arguments of a producer that does not end."""
    return [
        TOOLS + "ProducerPerformance", "--topic", stream.topic,
        "--bootstrap-server", str(settings.bootstrap_servers),
        "--num-records", ENDLESS, "--throughput", "-1",
        "--record-size", str(stream.record_bytes), "--command-property", *_PRODUCER,
    ]  # fmt: skip


def consumer_arguments(settings: Settings, stream: Stream) -> list[str]:
    """Return the arguments of a consumer that does not end, and reports each second."""
    properties = [word for each in _CONSUMER for word in ("--command-property", each)]
    return [
        TOOLS + "ConsumerPerformance", "--topic", stream.topic,
        "--bootstrap-server", str(settings.bootstrap_servers),
        "--num-records", ENDLESS, "--fetch-size", str(_FETCH_BYTES),
        "--timeout", "60000", "--show-detailed-stats", "--hide-header",
        "--reporting-interval", "250", "--date-format", "yyyy-MM-dd'T'HH:mm:ss.SSSX",
        *properties,
    ]  # fmt: skip


@contextmanager
def _tool(
    class_path: Iterable[Path], arguments: list[str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        java_path(), "-Xmx512m", "-XX:+UseSerialGC", "-XX:-UsePerfData",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        "-cp", ":".join(map(str, class_path)), *arguments,
    ]  # fmt: skip
    with log.open("wb") as output:
        tool = subprocess.Popen(
            command, env=java_environment(), stdout=output, stderr=output,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            yield tool
        finally:
            tool.kill()
            tool.wait()


def _wait_for_rows(tools: list[subprocess.Popen[bytes]], logs: list[Path]) -> None:
    deadline_s = time.monotonic() + _START_S
    while not all(carried_bytes_per_s([log.read_text()], 0, 1e12) for log in logs):
        _run_on(tools, _POLL_S)
        if time.monotonic() > deadline_s:
            raise ChildFailed(
                f"Kafka's consumers: expected rows within {_START_S:.0f} s, found "
                f"{[last_line(log) for log in logs]}"
            )


def _run_on(tools: list[subprocess.Popen[bytes]], seconds: float) -> None:
    deadline_s = time.monotonic() + seconds
    while (left_s := deadline_s - time.monotonic()) > 0:
        time.sleep(min(_POLL_S, left_s))
        if any(tool.poll() is not None for tool in tools):
            codes = [tool.returncode for tool in tools]
            raise ChildFailed(
                f"Kafka's clients: expected them to go on, found exit codes {codes}",
                "read the .consumer and .producer files in the logs",
            )


def _written(settings: Settings, streams: list[Stream]) -> int:
    """Return the bytes of all records in the topics."""
    sizes = {s.topic: s.record_bytes for s in streams}
    places = [(topic, number) for topic in sizes for number in range(_PARTITIONS)]
    # Kept until the answers are there: without it they would never come.
    admin = make_admin(settings)
    (ends,) = ask_offsets(admin, places, _ASK_S, END)
    found = {place: end.result(_ASK_S).offset for place, end in ends.items()}
    return sum(sizes[topic] * offset for (topic, _), offset in found.items())


def _versions() -> dict[str, str]:
    return versions_of("rollstream", "confluent-kafka")


BROKER_LIMIT = Section(
    name="broker-limit",
    title="Bytes through one broker",
    text=(
        "Records of our sizes (360 and 490 kB), acks=all, 8 partitions, written and "
        "read at the same time, on the same cores and the same broker. Ours writes "
        "and reads each step twice, as an unroll and as a batch with returns: what "
        "carries like it is two of Kafka's own producers and two consumers, one pair "
        "for each size, and the goal is measured by that; one pair alone is beside "
        "it. Those have all cores for sending and reading random letters; ours also "
        "steps environments, acts, makes returns and opens what it reads."
    ),
    figures=(
        Figure("mb_per_s", "MB/s written, and as many read", "high", 1),
        Figure("steps_per_s", "steps/s"),
    ),
    sides=(
        Side(OURS, _measure_ours, is_ours=True),
        _plain(TWICE, (UNROLL_BYTES, BATCH_BYTES)),
        replace(_plain(ONCE, (UNROLL_BYTES,)), in_quick=False),
    ),
    goals=(
        Goal(
            "at least 60 % of what the broker carries for Kafka's own clients",
            lambda m: m[OURS]["mb_per_s"] >= 0.6 * m[TWICE]["mb_per_s"],
        ),
    ),
)
