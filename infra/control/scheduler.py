"""A spec -> the role processes it wants; pure."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.experiment import Spec

# Experience stops first, and the learner, which checkpoints what came of it, last.
STOP_ORDER = ("worker", "evaluator", "processor", "learner")

MODULES = {
    "worker": "producers.worker",
    "evaluator": "producers.evaluator",
    "processor": "stream_processors.app",
    "learner": "learner.train",
}


@dataclass(frozen=True, slots=True, order=True)
class Assignment:
    """A role process that has to run."""

    role: str
    index: int

    @property
    def key(self) -> str:
        """``role/index``, as in topics and statuses."""
        return f"{self.role}/{self.index}"


def wanted_roles(spec: Spec) -> list[Assignment]:
    """Return the processes of an experiment, slowest to start first; [] if stopped."""
    if spec.state == "stopped":
        return []
    replicas = {
        "learner": spec.learner.replicas,
        "processor": spec.processor.replicas,
        "evaluator": spec.evaluator.replicas,
        "worker": spec.workers.replicas,
    }
    return [
        Assignment(role, index)
        for role, count in replicas.items()
        for index in range(count)
    ]
