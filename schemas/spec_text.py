"""YAML or JSON -> plain values, in bounds whatever the text is.

YAML is read as version 1.2 says, and as editors do: 1e-3 is a number, ``no`` and 12:30
are texts. A key that is there twice is refused: one of the two would be lost.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from schemas.plain_values import MAX_DEPTH, MAX_TEXT, show
from schemas.spec_part import SpecError
from schemas.yaml_bounds import check_events

# libyaml's is ten times as fast; PyYAML can be built without.
BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TAG = "tag:yaml.org,2002:"
_CORE_SCHEMA = (
    ("null", r"(~|null|Null|NULL|)\Z", [*"~nN", ""]),
    ("bool", r"(true|True|TRUE|false|False|FALSE)\Z", [*"tTfF"]),
    ("int", r"([-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z", [*"-+0123456789"]),
    (
        "float",
        r"([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))\Z",
        [*"-+.0123456789"],
    ),
)
_BASES = {"0o": 8, "0x": 16}


class _Loader(BaseLoader):  # type: ignore[misc]
    """Texts, numbers and so on as YAML 1.2 tells them apart; PyYAML's are of 1.1."""

    yaml_implicit_resolvers: dict[str, Any] = {}

    def construct_core_int(self, node: yaml.ScalarNode) -> int:
        return int(node.value, _BASES.get(node.value[:2], 10))


for _name, _pattern, _first in _CORE_SCHEMA:
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(_pattern), _first)
_Loader.add_constructor(_TAG + "int", _Loader.construct_core_int)


def load_yaml(text: str) -> Any:
    """Return the values of one YAML document.

    Raises:
        SpecError: it is none, or has what a spec has no use for.
    """
    if len(text) > MAX_TEXT:
        raise SpecError([f"expected at most {MAX_TEXT:,} characters, found more"])
    try:
        check_events(yaml.parse(text, Loader=BaseLoader))
        return yaml.load(text, Loader=_Loader)
    except SpecError:
        raise
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        where = f" in line {mark.line + 1}" if mark else ""
        raise SpecError([f"expected YAML, found: {exc.problem}{where}"]) from exc
    except (yaml.YAMLError, ValueError) as exc:
        problem = " ".join(str(exc).split())[:200]
        raise SpecError([f"expected YAML, found: {problem}"]) from exc


def load_json(text: str) -> Any:
    """Return the values of a JSON text; raises SpecError."""
    if len(text) > MAX_TEXT:
        raise SpecError([f"expected at most {MAX_TEXT:,} characters, found more"])
    try:
        return json.loads(
            text, object_pairs_hook=_each_once, parse_constant=_refuse_constant
        )
    except SpecError:
        raise
    except ValueError as exc:
        raise SpecError([f"expected JSON, found {exc}"]) from exc
    except RecursionError as exc:
        raise SpecError([f"expected at most {MAX_DEPTH} levels, found more"]) from exc


def load_text_file(path: Path) -> Any:
    """Return what a YAML or JSON file holds; raises SpecError, naming the file."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TEXT + 1)
        if len(data) > MAX_TEXT:
            raise SpecError([f"expected at most {MAX_TEXT:,} bytes, found more"])
        text = data.decode("utf-8-sig")
        return load_json(text) if path.suffix == ".json" else load_yaml(text)
    except OSError as exc:
        raise SpecError([f"{path}: cannot be read: {exc.strerror}"]) from exc
    except SpecError as exc:
        raise SpecError([f"{path}: {problem}" for problem in exc.problems]) from exc
    except UnicodeDecodeError as exc:
        raise SpecError([f"{path}: expected UTF-8, found {exc.reason}"]) from exc


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise SpecError([f"expected each key once, found {show(key)} again"])
        values[key] = value
    return values


def _refuse_constant(name: str) -> float:
    # Python reads NaN and Infinity; JSON has neither.
    raise SpecError([f"expected a finite number, found {name}"])
