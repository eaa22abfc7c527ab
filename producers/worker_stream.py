"""One incarnation's unrolls -> its partition, counted when they are delivered."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum

from confluent_kafka import KafkaError, Message

from infra.clock import now_ms
from infra.control.role import RoleContext
from infra.kafka.dead_letters import dead_letter
from infra.kafka.delivery import DeliveryTooLarge, Sender, is_too_large
from producers.packing import Packing
from producers.rollout import UnrollArrays
from producers.unrolls import Encoded, encode_unrolls
from schemas.codec import encode
from schemas.records import NO_POLICY, SourceRef, StreamEnd, Unroll
from schemas.tensors import Tensor
from schemas.topics import TRAJECTORIES, worker_name, worker_partition

_NOTHING = Tensor("|b1", (0,), "RAW", b"")


class After(Enum):
    """What follows an incarnation."""

    STOP = "stop"
    IDLE = "idle"
    AGAIN = "again"


@dataclass
class WorkerCounts:
    """What became of the steps that one incarnation has taken.

    Attributes:
        env_steps: valid rows delivered.
        invalid_steps: rows delivered that are not transitions.
        unrolls: records delivered.
        bytes: of those.
        undelivered_steps: valid rows that were refused, or are not delivered yet.
        dead_letters: records refused for their size; each is kept as a dead letter.
        waited_credit_s: waiting for the learner to take more.
        waited_policy_s: waiting for the policy that must act.
        waited_delivery_s: waiting for the broker.
        vector_steps: of all environments at once, those of the unroll under way too.
        usable_steps: rows that can be learnt from, likewise; what became of them is
            another matter.
        unusable_steps: rows without an answer, or with a number that is not finite;
            resets are neither.
    """

    env_steps: int = 0
    invalid_steps: int = 0
    unrolls: int = 0
    bytes: int = 0
    undelivered_steps: int = 0
    dead_letters: int = 0
    waited_credit_s: float = 0.0
    waited_policy_s: float = 0.0
    waited_delivery_s: float = 0.0
    vector_steps: int = 0
    usable_steps: int = 0
    unusable_steps: int = 0

    def wait(self, seconds: float, *, for_policy: bool) -> None:
        """Note a wait for the learner."""
        if for_policy:
            self.waited_policy_s += seconds
        else:
            self.waited_credit_s += seconds


@dataclass
class WorkerStream:
    """The stream (worker, incarnation): no holes in sequence or first_step.

    Attributes:
        refused: why a record was refused for its size; the stream has a hole there
            and must not go on.
    """

    context: RoleContext
    sender: Sender
    incarnation: int
    counts: WorkerCounts
    packing: Packing
    refused: str = ""
    _sequence: int = field(default=0)
    _unburied: list[tuple[bytes, str]] = field(default_factory=list)

    def send(self, arrays: UnrollArrays, *, end: bool) -> int:
        """Send an unroll; return the most steps that one record of it took.

        Blocks while the broker does not keep up.

        Raises:
            DeliveryError: a record was refused for good.
            SchemaError: a single step is too large for a record.
        """
        most = 0
        for part in encode_unrolls(arrays, self._template(end), self.packing):
            self._send_part(part)
            self._sequence += 1
            most = max(most, part.num_steps)
        return most

    def end(self, reason: str) -> None:
        """End the stream between unrolls."""
        record = StreamEnd(
            experiment=self.context.experiment.name,
            run_id=self.context.run_id,
            worker=self.worker,
            incarnation=self.incarnation,
            reason=reason,
            produced_at_ms=now_ms(),
        )
        self.sender.send(self.topic, encode(record), self.worker, self.partition)

    def bury(self) -> None:
        """Keep what was refused for its size as dead letters."""
        refused, self._unburied = self._unburied, []
        source = SourceRef(self.topic, self.partition, -1)
        for value, reason in refused:
            key = self.worker.encode()
            dead_letter(self.sender, self.context, source, key, value, reason)
            self.counts.dead_letters += 1

    @property
    def worker(self) -> str:
        """The worker's name, and the key of its records."""
        return worker_name(self.context.index)

    @property
    def topic(self) -> str:
        """Where unrolls go."""
        return self.context.topic(TRAJECTORIES)

    @property
    def partition(self) -> int:
        """The worker's partition."""
        partitions = self.context.spec.topics.partitions
        return worker_partition(self.context.index, partitions)

    def _send_part(self, part: Encoded) -> None:
        self.counts.undelivered_steps += part.valid_steps

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._count(part)
            elif is_too_large(error):  # any other ends the incarnation: see Sender
                self._refuse(part, error.str())

        started_s = time.monotonic()
        try:
            self.sender.send(
                self.topic, part.value, self.worker, self.partition, on_delivery
            )
        except DeliveryTooLarge as exc:
            self._refuse(part, str(exc))
        self.counts.waited_delivery_s += time.monotonic() - started_s

    def _count(self, part: Encoded) -> None:
        self.counts.undelivered_steps -= part.valid_steps
        self.counts.env_steps += part.valid_steps
        self.counts.invalid_steps += part.all_steps - part.valid_steps
        self.counts.unrolls += 1
        self.counts.bytes += len(part.value)

    def _refuse(self, part: Encoded, reason: str) -> None:
        # Nothing may be sent here: the client does not bear that in its callbacks.
        self.refused = self.refused or reason
        self._unburied.append((part.value, reason))

    def _template(self, end: bool) -> Unroll:
        return Unroll(
            experiment=self.context.experiment.name,
            run_id=self.context.run_id,
            worker=self.worker,
            incarnation=self.incarnation,
            sequence=self._sequence,
            first_step=0,
            num_steps=1,
            num_envs=1,
            policy=NO_POLICY,
            produced_at_ms=now_ms(),
            end_of_stream=end,
            observations={},
            actions={},
            rewards=_NOTHING,
            terminated=_NOTHING,
            truncated=_NOTHING,
            valid=_NOTHING,
            episodes=_NOTHING,
            states={},
            behaviour={},
            infos={},
        )
