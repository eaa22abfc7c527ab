"""What is posted, how often it is tried, and what is never said."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pydantic import SecretStr

from infra.monitoring.webhook import TRIES, Webhook


class Receiver:
    """A server on this machine, which answers as it is told to."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((self.path, dict(self.headers), body))
                code = receiver.answers.pop(0) if receiver.answers else 204
                self.send_response(code)
                if 300 <= code < 400:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook/s3cret?x=1"

    @property
    def bodies(self) -> list[object]:
        return [json.loads(body) for _, _, body in self.got]

    def wait_for(self, count: int) -> None:
        until(lambda: len(self.got) >= count)


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@contextmanager
def receiving() -> Iterator[Receiver]:
    found = Receiver()
    thread = threading.Thread(target=found.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        thread.join()
        found.server.server_close()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    # A proxy of the machine is not asked for what is on the machine itself.
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with receiving() as found:
        yield found


@contextmanager
def hook(url: str) -> Iterator[Webhook]:
    webhook = Webhook(SecretStr(url), first_pause_s=0.01)
    try:
        yield webhook
    finally:
        webhook.close(60)


def test_it_is_posted_once_as_json(receiver: Receiver) -> None:
    with hook(receiver.url) as webhook:
        webhook.post({"text": "späte Daten", "state": "on"})
    ((path, headers, _),) = receiver.got
    assert path == "/hook/s3cret?x=1"
    assert headers["Content-Type"] == "application/json"
    assert receiver.bodies == [{"text": "späte Daten", "state": "on"}]


def test_what_is_not_taken_is_tried_again_and_order_is_kept(receiver: Receiver) -> None:
    receiver.answers = [503, 429, 200]
    with hook(receiver.url) as webhook:
        webhook.post({"n": 1})
        webhook.post({"n": 2})
    assert receiver.bodies == [{"n": 1}, {"n": 1}, {"n": 1}, {"n": 2}]


@pytest.mark.parametrize("code", [301, 302, 307, 308, 400, 403, 404, 410])
def test_a_refusal_is_final_and_leads_nowhere_else(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    receiver.answers = [code]
    with hook(receiver.url) as webhook:
        webhook.post({"n": 1})
    assert [path for path, _, _ in receiver.got] == ["/hook/s3cret?x=1"]
    assert f"not posted to the webhook: it answers {code}" in caplog.text


def test_it_is_tried_so_often_and_no_more(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [500] * 2 * TRIES
    with hook(receiver.url) as webhook:
        webhook.post({"n": 1})
    assert len(receiver.got) == TRIES
    assert caplog.text.count("was not posted") == 1


def test_the_address_is_never_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with receiving() as receiver:
        url = receiver.url
    # Nobody is there any more; and a scheme that no setting would let through.
    for address in (url, "nonsense:s3cret"):
        with hook(address) as webhook:
            webhook.post({"n": 1})
            assert "s3cret" not in f"{webhook!r} {vars(webhook)}"
    assert "it cannot be reached: ConnectionRefusedError" in caplog.text
    assert "s3cret" not in caplog.text and "127.0.0.1" not in caplog.text


def test_who_posts_never_waits(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [503] * TRIES
    webhook = Webhook(SecretStr(receiver.url), first_pause_s=600.0)
    began_s = time.monotonic()
    for number in range(100):
        webhook.post({"n": number})
    assert time.monotonic() - began_s < 60
    assert "the webhook is too slow" in caplog.text
    receiver.wait_for(1)
    webhook.close()
    assert receiver.bodies[0] == {"n": 0}
