"""Records of the metrics topic -> how good policy versions are; pure."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from infra.kafka.reading import Message
from infra.monitoring.metric_records import mean_of, metric_or_none, returns_of
from schemas.records import Evaluation, MetricsPoint, PolicyRef


@dataclass(frozen=True)
class Judged:
    """What the episodes of a version came to.

    Attributes:
        episodes: how many; of both rounds, where a second confirmed the first.
        mean: of their returns.
        least: the lowest return.
        most: the highest one.
        confirmed: there was a second round.
    """

    episodes: int
    mean: float
    least: float
    most: float
    confirmed: bool


class Evaluations:
    """The evaluations of one run, and how many steps its learner had seen when."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._returns: dict[PolicyRef, dict[bool, npt.NDArray[np.float64]]] = {}
        self._env_steps: dict[int, int] = {}
        self._updates: list[int] = []

    def forget(self) -> None:
        """Forget all: the topic was made anew."""
        self._returns.clear()
        self._env_steps.clear()
        self._updates.clear()

    def take(self, message: Message) -> None:
        """Note a record of the metrics, if it says anything of policies."""
        role = message.key.partition("/")[0]
        if role == "evaluator":
            self._take_evaluation(metric_or_none(message.value, Evaluation))
        elif role == "learner":
            self._take_point(metric_or_none(message.value, MetricsPoint))

    def of(self, ref: PolicyRef) -> Judged | None:
        """Return how good a version is; None: nobody has judged it."""
        rounds = self._returns.get(ref)
        if rounds is None:
            return None
        # An evaluator that was started again has the same episodes once more: of each
        # round there is one.
        returns = np.concatenate([*rounds.values()])
        return Judged(
            episodes=len(returns),
            mean=mean_of(returns),
            least=float(returns.min()),
            most=float(returns.max()),
            confirmed=True in rounds,
        )

    def env_steps(self, train_step: int) -> int | None:
        """Return the steps that were learnt from by then, between what was told."""
        at = bisect_right(self._updates, train_step)
        if not at:
            return None
        around = self._updates[at - 1 : at + 1]
        steps = [self._env_steps[updates] for updates in around]
        return round(float(np.interp(train_step, around, steps)))

    def _take_evaluation(self, record: Any) -> None:
        if record is not None and record.run_id == self._run_id:
            rounds = self._returns.setdefault(record.policy, {})
            rounds[record.confirmation] = returns_of(record)

    def _take_point(self, record: Any) -> None:
        if record is None or record.run_id != self._run_id:
            return
        if record.role != "learner":
            return  # of another role's figures nobody knows that they are counts
        values = record.values
        if "updates" not in values or "env_steps" not in values:
            return
        updates = int(values["updates"])
        if self._updates and updates < self._updates[-1]:
            # A learner that went on from a checkpoint: what came after that is undone.
            del self._updates[bisect_right(self._updates, updates) :]
        if not self._updates or updates > self._updates[-1]:
            self._updates.append(updates)
        self._env_steps[updates] = int(values["env_steps"])
