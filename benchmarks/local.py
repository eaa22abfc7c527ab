"""The local cluster that a benchmark runs on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from infra.cluster.local import LocalCluster
from infra.settings import Settings


@contextmanager
def running(
    settings: Settings, console: Console
) -> Iterator[tuple[LocalCluster, Settings]]:
    """Start it, or use the one that runs; yield it and settings that point at it."""
    cluster = LocalCluster(settings, report=lambda line: console.print(line))
    try:
        endpoints = cluster.start()
        yield cluster, settings.at(endpoints.bootstrap_servers, endpoints.zookeeper)
    finally:
        cluster.release()
