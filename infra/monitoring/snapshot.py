"""All that is watched, at one moment: what exporter, dashboard and alerts show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.monitoring.lag.model import NO_REPORT, LagReport
from infra.monitoring.role_views import Told


@dataclass(frozen=True, slots=True)
class ProcessView:
    """A role's process, by what it told last.

    Attributes:
        values: its counters and gauges.
        rates: of its counters, a second, over the last samples.
        heard_at_s: when anything was heard of it, by the broker's clock.
    """

    role: str
    index: int
    incarnation: int
    values: Mapping[str, float]
    rates: Mapping[str, float]
    heard_at_s: float


@dataclass(frozen=True, slots=True)
class Experience:
    """Is the learner still learning from fresh experience? None: not known.

    Attributes:
        policy_lag_versions: of the rows that were learnt from since the last report,
            by how many versions the policy that acted was behind: mean, p95, max.
        policy_lag_s: the same in seconds between acting and learning.
        data_age_s: of the rows in a gradient step, since they were acted: p50, p95.
        samples_per_insert: rows sampled for each that was inserted.
        wait_ratio: the share of time in which the learner had nothing to do.
        lost_steps: steps that never came.
        duplicate_steps: steps that came again, and were left out.
        adoption_s: by worker, from a policy's publication until it acted.
        silent_s: by worker, since it was heard of last.
    """

    policy_lag_versions: Mapping[str, float] = field(default_factory=dict)
    policy_lag_s: Mapping[str, float] = field(default_factory=dict)
    data_age_s: Mapping[str, float] = field(default_factory=dict)
    samples_per_insert: float | None = None
    wait_ratio: float | None = None
    lost_steps: int = 0
    duplicate_steps: int = 0
    adoption_s: Mapping[str, float] = field(default_factory=dict)
    silent_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExperimentView:
    """An experiment's newest run.

    Attributes:
        state: what was published of it, as `rollstream status` shows it.
        mean_return: of the newest evaluation when ``is_greedy``, else of episodes.
        processes: each that was heard of in this run, by role and index.
        alerts: that are on, newest first.
    """

    experiment: str
    run_id: str
    state: str
    reason: str
    managed_by: str
    env_steps: int
    env_steps_per_s: float | None
    updates: int
    updates_per_s: float | None
    policy_version: int
    episodes: int
    mean_return: float | None
    is_greedy: bool
    loss: float | None
    dead_letters: int
    experience: Experience
    processes: tuple[ProcessView, ...]
    alerts: tuple[Told, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at everything.

    Attributes:
        at_s: when, seconds since the epoch; 0 before the first look.
        problem: why something is old or missing; "" when nothing is.
        experiments_at_s: when the experiments were seen so; brokers that are away
            leave them as they were.
    """

    at_s: float = 0.0
    lag: LagReport = NO_REPORT
    experiments: tuple[ExperimentView, ...] = ()
    problem: str = ""
    experiments_at_s: float = 0.0
