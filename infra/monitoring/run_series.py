"""Experiments as they are seen -> series ``rollstream_*``; pure.

Series of experiments that are over, or deleted, vanish.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from infra.monitoring.metric_series import Families, Series
from infra.monitoring.run_fold import ENDED
from infra.monitoring.snapshot import Experience, ExperimentView, ProcessView
from infra.monitoring.value_kinds import COUNTERS, IN_CHECKPOINT

UP_S = 10.0
"""A process that was silent for longer does not live: each says something in 2 s."""

MAX_WORKERS = 256
"""Of each experiment, so many processes of a role have series of their own."""

STATES = (
    "pending", "unknown", "running", "paused", "degraded", "finished", "stopped",
    "failed",
)  # fmt: skip

_ONE = ("experiment",)
_STAT = ("experiment", "stat")
_PROCESS = ("experiment", "role", "index")
_WORKER = ("experiment", "worker")


def _one(name: str, text: str) -> Series:
    return Series(f"rollstream_{name}", text, _ONE)


INFO = Series(
    "rollstream_experiment_info",
    "1: the run that goes on",
    ("experiment", "run_id", "managed_by"),
)
STATE = Series(
    "rollstream_experiment_state", "1: what it is doing", ("experiment", "state")
)
ENV_STEPS = _one("env_steps_total", "Valid steps that the learner has taken in")
ENV_STEPS_S = _one("env_steps_per_second", "The same a second")
UPDATES = _one("updates_total", "Gradient steps")
UPDATES_S = _one("updates_per_second", "The same a second")
EPISODES = _one("episodes_total", "Episodes that ended since they are counted here")
POLICY = _one("policy_version", "The newest policy that was published")
RETURN = Series(
    "rollstream_return",
    "Mean return: of the newest evaluation (greedy), or of episodes (exploring)",
    ("experiment", "kind"),
)
LOSS = _one("loss", "Mean loss of the last updates")
DEAD_LETTERS = _one("dead_letters_total", "Records that could not be used")
LOST = _one("lost_steps", "Steps that did not come; some may still")
DUPLICATES = _one("duplicate_steps_total", "Steps that came again and were left out")
LAG_VERSIONS = Series(
    "rollstream_policy_lag_versions",
    "By how many versions the policy that acted was behind, of rows learnt from",
    _STAT,
)
LAG_S = Series(
    "rollstream_policy_lag_seconds", "Between acting and learning, of those", _STAT
)
DATA_AGE = Series(
    "rollstream_data_age_seconds", "Age of the rows in a gradient step", _STAT
)
PER_INSERT = _one("samples_per_insert", "Rows sampled for each that was inserted")
WAIT = _one("learner_wait_ratio", "Share of time in which the learner had no work")
ADOPTION = Series(
    "rollstream_policy_adoption_seconds",
    "From a policy's publication until a worker acted with it",
    _WORKER,
)
SILENT = Series(
    "rollstream_worker_silent_seconds", "Since a worker was heard of last", _WORKER
)
UP = Series("rollstream_process_up", "1: it was heard of lately", _PROCESS)
HEARD = Series(
    "rollstream_process_last_heard_timestamp_seconds",
    "When it was heard of last, by the brokers' clock",
    _PROCESS,
)
ALERTS = _one("alerts", "Alerts that are on")
ALERT = Series("rollstream_alert", "1: it is on", ("experiment", "alert", "role"))

PROCESS_COUNTERS: Mapping[str, Series] = {
    name: Series(
        f"rollstream_process_{name[:-2] + '_seconds' if name[-2:] == '_s' else name}"
        "_total",
        f"{name.removesuffix('_s').replace('_', ' ')}, as a process counts them",
        _PROCESS,
    )
    for name in sorted({name for names in COUNTERS.values() for name in names})
}

SERIES = (
    *(each for each in globals().values() if isinstance(each, Series)),
    *PROCESS_COUNTERS.values(),
)
"""All of these."""


class HighWater:
    """Keeps counters that a checkpoint has from going back while a run goes on.

    A learner that goes on from a checkpoint counts from there. To Prometheus a counter
    that goes back has begun anew at 0, and all that it says has come since. Of those
    that do begin anew at 0 that is right: they are none of these.
    """

    def __init__(self) -> None:
        self._highest: dict[tuple[str, str], dict[str, float]] = {}

    def keep(self, runs: Iterable[tuple[str, str]]) -> None:
        """Forget all runs but these."""
        kept = set(runs)
        self._highest = {k: v for k, v in self._highest.items() if k in kept}

    def of(self, view: ExperimentView, name: str, value: float) -> float:
        """Return the highest that a counter of a run has ever been."""
        mine = self._highest.setdefault((view.experiment, view.run_id), {})
        mine[name] = max(value, mine.get(name, 0.0))
        return mine[name]


def add_runs(
    families: Families,
    experiments: Iterable[ExperimentView],
    now_s: float,
    high: HighWater,
) -> None:
    """Add what is known of experiments that go on."""
    shown = [view for view in experiments if view.state not in ENDED]
    high.keep((view.experiment, view.run_id) for view in shown)
    for view in shown:
        _add_run(families, view, high)
        _add_experience(families, view.experiment, view.experience)
        for process in _bounded(view.processes):
            _add_process(families, view, process, now_s, high)


def _add_run(families: Families, view: ExperimentView, high: HighWater) -> None:
    name = view.experiment
    families.add(INFO, (name, view.run_id, view.managed_by), 1.0)
    for state in STATES:
        families.add(STATE, (name, state), float(view.state == state))
    for series, count in (
        (ENV_STEPS, view.env_steps),
        (UPDATES, view.updates),
        (DEAD_LETTERS, view.dead_letters),
        (DUPLICATES, view.experience.duplicate_steps),
    ):
        families.add(series, (name,), high.of(view, series.name, count))
    for series, value in (
        (EPISODES, view.episodes),
        (ENV_STEPS_S, view.env_steps_per_s),
        (UPDATES_S, view.updates_per_s),
        (POLICY, view.policy_version),
        (LOSS, view.loss),
        (LOST, view.experience.lost_steps),
        (ALERTS, len(view.alerts)),
    ):
        families.add(series, (name,), value)
    kind = "greedy" if view.is_greedy else "exploring"
    families.add(RETURN, (name, kind), view.mean_return)
    for told in view.alerts:
        alert = told.reason.partition(":")[0]
        families.add(ALERT, (name, alert, told.role), 1.0)


def _add_experience(families: Families, name: str, found: Experience) -> None:
    for series, stats in (
        (LAG_VERSIONS, found.policy_lag_versions),
        (LAG_S, found.policy_lag_s),
        (DATA_AGE, found.data_age_s),
    ):
        for stat, value in stats.items():
            families.add(series, (name, stat), value)
    families.add(PER_INSERT, (name,), found.samples_per_insert)
    families.add(WAIT, (name,), found.wait_ratio)
    for series, workers in ((ADOPTION, found.adoption_s), (SILENT, found.silent_s)):
        for worker, value in list(workers.items())[:MAX_WORKERS]:
            families.add(series, (name, worker), value)


def _bounded(processes: Iterable[ProcessView]) -> list[ProcessView]:
    counts: dict[str, int] = {}
    found = []
    for each in processes:
        counts[each.role] = counts.get(each.role, 0) + 1
        if counts[each.role] <= MAX_WORKERS:
            found.append(each)
    return found


def _add_process(
    families: Families,
    view: ExperimentView,
    process: ProcessView,
    now_s: float,
    high: HighWater,
) -> None:
    who = view.experiment, process.role, process.index
    is_up = now_s - process.heard_at_s <= UP_S
    families.add(UP, who, float(is_up))
    families.add(HEARD, who, process.heard_at_s)
    for name in COUNTERS.get(process.role, ()):
        value = process.values.get(name)
        is_kept = process.role == "learner" and name in IN_CHECKPOINT
        if value is not None and is_kept:
            value = high.of(view, f"learner/{name}", value)
        families.add(PROCESS_COUNTERS[name], who, value)
