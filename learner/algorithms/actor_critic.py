"""What PPO and IMPALA have in common: network, optimiser, unrolls as tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from infra.errors import RollstreamError
from learner.algorithms.base import (
    Actor,
)
from learner.algorithms.trained import Trained
from learner.algorithms.training import (
    as_tensors,
    learning_rate,
    seeded,
)
from learner.networks import PolicyValueNetwork, UnsupportedSpace
from learner.policy_heads import PolicyHead, policy_head
from learner.sample import Sequences
from schemas.actions import action_problem
from schemas.algorithms import LearnsFrom
from schemas.experiment import Spec
from schemas.records import EnvDescription, SpaceField
from schemas.tensors import Array


class NoBehaviour(RollstreamError):
    """Experience does not say how probable its actions were."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """Sequences as tensors, with n = 1; see `learner.sample.Sequences`.

    Attributes:
        observations: by field name, [L+1, N, ...]; zeros where nothing looks at them.
        states: before row 0, by name, [N, ...].
        taken: what was sampled from the behaviour policy, [L, N, ...].
        log_probs: of that, by the behaviour policy, [L, N].
        returns: rewards, [L, N].
        discounts: [L, N].
        valid: [L, N] bool.
    """

    observations: Mapping[str, Tensor]
    states: Mapping[str, Tensor]
    taken: Tensor
    log_probs: Tensor
    returns: Tensor
    discounts: Tensor
    valid: Tensor


def open_rollout(
    sequences: Sequences, head: PolicyHead, device: torch.device
) -> Rollout:
    """Return sequences as tensors on a device.

    Raises:
        NoBehaviour: they have no ``log_prob``.
    """
    log_probs = sequences.behaviour.get("log_prob")
    if log_probs is None:
        raise NoBehaviour(
            "behaviour: expected log_prob, found "
            f"{', '.join(sorted(sequences.behaviour)) or 'nothing'}",
            "an on-policy algorithm learns from its own workers alone",
        )
    seen = _looked_at(sequences)
    columns = as_tensors(
        {
            "taken": head.taken(sequences),
            "log_probs": log_probs,
            "returns": sequences.returns,
            "discounts": sequences.discounts,
            "valid": sequences.valid,
        },
        device,
    )
    observations = {
        name: _zero_others(array, seen)
        for name, array in sequences.observations.items()
    }
    return Rollout(
        observations=as_tensors(observations, device),
        states=as_tensors(sequences.states, device),
        **columns,
    )


def _looked_at(sequences: Sequences) -> Array:
    """Whether an observation is acted in, or bootstrapped from: [L+1, N] bool."""
    seen = np.zeros((len(sequences.valid) + 1, *sequences.valid.shape[1:]), np.bool_)
    seen[:-1] |= sequences.valid
    seen[1:] |= sequences.valid & (sequences.discounts != 0)
    return seen


def _zero_others(observations: Array, seen: Array) -> Array:
    """What is not finite where nobody looks would still make gradients NaN: 0 * NaN."""
    if observations.dtype.kind != "f" or seen.all():
        return observations
    wide = seen.reshape(*seen.shape, *(1,) * (observations.ndim - 2))
    return np.where(wide, observations, np.zeros((), observations.dtype))


class ActorCritic(Trained):
    """A policy and a value that are learnt from unrolls: all but the update."""

    learns_from: LearnsFrom = "unrolls"
    sequence_length = 1

    def __init__(self, env: EnvDescription, spec: Spec) -> None:
        """Make the network, from the spec's seed.

        Raises:
            UnsupportedSpace: actions are neither one Discrete nor one Box, or the
                observations have no place in the network.
        """
        super().__init__(env, spec)
        learner = spec.learner
        self._action = _one_action(env, learner.algorithm)
        self._head = policy_head(self._action)
        with seeded(spec.seed):
            network = PolicyValueNetwork(
                self._observation, self._action, learner.network
            )
        self._network = network.to(self._device)
        self._optimiser = self._adam(self._network, learner.learning_rate)
        self._modules = {"network": self._network}
        self._optimisers = {"optimiser": self._optimiser}

    def _open(self, sequences: Sequences) -> Rollout:
        return open_rollout(sequences, self._head, self._device)

    def _descend(self, loss: Tensor) -> float:
        """Take one step; return the gradient's norm, of which the caller judges."""
        self._optimiser.learning_rate = learning_rate(self._spec.learner, self.updates)
        return self._optimiser.step(loss) if torch.isfinite(loss) else float("nan")

    def actor(self) -> Actor:
        """Return the network, whose distribution is sampled from."""
        is_gaussian = self._head.name == "gaussian"
        return Actor(
            module=self._network,
            head=self._head.name,
            exploration="sample",
            exploration_options={"squashed": 0.0} if is_gaussian else {},
            observation=self._observation,
            action=(self._action,),
            states=self._network.states,
        )


def _one_action(env: EnvDescription, algorithm: str) -> SpaceField:
    problem = action_problem(env, algorithm, ("discrete", "box"))
    if problem:
        raise UnsupportedSpace(f"learner.algorithm: {problem}")
    return env.action[0]
