"""A thread that ends the process when it hangs, running or leaving."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

from confluent_kafka import KafkaException

from infra.control.role import EXIT_ERROR, EXIT_OK, EXIT_UNDELIVERED, StopRequest
from infra.kafka.clients import make_admin
from infra.settings import Settings
from stream_processors.exits import EXIT_CRASH, Exits
from stream_processors.health import Pulse, stuck

STOP_DEADLINE_S = 7.5
_LOOK_S = 0.25
_ANSWER_S = 5.0
_log = logging.getLogger("rollstream.processor")


class Watchdog(threading.Thread):
    """Looks four times a second.

    Leaving: Faust's shutdown hangs for a minute or more while the broker is away, so
    there is a deadline; what is not acknowledged is read again by the next owner.
    Running: what hangs although the broker answers is ended, to be started again.
    """

    def __init__(
        self,
        settings: Settings,
        stop: StopRequest,
        exits: Exits,
        waiting_since: Callable[[], float | None],
        num_sending: Callable[[], int],
    ) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._settings = settings
        self._stop_request = stop
        self._exits = exits
        self._waiting_since = waiting_since
        self._num_sending = num_sending
        self.ticked = time.monotonic()

    def run(self) -> None:
        """Look, until the process ends."""
        looked = time.monotonic()
        leaving_since: float | None = None
        while True:
            time.sleep(_LOOK_S)
            now = time.monotonic()
            if self._stop_request.is_set() or self._exits.leaving:
                leaving_since = leaving_since or now
                if now - leaving_since > STOP_DEADLINE_S:
                    self._leave()
            pulse = Pulse(looked, self.ticked, self._waiting_since())
            reason = stuck(pulse, now)
            if reason and self._broker_answers():
                _log.critical("ended by the watchdog: %s", reason)
                logging.shutdown()
                os._exit(EXIT_CRASH)
            # Not `now`: asking the broker takes a while.
            looked = time.monotonic()

    def _leave(self) -> None:
        sending = self._num_sending()
        _log.warning("stop: not done within %g s; %d sends", STOP_DEADLINE_S, sending)
        logging.shutdown()
        if self._exits.failure:
            os._exit(EXIT_ERROR)
        os._exit(EXIT_UNDELIVERED if sending else EXIT_OK)

    def _broker_answers(self) -> bool:
        try:
            make_admin(self._settings).list_topics(timeout=_ANSWER_S)
        except KafkaException:
            return False
        return True
