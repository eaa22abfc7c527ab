"""A collector -> ``/metrics`` and ``/healthz`` over HTTP, for few who ask often."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import make_wsgi_app

from infra.errors import RollstreamError
from infra.http_access import host_of, is_loopback
from infra.monitoring.exporter import Exporter, Source, is_fresh
from infra.monitoring.metrics_text import MetricsText
from infra.monitoring.watch import Watch
from infra.settings import Settings

CLUSTER = "default"
"""The value of ``cluster_name``, where nobody gives another."""

MAX_AT_ONCE = 16
"""Of more requests at a time the connection is closed."""

_QUIET_S = 10.0
_PAGE = b"rollstream exporter: /metrics, /healthz\n"

StartResponse = Callable[[str, list[tuple[str, str]]], Any]
App = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]


class MetricsError(RollstreamError):
    """Metrics cannot be served where they should."""


@contextmanager
def serving_metrics(
    settings: Settings,
    host: str,
    port: int,
    *,
    every_s: float = 1.0,
    cluster: str = CLUSTER,
) -> Iterator[str]:
    """Watch a cluster, and serve what is seen; yields the address of it.

    Args:
        settings: where the brokers are.
        host: on which to listen.
        port: 0: any that is free.
        every_s: how long from one look to the next.
        cluster: the value of ``cluster_name``.

    Raises:
        MetricsError: nothing can listen there.
    """
    watch = Watch(settings, every_s=every_s)
    app = make_app(watch, cluster, is_loopback(host))
    with MetricsServer(app, host, port) as server, watch:
        yield server.url


def make_app(source: Source, cluster: str, is_local: bool) -> App:
    """Return what answers requests.

    Args:
        source: of snapshots.
        cluster: the value of ``cluster_name``.
        is_local: answer only who asks this machine by a name of its own: a page whose
            name was made to point here (DNS rebinding) sends its own.
    """
    registry = CollectorRegistry()
    registry.register(Exporter(source, cluster))
    some: App = make_wsgi_app(registry)
    text = MetricsText(registry)

    def metrics(request: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        if request.get("QUERY_STRING"):
            return some(request, start)  # by name[], of which there may be any
        snapshot = source.snapshot
        headers, body = text.answer(
            # One that gets old says something else than before.
            (snapshot, is_fresh(snapshot, time.time())),
            request.get("HTTP_ACCEPT", ""),
            request.get("HTTP_ACCEPT_ENCODING", ""),
        )
        start("200 OK", headers)
        return [body]

    def app(request: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        if request["REQUEST_METHOD"] == "HEAD":
            return _head(get, request, start)
        if request["REQUEST_METHOD"] != "GET":
            return _answer(start, "405 Method Not Allowed", b"expected GET\n")
        return get(request, start)

    def get(request: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        if is_local and not is_loopback(host_of(request.get("HTTP_HOST", ""))):
            return _answer(start, "403 Forbidden", b"expected a Host of this machine\n")
        if "HTTP_ORIGIN" in request:
            return _answer(start, "403 Forbidden", b"expected no page's request\n")
        path = request["PATH_INFO"]
        if path == "/metrics":
            return metrics(request, start)
        if path == "/healthz":
            return _answer(start, *_health(source))
        if path == "/":
            return _answer(start, "200 OK", _PAGE)
        return _answer(start, "404 Not Found", b"expected /metrics or /healthz\n")

    return app


def _head(app: App, request: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
    """Answer as to GET, without the body."""
    told: list[tuple[str, list[tuple[str, str]]]] = []
    answer = app(
        request | {"REQUEST_METHOD": "GET"},
        lambda status, headers: told.append((status, headers)),
    )
    size = sum(map(len, answer))
    ((status, headers),) = told
    kept = [each for each in headers if each[0].lower() != "content-length"]
    start(status, [*kept, ("Content-Length", str(size))])
    return []


def _health(source: Source) -> tuple[str, bytes]:
    """Say whether somebody looks; brokers that are away are no fault of his."""
    snapshot = source.snapshot
    if not is_fresh(snapshot, time.time()):
        return "503 Service Unavailable", b"nothing was seen lately\n"
    text = f"problem: {snapshot.problem}" if snapshot.problem else "ok"
    return "200 OK", text.encode(errors="replace") + b"\n"


def _answer(start: StartResponse, status: str, body: bytes) -> Iterable[bytes]:
    start(
        status,
        [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("X-Content-Type-Options", "nosniff"),
        ],
    )
    return [body]


class _Handler(WSGIRequestHandler):
    timeout = _QUIET_S

    def log_message(self, *_: Any) -> None:
        """A scrape is no news."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_AT_ONCE

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._free = threading.BoundedSemaphore(MAX_AT_ONCE)
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # Not HTTPServer's: that asks a name server who we are, and waits for it.
        TCPServer.server_bind(self)
        host, port = self.server_address[:2]
        self.server_name, self.server_port = str(host), int(port)
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who has hung up, or says nothing, is no news."""


class MetricsServer:
    """Serves in a thread of its own, while it is open."""

    def __init__(self, app: App, host: str, port: int) -> None:
        """Listen at once.

        Raises:
            MetricsError: nothing can listen there.
        """
        try:
            self._server = _Server(host.strip("[]"), port)
        except (OSError, OverflowError) as exc:
            reason = getattr(exc, "strerror", None) or str(exc)
            raise MetricsError(
                f"metrics cannot be served on {host}:{port}: {reason}",
                "name an address of this machine and a port that is free",
            ) from exc
        self._server.set_app(app)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True
        )

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host, port = self._server.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}/metrics"

    def __enter__(self) -> MetricsServer:
        """Begin to serve."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
