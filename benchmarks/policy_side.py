"""What a learner does to publish: export, serialise, send. Nothing is learnt.

``python -m benchmarks.policy_side EXPERIMENT VERSIONS INTERVAL_S``: publishes a graph
and a first version, says READY, and once its stdin has a line, publishes the others;
prints a JSON line. Workers run without credit (free flow), so nothing else is needed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.control.members import register
from infra.control.role import EXIT_OK, RoleContext, StopRequest, load_context
from infra.kafka.clients import make_producer
from infra.kafka.delivery import OnDelivery, Sender
from learner.actor_graph import export_actor
from learner.algorithms import build
from learner.algorithms.base import Algorithm
from learner.publisher import Publisher
from producers.validation import try_environment
from schemas.tensors import Array

READY = "ready"
# As a learner's loop looks after its housekeeping.
_HOUSEKEEPING_S = 0.02
_FIRST_S = 60.0
_MANY_UPDATES = 1_000_000


class CountingSender(Sender):
    """Counts the bytes of all values that it sends."""

    sent_bytes = 0

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: str | bytes,
        partition: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Send a record; see Sender."""
        self.sent_bytes += len(value or b"")
        super().send(topic, value, key, partition, on_delivery)


@dataclass
class Published:
    """What publishing took.

    Attributes:
        pauses_ms: of each version, for which a learner would not have learnt: copying
            its tensors, serialising and handing them over.
        tensors_bytes: of one version.
        log_bytes: of all records of all versions.
        versions: how many.
    """

    pauses_ms: list[float] = field(default_factory=list)
    tensors_bytes: int = 0
    log_bytes: int = 0
    versions: int = 0


class PolicySide:
    """The publishing part of a learner."""

    def __init__(self, context: RoleContext, stop: StopRequest) -> None:
        self._stop = stop
        self._sender = CountingSender(
            make_producer(context.settings, client_id=context.client_id)
        )
        epoch = register(self._sender, context, stop)
        env = try_environment(context.spec.env, context.settings)
        self._algorithm: Algorithm = build(env, context.spec)
        self._publisher = Publisher(self._sender, context, epoch)
        self._publisher.publish_graph(export_actor(self._algorithm.actor()))
        self._published = Published()

    def run(self, versions: int, interval_s: float) -> int:
        """Publish; return the exit code."""
        self._publish(0)
        self._publisher.finish(_FIRST_S)
        self._sender.flush(_FIRST_S)
        print(READY, flush=True)
        sys.stdin.readline()
        self._published, self._sender.sent_bytes = Published(), 0
        for number in range(1, versions + 1):
            due_at_s = time.monotonic() + interval_s
            self._publish(number)
            self._keep_house(due_at_s)
            if self._stop.is_set():
                break
        self._publisher.finish(_FIRST_S)
        self._sender.flush(_FIRST_S)
        self._print()
        return EXIT_OK

    def _publish(self, number: int) -> None:
        began_s = time.monotonic()
        tensors = self._algorithm.policy_tensors()
        _change(tensors, number)
        self._publisher.publish(tensors, number, began_s)
        self._published.pauses_ms.append((time.monotonic() - began_s) * 1000)
        self._published.versions += 1
        self._published.tensors_bytes = sum(each.nbytes for each in tensors.values())

    def _keep_house(self, due_at_s: float) -> None:
        """Go on until the next is due: no sooner than the one before is in the log."""
        while not self._stop.is_set():
            self._sender.poll(_HOUSEKEEPING_S)
            self._publisher.settle()
            now_s = time.monotonic()
            if now_s >= due_at_s and self._publisher.due(_MANY_UPDATES, now_s):
                return

    def _print(self) -> None:
        self._published.log_bytes = self._sender.sent_bytes
        print(json.dumps(vars(self._published)), flush=True)


def _change(tensors: Mapping[str, Array], number: int) -> None:
    """Make them those of another version: what is the same need not travel."""
    first = next(each for each in tensors.values() if each.dtype.kind == "f")
    first.flat[0] = number


def main() -> None:
    """Publish for the experiment that the command line names."""
    name, versions, interval_s = sys.argv[1:]
    context = load_context(name, "learner", 0)
    side = PolicySide(context, StopRequest().listen())
    sys.exit(side.run(int(versions), float(interval_s)))


if __name__ == "__main__":
    main()
