"""The algorithms by name; `build` makes the one that a spec asks for."""

from collections.abc import Callable

import torch

from infra.errors import RollstreamError
from learner.algorithms.base import Algorithm
from learner.algorithms.dqn import Dqn
from learner.algorithms.impala import Impala
from learner.algorithms.ppo import Ppo
from learner.algorithms.r2d2 import R2d2
from learner.algorithms.sac import Sac
from schemas.experiment import Spec
from schemas.records import EnvDescription

ALGORITHMS: dict[str, Callable[[EnvDescription, Spec], Algorithm]] = {
    "dqn": Dqn,
    "impala": Impala,
    "ppo": Ppo,
    "r2d2": R2d2,
    "sac": Sac,
}
"""By the spec's ``learner.algorithm``; modules of this machine may add to it."""


class UnknownAlgorithm(RollstreamError):
    """The spec's algorithm is neither ours nor of a module of this machine."""


def build(env: EnvDescription, spec: Spec) -> Algorithm:
    """Make the spec's algorithm for an environment (observations: single frames).

    Torch is told to use one thread: for networks this small more threads cost time,
    and results would depend on how many there are.

    Raises:
        UnsupportedSpace: it cannot act in, or see, this environment.
        UnknownAlgorithm: no module of this machine has it.
    """
    torch.set_num_threads(1)
    name = spec.learner.algorithm
    if name not in ALGORITHMS:
        raise UnknownAlgorithm(
            f"learner.algorithm: expected one of {', '.join(sorted(ALGORITHMS))}, "
            f"found {name!r}",
            "name the module that adds it in ROLLSTREAM_LEARNER_MODULES",
        )
    return ALGORITHMS[name](env, spec)
