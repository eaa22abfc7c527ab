"""Snapshots -> server-sent events; each is encoded once, however many listen."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator

import anyio.to_thread
from sse_starlette import EventSourceResponse
from sse_starlette.sse import SendTimeoutError
from starlette.types import Receive, Scope, Send

from infra.monitoring.dashboard.as_json import encode, snapshot_values
from infra.monitoring.dashboard.sources import Source
from infra.monitoring.snapshot import Snapshot

MAX_STREAMS = 64
KEEP_ALIVE_S = 15.0
# Who does not read for so long is not there any more.
SEND_TIMEOUT_S = 30.0
_WAIT_S = 1.0
_PAUSE_S = 0.05

_log = logging.getLogger("rollstream.dashboard")


class TooManyStreams(Exception):
    """As many listen as may."""


class SnapshotStreams:
    """Sends each snapshot to all that listen; who is slow misses some, and no more.

    Waits for snapshots only while somebody listens. All of it is called on one loop.
    """

    def __init__(self, source: Source, most: int = MAX_STREAMS) -> None:
        self._source = source
        self._most = most
        self._listening = 0
        self._frame = b""
        self._encoded: tuple[Snapshot, bytes] | None = None
        self._feeding: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._closed = False

    @property
    def listening(self) -> int:
        """How many listen."""
        return self._listening

    async def body(self, snapshot: Snapshot | None = None) -> bytes:
        """Return the JSON of a snapshot, or of the latest."""
        snapshot = snapshot or self._source.snapshot
        if self._encoded is None or self._encoded[0] is not snapshot:
            body = await anyio.to_thread.run_sync(_encoded, snapshot)
            self._encoded = (snapshot, body)
        return self._encoded[1]

    def listen(self, is_allowed: Callable[[], bool]) -> EventSourceResponse:
        """Return the response of one that listens, for as long as it is allowed to.

        Raises:
            TooManyStreams: it is one too many.
        """
        if self._listening >= self._most:
            raise TooManyStreams
        return _Stream(self, is_allowed)

    async def close(self) -> None:
        """End all streams; new ones end at once."""
        self._closed = True
        async with self._changed:
            self._changed.notify_all()
        if self._feeding is not None:
            self._feeding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._feeding

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Count one that listens."""
        self._listening += 1
        try:
            yield
        finally:
            self._listening -= 1

    async def frames(self, is_allowed: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Yield the latest snapshot, and the newer ones as they come."""
        sent, snapshot = b"", self._source.snapshot
        first = _frame(await self.body(snapshot))
        while not self._closed and is_allowed():
            frame = self._frame or first
            if frame is not sent:
                sent = frame
                yield frame
                continue
            self._feed(snapshot.at_s)
            async with self._changed:
                if self._frame is not sent and self._frame:
                    continue
                await self._changed.wait()

    def _feed(self, at_s: float) -> None:
        if not self._closed and (self._feeding is None or self._feeding.done()):
            self._feeding = asyncio.create_task(self._feed_all(at_s))

    async def _feed_all(self, at_s: float) -> None:
        while self._listening and not self._closed:
            newer = await anyio.to_thread.run_sync(
                self._source.wait_for_newer, at_s, _WAIT_S, abandon_on_cancel=True
            )
            if newer is None:
                await asyncio.sleep(_PAUSE_S)  # a closed source does not wait
                continue
            at_s = newer.at_s
            try:
                self._frame = _frame(await self.body(newer))
            except Exception:
                # Whatever it is: who listens must hear of the next one.
                _log.exception("a snapshot cannot be shown; the next one may")
                continue
            async with self._changed:
                self._changed.notify_all()
        self._frame = b""


class _Stream(EventSourceResponse):
    def __init__(
        self, streams: SnapshotStreams, is_allowed: Callable[[], bool]
    ) -> None:
        super().__init__(
            streams.frames(is_allowed), ping=KEEP_ALIVE_S, send_timeout=SEND_TIMEOUT_S
        )
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.place():
            try:
                await super().__call__(scope, receive, send)
            except SendTimeoutError:
                _log.info("a stream is given up: nothing was taken for so long")


def _encoded(snapshot: Snapshot) -> bytes:
    return encode(snapshot_values(snapshot))


def _frame(body: bytes) -> bytes:
    return b"event: snapshot\r\ndata: " + body + b"\r\n\r\n"
