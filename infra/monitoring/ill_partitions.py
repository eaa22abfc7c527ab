"""Which partitions of a group an alert is about, by what the judge says; pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from infra.monitoring.lag.model import SEVERITY, PartitionLag, State

# Those of the judge's rules that say so.
_NEAR_EXPIRY = (8, 9)
_GROWING = 11

# Who handles less than that share of what comes falls behind.
_FALLS_BEHIND = 0.9


def _its_reason(each: PartitionLag) -> str:
    return each.verdict.reason


@dataclass(frozen=True, slots=True)
class Ill:
    """What an alert is about.

    Attributes:
        holds: whether a partition is so.
        severity: how bad that is.
        says: why, in words.
    """

    holds: Callable[[PartitionLag], bool]
    severity: int
    says: Callable[[PartitionLag], str] = _its_reason

    def of(self, partitions: tuple[PartitionLag, ...]) -> list[PartitionLag]:
        """Return those that are so."""
        return [each for each in partitions if self.holds(each)]


def _is_in(*states: State) -> Ill:
    return Ill(
        lambda each: each.verdict.state in states,
        min(SEVERITY[state] for state in states),
    )


def _is_near_expiry(each: PartitionLag) -> bool:
    return each.verdict.state == "WARN" and each.verdict.rule in _NEAR_EXPIRY


def _grows(each: PartitionLag) -> bool:
    """Whether the judge says so; or something worse, that may fall, and rates tell."""
    if each.verdict.state != "WARN":
        return False
    if each.verdict.rule == _GROWING:
        return True
    comes, goes = each.produced_per_s, each.consumed_per_s
    return comes is not None and goes is not None and goes < _FALLS_BEHIND * comes


def _how_it_grows(each: PartitionLag) -> str:
    if each.verdict.rule == _GROWING:
        return each.verdict.reason
    comes, goes = each.produced_per_s or 0.0, each.consumed_per_s or 0.0
    return f"{comes:.3g} records come each second, {goes:.3g} are handled"


STALLED = _is_in("STALLED", "STOPPED")
LOST_PLACE = _is_in("LOST", "REWIND")
GROWING = Ill(_grows, SEVERITY["WARN"], _how_it_grows)
NEAR_EXPIRY = Ill(_is_near_expiry, SEVERITY["WARN"])
