"""``rollstream run``: an experiment on this machine, from launch to summary."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from infra.cluster.local import LocalCluster
from infra.control.runs import Run
from infra.errors import RollstreamError
from infra.monitoring.progress import Finish, return_text
from infra.monitoring.summary import Summary
from infra.printable import printable
from infra.settings import Settings
from rollstream.curve import write_curve
from rollstream.display import Display, LiveDisplay, PlainDisplay
from rollstream.interrupts import Terminated
from rollstream.run_from import check_sources
from schemas.experiment import Experiment

EXIT_TARGET_MISSED = 3
CLUSTER_CHECK_S = 1.0


def run_experiment(
    settings: Settings, experiment: Experiment, *, fresh: bool, console: Console
) -> Summary:
    """Run an experiment to its end and return its summary; show it on ``console``.

    Raises:
        KeyboardInterrupt, Terminated: after everything is stopped and checkpointed.
        RollstreamError: it cannot run.
    """
    with (
        _cluster(settings, console) as (cluster, there),
        closing(Run(there, experiment)) as run,
    ):
        check_sources(there, experiment)
        done = run.publish(fresh)
        if done is not None:
            console.print(f"{experiment.name} is finished already; --fresh starts over")
            show_summary(console, done, run.directory)
            return done
        return _run_to_end(run, experiment, cluster, console)


@contextmanager
def _cluster(
    settings: Settings, console: Console
) -> Iterator[tuple[LocalCluster, Settings]]:
    cluster = LocalCluster(
        settings, report=lambda line: console.print(line, style="dim")
    )
    try:
        endpoints = cluster.start()
        console.print(
            f"Kafka {endpoints.bootstrap_servers}, ZooKeeper {endpoints.zookeeper}",
            style="dim",
        )
        yield cluster, settings.at(endpoints.bootstrap_servers, endpoints.zookeeper)
    finally:
        cluster.release(2.5)


def _run_to_end(
    run: Run, experiment: Experiment, cluster: LocalCluster, console: Console
) -> Summary:
    finish: Finish | None = None
    state, reason = "failed", "unexpected error"
    display: Display = (
        LiveDisplay(console, experiment.name)
        if console.is_terminal
        else PlainDisplay(console)
    )
    looked_s = 0.0
    try:
        run.start()
        with display:
            for tick in run.ticks():
                display.show(tick)
                if tick.wall_s - looked_s >= CLUSTER_CHECK_S:
                    looked_s = tick.wall_s
                    _revive(cluster, console)
                if (finish := run.finish()) is not None:
                    state, reason = "finished", finish.reason
                    break
    except (KeyboardInterrupt, Terminated):
        state, reason = "stopped", "interrupted; run it again to go on"
        raise
    except RollstreamError as exc:
        reason = exc.problem
        raise
    finally:
        if run.has_started:
            summary = _stop(run, experiment, finish, state, reason, console)
    return summary


def _revive(cluster: LocalCluster, console: Console) -> None:
    """Start a local Kafka or ZooKeeper again that has died: clients wait for it."""
    for name in cluster.revive():
        console.print(f"{name} had died and was started again", style="yellow")


def _stop(
    run: Run,
    experiment: Experiment,
    finish: Finish | None,
    state: str,
    reason: str,
    console: Console,
) -> Summary:
    console.print("stopping workers, processors, learner ...", style="dim")
    summary = run.stop(finish, state, reason)
    if state == "finished":
        target = experiment.spec.stop.mean_return
        write_curve(run.progress, experiment.name, target, curve_path(run.directory))
    show_summary(console, summary, run.directory)
    return summary


def curve_path(directory: Path) -> Path:
    """Return where the learning curve of a run is written."""
    return directory / "curve.png"


def show_summary(console: Console, summary: Summary, directory: Path) -> None:
    """Print a run's summary and where everything lies."""
    evaluation = summary.eval_return_mean
    rows = {
        "state": f"{summary.state}: {summary.reason}",
        "env steps": f"{summary.env_steps:,} ({summary.env_steps_per_s:,.0f}/s)",
        "updates": f"{summary.updates:,}",
        "policy version": summary.policy,
        "mean return": "-"
        if evaluation is None
        else f"{return_text(evaluation)} (greedy)",
        "lost": f"{summary.lost_steps:,} steps ({summary.recovered_steps:,} recovered)",
        "duplicates": f"{summary.duplicate_steps:,} steps, left out",
        "stale": f"{summary.stale_steps:,} steps of too old policies, left out",
        "unrestorable": f"{summary.unrestorable_rows:,} rows",
        "dead letters": f"{summary.dead_letters:,}",
        "undelivered": f"{summary.undelivered_steps:,} steps",
        "wall time": f"{summary.wall_s:.1f} s" + (", resumed" * summary.resumed),
        "files": f"{directory} (checkpoints, logs)",
    }
    if curve_path(directory).exists():
        rows["learning curve"] = str(curve_path(directory))
    for name, value in rows.items():
        # Not a table: a path that is cut or folded cannot be copied.
        console.print(f"[dim]{name:<16}[/]{escape(printable(value))}", soft_wrap=True)


def exit_code(summary: Summary) -> int:
    """0 the target is reached (or none was set), 3 it is not."""
    return 0 if summary.reached else EXIT_TARGET_MISSED
