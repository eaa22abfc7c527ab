"""What is learnt, by whom, and for how long."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.named import named

EXPERIMENTS = Path(__file__).parents[2] / "infra" / "experiments"

OURS = "rollstream"
SB3 = "stable-baselines3"
RLLIB = "rllib"
THROUGHPUT = "cartpole-throughput"
TIMED_S = 60.0
"""How long a side runs of which only the speed is asked."""


def _wall(seconds: float) -> str:
    return f"{{wallS: {seconds:g}}}"


@dataclass(frozen=True)
class Side:
    """Who learns a task.

    Attributes:
        name: of the side, and its files.
        peer: the library; "": the pipeline.
        algorithm: of the peer's, by its class.
        experiment: whose file is run, or told to the peer; "": the task's.
        changes: what the pipeline's spec says otherwise, as ``--set``.
        stop: what ends it where there is no target to reach; "": as the spec says.
        env_steps: the most that it may take; None: as the spec says.
        evaluations: of a peer, on the way there.
        is_tuned: it is told what was tuned for it, and not what the pipeline is told.
        is_timed: nothing is evaluated: only how fast it is.
        seconds: of what is timed; not a part of its name in `told_sha256`.
    """

    name: str = OURS
    peer: str = ""
    algorithm: str = ""
    experiment: str = ""
    changes: tuple[str, ...] = ()
    stop: str = ""
    env_steps: int | None = None
    evaluations: int = 50
    is_tuned: bool = False
    is_timed: bool = False
    seconds: float = field(default=TIMED_S, repr=False)

    def lasting(self, seconds: float) -> Side:
        """Return the same, timed for so long."""
        stop = self.stop if self.peer else _wall(seconds)
        return replace(self, stop=stop, seconds=seconds)


@dataclass(frozen=True)
class Task:
    """One experiment, and who learns it.

    Attributes:
        name: of its file, too, where its sides do not name others.
        sides: in the order in which they take turns.
        quick: whether it is one of the short ones.
        most_seeds: that it is learnt with: one, where it takes long.
        modules: that register its environment: ROLLSTREAM_ENV_MODULES.
    """

    name: str
    sides: tuple[Side, ...] = (Side(),)
    quick: bool = False
    most_seeds: int | None = None
    modules: tuple[str, ...] = ()

    def told_sha256(self, side: Side) -> str:
        """Return a digest of what a side is told."""
        told = self.file(side).read_bytes() + repr(side).encode()
        return hashlib.sha256(told).hexdigest()

    def file(self, side: Side) -> Path:
        """Where the experiment of a side is."""
        return EXPERIMENTS / f"{side.experiment or self.name}.yaml"


def _beside(algorithm: str, env_steps: int, evaluations: int = 50) -> tuple[Side, ...]:
    """The pipeline, and the same algorithm of stable-baselines3."""
    peer = Side(SB3, SB3, algorithm, env_steps=env_steps, evaluations=evaluations)
    return (Side(), peer)


def _tuned(algorithm: str) -> Side:
    """The peer with the settings that its users have tuned."""
    return Side(f"{SB3}-tuned", SB3, algorithm, is_tuned=True)


def _fast(algorithm: str) -> Side:
    """The pipeline at its own speed."""
    return Side(
        f"{OURS}-{algorithm}",
        experiment=f"cartpole-{algorithm}",
        changes=(
            "spec.evaluator.replicas=0",
            "spec.learner.learningRateDecayUpdates=null",
        ),
        stop=_wall(TIMED_S),
        is_timed=True,
    )


_SPEEDS = (
    _fast("impala"),
    _fast("ppo"),
    Side(
        "rllib-impala", RLLIB, "IMPALA", "cartpole-impala", stop="none", is_timed=True
    ),
    Side(
        f"{SB3}-ppo",
        SB3,
        "PPO",
        "cartpole-ppo",
        stop="none",
        env_steps=1_000_000,
        is_timed=True,
    ),
)

# Q-learning of the same size that sees one observation alone: it cannot know the cue.
_WITHOUT_MEMORY = Side(
    f"{OURS}-dqn",
    changes=(
        "spec.learner.algorithm=dqn",
        "spec.learner.network.lstm=0",
        "spec.learner.r2d2={}",
        "spec.learner.batchSize=128",
    ),
    env_steps=200_000,
)

# Far from what they could learn: that they run, how fast, and first signs.
_HOPS = "{envSteps: 30000}"
_HOPPERS = (
    Side(stop=_HOPS),
    Side(SB3, SB3, "SAC", stop=_HOPS, env_steps=30_000, evaluations=10),
)
_PONG = Side(stop="{wallS: 600}")

# A peer that does not reach the target goes on to its limit: what it needs where it
# learns the task at all, and some more.
TASKS: tuple[Task, ...] = (
    Task("cartpole-dqn", (*_beside("DQN", 1_000_000), _tuned("DQN")), quick=True),
    Task("cartpole-dqn-reuse", _beside("DQN", 1_000_000), quick=True),
    Task("cartpole-ppo", (*_beside("PPO", 500_000), _tuned("PPO")), quick=True),
    Task("cartpole-impala", quick=True),
    Task("acrobot-ppo", _beside("PPO", 1_000_000)),
    Task("acrobot-dqn", (*_beside("DQN", 500_000), _tuned("DQN"))),
    Task("pendulum-sac", (*_beside("SAC", 60_000), _tuned("SAC")), quick=True),
    Task("memory-r2d2", (Side(), _WITHOUT_MEMORY)),
    Task("hopper-sac", _HOPPERS),
    Task("pong-dqn", (_PONG,), most_seeds=1, modules=("ale_py",)),
    Task(THROUGHPUT, _SPEEDS, quick=True),
)


def chosen(names: list[str], *, quick: bool) -> list[Task]:
    """Return the tasks of some names; of none: all, or the quick ones.

    Raises:
        ValueError: there is no such task.
    """
    if names:
        return named(TASKS, names, "tasks")
    return [task for task in TASKS if task.quick or not quick]
