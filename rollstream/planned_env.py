"""What a plan knows of an environment: tried here, or said on the command line."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from infra.planning.workload import EnvFacts
from infra.settings import Settings
from rollstream.machine import try_here
from schemas.experiment import EnvSpec, Spec, SpecError
from schemas.records import EnvDescription, SpaceField

_FIELD = re.compile(r"([0-9]{1,6}(?:x[0-9]{1,6}){0,3}):([a-z]+[0-9]{0,2})")
_DTYPES = ("uint8", "int8", "int32", "int64", "float16", "float32", "float64")


@dataclass(frozen=True)
class Said:
    """What was said of the environment; None: find out.

    Attributes:
        observation: ``84x84:uint8``, shape and dtype.
        action: ``6``, so many discrete ones, or ``17:float32``, a box.
        step_us: CPU microseconds of a step.
        packed_share: size of an observation on the wire / in memory.
    """

    observation: str | None
    action: str | None
    step_us: float | None
    packed_share: float = 1.0


def environment(
    spec: Spec, said: Said, settings: Settings
) -> tuple[EnvDescription, EnvFacts]:
    """Return what an environment is, and what a step of it costs.

    With all three said nothing is made.

    Raises:
        SpecError: what was said cannot be read, or the environment cannot be made here
            and was not described.
        EnvFailed: it does not start.
    """
    if said.observation is not None and said.action is not None:
        described = _described(spec.env, said.observation, said.action)
        if said.step_us is None:
            raise SpecError(["--env-step-us: expected with --observation, found none"])
        return described, EnvFacts(said.step_us, packed_share=said.packed_share)
    if said.observation is not None or said.action is not None:
        raise SpecError(
            ["--observation: expected with --action, or neither, found one of them"]
        )
    try:
        described = try_here(spec.env, settings)
    except SpecError as exc:
        raise SpecError([*exc.problems, _hint()]) from exc
    return described, _facts(spec, said.step_us, settings)


def _hint() -> str:
    return (
        "to plan without it say what it is, for instance --observation 84x84:uint8 "
        "--action 6 --env-step-us 200 --packed-share 0.02"
    )


def _facts(spec: Spec, step_us: float | None, settings: Settings) -> EnvFacts:
    # Here, not above: gymnasium takes a quarter of a second to import.
    from producers.env_cost import measure_environment

    workers = spec.workers
    found = measure_environment(
        spec.env, workers.envs_per_worker, settings, encoding=workers.encoding
    )
    return EnvFacts(
        us_per_step=found.us_per_step if step_us is None else step_us,
        pack_us=found.pack_us,
        valid_share=found.valid_share,
        packed_share=found.packed_share,
        source="measured here" if step_us is None else "said",
    )


def _described(spec: EnvSpec, observation: str, action: str) -> EnvDescription:
    if re.fullmatch(r"[1-9][0-9]{0,8}", action):
        acts = SpaceField("", "discrete", "<i8", (), n=(int(action),), start=(0,))
    else:
        acts = _field("--action", action, "6, or 17:float32")
    seen = _field("--observation", observation, "84x84:uint8")
    return EnvDescription(spec.id, (seen,), (acts,), None, spec.vectorization, {})


def _field(option: str, text: str, example: str) -> SpaceField:
    match = _FIELD.fullmatch(text)
    if match is None or match[2] not in _DTYPES:
        raise SpecError(
            [f"{option}: expected something like {example}, found {text[:80]!r}"]
        )
    shape = tuple(int(size) for size in match[1].split("x"))
    return SpaceField("", "box", np.dtype(match[2]).str, shape)
