"""Values that a spec may be made of: JSON's, and few enough to be handled at once."""

from __future__ import annotations

import math
import reprlib
from typing import Any

from schemas.spec_part import SpecError

MAX_TEXT = 256 << 10
"""Characters of a file, or of a record's JSON."""
MAX_SPEC = 240 << 10
"""Characters of the canonical JSON: the record around it has to fit as well."""
MAX_VALUES = 20_000
MAX_DEPTH = 32
MAX_PROBLEMS = 20
_MAX_INT = 2**63 - 1
_MOST_SHOWN = 80

_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = _brief.maxlong = _MOST_SHOWN

Path = tuple[int | str, ...]


def check_plain(values: Any) -> None:
    """Raise SpecError unless ``values`` is what a bounded JSON text could hold.

    What is there several times (a YAML alias) counts as often: it would be written out.
    """
    problems: list[str] = []
    num_values, num_characters = 1, 0
    waiting: list[tuple[Path, Any]] = [((), values)]
    while waiting and len(problems) < MAX_PROBLEMS:
        path, value = waiting.pop()
        if problem := _problem(path, value):
            problems.append(f"{show_path(path)}: {problem}")
            continue
        inner = _items(value)
        num_values += len(inner)
        num_characters += _characters(value)
        if num_values > MAX_VALUES:
            raise SpecError([f"expected at most {MAX_VALUES:,} values, found more"])
        if num_characters > MAX_TEXT:
            raise SpecError([f"expected at most {MAX_TEXT:,} characters, found more"])
        waiting += [((*path, key), item) for key, item in reversed(inner)]
    if problems:
        raise SpecError(problems)


def show_path(path: Path) -> str:
    """Return a path as ``spec.env.id``, on one line whatever its keys are."""
    return ".".join(_show_key(part) for part in path) or "(top)"


def show(value: Any) -> str:
    """Return the beginning of a value, on one line."""
    if isinstance(value, dict):
        return f"a mapping of {', '.join(map(_show_key, [*value][:5])) or 'nothing'}"
    if isinstance(value, list | tuple) and len(value) > _brief.maxlist:
        return f"a list of {len(value):,}"
    if isinstance(value, int) and abs(value) > _MAX_INT:
        # Python refuses to write out a very long one.
        return f"a number of {value.bit_length():,} bits"
    return _brief.repr(value)[: _MOST_SHOWN + 2]


def _problem(path: Path, value: Any) -> str:
    if isinstance(value, dict | list | tuple):
        if len(path) >= MAX_DEPTH:
            return f"expected at most {MAX_DEPTH} levels, found more"
        wrong = [key for key in value if not (isinstance(key, str) and _is_text(key))]
        is_fine = not (isinstance(value, dict) and wrong)
        return "" if is_fine else f"expected texts as keys, found {show(wrong[0])}"
    if value is None or isinstance(value, bool):
        return ""
    if isinstance(value, str):
        return "" if _is_text(value) else _not(value, "a text of whole characters")
    if isinstance(value, int):
        return "" if abs(value) <= _MAX_INT else _not(value, "a number of 64 bits")
    if isinstance(value, float):
        return "" if math.isfinite(value) else _not(value, "a finite number")
    return _not(value, "a number, text, list or mapping")


def _items(value: Any) -> list[tuple[int | str, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list | tuple) else []


def _is_text(value: str) -> bool:
    # JSON can spell half of a surrogate pair, which no encoding can write.
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)


def _not(value: Any, expected: str) -> str:
    return f"expected {expected}, found {show(value)}"


def _characters(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(key) for key in value if isinstance(key, str))
    return 0


def _show_key(key: object) -> str:
    text = key if isinstance(key, str) else show(key)
    is_readable = text.isprintable() and len(text) <= _MOST_SHOWN
    return text if is_readable else _brief.repr(text)
