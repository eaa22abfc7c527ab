"""What a person writes of the past that is wanted -> which rows of a record those are.

Times are those of records (``produced_at_ms``); steps are vector steps within a stream,
as in an archive's column ``step``.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import numpy as np

from infra.errors import RollstreamError
from schemas.experiment import PastSpec
from schemas.records import SourceRef, Unroll
from schemas.tensors import Array
from schemas.topics import worker_index

_PLACE = re.compile(r"(offset|step):(\d{1,18})")
_VERSIONS = re.compile(r"(?P<first>-?\d{1,18})?(?P<dots>\.\.)?(?P<last>-?\d{1,18})?")
_WORKERS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_CONDITION = re.compile(r"(return|length)(>=|<=|==|>|<)(-?\d{1,18}(?:\.\d{1,9})?)")
_COMPARISONS: dict[str, Callable[[Array, float], Array]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}


class BadSelection(RollstreamError):
    """What is said of the past that is wanted cannot be understood."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Where what is wanted begins, or ends: in milliseconds, an offset or a step."""

    kind: Literal["time", "offset", "step"]
    value: int

    def __str__(self) -> str:
        if self.kind != "time":
            return f"{self.kind}:{self.value}"
        at = datetime.fromtimestamp(self.value / 1000, UTC)
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Condition:
    """What an episode's return or length has to be."""

    what: Literal["return", "length"]
    comparison: str
    value: float

    def __str__(self) -> str:
        value = int(self.value) if self.value.is_integer() else self.value
        return f"{self.what}{self.comparison}{value!r}"

    def holds(self, returns: Array, lengths: Array) -> Array:
        """Return of which episodes it is true, by their returns and lengths [N]."""
        found = returns if self.what == "return" else lengths
        return _COMPARISONS[self.comparison](found, self.value)


class Episodes(Protocol):
    """Which episodes are wanted, once all of them are known."""

    def choose(self, unroll: Unroll) -> Array:
        """Return which rows [T, B] are of such an episode."""


@dataclass(frozen=True)
class Selection:
    """Which rows of a past are wanted; without anything: all of them.

    Attributes:
        since: rows from there on.
        until: rows before that.
        versions: of policies, first and last; None: no bound on that side. -1: actions
            at random.
        workers: ranges of indices, first and last.
        episodes: what has to be true of the whole episode of a row.
    """

    since: Bound | None = None
    until: Bound | None = None
    versions: tuple[int | None, int | None] | None = None
    workers: tuple[tuple[int, int], ...] = ()
    episodes: tuple[Condition, ...] = ()

    @classmethod
    def of(cls, past: PastSpec) -> Selection:
        """Return what a spec's texts say; raises BadSelection."""
        return cls.parse(
            since=past.since,
            until=past.until,
            versions=past.policy_versions,
            workers=past.workers,
            episodes=past.episodes,
        )

    @classmethod
    def parse(
        cls,
        *,
        since: str | None = None,
        until: str | None = None,
        versions: str | None = None,
        workers: str | None = None,
        episodes: str | None = None,
    ) -> Selection:
        """Return what texts say; see `schemas.past_specs.PastSpec`.

        Raises:
            BadSelection: one says nothing, or a time has no zone.
        """
        return cls(
            since=None if since is None else _bound("since", since),
            until=None if until is None else _bound("until", until),
            versions=None if versions is None else _versions(versions),
            workers=() if workers is None else _workers(workers),
            episodes=() if episodes is None else _conditions(episodes),
        )

    @property
    def is_all(self) -> bool:
        """Whether everything is wanted."""
        return self == Selection()

    def to_json(self) -> str:
        """Return the canonical JSON: the same for all texts that mean the same."""
        values: dict[str, Any] = {
            "since": str(self.since) if self.since else None,
            "until": str(self.until) if self.until else None,
            "policy_versions": self.versions,
            "workers": self.workers,
            "episodes": sorted(map(str, self.episodes)),
        }
        kept = {name: value for name, value in values.items() if value}
        return json.dumps(kept, sort_keys=True, separators=(",", ":"))

    def has_worker(self, worker: str) -> bool:
        """Whether anything of a worker is wanted."""
        if not self.workers:
            return True
        index = worker_index(worker)
        return any(first <= index <= last for first, last in self.workers)

    def end(self, end: int) -> int:
        """Return the offset from which on nothing of a partition is wanted."""
        if self.until is not None and self.until.kind == "offset":
            return min(end, self.until.value)
        return end

    def choose(
        self, address: SourceRef, unroll: Unroll, episodes: Episodes | None = None
    ) -> Array:
        """Return which valid rows [T, B] of a record are wanted.

        Args:
            address: where it was.
            unroll: the record.
            episodes: which are wanted, where this selects by them.
        """
        chosen = unroll.valid.array().copy()
        if not self._has_record(address, unroll):
            chosen[:] = False
            return chosen
        steps = np.arange(unroll.first_step, unroll.first_step + unroll.num_steps)
        if self.since is not None and self.since.kind == "step":
            chosen &= (steps >= self.since.value)[:, None]
        if self.until is not None and self.until.kind == "step":
            chosen &= (steps < self.until.value)[:, None]
        if self.episodes:
            if episodes is None:
                raise ValueError("expected to be told of episodes, found nothing")
            chosen &= episodes.choose(unroll)
        return chosen

    def _has_record(self, address: SourceRef, unroll: Unroll) -> bool:
        if not self.has_worker(unroll.worker):
            return False
        if self.versions is not None:
            first, last = self.versions
            version = unroll.policy.version
            if first is not None and version < first:
                return False
            if last is not None and version > last:
                return False
        places = {"time": unroll.produced_at_ms, "offset": address.offset}
        since, until = self.since, self.until
        if since is not None and places.get(since.kind, since.value) < since.value:
            return False
        if until is None or until.kind == "step":
            return True
        return places[until.kind] < until.value


