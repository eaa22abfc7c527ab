"""A request over HTTP that ends in time, however slowly it is answered.

The time-out of a socket is that of each read: who sends a byte now and then, or
``100 Continue`` for ever, is never too late for it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.request
from collections.abc import Callable
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from types import TracebackType
from typing import Any


class Deadline:
    """Cuts the connections that were made through it when the time is up."""

    def __init__(self, seconds: float) -> None:
        """Begin to count.

        Args:
            seconds: for all that is done until it is left.
        """
        self.seconds = seconds
        self.is_over = False
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def connect(self, *args: Any, **kwargs: Any) -> socket.socket:
        """Connect as ``socket.create_connection`` does.

        Raises:
            TimeoutError: the time is up.
        """
        made = socket.create_connection(*args, **kwargs)
        with self._lock:
            if self.is_over:
                made.close()
                raise TimeoutError
            # A second handle of the same connection: TLS takes the first one over.
            self._open.append(made.dup())
        return made

    def __enter__(self) -> Deadline:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        with self._lock:
            for each in self._open:
                each.close()
            self._open.clear()

    def _cut(self) -> None:
        with self._lock:
            self.is_over = True
            for each in self._open:
                # Also a read that waits in another thread ends by it.
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)


def opened(
    request: urllib.request.Request,
    deadline: Deadline,
    *handlers: urllib.request.BaseHandler,
) -> Any:
    """Return the answer as ``urllib.request.urlopen`` does, and raise what it raises.

    Args:
        request: to whom, and what.
        deadline: cuts it off; what is raised or returned then says nothing.
        handlers: besides the usual ones, or in their stead.
    """
    opener = urllib.request.build_opener(_Http(deadline), _Https(deadline), *handlers)
    return opener.open(request, timeout=deadline.seconds)


class _Http(urllib.request.HTTPHandler):
    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_through(self._deadline, HTTPConnection), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_through(self._deadline, HTTPSConnection), req)


def _through(
    deadline: Deadline, kind: Callable[..., HTTPConnection]
) -> Callable[..., HTTPConnection]:
    def make(host: str, **kwargs: Any) -> HTTPConnection:
        made = kind(host, **kwargs)
        # The one place before a proxy's answer and the handshake of TLS, which may be
        # slow as well; no public name leads there.
        vars(made)["_create_connection"] = deadline.connect
        return made

    return make
