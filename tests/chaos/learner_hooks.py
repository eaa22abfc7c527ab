"""A journal of what the learner takes in, learns, saves and commits.

Imported by learners through ROLLSTREAM_LEARNER_MODULES. Where a test has ordered it the
learner dies or sleeps, at one of POINTS.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import wraps
from typing import Any

from infra.kafka import clients
from infra.kafka.delivery import OnDelivery
from learner import assembly
from learner.algorithms.dqn import Dqn
from learner.checkpoint import CheckpointStore
from learner.feed import Feed
from learner.loop import Learner
from learner.replay_buffer import ReplayBuffer
from schemas.codec import decode_any
from schemas.records import TransitionBatch
from tests.chaos.journal import MAX_POLL_INTERVAL_MS, Journal, open_journal
from tests.chaos.sends import report_sends

POINTS = ("update", "mark", "write", "durable", "commit")
"""After an optimizer step; with a snapshot taken; before it is written; once it is
durable and not committed; once its offsets are committed."""


def hook_inserts(journal: Journal) -> None:
    insert = ReplayBuffer.insert

    @wraps(insert)
    def journaled(
        self: ReplayBuffer, batch: TransitionBatch, partition: int, offset: int
    ) -> int:
        rows = insert(self, batch, partition, offset)
        names = ("worker", "incarnation", "sequence", "first_step")
        values = {name: getattr(batch, name) for name in names}
        journal.write(
            "insert",
            **values,
            num_steps=batch.num_steps,
            num_envs=batch.num_envs,
            valid=rows,
            policy=[batch.policy.epoch, batch.policy.version],
            partition=partition,
            offset=offset,
        )
        return rows

    ReplayBuffer.insert = journaled  # type: ignore[method-assign]


def hook_updates(journal: Journal) -> None:
    update = Dqn.update

    @wraps(update)
    def journaled(self: Dqn, sample: Any) -> Any:
        result = update(self, sample)
        # Not durably: a killed process loses nothing that it has written.
        journal.write("update", durably=False, updates=self.updates)
        journal.at("update")
        return result

    Dqn.update = journaled  # type: ignore[method-assign]


def hook_checkpoints(journal: Journal) -> None:
    load, snapshot, write = (
        assembly.load_newest,
        Learner.snapshot,
        CheckpointStore.write,
    )

    @wraps(load)
    def loaded(*args: Any) -> Any:
        found = load(*args)
        key = [found.epoch, found.number] if found else None
        values: dict[str, Any] = {}
        if found:
            values["env_steps"] = found.counters["env_steps"]
            values["updates"] = found.algorithm.values["updates"]
            values["positions"] = dict(found.positions)
        journal.write("restored", checkpoint=key, **values)
        return found

    @wraps(snapshot)
    def marked(self: Learner) -> Any:
        found = snapshot(self)
        key = [found.epoch, found.number]
        journal.write("mark", checkpoint=key, positions=dict(found.positions))
        journal.at("mark")
        return found

    @wraps(write)
    def written(self: CheckpointStore, epoch: int, number: int, files: Any) -> Any:
        journal.at("write")
        found = write(self, epoch, number, files)
        journal.write("durable", checkpoint=[epoch, number])
        journal.at("durable")
        return found

    assembly.load_newest = loaded
    Learner.snapshot = marked  # type: ignore[method-assign]
    CheckpointStore.write = written  # type: ignore[method-assign]


def hook_commits(journal: Journal) -> None:
    commit = Feed.commit

    @wraps(commit)
    def committed(self: Feed, offsets: Mapping[int, int]) -> None:
        commit(self, offsets)
        journal.write("commit", offsets=dict(offsets))
        journal.at("commit")

    Feed.commit = committed  # type: ignore[method-assign]


def hook_policies(journal: Journal) -> None:
    report_sends(
        lambda topic, key: topic.endswith(".policies") and key == "policy",
        lambda value: _report_policy(journal, value),
    )


def _report_policy(journal: Journal, value: bytes) -> OnDelivery:
    record = decode_any(value)

    def report(error: Any, message: Any) -> None:
        if error is None:
            version = [record.epoch, record.version]
            journal.write("policy", version=version, offset=message.offset())

    return report


def limit_polls(limit_ms: int) -> None:
    """Let consumers be thrown out of their group sooner."""
    make = clients.consumer_config

    @wraps(make)
    def limited(*args: Any, **more: Any) -> dict[str, Any]:
        return make(*args, **more) | {"max.poll.interval.ms": limit_ms}

    clients.consumer_config = limited


_JOURNAL = open_journal("learner")
if _JOURNAL is not None:
    hook_inserts(_JOURNAL)
    hook_updates(_JOURNAL)
    hook_checkpoints(_JOURNAL)
    hook_commits(_JOURNAL)
    hook_policies(_JOURNAL)
    if MAX_POLL_INTERVAL_MS in os.environ:
        limit_polls(int(os.environ[MAX_POLL_INTERVAL_MS]))
