"""Outcomes -> curves as a picture, and lines of a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.learning.results import Outcome

COLOURS = ("#1f6feb", "#d1701f", "#2da44e", "#8250df")
_GRID = 200


def draw(
    task: str, outcomes: Sequence[Outcome], target: float | None, path: Path
) -> None:
    """Draw returns over env steps and over wall time: seeds thin, their mean thick."""
    # Here, not above: it takes half a second.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), dpi=120)
    for axes, attribute in ((left, "env_steps"), (right, "wall_s")):
        for number, side in enumerate(dict.fromkeys(o.side for o in outcomes)):
            mine = [o for o in outcomes if o.side == side and o.curve]
            _draw_side(axes, mine, attribute, side, COLOURS[number % len(COLOURS)])
        if target is not None:
            axes.axhline(target, color="#57606a", linestyle="--", linewidth=1)
        axes.spines[["top", "right"]].set_visible(False)
    left.set(title=task, xlabel="env steps", ylabel="mean greedy return")
    left.locator_params(axis="x", nbins=5)
    left.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    right.set(xlabel="seconds since the launch")
    left.legend(loc="lower right", frameon=False)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def _draw_side(
    axes: Any, outcomes: Sequence[Outcome], attribute: str, name: str, colour: str
) -> None:
    if not outcomes:
        return
    lines = [
        (
            [float(getattr(p, attribute)) for p in o.curve],
            [p.mean_return for p in o.curve],
        )
        for o in outcomes
    ]
    for at, returns in lines:
        axes.plot(at, returns, color=colour, linewidth=0.8, alpha=0.4)
    at, returns = mean_curve(lines)
    axes.plot(at, returns, color=colour, linewidth=2, label=name)


def mean_curve(
    lines: Sequence[tuple[Sequence[float], Sequence[float]]],
) -> tuple[list[float], list[float]]:
    """Return the mean of curves where any of them is.

    One that has ended, having reached its target, stays where it ended.
    """
    first = max(at[0] for at, _ in lines)
    last = max(at[-1] for at, _ in lines)
    grid = np.linspace(min(first, last), last, _GRID)
    each = [np.interp(grid, at, returns) for at, returns in lines]
    return grid.tolist(), np.mean(each, axis=0).tolist()


def rows(outcomes: Sequence[Outcome]) -> list[dict[str, str]]:
    """Return a row for each side: medians over its seeds."""
    found = []
    for side in dict.fromkeys(o.side for o in outcomes):
        mine = [o for o in outcomes if o.side == side]
        finals = [o.final_return for o in mine if o.final_return is not None]
        found.append(
            {
                "task": mine[0].task,
                "side": side,
                "reached": reached(mine),
                "env steps": f"{median(o.env_steps for o in mine):,.0f}",
                "wall s": f"{median(o.wall_s for o in mine):,.1f}",
                "return": f"{median(finals):.1f}" if finals else "-",
                "steps/s": f"{median(o.steps_per_s for o in mine):,.0f}",
            }
        )
    return found


def reached(outcomes: Sequence[Outcome]) -> str:
    """Return how many reached their target, in words; "-" where there was none."""
    if all(outcome.reached is None for outcome in outcomes):
        return "-"
    return f"{sum(bool(o.reached) for o in outcomes)} of {len(outcomes)}"
