"""Does it learn? The real buffer and algorithm, an acting loop, and no broker."""

import collections
import copy
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

from learner.algorithms import build
from learner.replay_buffer import ReplayBuffer
from schemas.experiment import load_file
from schemas.records import NO_POLICY, SourceRef, TransitionBatch
from schemas.tensors import pack
from stream_processors.nstep import n_step
from tests.unit.learner_specs import environment

EXPERIMENT = Path(__file__).parents[2] / "infra/experiments/cartpole-dqn.yaml"
ENVS, STEPS = 128, 32
Rows = collections.namedtuple(
    "Rows", "observations actions rewards terminated truncated valid"
)


def make_envs(count):
    return gymnasium.make_vec(
        "CartPole-v1", num_envs=count, vectorization_mode="vector_entry_point"
    )


def greedy(module, observations):
    with torch.no_grad():
        return module({"": torch.from_numpy(observations)})["q"].argmax(1).numpy()


def evaluate(module, seed, episodes=100):
    envs = make_envs(episodes)
    observations, _ = envs.reset(seed=seed)
    returns, alive = np.zeros(episodes), np.ones(episodes, bool)
    while alive.any():
        observations, rewards, terminated, truncated, _ = envs.step(
            greedy(module, observations)
        )
        returns += rewards * alive
        alive &= ~(terminated | truncated)
    return returns.mean()


class Worker:
    """Acts with the epsilon ladder, in unrolls of consecutive steps."""

    def __init__(self, exploration):
        self._envs = make_envs(ENVS)
        self._observations, _ = self._envs.reset(seed=1000)
        self._over = np.zeros(ENVS, bool)
        share = np.arange(ENVS) / (ENVS - 1)
        self._epsilon = exploration["epsilon"] ** (1 + exploration["alpha"] * share)
        self._rng = np.random.default_rng(0)

    def unroll(self, module):
        rows = [self._step(module) for _ in range(STEPS)]
        columns = [np.array(column) for column in zip(*rows, strict=True)]
        observations = np.concatenate([columns[0], self._observations[None]])
        return Rows(observations, *columns[1:])

    def _step(self, module):
        seen, valid = self._observations, ~self._over
        random = self._rng.random(ENVS) < self._epsilon
        actions = np.where(random, self._rng.integers(0, 2, ENVS), greedy(module, seen))
        self._observations, rewards, terminated, truncated, _ = self._envs.step(actions)
        self._over = terminated | truncated
        return seen, actions, rewards.astype("<f4"), terminated, truncated, valid


def transitions(number, rows, after, processor):
    """The batch of ``rows``; returns look on into the unroll after it."""
    both = [
        np.concatenate([getattr(r, f) for r in (rows, after)]) for f in Rows._fields[2:]
    ]
    found = n_step(
        *both,
        num_steps=STEPS,
        n=processor.n_step,
        gamma=processor.gamma,
        reward_scale=processor.reward_scale,
    )
    return TransitionBatch(
        "e", "run", "w0", 1, number, number * STEPS, STEPS, ENVS, NO_POLICY, 0, False,
        SourceRef("t", 0, number), processor.n_step, processor.gamma, 0.1,
        observations={"": pack(rows.observations)},
        actions={"": pack(rows.actions)},
        rewards=pack(rows.rewards),
        terminated=pack(rows.terminated),
        truncated=pack(rows.truncated),
        valid=pack(rows.valid),
        episodes=pack(np.zeros(ENVS, "<i8")),
        states={},
        behaviour={},
        infos={},
        returns=pack(found.returns),
        discounts=pack(found.discounts),
        bootstrap_steps=pack(found.bootstrap_steps),
        priorities=pack(np.full((STEPS, ENVS), np.nan, "<f4")),
    )  # fmt: skip


@pytest.mark.slow
def test_dqn_balances_the_pole():
    spec = load_file(EXPERIMENT).spec
    learner = spec.learner
    algorithm = build(environment(), spec)
    buffer = ReplayBuffer(environment(), learner.replay, unroll_length=STEPS)
    actor = copy.deepcopy(algorithm.actor().module)
    worker = Worker(algorithm.actor().exploration_options)
    before, owed, best = worker.unroll(actor), 0.0, 0.0
    for number in range(120):  # 491,520 steps
        after = worker.unroll(actor)
        batch = transitions(number, before, after, spec.processor)
        inserted, before = buffer.insert(batch, 0, number), after
        if buffer.samplable_rows < learner.replay.min_size:
            continue
        owed += inserted * learner.samples_per_insert / learner.batch_size
        while owed >= 1:
            owed -= 1
            sample = buffer.sample(
                learner.batch_size, learner.replay.beta, algorithm.rng
            )
            result = algorithm.update(sample)
            assert result.finite
            buffer.update_priorities(sample.indices, result.td_errors)
            if algorithm.updates % learner.updates_per_policy == 0:
                actor.load_state_dict(
                    {k: torch.tensor(v) for k, v in algorithm.policy_tensors().items()}
                )
            if algorithm.updates % 50 == 0:
                module = algorithm.actor().module
                best = max(best, evaluate(module, algorithm.updates))
                if best >= 475 and evaluate(module, 10_000_000) >= 475:
                    return
    pytest.fail(f"expected a greedy mean return of 475 twice, found at best {best}")
