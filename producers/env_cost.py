"""An environment, stepped here for a second -> what a step costs, and its bytes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from infra.settings import Settings
from producers.environments import make_environments
from producers.guarded_env import Environments
from producers.packing import Packing
from producers.random_policy import draw
from producers.seeding import StreamSeeds
from producers.spaces import Fields
from producers.watchdog import Watchdog
from schemas.encoding_spec import EncodingSpec
from schemas.experiment import EnvSpec
from schemas.tensors import Array

# Each takes room and time to make, and more of those that step one by one tell nothing
# new.
_MOST_ENVS = {"vector_entry_point": 4_096, "sync": 8}
_SAMPLED_STEPS = 33
_DRAWN_STEPS = 64


@dataclass(frozen=True)
class EnvCost:
    """What was found.

    Attributes:
        us_per_step: CPU microseconds of one environment's step.
        pack_us: of packing a step's observation for the wire.
        valid_share: of the rows those that are steps; the others are resets.
        packed_share: size of the observations on the wire / in memory.
    """

    us_per_step: float
    pack_us: float
    valid_share: float
    packed_share: float


def measure_environment(
    spec: EnvSpec,
    num_envs: int,
    settings: Settings,
    seconds: float = 1.0,
    encoding: EncodingSpec | None = None,
) -> EnvCost:
    """Step an environment at random and see what it takes of this process's CPU.

    What runs in processes of its own in a worker runs here, as it costs the same. Call
    from the main thread.

    Args:
        spec: which.
        num_envs: of a worker.
        settings: modules of environments.
        seconds: how long; one step at least.
        encoding: of observations; None: what pays.

    Raises:
        EnvRefused, SpaceRefused: it cannot be used.
        EnvFailed: it does not start, or fails again and again.
    """
    if spec.vectorization == "async":
        spec = spec.model_copy(update={"vectorization": "sync"})
    watchdog = Watchdog(spec.step_timeout_s)
    try:
        environments = make_environments(spec, 1, settings, watchdog)
        num_envs = min(num_envs, _MOST_ENVS[environments.vectorization])
        if num_envs > 1:
            environments.close()
            environments = make_environments(spec, num_envs, settings, watchdog)
        try:
            return _measure(environments, seconds, Packing(encoding))
        finally:
            environments.close()
    finally:
        watchdog.close()


def _measure(environments: Environments, seconds: float, packing: Packing) -> EnvCost:
    seen = [_copied(environments.reset(StreamSeeds(0, 0, 0)))]
    num_envs, steps, over = environments.num_envs, 0, 0
    actions = _actions(environments)
    began_s, cpu_s = time.monotonic(), 0.0
    while not steps or time.monotonic() - began_s < seconds:
        chosen = {name: drawn[steps % _DRAWN_STEPS] for name, drawn in actions.items()}
        before_s = time.process_time()
        step = environments.step(chosen)
        cpu_s += time.process_time() - before_s
        steps += 1
        over += int(np.count_nonzero(step.terminated | step.truncated))
        if len(seen) < _SAMPLED_STEPS:
            seen.append(_copied(step.observations))
    pack_us, packed_share = _packed(seen, packing)
    rows = steps * num_envs
    return EnvCost(
        us_per_step=cpu_s / rows * 1e6,
        pack_us=pack_us,
        valid_share=max(1 - over / rows, 0.5),
        packed_share=packed_share,
    )


def _actions(environments: Environments) -> Mapping[str, Array]:
    lead = (_DRAWN_STEPS, environments.num_envs)
    rng = np.random.default_rng(0)
    return draw(environments.action.fields, lead, rng)[0]


def _copied(observations: Fields) -> Fields:
    return {name: array.copy() for name, array in observations.items()}


def _packed(seen: list[Fields], packing: Packing) -> tuple[float, float]:
    """Return the CPU microseconds of a step's packing, and what is left of its size."""
    stacked = {name: np.stack([step[name] for step in seen]) for name in seen[0]}
    while not packing.is_measured:
        packing.pack(stacked)
    began_s = time.process_time()
    tensors = packing.pack(stacked)
    took_us = (time.process_time() - began_s) * 1e6
    size = sum(array.nbytes for array in stacked.values())
    sent = sum(len(tensor.data) for tensor in tensors.values())
    rows = len(seen) * len(next(iter(seen[0].values())))
    return took_us / rows, sent / max(size, 1)
