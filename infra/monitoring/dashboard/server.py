"""The dashboard on a socket, until it is told to end."""

from __future__ import annotations

import errno
import socket

import uvicorn

from infra.errors import RollstreamError
from infra.monitoring.dashboard.app import Dashboard
from infra.monitoring.dashboard.connections import PromptConnection
from infra.monitoring.dashboard.guard import MAX_HEADER_BYTES

# Connections, of which a page has up to six.
_AT_ONCE = 512
_KEEP_ALIVE_S = 30
_SHUTDOWN_S = 3


class ListenError(RollstreamError):
    """The dashboard cannot listen where it should."""


class DashboardServer(uvicorn.Server):
    """Serves a dashboard; its streams end first, for nobody else would end them."""

    def __init__(self, dashboard: Dashboard) -> None:
        config = uvicorn.Config(
            dashboard,
            # Our logs are set up already; requests are nobody's business.
            log_config=None,
            # Else a line for each request of whoever tries what there is.
            log_level="error",
            access_log=False,
            ws="none",
            http=PromptConnection,
            lifespan="off",
            # Whoever asks may say anything of whom it asks for.
            proxy_headers=False,
            server_header=False,
            limit_concurrency=_AT_ONCE,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_SHUTDOWN_S,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        )
        super().__init__(config)
        self._dashboard = dashboard

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then all else."""
        await self._dashboard.close()
        await super().shutdown(sockets)


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0: any that is free.

    Raises:
        ListenError: it cannot.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family)
    except OSError as exc:
        is_taken = exc.errno == errno.EADDRINUSE
        reason = "the port is taken" if is_taken else exc.strerror or str(exc)
        raise ListenError(
            f"cannot listen on {host}:{port}: {reason}",
            "give another port with --listen HOST:PORT" if is_taken else "see --listen",
        ) from exc


def url_of(listening: socket.socket) -> str:
    """Return the address of a page that is served on a socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
