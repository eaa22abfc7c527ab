"""A run's ticks -> what a person sees: a live table, or plain lines."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from infra.monitoring.progress import Progress, return_text
from infra.printable import printable
from rollstream.rates import Rate

if TYPE_CHECKING:
    from infra.control.runs import Tick

PLAIN_INTERVAL_S = 3.0
_BARS = "▁▂▃▄▅▆▇█"
_BARS_SHOWN = 40


@dataclass(frozen=True)
class Figures:
    """What is shown of a moment."""

    wall_s: float
    env_steps: int
    env_steps_per_s: float
    updates: int
    updates_per_s: float
    mean_return: float | None
    eval_return_mean: float | None
    policy_version: int | None
    lag: dict[str, int | None]
    evaluations: list[float]
    roles: dict[str, int]


class FigureMaker:
    """Ticks -> Figures; keeps what rates need."""

    def __init__(self) -> None:
        self._steps, self._updates = Rate(), Rate()

    def make(self, tick: Tick) -> Figures:
        """Return the figures of a tick."""
        progress = tick.progress
        # Workers, and replayers, know of their steps before the learner does.
        produced = sum(progress.total(r, "env_steps") for r in ("worker", "replayer"))
        updates = progress.learner("updates")
        roles: dict[str, int] = {}
        for role, _ in progress.points:
            roles[role] = roles.get(role, 0) + 1
        evaluations = [point.mean_return for point, _ in progress.evaluations]
        return Figures(
            wall_s=tick.wall_s,
            env_steps=progress.env_steps,
            env_steps_per_s=self._steps.add(tick.wall_s, produced),
            updates=int(updates),
            updates_per_s=self._updates.add(tick.wall_s, updates),
            mean_return=progress.mean_return,
            eval_return_mean=evaluations[-1] if evaluations else None,
            policy_version=_published(progress),
            lag=tick.lag,
            evaluations=evaluations,
            roles=roles,
        )


class Display(Protocol):
    """Shows a run while it goes on."""

    def __enter__(self) -> Self:
        """Start to show."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop to show."""

    def show(self, tick: Tick) -> None:
        """Show a moment."""


class PlainDisplay:
    """One line every few seconds, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._figures = FigureMaker()
        self._next_s = 0.0

    def __enter__(self) -> Self:
        """Nothing to prepare."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing to put back."""

    def show(self, tick: Tick) -> None:
        """Print a line when it is time for one; exits at once."""
        figures = self._figures.make(tick)
        print_exits(self._console, tick)
        if tick.wall_s < self._next_s:
            return
        self._next_s = tick.wall_s + PLAIN_INTERVAL_S
        self._console.print(plain_line(figures), soft_wrap=True, highlight=False)


class LiveDisplay:
    """A table that is redrawn in place."""

    def __init__(self, console: Console, name: str) -> None:
        self._console = console
        self._name = name
        self._figures = FigureMaker()
        self._live = Live(console=console, refresh_per_second=8)

    def __enter__(self) -> Self:
        """Start to draw."""
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the last drawing on the screen."""
        self._live.__exit__(kind, value, trace)

    def show(self, tick: Tick) -> None:
        """Draw a tick."""
        print_exits(self._console, tick)
        self._live.update(render(self._name, self._figures.make(tick)))


def print_exits(console: Console, tick: Tick) -> None:
    """Say which role processes ended without being asked to."""
    for gone in tick.exits:
        console.print(
            f"{gone.assignment.key} ended with code {gone.code}: "
            f"{printable(gone.last_line)}; "
            f"{'given up' if gone.gave_up else 'restarted'} ({gone.log})",
            style="yellow",
            markup=False,
            soft_wrap=True,
        )


def plain_line(figures: Figures) -> str:
    """Return a moment in one line."""
    return (
        f"{figures.wall_s:5.0f} s  env steps {figures.env_steps:,} "
        f"({figures.env_steps_per_s:,.0f}/s)  return {_number(figures.mean_return)}  "
        f"eval {_number(figures.eval_return_mean)}  updates {figures.updates:,} "
        f"({figures.updates_per_s:,.0f}/s)  "
        f"policy {_count(figures.policy_version)}  lag "
        + ", ".join(f"{role} {_count(lag)}" for role, lag in figures.lag.items())
    )


def render(name: str, figures: Figures) -> Panel:
    """Return a moment as a panel."""
    table = Table.grid(padding=(0, 3))
    table.add_column(style="dim")
    table.add_column(justify="right", min_width=12)
    table.add_column(justify="right", style="cyan", min_width=12)
    steps, updates = figures.env_steps_per_s, figures.updates_per_s
    table.add_row("env steps", f"{figures.env_steps:,}", f"{steps:,.0f}/s")
    table.add_row("updates", f"{figures.updates:,}", f"{updates:,.0f}/s")
    table.add_row("policy version", _count(figures.policy_version), "newest")
    table.add_row("mean return", _number(figures.mean_return), "exploring")
    table.add_row("evaluation", _number(figures.eval_return_mean), "greedy")
    for role, lag in figures.lag.items():
        table.add_row(f"lag, {role}", _count(lag), "records")
    running = ", ".join(f"{n} {role}" for role, n in sorted(figures.roles.items()))
    return Panel(
        Group(table, Text(bars(figures.evaluations), style="green")),
        title=f"{name}  {figures.wall_s:.0f} s",
        subtitle=running or "starting",
        expand=False,
    )


def bars(values: list[float]) -> str:
    """Return the last values as a row of bars, from 0 to the largest."""
    shown = values[-_BARS_SHOWN:]
    top = max(shown, default=0.0)
    if top <= 0:
        return ""
    levels = [int(max(value, 0.0) / top * (len(_BARS) - 1)) for value in shown]
    return "evaluations " + "".join(_BARS[level] for level in levels)


def _published(progress: Progress) -> int | None:
    version = int(progress.learner("policy_version"))
    return version if ("learner", 0) in progress.points and version >= 0 else None


def _number(value: float | None) -> str:
    return "-" if value is None else return_text(value)


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
