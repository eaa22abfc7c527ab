"""What a leader does beside placing: tell, mend the topic, clean up."""

from __future__ import annotations

import logging
import time

from kazoo.exceptions import KazooException

from infra.control.chores import Chores
from infra.control.desired import Desired, Entry, PublishedExperiment
from infra.control.durable_acts import DurableActs
from infra.control.election import Cluster, Fenced, Leadership
from infra.control.endings import Endings
from infra.control.judging import Judge
from infra.control.members import ensure_experiment_topics
from infra.control.mending import Mender
from infra.control.notices import Notices
from infra.control.placement import Placement
from infra.control.plans import RoleAssignment
from infra.control.standings import Facts, Standing, standing
from infra.control.status_board import StatusBoard
from infra.control.statuses import WHOLE, WHOLE_ROLE
from infra.control.wants import Counts
from infra.monitoring.alerting import Alerting
from infra.settings import Settings
from schemas.records import RoleStatus
from schemas.topics import check_name

# How often the figures of a running experiment are published.
_FIGURES_S = 10.0
# A status that was sent is on its way for so long at the most.
_ON_ITS_WAY_S = 5.0
_log = logging.getLogger("rollstream.leader")


class Duties:
    """A term's; all that is remembered here can be lost with the term."""

    def __init__(
        self,
        settings: Settings,
        leadership: Leadership,
        notices: Notices,
        board: StatusBoard,
        judge: Judge,
        chores: Chores,
        alerting: Alerting | None = None,
    ) -> None:
        self._settings = settings
        self._alerting = alerting
        self._leadership = leadership
        self._notices = notices
        self._board = board
        self._chores = chores
        self._acts = DurableActs(settings, leadership)
        self._mender = Mender(self._acts, notices, chores)
        self._endings = Endings(self._acts, notices, board, judge, chores)
        self._sent: dict[str, tuple[Standing, str, float]] = {}
        self._told_problems: set[str] = set()

    def is_over(self, published: PublishedExperiment) -> bool:
        """Whether the run is finished, or is known to be about to."""
        return self._endings.is_over(published)

    def not_ready(self, published: PublishedExperiment) -> str:
        """Return why nothing of it can be started or moved yet; empty: it can."""
        if published.experiment.spec.state == "stopped":
            return ""
        key = ("topics", published.experiment.name, published.run_id)
        if not self._chores.see_to(
            key,
            self._acts.while_leading(
                lambda: ensure_experiment_topics(self._settings, published.experiment)
            ),
        ):
            return self._chores.problem(key) or "its topics are being made"
        # Who is over must not be started for a moment under each new leader.
        if not self._endings.is_read(published):
            return "its metrics are being read"
        return ""

    def scaled(
        self,
        published: PublishedExperiment,
        before: Counts,
        now: Counts,
        reason: str,
        has_room: bool = True,
    ) -> None:
        """Tell of another number of processes, or of one that there is no room for."""
        for role, old, new in (
            ("worker", before.workers, now.workers),
            ("processor", before.processors, now.processors),
        ):
            if old != new and self._leadership.is_sure:
                change = f"from {old} to {new}"
                self._notices.event(
                    published.experiment.name,
                    published.run_id,
                    role,
                    max(new - 1, 0),
                    "scaled",
                    f"{change if has_room else f'not {change}'}: {reason}",
                    "info" if has_room else "warning",
                )

    def moved(
        self, role: RoleAssignment, before: str, now: str, cluster: Cluster
    ) -> None:
        """Tell of a role that another agent runs from now on."""
        reason = f"from {before}, {_why_it_left(role, before, cluster)}, to {now}"
        _log.info("%s %s/%d moves %s", role.experiment, role.role, role.index, reason)
        if self._leadership.is_sure:
            self._notices.event(
                role.experiment,
                role.run_id,
                role.role,
                role.index,
                "moved",
                reason,
                "warning",
            )

    def attend(
        self,
        desired: Desired,
        cluster: Cluster,
        waits_for: dict[str, str],
        placement: Placement,
    ) -> None:
        """See to everything else that the topic of experiments asks for."""
        judged = set()
        for name, entry in sorted(desired.entries.items()):
            if not self._is_name(name):
                continue
            try:
                if self._attend_to(name, entry, desired, cluster, waits_for, placement):
                    judged.add(name)
            except (KazooException, Fenced):
                raise
            except Exception as exc:
                # Of one experiment: all others go on.
                self._warn_once(f"{name} cannot be attended to: {exc!r}")
        self._endings.keep(judged)
        if self._alerting is not None:
            self._alerting.keep(judged)

    def _attend_to(
        self,
        name: str,
        entry: Entry,
        desired: Desired,
        cluster: Cluster,
        waits_for: dict[str, str],
        placement: Placement,
    ) -> bool:
        """See to one experiment; return whether its run is judged."""
        self._mender.mend(name, entry, desired)
        if name in cluster.claims:
            return False
        if entry.deleted:
            self._sent.pop(name, None)
            self._endings.forget(name)
            if self._alerting is not None:
                self._alerting.forget(name)
            self._mender.clean(name, entry, desired)
            return False
        published = entry.accepted
        if published is not None and published.managed_by != "agents":
            return False
        if published is None and entry.refused is None:
            return False
        facts = self._facts(name, entry, waits_for, placement)
        is_judged = published is not None and self._endings.judges(
            published, facts.live
        )
        if published is not None and self._alerting is not None:
            is_stopped = published.experiment.spec.state == "stopped"
            # One that is not judged yet, under a new leader, is not over.
            if is_stopped or self._endings.is_over(published):
                # Its roles end, and nobody is to be told that they do nothing.
                self._alerting.over(published, "the experiment has ended")
        self._publish(name, published, facts)
        return is_judged

    def _is_name(self, name: str) -> bool:
        try:
            check_name(name)
        except ValueError as exc:
            self._warn_once(f"a spec is passed over: {exc}")
            return False
        return True

    def _warn_once(self, problem: str) -> None:
        if problem not in self._told_problems and len(self._told_problems) < 1_000:
            self._told_problems.add(problem)
            _log.warning("%s", problem)

    def _facts(
        self,
        name: str,
        entry: Entry,
        waits_for: dict[str, str],
        placement: Placement,
    ) -> Facts:
        published = entry.accepted
        if published is None:
            return Facts(entry)
        idle = {**placement.stuck, **placement.pending}
        return Facts(
            entry,
            waits_for.get(name, ""),
            {k: agent for k, agent in placement.where.items() if k.experiment == name},
            {k: why for k, why in idle.items() if k.experiment == name},
            self._board.of(name, published.run_id),
            self._endings.live(published),
            self._endings.finishing(published) or "",
        )

    def _publish(
        self, name: str, published: PublishedExperiment | None, facts: Facts
    ) -> None:
        """Publish the state of an experiment when it changed, and its figures."""
        run_id = published.run_id if published else ""
        told = self._board.of(name, run_id).get(WHOLE)
        if told is not None and told.state == "finished":
            return
        found, now_s = standing(facts), time.monotonic()
        sent, sent_run, sent_at_s = self._sent.get(name, (None, "", 0.0))
        is_same = told is not None and found == Standing(told.state, told.reason)
        if (sent, sent_run) == (found, run_id):
            verdict = self._endings.figures(published) if published else None
            late_s = _ON_ITS_WAY_S if not is_same else _FIGURES_S
            if now_s - sent_at_s < late_s or (is_same and verdict is None):
                return
        elif is_same:
            self._sent[name] = (found, run_id, now_s)
            return
        if not self._leadership.is_sure:
            return
        self._sent[name] = (found, run_id, now_s)
        self._notices.status(
            name,
            run_id,
            WHOLE_ROLE,
            0,
            found.state,
            found.reason,
            summary=self._figures(published, told),
        )
        if found.state == "degraded" and (told is None or told.state != "degraded"):
            self._notices.event(
                name, run_id, WHOLE_ROLE, 0, "degraded", found.reason, "alert"
            )

    def _figures(
        self, published: PublishedExperiment | None, told: RoleStatus | None
    ) -> str | None:
        verdict = self._endings.figures(published) if published else None
        if verdict is not None:
            return verdict.summary.to_json()
        return told.summary if told else None


def _why_it_left(role: RoleAssignment, agent: str, cluster: Cluster) -> str:
    facts = cluster.agents.get(agent)
    if facts is None:
        return "which is gone"
    trouble = facts.troubles.get(role.experiment)
    if trouble is not None and role.assignment.key in trouble.roles:
        return f"which cannot start it ({trouble.reason})"
    return "where it fits no more"
