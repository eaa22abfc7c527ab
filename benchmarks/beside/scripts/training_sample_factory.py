"""Sample Factory's APPO on CartPole for some seconds: ``script JOB FOUND``."""

from __future__ import annotations

import tempfile
import time
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner

from benchmarks.beside.scripts.job import do_job, found
from benchmarks.beside.scripts.rates import rate_of_second_half


class Watch(AlgoObserver):  # type: ignore[misc]
    """Notes the steps learnt from, and ends the run so long after the first ones.

    Its own limit of seconds is never reached: they are not counted.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.told: list[tuple[float, int]] = []

    def on_training_step(self, runner: Runner, _: int) -> None:
        """Note what one more batch has come to."""
        steps = sum(runner.env_steps.values())
        self.told.append((time.monotonic(), steps))
        if self.told[-1][0] - self.told[0][0] > self._seconds:
            runner.cfg.train_for_env_steps = 0


class SideBySide(gym.Env[Any, Any]):
    """Environments behind their vector entry point, as agents of one environment."""

    is_multiagent = True
    metadata: dict[str, Any] = {}  # noqa: RUF012 - as the class has it

    def __init__(self, name: str, num_envs: int) -> None:
        self._envs = gym.make_vec(name, num_envs, vectorization_mode="custom")
        self.num_agents = num_envs
        self.observation_space = self._envs.single_observation_space
        self.action_space = self._envs.single_action_space

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes: observations [N, 4]."""
        observations, _ = self._envs.reset(seed=arguments.get("seed"))
        return observations.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all; those that are over begin anew by themselves."""
        observations, rewards, terminated, truncated, _ = self._envs.step(
            np.asarray(action)
        )
        return observations.astype(np.float32), rewards, terminated, truncated, {}


def make_env(num_envs: int, name: str, *_: Any, **__: Any) -> SideBySide:
    """Return what one worker steps at once; it is called in each."""
    return SideBySide(name, num_envs)


def arguments(job: dict[str, Any], directory: str) -> list[str]:
    """Return what its command line would be told."""
    wanted: dict[str, Any] = {
        "algo": "APPO",
        "env": job["env_id"],
        "experiment": "bench",
        "train_dir": directory,
        "restart_behavior": "overwrite",
        "device": "cpu",
        "seed": job["seed"],
        "serial_mode": job["serial"],
        "async_rl": not job["serial"],
        "num_workers": job["workers"],
        "num_envs_per_worker": job["splits"],
        "worker_num_splits": job["splits"],
        "batched_sampling": job["batched"],
        "policy_workers_per_policy": 1,
        "rollout": job["unroll"],
        "batch_size": job["batch"],
        "num_batches_per_epoch": 1,
        "num_epochs": 1,
        "learning_rate": job["learning_rate"],
        "encoder_mlp_layers": job["hidden"],
        "nonlinearity": "tanh",
        "use_rnn": False,
        "normalize_input": False,
        "normalize_returns": False,
        "with_vtrace": False,  # as in its own example
        "reward_scale": 0.1,
        "save_every_sec": 100_000,
        "train_for_env_steps": 1_000_000_000,
    }
    words = []
    for name, value in wanted.items():
        values = value if isinstance(value, list) else [value]
        words += [f"--{name}", *map(str, values)]
    return words


def learn(job: dict[str, Any]) -> dict[str, Any]:
    """Learn for so many seconds and return the figures of the second half."""
    num_envs = job["envs"] // job["splits"]
    register_env(job["env_id"], partial(make_env, num_envs))
    watch = Watch(job["seconds"])
    with tempfile.TemporaryDirectory() as directory:
        parser, _ = parse_sf_args(arguments(job, directory))
        config = parse_full_cfg(parser, arguments(job, directory))
        _, runner = make_runner(config)
        runner.register_observer(watch)
        runner.init()
        runner.run()
    figures = {"steps_per_s": rate_of_second_half(watch.told)}
    return found(figures, "sample-factory", "torch", "gymnasium", "numpy")


if __name__ == "__main__":
    do_job(learn)
