"""Rows of lag -> lines of a table, CSV or a coloured text; pure.

Padded here, not by rich: it takes seconds for thousands of rows.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from infra.printable import printable
from rollstream.lag_columns import Column
from rollstream.lag_rows import LagRow

if TYPE_CHECKING:
    from rich.text import Text

_STYLES = ("", "yellow", "red")  # by severity
_GAP = "  "
_MOST_WIDTH = 300


def table_lines(rows: Sequence[LagRow], columns: Sequence[Column]) -> list[str]:
    """Return the header's line and one of each row, without spaces at their ends."""
    cells = _cells(rows, columns)
    return _lines(cells, columns, _widths(cells))


def fitted_lines(
    rows: Sequence[LagRow],
    columns: Sequence[Column],
    width: int,
    *,
    may_wrap: bool,
) -> list[str]:
    """Return the same for a terminal of a width.

    Args:
        rows: of the table.
        columns: of the table.
        width: of the terminal.
        may_wrap: a line that a terminal wraps can be read: only the last column is cut.
            Else names are cut as well, then columns left out, then lines cut.
    """
    cells = _cells(rows, columns)
    widths = _widths(cells)
    if may_wrap:
        return _lines(cells, columns, _shrunk(widths, columns, width, len(widths) - 1))
    if sum(_shrunk(widths, columns, 0)) + _gaps(columns) > width:
        columns = [each for each in columns if not each.is_extra]
        cells = _cells(rows, columns)
        widths = _widths(cells)
    lines = _lines(cells, columns, _shrunk(widths, columns, width))
    return [_cut(line, width) for line in lines]


def coloured(lines: Sequence[str], rows: Sequence[LagRow]) -> Text:
    """Return the lines of a table in the colours of their rows' states."""
    from rich.text import Text

    text = Text(no_wrap=True)
    text.append(lines[0], "dim")
    for line, row in zip(lines[1:], rows, strict=True):
        text.append("\n" + line, style_of(row))
    return text


def style_of(row: LagRow) -> str:
    """Return the style of a row's line."""
    has_nothing = row.state in (None, "EMPTY") and not row.severity
    return "dim" if has_nothing else _STYLES[row.severity]


def reason_line(row: LagRow) -> str:
    """Return why a row is in its state, in one line."""
    where = row.topic if row.partition is None else f"{row.topic}[{row.partition}]"
    words = filter(None, (row.state or "", row.group, where))
    return printable(f"{' '.join(words)}: {row.words}")


CSV_HEADER = ["at_s", *(field.name for field in fields(LagRow))]


def csv_lines(at_s: float, rows: Sequence[LagRow]) -> str:
    """Return a line of each row in the order of CSV_HEADER; "" is not known."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in rows:
        values = asdict(row).values()
        shown = (printable(v) if isinstance(v, str) else v for v in values)
        writer.writerow([at_s, *shown])
    return out.getvalue()


def _cells(rows: Sequence[LagRow], columns: Sequence[Column]) -> list[list[str]]:
    # A group's id has no bound, and each row is as wide as the widest.
    shown = [
        [
            _cut(printable(column.show(row)), _MOST_WIDTH, column.cut_at)
            for column in columns
        ]
        for row in rows
    ]
    return [[column.title for column in columns], *shown]


def _widths(cells: list[list[str]]) -> list[int]:
    return [max(map(_length, each)) for each in zip(*cells, strict=True)]


def _gaps(columns: Sequence[Column]) -> int:
    return len(_GAP) * (len(columns) - 1)


def _shrunk(
    widths: list[int], columns: Sequence[Column], width: int, first: int = 0
) -> list[int]:
    """Return widths that fit, as far as columns may be cut; the last one first."""
    widths = [*widths]
    for number in range(len(widths) - 1, first - 1, -1):
        excess = sum(widths) + _gaps(columns) - width
        least = columns[number].least_width
        if least is not None and excess > 0:
            least = min(least, widths[number])
            widths[number] = max(widths[number] - excess, least)
    return widths


def _lines(
    cells: list[list[str]], columns: Sequence[Column], widths: list[int]
) -> list[str]:
    return [_line(each, columns, widths) for each in cells]


def _line(cells: list[str], columns: Sequence[Column], widths: list[int]) -> str:
    shown = []
    for cell, column, width in zip(cells, columns, widths, strict=True):
        cut = _cut(cell, width, column.cut_at)
        space = " " * (width - _length(cut))
        shown.append(space + cut if column.is_number else cut + space)
    return _GAP.join(shown).rstrip()


def _length(text: str) -> int:
    # Asked of each cell: of most there is nothing to look up.
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _cut(text: str, width: int, at: float = 1.0) -> str:
    """Return what fits; what is left out is after that share of the rest."""
    if _length(text) <= width:
        return text
    from rich.cells import set_cell_size

    head = round((width - 1) * at)
    tail = width - 1 - head
    end = set_cell_size(text[::-1], tail)[::-1] if tail else ""
    return f"{set_cell_size(text, head)}…{end}"