def _bound(name: str, text: str) -> Bound:
    text = text.strip()
    if match := _PLACE.fullmatch(text):
        kind: Literal["offset", "step"] = "offset" if match[1] == "offset" else "step"
        return Bound(kind, int(match[2]))
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadSelection(
            f"{name}: expected a time as 2026-11-30T10:00:00Z, offset:N or step:N, "
            f"found {text!r}"
        ) from None
    if at.tzinfo is None:
        raise BadSelection(
            f"{name}: expected a time with its zone, such as {text}Z or {text}+01:00, "
            f"found {text!r}: it would mean another moment on another machine"
        )
    return Bound("time", round(at.timestamp() * 1000))


def _versions(text: str) -> tuple[int | None, int | None]:
    match = _VERSIONS.fullmatch(text.strip())
    if match is None or (match["first"] is None and match["last"] is None):
        raise _expected("policy versions", "A..B, A.., ..B or A", text)
    first = None if match["first"] is None else int(match["first"])
    if match["dots"] is None:
        if first is None or match["last"] is not None:
            raise _expected("policy versions", "A..B, A.., ..B or A", text)
        return first, first
    last = None if match["last"] is None else int(match["last"])
    if first is not None and last is not None and first > last:
        raise _expected("policy versions", f"at most {last} before ..{last}", text)
    return first, last


def _workers(text: str) -> tuple[tuple[int, int], ...]:
    ranges = []
    for part in text.split(","):
        match = _WORKERS.fullmatch(part.strip())
        if match is None:
            raise _expected("workers", "indices and ranges such as 0,2-5", text)
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise _expected("workers", f"at most {last} before -{last}", text)
        ranges.append((first, last))
    return tuple(_joined(sorted(ranges)))


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join sorted ranges that touch."""
    joined = ranges[:1]
    for first, last in ranges[1:]:
        before = joined[-1]
        if first <= before[1] + 1:
            joined[-1] = before[0], max(before[1], last)
        else:
            joined.append((first, last))
    return joined


def _conditions(text: str) -> tuple[Condition, ...]:
    conditions = set()
    for part in text.split(","):
        match = _CONDITION.fullmatch(re.sub(r"\s+", "", part))
        if match is None:
            raise _expected("episodes", "return>=200, or return>=200,length<500", text)
        what: Literal["return", "length"] = (
            "return" if match[1] == "return" else "length"
        )
        conditions.add(Condition(what, match[2], float(match[3])))
    return tuple(sorted(conditions, key=str))


def _expected(what: str, expected: str, found: str) -> BadSelection:
    return BadSelection(f"{what}: expected {expected}, found {found[:80]!r}")
