"""The command ``rollstream``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.console import Console

from infra.cluster.local import LocalCluster, find_endpoints
from infra.errors import RollstreamError
from infra.settings import Settings, load_settings
from rollstream import (
    doctor_command,
    peek_command,
    status_command,
    topics_command,
)
from rollstream.errors import exits_with_a_message
from rollstream.interrupts import interruptible
from rollstream.overrides import apply_overrides
from rollstream.run_command import exit_code, run_experiment
from schemas.experiment import (
    Experiment,
    check_algorithm,
    from_values,
    load_values,
)
from schemas.fit import check_fit

app = typer.Typer(
    name="rollstream",
    help="Reinforcement learning on a real Kafka log.",
    epilog="Example: rollstream run infra/experiments/cartpole-dqn.yaml",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(help="Measure this machine with the production code.")
app.add_typer(bench, name="bench", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, only that.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change the spec; repeatable."),
]
EnvModule = Annotated[
    list[str] | None,
    typer.Option(help="Import this module of environments in workers; repeatable."),
]


@app.command(
    epilog="Example: rollstream run infra/experiments/cartpole-dqn.yaml "
    "--set spec.workers.replicas=4"
)
def run(
    file: Annotated[Path, typer.Argument(help="The experiment, YAML or JSON.")],
    fresh: Annotated[
        bool, typer.Option(help="Start over under a new run id; old data stays.")
    ] = False,
    overrides: Overrides = None,
    env_module: EnvModule = None,
    as_json: Json = False,
) -> None:
    """Run an experiment on this machine, from launch to summary.

    Starts Kafka and ZooKeeper where none is configured. Run again, it goes on from the
    last checkpoint. Exit code: 0 the target was reached, 3 a limit ended it first, 130
    after Ctrl-C, 1 on errors, 2 when the spec is refused.
    """
    experiment = _load(file, overrides)
    settings = _with_modules(load_settings(), env_module)
    _check_environment(settings, experiment)
    console = Console(stderr=as_json, highlight=False)
    summary = run_experiment(settings, experiment, fresh=fresh, console=console)
    if as_json:
        print(summary.to_json())
    raise typer.Exit(exit_code(summary))


@app.command(epilog="Example: rollstream validate my-experiment.yaml")
def validate(
    file: Annotated[Path, typer.Argument(help="The experiment, YAML or JSON.")],
    overrides: Overrides = None,
    env_module: EnvModule = None,
    as_json: Json = False,
) -> None:
    """Say whether an experiment could run here; publish nothing."""
    experiment = _load(file, overrides)
    _check_environment(_with_modules(load_settings(), env_module), experiment)
    print(experiment.to_json() if as_json else f"{experiment.name}: fine")


@app.command(epilog='Example: eval "$(rollstream up)"')
def up(as_json: Json = False) -> None:
    """Start Kafka and ZooKeeper on this machine, and leave them running.

    Prints what to set for other shells; `rollstream down` stops them.
    """
    console = Console(stderr=True, highlight=False)
    cluster = LocalCluster(load_settings(), report=console.print)
    found = cluster.start(keep=True)
    cluster.release()
    if as_json:
        print(json.dumps({**found.environment(), "cluster_id": found.cluster_id}))
        return
    for name, value in found.environment().items():
        print(f"export {name}={value}")


@app.command(epilog="Example: rollstream down")
def down() -> None:
    """Stop the Kafka and ZooKeeper that were started on this machine."""
    LocalCluster(load_settings()).stop()


@app.command(epilog="Example: rollstream doctor --json")
def doctor(as_json: Json = False) -> None:
    """Show what is installed and reachable, and the mend for what is missing."""
    raise typer.Exit(doctor_command.doctor(load_settings(), as_json=as_json))


@app.command(epilog="Example: rollstream topics cartpole-dqn")
def topics(
    experiment: Annotated[
        str | None, typer.Argument(help="Show this experiment's topics too.")
    ] = None,
    to_print: Annotated[
        bool,
        typer.Option("--print", help="Print commands for an administrator, only that."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the map of topics beside what the broker has."""
    topics_command.topics(
        load_settings() if to_print else _running(),
        experiment,
        to_print=to_print,
        as_json=as_json,
    )


