"""How busy learner and processors were -> how many workers and processors; pure.

The number of workers doubles at the most, and no further than the learner's wait asks
for: with W of n workers' time waited, n / (1 - W) would keep it busy, if experience
grew with them. It shrinks by one: a lag does not say by how much there are too many.
Processors come and go one by one, as each time their whole group is handed out anew.

Nothing swings: what was found to be too many, or too few, is tried again only when the
load says by numbers that it has become right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from infra.control.wants import Counts
from schemas.experience_specs import WorkersScaling
from schemas.experiment import Spec
from schemas.role_specs import ElasticSpec, ScalingSpec

# The window is judged in parts, each of which has to agree.
_PARTS = 3
# What has shrunk by no more than this is not about to be gone.
_STEADY = 0.9
# Fewer processors only where those that stay would have so much to spare.
_SPARE = 0.8
# Reports come each second.
_LATE_S = 5.0


@dataclass(frozen=True, slots=True)
class Sample:
    """A moment of a run; None: not known.

    Attributes:
        at_s: when, by the clock of whoever decides.
        learner_s: of the learner's report, by its own clock.
        waited_s: how long the learner has waited for experience, in all.
        replay_lag: records that it has not read.
        policy_lag: versions by which the experience that came was behind.
        processor_lag: records that wait for processors.
        processed: records that processors have read, in all.
    """

    at_s: float
    learner_s: float
    waited_s: float
    replay_lag: int | None = None
    policy_lag: float | None = None
    processor_lag: int | None = None
    processed: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """What was found out on the way.

    Attributes:
        workers_since_s: since when there are as many workers as now.
        processors_since_s: likewise.
        too_many_workers: the fewest that were more than the learner can take.
        processor_rate: records a second that a processor did at most, when all were
            busy.
    """

    workers_since_s: float = -math.inf
    processors_since_s: float = -math.inf
    too_many_workers: int | None = None
    processor_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """Other numbers of processes; None: as they are.

    Attributes:
        reason: in words.
        known: what is known from now on.
    """

    workers: int | None
    processors: int | None
    reason: str
    known: Known


def decide(
    spec: Spec, samples: Sequence[Sample], known: Known, current: Counts, now_s: float
) -> Decision:
    """Return how many processes there are to be.

    1. Nothing for a role whose number is fixed, that was changed within its cool-down
       or window, or of which the samples do not cover the whole window.
    2. Fewer workers while the lag of replay or policies is above its bound in all of
       the window, and does not fall by itself. This goes before 3.
    3. More workers while the learner waits more than its bound in each part of it.
    4. More processors while records wait for them, as in 2; fewer when none did.
    """
    workers, why_workers, known = _workers(spec, samples, known, current.workers, now_s)
    processors, why_processors, known = _processors(
        spec, samples, known, current.processors, now_s
    )
    if workers is not None:
        known = replace(known, workers_since_s=now_s)
    if processors is not None:
        known = replace(known, processors_since_s=now_s)
    reason = "; ".join(filter(None, (why_workers, why_processors)))
    return Decision(workers, processors, reason, known)


Change = tuple[int | None, str, Known]


def _workers(
    spec: Spec, samples: Sequence[Sample], known: Known, now: int, now_s: float
) -> Change:
    part, scaling = spec.workers, spec.workers.scaling
    least, most = _bounds(part, part.most_replicas)
    window = _window(part, scaling, samples, known.workers_since_s, now_s)
    if not window:
        return None, "", known
    if why := _too_many(scaling, window, now):
        known = replace(known, too_many_workers=now)
        return (now - 1, why, known) if now > least else (None, "", known)
    ratios = _each_part(window, _wait_ratio)
    if ratios is None or min(ratios) <= scaling.learner_wait_ratio or now >= most:
        return None, "", known
    # What waits for processors already would not come sooner.
    waiting = _beyond_a_second([s.processor_lag for s in window], window)
    if max((lag or 0.0) for lag in waiting) > spec.processor.scaling.max_lag:
        return None, "", known
    keeps_busy = int(now / max(1 - min(ratios), 1e-6))
    wanted = min(most, 2 * now, max(now + 1, keeps_busy))
    if known.too_many_workers is not None and wanted >= known.too_many_workers:
        # It was too many once. As many as the wait asks for are not.
        wanted = min(wanted, max(known.too_many_workers - 1, keeps_busy))
    if wanted <= now:
        return None, "", known
    why = f"the learner waits {min(ratios):.0%} of its time or more, for "
    return wanted, f"{why}{scaling.window_s:g} s", known


def _too_many(scaling: WorkersScaling, window: Sequence[Sample], now: int) -> str:
    replay = _beyond_a_second([s.replay_lag for s in window], window)
    policy = [s.policy_lag for s in window]
    bound = scaling.max_replay_lag * now
    if (lag := _stays_above(replay, bound)) is not None:
        return (
            f"{lag:.0f} records or more wait for the learner, for "
            f"{scaling.window_s:g} s: more than {scaling.max_replay_lag:g} a worker"
        )
    if (lag := _stays_above(policy, scaling.max_policy_lag)) is not None:
        return (
            f"experience is {lag:.0f} policy versions old or more, for "
            f"{scaling.window_s:g} s: more than {scaling.max_policy_lag:g}"
        )
    return ""


def _processors(
    spec: Spec, samples: Sequence[Sample], known: Known, now: int, now_s: float
) -> Change:
    part, scaling = spec.processor, spec.processor.scaling
    least, most = _bounds(part, min(part.most_replicas, spec.topics.partitions))
    window = _window(part, scaling, samples, known.processors_since_s, now_s)
    if not window:
        return None, "", known
    lags = _beyond_a_second([s.processor_lag for s in window], window)
    rate = _processed_a_second(window)
    if (lag := _stays_above(lags, scaling.max_lag * now)) is not None:
        busy = max(known.processor_rate or 0.0, rate / now)
        known = replace(known, processor_rate=busy)
        why = f"{lag:.0f} records or more wait, for {scaling.window_s:g} s: "
        why += f"more than {scaling.max_lag:g} a processor"
        return (now + 1, why, known) if now < most else (None, "", known)
    if now <= least or not _are_idle(lags, now):
        return None, "", known
    could = known.processor_rate
    if could is not None and rate > _SPARE * could * (now - 1):
        return None, "", known
    return now - 1, f"next to nothing has waited for {scaling.window_s:g} s", known


def _are_idle(lags: Sequence[float | None], now: int) -> bool:
    # One record may be on its way to each.
    return all(lag is not None and lag <= now for lag in lags)


def _bounds(part: ElasticSpec, most: int) -> tuple[int, int]:
    return part.min or part.replicas, most


def _window(
    part: ElasticSpec,
    scaling: ScalingSpec,
    samples: Sequence[Sample],
    since_s: float,
    now_s: float,
) -> list[Sample]:
    """Return the samples to decide by; none when it is not time to."""
    calm_s = max(scaling.cool_down_s, scaling.window_s)
    if not part.is_elastic or now_s - since_s < calm_s:
        return []
    begin_s = now_s - scaling.window_s
    window = [s for s in samples if begin_s <= s.at_s <= now_s]
    late_s = min(_LATE_S, scaling.window_s / 2)
    covers = (
        len(window) > _PARTS
        and window[0].at_s - begin_s <= late_s
        and now_s - window[-1].at_s <= late_s
    )
    return window if covers else []


def _each_part(
    window: Sequence[Sample], value: Callable[[Sample, Sample], float | None]
) -> list[float] | None:
    """Return a value of each part of a window; None where one is not known."""
    marks = [round(i * (len(window) - 1) / _PARTS) for i in range(_PARTS + 1)]
    found = [
        value(window[a], window[b]) for a, b in zip(marks, marks[1:], strict=False)
    ]
    known = [each for each in found if each is not None]
    return known if len(known) == len(found) else None


def _wait_ratio(first: Sample, last: Sample) -> float | None:
    waited_s, seconds = last.waited_s - first.waited_s, last.learner_s - first.learner_s
    if seconds <= 0 or waited_s < 0:
        return None  # it was started again in between
    return min(waited_s / seconds, 1.0)


def _stays_above(values: Sequence[float | None], bound: float) -> float | None:
    """Return the least of values that are all above a bound, and do not fall."""
    known = [value for value in values if value is not None]
    if len(known) < len(values) or min(known) <= bound:
        return None
    third = max(len(known) // _PARTS, 1)
    first, last = sum(known[:third]) / third, sum(known[-third:]) / third
    return min(known) if last >= _STEADY * first else None


def _beyond_a_second(
    lags: Sequence[int | None], window: Sequence[Sample]
) -> list[float | None]:
    """Leave out what came since positions were told, which is once a second."""
    rate = _processed_a_second(window)
    return [None if lag is None else max(0.0, lag - rate) for lag in lags]


def _processed_a_second(window: Sequence[Sample]) -> float:
    first, last = window[0], window[-1]
    return max(0, last.processed - first.processed) / max(last.at_s - first.at_s, 1e-6)
