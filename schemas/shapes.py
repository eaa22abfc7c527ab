"""Do a record's tensors have the shapes that its docstring promises?"""

from collections.abc import Mapping
from functools import singledispatch
from typing import Any

from schemas.errors import SchemaError
from schemas.records import EpisodesFinished, Evaluation, TransitionBatch, Unroll
from schemas.tensors import Tensor, checked_bytes
from schemas.topics import worker_index

# Value columns are evaluated at row T too, to bootstrap from.
VALUE_COLUMNS = frozenset({"q_max", "value"})
# Steps are added to it, and the sums travel as 64 bits.
_LAST_PLACE = 1 << 62
_FLAGS = ("terminated", "truncated", "valid")
_RETURNS = {
    "returns": "<f4",
    "discounts": "<f4",
    "bootstrap_steps": "<i4",
    "priorities": "<f4",
}


@singledispatch
def check_shapes(record: Any) -> None:
    """Raise SchemaError when a tensor of ``record`` has not its promised shape."""


@check_shapes.register
def _(record: Unroll) -> None:
    _check_rows(record)


@check_shapes.register
def _(record: TransitionBatch) -> None:
    _check_rows(record)
    rows = (record.num_steps, record.num_envs)
    for name, dtype in _RETURNS.items():
        _check(name, getattr(record, name), rows, exact=True, dtypes=(dtype,))


@check_shapes.register
def _(record: EpisodesFinished) -> None:
    count = record.envs.shape
    for name in ("envs", "episodes", "returns", "lengths", "endings", "versions"):
        _check(name, getattr(record, name), count, exact=True)


@check_shapes.register
def _(record: Evaluation) -> None:
    _check("lengths", record.lengths, record.returns.shape, exact=True)


def _check_rows(record: Unroll | TransitionBatch) -> None:
    try:
        worker_index(record.worker)
    except ValueError as exc:
        raise SchemaError(str(exc)) from exc
    steps, envs = record.num_steps, record.num_envs
    places = (record.sequence, record.first_step)
    if steps < 1 or envs < 1 or min(places) < 0 or max(places) > _LAST_PLACE:
        raise SchemaError(
            "expected num_steps, num_envs >= 1 and sequence, first_step from 0 to "
            f"2^62, found {steps}, {envs}, {places[0]}, {places[1]}"
        )
    rows = (steps, envs)
    _check_map("observations", record.observations, (steps + 1, envs))
    for name in ("actions", "infos"):
        _check_map(name, getattr(record, name), rows)
    _check_map("states", record.states, (envs,))
    for name, tensor in record.behaviour.items():
        lead = (steps + 1, envs) if name in VALUE_COLUMNS else rows
        _check(f"behaviour/{name}", tensor, lead)
    _check("rewards", record.rewards, rows, exact=True, dtypes=("<f4", "<f8"))
    _check("episodes", record.episodes, (envs,), exact=True, dtypes=("<i8",))
    for name in _FLAGS:
        _check(name, getattr(record, name), rows, exact=True, dtypes=("|b1",))


def _check_map(name: str, tensors: Mapping[str, Tensor], lead: tuple[int, ...]) -> None:
    for key, tensor in tensors.items():
        _check(f"{name}/{key}", tensor, lead)


def _check(
    name: str,
    tensor: Tensor,
    lead: tuple[int, ...],
    *,
    exact: bool = False,
    dtypes: tuple[str, ...] = (),
) -> None:
    size = checked_bytes(tensor.dtype, tensor.shape)
    found = tensor.shape if exact else tensor.shape[: len(lead)]
    if found != lead:
        dots = "" if exact else ", ..."
        raise SchemaError(
            f"{name}: expected the shape [{', '.join(map(str, lead))}{dots}], "
            f"found {list(tensor.shape)}"
        )
    if dtypes and tensor.dtype not in dtypes:
        raise SchemaError(
            f"{name}: expected {' or '.join(dtypes)}, found {tensor.dtype}"
        )
    if tensor.encoding == "RAW" and len(tensor.data) != size:
        raise SchemaError(f"{name}: expected {size} bytes, found {len(tensor.data)}")
