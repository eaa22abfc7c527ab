"""Parameters -> the policies topic: one record a version, or chunks and a manifest.

Order is (epoch, version). Versions go on over restarts of a run and never repeat.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import safetensors.numpy

from infra.clock import now_ms
from infra.control.role import RoleContext
from infra.kafka.delivery import Sender
from infra.kafka.reading import latest_by_key
from learner.roster import NewerLearner
from schemas.codec import decode, encode
from schemas.errors import SchemaError
from schemas.records import PolicyChunk, PolicyGraph, PolicyVersion
from schemas.sizes import POLICY_CHUNK_BYTES
from schemas.tensors import Array
from schemas.topics import POLICIES, POLICY_HISTORY

if TYPE_CHECKING:
    from learner.actor_graph import ExportedGraph

HISTORY_EVERY = 25

_SLOTS = 2  # readers of the version before this one still find its chunks
_log = logging.getLogger("rollstream")


class Publisher:
    """Publishes the graph, then versions of its tensors.

    Attributes:
        version: the newest of this run, by whichever learner; -1: none.
        published: how many this publisher has sent.
    """

    def __init__(
        self, sender: Sender, context: RoleContext, epoch: int, first_version: int = 0
    ) -> None:
        """Go on after what the topic holds.

        Args:
            sender: with the size limit of all clients, 16 MiB.
            context: whose run it is.
            epoch: this learner's; what it publishes supersedes older epochs.
            first_version: the checkpoint's next version; 0 without one.

        Raises:
            NewerLearner: the topic holds a policy of a later epoch of this run.
        """
        self._sender = sender
        self._context = context
        self._epoch = epoch
        self._topic = context.topic(POLICIES)
        self.version = max(first_version - 1, self._newest_in_topic())
        self.published = 0
        self._graph: tuple[str, int] | None = None
        self._updates = 0
        self._published_at_s = float("-inf")

    def publish_graph(self, graph: ExportedGraph) -> int:
        """Publish the actor's graph; return its offset, which versions refer to.

        Raises:
            DeliveryError: it cannot be delivered.
        """
        actor = graph.actor
        record = PolicyGraph(
            experiment=self._context.experiment.name,
            run_id=self._context.run_id,
            epoch=self._epoch,
            sha256=graph.sha256,
            onnx=graph.onnx,
            head=actor.head,
            exploration=actor.exploration,
            exploration_options=actor.exploration_options,
            observation=actor.observation,
            action=actor.action,
            states=actor.states,
            created_at_ms=now_ms(),
        )
        offset = self._sender.send_and_wait(self._topic, encode(record), "graph", 0)
        self._graph = graph.sha256, offset
        return offset

    def due(self, updates: int, now_s: float) -> bool:
        """Whether enough updates were made, and enough time has passed.

        Args:
            updates: made so far.
            now_s: monotonic seconds.
        """
        learner = self._context.spec.learner
        made = updates - self._updates
        waited_ms = (now_s - self._published_at_s) * 1000
        return (
            made >= learner.updates_per_policy
            and waited_ms >= learner.policy_interval_ms
        )

    def publish(
        self, tensors: Mapping[str, Array], train_step: int, now_s: float
    ) -> int:
        """Send the next version, without waiting for its delivery; return it.

        Args:
            tensors: the actor's parameters and buffers by name.
            train_step: updates made so far.
            now_s: monotonic seconds.

        Raises:
            ValueError: the graph has not been published.
            DeliveryError: an earlier record was refused for good.
        """
        if self._graph is None:
            raise ValueError("expected publish_graph before publish, found no graph")
        self.version += 1
        data = safetensors.numpy.save(dict(tensors))
        slot = self.version % _SLOTS
        chunks = _cut(data)
        for number, chunk in enumerate(chunks):
            self._send(f"chunk/{slot}/{number}", self._chunk(slot, number, chunk))
        version = self._describe(data, train_step, slot, len(chunks))
        self._send("policy", version)
        if self.version % HISTORY_EVERY == 0 and not chunks:
            self._sender.send(
                self._context.topic(POLICY_HISTORY),
                encode(version),
                str(self.version),
                0,
            )
        self.published += 1
        self._updates, self._published_at_s = train_step, now_s
        return self.version

    def _newest_in_topic(self) -> int:
        newest = -1
        for message in latest_by_key(self._context.settings, self._topic).values():
            record = self._check_record(message.value)
            if isinstance(record, PolicyVersion | PolicyChunk):
                newest = max(newest, record.version)
        return newest

    def _check_record(self, value: bytes) -> Any:
        """Return a record of this run, or None; raise when it is of a later epoch."""
        try:
            record: Any = decode(value, PolicyVersion, PolicyGraph, PolicyChunk)
        except SchemaError as exc:
            _log.warning("%s holds a record that is passed over: %s", self._topic, exc)
            return None
        if record.run_id != self._context.run_id:
            return None
        if record.epoch > self._epoch:
            raise NewerLearner(
                f"{self._topic} holds a policy of the learner {record.epoch}; this one "
                f"is {self._epoch}",
                "nothing is to be done: the newer one goes on",
            )
        return record

    def _describe(
        self, data: bytes, train_step: int, slot: int, num_chunks: int
    ) -> PolicyVersion:
        assert self._graph is not None
        graph_sha256, graph_offset = self._graph
        return PolicyVersion(
            experiment=self._context.experiment.name,
            run_id=self._context.run_id,
            epoch=self._epoch,
            version=self.version,
            train_step=train_step,
            graph_sha256=graph_sha256,
            graph_offset=graph_offset,
            tensors=b"" if num_chunks else data,
            tensors_sha256=hashlib.sha256(data).hexdigest(),
            num_chunks=num_chunks,
            slot=slot,
            created_at_ms=now_ms(),
        )

    def _chunk(self, slot: int, number: int, data: bytes) -> PolicyChunk:
        return PolicyChunk(
            experiment=self._context.experiment.name,
            run_id=self._context.run_id,
            epoch=self._epoch,
            version=self.version,
            slot=slot,
            chunk=number,
            data=data,
        )

    def _send(self, key: str, record: PolicyVersion | PolicyChunk) -> None:
        self._sender.send(self._topic, encode(record), key, 0)


def _cut(data: bytes) -> list[bytes]:
    """Return the parts of what is too large for one record; [] when it is not."""
    if len(data) <= POLICY_CHUNK_BYTES:
        return []
    starts = range(0, len(data), POLICY_CHUNK_BYTES)
    return [data[start : start + POLICY_CHUNK_BYTES] for start in starts]
