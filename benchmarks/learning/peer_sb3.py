"""One job -> stable-baselines3 learns it; runs in the peer's virtual environment.

``python peer_sb3.py JOB RESULT``: both JSON files; progress goes to stderr. It imports
nothing of ours: there is no rollstream where it runs.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BEGAN_S = time.monotonic()
BEGAN_AT_MS = time.time_ns() // 1_000_000

import numpy as np  # noqa: E402
import stable_baselines3  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402

# Its torch: ours stays in `learner`, and this does not run beside ours.
from stable_baselines3.common.torch_layers import nn  # noqa: E402
from stable_baselines3.common.vec_env import VecEnvWrapper  # noqa: E402

FRESH_SEED = 1_000_000


class Scaled(VecEnvWrapper):  # type: ignore[misc]
    """Observations and rewards multiplied as the experiment says, and counted."""

    def __init__(self, env: Any, observation: list[float], reward: float) -> None:
        super().__init__(env)
        self._observation = np.asarray(observation or [1.0], np.float32)
        self._reward = reward

    def reset(self) -> Any:
        """Begin new episodes."""
        return self._scale(self.venv.reset())

    def step_wait(self) -> Any:
        """Step; what came before a reset is scaled too."""
        observations, rewards, dones, infos = self.venv.step_wait()
        for info in infos:
            if "terminal_observation" in info:
                info["terminal_observation"] = self._scale(info["terminal_observation"])
        return self._scale(observations), rewards * self._reward, dones, infos

    def _scale(self, observations: Any) -> Any:
        return (observations * self._observation).astype(observations.dtype)


class Watch(BaseCallback):  # type: ignore[misc]
    """Evaluates now and then, notes what came of it, and ends at the target."""

    def __init__(self, job: dict[str, Any]) -> None:
        super().__init__()
        self.job = job
        self.curve: list[dict[str, float]] = []
        self.reached = False
        self.evaluating_s = 0.0
        self.steps_at: list[tuple[float, int]] = []
        self.first_step_s: float | None = None
        self._env = make_env(job, min(job["episodes"], 100), FRESH_SEED, reward=1.0)

    @property
    def wall_s(self) -> float:
        """Seconds since the launch, without evaluations."""
        return time.monotonic() - BEGAN_S - self.evaluating_s

    def _on_step(self) -> bool:
        if self.first_step_s is None:
            self.first_step_s = self.wall_s
        self.steps_at.append((self.wall_s, self.num_timesteps))
        if self.wall_s > self.job.get("seconds", float("inf")):
            return False
        every = self.job["evaluate_every"]
        if self.num_timesteps // every == self._before() // every:
            return True
        mean = self.evaluate()
        self._note(mean)
        target = self.job["target"]
        if target is not None and mean >= target:
            self.reached = self.evaluate() >= target
        return not self.reached

    def _before(self) -> int:
        return int(self.num_timesteps - self.training_env.num_envs)

    def _note(self, mean: float) -> None:
        point = {"env_steps": self.num_timesteps, "wall_s": round(self.wall_s, 3)}
        self.curve.append(
            point | {"mean_return": mean, "episodes": self.job["episodes"]}
        )
        print(
            f"env steps {self.num_timesteps:,}  return {mean:.1f}  {self.wall_s:.0f} s",
            file=sys.stderr,
            flush=True,
        )

    def evaluate(self) -> float:
        """Return the mean of fresh greedy episodes, raw rewards."""
        began_s = time.monotonic()
        returns, _ = evaluate_policy(
            self.model, self._env, self.job["episodes"], deterministic=True,
            return_episode_rewards=True, warn=False,
        )  # fmt: skip
        self.evaluating_s += time.monotonic() - began_s
        return float(np.mean(returns))


def make_env(job: dict[str, Any], num_envs: int, seed: int, *, reward: float) -> Any:
    """Return environments, scaled as the experiment says."""
    env = make_vec_env(job["env_id"], num_envs, seed, env_kwargs=job["env_kwargs"])
    return Scaled(env, job["observation_scale"], reward)


def make_model(job: dict[str, Any]) -> Any:
    """Return the algorithm with its networks, nothing learnt."""
    arguments = dict(job["arguments"])
    for name, rows in job["linear"].items():
        arguments[name] = falling(arguments[name], job["env_steps"] / rows)
    env = make_env(job, job["num_envs"], job["seed"], reward=job["reward_scale"])
    activation = {"relu": nn.ReLU, "tanh": nn.Tanh}[job["activation"]]
    policy = {"net_arch": job["hidden"], "activation_fn": activation}
    if job["adam_epsilon"] is not None:
        policy["optimizer_kwargs"] = {"eps": job["adam_epsilon"]}
    make = getattr(stable_baselines3, job["algorithm"])
    return make(
        "MlpPolicy", env, policy_kwargs=policy, seed=job["seed"], device="cpu",
        **arguments,
    )  # fmt: skip


def falling(first: float, turns: float) -> Callable[[float], float]:
    """Return what falls to 0, so many times as fast as the whole run passes."""
    return lambda left: first * max(0.0, 1 - (1 - left) * turns)


def learn(job: dict[str, Any]) -> dict[str, Any]:
    """Learn one job and return its figures."""
    model = make_model(job)
    watch = Watch(job)
    model.learn(job["env_steps"], callback=watch)
    wall_s = watch.wall_s
    return {
        "reached": watch.reached,
        "env_steps": int(model.num_timesteps),
        "updates": int(model._n_updates),
        "wall_s": round(wall_s, 3),
        "start_s": watch.first_step_s,
        "final_return": watch.evaluate(),
        "steps_per_s": rate_of_second_half(watch.steps_at),
        "curve": watch.curve,
        "extra": {"evaluating_s": round(watch.evaluating_s, 3)},
        "versions": {
            name: importlib.metadata.version(name)
            for name in ("stable-baselines3", "torch", "gymnasium", "numpy")
        },
    }


def rate_of_second_half(steps_at: list[tuple[float, int]]) -> float:
    """Return the steps a second of the later half of the time."""
    if len(steps_at) < 2:
        return 0.0
    middle_s = (steps_at[0][0] + steps_at[-1][0]) / 2
    half = [point for point in steps_at if point[0] >= middle_s]
    (began_s, first), (ended_s, last) = half[0], half[-1]
    return round((last - first) / max(ended_s - began_s, 1e-9), 1)


if __name__ == "__main__":
    found = learn(json.loads(Path(sys.argv[1]).read_text()))
    Path(sys.argv[2]).write_text(json.dumps(found))
