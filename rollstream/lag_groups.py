"""Which groups are looked at, and how."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property

from confluent_kafka import KafkaException

from infra.control.experiments import read_experiment
from infra.errors import RollstreamError, SettingsError
from infra.kafka.clients import make_admin
from infra.monitoring.at_rest import excused, why_at_rest
from infra.monitoring.control_topics import ControlTopics
from infra.monitoring.lag.collector import PATIENCE_S, Wanted, read_lag
from infra.monitoring.lag.groups import list_groups
from infra.monitoring.lag.model import GroupLag, LagReport, Place, Standing
from infra.monitoring.lag.monitor import LagMonitor
from infra.monitoring.lag.own_groups import READS, experiment_of
from infra.monitoring.lag.standings import StandingsFollower, read_told
from infra.settings import Settings
from schemas.topics import group_name

_PAST_S = 3.0


@dataclass(frozen=True)
class Choice:
    """Groups of a cluster.

    Attributes:
        experiment: only its groups; None: of all, and those of others.
        regex: only groups in whose id it is found.
    """

    settings: Settings
    experiment: str | None
    regex: str | None

    @property
    def is_narrow(self) -> bool:
        """Whether somebody expects something to be there."""
        return self.experiment is not None or self.regex is not None

    @property
    def nothing(self) -> str:
        """What is said where no group is found."""
        of_it = f" of {self.experiment}" if self.experiment else ""
        found = f" whose id has {self.regex!r}" if self.regex else ""
        return f"no group{of_it}{found}"

    @property
    def wanted(self) -> Wanted:
        """As the collector wants it."""
        if self.experiment is not None:
            names = (group_name(self.experiment, role) for role in READS)
            return [name for name in names if self._matches(name)]
        return self._matches

    def look(self) -> LagReport:
        """Look once.

        Raises:
            RollstreamError: the brokers do not answer.
        """
        standings, rows = read_told(self.settings, self._experiments())
        found = read_lag(
            self.settings,
            wanted=self.wanted,
            standings=standings,
            rows_per_record=rows,
        )
        return self.shown(found)

    @contextmanager
    def looking(self, every_s: float) -> Iterator[LagMonitor]:
        """Look again and again."""
        with closing(StandingsFollower(self.settings)) as follower:
            # Else the first looks would take what is only not saved for lag.
            follower.follow(self._experiments())
            deadline_s = time.monotonic() + _PAST_S
            while not follower.is_caught_up and time.monotonic() < deadline_s:
                follower.hear(0.1)

            def hear() -> Mapping[Place, Standing]:
                # Of those that were seen before: of a new one it tells a look later.
                seen = (each.group for each in monitor.report.groups)
                follower.follow(self._named or _experiments_of(seen))
                return follower.hear()

            monitor = LagMonitor(
                self.settings,
                wanted=self.wanted,
                every_s=every_s,
                standings=hear,
                rows_per_record=lambda: follower.rows_per_record,
            )
            with closing(monitor):
                monitor.start()
                yield monitor

    def shown(self, report: LagReport) -> LagReport:
        """Leave out the archiver that an experiment does not have.

        Groups that nobody has to read for any more are fine as they are.
        """
        control = self._followed()
        groups = (each for each in report.groups if not _is_absent(each))
        if control is not None:
            groups = (_at_rest(each, control) for each in groups)
        return replace(report, groups=tuple(groups))

    def close(self) -> None:
        """Leave the brokers."""
        with suppress(RollstreamError):
            self._control.close()

    @cached_property
    def _control(self) -> ControlTopics:
        return ControlTopics(self.settings)

    def _followed(self) -> ControlTopics | None:
        """Return what is wanted of experiments; None where nobody can tell."""
        try:
            self._control.poll()
        except SettingsError:
            return None
        except (RollstreamError, KafkaException, TimeoutError):
            pass  # what it knew holds on
        return self._control

    @property
    def _named(self) -> set[str]:
        return set() if self.experiment is None else {self.experiment}

    def _experiments(self) -> set[str]:
        if self._named:
            return self._named
        listed = list_groups(make_admin(self.settings), PATIENCE_S)
        return _experiments_of(filter(self._matches, listed))

    def _matches(self, group: str) -> bool:
        return re.search(self.regex or "", group) is not None


def choose(settings: Settings, experiment: str | None, regex: str | None) -> Choice:
    """Return the groups of an experiment, or of all, or those that match.

    Raises:
        UnknownExperiment: there is none of that name.
        RollstreamError: the brokers do not answer.
    """
    if experiment is not None:
        read_experiment(settings, experiment)
    return Choice(settings, experiment, regex)


def _experiments_of(groups: Iterable[str]) -> set[str]:
    return {name for name in map(experiment_of, groups) if name is not None}


def _is_absent(group: GroupLag) -> bool:
    name = group.group
    is_ours = experiment_of(name) is not None and name.endswith(".archiver")
    is_known = group.members or any(p.committed is not None for p in group.partitions)
    return is_ours and not is_known


def _at_rest(group: GroupLag, control: ControlTopics) -> GroupLag:
    name = experiment_of(group.group)
    published = control.experiments.get(name) if name else None
    if name is None or published is None:
        return group
    return excused(group, why_at_rest(group.group, published, control.status(name)))
