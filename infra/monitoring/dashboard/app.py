"""A source of snapshots and what topics hold -> the dashboard, as an application."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from infra.errors import RollstreamError
from infra.monitoring.dashboard.access import LOCAL, Access, Sessions
from infra.monitoring.dashboard.api import Api
from infra.monitoring.dashboard.guard import Guard, error_response
from infra.monitoring.dashboard.login import MAX_FORM_BYTES, Login
from infra.monitoring.dashboard.sources import Past, Source, Unknown
from infra.monitoring.dashboard.streams import MAX_STREAMS, SnapshotStreams
from infra.printable import printable

STATIC = Path(__file__).parent / "static"
PAGE = "index.html"
_MIN_GZIP_BYTES = 1_000
# The best takes three times as long, for a tenth less.
_GZIP_LEVEL = 5

_log = logging.getLogger("rollstream.dashboard")


class Dashboard:
    """An ASGI application; ``close`` ends its streams, so that a server can end."""

    def __init__(
        self, source: Source, past: Past, access: Access, static: Path, streams: int
    ) -> None:
        self.access = access
        self.streams = SnapshotStreams(source, streams)
        sessions = Sessions()
        inner = Starlette(
            routes=[
                Route("/", _page(static), methods=["GET"]),
                *Api(self.streams, past, sessions).routes(),
                *Login(access, sessions).routes(),
                Mount("/static", _Static(directory=static, check_dir=False)),
            ],
            middleware=[
                Middleware(
                    GZipMiddleware,
                    minimum_size=_MIN_GZIP_BYTES,
                    compresslevel=_GZIP_LEVEL,
                ),
                Middleware(RequestBodyLimitMiddleware, max_body_size=MAX_FORM_BYTES),
            ],
            exception_handlers={
                HTTPException: _on_http_error,
                RollstreamError: _on_our_error,
                Exception: _on_error,
            },
        )
        # A path is what it is: nobody is sent elsewhere, by a name of the request's.
        inner.router.redirect_slashes = False
        self._app = Guard(inner, access, sessions)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        await self._app(scope, receive, send)

    async def close(self) -> None:
        """End all streams."""
        await self.streams.close()


def create_app(
    source: Source,
    past: Past,
    *,
    access: Access = LOCAL,
    static: Path = STATIC,
    streams: int = MAX_STREAMS,
) -> Dashboard:
    """Return the dashboard; nothing is asked of a broker before a request does.

    Args:
        source: of snapshots; has been started.
        past: what topics hold.
        access: who may ask; by default this machine, without a token.
        static: the directory of the page's files, with ``index.html``.
        streams: how many may listen at a time.
    """
    return Dashboard(source, past, access, static, streams)


class _Static(StaticFiles):
    """Files that a browser asks for again: they are of the version that serves them."""

    async def check_config(self) -> None:
        """Take a directory that is not there for an empty one."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        found = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        found.headers["Cache-Control"] = "no-cache"
        return found


def _page(static: Path) -> Callable[[Request], Awaitable[Response]]:
    async def page(request: Request) -> Response:
        path = static / PAGE
        if not path.is_file():
            raise HTTPException(404, "this installation has no page")
        return FileResponse(path, headers={"Cache-Control": "no-cache"})

    return page


async def _on_http_error(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    answer = error_response(exc.status_code, exc.detail)
    answer.headers.update(exc.headers or {})
    return answer


async def _on_our_error(request: Request, exc: Exception) -> Response:
    if isinstance(exc, Unknown):
        return error_response(404, str(exc))
    _log.warning("%s", printable(str(exc)))
    return error_response(503, str(exc))


async def _on_error(request: Request, exc: Exception) -> Response:
    return error_response(500, "this should not have happened: the log says what did")
