"""Answers that never end, and that never let a read wait long, end in time."""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException

import pytest
from pydantic import SecretStr

from infra.monitoring import webhook
from infra.monitoring.deadline import Deadline, opened
from infra.monitoring.webhook import Webhook

Talk = Callable[[socket.socket], None]
OUT_OF_TIME_S = 0.5
# Far above OUT_OF_TIME_S on a busy machine, and far below never.
ENDED_S = 30.0


def say_continue(client: socket.socket) -> None:
    client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")


def drip_a_header(client: socket.socket) -> None:
    client.sendall(b"x")


@contextmanager
def server(first: bytes, talk: Talk) -> Iterator[int]:
    """Accept whoever comes, and talk to each until he goes; yield the port."""
    ended, threads = threading.Event(), []
    listening = socket.create_server(("127.0.0.1", 0))

    def serve(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.sendall(first)
            while not ended.wait(0.02):
                talk(client)

    def accept() -> None:
        with contextlib.suppress(OSError):
            for _ in itertools.count():
                thread = threading.Thread(target=serve, args=listening.accept()[:1])
                threads.append(thread)
                thread.start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield listening.getsockname()[1]
    finally:
        ended.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        accepting.join()
        for thread in threads:
            thread.join()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


SLOW = pytest.mark.parametrize(
    ("first", "talk"),
    [
        (b"", say_continue),
        (b"HTTP/1.1 200 OK\r\nX-Slow: ", drip_a_header),
        (b"", lambda client: None),
    ],
    ids=["continue for ever", "a header in drops", "silence"],
)


@SLOW
def test_an_alert_is_given_up_in_time(
    first: bytes,
    talk: Talk,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(webhook, "TIMEOUT_S", OUT_OF_TIME_S)
    monkeypatch.setattr(webhook, "TRIES", 2)
    began_s = time.monotonic()
    with server(first, talk) as port:
        hook = Webhook(SecretStr(f"http://127.0.0.1:{port}/s3cret"), first_pause_s=0.01)
        hook.post({"n": 1})
        hook.close(ENDED_S)
    assert time.monotonic() - began_s < ENDED_S
    # A busy machine may let the time pass before it has connected.
    assert re.search(
        "not posted to the webhook: it (does not answer|cannot be reached: Timeout)",
        caplog.text,
    )
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("is_proxied", [False, True])
def test_a_handshake_and_a_proxy_end_in_time_too(
    is_proxied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS takes the socket over; a proxy is asked before it."""
    # A record of TLS that claims to be long; what a proxy says first.
    first = b"HTTP/1.1 200 OK\r\nX-Slow: " if is_proxied else b"\x16\x03\x03\x3f\xff"
    with server(first, drip_a_header) as port:
        url = f"https://127.0.0.1:{port}/"
        if is_proxied:
            monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
            monkeypatch.setenv("no_proxy", "")
            url = "https://somewhere.example/"
        began_s = time.monotonic()
        with Deadline(OUT_OF_TIME_S) as deadline:
            with pytest.raises((OSError, HTTPException)):
                opened(urllib.request.Request(url), deadline)
            assert deadline.is_over
        assert time.monotonic() - began_s < ENDED_S


def test_who_connects_too_late_is_not_connected() -> None:
    with server(b"", lambda client: None) as port, Deadline(0.01) as deadline:
        until_s = time.monotonic() + ENDED_S
        while not deadline.is_over:
            assert time.monotonic() < until_s
            time.sleep(0.01)
        with pytest.raises(TimeoutError):
            deadline.connect(("127.0.0.1", port), 5.0)
