"""An experiment's metrics records -> how far it is; pure.

Counters start anew with each incarnation: totals add up the last value of each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from infra.monitoring.lag_history import ROLE as MONITOR
from infra.monitoring.metric_records import mean_of
from schemas.experiment import StopSpec
from schemas.records import (
    EpisodesFinished,
    Evaluation,
    MetricsPoint,
    PolicyRef,
    Position,
)

RECENT_EPISODES = 100
CURVE_POINTS = 20_000
# Of hours; a version that passes is confirmed within minutes.
EVALUATIONS = 2_000
# Of one process, as it is started again and again. What an older one says late is
# not heard.
INCARNATIONS = 8


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A mean return, and when it was."""

    at_ms: int
    mean_return: float


@dataclass(frozen=True, slots=True)
class Finish:
    """Why an experiment is over.

    Attributes:
        reason: in words.
        reached: the target return was reached, or there was none to reach.
        evaluation: what showed it.
    """

    reason: str
    reached: bool
    evaluation: Evaluation | None = None


@dataclass
class Progress:
    """What the metrics of one run have said so far."""

    run_id: str
    points: dict[tuple[str, int], MetricsPoint] = field(default_factory=dict)
    _counters: dict[tuple[str, int], dict[int, dict[str, float]]] = field(
        default_factory=dict
    )
    # Sums of the incarnations before those, by role; and the last of them.
    _past: dict[str, dict[str, float]] = field(default_factory=dict)
    _forgotten: dict[tuple[str, int], int] = field(default_factory=dict)
    recent_returns: deque[float] = field(
        default_factory=lambda: deque(maxlen=RECENT_EPISODES)
    )
    episodes: int = 0
    step_times: deque[tuple[int, int]] = field(
        default_factory=lambda: deque(maxlen=CURVE_POINTS)
    )
    learnt_steps: deque[tuple[int, int]] = field(
        default_factory=lambda: deque(maxlen=CURVE_POINTS)
    )
    evaluations: deque[tuple[CurvePoint, Evaluation]] = field(
        default_factory=lambda: deque(maxlen=EVALUATIONS)
    )
    training_curve: deque[CurvePoint] = field(
        default_factory=lambda: deque(maxlen=CURVE_POINTS)
    )

    def add(self, record: MetricsPoint | EpisodesFinished | Evaluation) -> None:
        """Take in a record; those of another run, or of no process, are ignored."""
        if record.run_id != self.run_id:
            return
        if isinstance(record, MetricsPoint):
            is_beat = not record.values and not record.positions
            if is_beat or record.role == MONITOR:
                return  # it lives, and what it said before holds
            self.points[record.role, record.index] = record
            self._count(record)
            if record.role == "learner":
                self.step_times.append((record.produced_at_ms, self.env_steps))
                updates = int(record.values.get("updates", 0))
                self.learnt_steps.append((updates, self.env_steps))
        elif isinstance(record, EpisodesFinished):
            self._add_episodes(record)
        else:
            mean = mean_of(record.returns.array())
            self.evaluations.append((CurvePoint(record.produced_at_ms, mean), record))

    def total(self, role: str, counter: str) -> int:
        """Return a counter's sum over the processes and incarnations of a role."""
        total = self._past.get(role, {}).get(counter, 0.0)
        for (of_role, _), incarnations in self._counters.items():
            if of_role == role:
                total += sum(v.get(counter, 0.0) for v in incarnations.values())
        return int(total)

    def learner(self, value: str) -> float:
        """Return a value of the learner's newest report; its counters survive it."""
        point = self.points.get(("learner", 0))
        return point.values.get(value, 0.0) if point else 0.0

    @property
    def env_steps(self) -> int:
        """Valid env steps that the learner has taken in."""
        return int(self.learner("env_steps"))

    @property
    def mean_return(self) -> float | None:
        """The mean return of the last episodes of all workers, exploration included."""
        return mean_of(self.recent_returns) if self.recent_returns else None

    def env_steps_at(self, times_ms: Sequence[int]) -> list[float]:
        """Return how many steps the learner had had at each time, interpolated."""
        if not self.step_times:
            return [0.0] * len(times_ms)
        at_ms, steps = zip(*sorted(self.step_times), strict=True)
        found: list[float] = np.interp(times_ms, at_ms, steps).tolist()
        return found

    def env_steps_after(self, updates: Sequence[int]) -> list[float]:
        """Return how many steps the learner had had after updates, interpolated.

        A version was learnt from no more than that, whenever it is evaluated.
        """
        if not self.learnt_steps:
            return [0.0] * len(updates)
        # Of several reports of so many the last one: they were made after no more.
        known, steps = zip(*sorted(dict(self.learnt_steps).items()), strict=True)
        found: list[float] = np.interp(updates, known, steps).tolist()
        return found

    @property
    def last_evaluation(self) -> tuple[CurvePoint, Evaluation] | None:
        """The newest evaluation."""
        return self.evaluations[-1] if self.evaluations else None

    def positions(self, role: str) -> list[Position]:
        """Return where the processes of a role stand, by their newest reports."""
        newest: dict[tuple[str, int], tuple[int, Position]] = {}
        for (of_role, _), point in self.points.items():
            for position in point.positions if of_role == role else ():
                key = (position.topic, position.partition)
                seen = newest.get(key)
                # After a rebalance two processes may speak of a partition: newest wins.
                if seen is None or seen[0] <= point.produced_at_ms:
                    newest[key] = (point.produced_at_ms, position)
        return [position for _, position in newest.values()]

    def _count(self, record: MetricsPoint) -> None:
        key = (record.role, record.index)
        forgotten = self._forgotten.get(key)
        if forgotten is not None and record.incarnation <= forgotten:
            return  # it is in the sums already
        mine = self._counters.setdefault(key, {})
        mine[record.incarnation] = dict(record.values)
        if len(mine) > INCARNATIONS:
            oldest = min(mine)
            past = self._past.setdefault(record.role, {})
            for counter, value in mine.pop(oldest).items():
                past[counter] = past.get(counter, 0.0) + value
            self._forgotten[key] = oldest

    def _add_episodes(self, record: EpisodesFinished) -> None:
        returns = record.returns.array()
        self.episodes += len(returns)
        self.recent_returns.extend(returns[-RECENT_EPISODES:].tolist())
        if (mean := self.mean_return) is not None:
            self.training_curve.append(CurvePoint(record.produced_at_ms, mean))


