"""A TCP proxy on loopback that does to connections what networks do."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any, Self

_CHUNK_BYTES = 16 * 1024
# Chunks under way in one direction of one connection: 1 MiB, as a socket would hold.
_MAX_CHUNKS = 64
_RST = struct.pack("ii", 1, 0)


class Mode(Enum):
    """What happens to what is sent."""

    PASS = "pass"
    """It arrives."""

    BLOCK = "block"
    """Nothing arrives, nothing is closed; it all arrives once healed."""

    HALF_OPEN = "half-open"
    """Connections are accepted, what is sent is thrown away, nothing answers."""

    DROP_RESPONSES = "drop-responses"
    """Requests arrive, their answers are thrown away."""


@dataclass(eq=False)
class _Connection:
    """One client's connection, and where it leads."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    holed: bool = False
    """Bytes of it were thrown away: it cannot go on once healed."""

    task: asyncio.Task[None] | None = None
    pumps: list[asyncio.Task[None]] = field(default_factory=list)


class Proxy:
    """Forwards to a loopback port, from a thread of its own.

    `delay` and `rate` hold in `Mode.PASS`, for each direction; the rate is shared by
    all connections of a direction, as a line's is.
    """

    def __init__(self, upstream_port: int, port: int = 0) -> None:
        self._upstream_port = upstream_port
        self.port = port
        self._mode = Mode.PASS
        self._delay_s = 0.0
        self._bytes_per_s = 0.0
        self._free_at_s = {"up": 0.0, "down": 0.0}
        self._open: set[_Connection] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.forwarded_bytes = {"up": 0, "down": 0}
        self.dropped_bytes = {"up": 0, "down": 0}

    def start(self) -> Self:
        """Listens; `port` is the one it got."""
        self._thread.start()
        self._changed = self._call(self._listen())
        return self

    def close(self) -> None:
        """Closes every connection and stops."""
        self._call(self._shut_down())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60.0)
        self._loop.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def num_connections(self) -> int:
        """How many connections are open."""
        return len(self._open)

    def set_mode(self, mode: Mode) -> None:
        """Changes what happens to all connections, old and new."""
        self._call(self._set_mode(mode))

    def heal(self) -> None:
        """Everything arrives again; what cannot go on is reset."""
        self._delay_s = self._bytes_per_s = 0.0
        self.set_mode(Mode.PASS)

    def slow_down(self, *, delay_ms: float = 0.0, kbit_per_s: float = 0.0) -> None:
        """Delays each direction, and limits its rate; 0: not at all."""
        self._delay_s = delay_ms / 1000
        self._bytes_per_s = kbit_per_s * 1000 / 8

    def reset(self) -> int:
        """Ends every connection with an RST; returns how many there were."""
        return self._call(self._reset(lambda connection: True))

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60.0)

    async def _listen(self) -> asyncio.Condition:
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self.port, limit=_CHUNK_BYTES
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return asyncio.Condition()

    async def _shut_down(self) -> None:
        self._server.close()
        await self._reset(lambda connection: True)

    async def _set_mode(self, mode: Mode) -> None:
        async with self._changed:
            self._mode = mode
            self._changed.notify_all()
        if mode is Mode.PASS:
            await self._reset(lambda connection: connection.holed)

    async def _reset(self, wanted: Callable[[_Connection], bool]) -> int:
        chosen = [each for each in self._open if wanted(each)]
        for connection in chosen:
            for writer in (connection.client, connection.server):
                if writer is not None:
                    raw = writer.get_extra_info("socket")
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
                    writer.transport.abort()
            if connection.task is not None:
                connection.task.cancel()
        tasks = [each.task for each in chosen if each.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        return len(chosen)

    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        connection = _Connection(writer, task=asyncio.current_task())
        self._open.add(connection)
        try:
            await self._serve(connection, reader)
        except (OSError, asyncio.CancelledError):
            pass  # an end of it is gone, or it was reset
        finally:
            self._open.discard(connection)
            for pump in connection.pumps:
                pump.cancel()
            for each in (connection.client, connection.server):
                if each is not None:
                    each.close()

    async def _serve(
        self, connection: _Connection, client: asyncio.StreamReader
    ) -> None:
        if self._mode is Mode.BLOCK:
            await self._until_passes()
        if self._mode is Mode.HALF_OPEN:
            await self._swallow(connection, client)
            return
        server, connection.server = await asyncio.open_connection(
            "127.0.0.1", self._upstream_port, limit=_CHUNK_BYTES
        )
        connection.pumps = [
            asyncio.ensure_future(pump)
            for pump in (
                self._pump(connection, client, connection.server, "up"),
                self._pump(connection, server, connection.client, "down"),
            )
        ]
        done, _ = await asyncio.wait(
            connection.pumps, return_when=asyncio.FIRST_COMPLETED
        )
        # Half-closed connections are nobody's here: the other way ends as well.
        for pump in done:
            pump.result()

    async def _until_passes(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._mode is not Mode.BLOCK)

    async def _swallow(
        self, connection: _Connection, client: asyncio.StreamReader
    ) -> None:
        connection.holed = True
        while chunk := await client.read(_CHUNK_BYTES):
            self.dropped_bytes["up"] += len(chunk)

    async def _pump(
        self,
        connection: _Connection,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        way: str,
    ) -> None:
        """Moves one direction of a connection until its source ends."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MAX_CHUNKS)
        reading = asyncio.ensure_future(self._read(source, queue))
        connection.pumps.append(reading)
        while True:
            due_s, chunk = await queue.get()
            await asyncio.sleep(max(0.0, due_s - self._loop.time()))
            if self._mode is Mode.BLOCK:
                await self._until_passes()
            if not chunk:
                return
            if self._is_lost(way):
                connection.holed = True
                self.dropped_bytes[way] += len(chunk)
                continue
            await self._wait_for_the_line(way, len(chunk))
            sink.write(chunk)
            await sink.drain()
            self.forwarded_bytes[way] += len(chunk)

    async def _read(
        self, source: asyncio.StreamReader, queue: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        chunk = b"-"
        while chunk:
            try:
                chunk = await source.read(_CHUNK_BYTES)
            except OSError:
                chunk = b""
            await queue.put((self._loop.time() + self._delay_s, chunk))

    def _is_lost(self, way: str) -> bool:
        if self._mode is Mode.HALF_OPEN:
            return True
        return self._mode is Mode.DROP_RESPONSES and way == "down"

    async def _wait_for_the_line(self, way: str, num_bytes: int) -> None:
        if not self._bytes_per_s:
            return
        begins_s = max(self._loop.time(), self._free_at_s[way])
        self._free_at_s[way] = begins_s + num_bytes / self._bytes_per_s
        await asyncio.sleep(self._free_at_s[way] - self._loop.time())
