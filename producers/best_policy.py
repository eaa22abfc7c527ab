"""Evaluated versions -> the best so far, published under ``best``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from infra.control.role import RoleContext
from infra.kafka.delivery import Sender
from infra.kafka.reading import latest_by_key, read_to_end
from infra.monitoring.event_kinds import EventKind
from infra.policies.chunks import addressed, cut, whole
from infra.policies.keys import BEST_KEY, CHUNK_KEY
from producers.policy import Policy
from schemas.codec import decode, encode, writer_schema
from schemas.errors import SchemaError
from schemas.records import (
    NO_POLICY,
    Evaluation,
    PolicyRef,
    PolicyVersion,
)
from schemas.sizes import POLICY_CHUNK_BYTES
from schemas.topics import METRICS, POLICIES, POLICY_CHUNKS, POLICY_HISTORY

# The learner alternates slots 0 and 1; these are the best's.
_SLOTS = (2, 3)


@dataclass(frozen=True, order=True)
class Score:
    """What makes a version better: confirmed first, then the mean of all episodes."""

    confirmed: bool
    mean: float


class BestPolicy:
    """The best version of a run.

    Attributes:
        score: its score; None before the first.
        ref: which it is.
    """

    def __init__(
        self,
        context: RoleContext,
        sender: Sender,
        report: Callable[[EventKind, str], None],
    ) -> None:
        self.score: Score | None = None
        self.ref = NO_POLICY
        self._context = context
        self._sender = sender
        self._report = report
        self._published = 0

    def recall(self) -> None:
        """Find the best of an evaluator before this one, and how good it was.

        Records that cannot be read are passed over, and reported.
        """
        topic = self._context.topic(POLICIES)
        message = latest_by_key(self._context.settings, topic).get(BEST_KEY)
        if message is None:
            return
        try:
            best = decode(message.value, PolicyVersion)
        except SchemaError as exc:
            self._report("best-policy-refused", f"{topic}, {BEST_KEY!r}: {exc}")
            return
        if best.run_id != self._context.run_id:
            return
        self._published = best.slot + 1  # the other slot comes next
        self.ref = PolicyRef(best.epoch, best.version)
        for ref, score in self._scores():
            if ref == self.ref:
                self.score = score

    def offer(self, policy: Policy, score: Score) -> bool:
        """Publish a version if it is better than all before; return whether it is.

        Steps: 1. chunks, if it is large; 2. the manifest under ``best``, once those
        are acknowledged; 3. a copy to the history.

        Raises:
            DeliveryError: it cannot be delivered.
        """
        if self.score is not None and score <= self.score:
            return False
        self.score = score
        if policy.ref == self.ref:
            return True  # it is the best already; now by more episodes
        topic = self._context.topic(POLICIES)
        slot = _SLOTS[self._published % len(_SLOTS)]
        all_inside = replace(whole(policy.version, policy.tensors), slot=slot)
        record = self._send_chunks(all_inside)  # step 1
        self._sender.send_and_wait(topic, encode(record), BEST_KEY)  # step 2
        is_small = len(policy.tensors) <= POLICY_CHUNK_BYTES
        kept = all_inside if is_small else record
        self._sender.send_and_wait(  # step 3
            self._context.topic(POLICY_HISTORY), encode(kept), str(record.version)
        )
        self.ref = policy.ref
        self._published += 1
        return True

    def _send_chunks(self, version: PolicyVersion) -> PolicyVersion:
        """Return the record to publish: a large version's says where it is."""
        topic, data, offsets = self._context.topic(POLICY_CHUNKS), version.tensors, []
        for chunk in cut(version, data):
            key = f"{CHUNK_KEY}/{chunk.slot}/{chunk.chunk}"
            offsets.append(self._sender.send_and_wait(topic, encode(chunk), key))
        return addressed(version, data, tuple(offsets)) if offsets else version

    def _scores(self) -> Iterator[tuple[PolicyRef, Score]]:
        """Yield what the run's evaluations say, oldest first."""
        topic, refused = self._context.topic(METRICS), []
        for message in read_to_end(self._context.settings, topic):
            try:
                if writer_schema(message.value).name != Evaluation.__name__:
                    continue
                evaluation = decode(message.value, Evaluation)
                mean = float(evaluation.returns.array().mean())
            except SchemaError as exc:
                refused.append(f"{topic}[0] offset {message.offset}: {exc}")
                continue
            if evaluation.run_id == self._context.run_id:
                yield evaluation.policy, Score(evaluation.confirmation, mean)
        if refused:
            more = f" (and {len(refused) - 1} more)" if refused[1:] else ""
            self._report("metrics-record-refused", refused[0] + more)
