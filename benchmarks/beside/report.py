"""Outcomes -> tables, a picture for each section, and the tables of a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.beside.outcomes import Outcomes, Spread, spreads
from benchmarks.beside.section import Figure, Section
from infra.errors import RollstreamError

_OURS, _THEIRS = "#1f6feb", "#8c959f"
_NOTHING = Spread(0.0, 0.0, 0.0, 0)


def as_json_object(section: Section, outcomes: Outcomes) -> dict[str, Any]:
    """Return a section's figures with their spread, and which goals are reached."""
    sides = []
    for side in section.sides:
        rounds = outcomes.of(section, side)
        figures = {key: vars(spread) for key, spread in spreads(rounds).items()}
        versions = dict(rounds[-1].versions) if rounds else {}
        sides.append({"side": side.name, "figures": figures, "versions": versions})
    goals = [{"goal": g, "reached": is_so} for g, is_so in goals_of(section, outcomes)]
    return {"section": section.name, "sides": sides, "goals": goals}


def goals_of(section: Section, outcomes: Outcomes) -> list[tuple[str, bool | None]]:
    """Return each goal and whether it is reached; None: a side it needs is missing."""
    medians = outcomes.medians(section)
    found: list[tuple[str, bool | None]] = []
    for goal in section.goals:
        try:
            found.append((goal.text, goal.reached(medians)))
        except KeyError:
            found.append((goal.text, None))
    return found


def show(console: Console, sections: Sequence[Section], outcomes: Outcomes) -> None:
    """Print a table for each section."""
    for section in sections:
        table = Table(title=section.title, title_justify="left", box=None)
        head, rows = cells(section, outcomes)
        for number, name in enumerate(head):
            table.add_column(name, justify="right" if number else "left")
        for row in rows:
            table.add_row(row[0].strip("*"), *row[1:])
        console.print(table)
        console.print(f"  {section.text}", style="dim", markup=False)
        for text, is_so in goals_of(section, outcomes):
            console.print(f"  {_verdict(is_so)}: {text}", markup=False, soft_wrap=True)
        console.print()


def write_page(path: Path, sections: Sequence[Section], outcomes: Outcomes) -> None:
    """Replace the tables in a page, and draw the pictures beside it.

    Raises:
        RollstreamError: there is no such page, or a mark is missing.
    """
    write_tables(path, sections, outcomes)
    for section in sections:
        draw(section, outcomes, path.parent / f"performance-{section.name}.png")


def write_tables(path: Path, sections: Sequence[Section], outcomes: Outcomes) -> None:
    """Replace the tables in a page, each between its two marks.

    Raises:
        RollstreamError: there is no such page, or a mark is missing.
    """
    if not path.exists():
        raise RollstreamError(f"{path}: expected a page with marks, found no file")
    text = path.read_text()
    for section in sections:
        first, last = f"<!-- {section.name} -->", f"<!-- end of {section.name} -->"
        before, found_first, rest = text.partition(first)
        _, found_last, after = rest.partition(last)
        if not (found_first and found_last):
            raise RollstreamError(
                f"{path}: expected {first} and {last}, found "
                f"{'only the first' if found_first else 'none'}"
            )
        text = f"{before}{first}\n{markdown(section, outcomes)}\n{last}{after}"
    path.write_text(text)


def markdown(section: Section, outcomes: Outcomes) -> str:
    """Return a section's table, text and goals in Markdown."""
    head, rows = cells(section, outcomes)
    lines = [
        "| " + " | ".join(head) + " |",
        "| --- |" + " ---: |" * (len(head) - 1),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
        section.text,
        "",
        *(f"- {_verdict(so)}: {text}" for text, so in goals_of(section, outcomes)),
    ]
    return "\n".join(lines)


def cells(section: Section, outcomes: Outcomes) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows: medians, ranges, and how ours compares."""
    by_side = {s.name: spreads(outcomes.of(section, s)) for s in section.sides}
    ours = next((by_side[s.name] for s in section.sides if s.is_ours), {})
    rows = []
    for side in section.sides:
        found = by_side[side.name]
        if not found:
            continue
        row = [f"**{side.name}**" if side.is_ours else side.name]
        for figure in section.figures:
            row.append(_cell(figure, found, {} if side.is_ours else ours))
        rows.append([*row, str(max(spread.rounds for spread in found.values()))])
    return ["", *(f.title for f in section.figures), "rounds"], rows


def _cell(figure: Figure, found: dict[str, Spread], ours: dict[str, Spread]) -> str:
    spread = found.get(figure.key)
    if spread is None:
        return "-"
    number = f",.{figure.digits}f"
    text = f"{spread.median:{number}}"
    if spread.rounds > 1:
        text += f" ({spread.low:{number}} to {spread.high:{number}})"
    beside = ours.get(figure.key, _NOTHING).median
    if figure.better and beside and spread.median:
        better = beside / spread.median
        better = better if figure.better == "high" else 1 / better
        text += f", ours {_two_digits(better)} x as good"
    return text


def _two_digits(value: float) -> str:
    """Return it with two digits that count, and no exponent: 0.15, 1.5, 150, 1,500."""
    return f"{float(f'{value:.2g}'):,.10g}"


def _verdict(reached: bool | None) -> str:
    return {True: "reached", False: "not reached", None: "not measured"}[reached]


def draw(section: Section, outcomes: Outcomes, path: Path) -> None:
    """Draw the first figure of each side as a bar, with its range."""
    figure = section.figures[0]
    found = [
        (side, spread)
        for side in section.sides
        if (spread := spreads(outcomes.of(section, side)).get(figure.key))
    ]
    if not found:
        return
    # Here, not above: it takes half a second.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    height = 0.8 + 0.42 * len(found)
    picture, axes = pyplot.subplots(figsize=(8.5, height), dpi=120)
    medians = [spread.median for _, spread in found]
    reach = [
        [spread.median - spread.low for _, spread in found],
        [spread.high - spread.median for _, spread in found],
    ]
    colours = [_OURS if side.is_ours else _THEIRS for side, _ in found]
    names = [side.name for side, _ in found]
    axes.barh(names, medians, xerr=reach, color=colours, ecolor="#24292f")
    for at, (_, spread) in enumerate(found):
        axes.annotate(
            f" {spread.median:,.{figure.digits}f}", (spread.high, at), xytext=(4, 0),
            textcoords="offset points", va="center", fontsize=9,
        )  # fmt: skip
    axes.invert_yaxis()
    axes.margins(x=0.18)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.locator_params(axis="x", nbins=6)
    axes.spines[["top", "right"]].set_visible(False)
    # Of the whole picture and not of the axes, beside which names stand.
    picture.suptitle(f"{section.title}: {figure.title}", x=0.01, ha="left", fontsize=10)
    picture.tight_layout()
    picture.savefig(path)
    pyplot.close(picture)
