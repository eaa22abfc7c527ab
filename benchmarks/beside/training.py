"""Env steps learnt from on CartPole: our pipeline, and other libraries' training."""

from __future__ import annotations

from typing import Any

from benchmarks.beside.peer_side import SCRIPTS, peer_side
from benchmarks.beside.section import Figure, Goal, Measured, Place, Section
from benchmarks.beside.section import Side as Measurer
from benchmarks.learning import ours, theirs
from benchmarks.learning.peer_settings import rllib_job
from benchmarks.learning.results import Outcome
from benchmarks.learning.tasks import EXPERIMENTS, THROUGHPUT, Side, chosen
from benchmarks.peers import Peer
from schemas.experiment import Experiment, from_values
from schemas.spec_text import load_yaml

IMPALA, PPO = "rollstream, IMPALA", "rollstream, PPO"
RLLIB, SB3, APPO = "RLlib, IMPALA", "stable-baselines3, PPO", "Sample Factory, APPO"
_NAMES = {
    "rollstream-impala": IMPALA,
    "rollstream-ppo": PPO,
    "rllib-impala": RLLIB,
    "stable-baselines3-ppo": SB3,
}
_SEED = 1
# From the launch: our processes take some seconds until the first step.
_OURS_S, _OURS_QUICK_S = 25.0, 15.0
_THEIRS_S, _THEIRS_QUICK_S = 15.0, 5.0
# Its first steps are counted only after some seconds.
_RLLIB_QUICK_S = 12.0
# What it is fastest with on two cores: each worker's environments behind their vector
# entry point, in processes of their own.
_APPO = {"unroll": 32, "batch": 2_048, "serial": False, "batched": True, "splits": 1}

_APPO_PEER = Peer(
    "sample-factory",
    ("sample-factory==2.1.1",),
    SCRIPTS / "training_sample_factory.py",
)


def _side(learner: Side) -> Measurer:
    """Return a side of `rollstream bench learning` as one that is only timed."""

    def measure(place: Place) -> Measured:
        learn = theirs.learn if learner.peer else ours.learn
        timed = learner.lasting(seconds_of(learner, quick=place.quick))
        outcome = learn(place.settings, _TASK, timed, _SEED, place.logs, place.show)
        return measured(outcome)

    return Measurer(_NAMES[learner.name], measure, is_ours=not learner.peer)


def seconds_of(learner: Side, *, quick: bool) -> float:
    """Return how long a side runs."""
    if learner.peer == "rllib" and quick:
        return _RLLIB_QUICK_S
    if learner.peer:
        return _THEIRS_QUICK_S if quick else _THEIRS_S
    return _OURS_QUICK_S if quick else _OURS_S


def measured(outcome: Outcome) -> Measured:
    """Return an outcome's figures."""
    return Measured({"steps_per_s": outcome.steps_per_s}, outcome.versions)


def appo_job(place: Place) -> dict[str, Any]:
    """Return what Sample Factory is told: our workers, environments and network."""
    job = rllib_job(_impala(), _SEED, _THEIRS_QUICK_S if place.quick else _THEIRS_S)
    return job | _APPO


def _impala() -> Experiment:
    return from_values(load_yaml((EXPERIMENTS / "cartpole-impala.yaml").read_text()))


(_TASK,) = chosen([THROUGHPUT], quick=False)

TRAINING = Section(
    name="training",
    title="CartPole: env steps learnt from a second, while it learns",
    text=(
        "Each with 2 workers of 32 environments and an MLP of 64 and 64; "
        "stable-baselines3's PPO steps 56 in its one process. Ours are all processes "
        "of an experiment, the log between them, no evaluator. RLlib and Sample "
        "Factory have longer fragments and batches, with which they are faster. "
        "RLlib's are steps that were sampled. Of the second half of the time: "
        f"{_THEIRS_S:g} s of theirs, ours {_OURS_S:g} s with the start of its "
        "processes."
    ),
    figures=(Figure("steps_per_s", "env steps/s", "high"),),
    sides=(
        *(_side(learner) for learner in _TASK.sides),
        peer_side(APPO, _APPO_PEER, appo_job),
    ),
    goals=(
        Goal(
            "IMPALA at least 3 times as fast as RLlib's",
            lambda m: m[IMPALA]["steps_per_s"] >= 3 * m[RLLIB]["steps_per_s"],
        ),
    ),
)
