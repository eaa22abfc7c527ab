"""A network as the spec describes it -> its parameters, and what it computes; pure.

The same layers as in ``learner/networks``, counted: a test compares both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from schemas.images import Image, encoder_of, image_of
from schemas.learner_specs import LearnerSpec, NetworkSpec
from schemas.records import SpaceField
from schemas.sizes import flat_size


@dataclass(frozen=True)
class NetworkCost:
    """What some layers are.

    Attributes:
        parameters: weights and biases.
        flops: floating-point operations forward, for one observation: two for each
            product that is added up.
    """

    parameters: int = 0
    flops: int = 0

    def __add__(self, other: NetworkCost) -> NetworkCost:
        return NetworkCost(self.parameters + other.parameters, self.flops + other.flops)


def acting_cost(
    learner: LearnerSpec, observation: Sequence[SpaceField], action: SpaceField
) -> NetworkCost:
    """Return what a worker computes for a step: the published actor.

    Args:
        learner: its network and algorithm.
        observation: the fields as the network sees them, stacked.
        action: the field that it fills.
    """
    torso, width = _torso(observation, learner.network)
    outputs = _action_numbers(action)
    if learner.algorithm == "sac":
        return torso + _linear(width, 2 * outputs)
    if learner.traits.is_on_policy:
        value = torso if learner.network.separate_value else NetworkCost()
        return torso + value + _linear(width, outputs) + _linear(width, 1)
    kind = learner.distribution.kind
    atoms = 1 if kind == "none" else learner.distribution.atoms
    return torso + _linear(width, (outputs + learner.network.dueling) * atoms)


def training_flops(
    learner: LearnerSpec, observation: Sequence[SpaceField], action: SpaceField
) -> float:
    """Return the operations that learning from one row once takes.

    Backward counts twice forward. Value-based: the network there and back, the target's
    values, and with ``double`` the network's choice. SAC: policy and two critics there
    and back for their losses, the critics' targets. PPO: ``epochs`` times there and
    back, and the values once.
    """
    forward = acting_cost(learner, observation, action).flops
    if learner.algorithm == "sac":
        critics = 2 * _critic(learner.network, observation, action).flops
        return 4.0 * forward + 7.0 * critics
    if learner.algorithm == "ppo":
        return (3.0 * learner.ppo.epochs + 1) * forward
    if learner.traits.is_on_policy:
        return 4.0 * forward
    return (5.0 if learner.double else 4.0) * forward


def gradient_steps(learner: LearnerSpec) -> float:
    """Return how many steps of the optimiser ``batchSize`` rows are good for.

    SAC's update has three losses and optimisers, and takes as long as 3.5 of DQN's.
    """
    if learner.algorithm == "sac":
        return 3.5
    if learner.algorithm != "ppo":
        return 1.0
    minibatches = -(-learner.batch_size // learner.ppo.minibatch_size)
    return float(learner.ppo.epochs * minibatches)


def _critic(
    network: NetworkSpec, observation: Sequence[SpaceField], action: SpaceField
) -> NetworkCost:
    encoded, width = _encoder(observation, network)
    body, width = _mlp(width + math.prod(action.shape), network.hidden)
    return encoded + body + _linear(width, 1)


def _torso(
    observation: Sequence[SpaceField], network: NetworkSpec
) -> tuple[NetworkCost, int]:
    encoded, width = _encoder(observation, network)
    body, width = _mlp(width, network.hidden)
    cost = encoded + body
    if network.lstm:
        units = network.lstm
        products = 4 * units * (width + units)
        cost += NetworkCost(products + 8 * units, 2 * products)
        width = units
    return cost, width


def _encoder(
    observation: Sequence[SpaceField], network: NetworkSpec
) -> tuple[NetworkCost, int]:
    cost, width = NetworkCost(), 0
    for field in observation:
        image = image_of(field)
        kind = encoder_of(image, network.image_encoder) if image else "flat"
        if image is None or kind == "flat":
            width += flat_size(field)
            continue
        one, features = _nature(image) if kind == "nature" else _impala(image)
        cost, width = cost + one, width + features
    return cost, width


def _mlp(width: int, hidden: Sequence[int]) -> tuple[NetworkCost, int]:
    cost = NetworkCost()
    for units in hidden:
        cost, width = cost + _linear(width, units), units
    return cost, width


def _linear(inputs: int, outputs: int) -> NetworkCost:
    return NetworkCost((inputs + 1) * outputs, 2 * inputs * outputs)


def _convolution(
    channels: int, wide: int, kernel: int, height: int, width: int
) -> NetworkCost:
    products = channels * kernel * kernel * wide
    return NetworkCost(products + wide, 2 * products * height * width)


def _nature(image: Image) -> tuple[NetworkCost, int]:
    cost, channels = NetworkCost(), image.channels
    height, width = image.height, image.width
    for wide, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
        height, width = ((n - kernel) // stride + 1 for n in (height, width))
        cost += _convolution(channels, wide, kernel, height, width)
        channels = wide
    return cost + _linear(channels * height * width, 512), 512


def _impala(image: Image) -> tuple[NetworkCost, int]:
    cost, channels = NetworkCost(), image.channels
    height, width = image.height, image.width
    for wide in (16, 32, 32):
        cost += _convolution(channels, wide, 3, height, width)
        height, width = math.ceil(height / 2), math.ceil(width / 2)
        for _ in range(4):
            cost += _convolution(wide, wide, 3, height, width)
        channels = wide
    return cost + _linear(channels * height * width, 256), 256


def _action_numbers(action: SpaceField) -> int:
    """Return how many outputs an action is chosen with."""
    return math.prod(action.shape) if action.kind == "box" else sum(action.n)
