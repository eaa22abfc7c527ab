"""What one run's metrics and events say, record by record -> how it is now; pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from infra.control.desired import PublishedExperiment, one_line
from infra.control.statuses import summary_of
from infra.control.wants import least_roles
from infra.kafka.reading import Message
from infra.monitoring.alerts_on import AlertsOn
from infra.monitoring.counter_rates import CounterRates
from infra.monitoring.experience import GONE_S, experience_of
from infra.monitoring.lag.clock_gap import ClockGap
from infra.monitoring.lag.model import Place, Standing
from infra.monitoring.lag.own_groups import READS
from infra.monitoring.metric_tails import Figures
from infra.monitoring.nothing_said import NOTHING_SAID, state_unsaid
from infra.monitoring.progress import Progress
from infra.monitoring.run_metrics import RunMetrics, Who
from infra.monitoring.snapshot import ExperimentView, ProcessView
from infra.monitoring.value_kinds import COUNTERS
from schemas.codec import decode_or_none
from schemas.records import Event, RoleStatus
from schemas.topics import group_name

ENDED = ("finished", "stopped", "failed")
"""States of a run that nobody goes on with, unless it is asked for."""

_LEARNER = ("learner", 0)


class RunFold:
    """One run of an experiment; of what others write of it, only so much is kept."""

    def __init__(
        self, experiment: str, run_id: str, clock: ClockGap | None = None
    ) -> None:
        """Begin with nothing heard; ``clock``: of the brokers, shared by many."""
        self.experiment = experiment
        self.run_id = run_id
        # Only the newest of what makes a curve: there may be hundreds of runs.
        self.progress = Progress(
            run_id,
            step_times=deque(maxlen=1),
            learnt_steps=deque(maxlen=1),
            evaluations=deque(maxlen=4),
            training_curve=deque(maxlen=1),
        )
        self._metrics = RunMetrics(experiment, self.progress, clock=clock)
        self._rates: dict[Who, CounterRates] = {}
        self._alerts = AlertsOn(run_id)

    def hear(self, message: Message) -> None:
        """Take in a record of its metrics; what is none, or of another run, is not."""
        point = self._metrics.hear(message)
        if point is not None and point.values:
            rates = self._rates.setdefault((point.role, point.index), CounterRates())
            names = COUNTERS[point.role] & point.values.keys()
            counters = {name: point.values[name] for name in names}
            rates.add(point.incarnation, message.timestamp_ms / 1000, counters)

    def tell(self, message: Message) -> None:
        """Take in a record of its events."""
        event = decode_or_none(message.value, Event)
        if event is not None and event.experiment == self.experiment:
            self._alerts.add(event, message.timestamp_ms)

    @property
    def groups(self) -> frozenset[str]:
        """The consumer groups of its roles."""
        return frozenset(group_name(self.experiment, role) for role in READS)

    @property
    def standings(self) -> Mapping[Place, Standing]:
        """Where its roles say that they stand in the topics that they read."""
        return self._metrics.standings.by_place

    @property
    def rows_per_record(self) -> dict[str, float]:
        """Steps of environments in a record, by the group that reads it."""
        return self._metrics.standings.rows_per_record

    def view(
        self, published: PublishedExperiment, status: RoleStatus | None, now_s: float
    ) -> ExperimentView:
        """Return how it is, with the newest status of the whole experiment."""
        told = status if status and status.run_id == self.run_id else None
        state = told.state if told else state_unsaid(published.managed_by)
        is_over = state in ENDED
        wanted = {(a.role, a.index) for a in least_roles(published.experiment.spec)}
        rates = {} if is_over else self._rates_of(_LEARNER, now_s)
        summary = summary_of(told) if told else None
        found = self._figures().after(Figures.of(summary))
        return ExperimentView(
            experiment=self.experiment,
            run_id=self.run_id,
            state=one_line(state),
            reason=one_line(told.reason if told else NOTHING_SAID),
            managed_by=published.managed_by,
            env_steps=found.env_steps or 0,
            env_steps_per_s=rates.get("env_steps"),
            updates=found.updates or 0,
            updates_per_s=rates.get("updates"),
            policy_version=self._learner(
                "policy_version", summary.policy_version if summary else -1
            ),
            episodes=self.progress.episodes,
            mean_return=found.mean_return,
            is_greedy=found.is_greedy,
            loss=self._loss(),
            dead_letters=self._dead_letters(),
            experience=experience_of(
                self.progress, {} if is_over else self._heard_at_s(), now_s, wanted
            ),
            processes=() if is_over else self._processes(wanted, now_s),
            alerts=self._alerts.on(now_s),
        )

    def _processes(self, wanted: set[Who], now_s: float) -> tuple[ProcessView, ...]:
        heard_at_s = self._heard_at_s()
        return tuple(
            ProcessView(
                role=role,
                index=index,
                incarnation=point.incarnation,
                values=point.values,
                rates=self._rates_of((role, index), now_s),
                heard_at_s=heard_at_s[role, index],
            )
            for (role, index), point in sorted(self.progress.points.items())
            if (role, index) in wanted or now_s - heard_at_s[role, index] <= GONE_S
        )

    def _heard_at_s(self) -> dict[Who, float]:
        return {who: at_ms / 1000 for who, at_ms in self._metrics.heard_at_ms.items()}

    def _rates_of(self, who: Who, now_s: float) -> dict[str, float]:
        rates = self._rates.get(who)
        return rates.at(now_s) if rates else {}

    def _learner(self, value: str, absent: int = 0) -> int:
        point = self.progress.points.get(_LEARNER)
        return int(point.values.get(value, absent)) if point else absent

    def _loss(self) -> float | None:
        point = self.progress.points.get(_LEARNER)
        return point.values.get("loss") if point else None

    def _figures(self) -> Figures:
        newest = self.progress.last_evaluation
        return Figures(
            self._learner("env_steps"),
            self._learner("updates"),
            newest[0].mean_return if newest else self.progress.mean_return,
            newest is not None,
        )

    def _dead_letters(self) -> int:
        roles = ("worker", "processor")
        told = sum(self.progress.total(role, "dead_letters") for role in roles)
        return told + self._learner("dead_letters")