def judge(stop: StopSpec, progress: Progress, wall_s: float) -> Finish | None:
    """Return why the experiment is over, or None while it is not."""
    target = stop.mean_return
    if target is not None and (passed := _confirmed(progress, target)) is not None:
        mean = mean_of(passed.returns.array())
        count = passed.returns.shape[0]
        return Finish(
            f"mean return {return_text(mean)} over {count} fresh episodes, confirmed "
            f"(target {target:g})",
            True,
            passed,
        )
    if stop.env_steps is not None and progress.env_steps >= stop.env_steps:
        return Finish(f"{progress.env_steps} env steps are done", target is None)
    if stop.wall_s is not None and wall_s >= stop.wall_s:
        return Finish(f"{wall_s:.0f} s have passed", target is None)
    return None


def _confirmed(progress: Progress, target: float) -> Evaluation | None:
    """A second round that passed, of a version whose first round passed."""
    passed: set[PolicyRef] = set()
    for point, evaluation in progress.evaluations:
        if point.mean_return < target:
            continue
        if evaluation.confirmation and evaluation.policy in passed:
            return evaluation
        if not evaluation.confirmation:
            passed.add(evaluation.policy)
    return None


def return_text(mean: float) -> str:
    """Return a mean return for people: more digits where they are small."""
    return f"{mean:.1f}" if abs(mean) >= 10 else f"{mean:.3f}"
