"""Double DQN with n-step returns, prioritised replay and a hard target network.

    yₜ = Rₜ + Γₜ Q'(sₜ₊ₘ, argmaxₐ Q(sₜ₊ₘ, a)),   loss = mean wₜ huber(Q(sₜ, aₜ) - yₜ)

R and Γ are the record's ``returns`` and ``discounts``. https://arxiv.org/abs/1509.06461
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from learner.algorithms.base import (
    Actor,
    AlgorithmState,
    UpdateResult,
    actor_tensors,
    prefixed,
    restore_tensors,
    without_prefix,
)
from learner.networks import QNetwork, discrete_action
from learner.optimiser import FlatAdam, flatten_parameters
from learner.sample import Sample
from schemas.algorithms import LearnsFrom
from schemas.experiment import Spec
from schemas.records import EnvDescription
from schemas.sizes import stacked
from schemas.tensors import Array


class Dqn:
    """The algorithm ``dqn``: see `learner.algorithms.base.Algorithm`."""

    learns_from: LearnsFrom = "transitions"
    sequence_length = 1

    def __init__(self, env: EnvDescription, spec: Spec) -> None:
        """Make the networks, from the spec's seed.

        Raises:
            UnsupportedSpace: the actions are not one Discrete, or the observations
                have no place in the network.
        """
        self._spec = spec
        learner = spec.learner
        self._action = discrete_action(env, "dqn")
        frames = spec.env.frame_stack
        self._observation = tuple(stacked(f, frames) for f in env.observation)
        self._device = choose_device(learner.device)
        self._network = self._make_network()
        self._target = self._make_network()
        self._optimiser = FlatAdam(
            self._network,
            learning_rate=learner.learning_rate,
            epsilon=learner.adam_epsilon,
            max_grad_norm=learner.max_grad_norm,
        )
        self._target_parameters = flatten_parameters(self._target)
        self._target.requires_grad_(False)
        self.rng = np.random.default_rng(spec.seed)
        self.updates = 0

    def _make_network(self) -> QNetwork:
        with torch.random.fork_rng(devices=[]):  # twice from the seed: the same
            torch.manual_seed(self._spec.seed)
            network = QNetwork(
                self._observation, self._action.n[0], self._spec.learner.network
            )
        return network.to(self._device)

    def update(self, sample: Sample) -> UpdateResult:
        """Learn from one sample; leaves everything as it was when not finite."""
        td_errors = self._td_errors(sample)
        weights = self._tensor(sample.weights)
        loss = (weights * F.huber_loss(
            td_errors, torch.zeros_like(td_errors), reduction="none"
        )).mean()  # fmt: skip
        value, norm = float(loss.detach()), float("nan")
        if np.isfinite(value):
            norm = self._optimiser.step(loss)
        finite = bool(np.isfinite(norm))
        if finite:
            self.updates += 1
            if self.updates % self._spec.learner.target_update_period == 0:
                self._target_parameters.copy_(self._optimiser.parameters)
        return UpdateResult(td_errors.detach().cpu().numpy(), value, norm, finite)

    def _td_errors(self, sample: Sample) -> Tensor:
        """Q(s, a) - y of each row [N]."""
        with torch.no_grad():
            after = self._tensors(sample.bootstrap_observations)
            q_target = self._target(after)["q"]
            chooser = self._network(after)["q"] if self._double else q_target
            best = q_target.gather(1, chooser.argmax(1, keepdim=True)).squeeze(1)
            discounts = self._tensor(sample.discounts)
            targets = self._tensor(sample.returns) + discounts * best
        q = self._network(self._tensors(sample.observations))["q"]
        actions = self._tensor(sample.actions[self._action.name]).to(torch.int64)
        chosen = actions - (self._action.start or (0,))[0]
        errors: Tensor = q.gather(1, chosen[:, None]).squeeze(1) - targets
        return errors

    @property
    def _double(self) -> bool:
        return self._spec.learner.double

    def _tensor(self, array: Array) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def _tensors(self, arrays: Mapping[str, Array]) -> dict[str, Tensor]:
        return {name: self._tensor(array) for name, array in arrays.items()}

    def actor(self) -> Actor:
        """Return the q network and the Ape-X ladder of random actions."""
        exploration = self._spec.workers.exploration
        return Actor(
            module=self._network,
            head="q",
            exploration="epsilon_ladder",
            exploration_options={
                "epsilon": exploration.epsilon,
                "alpha": exploration.alpha,
            },
            observation=self._observation,
            action=(self._action,),
        )

    def policy_tensors(self) -> dict[str, Array]:
        """Return copies of the actor's parameters and buffers by name."""
        tensors = actor_tensors(self._network)
        return {name: t.detach().cpu().numpy().copy() for name, t in tensors.items()}

    def state_dict(self) -> AlgorithmState:
        """Return copies of everything that must survive."""
        return AlgorithmState(
            tensors=prefixed("network/", self._network.state_dict())
            | prefixed("target/", self._target.state_dict())
            | prefixed("optimiser/", self._optimiser.state_dict()),
            values={"updates": self.updates, "rng": self.rng.bit_generator.state},
        )

    def load_state_dict(self, state: AlgorithmState) -> None:
        """Go on from a state; raises ValueError when it is of another network."""
        restore_tensors(self._network, without_prefix("network/", state.tensors))
        restore_tensors(self._target, without_prefix("target/", state.tensors))
        self._optimiser.load_state_dict(without_prefix("optimiser/", state.tensors))
        self.updates = int(state.values["updates"])
        self.rng.bit_generator.state = state.values["rng"]


def choose_device(name: str) -> torch.device:
    """Return the device of a spec; ``auto``: a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
