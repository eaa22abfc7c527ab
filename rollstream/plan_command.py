"""``rollstream plan``: what hardware a spec needs, and what saturates first."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from infra.settings import load_settings
from rollstream.errors import BadInput
from rollstream.machine import with_modules
from rollstream.options import EnvModule, File, Json, Overrides
from rollstream.spec_file import load_file
from schemas.errors import SchemaError
from schemas.experiment import SpecError

EPILOG = (
    "Example: rollstream plan infra/experiments/cartpole-5000.yaml --envs 50000 "
    "--host-cores 32"
)
_GBIT_BYTES = 1e9 / 8
_MOST_ENVS = 1_000_000_000


def plan(
    file: File,
    overrides: Overrides = None,
    rate: Annotated[
        float | None,
        typer.Option(
            min=1e-3,
            help="Env steps/s wanted of the spec's own environments; left out: as "
            "fast as its workers step.",
        ),
    ] = None,
    envs: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            max=_MOST_ENVS,
            help="Show so many environments too; repeatable. Left out: times ten, "
            "to 100,000.",
        ),
    ] = None,
    host_cores: Annotated[
        float | None,
        typer.Option(min=0.1, help="Cores of each machine; left out: of this one."),
    ] = None,
    network_gbit: Annotated[
        float, typer.Option(min=0.001, help="Gbit/s of each machine, each way.")
    ] = 10.0,
    env_step_us: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="CPU microseconds of an environment's step; left out: measured here "
            "for a second.",
        ),
    ] = None,
    observation: Annotated[
        str | None,
        typer.Option(
            help="Shape and dtype of an observation, as 84x84:uint8, where the "
            "environment is not to be made here; with --action, --env-step-us."
        ),
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(help="6: discrete ones; 17:float32: a box. With --observation."),
    ] = None,
    packed_share: Annotated[
        float,
        typer.Option(
            min=0.001,
            max=1,
            help="Size of an observation on the wire / in memory, with --observation; "
            "game frames: 0.02.",
        ),
    ] = 1.0,
    env_module: EnvModule = None,
    as_json: Json = False,
) -> None:
    """Say what hardware an experiment needs, and what saturates first. On paper.

    A model of what a step, a record, a byte and a process cost, as measured with the
    production code (`rollstream bench scaling`): cores, memory, bytes/s, brokers and
    processors, for the spec and for up to 100,000 environments. Publishes nothing.
    Exit code: 0 it is planned, 2 the spec or an option is refused, 1 its environment
    fails.
    """
    # Here, not above: nothing else needs it.
    from infra.planning.constants import MEASURED
    from infra.planning.growth import make_plan
    from infra.planning.limits import Host
    from infra.planning.workload import workload_of
    from rollstream.plan_display import as_object, show
    from rollstream.planned_env import Said, environment

    experiment = load_file(file, overrides)
    spec = experiment.spec
    if not spec.workers.most_replicas:
        raise BadInput(
            "spec.workers.replicas: expected workers to plan for, found 0",
            "--set spec.workers.replicas=4",
        )
    settings = with_modules(load_settings(), env_module)
    said = Said(observation, action, env_step_us, packed_share)
    described, facts = environment(spec, said, settings)
    host = Host(host_cores or os.cpu_count() or 1, network_gbit * _GBIT_BYTES)
    try:
        # A worker may have a core of its own.
        work = workload_of(spec, described, facts, max(1, int(host.cores)))
    except SchemaError as exc:
        raise SpecError([str(exc)]) from exc
    made = make_plan(work, host, MEASURED, rate=rate, envs=envs or ())
    if as_json:
        print(json.dumps(as_object(experiment.name, facts, made)))
    else:
        show(experiment.name, facts, made)
