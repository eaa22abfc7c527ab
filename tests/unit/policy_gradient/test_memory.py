"""Recurrent policies: what was seen four steps ago decides."""

import copy

import numpy as np
import pytest
import torch

from learner.algorithms import build
from learner.sample import Sequences
from tests.unit.learner_specs import box, discrete, environment, spec

ENVS, STEPS, LENGTH = 128, 12, 4
PERIOD = LENGTH + 1  # and a reset row
"""Unrolls end in the middle of episodes: their successors begin with a state."""
SETTINGS = {
    "ppo": {"ppo": {"epochs": 4, "minibatchSize": 512}},
    "impala": {"policyGradient": {"traceLambda": 1.0}},
}


class Recall:
    """A cue of -1 or 1, then zeros; the last action is right where it says which."""

    def __init__(self):
        self._rng, self._step = np.random.default_rng(0), 0
        self._cues = self._draw()
        self._states = {
            n: torch.zeros(ENVS, 16) for n in ("h", "c", "value_h", "value_c")
        }
        self.share_right = 0.0

    def _draw(self):
        return self._rng.integers(0, 2, ENVS)

    def _seen(self):
        shown = self._step % PERIOD == 0
        return np.float32((2 * self._cues - 1) * shown)[:, None]

    def unroll(self, policy):
        states = {name: state.numpy() for name, state in self._states.items()}
        rows = [self._act(policy) for _ in range(STEPS)]
        seen, actions, log_prob, rewards, valid = map(np.array, zip(*rows, strict=True))
        ends = np.arange(self._step - STEPS, self._step) % PERIOD == LENGTH - 1
        shape = (STEPS, ENVS)
        return Sequences(
            indices=np.arange(ENVS),
            weights=np.ones(ENVS, np.float32),
            observations={"": np.concatenate([seen, self._seen()[None]])},
            actions={"": actions},
            returns=rewards,
            discounts=np.broadcast_to(
                np.where(ends, 0, 0.9).astype(np.float32)[:, None], shape
            ).copy(),
            bootstrap_steps=np.ones(shape, np.int32),
            valid=valid,
            states=states,
            behaviour={"log_prob": log_prob},
        )

    def _act(self, policy):
        seen, at = self._seen(), self._step % PERIOD
        with torch.no_grad():
            outputs = policy({"": torch.from_numpy(seen)}, self._states)
            log_probs = torch.log_softmax(outputs["logits"], 1).numpy()
        actions = (self._rng.random(ENVS) < np.exp(log_probs[:, 1])).astype(np.int64)
        right = actions == self._cues
        if at == LENGTH - 1:
            self.share_right = right.mean()
        rewards = np.float32(right & (at == LENGTH - 1))
        valid = np.full(ENVS, at != LENGTH)
        self._states = {n: outputs[f"next_state/{n}"] for n in self._states}
        if at == LENGTH:
            self._cues = self._draw()
            self._states = {n: torch.zeros(ENVS, 16) for n in self._states}
        self._step += 1
        return seen, actions, log_probs[np.arange(ENVS), actions], rewards, valid


@pytest.mark.parametrize("name", ["ppo", "impala"])
def test_remembers_what_it_has_seen(name):
    env = environment(box((1,)), action=discrete(2))
    algorithm = build(env, spec(
        {"nStep": 1, "gamma": 0.9}, algorithm=name, learningRate=0.01, maxGradNorm=0.5,
        network={"hidden": [16], "lstm": 16, "activation": "tanh"}, **SETTINGS[name],
    ))  # fmt: skip
    task, module, shares = Recall(), algorithm.actor().module, []
    policy = copy.deepcopy(module)
    waiting = task.unroll(policy)
    for _ in range(150):
        following = task.unroll(policy)
        assert algorithm.update(waiting).finite
        policy.load_state_dict(module.state_dict())
        waiting = following
        shares.append(task.share_right)
        if np.mean(shares[-5:]) >= 0.95:
            return
    pytest.fail(f"expected 95 % right, found {np.mean(shares[-5:]):.0%}")
