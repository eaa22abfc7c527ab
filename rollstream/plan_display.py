"""A plan -> text for people, and an object for JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from infra.planning.demand import (
    HEADROOM,
    learning_us_per_step,
    processor_us_per_step,
)
from infra.planning.growth import FARTHEST_ENVS, Plan, Row, Saturation
from infra.planning.limits import Limit, disk_bytes
from infra.planning.workload import EnvFacts
from rollstream.tables import table_console

_PIPE_WIDTH = 150
_COLUMNS = (
    "ENVS", "WORKERS", "OFFERED/S", "STEPS/S", "CORES", "HOSTS", "PROCESSORS",
    "BROKERS", "IN MB/S", "OUT MB/S", "MEMORY GB", "KEPT", "HELD BY",
)  # fmt: skip


def show(
    name: str, facts: EnvFacts, plan: Plan, console: Console | None = None
) -> None:
    """Print a plan: the spec's own needs, then what comes with more environments."""
    console = console or table_console(_PIPE_WIDTH)
    for about, text in lines(name, facts, plan):
        console.print(f"{about:<14}{text}", markup=False, soft_wrap=True)
    console.print()
    console.print(_roles(plan.own))
    console.print()
    _show_growth(console, plan)


def lines(name: str, facts: EnvFacts, plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield what is said of the spec as it is: about what, and the text."""
    work, own, needed = plan.work, plan.own, plan.own.needed
    yield (
        "experiment",
        f"{name}: {work.workers:,} workers x {work.envs_per_worker:,} environments, "
        f"{work.unroll} steps a record",
    )
    yield (
        "a step",
        f"environment {work.env_us:,.3g} us of CPU ({facts.source}), policy "
        f"{work.acting_flops / 1e6:,.3g} M operations, {work.trajectory_bytes:,.0f} "
        "bytes on the wire",
    )
    yield "rate", _rate_text(plan)
    yield (
        "learner",
        f"{needed.updates_per_s:,.3g} updates/s of {work.batch_size:,} rows; a core "
        f"does {_updates_of_a_core(plan):,.3g}, and publishes "
        f"{needed.versions_per_s:,.3g} versions/s of {work.policy_bytes / 1e6:,.3g} MB",
    )
    yield (
        "processors",
        f"{needed.processors:,} needed, {work.processors:,} in the spec at most; a "
        f"core does {_steps_of_a_processor(plan):,.0f} steps/s",
    )
    yield (
        "brokers",
        f"in {needed.broker_bytes_in_per_s / 1e6:,.3g} MB/s, out "
        f"{needed.broker_bytes_out_per_s / 1e6:,.3g} MB/s, before replication; "
        f"{2 * work.partitions:,} partitions of the big topics",
    )
    yield (
        "disk",
        f"{disk_bytes(work) / 1e9:,.3g} GB keep trajectories for "
        f"{_duration(needed.retention_s)}",
    )
    yield "ZooKeeper", _zookeeper_text(own)
    yield from _saturation_lines(plan.saturations)


def _rate_text(plan: Plan) -> str:
    own = plan.own
    held = f", held by: {own.held_by.name}" if own.held_by else ""
    return (
        f"{own.needed.rate:,.0f} env steps/s of {own.offered:,.0f} offered, with "
        f"hosts enough{held}; {plan.here:,.0f} where all roles share one of "
        f"{plan.host.cores:g} cores"
    )


def _updates_of_a_core(plan: Plan) -> float:
    """Return how many updates/s the learner's core has time for beside its intake."""
    left = max(1 - plan.own.needed.intake_cores, 0.0)
    step_us = learning_us_per_step(plan.work, plan.costs)
    update_us = step_us * plan.work.batch_size / plan.work.samples_per_step
    return left / update_us * 1e6


def _steps_of_a_processor(plan: Plan) -> float:
    """Return how many steps/s keep a processor's core busy."""
    return 1e6 / processor_us_per_step(plan.work, plan.costs)


def _zookeeper_text(own: Row) -> str:
    nodes = own.needed.workers + own.needed.processors + 2
    return (
        f"{own.hosts:,} sessions, one a host's agent; {nodes:,} znodes of roles, "
        f"written once each; 0 writes/s while nothing starts or ends"
    )


def _saturation_lines(found: Sequence[Saturation]) -> Iterator[tuple[str, str]]:
    if not found:
        yield "saturates", f"nothing up to {FARTHEST_ENVS:,} environments"
    else:
        yield "saturates", "at what is offered, each alone:"
    for passed in found:
        limit = passed.limit
        yield (
            "",
            f"at {passed.num_envs:,} environments: {limit.name}, "
            f"{_amount(limit.used)} of {_amount(limit.most)} {limit.unit}; to mend: "
            f"{limit.remedy}",
        )


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.3g}"


