"""What a collector says -> its text, written once for all who ask for it."""

from __future__ import annotations

import gzip
import threading

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, gzip_accepted

MAX_TEXTS = 8
"""Of one state; who asks for others has them written anew."""

Headers = list[tuple[str, str]]


class MetricsText:
    """The text of one state of a registry, in each form that was asked for."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Write nothing yet."""
        self._registry = registry
        self._lock = threading.Lock()
        self._state: tuple[object, bool] = None, False
        self._texts: dict[tuple[str, bool], bytes] = {}

    def answer(
        self, state: tuple[object, bool], accept: str, accept_encoding: str
    ) -> tuple[Headers, bytes]:
        """Return the headers and the body for who accepts these.

        Args:
            state: what is told of, and whether it is of now; the text is kept until
                that is another object, or is not so any more.
            accept: of the request's headers; it chooses the form.
            accept_encoding: likewise, of its being packed.
        """
        encoder, content_type = choose_encoder(accept)
        form = content_type, gzip_accepted(accept_encoding)
        headers = [("Content-Type", content_type)]
        if form[1]:
            headers.append(("Content-Encoding", "gzip"))
        # Who comes meanwhile waits, and has what is being written.
        with self._lock:
            if state[0] is not self._state[0] or state[1] != self._state[1]:
                self._state, self._texts = state, {}
            text = self._texts.get(form)
            if text is None:
                text = encoder(self._registry)
                text = gzip.compress(text) if form[1] else text
                # The form names a version, which may be anything.
                if len(self._texts) < MAX_TEXTS:
                    self._texts[form] = text
        return [*headers, ("Content-Length", str(len(text)))], text
