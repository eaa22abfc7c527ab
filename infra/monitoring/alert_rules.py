"""What is known of an experiment, and its spec -> which rules are broken; pure.

Each rule says how it stands: broken, well, or in between, where an alert that is on
stays on and one that is off stays off. Of what is not known, no rule says anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from infra.monitoring.ill_partitions import (
    GROWING,
    LOST_PLACE,
    NEAR_EXPIRY,
    STALLED,
    Ill,
)
from infra.monitoring.lag.judge import Rules
from infra.monitoring.lag.model import ORDER, SEVERITY, GroupLag, PartitionLag
from infra.monitoring.lag.own_groups import READS
from schemas.alert_specs import AlertsSpec
from schemas.experiment import Spec

AlertName = Literal[
    "stalled", "lost-place", "growing-lag", "near-expiry", "late",
    "nonfinite-loss", "lost-steps", "policy-lag", "policy-age",
]  # fmt: skip
ALERT_NAMES: tuple[AlertName, ...] = get_args(AlertName)
OF_GROUPS: tuple[AlertName, ...] = (
    "stalled", "lost-place", "growing-lag", "near-expiry", "late",
)  # fmt: skip
GROUP_ROLES = tuple(READS)
"""Whose groups are judged."""

JUDGED_AFTER_S = Rules().stalled_after_s
"""From when on the judge calls a group stalled, at the earliest."""

# A value that is at its bound would go on and off all the time.
_WELL_BELOW = 0.8
# For how long a value has to be beyond its bound; a single report may be odd.
_STEADY_S = 5.0
# For how long after the last of them losses that are not finite are told of.
_NONFINITE_S = 60.0


@dataclass(frozen=True, slots=True, order=True)
class AlertKey:
    """Which alert of an experiment: its rule, and the role that it is about."""

    name: AlertName
    role: str


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of an experiment at a moment.

    Attributes:
        spec: in force.
        groups: how its consumer groups do, by role; those that are not known now are
            absent.
        learner: what the learner has told last; {}: nothing.
        nonfinite_age_s: since its loss was last seen not to be finite; infinite: it
            was not.
    """

    spec: Spec
    groups: Mapping[str, GroupLag] = field(default_factory=dict)
    learner: Mapping[str, float] = field(default_factory=dict)
    nonfinite_age_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Standing:
    """How a rule stands.

    Attributes:
        is_broken: beyond its bound.
        is_well: so far from it that an alert is over; neither: in between.
        reason: in words.
        for_s: how long it has to be broken before anybody is told.
    """

    is_broken: bool
    is_well: bool
    reason: str
    for_s: float = 0.0


def standings(look: Look) -> dict[AlertKey, Standing]:
    """Return how each rule stands of which anything is known.

    1. ``stalled``: a partition is STALLED or STOPPED.
    2. ``lost-place``: a partition is REWIND or LOST.
    3. ``growing-lag``: the lag of a partition grows for long, late or not.
    4. ``near-expiry``: what a group has not handled is about to expire, or what it
       would read again after a crash has.
    5. ``late``: the oldest record that a group has not handled is too old.
    6. ``nonfinite-loss``: the learner left out updates within the last minute.
    7. ``lost-steps``: more steps than may be are missing in the log.
    8. ``policy-lag``: experience arrives that too old policies made.
    9. ``policy-age``: what is learnt from was acted too long ago.

    Rules 1 to 5 are about groups, and hold only while the experiment is to run. Of a
    partition the judge says one thing only: while another one is as bad, or worse, a
    group is not well.
    """
    found = dict(_of_groups(look))
    found.update(_of_learner(look))
    return found


def _of_groups(look: Look) -> Iterator[tuple[AlertKey, Standing]]:
    for role in GROUP_ROLES:
        group, why_not = look.groups.get(role), _why_not(look.spec, role)
        if why_not:
            for name in OF_GROUPS:
                yield AlertKey(name, role), _well(why_not)
        elif group is not None:
            for name, standing in _of_group(look.spec.alerts, role, group):
                if standing is not None:
                    yield AlertKey(name, role), standing


def _why_not(spec: Spec, role: str) -> str:
    if spec.state != "running":
        return f"it is {spec.state}"
    if role == "archiver" and not spec.archive:
        return "nothing is archived"
    return ""


def _of_group(
    alerts: AlertsSpec, role: str, group: GroupLag
) -> Iterator[tuple[AlertName, Standing | None]]:
    stalled_s, growing_s = alerts.stalled_after_s, alerts.growing_for_s
    if role == "learner":
        stalled_s = alerts.learner_stalled_after_s
    hold_s = (stalled_s or 0.0) - JUDGED_AFTER_S
    yield "stalled", _any_of(group, STALLED, stalled_s, hold_s)
    lost = 0.0 if alerts.lost_place else None
    yield "lost-place", _any_of(group, LOST_PLACE, lost)
    yield "growing-lag", _any_of(group, GROWING, growing_s, growing_s or 0.0)
    expiring = 0.0 if alerts.near_expiry else None
    yield "near-expiry", _any_of(group, NEAR_EXPIRY, expiring)
    yield "late", _late(alerts.lag_s, group)


