"""The processor's process: a Faust app, trajectories -> replay.

``python -m stream_processors.app EXPERIMENT --index 0``
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from typing import Any

import faust

from infra.control.members import register
from infra.control.role import EXIT_ERROR, EXIT_OK, RoleContext, StopRequest, role_main
from infra.errors import SettingsError
from infra.kafka.clients import Traffic, faust_broker_settings, make_producer
from infra.kafka.delivery import Sender
from infra.monitoring.reporter import Reporter
from stream_processors.agents import Processor
from stream_processors.assignments import Assignments, Commits
from stream_processors.deliveries import Deliveries
from stream_processors.exits import Exits
from stream_processors.log_watch import LogWatch
from stream_processors.telemetry import Telemetry
from stream_processors.transport import App, Transport
from stream_processors.watchdog import STOP_DEADLINE_S, StopDeadline, Watchdog

METRICS_PORT = "ROLLSTREAM_METRICS_PORT"
METADATA_MAX_AGE_MS = 3000
SESSION_S = 6.0
_TICK_S = 0.1
_DRAIN_S = 3.0
_REPORT_S = 1.0
# Our last words say why we leave; the deadline ends us where nobody takes them.
_FLUSH_S = STOP_DEADLINE_S
_log = logging.getLogger("rollstream.processor")


def app_settings(context: RoleContext) -> dict[str, Any]:
    """Return Faust's settings, the reason beside each that is not its default."""
    brokers = faust_broker_settings(context.settings)
    return {
        "id": context.group(),
        "broker": [f"kafka://{host}" for host in brokers["bootstrap_servers"]],
        "broker_credentials": _credentials(brokers),
        "broker_client_id": context.client_id,
        # Faust makes this directory whether or not there is a table.
        "datadir": context.settings.data_dir / "faust" / context.group(),
        "store": "memory://",
        "autodiscover": False,
        # It would listen on all interfaces.
        "web_enabled": False,
        # Topics are made from the map of topics only.
        "topic_allow_declare": False,
        "topic_disable_leader": True,
        # 0: the plain round-robin assignor; there is no table to keep a copy of.
        "table_standby_replicas": 0,
        "consumer_auto_offset_reset": "earliest",
        # A broker that has just come back may not know the topic yet; who leads the
        # group then hands out no partition, until it asks again.
        "consumer_metadata_max_age_ms": METADATA_MAX_AGE_MS,
        # A killed member blocks its partitions this long; the broker allows no less.
        "broker_session_timeout": SESSION_S,
        "broker_heartbeat_interval": 1.0,
        "broker_rebalance_timeout": 20.0,
        "broker_request_timeout": 30.0,
        # What is acknowledged and not committed is done again after a crash.
        "broker_commit_interval": 0.5,
        # A rebalance would wait for the tails, which wait for records.
        "stream_wait_empty": False,
        # Events of up to 10 MB each: the default of 4096 would fill the memory.
        "stream_buffer_maxsize": 32,
        "broker_max_poll_records": 100,
        "consumer_max_fetch_size": 4 << 20,
    }


def _credentials(brokers: dict[str, Any]) -> Any:
    tls = brokers.get("ssl_context")
    if "sasl_mechanism" in brokers:
        return faust.SASLCredentials(
            mechanism=brokers["sasl_mechanism"],
            username=brokers["sasl_plain_username"],
            password=brokers["sasl_plain_password"],
            ssl_context=tls,
        )
    return None if tls is None else faust.SSLCredentials(context=tls)


def make_app(context: RoleContext) -> App:
    """Make the Faust app; call it where the event loop runs."""
    settings = app_settings(context)
    settings["datadir"].parent.mkdir(parents=True, exist_ok=True)
    app = App(**settings, loop=asyncio.get_running_loop())
    # Faust finds a transport by its URL, and has no setting for another class.
    app.transport = Transport(app.conf.broker_consumer, app)
    return app


