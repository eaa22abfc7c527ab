"""``rollstream exporter``: what Prometheus scrapes, of this cluster."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

EPILOG = "Example: rollstream exporter --listen 127.0.0.1:9308"


def exporter(
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Where to serve; another address than loopback is open to all who "
            "reach it. Port 0: any that is free.",
        ),
    ] = "127.0.0.1:9308",
    every: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.2, max=300.0, help="From look to look."),
    ] = 1.0,
    cluster_name: Annotated[
        str, typer.Option(metavar="NAME", help="The label cluster_name.")
    ] = "default",
) -> None:
    """Serve metrics of all experiments and all consumer groups to Prometheus.

    `/metrics` has the names that public dashboards of consumer lag use, and
    `rollstream_*`; `/healthz` says whether somebody looks. A scrape never asks the
    brokers: it shows the last look, and nothing of one that is old. Works on any
    cluster, and makes no topic. Runs until Ctrl-C (exit code 130).
    """
    from infra.monitoring.metrics_server import serving_metrics
    from rollstream.listening import parse_listen
    from rollstream.machine import running

    host, port = parse_listen(listen)
    with serving_metrics(
        running(), host, port, every_s=every, cluster=cluster_name
    ) as url:
        print(f"metrics at {url}; Ctrl-C ends it", flush=True)
        threading.Event().wait()