def _any_of(
    group: GroupLag, what: Ill, bound: float | None, for_s: float = 0.0
) -> Standing | None:
    if bound is None:
        return _off()
    if not group.partitions:
        return None
    if ill := what.of(group.partitions):
        reason = _of_partitions(ill, group, what)
        return Standing(True, False, reason, max(for_s, 0.0))
    states = [each.verdict.state for each in group.partitions]
    severity = max(SEVERITY[state] for state in states)
    if severity == 0:
        return _well("it does well")
    worst = min(states, key=ORDER.index)
    return Standing(False, severity < what.severity, f"it is {worst} now")


def _of_partitions(ill: list[PartitionLag], group: GroupLag, what: Ill) -> str:
    worst = max(ill, key=lambda each: (each.lag or 0, -each.place.partition))
    count, total = len(ill), len(group.partitions)
    where = "" if total == 1 else f", in {count} of {total} partitions"
    place = f"{worst.place.topic}[{worst.place.partition}]"
    return f"{worst.verdict.state}{where}: {place}: {what.says(worst)}"


def _late(bound_s: float | None, group: GroupLag) -> Standing | None:
    if bound_s is None:
        return _off()
    # Of what is lost, or read from nowhere, nobody knows for how long it waits.
    unknown = [each for each in group.partitions if not _age_is_known(each)]
    if group.lag_s is None:
        return None if unknown or not group.partitions else _well("nothing waits")
    reason = f"the oldest record that waits has waited for {group.lag_s:.0f} s"
    found = _bounded(group.lag_s, bound_s, f"{reason}, the bound is {bound_s:g} s")
    return replace(found, is_well=False) if found and unknown else found


def _age_is_known(each: PartitionLag) -> bool:
    return each.lag == 0 or each.lag_s is not None or each.verdict.state == "EMPTY"


def _of_learner(look: Look) -> Iterator[tuple[AlertKey, Standing]]:
    alerts, told = look.spec.alerts, look.learner
    found: dict[AlertName, Standing | None] = {
        "nonfinite-loss": _nonfinite(alerts.nonfinite_loss, look),
        "lost-steps": _lost(alerts.lost_steps, told.get("lost_steps")),
        "policy-lag": _policy_lag(look),
        "policy-age": _policy_age(alerts.policy_lag_s, told),
    }
    for name, standing in found.items():
        if standing is not None:
            yield AlertKey(name, "learner"), standing


def _nonfinite(is_told: bool, look: Look) -> Standing | None:
    if not is_told:
        return _off()
    if not look.learner:
        return None
    loss, count = look.learner.get("loss", 0.0), look.learner.get("nonfinite_losses", 0)
    if not math.isfinite(loss) or look.nonfinite_age_s < _NONFINITE_S:
        return Standing(True, False, f"{count:,.0f} updates were left out, in all")
    return _well(f"no loss of the last {_NONFINITE_S:.0f} s was such")


def _lost(bound: int | None, lost: float | None) -> Standing | None:
    if bound is None:
        return _off()
    if lost is None:
        return None
    reason = f"{lost:,.0f} steps are missing in the log, the bound is {bound:,}"
    return Standing(lost > bound, lost <= bound, reason)


def _policy_lag(look: Look) -> Standing | None:
    bound, lag = look.spec.alerts.policy_lag_versions, look.learner
    versions = lag.get("policy_lag_mean")
    if bound is None:
        return _off()
    if look.spec.past.is_set or look.spec.learner.sources:
        return _well("a past is learnt from")
    if versions is None or look.spec.state != "running":
        return None
    reason = f"experience arrives that policies {versions:.0f} versions old have made"
    return _bounded(versions, bound, f"{reason}, the bound is {bound:g}")


def _policy_age(bound_s: float | None, told: Mapping[str, float]) -> Standing | None:
    if bound_s is None:
        return _off()
    age_s = told.get("policy_lag_s_p95")
    if age_s is None:
        return None
    reason = f"5 in 100 rows that are learnt from are {age_s:.0f} s old or more"
    return _bounded(age_s, bound_s, f"{reason}, the bound is {bound_s:g} s")


def _bounded(value: float, bound: float, reason: str) -> Standing | None:
    if math.isnan(value):
        return None
    return Standing(value > bound, value < _WELL_BELOW * bound, reason, _STEADY_S)


def _well(reason: str) -> Standing:
    return Standing(False, True, reason)


def _off() -> Standing:
    return _well("the rule is turned off")
