"""What was heard of a role process, and when -> does it work? Pure.

A process is silent when it is frozen, gone, or cannot reach the brokers; it is stuck
when it lives and does nothing, although there is something to do. Times are seconds of
a clock that stands still while the brokers do not answer: then nobody can be heard.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
    "replayer": ("records", "env_steps", "blank_steps"),
    "archiver": ("records", "env_steps"),
}
"""The counters of which one moves when a role does its work."""

FRUIT = {"worker": "usable_steps", "evaluator": "usable_steps"}
"""The counter that moves when something comes of a role's work."""

State = Literal["ok", "dead", "stuck"]


@dataclass(frozen=True, slots=True)
class Condition:
    """How a role process is; ``reason`` in words, unless it is ok."""

    state: State
    reason: str = ""


OK = Condition("ok")


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a process may be silent, without progress, and work in vain."""

    dead_after_s: float
    stuck_after_s: float
    barren_after_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Vital:
    """What is known of one process.

    Attributes:
        started_s: when it was started.
        heard_s: when it was heard last, if only that it lives; None: never.
        told_s: when it last told its counters; None: it has not begun to work.
        idle_s: when it last moved or had nothing to do.
        work: what there is to do for it; empty: nothing.
        fruit_s: when something last came of its work, or there was none; None: that is
            not known of its role.
    """

    started_s: float
    heard_s: float | None = None
    told_s: float | None = None
    idle_s: float = 0.0
    work: str = ""
    fruit_s: float | None = None


def judge(vital: Vital, limits: Limits, now_s: float) -> Condition:
    """Return how a process is; the first rule that holds.

    1. It has told nothing yet: it starts, and may be silent for START_S.
    2. Silent for longer than it may be: dead.
    3. It lives, there is work, and nothing has moved for longer than may be: stuck.
    4. It works, and nothing has come of it for longer than may be: stuck.
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
    barren_s = 0.0 if vital.fruit_s is None else now_s - vital.fruit_s
    if vital.work and barren_s > limits.barren_after_s:
        reason = (
            f"no step of {barren_s:.0f} s can be learnt from, although {vital.work}"
        )
        return Condition("stuck", reason)
    return OK


def limits_of(spec: Spec, role: str) -> Limits:
    """Return the limits of a role: a step may take long, or be made seldom."""
    stuck_s, barren_s = spec.health.stuck_after_s, math.inf
    if role in FRUIT:
        stuck_s = max(stuck_s, spec.env.step_timeout_s + _LATER_S)
        # An environment is made, reset and stepped before there is anything to learn.
        barren_s = 3 * spec.env.step_timeout_s + _LATER_S
    rate = spec.workers.max_env_steps_per_s
    if role == "worker" and rate > 0:
        rows = spec.workers.envs_per_worker * spec.workers.unroll_length
        stuck_s = max(stuck_s, 2 * rows / rate + _LATER_S)
    return Limits(spec.health.dead_after_s, stuck_s, max(stuck_s, barren_s))


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
        fruit_s = self.vital.fruit_s
        if point.values or point.positions:
            if self._newest is None or self._place(point) != self._place(self._newest):
                idle_s = now_s
            if self._has_borne_fruit(point):
                fruit_s = now_s
            self._before, self._newest, told_s = self._newest, point, now_s
        self.vital = replace(
            self.vital, heard_s=now_s, told_s=told_s, idle_s=idle_s, fruit_s=fruit_s
        )

    def look(self, spec: Spec, lag: int | None, now_s: float) -> Vital:
        """Return what is known now.

        Args:
            spec: in force.
            lag: records that wait for it; None: not known, which counts as none.
            now_s: of the same clock as always.
        """
        vital = self.vital
        work = self._work(spec, lag, now_s)
        if not work:
            fruit_s = None if vital.fruit_s is None else now_s
            vital = replace(vital, idle_s=now_s, fruit_s=fruit_s)
        self.vital = replace(vital, work=work)
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
        now, before = (
            [p.values.get(name, 0.0) for name in ("waited_credit_s", "waited_policy_s")]
            for p in (self._newest, self._before)
        )
        return now != before

    def _has_borne_fruit(self, point: MetricsPoint) -> bool:
        counter = FRUIT.get(self.role, "")
        if counter not in point.values:
            return False
        before = self._newest
        return before is None or (
            (before.incarnation, before.values.get(counter))
            != (point.incarnation, point.values[counter])
        )

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
    if role == "replayer":
        return "it may replay" if values.get("replaying") else ""
    if lag > 0:
        return f"{lag} records wait for it"
    if role == "learner" and values.get("can_learn"):
        return "it may learn from what it has"
    return ""
