"""Learning without a broker: environments, the real buffer, an algorithm by name."""

import collections
import copy

import gymnasium
import numpy as np
import torch

from learner.algorithms import build
from learner.replay_buffer import ReplayBuffer
from schemas.records import (
    NO_POLICY,
    EnvDescription,
    SourceRef,
    SpaceField,
    TransitionBatch,
)
from schemas.tensors import pack
from stream_processors.nstep import n_step

Rows = collections.namedtuple(
    "Rows", "observations actions rewards terminated truncated valid"
)


def make_envs(env_id, count):
    mode = "vector_entry_point" if env_id == "CartPole-v1" else "sync"
    return gymnasium.make_vec(env_id, num_envs=count, vectorization_mode=mode)


def described(env_id):
    envs = make_envs(env_id, 1)
    seen, action = envs.single_observation_space, envs.single_action_space
    observation = SpaceField("", "box", seen.dtype.str, seen.shape)
    if isinstance(action, gymnasium.spaces.Discrete):
        field = SpaceField("", "discrete", "<i8", (), n=(int(action.n),), start=(0,))
    else:
        bounds = {"low": pack(action.low), "high": pack(action.high)}
        field = SpaceField("", "box", action.dtype.str, action.shape, **bounds)
    envs.close()
    return EnvDescription(env_id, (observation,), (field,), None, "sync", {})


class Acting:
    """An actor's heads, as workers use them: to explore, and greedily."""

    def __init__(self, actor, num_envs, space, seed):
        self.module = copy.deepcopy(actor.module)
        self._rng, self._space, self._actor = np.random.default_rng(seed), space, actor
        share = np.arange(num_envs) / max(num_envs - 1, 1)
        options = actor.exploration_options
        if actor.head == "q":
            self._epsilon = options["epsilon"] ** (1 + options["alpha"] * share)

    def take_over(self, algorithm):
        tensors = algorithm.policy_tensors()
        self.module.load_state_dict({k: torch.tensor(v) for k, v in tensors.items()})

    def random(self, count):
        if self._actor.head == "q":
            return self._rng.integers(0, self._space.n, count)
        shape = (count, *self._space.shape)
        return self._rng.uniform(self._space.low, self._space.high, shape).astype("<f4")

    def explore(self, observations):
        outputs = run(self.module, observations)
        if self._actor.head == "q":
            count = len(observations)
            at_random = self._rng.random(count) < self._epsilon
            return np.where(at_random, self.random(count), outputs["q"].argmax(1))
        mean, std = outputs["mean"], np.exp(outputs["log_std"])
        noise = self._rng.standard_normal(mean.shape)
        return within(self._space, mean + std * noise)


def within(space, sample):
    share = (np.tanh(sample) + 1) / 2
    return (space.low + share * (space.high - space.low)).astype("<f4")


def run(module, observations):
    with torch.no_grad():
        outputs = module({"": torch.from_numpy(observations)})
    return {name: value.numpy() for name, value in outputs.items()}


def greedy(module, observations, space):
    outputs = run(module, observations)
    if "q" in outputs:
        return outputs["q"].argmax(1)
    return within(space, outputs["mean"])


def evaluate(env_id, module, seed, episodes=100):
    """Return the mean return of greedy episodes."""
    envs = make_envs(env_id, episodes)
    observations, _ = envs.reset(seed=seed)
    returns, alive = np.zeros(episodes), np.ones(episodes, bool)
    while alive.any():
        actions = greedy(module, observations, envs.single_action_space)
        observations, rewards, terminated, truncated, _ = envs.step(actions)
        returns += rewards * alive
        alive &= ~(terminated | truncated)
    envs.close()
    return returns.mean()


class Learning:
    """A worker, a processor and a learner by turns, an unroll at a time.

    A batch is made once the unroll after it is there, and the policy that acts is
    exchanged at each turn.
    """

    def __init__(self, spec, env_id, seed=0):
        self.spec, self.env_id = spec, env_id
        workers, learner = spec.workers, spec.learner
        self.num_envs, self.num_steps = workers.envs_per_worker, workers.unroll_length
        env = described(env_id)
        self.algorithm = build(env, spec)
        self.buffer = ReplayBuffer(env, learner.replay, unroll_length=self.num_steps)
        self._envs = make_envs(env_id, self.num_envs)
        self._observations, _ = self._envs.reset(seed=1000 + seed)
        self._over = np.zeros(self.num_envs, bool)
        space = self._envs.single_action_space
        self.acting = Acting(self.algorithm.actor(), self.num_envs, space, seed)
        self.env_steps, self._owed, self._number = 0, 0.0, 0
        self.figures = {}
        self._before = self._unroll()

    def turn(self):
        """Collect an unroll, and learn as often as the spec wants."""
        after = self._unroll()
        batch = self._batch(self._before, after)
        inserted = self.buffer.insert(batch, 0, self._number)
        self._number, self._before = self._number + 1, after
        learner = self.spec.learner
        if self.buffer.samplable_rows < learner.replay.min_size:
            return
        self._owed += inserted * learner.samples_per_insert / learner.batch_size
        while self._owed >= 1:
            self._owed -= 1
            self._learn()
        self.acting.take_over(self.algorithm)

    def _learn(self):
        learner, rng = self.spec.learner, self.algorithm.rng
        sample = self.buffer.sample(learner.batch_size, learner.replay.beta, rng)
        result = self.algorithm.update(sample)
        assert result.finite
        self.figures = result.figures
        self.buffer.update_priorities(sample.indices, result.td_errors)

    def greedy_return(self, seed, episodes=100):
        module = self.algorithm.actor().module
        return evaluate(self.env_id, module, seed, episodes)

    def _unroll(self):
        rows = [self._step() for _ in range(self.num_steps)]
        columns = [np.array(column) for column in zip(*rows, strict=True)]
        observations = np.concatenate([columns[0], self._observations[None]])
        return Rows(observations, *columns[1:])

    def _step(self):
        seen, valid = self._observations, ~self._over
        if self.algorithm.updates:
            actions = self.acting.explore(seen)
        else:
            actions = self.acting.random(self.num_envs)
        self._observations, rewards, terminated, truncated, _ = self._envs.step(actions)
        self._over = terminated | truncated
        self.env_steps += int(valid.sum())
        return seen, actions, rewards.astype("<f4"), terminated, truncated, valid

    def _batch(self, rows, after):
        """The batch of ``rows``; returns look on into the unroll after it."""
        both = [
            np.concatenate([getattr(r, f) for r in (rows, after)])
            for f in Rows._fields[2:]
        ]
        processor, steps, envs = self.spec.processor, self.num_steps, self.num_envs
        found = n_step(
            *both,
            num_steps=steps,
            n=processor.n_step,
            gamma=processor.gamma,
            reward_scale=processor.reward_scale,
        )
        return TransitionBatch(
            "e", "run", "w0", 1, self._number, self._number * steps, steps, envs,
            NO_POLICY, 0, False, SourceRef("t", 0, self._number), processor.n_step,
            processor.gamma, processor.reward_scale,
            observations={"": pack(rows.observations)},
            actions={"": pack(rows.actions)},
            rewards=pack(rows.rewards),
            terminated=pack(rows.terminated),
            truncated=pack(rows.truncated),
            valid=pack(rows.valid),
            episodes=pack(np.zeros(envs, "<i8")),
            states={},
            behaviour={},
            infos={},
            returns=pack(found.returns),
            discounts=pack(found.discounts),
            bootstrap_steps=pack(found.bootstrap_steps),
            priorities=pack(np.full((steps, envs), np.nan, "<f4")),
        )  # fmt: skip
