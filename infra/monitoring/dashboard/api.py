"""What the page asks for: snapshots, their stream, and what was."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from infra.monitoring.dashboard.access import Sessions
from infra.monitoring.dashboard.as_json import encode
from infra.monitoring.dashboard.guard import json_response
from infra.monitoring.dashboard.sources import Past
from infra.monitoring.dashboard.streams import SnapshotStreams, TooManyStreams
from schemas.topics import EXPERIMENT_NAME

MAX_POINTS = 5_000
MAX_LIMIT = 500
TIMEOUT_S = 60.0
# Who asks for the past holds a thread and a client for a moment.
_AT_ONCE = 4
_MAX_RUN_ID = 128


class Api:
    """Answers from a source of snapshots, and from what topics hold."""

    def __init__(
        self, streams: SnapshotStreams, past: Past, sessions: Sessions
    ) -> None:
        self._streams = streams
        self._past = past
        self._sessions = sessions
        self._turns: anyio.CapacityLimiter | None = None

    def routes(self) -> list[Route]:
        """Return what is answered."""
        return [
            Route("/api/snapshot", self._snapshot, methods=["GET"]),
            Route("/api/stream", self._stream, methods=["GET"]),
            Route("/api/history", self._history, methods=["GET"]),
            Route("/api/dead-letters", self._dead_letters, methods=["GET"]),
            Route("/api/events", self._events, methods=["GET"]),
        ]

    async def _snapshot(self, request: Request) -> Response:
        return json_response(await self._streams.body())

    async def _stream(self, request: Request) -> Response:
        session = request.state.session
        is_allowed = (lambda: self._sessions.is_open(session)) if session else _always
        try:
            return self._streams.listen(is_allowed)
        except TooManyStreams:
            raise HTTPException(
                503, "expected fewer open pages, found as many as may be"
            ) from None

    async def _history(self, request: Request) -> Response:
        name = _experiment(request)
        points = _whole(request, "points", 600, 2, MAX_POINTS)
        run_id = request.query_params.get("run") or None
        if run_id is not None and len(run_id) > _MAX_RUN_ID:
            raise HTTPException(400, "run: expected the id of a run")
        last_s = _seconds(request, "last_s")
        return await self._read(
            lambda: self._past.history(
                name, points=points, run_id=run_id, last_s=last_s
            )
        )

    async def _dead_letters(self, request: Request) -> Response:
        name = _experiment(request)
        limit = _whole(request, "limit", 50, 1, MAX_LIMIT)
        return await self._read(lambda: self._past.dead_letters(name, limit))

    async def _events(self, request: Request) -> Response:
        name = _experiment(request)
        limit = _whole(request, "limit", 100, 1, MAX_LIMIT)
        return await self._read(lambda: self._past.events(name, limit))

    async def _read(self, read: Callable[[], Mapping[str, Any]]) -> Response:
        """Do what may wait for a broker in a thread, a few at a time."""
        self._turns = self._turns or anyio.CapacityLimiter(_AT_ONCE)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                body = await anyio.to_thread.run_sync(
                    lambda: encode(read()), abandon_on_cancel=True, limiter=self._turns
                )
        except TimeoutError:
            raise HTTPException(
                504, f"nothing was read within {TIMEOUT_S:g} s"
            ) from None
        return json_response(body)


def _always() -> bool:
    return True


def _experiment(request: Request) -> str:
    name = request.query_params.get("experiment", "")
    if not EXPERIMENT_NAME.fullmatch(name):
        raise HTTPException(400, "experiment: expected the name of one")
    return name


def _whole(request: Request, name: str, usual: int, least: int, most: int) -> int:
    text = request.query_params.get(name, str(usual))
    is_whole = text.isascii() and text.isdigit() and len(text) < 8
    if not is_whole or not least <= int(text) <= most:
        raise HTTPException(400, f"{name}: expected a number from {least} to {most}")
    return int(text)


def _seconds(request: Request, name: str) -> float | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 1.0 <= found <= 1e9:
        raise HTTPException(400, f"{name}: expected seconds, at least 1")
    return found
