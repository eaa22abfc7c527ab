"""A spec -> what stable-baselines3 is told, so that both are told the same; pure.

What it has no word for (priorities, double Q, a separate learning rate of SAC's actor)
stays as it is there.
"""

from __future__ import annotations

from typing import Any

from schemas.experiment import Experiment, Spec

_RLLIB_FRAGMENT, _RLLIB_BATCH = 64, 2_048


def peer_job(
    experiment: Experiment, algorithm: str, seed: int, env_steps: int, evaluations: int
) -> dict[str, Any]:
    """Return all that the peer's process has to know, ready for JSON.

    Args:
        experiment: ours.
        algorithm: the peer's class.
        seed: of networks and environments.
        env_steps: the most that it may take.
        evaluations: on the way there.
    """
    spec = experiment.spec
    make = {"DQN": _dqn, "PPO": _ppo, "SAC": _sac}[algorithm]
    num_envs, arguments = make(spec)
    network = spec.learner.network
    return {
        "algorithm": algorithm,
        "env_id": spec.env.id,
        "env_kwargs": dict(spec.env.kwargs),
        "num_envs": num_envs,
        "seed": seed,
        "env_steps": env_steps,
        "target": spec.stop.mean_return,
        "episodes": spec.evaluator.episodes,
        "evaluate_every": max(env_steps // evaluations, 1),
        "hidden": list(network.hidden),
        "activation": network.activation,
        "adam_epsilon": spec.learner.adam_epsilon,
        "observation_scale": list(network.observation_scale),
        "reward_scale": spec.processor.reward_scale,
        "arguments": arguments,
        "linear": _linear(spec),
    }


def turns(rows_per_update: float, most_envs: int) -> tuple[int, int, int]:
    """Return environments, steps and updates a turn, for so many rows an update.

    Of the divisors of that number the largest that is no more than ``most_envs``; a
    turn of less than one row an update has one environment and several updates.
    """
    if rows_per_update < 1:
        return 1, 1, round(1 / rows_per_update)
    rows = round(rows_per_update)
    envs = max(n for n in range(1, min(rows, most_envs) + 1) if rows % n == 0)
    return envs, rows // envs, 1


def _off_policy(spec: Spec) -> tuple[int, dict[str, Any]]:
    learner = spec.learner
    rows = learner.batch_size / learner.samples_per_insert
    all_envs = spec.workers.replicas * spec.workers.envs_per_worker
    num_envs, train_freq, gradient_steps = turns(rows, all_envs)
    arguments = {
        "learning_rate": learner.learning_rate,
        "buffer_size": learner.replay.capacity,
        "learning_starts": learner.replay.min_size,
        "batch_size": learner.batch_size,
        "gamma": spec.processor.gamma,
        "train_freq": train_freq,
        "gradient_steps": gradient_steps,
        "n_steps": spec.processor.n_step,
    }
    return num_envs, arguments


def _dqn(spec: Spec) -> tuple[int, dict[str, Any]]:
    num_envs, arguments = _off_policy(spec)
    learner = spec.learner
    rows = learner.batch_size / learner.samples_per_insert
    period = learner.target_update_period * rows  # in env steps there
    return num_envs, arguments | {
        "target_update_interval": max(round(period), 1),
        "max_grad_norm": learner.max_grad_norm,
        # It has no ladder: one epsilon for all, over the first tenth.
        "exploration_initial_eps": 1.0,
        "exploration_fraction": 0.1,
        "exploration_final_eps": 0.05,
    }


def _sac(spec: Spec) -> tuple[int, dict[str, Any]]:
    num_envs, arguments = _off_policy(spec)
    sac = spec.learner.sac
    automatic = f"auto_{sac.initial_temperature:g}"
    return num_envs, arguments | {
        "tau": sac.tau,
        "ent_coef": sac.initial_temperature if sac.fixed_temperature else automatic,
        "target_entropy": "auto" if sac.target_entropy is None else sac.target_entropy,
    }


def _ppo(spec: Spec) -> tuple[int, dict[str, Any]]:
    learner, gradient = spec.learner, spec.learner.policy_gradient
    length = spec.workers.unroll_length
    arguments = {
        "learning_rate": learner.learning_rate,
        "n_steps": length,
        "batch_size": learner.ppo.minibatch_size,
        "n_epochs": learner.ppo.epochs,
        "gamma": spec.processor.gamma,
        "gae_lambda": gradient.trace_lambda,
        "clip_range": learner.ppo.clip,
        "clip_range_vf": learner.ppo.value_clip or None,
        "normalize_advantage": gradient.normalise_advantages,
        "ent_coef": gradient.entropy_cost,
        "vf_coef": gradient.value_cost,
        "max_grad_norm": learner.max_grad_norm,
        "target_kl": learner.ppo.target_kl or None,
    }
    return max(learner.batch_size // length, 1), arguments


def _linear(spec: Spec) -> dict[str, int]:
    """Return, by argument, the env steps over which it falls to 0."""
    learner = spec.learner
    updates = learner.learning_rate_decay_updates
    if updates is None:
        return {}
    rows = learner.batch_size / learner.samples_per_insert
    return {"learning_rate": round(updates * rows)}


def rllib_job(experiment: Experiment, seed: int, seconds: float) -> dict[str, Any]:
    """Return what RLlib's IMPALA is told: our workers, environments and network.

    Its fragments and batches are at least as long as it is fast with: with our short
    ones, which cost us little, it would be shown slower than it is.
    """
    spec = experiment.spec
    return {
        "env_id": spec.env.id,
        "workers": spec.workers.replicas,
        "envs": spec.workers.envs_per_worker,
        "unroll": max(spec.workers.unroll_length, _RLLIB_FRAGMENT),
        "batch": max(spec.learner.batch_size, _RLLIB_BATCH),
        "learning_rate": spec.learner.learning_rate,
        "hidden": list(spec.learner.network.hidden),
        "seconds": seconds,
        "seed": seed,
    }
