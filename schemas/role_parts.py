"""Which parts of a spec each role's process reads: what a change restarts."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from schemas.experiment import Experiment
from schemas.spec_paths import at, values_of

ROLES = ("worker", "processor", "learner", "evaluator", "replayer", "archiver")

# How many there are, and where: whoever places processes reads it, no process does.
PLACEMENT = (
    "replicas", "min", "max", "scaling", "resources", "nodeSelector",
)  # fmt: skip

# Not here, and so changed without a restart: state, which processes follow in the
# topic; health, alerts and stop, which whoever watches over them judges by.
READ_BY = {
    "worker": (
        "seed",
        "env",
        "workers.envsPerWorker",
        "workers.unrollLength",
        "workers.maxEnvStepsPerS",
        "workers.exploration",
        "workers.encoding",
        "processor.nStep",
        "learner.algorithm",  # whether it may act at random
        "learner.maxPolicyLag",
        "flow",
        "topics.partitions",
    ),
    "processor": (
        "processor.nStep",
        "processor.gamma",
        "processor.rewardScale",
        "processor.priorityEpsilon",
        "learner.onExpired",
        "topics.partitions",
    ),
    # It publishes how to explore with the policy. An algorithm of the machine's modules
    # is handed the whole spec: hence all that is about what is learnt.
    "learner": (
        "seed",
        "env",
        "workers.envsPerWorker",
        "workers.unrollLength",
        "workers.exploration",
        "processor.nStep",
        "processor.gamma",
        "processor.rewardScale",
        "learner",
        "flow",
        "topics.partitions",
    ),
    # Only it knows when a second round of episodes has to confirm the goal.
    "evaluator": (
        "seed",
        "env",
        "evaluator.episodes",
        "evaluator.envs",
        "evaluator.everyVersions",
        "learner.algorithm",
        "learner.publishIntervalMs",  # how long it waits for a newer version
        "stop.meanReturn",
    ),
    "replayer": ("past", "topics.partitions", "topics.diskBudget"),
    "archiver": ("archive", "topics.partitions"),
}


def role_digest(experiment: Experiment, run_id: str, role: str) -> str:
    """Return 16 hex digits that differ when a role's process has to be restarted.

    Args:
        experiment: what is wanted.
        run_id: the run that the process belongs to.
        role: one of ROLES.
    """
    spec = values_of(experiment)["spec"]
    read = {path: _without_placement(path, at(spec, path)) for path in READ_BY[role]}
    text = json.dumps([experiment.name, run_id, role, read], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def restarted_roles(before: Experiment, now: Experiment) -> tuple[str, ...]:
    """Return the roles whose processes are restarted by a change within a run."""
    return tuple(
        role
        for role in ROLES
        if _may_have(before, role)
        and _may_have(now, role)
        and role_digest(before, "", role) != role_digest(now, "", role)
    )


def _may_have(experiment: Experiment, role: str) -> bool:
    """Whether it has processes of a role that not every experiment has."""
    spec = experiment.spec
    return {"replayer": spec.past.is_set, "archiver": spec.archive}.get(role, True)


def _without_placement(path: str, value: Any) -> Any:
    if path not in ("learner", "past"):  # the roles that are read as a whole
        return value
    return {key: item for key, item in value.items() if key not in PLACEMENT}
