"""Vector environments, acting and evaluating, without a broker: unrolls come late."""

import collections
import copy

import gymnasium
import numpy as np
import torch

from learner.algorithms import build
from learner.sample import Sequences

MODES = {"CartPole-v1": "vector_entry_point"}


def make_envs(env_id, count):
    mode = MODES.get(env_id, "sync")
    return gymnasium.make_vec(env_id, num_envs=count, vectorization_mode=mode)


class Worker:
    """Acts by what a policy says, in unrolls of consecutive steps."""

    def __init__(self, spec, num_envs, seed):
        self._spec, self._envs = spec, make_envs(spec.env.id, num_envs)
        self._observations, _ = self._envs.reset(seed=seed)
        self._over = np.zeros(num_envs, bool)
        self._rng = np.random.default_rng(seed)

    def unroll(self, policy):
        """The next unroll, as the queue of unrolls would give it to the learner."""
        length = self._spec.workers.unroll_length
        rows = [self._step(policy) for _ in range(length)]
        seen, actions, log_probs, rewards, terminated, valid = (
            np.array(column) for column in zip(*rows, strict=True)
        )
        processor = self._spec.processor
        return Sequences(
            indices=np.arange(len(self._over)),
            weights=np.ones(len(self._over), np.float32),
            observations={"": np.concatenate([seen, self._observations[None]])},
            actions={"": actions},
            returns=(rewards * processor.reward_scale).astype(np.float32),
            discounts=np.where(terminated, 0, processor.gamma).astype(np.float32),
            bootstrap_steps=np.ones_like(actions, np.int32),
            valid=valid,
            states={},
            behaviour={"log_prob": log_probs},
        )

    def _step(self, policy):
        seen, valid = self._observations, ~self._over
        log_probs = log_softmax(policy, seen)
        below = np.exp(log_probs).cumsum(1)[:, :-1]
        actions = (self._rng.random((len(seen), 1)) > below).sum(1)
        chosen = np.take_along_axis(log_probs, actions[:, None], 1)[:, 0]
        self._observations, rewards, terminated, truncated, _ = self._envs.step(actions)
        self._over = terminated | truncated
        return seen, actions, chosen, rewards, terminated, valid


def log_softmax(policy, observations):
    with torch.no_grad():
        logits = policy({"": torch.from_numpy(observations)})["logits"]
        return torch.log_softmax(logits, 1).numpy()


def mean_return(policy, env_id, seed, episodes=100):
    """The mean return of greedy episodes on fresh seeds."""
    envs = make_envs(env_id, episodes)
    observations, _ = envs.reset(seed=seed)
    returns, alive = np.zeros(episodes), np.ones(episodes, bool)
    while alive.any():
        actions = log_softmax(policy, observations).argmax(1)
        observations, rewards, terminated, truncated, _ = envs.step(actions)
        returns += rewards * alive
        alive &= ~(terminated | truncated)
    return returns.mean()


def learn(env, spec, *, num_envs, target, max_steps, every_updates, delay=1, seen=None):
    """Learn until greedy episodes, and as many fresh ones, reach the target.

    Unrolls wait until ``delay`` others are there: policies are so many versions behind.

    Returns:
        (steps, best): how many were made until then, None if it was never; the best
        mean return.
    """
    algorithm = build(env, spec)
    module = algorithm.actor().module
    policy = copy.deepcopy(module)
    worker = Worker(spec, num_envs, 1000 + spec.seed)
    under_way, steps, best = collections.deque(), 0, -np.inf
    while steps < max_steps:
        under_way.append(worker.unroll(policy))
        steps += under_way[-1].num_rows
        if len(under_way) <= delay:
            continue
        result = algorithm.update(under_way.popleft())
        assert result.finite
        policy.load_state_dict(module.state_dict())
        if algorithm.updates % every_updates:
            continue
        found = mean_return(policy, spec.env.id, algorithm.updates)
        best = max(best, found)
        if seen is not None:
            seen.append((steps, found, dict(result.figures)))
        fresh = 10_000_000 + algorithm.updates
        if found >= target and mean_return(policy, spec.env.id, fresh) >= target:
            return steps, best
    return None, best
