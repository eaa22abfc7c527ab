"""``rollstream bench replay-buffer``: a full buffer sampled, saved and rebuilt."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.local import running
from infra.kafka.clients import make_producer
from infra.kafka.delivery import Sender
from infra.kafka.topic_admin import TopicConfig, delete_topics, ensure_topics
from infra.settings import Settings
from learner.algorithms import build
from learner.algorithms.base import Algorithm
from learner.checkpoint import CheckpointStore
from learner.replay_buffer import ReplayBuffer
from learner.restore import read_referenced
from learner.snapshot import LogIdentity, Snapshot, to_files
from schemas.codec import encode
from schemas.experiment import Spec, from_values
from schemas.records import (
    NO_POLICY,
    EnvDescription,
    SourceRef,
    SpaceField,
    TransitionBatch,
)
from schemas.tensors import pack

STEPS, ENVS, BATCH = 32, 256, 512
_RUN = "bench"
ENV = EnvDescription(
    "CartPole-v1",
    (SpaceField("", "box", "<f4", (4,)),),
    (SpaceField("", "discrete", "<i8", (), n=(2,), start=(0,)),),
    500,
    "vector_entry_point",
    {},
)


def run_bench(
    settings: Settings, rows: int, console: Console, *, as_json: bool
) -> None:
    """Measure with CartPole-shaped rows, and print."""
    with running(settings, console) as (_, there):
        found = measure(there, rows)
    if as_json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        console.print(f"[dim]{name:<36}[/]{value:>14,}")


def measure(settings: Settings, rows: int) -> dict[str, float]:
    """Fill, sample, save and rebuild a buffer of ``rows`` transitions."""
    topic = f"rollstream.bench-{time.time_ns() // 1_000_000}.replay"
    config = {"max.message.bytes": str(12 << 20)}
    ensure_topics(settings, [TopicConfig(topic, 1, config)])
    try:
        spec = spec_of(rows)
        replay = spec.learner.replay
        buffer = ReplayBuffer(ENV, replay, unroll_length=STEPS)
        insert_s = _fill(settings, topic, buffer, rows)
        per_s = sample_and_update(buffer)
        pause_s, write_s = _save(buffer, spec)
        restored = ReplayBuffer(ENV, replay, unroll_length=STEPS)
        references = buffer.references()
        restore_s = _timed(
            lambda: restored.restore(
                references,
                read_referenced(settings, topic, _RUN, references.chunks),
            )
        )
        if restored.rows != buffer.rows:
            raise RuntimeError(f"expected {buffer.rows} rows, found {restored.rows}")
        return {
            "rows": buffer.rows,
            "inserted_rows_per_s": round(buffer.rows / insert_s),
            "sample_and_update_items_per_s": round(per_s),
            "checkpoint_pause_ms": round(pause_s * 1000, 1),
            "checkpoint_write_ms": round(write_s * 1000, 1),
            "restore_s": round(restore_s, 2),
        }
    finally:
        delete_topics(settings, [topic])


def spec_of(rows: int) -> Spec:
    """Return a spec whose buffer has room for so many rows."""
    learner = {"replay": {"capacity": rows}, "network": {"hidden": [128, 128]}}
    return from_values(
        {
            "apiVersion": "rollstream/v1",
            "kind": "Experiment",
            "metadata": {"name": "bench"},
            "spec": {"env": {"id": ENV.env_id}, "learner": learner},
        }
    ).spec


def batches(rows: int) -> Iterator[TransitionBatch]:
    """Yield batches of at least so many rows in all, random, of one stream."""
    rng = np.random.default_rng(0)
    shape = (STEPS, ENVS)
    zeros, flags = np.zeros(shape, "<f4"), pack(np.zeros(shape, "|b1"))
    for sequence in range(-(-rows // (STEPS * ENVS))):
        yield TransitionBatch(
            experiment="bench",
            run_id=_RUN,
            worker="w0",
            incarnation=0,
            sequence=sequence,
            first_step=sequence * STEPS,
            num_steps=STEPS,
            num_envs=ENVS,
            policy=NO_POLICY,
            produced_at_ms=0,
            end_of_stream=False,
            source=SourceRef("t", 0, sequence),
            n_step=3,
            gamma=0.99,
            reward_scale=1.0,
            observations={"": pack(rng.random((STEPS + 1, ENVS, 4), np.float32))},
            actions={"": pack(rng.integers(0, 2, shape))},
            rewards=pack(zeros),
            terminated=flags,
            truncated=flags,
            valid=pack(np.ones(shape, "|b1")),
            episodes=pack(np.zeros(ENVS, "<i8")),
            states={},
            behaviour={},
            infos={},
            returns=pack(zeros),
            discounts=pack(zeros + np.float32(0.97)),
            bootstrap_steps=pack(np.full(shape, 3, "<i4")),
            priorities=pack(rng.random(shape, np.float32) + np.float32(0.01)),
        )


def _fill(settings: Settings, topic: str, buffer: ReplayBuffer, rows: int) -> float:
    """Send and insert; return the seconds that inserting took."""
    sender = Sender(make_producer(settings, client_id="bench-replay"))
    insert_s = 0.0
    for offset, batch in enumerate(batches(rows)):
        sender.send(topic, encode(batch), "w0", 0)
        began_s = time.perf_counter()
        buffer.insert(batch, 0, offset)
        insert_s += time.perf_counter() - began_s
    sender.flush(60.0)
    return insert_s


def sample_and_update(buffer: ReplayBuffer, seconds: float = 3.0) -> float:
    """Return how many rows a second are drawn and get new priorities."""
    rng = np.random.default_rng(1)
    errors = rng.random(BATCH).astype(np.float32)
    buffer.update_priorities(buffer.sample(BATCH, 0.4, rng).indices, errors)
    count, began_s = 0, time.perf_counter()
    while time.perf_counter() - began_s < seconds:
        buffer.update_priorities(buffer.sample(BATCH, 0.4, rng).indices, errors)
        count += BATCH
    return count / (time.perf_counter() - began_s)


def _save(buffer: ReplayBuffer, spec: Spec) -> tuple[float, float]:
    """Return how long a learner pauses, and how long its thread then writes."""
    algorithm = build(ENV, spec)
    began_s = time.perf_counter()
    snapshot = _snapshot(buffer, algorithm)
    pause_s = time.perf_counter() - began_s
    with tempfile.TemporaryDirectory() as directory:
        store = CheckpointStore(Path(directory))
        write_s = _timed(lambda: store.write(0, 1, to_files(snapshot)))
    return pause_s, write_s


def _snapshot(buffer: ReplayBuffer, algorithm: Algorithm) -> Snapshot:
    return Snapshot(
        epoch=0,
        number=1,
        run_id=_RUN,
        log=LogIdentity("cluster", "topic"),
        positions={0: 0},
        log_was_cut={0: False},
        oldest_offsets=buffer.oldest_offsets(),
        next_version=0,
        counters={},
        ledger={},
        limiter={},
        algorithm=algorithm.state_dict(),
        references=buffer.references(),
    )


def _timed(action: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    action()
    return time.perf_counter() - began_s
