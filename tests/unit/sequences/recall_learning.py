"""Workers, processor and learner of the memory task in one process, no broker."""

import copy

import numpy as np
import torch

from learner.algorithms import build
from learner.experience import make_experience
from producers.sample_envs import VectorRecall
from schemas.records import (
    NO_POLICY,
    EnvDescription,
    SourceRef,
    SpaceField,
    TransitionBatch,
)
from schemas.tensors import pack
from stream_processors.nstep import n_step


def description(cues):
    observation = SpaceField("", "box", "<f4", (2 * cues + 1,))
    action = SpaceField("", "discrete", "<i8", (), n=(cues,), start=(0,))
    return EnvDescription("recall", (observation,), (action,), None, "sync", {})


class Policy:
    """The module that acts and its memory of B environments."""

    def __init__(self, actor, num_envs):
        self.module = copy.deepcopy(actor.module)
        self.states = {
            f.name: np.zeros((num_envs, *f.shape), np.float32) for f in actor.states
        }

    def load(self, tensors):
        self.module.load_state_dict({k: torch.tensor(v) for k, v in tensors.items()})

    def greedy(self, observations):
        states = {name: torch.from_numpy(state) for name, state in self.states.items()}
        with torch.no_grad():
            outputs = self.module({"": torch.from_numpy(observations)}, states)
        for name in self.states:
            self.states[name] = outputs["next_state/" + name].numpy()
        return outputs["q"].argmax(1).numpy()

    def forget(self, valid):
        for name, state in self.states.items():
            self.states[name] = np.where(valid[:, None], state, np.float32(0))


def evaluate(actor, kwargs, seed, episodes=200):
    """The mean return of greedy episodes, one in each environment."""
    envs, policy = VectorRecall(episodes, **kwargs), Policy(actor, episodes)
    observations, _ = envs.reset(seed=seed)
    returns = np.zeros(episodes)
    for _ in range(kwargs["delay"] + 2):
        observations, rewards, *_ = envs.step(policy.greedy(observations))
        returns += rewards
    return returns.mean()


class Worker:
    """Acts with the epsilon ladder, in unrolls of consecutive steps."""

    def __init__(self, actor, spec):
        self.count, self.steps = (
            spec.workers.envs_per_worker,
            spec.workers.unroll_length,
        )
        self._envs = VectorRecall(self.count, **spec.env.kwargs)
        self._observations, _ = self._envs.reset(seed=1000)
        self._over = np.zeros(self.count, bool)
        share = np.arange(self.count) / (self.count - 1)
        options = actor.exploration_options
        self._epsilon = options["epsilon"] ** (1 + options["alpha"] * share)
        self._rng = np.random.default_rng(0)
        self.policy = Policy(actor, self.count)

    def unroll(self):
        states = {name: state.copy() for name, state in self.policy.states.items()}
        rows = [self._step() for _ in range(self.steps)]
        columns = [np.array(column) for column in zip(*rows, strict=True)]
        columns[0] = np.concatenate([columns[0], self._observations[None]])
        return columns, states

    def _step(self):
        seen, valid = self._observations, ~self._over
        greedy = self.policy.greedy(seen)
        random = self._rng.random(self.count) < self._epsilon
        others = self._rng.integers(0, self._envs.single_action_space.n, self.count)
        actions = np.where(random, others, greedy)
        self._observations, rewards, terminated, truncated, _ = self._envs.step(actions)
        self.policy.forget(valid)
        self._over = terminated | truncated
        return seen, actions, rewards.astype("<f4"), terminated, truncated, valid


def transitions(number, unroll, after, processor):
    """The batch of an unroll; returns look on into the one after it."""
    (observations, actions, *_), states = unroll
    both = [
        np.concatenate(pair) for pair in zip(unroll[0][2:], after[0][2:], strict=True)
    ]
    steps, count = actions.shape
    found = n_step(
        *both,
        num_steps=steps,
        n=processor.n_step,
        gamma=processor.gamma,
        reward_scale=processor.reward_scale,
    )
    rewards, terminated, truncated, valid = unroll[0][2:]
    return TransitionBatch(
        "e", "run", "w0", 1, number, number * steps, steps, count, NO_POLICY, 0, False,
        SourceRef("t", 0, number), processor.n_step, processor.gamma, 1.0,
        observations={"": pack(observations)},
        actions={"": pack(actions)},
        rewards=pack(rewards),
        terminated=pack(terminated),
        truncated=pack(truncated),
        valid=pack(valid),
        episodes=pack(np.zeros(count, "<i8")),
        states={name: pack(state) for name, state in states.items()},
        behaviour={},
        infos={},
        returns=pack(found.returns),
        discounts=pack(found.discounts),
        bootstrap_steps=pack(found.bootstrap_steps),
        priorities=pack(np.full((steps, count), np.nan, "<f4")),
    )  # fmt: skip


def learn(spec, target, max_batches, look_every=50):
    """Learn until two greedy evaluations reach a target; return the best and steps."""
    learner = spec.learner
    algorithm = build(description(spec.env.kwargs["cues"]), spec)
    buffer = make_experience(
        algorithm,
        description(spec.env.kwargs["cues"]),
        spec,
        learner.replay,
        unroll_length=spec.workers.unroll_length,
    )
    worker = Worker(algorithm.actor(), spec)
    before, owed, best = worker.unroll(), 0.0, 0.0
    for number in range(max_batches):
        after = worker.unroll()
        batch = transitions(number, before, after, spec.processor)
        inserted, before = buffer.insert(batch, 0, number), after
        if buffer.samplable_rows < learner.replay.min_size:
            continue
        owed += inserted * learner.samples_per_insert
        while owed > 0:
            sample = buffer.sample(
                learner.batch_size, learner.replay.beta, algorithm.rng
            )
            owed -= sample.num_rows
            result = algorithm.update(sample)
            assert result.finite
            buffer.update_priorities(sample.indices, result.td_errors)
            if algorithm.updates % learner.updates_per_policy == 0:
                worker.policy.load(algorithm.policy_tensors())
            if algorithm.updates % look_every == 0:
                actor, kwargs = algorithm.actor(), dict(spec.env.kwargs)
                found = evaluate(actor, kwargs, algorithm.updates)
                best = max(best, found)
                if found >= target and evaluate(actor, kwargs, 10**7) >= target:
                    return found, number
    return best, max_batches
