"""The metrics of the experiments that a leader follows -> samples, and decisions.

All that is remembered here can be lost with the leader: how many processes there are
is in the plans, and who follows waits a cool-down before it changes them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from infra.control.desired import PublishedExperiment
from infra.control.elastic import Decision, Known, Sample, decide
from infra.control.placement import Free
from infra.control.wants import Counts
from infra.monitoring.follow import MetricsFollower
from schemas.experiment import Spec

# What does not fit on any agent is asked for again after so many cool-downs, after
# twice as many the next time, or as soon as an agent has more left.
_NO_ROOM = 10
_LONGEST_S = 3_600.0


@dataclass
class _NoRoom:
    """More was asked for than fits."""

    times: int = 0
    until_s: float = 0.0
    free: Mapping[str, Free] = field(default_factory=dict)

    def holds(self, free: Mapping[str, Free], now_s: float) -> bool:
        """Whether it is no use to ask for more now."""
        return now_s < self.until_s and not any(
            _is_more(free[agent], self.free.get(agent, _NOTHING)) for agent in free
        )


@dataclass
class _Case:
    run_id: str
    samples: deque[Sample] = field(default_factory=deque)
    known: Known = Known()
    counts: Counts | None = None
    reported_ms: int = -1
    env_steps: float = 0.0
    no_room: _NoRoom = field(default_factory=_NoRoom)


class ElasticScaler:
    """Decides how many processes there are, where a spec says from and to."""

    def __init__(self) -> None:
        self._cases: dict[str, _Case] = {}
        # Samples come from the thread that follows metrics.
        self._lock = threading.Lock()

    def observe(
        self, published: PublishedExperiment, follower: MetricsFollower
    ) -> None:
        """Take a sample, when the learner has told something new."""
        spec, now_s = published.experiment.spec, time.monotonic()
        if not _is_elastic(spec):
            return
        with self._lock:
            case = self._case(published)
            if spec.state != "running":
                # Who waits then does not wait for want of workers.
                del self._cases[published.experiment.name]
                return
            sample = _sample(case, follower, now_s)
            if sample is not None:
                case.samples.append(sample)
            longest_s = max(
                spec.workers.scaling.window_s, spec.processor.scaling.window_s
            )
            while case.samples and now_s - case.samples[0].at_s > longest_s + 1.0:
                case.samples.popleft()

    def decide(
        self, published: PublishedExperiment, now: Counts, free: Mapping[str, Free]
    ) -> tuple[Counts, str] | None:
        """Return other counts and the reason; None: they stay.

        Args:
            published: the spec in force.
            now: how many there are.
            free: what each agent has left; what did not fit is not asked for again
                before one has more.
        """
        spec, now_s = published.experiment.spec, time.monotonic()
        if not _is_elastic(spec):
            return None
        with self._lock:
            case = self._case(published)
            _note_counts(case, now, now_s)
            found = decide(spec, case.samples, case.known, now, now_s)
            if case.no_room.holds(free, now_s):
                found = _without_more(found, now, case.known)
            case.known = found.known
            if found.workers is None and found.processors is None:
                return None
            return _counts(found, now), found.reason

    def no_room(self, published: PublishedExperiment, free: Mapping[str, Free]) -> bool:
        """Note that not all that was decided fits anywhere; return whether it is news.

        It is the first time since there were more of them last.
        """
        spec, now_s = published.experiment.spec, time.monotonic()
        cool_s = max(
            spec.workers.scaling.cool_down_s, spec.processor.scaling.cool_down_s, 1.0
        )
        with self._lock:
            known = self._case(published).no_room
            first_s = _NO_ROOM * cool_s
            wait_s = max(first_s, min(first_s * 2.0 ** min(known.times, 9), _LONGEST_S))
            known.until_s, known.free = now_s + wait_s, dict(free)
            known.times += 1
            return known.times == 1

    def _case(self, published: PublishedExperiment) -> _Case:
        name, run_id = published.experiment.name, published.run_id
        case = self._cases.get(name)
        if case is None or case.run_id != run_id:
            case = self._cases[name] = _Case(run_id)
        return case


def _note_counts(case: _Case, now: Counts, now_s: float) -> None:
    """See what has become of the last decision, and what others have changed."""
    before, known = case.counts, case.known
    if before is None or before.workers != now.workers:
        known = replace(known, workers_since_s=now_s)
    if before is None or before.processors != now.processors:
        known = replace(known, processors_since_s=now_s)
    if before is not None and _has_grown(before, now):
        case.no_room = _NoRoom()
    case.known, case.counts = known, now


def _has_grown(before: Counts, now: Counts) -> bool:
    return now.workers > before.workers or now.processors > before.processors


def _without_more(found: Decision, now: Counts, before: Known) -> Decision:
    """Leave out what there is no room for; fewer is always possible."""
    known, workers, processors = found.known, found.workers, found.processors
    if workers is not None and workers > now.workers:
        workers, known = None, replace(known, workers_since_s=before.workers_since_s)
    if processors is not None and processors > now.processors:
        processors = None
        known = replace(known, processors_since_s=before.processors_since_s)
    return Decision(workers, processors, found.reason, known)


_NOTHING = Free(0, 0, 0)


def _is_more(now: Free, before: Free) -> bool:
    return now.cpu > before.cpu or now.gpu > before.gpu or now.roles > before.roles


def _counts(decision: Decision, now: Counts) -> Counts:
    workers, processors = decision.workers, decision.processors
    return Counts(
        now.workers if workers is None else workers,
        now.processors if processors is None else processors,
    )


def _is_elastic(spec: Spec) -> bool:
    return spec.workers.is_elastic or spec.processor.is_elastic


def _sample(case: _Case, follower: MetricsFollower, now_s: float) -> Sample | None:
    progress = follower.progress
    report = progress.points.get(("learner", 0))
    if report is None or report.produced_at_ms == case.reported_ms:
        return None
    case.reported_ms = report.produced_at_ms
    env_steps = report.values.get("env_steps", 0.0)
    # A mean of nothing is the one before.
    came = env_steps != case.env_steps
    case.env_steps = env_steps
    return Sample(
        at_s=now_s,
        learner_s=report.produced_at_ms / 1000,
        waited_s=report.values.get("waited_data_s", 0.0),
        replay_lag=follower.lag["learner"],
        policy_lag=report.values.get("policy_lag_mean") if came else None,
        processor_lag=follower.lag["processor"],
        processed=progress.total("processor", "batches"),
    )