@app.command(
    epilog="Example: rollstream peek rollstream.cartpole-dqn.replay --offset -1"
)
def peek(
    topic: Annotated[str, typer.Argument(help="A topic's full name.")],
    offset: Annotated[
        str,
        typer.Option(help="N: from there; -N: the last N; @TIME: ISO 8601 with zone."),
    ] = "-1",
    count: Annotated[int, typer.Option("-n", min=1, help="How many records.")] = 1,
    partition: Annotated[
        int | None, typer.Option("-p", min=0, help="Only this partition.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Decode records readably: fields, shapes, dtypes, first values."""
    peek_command.peek(
        _running(), topic, offset, count, partition=partition, as_json=as_json
    )


@app.command(epilog="Example: rollstream registry --port 8081")
def registry(
    host: Annotated[
        str, typer.Option(help="Others than loopback need ROLLSTREAM_REGISTRY_TOKEN.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="0: any that is free.")
    ] = 8081,
) -> None:
    """Serve the schemas to tools that speak to a Confluent Schema Registry.

    What it registers goes to the topic `rollstream.schemas`, which is all it has. Runs
    until Ctrl-C (exit code 130).
    """
    # Here, not above: nothing else needs aiohttp.
    from rollstream.registry_command import serve

    serve(_running(), host, port, Console(highlight=False, soft_wrap=True).print)


@app.command(epilog="Example: rollstream status cartpole-dqn --json")
def status(
    experiment: Annotated[str, typer.Argument(help="The experiment's name.")],
    as_json: Json = False,
) -> None:
    """Show what an experiment's topics say of it; none of its processes need live.

    Exit code: 0 all is well, 3 there are alerts of its newest run, 1 there is no such
    experiment, or it cannot be read.
    """
    raise typer.Exit(status_command.status(_running(), experiment, as_json=as_json))


@app.command(
    "dead-letters",
    epilog="Example: rollstream dead-letters cartpole-dqn reinject --all",
)
def dead_letters(
    experiment: Annotated[str, typer.Argument(help="The experiment's name.")],
    action: Annotated[
        str, typer.Argument(metavar="[list|show|reinject]", help="What to do.")
    ] = "list",
    letters: Annotated[
        list[str] | None,
        typer.Argument(help="Numbers, or sources, as the list shows them."),
    ] = None,
    all_letters: Annotated[
        bool, typer.Option("--all", help="Put back all that can be used by now.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option(help="Say what would be put back; write nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List what could not be used, show why, and put it back after a fix.

    A record is put back to where it came from, once, however often it is asked for;
    what still cannot be used stays. Exit code: 0 done, 1 a letter that was named is
    refused, or an error.
    """
    # Here, not above: it imports what processors compute with.
    from rollstream.dead_letters_command import dead_letters as run_command

    code = run_command(
        _running(),
        experiment,
        action,
        letters or [],
        all_letters=all_letters,
        dry_run=dry_run,
        as_json=as_json,
    )
    raise typer.Exit(code)


@bench.command(
    "pipeline", epilog="Example: rollstream bench pipeline --envs 256 --seconds 10"
)
def bench_pipeline(
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
    envs: Annotated[int, typer.Option(min=1, help="Environments a worker.")] = 256,
    unroll: Annotated[int, typer.Option(min=1, help="Steps a record.")] = 32,
    n_step: Annotated[int, typer.Option(min=1, help="n of the returns.")] = 3,
    seconds: Annotated[float, typer.Option(min=1, help="How long.")] = 10.0,
    rate: Annotated[
        float, typer.Option(min=0, help="Env steps/s in all; 0: as fast as it goes.")
    ] = 0.0,
    flow: Annotated[str, typer.Option(help="free, credit or both.")] = "both",
    as_json: Json = False,
) -> None:
    """Measure worker -> trajectories -> Faust -> replay -> decoded at the learner."""
    # Here, not above: nothing else needs it.
    from benchmarks.pipeline import Load, run_bench

    load = Load(workers, envs, unroll, n_step, seconds, rate, flow)
    run_bench(load_settings(), load, Console(stderr=as_json), as_json=as_json)


@bench.command(
    "replay-buffer", epilog="Example: rollstream bench replay-buffer --rows 1000000"
)
def bench_replay_buffer(
    rows: Annotated[int, typer.Option(min=8192, help="Transitions.")] = 1_000_000,
    as_json: Json = False,
) -> None:
    """Measure a full replay buffer: sampling, checkpoint, rebuilding from the log."""
    # Here, not above: it imports torch.
    from benchmarks.replay_buffer import run_bench

    run_bench(load_settings(), rows, Console(stderr=as_json), as_json=as_json)


def _load(file: Path, overrides: list[str] | None) -> Experiment:
    return from_values(apply_overrides(load_values(file), overrides or []))


def _with_modules(settings: Settings, modules: list[str] | None) -> Settings:
    names = (*settings.env_modules, *(modules or ()))
    if names and os.getcwd() not in sys.path:
        # As for the role processes, which are started with `python -m`.
        sys.path.insert(0, os.getcwd())
    return settings.model_copy(update={"env_modules": names})


def _check_environment(settings: Settings, experiment: Experiment) -> None:
    # Here, not above: gymnasium takes a quarter of a second to import.
    from producers.validation import try_environment

    check_algorithm(experiment.spec, bool(settings.learner_modules))
    env = try_environment(experiment.spec.env, settings)
    check_fit(experiment.spec, env, psutil.virtual_memory().total)


def _running() -> Settings:
    """Return settings of a cluster that runs."""
    settings = load_settings()
    found = find_endpoints(settings)
    if found is None:
        raise RollstreamError(
            "expected a running cluster, found none",
            "`rollstream up` starts one; KAFKA_BOOTSTRAP_SERVERS names another",
        )
    return settings.at(found.bootstrap_servers, found.zookeeper)


def main() -> None:
    """Run the command line; exit with the command's code."""
    with exits_with_a_message(), interruptible():
        app()


if __name__ == "__main__":
    main()
