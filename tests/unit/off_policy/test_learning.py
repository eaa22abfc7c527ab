"""Does it learn? The real buffer and algorithm, an acting loop, and no broker."""

from pathlib import Path

import pytest

from schemas.experiment import Spec, load_file
from tests.unit.off_policy.rig import Learning

EXPERIMENTS = Path(__file__).parents[3] / "infra/experiments"
SUPPORT = {"v_min": 0.0, "v_max": 10.0}  # the reward x 0.1 for ever: 0.1 / (1 - 0.99)


def experiment(name):
    return load_file(EXPERIMENTS / name).spec


def with_distribution(spec: Spec, **distribution):
    learner = spec.learner
    changed = learner.distribution.model_copy(update=distribution)
    learner = learner.model_copy(update={"distribution": changed})
    return spec.model_copy(update={"learner": learner})


def learn(spec, target, *, steps, every, envs=None):
    """Learn until greedy episodes reach the target twice, else fail."""
    if envs is not None:
        workers = spec.workers.model_copy(update={"envs_per_worker": envs})
        spec = spec.model_copy(update={"workers": workers})
    learning, best, due = Learning(spec, spec.env.id), float("-inf"), every
    while learning.env_steps < steps:
        learning.turn()
        if learning.env_steps < due or not learning.algorithm.updates:
            continue
        due += every
        found = learning.greedy_return(seed=learning.env_steps)
        best = max(best, found)
        if found >= target and learning.greedy_return(seed=10_000_000) >= target:
            return
    pytest.fail(f"expected a greedy mean return of {target} twice, found {best} once")


@pytest.mark.slow
@pytest.mark.parametrize(
    "distribution",
    [
        {"kind": "none"},
        {"kind": "categorical", "atoms": 51, **SUPPORT},
        {"kind": "quantile", "atoms": 32},
    ],
    ids=lambda distribution: distribution["kind"],
)
def test_dqn_balances_the_pole(distribution):
    spec = with_distribution(experiment("cartpole-dqn.yaml"), **distribution)
    learn(spec, 475, steps=490_000, every=8_192, envs=128)


@pytest.mark.slow
def test_sac_swings_the_pendulum_up():
    learn(experiment("pendulum-sac.yaml"), -200, steps=20_000, every=2_000)
