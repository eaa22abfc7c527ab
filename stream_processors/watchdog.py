"""Threads that end the process when it hangs, running or leaving."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

from confluent_kafka import KafkaException

from infra.control.role import (
    EXIT_ERROR,
    EXIT_OK,
    EXIT_UNDELIVERED,
    RoleContext,
    StopRequest,
)
from infra.kafka.clients import make_admin
from schemas.records import Position
from schemas.topics import TRAJECTORIES
from stream_processors.exits import EXIT_CRASH, Exits
from stream_processors.health import FROZEN_S, Pulse, stuck
from stream_processors.standstill import Standstill

STOP_DEADLINE_S = 7.5
_LOOK_S = 0.25
_ANSWER_S = 5.0
_log = logging.getLogger("rollstream.processor")


class StopDeadline(threading.Thread):
    """Ends a process that is leaving and does not get there.

    Faust's shutdown hangs for a minute or more while the broker is away; what is not
    acknowledged is read again by the next owner.
    """

    def __init__(
        self, stop: StopRequest, exits: Exits, num_sending: Callable[[], int]
    ) -> None:
        super().__init__(name="stop-deadline", daemon=True)
        self._stop_request = stop
        self._exits = exits
        self._num_sending = num_sending

    def run(self) -> None:
        """Wait until we leave, then for the deadline."""
        while not (self._stop_request.is_set() or self._exits.leaving):
            time.sleep(_LOOK_S)
        time.sleep(STOP_DEADLINE_S)
        sending = self._num_sending()
        _log.warning("stop: not done within %g s; %d sends", STOP_DEADLINE_S, sending)
        logging.shutdown()
        if self._exits.failure:
            os._exit(EXIT_ERROR)
        os._exit(EXIT_UNDELIVERED if sending else EXIT_OK)


class Watchdog(threading.Thread):
    """Ends a process that hangs although the broker answers, to be started again."""

    def __init__(
        self,
        context: RoleContext,
        waiting_since: Callable[[], float | None],
        positions: Callable[[], tuple[Position, ...]],
    ) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._settings = context.settings
        self._standstill = Standstill(
            context.settings, context.group(), context.topic(TRAJECTORIES)
        )
        self._waiting_since = waiting_since
        self._positions = positions
        self.ticked = time.monotonic()

    def run(self) -> None:
        """Look, until the process ends."""
        looked = time.monotonic()
        while True:
            time.sleep(_LOOK_S)
            try:
                reason = self._look(time.monotonic(), looked)
            except Exception as exc:
                # Else nobody would notice that nobody looks any more.
                reason = f"it failed itself: {exc!r}"
            if reason:
                _log.critical("ended by the watchdog: %s", reason)
                logging.shutdown()
                os._exit(EXIT_CRASH)
            # Anew: asking the broker takes a while.
            looked = time.monotonic()

    def _look(self, now: float, looked: float) -> str:
        if now - looked > FROZEN_S:
            self._standstill.reset()
        pulse = Pulse(looked, self.ticked, self._waiting_since())
        reason = stuck(pulse, now)
        if reason and self._broker_answers():
            return reason
        return self._standstill.reason(self._positions(), now)

    def _broker_answers(self) -> bool:
        try:
            make_admin(self._settings).list_topics(timeout=_ANSWER_S)
        except KafkaException:
            return False
        return True
