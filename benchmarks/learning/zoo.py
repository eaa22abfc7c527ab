"""What users of stable-baselines3 have tuned for it, so that it is shown at its best.

RL Baselines3 Zoo, github.com/DLR-RM/rl-baselines3-zoo, hyperparams/: dqn.yml at
019107e, ppo.yml and sac.yml at 00128b5. What is not named is its default.
"""

from __future__ import annotations

from typing import Any

_DQN = {
    "num_envs": 1,
    "hidden": [64, 64],
    "activation": "relu",
    "linear": {},
    "arguments": {
        "learning_rate": 2.5e-4,
        "batch_size": 512,
        "buffer_size": 100_000,
        "learning_starts": 0,
        "gamma": 0.99,
        "target_update_interval": 5_000,
        "train_freq": 16,
        "gradient_steps": 4,
        "exploration_fraction": 0.06,
        "exploration_final_eps": 0.11,
    },
}

TUNED: dict[str, dict[str, Any]] = {
    "cartpole-dqn": {**_DQN, "env_steps": 200_000},
    "acrobot-dqn": {**_DQN, "env_steps": 150_000},
    "cartpole-ppo": {
        "env_steps": 100_000,
        "num_envs": 8,
        "hidden": [64, 64],
        "activation": "tanh",
        "linear": {"learning_rate": 100_000, "clip_range": 100_000},
        "arguments": {
            "learning_rate": 1e-3,
            "clip_range": 0.2,
            "n_steps": 32,
            "batch_size": 256,
            "gae_lambda": 0.8,
            "gamma": 0.98,
            "n_epochs": 20,
            "ent_coef": 0.0,
        },
    },
    "pendulum-sac": {
        "env_steps": 20_000,
        "num_envs": 1,
        "hidden": [256, 256],
        "activation": "relu",
        "linear": {},
        "arguments": {"learning_rate": 1e-3},
    },
}
"""By task: what replaces the parts of a peer's job."""

_PLAIN = {"observation_scale": [], "reward_scale": 1.0, "adam_epsilon": None}


def tuned(job: dict[str, Any], task: str, evaluations: int) -> dict[str, Any]:
    """Return a peer's job with what was tuned for it instead of what we were told."""
    changes = {**_PLAIN, **TUNED[task]}
    every = max(changes["env_steps"] // evaluations, 1)
    return job | changes | {"evaluate_every": every}
