"""The metrics of the experiments that a leader follows -> samples, and decisions.

All that is remembered here can be lost with the leader: how many processes there are
is in the plans, and who follows waits a cool-down before it changes them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace

from infra.control.desired import PublishedExperiment
from infra.control.elastic import Decision, Known, Sample, decide
from infra.control.wants import Counts
from infra.monitoring.follow import MetricsFollower
from schemas.experiment import Spec

# What does not fit on any agent is asked for again after so many cool-downs.
_NO_ROOM = 10


@dataclass
class _Case:
    run_id: str
    samples: deque[Sample] = field(default_factory=deque)
    known: Known = Known()
    counts: Counts | None = None
    reported_ms: int = -1
    env_steps: float = 0.0
    decided: Counts | None = None
    not_before_s: float = 0.0


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
        self, published: PublishedExperiment, now: Counts
    ) -> tuple[Counts, str] | None:
        """Return other counts and the reason; None: they stay."""
        spec, now_s = published.experiment.spec, time.monotonic()
        if not _is_elastic(spec):
            return None
        with self._lock:
            case = self._case(published)
            _note_counts(case, spec, now, now_s)
            if now_s < case.not_before_s:
                return None
            found = decide(spec, case.samples, case.known, now, now_s)
            case.known = found.known
            if found.workers is None and found.processors is None:
                return None
            case.counts = case.decided = _counts(found, now)
            return case.counts, found.reason

    def _case(self, published: PublishedExperiment) -> _Case:
        name, run_id = published.experiment.name, published.run_id
        case = self._cases.get(name)
        if case is None or case.run_id != run_id:
            case = self._cases[name] = _Case(run_id)
        return case


def _note_counts(case: _Case, spec: Spec, now: Counts, now_s: float) -> None:
    """See what has become of the last decision, and what others have changed."""
    before, known = case.counts, case.known
    if before is None or before.workers != now.workers:
        known = replace(known, workers_since_s=now_s)
    if before is None or before.processors != now.processors:
        known = replace(known, processors_since_s=now_s)
    decided = case.decided
    if decided is not None and decided != now:
        cool_s = max(
            spec.workers.scaling.cool_down_s, spec.processor.scaling.cool_down_s, 1.0
        )
        case.not_before_s = now_s + _NO_ROOM * cool_s
    case.known, case.counts, case.decided = known, now, None


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