class Reporting(threading.Thread):
    """Publishes metrics each second; a thread, as sending may have to wait."""

    def __init__(
        self, reporter: Reporter, telemetry: Telemetry, sender: Sender, exits: Exits
    ) -> None:
        super().__init__(name="reporting", daemon=True)
        self._reporter = reporter
        self._telemetry = telemetry
        self._sender = sender
        self._exits = exits

    def run(self) -> None:
        """Report, until the process ends: nobody sees what one does that is silent."""
        while True:
            try:
                self.report()
                self._sender.poll()
            except Exception as exc:
                self._exits.crash(exc)
            time.sleep(_REPORT_S)

    def report(self) -> None:
        """Publish once."""
        telemetry = self._telemetry
        self._reporter.metrics(telemetry.counts.values(), telemetry.positions)


def run(context: RoleContext, stop: StopRequest) -> int:
    """Process trajectories until told to stop; return the exit code."""
    for name in ("faust", "mode", "stream_processors"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # It warns at each rebalance of the order of its own callbacks.
    logging.getLogger("faust.app.base").setLevel(logging.ERROR)
    telemetry = Telemetry()
    _serve_metrics(context, telemetry)
    sender = Sender(
        make_producer(
            context.settings, client_id=context.client_id, traffic=Traffic.CONTROL
        )
    )
    reporter = Reporter(sender, context, register(sender, context, stop))
    exits = Exits(sender, reporter)
    deliveries = Deliveries.open(context)
    deliveries.start()
    processor = Processor(context, sender, deliveries, telemetry, exits)
    reporting = Reporting(reporter, telemetry, sender, exits)
    reporting.start()
    LogWatch(context, exits, reporter).start()
    asyncio.run(_serve(context, stop, processor, telemetry, exits))
    reporting.report()
    sender.flush(_FLUSH_S)
    return EXIT_ERROR if exits.failure else EXIT_OK


def _serve_metrics(context: RoleContext, telemetry: Telemetry) -> None:
    """Serve Prometheus metrics where the machine's settings say so."""
    text = os.environ.get(METRICS_PORT)
    if not text:
        return
    if not text.isdigit() or not 0 < int(text) + context.index < 65536:
        raise SettingsError(f"{METRICS_PORT}: expected a port, found {text!r}")
    port = int(text) + context.index
    try:
        telemetry.serve(port)
    except OSError as exc:
        _log.warning("no Prometheus metrics: port %d: %s", port, exc)


async def _serve(
    context: RoleContext,
    stop: StopRequest,
    processor: Processor,
    telemetry: Telemetry,
    exits: Exits,
) -> None:
    app = make_app(context)
    app.on_damaged = lambda tp, offset: exits.damaged(tp.topic, tp.partition, offset)
    commits = Commits(processor)
    app.monitor = commits
    processor.attach(app)
    Assignments(context, processor, exits).attach(app)

    def waiting_since() -> float | None:
        since = (processor.sending_since(), commits.committing_since)
        return min((each for each in since if each is not None), default=None)

    StopDeadline(stop, exits, processor.num_sending).start()
    watchdog = Watchdog(context, waiting_since, lambda: telemetry.positions)
    watchdog.start()
    starting = asyncio.ensure_future(app.start())
    while not (stop.is_set() or exits.leaving or app.should_stop):
        watchdog.ticked = time.monotonic()
        telemetry.positions = processor.positions()
        if starting.done() and (error := starting.exception()):
            exits.crash(error)
        await asyncio.sleep(_TICK_S)
    if app.crashed:
        exits.crash(app.crash_reason or RuntimeError("Faust crashed"))
    _log.info("leaving: %s", stop.reason or exits.failure)
    exits.leaving = True
    await processor.drain(_DRAIN_S)
    await app.stop()
    telemetry.positions = processor.positions()


if __name__ == "__main__":
    role_main("processor", run)
