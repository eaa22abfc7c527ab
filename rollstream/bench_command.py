"""``rollstream bench``: this machine, measured with the production code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from infra.settings import load_settings
from rollstream.options import Json

bench = typer.Typer(help="Measure this machine with the production code.")

Out = Annotated[
    Path | None, typer.Option(help="Where outcomes go; those that are there are kept.")
]
Page = Annotated[
    Path | None, typer.Option(help="A Markdown file whose tables are to be these.")
]


@contextmanager
def _refusing(option: str) -> Iterator[None]:
    """What is not found is the option's fault: exit code 2, with what there is."""
    try:
        yield
    except ValueError as exc:
        raise typer.BadParameter(str(exc), param_hint=option) from exc


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


@bench.command("startup", epilog="Example: rollstream bench startup --workers 20")
def bench_startup(
    workers: Annotated[int, typer.Option(min=1, help="How often to start one.")] = 20,
    envs: Annotated[int, typer.Option(min=1, help="Environments a worker.")] = 64,
    as_json: Json = False,
) -> None:
    """Measure how soon a worker is on the topic, and an environment has stepped."""
    # Here, not above: nothing else needs it.
    from benchmarks.startup import run_bench

    run_bench(load_settings(), workers, envs, Console(stderr=as_json), as_json=as_json)


@bench.command("replay", epilog="Example: rollstream bench replay --json")
def bench_replay(as_json: Json = False) -> None:
    """Measure how fast a past is archived and replayed, and how small it gets."""
    # Here, not above: it imports pyarrow.
    from benchmarks.past import run_bench

    run_bench(load_settings(), Console(stderr=as_json), as_json=as_json)


@bench.command("learning", epilog="Example: rollstream bench learning --quick")
def bench_learning(
    task: Annotated[
        list[str] | None, typer.Option(help="Only this one; repeatable.")
    ] = None,
    quick: Annotated[
        bool, typer.Option(help="One seed of the short tasks only.")
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, help="How many of each.")] = 3,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Learn sample tasks with the whole pipeline, and beside it with other libraries.

    Those are installed at first use, each in a virtual environment under the cache
    directory. Broken off, the same command goes on.
    """
    # Here, not above: nothing else needs it.
    from benchmarks.learning.bench import Plan, run_bench
    from benchmarks.learning.tasks import chosen

    settings = load_settings()
    with _refusing("--task"):
        tasks = chosen(task or [], quick=quick)
    numbers = range(1, 2 if quick else seeds + 1)
    plan = Plan(tasks, numbers, out or settings.data_dir / "learning")
    run_bench(settings, plan, Console(stderr=as_json), as_json=as_json)


@bench.command("beside", epilog="Example: rollstream bench beside --section ingest")
def bench_beside(
    section: Annotated[
        list[str] | None, typer.Option(help="Only this one; repeatable.")
    ] = None,
    quick: Annotated[
        bool, typer.Option(help="One short round of each: a first impression.")
    ] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Of each section.")] = 5,
    out: Out = None,
    page: Page = None,
    as_json: Json = False,
) -> None:
    """Do the same work as other libraries, and as plain Kafka, taking turns.

    Libraries are installed at first use, each in a virtual environment under the cache
    directory. Broken off, the same command goes on.
    """
    # Here, not above: nothing else needs it.
    from benchmarks.beside.bench import Plan, run_bench
    from benchmarks.beside.sections import chosen

    settings = load_settings()
    with _refusing("--section"):
        sections = chosen(section or [])
    directory = out or settings.data_dir / ("beside-quick" if quick else "beside")
    plan = Plan(sections, 1 if quick else rounds, directory, quick, page)
    run_bench(settings, plan, Console(stderr=as_json), as_json=as_json)


@bench.command("scaling", epilog="Example: rollstream bench scaling --axis workers")
def bench_scaling(
    axis: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this one of partitions, workers, envs, records, rate, "
            "networks, observations, updates; repeatable."
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(help="A short look at both ends of each: a first impression."),
    ] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Of each point.")] = 1,
    out: Out = None,
    picture: Annotated[
        Path | None, typer.Option(help="Where the picture goes; else with outcomes.")
    ] = None,
    page: Page = None,
    as_json: Json = False,
) -> None:
    """Measure what a step costs as one thing at a time grows, by role.

    Broken off, the same command goes on.
    """
    # Here, not above: nothing else needs it.
    from benchmarks.beside.bench import Plan
    from benchmarks.scaling import chosen, run_bench

    settings = load_settings()
    with _refusing("--axis"):
        sections = chosen(axis or [], quick=quick)
    directory = out or settings.data_dir / ("scaling-quick" if quick else "scaling")
    plan = Plan(sections, 1 if quick else rounds, directory, quick, page)
    drawn = picture or directory / "scaling.png"
    run_bench(settings, plan, Console(stderr=as_json), drawn, as_json=as_json)


@bench.command("policies", epilog="Example: rollstream bench policies --size 1M")
def bench_policies(
    size: Annotated[
        list[str] | None,
        typer.Option(help="Only this one of 10k, 1M and 20M parameters; repeatable."),
    ] = None,
    workers: Annotated[
        list[int] | None, typer.Option(min=1, help="Worker processes; repeatable.")
    ] = None,
    half: Annotated[
        bool, typer.Option(help="Half precision beside full as well.")
    ] = True,
    versions: Annotated[int, typer.Option(min=1, help="Of each.")] = 20,
    quick: Annotated[
        bool, typer.Option(help="A few versions of each: a first impression.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure how soon a published policy acts, and how many bytes that takes."""
    # Here, not above: it imports torch.
    from benchmarks.policies import SIZES, Load, run_bench

    if unknown := set(size or ()) - set(SIZES):
        found = ", ".join(sorted(unknown))
        raise typer.BadParameter(
            f"expected {', '.join(SIZES)}, found {found}", param_hint="--size"
        )
    load = Load(
        sizes=tuple(size or SIZES),
        workers=tuple(workers or (1, 4)),
        precisions=("full", "half") if half and not quick else ("full",),
        versions=min(versions, 3) if quick else versions,
    )
    run_bench(load_settings(), load, Console(stderr=as_json), as_json=as_json)


@bench.command("profiles", epilog="Example: rollstream bench profiles --seconds 10")
def bench_profiles(
    seconds: Annotated[float, typer.Option(min=1, help="Of sampling.")] = 10.0,
    out: Annotated[
        Path | None, typer.Option(help="Where stacks go: a file for each role.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what worker, processor, broker and learner do with their time."""
    # Here, not above: nothing else needs it.
    from benchmarks.profiles import run_bench

    settings = load_settings()
    directory = out or settings.data_dir / "profiles"
    run_bench(settings, seconds, directory, Console(stderr=as_json), as_json=as_json)
