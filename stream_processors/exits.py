"""How a processor ends, other than by being told to."""

from __future__ import annotations

import logging
import os
from typing import NoReturn

from infra.kafka.delivery import Sender
from infra.monitoring.event_kinds import EventKind
from infra.monitoring.reporter import Reporter

EXIT_CRASH = 70
_EVENT_S = 2.0
_log = logging.getLogger("rollstream.processor")


class Leaving(Exception):
    """We are on our way out: the record at hand is left to the next owner."""


class Exits:
    """Whether we are leaving, and why.

    Attributes:
        leaving: no further record is begun.
        failure: why we leave without having been told to; "" when we were.
    """

    def __init__(self, sender: Sender, reporter: Reporter) -> None:
        self._sender = sender
        self._reporter = reporter
        self.leaving = False
        self.failure = ""

    def fail(self, kind: EventKind, reason: str) -> None:
        """Leave in order: what is acknowledged is committed, and the exit code is 1."""
        if not self.failure:
            self.failure = f"{kind}: {reason}"
            self._reporter.event(kind, "alert", reason)
        self.leaving = True

    def expired(self, reason: str, *, fail: bool) -> None:
        """Tell of records that were deleted unread; ``fail``: and leave."""
        if fail:
            self.fail("expired-records", reason)
        else:
            self._reporter.event("expired-records", "alert", reason)

    def damaged(self, topic: str, partition: int, offset: int) -> None:
        """Tell of a record whose checksum is wrong; its partition waits there."""
        reason = (
            f"{topic}[{partition}]: a record at offset {offset} or soon after is not "
            "what was written: its checksum is wrong. The partition waits there"
        )
        self._reporter.event("corrupt-record", "alert", reason)

    def crash(
        self, exc: BaseException, *, kind: EventKind = "processor-crashed"
    ) -> NoReturn:
        """End the process at once.

        Nothing is lost: what is not acknowledged is read again. To carry on could lose
        records: a later batch would leave a hole, or a commit pass over the failed one.
        """
        _log.critical("ended by an unexpected error", exc_info=exc)
        try:
            self._reporter.event(kind, "alert", repr(exc)[:1000])
            self._sender.flush(_EVENT_S)
        finally:
            os._exit(EXIT_CRASH)
