"""The lag of an experiment's groups -> its metrics, so that it has a history; pure.

They are written by whoever watches over the experiment, in a role of their own: no
process of it knows how far behind it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from infra.monitoring.lag.model import GroupLag

ROLE = "monitor"
"""Of the metrics; its index is 0, and it is no process."""

EVERY_S = 5.0

LAG_RECORDS, LAG_S, LAG_ENV_STEPS = "lag_records", "lag_s", "lag_env_steps"


def value_name(figure: str, role: str) -> str:
    """Return what a figure of a role's group is called: ``lag_s/processor``."""
    return f"{figure}/{role}"


def history_values(groups: Mapping[str, GroupLag]) -> dict[str, float]:
    """Return what is known of the lag of each role's group; what is not is absent."""
    found = {}
    for role, group in groups.items():
        for figure, value in (
            (LAG_RECORDS, group.lag),
            (LAG_S, group.lag_s),
            (LAG_ENV_STEPS, group.lag_env_steps),
        ):
            if value is not None and math.isfinite(value):
                found[value_name(figure, role)] = float(value)
    return found
