"""Alerts -> JSON, posted to the machine's webhook by a thread of its own.

The address is a secret: whoever knows it may post. It is in no message, and no answer
leads anywhere else.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException, HTTPMessage
from typing import IO

from pydantic import SecretStr

from infra.monitoring.deadline import Deadline, opened

TIMEOUT_S = 5.0
"""Of a whole try, whatever its answer is made of."""

TRIES = 5
_FIRST_PAUSE_S = 1.0
_MOST_WAITING = 64
# Too many requests, or too slow: the same may be taken later.
_LATER = (408, 425, 429)
_log = logging.getLogger("rollstream.alerts")

Payload = Mapping[str, object]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """What is posted goes to the address that was configured, or nowhere."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        """Follow none: the answer counts as a refusal."""


class Webhook:
    """Posts what it is given, in order; what is not taken after TRIES is dropped."""

    def __init__(
        self, url: SecretStr, *, first_pause_s: float = _FIRST_PAUSE_S
    ) -> None:
        """Connect to nothing yet.

        Args:
            url: http or https.
            first_pause_s: between two tries; twice as long before each further one.
        """
        self._url = url
        self._first_pause_s = first_pause_s
        self._waiting: queue.Queue[Payload] = queue.Queue(_MOST_WAITING)
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def post(self, payload: Payload) -> None:
        """Post it soon; never waits. With too many waiting it is dropped."""
        try:
            self._waiting.put_nowait(payload)
        except queue.Full:
            _log.warning("the webhook is too slow: an alert was not posted to it")
            return
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="webhook", daemon=True
            )
            self._thread.start()

    def close(self, timeout_s: float = 0.0) -> None:
        """End; what waits has ``timeout_s`` to be posted, at its first try."""
        deadline_s = time.monotonic() + timeout_s
        while self._waiting.unfinished_tasks and time.monotonic() < deadline_s:
            time.sleep(0.02)
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                payload = self._waiting.get(timeout=0.2)
            except queue.Empty:
                continue
            try:
                self._deliver(payload)
            except Exception as exc:
                # Its text may hold the address.
                _log.error("an alert was not posted: %s", type(exc).__name__)
            self._waiting.task_done()

    def _deliver(self, payload: Payload) -> None:
        body, pause_s = json.dumps(payload).encode(), self._first_pause_s
        for attempt in range(1, TRIES + 1):
            problem, is_final = self._try(body)
            if not problem:
                return
            if is_final or attempt == TRIES:
                break
            _log.info("the webhook is tried again: %s", problem)
            if self._closed.wait(pause_s):
                break
            pause_s *= 2
        _log.warning("an alert was not posted to the webhook: %s", problem)

    def _try(self, body: bytes) -> tuple[str, bool]:
        """Return why it was not taken, empty if it was; whether to try no more."""
        request = urllib.request.Request(
            self._url.get_secret_value(),
            body,
            {"Content-Type": "application/json", "User-Agent": "rollstream"},
            method="POST",
        )
        with Deadline(TIMEOUT_S) as deadline:
            problem, is_final = _posted(request, deadline)
        if deadline.is_over:
            return "it does not answer in time", False
        return problem, is_final


def _posted(request: urllib.request.Request, deadline: Deadline) -> tuple[str, bool]:
    try:
        with opened(request, deadline, _NoRedirect()):
            return "", False
    except urllib.error.HTTPError as exc:
        exc.close()
        is_final = exc.code < 500 and exc.code not in _LATER
        return f"it answers {exc.code}", is_final
    except urllib.error.URLError as exc:
        return f"it cannot be reached: {type(exc.reason).__name__}", False
    except (OSError, HTTPException) as exc:
        return f"it does not answer: {type(exc).__name__}", False
