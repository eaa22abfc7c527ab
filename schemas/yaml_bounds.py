"""A YAML text's events -> refusal of what would be large, lost or ambiguous; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import yaml

from schemas.plain_values import MAX_DEPTH, MAX_VALUES, show, show_path
from schemas.spec_part import SpecError

# Keys are nodes as well.
MAX_NODES = 2 * MAX_VALUES


@dataclass(slots=True)
class _Level:
    """A mapping or list that has begun and not ended.

    Attributes:
        path: of it.
        is_mapping: whether every other node is a key.
        keys: those seen.
        key: the one whose value comes next; None: a key comes next.
        items: of a list, so far.
    """

    path: tuple[int | str, ...]
    is_mapping: bool
    keys: set[str] = field(default_factory=set)
    key: str | None = None
    items: int = 0


def check_events(events: Iterable[Any]) -> None:
    """Raise SpecError for duplicate keys, tags, deep nesting and too many values.

    What an alias stands for is not counted here: it is one object until it is copied,
    and ``check_plain`` comes first.
    """
    levels: list[_Level] = []
    num_nodes = 0
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            levels.pop()
        if not isinstance(event, yaml.NodeEvent):
            continue
        node: Any = event
        where = f"in line {node.start_mark.line + 1}"
        path = _enter(levels, node, where)
        num_nodes += 1
        if num_nodes > MAX_NODES:
            raise SpecError([f"expected at most {MAX_VALUES:,} values, found more"])
        # A tag names what is to be made of a text; the text says all that it may be.
        if getattr(node, "tag", None) is not None:
            raise SpecError(
                [f"{show_path(path)}: expected no tag, found {show(node.tag)} {where}"]
            )
        if isinstance(event, yaml.CollectionStartEvent):
            if len(levels) >= MAX_DEPTH:
                raise SpecError(
                    [f"expected at most {MAX_DEPTH} levels, found more {where}"]
                )
            levels.append(_Level(path, isinstance(event, yaml.MappingStartEvent)))


def _enter(levels: list[_Level], event: Any, where: str) -> tuple[int | str, ...]:
    """Take note of a node in what it is in; return its path."""
    if not levels:
        return ()
    level = levels[-1]
    if not level.is_mapping:
        level.items += 1
        return (*level.path, level.items - 1)
    if level.key is not None:
        path = (*level.path, level.key)
        level.key = None
        return path
    if not isinstance(event, yaml.ScalarEvent):
        at = show_path(level.path)
        raise SpecError([f"{at}: expected texts as keys, found another {where}"])
    level.key = event.value
    path = (*level.path, level.key)
    if level.key in level.keys:
        raise SpecError(
            [f"{show_path(path)}: expected the key once, found it again {where}"]
        )
    level.keys.add(level.key)
    return path
