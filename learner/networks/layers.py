"""What networks are made of: rows of layers, and how their weights begin."""

import itertools
from collections.abc import Sequence

from torch import nn

_ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


def mlp(inputs: int, hidden: Sequence[int], activation: str) -> nn.Sequential:
    """Return layers of ``hidden`` units, each with its activation behind it."""
    layers = list[nn.Module]()
    for width, units in itertools.pairwise((inputs, *hidden)):
        layers += [nn.Linear(width, units), _ACTIVATIONS[activation]()]
    return nn.Sequential(*layers)


def orthogonal(module: nn.Module, gain: float) -> None:
    """Make all weights of a module orthogonal, and its biases zero.

    As PPO's own: https://arxiv.org/abs/2005.12729 measures what it is worth.
    """
    for name, parameter in module.named_parameters():
        if parameter.ndim > 1:
            nn.init.orthogonal_(parameter, gain)
        elif "bias" in name:
            nn.init.zeros_(parameter)
