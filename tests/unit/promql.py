"""As much of PromQL as our rules need, over series that a test writes down.

For machines without promtool, which knows all of it. Rates are not extrapolated.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import promql_parser
from promql_parser import (
    AggregateExpr,
    BinaryExpr,
    Call,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    VectorSelector,
)

LOOKBACK_S = 300
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt, "<": operator.lt, "==": operator.eq, "!=": operator.ne,
    ">=": operator.ge, "<=": operator.le,
}  # fmt: skip
_AGGREGATE: Mapping[str, Callable[[list[float]], float]] = {
    "max": max, "min": min, "sum": sum, "count": len,
}  # fmt: skip
_MATCH: Mapping[str, Callable[[str, str], bool]] = {
    "Equal": lambda value, wanted: value == wanted,
    "NotEqual": lambda value, wanted: value != wanted,
    "Re": lambda value, wanted: re.fullmatch(wanted, value) is not None,
    "NotRe": lambda value, wanted: re.fullmatch(wanted, value) is None,
}

Labels = tuple[tuple[str, str], ...]
Vector = dict[Labels, float]


@dataclass(frozen=True)
class Series:
    """A series, and its samples: (time in seconds, value)."""

    name: str
    labels: Mapping[str, str]
    samples: Sequence[tuple[float, float]]

    @classmethod
    def parse(cls, notation: str, values: str, interval_s: float) -> Series:
        """Return what a test file of promtool means."""
        selector = promql_parser.parse(notation)
        labels = {m.name: m.value for m in selector.matchers.matchers}
        found = [
            (n * interval_s, value)
            for n, value in enumerate(_expanded(values))
            if value is not None
        ]
        return cls(selector.name, labels, found)


def _expanded(text: str) -> Iterator[float | None]:
    for part in text.split():
        if part == "_" or re.fullmatch(r"_x\d+", part):
            yield from [None] * int(part[2:] or 1)
            continue
        shape = r"(-?[\d.]+)(?:([+-][\d.]+))?(?:x(\d+))?"
        found = re.fullmatch(shape, part)
        assert found, part
        first, step, times = float(found[1]), float(found[2] or 0), int(found[3] or 0)
        yield from (first + n * step for n in range(times + 1))


def evaluate(expr: Any, series: Sequence[Series], now_s: float) -> Vector:
    """Return what an expression is at a time."""
    match expr:
        case ParenExpr():
            return evaluate(expr.expr, series, now_s)
        case VectorSelector():
            return {
                _key(each): value
                for each in _selected(expr, series)
                if (value := _newest(each, now_s)) is not None
            }
        case Call():
            return _call(expr, series, now_s)
        case AggregateExpr():
            return _aggregate(expr, evaluate(expr.expr, series, now_s))
        case BinaryExpr():
            return _binary(expr, series, now_s)
    raise NotImplementedError(expr)


def _key(series: Series) -> Labels:
    return tuple(sorted({**series.labels, "__name__": series.name}.items()))


def _selected(selector: Any, series: Sequence[Series]) -> list[Series]:
    assert not selector.offset and not selector.at
    return [
        each
        for each in series
        if each.name == selector.name
        and all(
            _MATCH[str(m.op).removeprefix("MatchOp.")](
                each.labels.get(m.name, ""), m.value
            )
            for m in selector.matchers.matchers
        )
    ]


def _newest(series: Series, now_s: float) -> float | None:
    found = [v for at_s, v in series.samples if now_s - LOOKBACK_S < at_s <= now_s]
    return found[-1] if found else None


def _call(expr: Any, series: Sequence[Series], now_s: float) -> Vector:
    (matrix,) = expr.args
    assert isinstance(matrix, MatrixSelector)
    span_s = matrix.range.total_seconds()
    found = {}
    for each in _selected(matrix.vector_selector, series):
        values = [v for at_s, v in each.samples if now_s - span_s <= at_s <= now_s]
        if len(values) >= 2:
            pairs = zip(values, values[1:], strict=False)
            grown = sum(b - a if b >= a else b for a, b in pairs)
            found[_without_name(_key(each))] = {
                "increase": grown,
                "rate": grown / span_s,
                "delta": values[-1] - values[0],
            }[expr.func.name]
    return found


def _without_name(labels: Labels) -> Labels:
    return tuple(pair for pair in labels if pair[0] != "__name__")


def _aggregate(expr: Any, vector: Vector) -> Vector:
    by = set(expr.modifier.labels) if expr.modifier else set()
    assert expr.modifier is None or "by" in str(expr.modifier)
    groups: dict[Labels, list[float]] = {}
    for labels, value in vector.items():
        key = tuple(pair for pair in labels if pair[0] in by)
        groups.setdefault(key, []).append(value)
    return {key: _AGGREGATE[str(expr.op)](each) for key, each in groups.items()}


def _binary(expr: Any, series: Sequence[Series], now_s: float) -> Vector:
    left = evaluate(expr.lhs, series, now_s)
    if (compare := _COMPARE.get(str(expr.op))) is not None:
        assert isinstance(expr.rhs, NumberLiteral)
        return {k: v for k, v in left.items() if compare(v, expr.rhs.val)}
    assert str(expr.op) == "and" and str(expr.modifier).startswith("on ")
    on = set(expr.modifier.matching.labels)

    def part(labels: Labels) -> Labels:
        return tuple(pair for pair in labels if pair[0] in on)

    others = {part(labels) for labels in evaluate(expr.rhs, series, now_s)}
    return {labels: v for labels, v in left.items() if part(labels) in others}


def firing(
    rule: Mapping[str, Any], series: Sequence[Series], every_s: float, at_s: float
) -> list[dict[str, str]]:
    """Return the labels of a rule's alerts that fire at a time."""
    expr = promql_parser.parse(rule["expr"])
    for_s = seconds(rule.get("for", "0s"))
    since_s: dict[Labels, float] = {}
    now_s = 0.0
    while now_s <= at_s:
        active = {_without_name(labels) for labels in evaluate(expr, series, now_s)}
        since_s = {labels: since_s.get(labels, now_s) for labels in active}
        now_s += every_s
    last_s = now_s - every_s
    return [
        {**dict(labels), **rule["labels"]}
        for labels, began_s in since_s.items()
        if last_s - began_s >= for_s
    ]


def seconds(text: str) -> float:
    """Return a duration in seconds."""
    if text == "0s":  # which the parser takes for none
        return 0.0
    return promql_parser.parse_duration(text).total_seconds()


def selectors(text: str) -> list[Any]:
    """Return the selectors of an expression."""
    found = []

    def visit(expr: Any) -> None:
        if isinstance(expr, VectorSelector):
            found.append(expr)
        elif isinstance(expr, MatrixSelector):
            found.append(expr.vector_selector)

    promql_parser.walk(promql_parser.parse(text), visit)
    return found
