"""The proxy against a plain echo server: what it promises to do to connections."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.chaos.proxy import Mode, Proxy

SILENCE_S = 0.5
PATIENCE_S = 60.0


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        try:
            while data := self.request.recv(65536):
                self.server.seen += data  # type: ignore[attr-defined]
                self.request.sendall(data)
        except OSError:
            pass


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    seen = b""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.server_address[1]) as proxy:
        yield proxy


@pytest.fixture
def connect(proxy: Proxy) -> Iterator[Callable[[], socket.socket]]:
    opened: list[socket.socket] = []

    def open_one() -> socket.socket:
        address = ("127.0.0.1", proxy.port)
        opened.append(socket.create_connection(address, PATIENCE_S))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


def say(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    return hear(connection, len(data))


def hear(connection: socket.socket, num_bytes: int) -> bytes:
    heard = b""
    while len(heard) < num_bytes:
        more = connection.recv(65536)
        assert more, f"closed after {len(heard)} of {num_bytes} bytes"
        heard += more
    return heard


def is_silent(connection: socket.socket) -> bool:
    """Whether nothing comes, and nothing is closed, for a while."""
    connection.settimeout(SILENCE_S)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(PATIENCE_S)
    return False


def wait_until(condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_what_passes_comes_back_whole_and_in_order(connect) -> None:
    data = bytes(range(256)) * 4096
    connection = connect()
    sending = threading.Thread(target=connection.sendall, args=(data,))
    sending.start()
    assert hear(connection, len(data)) == data
    sending.join()


def test_an_end_is_passed_on(proxy, connect) -> None:
    connection = connect()
    assert say(connection, b"a") == b"a"
    connection.close()
    wait_until(lambda: proxy.num_connections == 0)


def test_blocked_connections_stay_open_and_deliver_once_healed(
    server, proxy, connect
) -> None:
    old = connect()
    assert say(old, b"before ") == b"before "
    proxy.set_mode(Mode.BLOCK)
    new = connect()
    old.sendall(b"meanwhile")
    new.sendall(b"new")
    assert is_silent(old) and is_silent(new)
    assert server.seen == b"before "
    proxy.heal()
    assert hear(old, 9) == b"meanwhile"
    assert hear(new, 3) == b"new"


def test_a_half_open_proxy_accepts_and_never_answers(server, proxy, connect) -> None:
    old = connect()
    assert say(old, b"old") == b"old"
    proxy.set_mode(Mode.HALF_OPEN)
    new = connect()
    for each in (old, new):
        each.sendall(b"lost")
    wait_until(lambda: proxy.dropped_bytes == {"up": 8, "down": 0})
    assert is_silent(old) and is_silent(new)
    assert server.seen == b"old"
    proxy.heal()
    for each in (old, new):
        with pytest.raises(ConnectionResetError):
            each.recv(1)
    assert say(connect(), b"again") == b"again"


def test_dropped_responses_leave_the_requests_through(server, proxy, connect) -> None:
    used, unused = connect(), connect()
    assert say(unused, b"-") == b"-"
    proxy.set_mode(Mode.DROP_RESPONSES)
    used.sendall(b"request")
    wait_until(lambda: b"request" in server.seen)
    assert is_silent(used)
    wait_until(lambda: proxy.dropped_bytes == {"up": 0, "down": 7})
    proxy.heal()
    with pytest.raises(ConnectionResetError):
        used.recv(1)
    assert say(unused, b"go on") == b"go on", "nothing of it was lost"


def test_a_delay_holds_both_ways_and_does_not_limit_the_rate(proxy, connect) -> None:
    connection = connect()
    proxy.slow_down(delay_ms=300)
    began_s = time.monotonic()
    say(connection, b"x")
    assert time.monotonic() - began_s >= 0.6
    data = b"x" * 2_000_000
    sending = threading.Thread(target=connection.sendall, args=(data,))
    began_s = time.monotonic()
    sending.start()
    assert hear(connection, len(data)) == data
    sending.join()
    # 123 chunks travel together; one after the other they would take 37 s, each way.
    assert 0.6 <= time.monotonic() - began_s < 30.0


def test_the_rate_is_shared_by_all_connections(proxy, connect) -> None:
    proxy.slow_down(kbit_per_s=1600)  # 200 kB/s
    connections = [connect(), connect()]
    began_s = time.monotonic()
    for each in connections:
        each.sendall(b"x" * 50_000)
    for each in connections:
        assert hear(each, 50_000) == b"x" * 50_000
    # 100 kB take half a second in each direction; the two overlap but for a chunk.
    assert 0.5 <= time.monotonic() - began_s < 20.0


def test_reset_ends_what_is_open_and_leaves_what_follows(proxy, connect) -> None:
    connections = [connect(), connect()]
    for each in connections:
        assert say(each, b"x") == b"x"
    assert proxy.reset() == 2
    for each in connections:
        with pytest.raises(ConnectionResetError):
            each.recv(1)
    assert say(connect(), b"new") == b"new"
    assert proxy.num_connections == 1


def test_a_server_that_is_away_is_an_end_of_the_connection(proxy, connect) -> None:
    away = Proxy(9)
    with away:
        connection = socket.create_connection(("127.0.0.1", away.port), PATIENCE_S)
        assert connection.recv(1) == b""
        connection.close()
