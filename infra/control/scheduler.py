"""A spec -> the role processes it wants; pure."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.experiment import Spec

# Experience stops first, and the learner, which checkpoints what came of it, last.
STOP_ORDER = (
    "worker", "replayer", "evaluator", "archiver", "processor", "learner",
)  # fmt: skip

MODULES = {
    "worker": "producers.worker",
    "evaluator": "producers.evaluator",
    "processor": "stream_processors.app",
    "learner": "learner.train",
    "replayer": "archive.replayer",
    "archiver": "archive.archiver",
}

# Started often, and with nothing that does not bear a fork; the others have threads as
# soon as they are imported.
FORKED = (MODULES["worker"], MODULES["evaluator"])


@dataclass(frozen=True, slots=True, order=True)
class Assignment:
    """A role process that has to run."""

    role: str
    index: int

    @property
    def key(self) -> str:
        """``role/index``, as in topics and statuses."""
        return f"{self.role}/{self.index}"


def wanted_roles(
    spec: Spec, workers: int | None = None, processors: int | None = None
) -> list[Assignment]:
    """Return the processes of an experiment, slowest to start first; [] if stopped.

    Args:
        spec: what is wanted.
        workers: how many of them, where that follows the load.
        processors: likewise.
    """
    if spec.state == "stopped":
        return []
    replicas = {
        "learner": spec.learner.replicas,
        "processor": spec.processor.replicas if processors is None else processors,
        "evaluator": spec.evaluator.replicas,
        "archiver": int(spec.archive),
        "replayer": int(spec.past.is_set),
        "worker": spec.workers.replicas if workers is None else workers,
    }
    return [
        Assignment(role, index)
        for role, count in replicas.items()
        for index in range(count)
    ]
