"""Points of all axes -> a picture, and a table of what things cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.beside.outcomes import Outcomes
from benchmarks.beside.section import Section
from benchmarks.scaling_fit import PARTS, ROLES, UPDATES, Fit, constants_of

_NAMES = dict(
    zip(ROLES, ("workers", "processor", "Kafka", "learner side"), strict=True)
)
_ENVIRONMENT = "environment"
_COLOURS = {
    _ENVIRONMENT: "#8c959f",
    "worker": "#1f6feb",
    "processor": "#8250df",
    "kafka": "#bf8700",
    "learner_side": "#1a7f37",
}
_COLUMNS = 3


def show_costs(console: Console, fits: Mapping[str, Fit]) -> None:
    """Print the parts of each role's cost."""
    table = Table(title="What things cost", title_justify="left", box=None)
    for name in ("role", "cost", "of"):
        table.add_column(name, justify="right" if name == "cost" else "left")
    for role, fit in fits.items():
        for part, constant in fit.constants.items():
            table.add_row(_NAMES.get(role, role), f"{constant:,.4g}", PARTS[role][part])
        error = f"half of the points within {fit.typical:.0%}, all {fit.worst:.0%}"
        table.add_row("", "", error, style="dim")
    console.print(table)
    console.print("as `infra/planning/constants.py` has them:", style="dim")
    for name, value in constants_of(fits).items():
        console.print(f"    {name}: float = {value:.3g}", highlight=False)


def draw_scaling(
    sections: Iterable[Section], outcomes: Outcomes, picture: Path
) -> None:
    """Draw the CPU time a step of each role over each axis, stacked."""
    found = [
        (section, medians)
        for section in sections
        if section.name != UPDATES and (medians := outcomes.medians(section))
    ]
    if not found:
        return
    # Here, not above: it takes half a second.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = -(-len(found) // _COLUMNS)
    figure, every = pyplot.subplots(
        rows, _COLUMNS, figsize=(13, 3.6 * rows), dpi=110, squeeze=False
    )
    for axes in every.flat[len(found) :]:
        axes.set_visible(False)
    for axes, (section, medians) in zip(every.flat, found, strict=False):
        _draw_axis(axes, section, medians)
    figure.suptitle(
        "CPU time a step by role (bars, us) and steps/s (line) as one thing grows",
        x=0.01, ha="left", fontsize=11,
    )  # fmt: skip
    figure.legend(
        *every.flat[0].get_legend_handles_labels(), loc="upper right", ncols=5,
        fontsize=9, frameon=False,
    )  # fmt: skip
    figure.tight_layout()
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture)
    pyplot.close(figure)


def _draw_axis(
    axes: Any, section: Section, medians: Mapping[str, Mapping[str, float]]
) -> None:
    """Draw one axis: a bar a point, with its sum above it."""
    names = [side.name for side in section.sides if side.name in medians]
    below = [0.0] * len(names)
    for part, colour in _COLOURS.items():
        costs = [_part_us(part, medians[name]) for name in names]
        axes.bar(names, costs, bottom=below, color=colour, label=_label(part))
        below = [a + b for a, b in zip(below, costs, strict=True)]
    for at, total in enumerate(below):
        axes.annotate(f"{total:,.3g}", (at, total), ha="center", va="bottom", size=7)
    axes.set_title(section.title, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(y=0.12)
    axes.set_ylabel("us a step", fontsize=8)
    axes.tick_params(labelsize=8 if len(names) < 6 else 6)
    rates = [medians[name]["learner_ready_steps_per_s"] / 1e6 for name in names]
    other = axes.twinx()
    other.plot(names, rates, color="#24292f", marker="o", markersize=3, linewidth=1)
    other.set_ylim(0)
    other.set_ylabel("million steps/s", fontsize=8)
    other.tick_params(labelsize=8)
    other.spines["top"].set_visible(False)


def _part_us(part: str, figures: Mapping[str, float]) -> float:
    """Return a part of a bar; a worker's environment is a part of its own."""
    environment_us = min(figures["env_us_per_step"], figures["worker_us_per_step"])
    if part == _ENVIRONMENT:
        return environment_us
    return figures[f"{part}_us_per_step"] - environment_us * (part == "worker")


def _label(part: str) -> str:
    return _NAMES.get(part, part)