def _roles(own: Row) -> Table:
    needed = own.needed
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("ROLE")
    for name in ("PROCESSES", "CORES", "OF EACH"):
        table.add_column(name, justify="right")
    for role, count, cores in (
        ("worker", needed.workers, needed.worker_cores),
        ("processor", needed.processors, needed.processor_cores),
        ("Kafka broker", own.brokers, needed.kafka_cores),
        ("learner", 1, needed.learner_cores),
        ("evaluator", 1, needed.evaluator_cores),
        ("run or leader", 1, needed.watch_cores),
    ):
        table.add_row(role, f"{count:,}", f"{cores:,.2f}", f"{cores / count:.2f}")
    return table


def _show_growth(console: Console, plan: Plan) -> None:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in _COLUMNS:
        is_text = name == "HELD BY"
        table.add_column(name, justify="left" if is_text else "right", no_wrap=True)
    for row in plan.rows:
        table.add_row(*_cells(row))
    console.print(table)
    console.print(
        f"HOSTS of {plan.host.cores:g} cores, {HEADROOM:.0%} full at most. OFFERED: by "
        "workers that never wait, or asked for; STEPS/S: what everything carries.",
        style="dim", soft_wrap=True,
    )  # fmt: skip


def _cells(row: Row) -> list[str]:
    needed = row.needed
    return [
        f"{row.num_envs:,}",
        f"{needed.workers:,}",
        f"{row.offered:,.0f}",
        f"{needed.rate:,.0f}",
        f"{needed.cores:,.1f}",
        f"{row.hosts:,}",
        f"{needed.processors:,}",
        f"{row.brokers:,}",
        f"{needed.broker_bytes_in_per_s / 1e6:,.1f}",
        f"{needed.broker_bytes_out_per_s / 1e6:,.1f}",
        f"{needed.memory_bytes / 1e9:,.1f}",
        _duration(needed.retention_s),
        row.held_by.name if row.held_by else "-",
    ]


def _duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "7 d"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{min(seconds / size, 7 if unit == 'd' else 1e9):,.0f} {unit}"
    return f"{seconds:,.0f} s"


def as_object(name: str, facts: EnvFacts, plan: Plan) -> dict[str, Any]:
    """Return a plan as plain values: units are in the names, infinity is null."""
    found = {
        "experiment": name,
        "environment": asdict(facts),
        "work": asdict(plan.work),
        "host": asdict(plan.host),
        "steps_per_s_on_one_host": plan.here,
        "saturations": [
            {"num_envs": passed.num_envs, **_limit_values(passed.limit)}
            for passed in plan.saturations
        ],
        "rows": [_row_values(row) for row in plan.rows],
        "constants": asdict(plan.costs),
    }
    plain: dict[str, Any] = _finite(found)
    return plain


def _row_values(row: Row) -> dict[str, Any]:
    needed = row.needed
    return {
        "num_envs": row.num_envs,
        "offered_steps_per_s": row.offered,
        "steps_per_s": needed.rate,
        "cores": needed.cores,
        **{key: value for key, value in asdict(needed).items() if key != "rate"},
        "broker_bytes_in_per_s": needed.broker_bytes_in_per_s,
        "broker_bytes_out_per_s": needed.broker_bytes_out_per_s,
        "brokers": row.brokers,
        "hosts": row.hosts,
        "zookeeper_sessions": row.hosts,
        "held_by": row.held_by.name if row.held_by else None,
        "limits": [_limit_values(limit) for limit in row.limits],
    }


def _limit_values(limit: Limit) -> dict[str, Any]:
    return {**asdict(limit), "utilisation": limit.utilisation}


def _finite(value: Any) -> Any:
    """Return a value that JSON can say: what has no bound is null."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
