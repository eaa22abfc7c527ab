"""Connections that have to ask: who only holds one keeps others out."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 10.0
"""For so long a request may take to arrive, its body left out."""


class PromptConnection(H11Protocol):
    """Is closed where no whole request arrives; uvicorn would wait for ever.

    Between requests its own limit holds.
    """

    _due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Wait no more where it is a whole request."""
        super().data_received(data)
        if self._has_asked():
            self._expect_nothing()
        else:
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._expect_nothing()
        super().connection_lost(exc)

    def _expect(self) -> None:
        if self._due is None:
            self._due = self.loop.call_later(REQUEST_S, self._give_up)

    def _expect_nothing(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _give_up(self) -> None:
        self._due = None
        if not self._has_asked():
            self.transport.close()

    def _has_asked(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete
