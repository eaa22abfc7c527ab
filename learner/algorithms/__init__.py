"""The algorithms by name; `build` makes the one that a spec asks for."""

from collections.abc import Callable

import torch

from learner.algorithms.base import Algorithm
from learner.algorithms.dqn import Dqn
from schemas.experiment import Spec
from schemas.records import EnvDescription

ALGORITHMS: dict[str, Callable[[EnvDescription, Spec], Algorithm]] = {"dqn": Dqn}
"""By the spec's ``learner.algorithm``; modules of this machine may add to it."""


def build(env: EnvDescription, spec: Spec) -> Algorithm:
    """Make the spec's algorithm for an environment (observations: single frames).

    Torch is told to use one thread: for networks this small more threads cost time,
    and results would depend on how many there are.

    Raises:
        UnsupportedSpace: it cannot act in, or see, this environment.
    """
    torch.set_num_threads(1)
    return ALGORITHMS[spec.learner.algorithm](env, spec)
