"""Do they learn? The specs of infra/experiments, real environments, and no broker."""

from pathlib import Path

import pytest

from schemas.experiment import load_file
from tests.unit.learner_specs import box, discrete, environment
from tests.unit.policy_gradient.rig import learn

EXPERIMENTS = Path(__file__).parents[3] / "infra/experiments"
CARTPOLE = environment()
ACROBOT = environment(box((6,)), action=discrete(3))


def solve(name, env, seed, **how):
    """Steps until the spec's target was reached twice; fails where it was not."""
    spec = load_file(EXPERIMENTS / f"{name}.yaml").spec
    workers = spec.workers
    envs = workers.replicas * workers.envs_per_worker
    # An iteration of the pipeline is an unroll of each worker too: resets are no rows.
    share = spec.learner.batch_size / (envs * workers.unroll_length)
    assert 1 - 1 / workers.replicas < share < 0.95
    target = spec.stop.mean_return
    spec = spec.model_copy(update={"seed": seed})
    steps, best = learn(env, spec, num_envs=envs, target=target, **how)
    assert steps is not None, f"expected {target:g} twice, found at best {best:g}"
    return steps


@pytest.mark.parametrize("seed", [1, 2])
def test_ppo_balances_the_pole(seed):
    assert solve("cartpole-ppo", CARTPOLE, seed, max_steps=100_000, every_updates=4)


@pytest.mark.parametrize("delay", [1, 4])
def test_v_trace_balances_the_pole(delay):
    assert solve(
        "cartpole-impala", CARTPOLE, 1, max_steps=200_000, every_updates=5, delay=delay
    )


@pytest.mark.slow
def test_ppo_swings_the_acrobot_up():
    assert solve("acrobot-ppo", ACROBOT, 2, max_steps=300_000, every_updates=8)
