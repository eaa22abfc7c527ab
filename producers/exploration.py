"""Which environment explores how much: the Ape-X ladder."""

import numpy as np

from schemas.tensors import Array


def epsilon_ladder(
    epsilon: float, alpha: float, num_envs_total: int, first: int, num_envs: int
) -> Array:
    """Return epsilonᵢ = epsilon^(1 + alpha·i/(N-1)) of one worker's environments.

    The ladder spans all environments of all workers. (Ape-X, arXiv:1803.00933.)

    Args:
        epsilon: of environment 0, which explores most.
        alpha: how far apart the ends are.
        num_envs_total: N, of all workers; with N = 1 it is ``epsilon``.
        first: the number of this worker's first environment among the N.
        num_envs: B, how many this worker has.

    Returns:
        [B] float64.

    Raises:
        ValueError: the worker's environments are not among the N.
    """
    if not 0 <= first < first + num_envs <= num_envs_total:
        raise ValueError(
            f"expected environments within 0 to {num_envs_total - 1}, found {first} to "
            f"{first + num_envs - 1}"
        )
    i = np.arange(first, first + num_envs, dtype=np.float64)
    return np.power(epsilon, 1 + alpha * i / max(num_envs_total - 1, 1))
