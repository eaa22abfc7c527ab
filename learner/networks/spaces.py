"""The one action field that an algorithm fills, or why it cannot."""

from schemas.actions import action_problem
from schemas.records import EnvDescription, SpaceField


class UnsupportedSpace(ValueError):
    """An algorithm cannot act in, or see, such an environment."""


def discrete_action(env: EnvDescription, algorithm: str) -> SpaceField:
    """Return the one discrete action field that algorithms over q values need.

    Raises:
        UnsupportedSpace: the environment's actions are anything else.
    """
    return _action(env, algorithm, "discrete")


def box_action(env: EnvDescription, algorithm: str) -> SpaceField:
    """Return the one box of floats that algorithms with a Gaussian policy need.

    Raises:
        UnsupportedSpace: the environment's actions are anything else, or have no
            bounds where the algorithm squashes its actions to them.
    """
    return _action(env, algorithm, "box")


def _action(env: EnvDescription, algorithm: str, kind: str) -> SpaceField:
    problem = action_problem(env, algorithm, (kind,))
    if problem:
        raise UnsupportedSpace(f"learner.algorithm: {problem}")
    return env.action[0]
