"""``rollstream registry``: schemas for other people's tools, over HTTP."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from aiohttp import web

from infra.control.members import ensure_shared_topics
from infra.errors import RollstreamError
from infra.kafka.schema_registry import SchemaRegistry
from infra.settings import Settings
from rollstream.registry_answers import errors_as_json
from rollstream.registry_api import RegistryApi
from rollstream.registry_guard import check_reach, make_guard

MAX_REQUEST_BYTES = 1 << 20
# Connections that do nothing are cut, and Ctrl-C does not wait for them.
_KEEP_ALIVE_S = 30.0
_SHUTDOWN_S = 1.0


class RegistryError(RollstreamError):
    """The registry cannot listen where it should."""


def serve(settings: Settings, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve the schemas of ``rollstream.schemas`` until interrupted.

    Raises:
        RegistryError: nothing can listen there; another process does.
        SettingsError: others could reach it, and there is no token.
    """
    token = settings.registry_token
    secret = token.get_secret_value() if token else None
    check_reach(host, secret)
    ensure_shared_topics(settings)
    registry = SchemaRegistry(settings)
    registry.refresh()
    app = web.Application(
        client_max_size=MAX_REQUEST_BYTES,
        middlewares=[errors_as_json, make_guard(host, secret)],
    )
    app.add_routes(RegistryApi(registry).routes())
    asyncio.run(_listen(app, host, port, say))


async def _listen(
    app: web.Application, host: str, port: int, say: Callable[[str], None]
) -> None:
    runner = web.AppRunner(
        app,
        access_log=None,
        keepalive_timeout=_KEEP_ALIVE_S,
        shutdown_timeout=_SHUTDOWN_S,
    )
    await runner.setup()
    try:
        await _start(runner, host, port)
        bound = runner.addresses[0][1]
        shown = f"[{host}]" if ":" in host else host
        say(f"schema registry at http://{shown}:{bound}; Ctrl-C ends it")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


async def _start(runner: web.AppRunner, host: str, port: int) -> None:
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as exc:
        taken = exc.errno == errno.EADDRINUSE
        reason = "the port is taken" if taken else exc.strerror or str(exc)
        raise RegistryError(
            f"cannot listen on {host}:{port}: {reason}",
            "give another with --port" if taken else "see --host and --port",
        ) from exc
