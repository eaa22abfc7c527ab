"""A dead letter's record -> whether its reader could use it now."""

from __future__ import annotations

from infra.control.experiments import PublishedExperiment
from infra.errors import RollstreamError
from infra.kafka.foreign_schemas import decode_foreign
from infra.kafka.topic_admin import describe_topics
from infra.settings import Settings
from schemas.codec import encode
from schemas.errors import SchemaError
from schemas.records import SourceRef, StreamEnd, TransitionBatch, Unroll
from schemas.registry import Registry
from schemas.topics import REPLAY, TRAJECTORIES, topic_name
from stream_processors.tails import Emit, ReturnOptions, Tails

_BATCH_OVERHEAD_BYTES = 512
"""What a broker adds to a record before it judges its size, generously."""


class Refused(RollstreamError):
    """A record would become a dead letter again, or nobody would learn from it."""


class Usability:
    """Does with a record what its reader would do, and sends nothing.

    A batch may yet not fit the learner's environment: it is a dead letter again then.
    """

    def __init__(self, settings: Settings, published: PublishedExperiment) -> None:
        self.registry = Registry()
        self._settings = settings
        self._published = published
        self._trajectories = topic_name(TRAJECTORIES, published.experiment.name)
        self._replay = topic_name(REPLAY, published.experiment.name)
        self._max_batch_bytes: int | None = None

    def check(self, source: SourceRef, value: bytes) -> None:
        """Return when the record can be used.

        Raises:
            Refused: it cannot; says why.
        """
        kinds: tuple[type, ...]
        if source.topic == self._trajectories:
            kinds = (Unroll, StreamEnd)
        elif source.topic == self._replay:
            kinds = (TransitionBatch,)
        else:
            raise Refused(f"nobody reads {source.topic} for a record that comes back")
        try:
            record = decode_foreign(self._settings, self.registry, value, *kinds)
            self._check_run(record.run_id)
            if isinstance(record, Unroll):
                self._check_batch(source, record)
        except SchemaError as exc:
            raise Refused(f"it still cannot be used: {exc}") from exc

    def _check_run(self, run_id: str) -> None:
        if run_id != self._published.run_id:
            raise Refused(
                f"it is of the run {run_id}; the learner of {self._published.run_id} "
                "would leave it out"
            )

    def _check_batch(self, source: SourceRef, unroll: Unroll) -> None:
        """Make the batch, as the processor would, and compare its size."""
        spec = self._published.experiment.spec.processor
        options = ReturnOptions(
            spec.n_step, spec.gamma, spec.reward_scale, spec.priority_epsilon
        )
        tails = Tails(source.topic, source.partition, options)
        for action in tails.feed(source.offset, unroll, alone=True):
            if isinstance(action, Emit):
                size = len(encode(action.batch)) + _BATCH_OVERHEAD_BYTES
                if size > self._largest_batch():
                    raise Refused(
                        f"its batch of some {size} bytes is still larger than "
                        f"{self._replay} takes, {self._largest_batch()}"
                    )

    def _largest_batch(self) -> int:
        if self._max_batch_bytes is None:
            (found,) = describe_topics(self._settings, [self._replay])
            self._max_batch_bytes = int(found.config["max.message.bytes"])
        return self._max_batch_bytes
