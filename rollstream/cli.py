"""The command ``rollstream``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from infra.logs import quiet_clients
from infra.settings import load_settings
from rollstream import (
    agent_command,
    archive_command,
    bench_command,
    cluster_command,
    dashboard_command,
    events_command,
    experiments_command,
    export_command,
    export_policy_command,
    exporter_command,
    import_command,
    lag_command,
    launch_command,
    lineage_command,
    logs_command,
    peek_command,
    plan_command,
    play_command,
    policies_command,
    ps_command,
    replay_command,
    spec_command,
    topics_command,
)
from rollstream.errors import exits_with_a_message
from rollstream.interrupts import interruptible, leaves_soon
from rollstream.machine import (
    check_environment,
    check_log_level,
    running,
    with_modules,
)
from rollstream.options import EnvModule, File, Json, Overrides
from rollstream.run_from import from_past
from rollstream.spec_file import load_file
from rollstream.streams import open_streams

app = typer.Typer(
    name="rollstream",
    help="Reinforcement learning on a real Kafka log.",
    epilog="Example: rollstream run infra/experiments/cartpole-dqn.yaml",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Else the line ends of a docstring's later paragraphs are kept.
    rich_markup_mode="markdown",
)
app.add_typer(bench_command.bench, name="bench", no_args_is_help=True)


# These have processes to end, or a transaction, when they are interrupted.
_CLEAN_UP = (
    "run", "validate", "init", "up", "down", "agent", "registry", "dead-letters",
    "bench", "archive", "replay", "export", "import", "play", "export-policy",
    "plan",
)  # fmt: skip


@app.callback()
def _before_each(context: typer.Context) -> None:
    check_log_level()
    quiet_clients()
    if context.invoked_subcommand not in _CLEAN_UP:
        context.with_resource(leaves_soon())


@app.command(
    epilog="Example: rollstream run infra/experiments/cartpole-dqn.yaml "
    "--set spec.workers.replicas=4"
)
def run(
    file: File,
    fresh: Annotated[
        bool, typer.Option(help="Start over under a new run id; old data stays.")
    ] = False,
    past: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="SOURCE",
            help="Learn from an experiment's past, or an archive, without workers.",
        ),
    ] = None,
    overrides: Overrides = None,
    env_module: EnvModule = None,
    as_json: Json = False,
) -> None:
    """Run an experiment on this machine, from launch to summary.

    Starts Kafka and ZooKeeper where none is configured. Run again, it goes on from the
    last checkpoint. With --from it ends when all of the past is learnt. Exit code: 0
    the target was reached, or none was set; 3 a limit or the past's end came first, 130
    after Ctrl-C, 1 on errors, 2 when the spec is refused.
    """
    # Here, not above: no other command needs what supervises processes.
    from rollstream.run_command import exit_code, run_experiment

    experiment = load_file(file, overrides)
    settings = with_modules(load_settings(), env_module)
    if past is not None:
        settings, experiment = from_past(settings, experiment, past)
    check_environment(settings, experiment)
    console = Console(stderr=as_json, highlight=False)
    summary = run_experiment(settings, experiment, fresh=fresh, console=console)
    if as_json:
        print(summary.to_json())
    raise typer.Exit(exit_code(summary))


@app.command(epilog="Example: rollstream validate my-experiment.yaml")
def validate(
    file: File,
    overrides: Overrides = None,
    env_module: EnvModule = None,
    as_json: Json = False,
) -> None:
    """Say whether an experiment could run here; publish nothing.

    Exit code: 0 it could, 2 it is refused, 1 its environment fails.
    """
    experiment = load_file(file, overrides)
    check_environment(with_modules(load_settings(), env_module), experiment)
    print(experiment.to_json() if as_json else f"{experiment.name}: fine")


@app.command(epilog="Example: rollstream doctor --json")
def doctor(as_json: Json = False) -> None:
    """Show what is installed and reachable, and the mend for what is missing."""
    # Here, not above: nothing else needs all that is looked at.
    from rollstream.doctor_command import doctor as run_command

    raise typer.Exit(run_command(load_settings(), as_json=as_json))


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
        load_settings() if to_print else running(),
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
        running(), topic, offset, count, partition=partition, as_json=as_json
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

    serve(running(), host, port, Console(highlight=False, soft_wrap=True).print)


@app.command(epilog="Example: rollstream status cartpole-dqn --json")
def status(
    experiment: Annotated[str, typer.Argument(help="The experiment's name.")],
    as_json: Json = False,
) -> None:
    """Show what an experiment's topics say of it; none of its processes need live.

    Exit code: 0 all is well, 3 there are alerts of its newest run, 1 there is no such
    experiment, or it cannot be read.
    """
    # Here, not above: it imports all that watches.
    from rollstream.status_command import status as run_command

    raise typer.Exit(run_command(running(), experiment, as_json=as_json))


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
    refused, or an error, 2 the words do not go together.
    """
    # Here, not above: it imports what processors compute with.
    from rollstream.dead_letters_command import dead_letters as run_command

    code = run_command(
        running(),
        experiment,
        action,
        letters or [],
        all_letters=all_letters,
        dry_run=dry_run,
        as_json=as_json,
    )
    raise typer.Exit(code)


app.command("up", epilog=cluster_command.UP_EXAMPLE)(cluster_command.up)
app.command("down", epilog=cluster_command.DOWN_EXAMPLE)(cluster_command.down)
app.command("schema", epilog=spec_command.SCHEMA_EXAMPLE)(spec_command.schema)
app.command("init", epilog=spec_command.INIT_EXAMPLE)(spec_command.init)
app.command("dashboard", epilog=dashboard_command.EPILOG)(dashboard_command.dashboard)
app.command("launch", epilog=launch_command.EPILOG)(launch_command.launch)
app.command("agent", epilog=agent_command.EPILOG)(agent_command.agent)
app.command("archive", epilog=archive_command.EPILOG)(archive_command.archive)
app.command("replay", epilog=replay_command.EPILOG)(replay_command.replay)
app.command("export", epilog=export_command.EPILOG)(export_command.export)
app.command("export-policy", epilog=export_policy_command.EPILOG)(
    export_policy_command.export_policy
)
app.command("exporter", epilog=exporter_command.EPILOG)(exporter_command.exporter)
app.command("import", epilog=import_command.EPILOG)(import_command.import_dataset)
app.command("lag", epilog=lag_command.EPILOG, cls=lag_command.LagCommand)(
    lag_command.lag
)
app.command("lineage", epilog=lineage_command.EPILOG)(lineage_command.lineage)
app.command("plan", epilog=plan_command.EPILOG)(plan_command.plan)
app.command("play", epilog=play_command.EPILOG)(play_command.play)
app.command("policies", epilog=policies_command.EPILOG)(policies_command.policies)
app.command("ps", epilog=ps_command.EPILOG)(ps_command.ps)
app.command("logs", epilog=logs_command.EPILOG)(logs_command.logs)
app.command("events", epilog=events_command.EPILOG)(events_command.events)
for _each in (
    experiments_command.get,
    experiments_command.diff,
    experiments_command.pause,
    experiments_command.resume,
    experiments_command.scale,
    experiments_command.stop,
    experiments_command.delete,
):
    app.command(epilog=experiments_command.EPILOGS[_each.__name__])(_each)


def main() -> None:
    """Run the command line; exit with the command's code."""
    open_streams()
    with exits_with_a_message(), interruptible():
        app()


if __name__ == "__main__":
    main()
