"""May a run go on with a changed spec? Pure."""

from __future__ import annotations

from schemas.experiment import Experiment, SpecError
from schemas.spec_paths import at, differences, values_of
from schemas.tensors import LOSSLESS

# What experience and returns were made with, and what the network's numbers mean:
# mixed, they would say nothing.
FIXED_FOR_LIFE = (
    "spec.env",
    "spec.processor.nStep",
    "spec.processor.gamma",
    "spec.processor.rewardScale",
    "spec.topics.partitions",
    "spec.learner.algorithm",
    "spec.learner.network",
    "spec.learner.distribution",
    "spec.learner.r2d2.rescaleValues",
    "spec.past.experiment",
    "spec.past.archive",
    "spec.past.since",
    "spec.past.until",
    "spec.past.policyVersions",
    "spec.past.workers",
    "spec.past.episodes",
)


def check_resumable(past: Experiment, wanted: Experiment) -> None:
    """Raise SpecError when a run of ``past`` cannot go on as ``wanted``."""
    old, new = values_of(past), values_of(wanted)
    problems = [
        f"{path}: expected {before!r} as in the run so far, found {now!r}; --fresh "
        "starts a new run"
        for fixed in FIXED_FOR_LIFE
        for path, before, now in differences(fixed, at(old, fixed), at(new, fixed))
    ]
    problems += _lossy_problems(past, wanted)
    if problems:
        raise SpecError(problems)


def _lossy_problems(past: Experiment, wanted: Experiment) -> list[str]:
    """Refuse other losses; what loses nothing may change as it likes."""
    old, new = _losses(past), _losses(wanted)
    if old == new:
        return []
    return [
        f"spec.workers.encoding: expected to lose {_told(old)} as in the run so far, "
        f"found {_told(new)}: a network would see two kinds of the same; --fresh "
        "starts a new run"
    ]


def _losses(experiment: Experiment) -> dict[str, tuple[str, int]]:
    encoding = experiment.spec.workers.encoding
    if encoding.quality == LOSSLESS:
        return {}
    return {name: (how, encoding.quality) for name, how in encoding.lossy.items()}


def _told(losses: dict[str, tuple[str, int]]) -> str:
    return (
        ", ".join(
            f"what {how} of quality {quality} loses of {name!r}"
            for name, (how, quality) in losses.items()
        )
        or "nothing"
    )
