"""A change restarts the roles that read it, and nobody else."""

import ast
import hashlib
from pathlib import Path

import pytest
from pydantic.alias_generators import to_camel

from rollstream.overrides import apply_overrides
from schemas.experiment import Spec, from_values, load_values
from schemas.role_parts import READ_BY, ROLES, restarted_roles, role_digest
from schemas.spec_paths import at, values_of
from tests.unit.test_experiment import SAMPLE

ROOT = Path(__file__).parents[2]
VALUES = load_values(SAMPLE)
BEFORE = from_values(VALUES)
EVERYBODY = ("worker", "processor", "learner", "evaluator")
WORKERS_OF = {
    "producers": ("worker", "evaluator"),
    "stream_processors": ("processor",),
    "learner": ("learner",),
}
# Followed in the topic, or needed only to begin with: a change is seen as it comes.
NO_RESTART = ("state", "workers.replicas", "workers.mostReplicas")


@pytest.mark.parametrize(
    ("override", "roles"),
    [
        # How many, where, how healthy, whether at all: nobody.
        ("spec.workers.replicas=7", ()),
        ("spec.workers={min: 1, max: 9, replicas: 2, envsPerWorker: 64}", ()),
        ("spec.workers.scaling={coolDownS: 5, maxPolicyLag: 3}", ()),
        ("spec.workers.nodeSelector={zone: a}", ()),
        ("spec.processor.replicas=2", ()),
        ("spec.processor.resources={cpu: 2}", ()),
        ("spec.learner.resources={gpu: 1}", ()),
        ("spec.learner.nodeSelector={gpu: yes-please}", ()),
        ("spec.evaluator.replicas=0", ()),
        ("spec.evaluator.resources.cpu=1", ()),
        ("spec.health={deadAfterS: 5, maxFailures: 1}", ()),
        ("spec.alerts={lagS: 5, nonfiniteLoss: false, webhook: true}", ()),
        ("spec.state=paused", ()),
        ("spec.state=stopped", ()),
        ("spec.stop.envSteps=5", ()),
        ("spec.stop.wallS=5", ()),
        ("spec.topics.diskBudget=1GB", ()),
        # Hyper-parameters of one role.
        ("spec.learner.learningRate=0.1", ("learner",)),
        ("spec.learner.replay.alpha=0.1", ("learner",)),
        ("spec.learner.checkpointIntervalS=1", ("learner",)),
        ("spec.learner.device=cpu", ("learner",)),
        ("spec.evaluator.episodes=5", ("evaluator",)),
        ("spec.stop.meanReturn=5", ("evaluator",)),
        ("spec.processor.priorityEpsilon=0.1", ("processor",)),
        ("spec.workers.exploration.epsilon=0.1", ("worker", "learner")),
        ("spec.workers.maxEnvStepsPerS=10", ("worker",)),
        # What several have to agree about.
        ("spec.learner.onExpired=fail", ("processor", "learner")),
        ("spec.processor.gamma=0.9", ("processor", "learner")),
        ("spec.processor.nStep=2", ("worker", "processor", "learner")),
        ("spec.workers.unrollLength=8", ("worker", "learner")),
        ("spec.workers.envsPerWorker=8", ("worker", "learner")),
        ("spec.flow.window=9", ("worker", "learner")),
        ("spec.learner.maxPolicyLag=9", ("worker", "learner")),
        ("spec.learner.publishIntervalMs=9", ("learner", "evaluator")),
        ("spec.seed=2", ("worker", "learner", "evaluator")),
        ("spec.env.frameStack=2", ("worker", "learner", "evaluator")),
        ("spec.topics.partitions=4", ("worker", "processor", "learner")),
        ("metadata.name=another", EVERYBODY),
    ],
)
def test_a_change_restarts_who_reads_it(override, roles):
    given = [override]
    if override.startswith("spec.workers={"):
        given = [override[:-1] + ", unrollLength: 32}"]
    now = from_values(apply_overrides(VALUES, given))
    assert now != BEFORE
    assert restarted_roles(BEFORE, now) == roles


def test_a_digest_is_the_same_wherever_it_is_made():
    read = (
        '["cartpole-dqn", "run-1", "processor", {"learner.onExpired": "earliest", '
        '"processor.gamma": 0.99, "processor.nStep": 16, "processor.priorityEpsilon": '
        '1e-06, "processor.rewardScale": 0.1, "topics.partitions": 8}]'
    )
    expected = hashlib.sha256(read.encode()).hexdigest()[:16]
    assert role_digest(BEFORE, "run-1", "processor") == expected
    digests = {role_digest(BEFORE, run, role) for run in "ab" for role in ROLES}
    assert len(digests) == 2 * len(ROLES)
    assert all(len(digest) == 16 and int(digest, 16) >= 0 for digest in digests)


def test_what_is_read_is_there():
    for paths in READ_BY.values():
        for path in paths:
            at(values_of(BEFORE)["spec"], path)


# What is no key of a spec, and the key that it is read from.
MADE_OF = {
    "learner.traits": "learner.algorithm",
    "learner.policyIntervalMs": "learner.publishIntervalMs",
}


def chains(path: Path) -> set[str]:
    """Return what a file takes from a spec: ``learner.onExpired``."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        while isinstance(node, ast.Attribute):
            names.insert(0, node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            names.insert(0, node.id)
        for place, name in enumerate(names[:-1]):
            if name in ("spec", "_spec") and names[place + 1] in Spec.model_fields:
                found.add(".".join(map(to_camel, names[place + 1 : place + 3])))
    return {MADE_OF.get(path, path) for path in found}


@pytest.mark.parametrize("package", WORKERS_OF)
def test_what_a_role_takes_from_the_spec_is_in_its_digest(package):
    allowed = [path for role in WORKERS_OF[package] for path in READ_BY[role]]
    taken = set().union(*map(chains, (ROOT / package).rglob("*.py")))
    assert len(taken) > 3
    for path in taken - {*NO_RESTART}:
        part = path.partition(".")[0]
        assert (
            path in allowed
            or part in allowed
            or (
                # A whole part, of which the role reads some of the fields.
                path == part and any(each.startswith(f"{part}.") for each in allowed)
            )
        ), path
