"""How fast a past is replayed into another experiment, from its topic or an archive."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from typing import Any

from archive.past_source import prepare, records_of
from archive.recorded import Source
from archive.replay import replay
from archive.selection import Selection
from benchmarks.published import published
from infra.control.desired import PublishedExperiment
from infra.errors import RollstreamError
from infra.settings import Settings
from schemas.experiment import Experiment, from_values


def measure_replay(
    settings: Settings, source: Source, rows: int, what: str, cleaning: ExitStack
) -> dict[str, Any]:
    """Replay all of a source, as fast as it goes, with nobody else at work.

    Args:
        settings: where the cluster is.
        source: what is replayed; is closed.
        rows: how many valid steps it has.
        what: the figures' names begin with it.
        cleaning: deletes the target at its end.
    """
    with closing(source):
        target = _target(settings, source.info.experiment, cleaning)
        began_s, cpu_s = time.perf_counter(), time.process_time()
        found = prepare(settings, source, Selection(), target)
        standing, _ = replay(
            settings, target, found.past, records_of(source, found.plan)
        )
        seconds, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    if standing.env_steps != rows:
        raise RollstreamError(
            f"bench: expected {rows} replayed steps, found {standing.env_steps}"
        )
    return {
        f"{what}_steps_per_s": round(rows / seconds),
        f"{what}_cpu_us_per_step": round(cpu_s / rows * 1e6, 2),
    }


def _target(
    settings: Settings, experiment: Experiment, cleaning: ExitStack
) -> PublishedExperiment:
    values = experiment.model_dump(mode="json", by_alias=True)
    values["metadata"]["name"] = f"bench-replay-{time.time_ns() // 1_000_000}"
    values["spec"]["workers"]["replicas"] = 0
    return cleaning.enter_context(published(settings, from_values(values)))
