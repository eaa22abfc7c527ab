"""What learner and workers tell -> is it fresh experience that is learnt from? Pure.

What others write into a topic of metrics may be no number: then it is not known.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from infra.monitoring.progress import Progress
from infra.monitoring.snapshot import Experience

GONE_S = 60.0
"""A worker that is silent for longer, and that nobody misses, is forgotten."""

_LEARNER = "learner", 0
_SPREAD = ("mean", "p95", "max")
_QUANTILES = ("p50", "p95")

Who = tuple[str, int]


def experience_of(
    progress: Progress,
    heard_at_s: Mapping[Who, float],
    now_s: float,
    wanted: Collection[Who] = (),
) -> Experience:
    """Return what a run's newest metrics say of the experience that it learns from.

    Args:
        progress: what the run's metrics have said so far.
        heard_at_s: when anything was heard of a process, by role and index.
        now_s: by the same clock.
        wanted: processes that are to run.
    """
    values = _finite(progress, _LEARNER)
    return Experience(
        policy_lag_versions=_figures(values, "policy_lag_versions", _SPREAD),
        policy_lag_s=_figures(values, "policy_lag_s", _SPREAD),
        data_age_s=_figures(values, "data_age_s", _QUANTILES),
        # Since the run began, where nothing came lately.
        samples_per_insert=values.get(
            "samples_per_insert", values.get("samples_per_insert_run")
        ),
        wait_ratio=values.get("wait_ratio"),
        lost_steps=int(values.get("lost_steps", 0)),
        duplicate_steps=int(values.get("duplicate_steps", 0)),
        adoption_s=_adoption_s(progress),
        silent_s={
            f"w{index}": max(0.0, now_s - at_s)
            for (role, index), at_s in sorted(heard_at_s.items())
            if role == "worker" and (now_s - at_s <= GONE_S or (role, index) in wanted)
        },
    )


def _adoption_s(progress: Progress) -> dict[str, float]:
    workers = sorted(index for role, index in progress.points if role == "worker")
    told = {index: _finite(progress, ("worker", index)) for index in workers}
    name = "policy_adoption_s"
    return {f"w{n}": told[n][name] for n in workers if name in told[n]}


def _finite(progress: Progress, who: Who) -> dict[str, float]:
    point = progress.points.get(who)
    values = point.values if point else {}
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _figures(
    values: Mapping[str, float], name: str, figures: tuple[str, ...]
) -> dict[str, float]:
    """Return ``<name>_<figure>`` by figure, as far as they are known."""
    found = {figure: values.get(f"{name}_{figure}") for figure in figures}
    return {figure: value for figure, value in found.items() if value is not None}
