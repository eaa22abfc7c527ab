"""May a run go on with a changed spec? Pure."""

from __future__ import annotations

from schemas.experiment import Experiment, SpecError
from schemas.spec_paths import at, differences, values_of

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
    if problems:
        raise SpecError(problems)
