"""Parameters -> the policies topic: one record a version, or one that says where it is.

Order is (epoch, version). Versions go on over restarts of a run and never repeat.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from infra.clock import now_ms
from infra.control.role import RoleContext
from infra.kafka.delivery import Sender
from infra.kafka.reading import latest_by_key
from infra.policies.keys import CURRENT_KEY
from learner.policy_delivery import (
    Encoding,
    Keyframe,
    PolicyDelivery,
    Serialised,
    serialising,
)
from learner.roster import NewerLearner
from schemas.codec import decode, encode
from schemas.errors import SchemaError
from schemas.records import PolicyChunk, PolicyGraph, PolicyVersion
from schemas.tensors import Array
from schemas.topics import POLICIES, POLICY_CHUNKS, POLICY_HISTORY

if TYPE_CHECKING:
    from learner.actor_graph import ExportedGraph

HISTORY_EVERY = 25
KEYFRAME_EVERY = 16

# Slots 2 and 3 are the best's.
_KEYFRAME_SLOTS = (4, 5)
# Somebody may want to stop meanwhile.
_PATIENCE_S = 5.0
_POLL_S = 0.005
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
        # Chunks that an older release sent here: workers would read them at each start.
        self._outdated: list[str] = []
        self.version = max(first_version - 1, self._newest_in_topic())
        self.published = 0
        self._graph: tuple[str, int] | None = None
        self._under_way: PolicyDelivery | None = None
        self._keyframe: Keyframe | None = None
        self._executor = ThreadPoolExecutor(1, "policies")
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

        Returns:
            False also while the one before is on its way to the log: a large policy is
            published no faster than the brokers take it.
        """
        learner = self._context.spec.learner
        # Where versions follow from updates alone none is left out: see PolicyClock.
        if self._under_way is not None and learner.policy_interval_ms > 0:
            return False
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

        Of a large one little is sent yet: ``settle`` does that. The one before is
        waited for, but not for ever: where brokers are away, it stays without a record.

        Args:
            tensors: the actor's parameters and buffers by name; nobody may change them.
            train_step: updates made so far.
            now_s: monotonic seconds.

        Raises:
            ValueError: the graph has not been published.
            DeliveryError: an earlier record was refused for good.
        """
        if self._graph is None:
            raise ValueError("expected publish_graph before publish, found no graph")
        self.finish(_PATIENCE_S)
        self.version += 1
        encoding = self._encoding()
        version = self._describe(train_step, encoding)
        found = serialising(self._executor, version, tensors, encoding)
        topic = self._context.topic(POLICY_CHUNKS)
        self._under_way = PolicyDelivery(found, self._sender, topic)
        self.settle()
        self.published += 1
        self._updates, self._published_at_s = train_step, now_s
        return self.version

    def settle(self) -> None:
        """Bring a version further, and send its record in the end; never waits.

        To be called often: until then nobody acts with it.

        Raises:
            DeliveryError: a chunk was refused for good.
        """
        if self._under_way is None:
            return
        delivered = self._under_way.advance()
        if delivered is not None:
            self._under_way = None
            if delivered.keyframe is not None:
                self._keyframe = Keyframe(delivered.version, delivered.keyframe)
            self._send(delivered)

    def finish(self, timeout_s: float) -> None:
        """Wait for the chunks of the newest version, and send its record.

        Raises:
            DeliveryError: a chunk was refused for good.
        """
        deadline_s = time.monotonic() + timeout_s
        self.settle()
        while self._under_way is not None and time.monotonic() < deadline_s:
            self._sender.poll(_POLL_S)
            self.settle()

    def _newest_in_topic(self) -> int:
        newest = -1
        for message in latest_by_key(self._context.settings, self._topic).values():
            record = self._check_record(message.value)
            if isinstance(record, PolicyVersion | PolicyChunk):
                newest = max(newest, record.version)
            if isinstance(record, PolicyChunk) and record.slot < _SLOTS:
                self._outdated.append(message.key)
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

    def _encoding(self) -> Encoding:
        """Return how the version to be published is written.

        Each KEYFRAME_EVERY-th is a keyframe, under slots of their own: what is made
        from one finds it, until the second after it has overwritten it.
        """
        learner = self._context.spec.learner
        if learner.policy_encoding == "full":
            return Encoding(learner.policy_precision)
        is_keyframe = self.version % KEYFRAME_EVERY == 0
        keyframe = None if is_keyframe else self._keyframe
        return Encoding(learner.policy_precision, is_keyframe, keyframe)

    def _describe(self, train_step: int, encoding: Encoding) -> PolicyVersion:
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
            tensors=b"",
            tensors_sha256="",
            num_chunks=0,
            slot=self._slot(encoding),
            created_at_ms=now_ms(),
        )

    def _slot(self, encoding: Encoding) -> int:
        if encoding.is_keyframe:
            return _KEYFRAME_SLOTS[self.version // KEYFRAME_EVERY % 2]
        return self.version % _SLOTS

    def _send(self, found: Serialised) -> None:
        """Send a version's record; now and then a copy with all inside that stays."""
        version = found.version
        self._sender.send(self._topic, encode(version), CURRENT_KEY, 0)
        while self._outdated:
            self._sender.send(self._topic, None, self._outdated.pop(), 0)
        if version.version % HISTORY_EVERY == 0 and found.kept is not None:
            history = self._context.topic(POLICY_HISTORY)
            self._sender.send(history, encode(found.kept), str(version.version), 0)
