"""Why a spec is refused, one line a problem: path, expected, found."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from schemas.plain_values import MAX_PROBLEMS, show, show_path

# Of whatever spelling: bootstrap.servers, bootstrapServers, bootstrap-servers.
_CLIENT_SETTINGS = re.compile(
    r"kafka|bootstrap|broker|zookeeper|sasl|ssl|security|password|token|acks|linger"
    r"|group|consumer|producer|client|registry|enableauto|autooffset"
    r"|sessiontimeout|maxpoll|fetch|compression|retries|idempotence|transactional"
    r"|replication|retention|mininsync"
)
_PATH_FIRST = re.compile(r"[A-Za-z0-9.]+: expected ")
_EXPECTED: dict[str, Callable[[dict[str, Any]], str]] = {
    "int_type": lambda ctx: "a whole number",
    "int_from_float": lambda ctx: "a whole number",
    "float_type": lambda ctx: "a number",
    "bool_type": lambda ctx: "true or false",
    "string_type": lambda ctx: "a text",
    "dict_type": lambda ctx: "a mapping",
    "model_type": lambda ctx: "a mapping",
    "tuple_type": lambda ctx: "a list",
    "literal_error": lambda ctx: str(ctx["expected"]),
    "greater_than_equal": lambda ctx: f"at least {_number(ctx['ge'])}",
    "greater_than": lambda ctx: f"more than {_number(ctx['gt'])}",
    "less_than_equal": lambda ctx: f"at most {_number(ctx['le'])}",
    "less_than": lambda ctx: f"less than {_number(ctx['lt'])}",
    "too_long": lambda ctx: f"at most {ctx['max_length']} of them",
    "string_too_long": lambda ctx: f"at most {ctx['max_length']} characters",
    "string_pattern_mismatch": lambda ctx: f"a match of {ctx['pattern']}",
}


def refusals(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Return what is wrong, the first problems in full; ``model`` was validated."""
    errors = error.errors(include_url=False)
    found = [
        line for each in errors[:MAX_PROBLEMS] for line in _refusals_of(each, model)
    ]
    if len(errors) > MAX_PROBLEMS:
        found.append(f"and {len(errors) - MAX_PROBLEMS:,} more")
    return found


def _refusals_of(error: ErrorDetails, model: type[BaseModel]) -> list[str]:
    """Return the problems of one error; a rule over several fields has a line each."""
    if error["type"] != "value_error":
        return [_refusal(error, model)]
    path = show_path(error["loc"])
    return [
        # Such a rule names the field that is wrong.
        f"{path}{'.' if _PATH_FIRST.match(line) else ': '}{line}"
        for line in error["msg"].removeprefix("Value error, ").splitlines()
    ]


def _refusal(error: ErrorDetails, model: type[BaseModel]) -> str:
    path, kind = show_path(error["loc"]), error["type"]
    if kind == "extra_forbidden":
        return f"{path}: {_unknown_key(error['loc'], model)}"
    if kind == "missing":
        return f"{path}: expected a value, found none"
    if kind in _EXPECTED:
        expected = _EXPECTED[kind](error.get("ctx", {}))
    else:
        expected = error["msg"].removeprefix("Input should be ")
    return f"{path}: expected {expected}, found {show(error['input'])}"


def _number(bound: float) -> str:
    return f"{int(bound) if bound == int(bound) else bound:,}"


def _unknown_key(loc: tuple[int | str, ...], model: type[BaseModel]) -> str:
    key = str(loc[-1])[:80]
    found = f"found {show_path((key,))}"
    if _CLIENT_SETTINGS.match(re.sub("[^a-z]", "", key.lower())):
        return (
            f"expected a known key, {found}: brokers and clients' settings are the "
            "machine's (KAFKA_BOOTSTRAP_SERVERS, ROLLSTREAM_...), never an experiment's"
        )
    parent = _model_at(model, loc[:-1])
    known = [str(f.alias) for f in parent.model_fields.values()] if parent else []
    close = difflib.get_close_matches(key, known, 1, 0.5)
    hint = f"did you mean {close[0]}?" if close else ", ".join(known)
    return f"expected a known key ({hint}), {found}"


def _model_at(model: Any, loc: tuple[int | str, ...]) -> type[BaseModel] | None:
    """Return the part of a model that a path leads to; None: there is none."""
    for part in loc:
        if isinstance(part, int):
            model = next(iter(get_args(model)), None)
        elif _is_part(model):
            named = {f.alias: f.annotation for f in model.model_fields.values()}
            model = named.get(part)
    return model if _is_part(model) else None


def _is_part(model: Any) -> bool:
    return isinstance(model, type) and issubclass(model, BaseModel)
