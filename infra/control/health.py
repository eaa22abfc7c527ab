"""What was heard of a role process, and when -> does it work? Pure.

A process is silent when it is frozen, gone, or cannot reach the brokers; it is stuck
when it lives and does nothing, although there is something to do. Times are seconds of
a clock that stands still while the brokers do not answer: then nobody can be heard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from schemas.experiment import Spec
from schemas.records import MetricsPoint

# Until it has told something: to import torch and to read a large buffer back takes
# long on a busy machine.
START_S = 120.0
# Each main loop tells something every second.
LATE_S = 5.0
# What watches over environments in their own process acts first.
_LATER_S = 10.0

PROGRESS = {
    "worker": ("env_steps", "invalid_steps", "vector_steps", "env_restarts"),
    "processor": ("batches", "env_steps", "dead_letters"),
    "learner": ("env_steps", "batches", "updates", "samples", "duplicate_steps"),
    "evaluator": ("episodes", "vector_steps"),
}
"""The counters of which one moves when a role does its work."""

State = Literal["ok", "dead", "stuck"]


@dataclass(frozen=True, slots=True)
class Condition:
    """How a role process is; ``reason`` in words, unless it is ok."""

    state: State
    reason: str = ""


OK = Condition("ok")


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a process may be silent, and without progress."""

    dead_after_s: float
    stuck_after_s: float


@dataclass(frozen=True, slots=True)
class Vital:
    """What is known of one process.

    Attributes:
        started_s: when it was started.
        heard_s: when it was heard last, if only that it lives; None: never.
        told_s: when it last told its counters; None: it has not begun to work.
        idle_s: when it last moved or had nothing to do.
        work: what there is to do for it; empty: nothing.
    """

    started_s: float
    heard_s: float | None = None
    told_s: float | None = None
    idle_s: float = 0.0
    work: str = ""


def judge(vital: Vital, limits: Limits, now_s: float) -> Condition:
    """Return how a process is; the first rule that holds.

    1. It has told nothing yet: it starts, and may be silent for START_S.
    2. Silent for longer than it may be: dead.
    3. It lives, there is work, and nothing has moved for longer than may be: stuck.
    """
    silent_s = now_s - (vital.started_s if vital.heard_s is None else vital.heard_s)
    if vital.told_s is None:
        if silent_s <= max(START_S, limits.dead_after_s):
            return OK
        return Condition("dead", f"nothing heard for {silent_s:.0f} s since its start")
    if silent_s > limits.dead_after_s:
        return Condition("dead", f"nothing heard for {silent_s:.0f} s")
    still_s = now_s - vital.idle_s
    if vital.work and still_s > limits.stuck_after_s:
        return Condition(
            "stuck", f"nothing done for {still_s:.0f} s, although {vital.work}"
        )
    return OK


def limits_of(spec: Spec, role: str) -> Limits:
    """Return the limits of a role: a step may take long, or be made seldom."""
    stuck_s = spec.health.stuck_after_s
    if role in ("worker", "evaluator"):
        stuck_s = max(stuck_s, spec.env.step_timeout_s + _LATER_S)
    rate = spec.workers.max_env_steps_per_s
    if role == "worker" and rate > 0:
        rows = spec.workers.envs_per_worker * spec.workers.unroll_length
        stuck_s = max(stuck_s, 2 * rows / rate + _LATER_S)
    return Limits(spec.health.dead_after_s, stuck_s)


class History:
    """Follows one process by what it tells.

    Attributes:
        role: of the process.
        vital: what is known of it.
        hangs: it lives, and its main loop tells nothing.
    """

    def __init__(self, role: str, started_s: float) -> None:
        self.role = role
        self.hangs = False
        self._newest: MetricsPoint | None = None
        self._before: MetricsPoint | None = None
        self.vital = Vital(started_s, idle_s=started_s)

    @property
    def newest(self) -> MetricsPoint | None:
        """What it told last."""
        return self._newest

    def hear(self, point: MetricsPoint, now_s: float) -> None:
        """Take in a report, or a beat, which has no values."""
        told_s, idle_s = self.vital.told_s, self.vital.idle_s
        if point.values or point.positions:
            if self._newest is None or self._place(point) != self._place(self._newest):
                idle_s = now_s
            self._before, self._newest, told_s = self._newest, point, now_s
        self.vital = Vital(self.vital.started_s, now_s, told_s, idle_s, self.vital.work)

    def look(self, spec: Spec, lag: int | None, now_s: float) -> Vital:
        """Return what is known now.

        Args:
            spec: in force.
            lag: records that wait for it; None: not known, which counts as none.
            now_s: of the same clock as always.
        """
        vital = self.vital
        work = self._work(spec, lag, now_s)
        idle_s = vital.idle_s if work else now_s
        self.vital = Vital(vital.started_s, vital.heard_s, vital.told_s, idle_s, work)
        return self.vital

    def _work(self, spec: Spec, lag: int | None, now_s: float) -> str:
        newest, told_s = self._newest, self.vital.told_s
        if newest is None or told_s is None:
            return ""
        self.hangs = now_s - told_s > LATE_S
        if self.hangs:
            return f"it lives: its main loop hangs, for {now_s - told_s:.0f} s"
        if spec.state != "running":
            return ""
        return _work_of(self.role, newest.values, self._waited_credit(), lag or 0)

    def _waited_credit(self) -> bool:
        if self._newest is None or self._before is None:
            return True
        name = "waited_credit_s"
        now, before = (p.values.get(name, 0.0) for p in (self._newest, self._before))
        return now != before

    def _place(self, point: MetricsPoint) -> tuple[object, ...]:
        counters = [point.values.get(name) for name in PROGRESS[self.role]]
        places = [(each.partition, each.position) for each in point.positions]
        return (point.incarnation, *counters, *places)


def _work_of(
    role: str, values: Mapping[str, float], waited_credit: bool, lag: int
) -> str:
    if role == "worker":
        return "" if waited_credit else "it may step its environments"
    if role == "evaluator":
        return "it evaluates a policy" if values.get("evaluating") else ""
    if lag > 0:
        return f"{lag} records wait for it"
    if role == "learner" and values.get("can_learn"):
        return "it may learn from what it has"
    return ""
