"""Metrics over HTTP: who is answered, with what, and how many at once."""

import gzip
import http.client
import socket
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest
import typer
from prometheus_client.parser import text_string_to_metric_families as parse

from infra.monitoring import exporter
from infra.monitoring.exporter import FRESH_S
from infra.monitoring.metrics_server import (
    MAX_AT_ONCE,
    MetricsError,
    MetricsServer,
    make_app,
)
from infra.monitoring.metrics_text import MAX_TEXTS
from infra.monitoring.snapshot import Snapshot
from rollstream.listening import parse_listen
from tests.unit.snapshots import SNAPSHOT

PATIENCE_S = 60


class Seen:
    def __init__(self):
        now_s = time.time()
        lag = replace(SNAPSHOT.lag, at_s=now_s)
        self.snapshot = replace(SNAPSHOT, at_s=now_s, lag=lag, experiments_at_s=now_s)


@contextmanager
def served(app, host="127.0.0.1"):
    with MetricsServer(app, host, 0) as server:
        yield int(server.url.rpartition(":")[2].partition("/")[0])


@pytest.fixture
def source():
    return Seen()


@pytest.fixture
def port(source):
    with served(make_app(source, "here", is_local=True)) as found:
        yield found


def ask(port, path="/metrics", method="GET", **headers):
    with closing(http.client.HTTPConnection("127.0.0.1", port, PATIENCE_S)) as client:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        client.request(method, path, headers=named)
        answer = client.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())


def test_metrics_are_what_prometheus_parses(port):
    status, body, headers = ask(port)
    assert status == 200 and headers["Content-Type"].startswith("text/plain")
    families = {family.name for family in parse(body.decode())}
    assert {"kafka_consumergroup_group_lag", "rollstream_env_steps"} <= families
    _, packed, headers = ask(port, Accept_Encoding="gzip")
    assert headers["Content-Encoding"] == "gzip"
    assert {f.name for f in parse(gzip.decompress(packed).decode())} == families
    _, some, _ = ask(port, "/metrics?name[]=rollstream_env_steps_total")
    assert {f.name for f in parse(some.decode())} == {"rollstream_env_steps"}


@pytest.fixture
def collected(monkeypatch):
    """How often the series of a snapshot were collected."""
    times, collect = [], exporter.Exporter.collect

    def counted(of):
        times.append(1)
        return collect(of)

    monkeypatch.setattr(exporter.Exporter, "collect", counted)
    return times


def test_the_text_of_a_snapshot_is_written_once_for_all(source, collected):
    with served(make_app(source, "here", is_local=True)) as port:
        bodies, before = [], len(collected)

        def scrape():
            bodies.append(ask(port)[1])

        askers = [threading.Thread(target=scrape) for _ in range(MAX_AT_ONCE // 2)]
        for each in askers:
            each.start()
        for each in askers:
            each.join(PATIENCE_S)
        assert len(set(bodies)) == 1 and len(bodies) == len(askers)
        assert len(collected) - before == 1
        packed = {ask(port, Accept_Encoding="gzip")[1] for _ in range(3)}
        assert {gzip.decompress(each) for each in packed} == set(bodies)
        assert len(collected) - before == 2
        source.snapshot = replace(source.snapshot, problem="no broker answers")
        assert b"rollstream_exporter_up 0.0" in ask(port)[1]
        assert len(collected) - before == 3


def test_a_snapshot_that_gets_old_is_not_told_as_it_was(port, source, monkeypatch):
    assert b"rollstream_exporter_up 1.0" in ask(port)[1]
    at_s = source.snapshot.at_s + FRESH_S + 1
    monkeypatch.setattr(time, "time", lambda: at_s)
    body = ask(port)[1]
    assert b"rollstream_exporter_up 0.0" in body
    assert b"rollstream_env_steps_total" not in body


def test_of_endless_forms_so_many_are_kept(port, collected):
    def scrapes(version):
        before = len(collected)
        accept = f"application/openmetrics-text; version=1.0.{version}"
        assert ask(port, Accept=accept)[0] == 200
        return len(collected) - before

    assert [scrapes(n) for n in range(MAX_TEXTS + 3)] == [1] * (MAX_TEXTS + 3)
    assert scrapes(0) == 0
    assert scrapes(MAX_TEXTS + 1) == 1


def test_health_says_whether_somebody_looks(port, source):
    assert ask(port, "/healthz")[:2] == (200, b"ok\n")
    source.snapshot = replace(source.snapshot, problem="no broker answers")
    assert ask(port, "/healthz")[:2] == (200, b"problem: no broker answers\n")
    source.snapshot = Snapshot()
    assert ask(port, "/healthz")[0] == 503
    status, body, _ = ask(port)
    assert (status, b"rollstream_exporter_up 0.0" in body) == (200, True)


@pytest.mark.parametrize(
    ("path", "method", "headers", "expected"),
    [
        ("/", "GET", {}, 200),
        ("/metrics", "HEAD", {}, 200),
        ("/metrics", "POST", {}, 405),
        ("/metrics", "DELETE", {}, 405),
        ("/metrics/", "GET", {}, 404),
        ("/../../etc/passwd", "GET", {}, 404),
        ("/metrics", "GET", {"Host": "localhost:9"}, 200),
        ("/metrics", "GET", {"Host": "[::1]"}, 200),
        ("/metrics", "GET", {"Host": "evil.example"}, 403),
        ("/metrics", "GET", {"Host": "127.0.0.1.evil.example"}, 403),
        ("/metrics", "GET", {"Host": ""}, 403),
        ("/metrics", "GET", {"Origin": "http://evil.example"}, 403),
    ],
)
def test_who_is_answered(port, path, method, headers, expected):
    assert ask(port, path, method, **headers)[0] == expected


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/", "/nowhere"])
def test_a_head_has_the_headers_of_a_get_and_no_body(port, path):
    # Clients do not look for a body: what is sent is read as it is.
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
        client.sendall(f"HEAD {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        sent = b"".join(iter(lambda: client.recv(65_536), b""))
    head, _, body = sent.partition(b"\r\n\r\n")
    assert body == b""
    status, whole, headers = ask(port, path)
    assert head.split()[1] == str(status).encode()
    assert f"Content-Length: {len(whole)}".encode() in head
    assert headers["Content-Type"].encode() in head


def test_where_others_may_ask_they_may_use_any_name(source):
    with served(make_app(source, "here", is_local=False)) as port:
        assert ask(port, Host="exporter.example:9308")[0] == 200


def test_a_port_that_is_taken_is_told_of(port):
    with pytest.raises(MetricsError, match="cannot be served on 127.0.0.1"):
        MetricsServer(lambda request, start: [], "127.0.0.1", port)


@pytest.mark.parametrize("strange", [b"", b"\x00" * 99, b"GET\r\n\r\n", b"x" * 99_999])
def test_what_is_no_request_harms_nobody(port, strange):
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
        client.sendall(strange)
    assert ask(port)[0] == 200


def test_of_too_many_at_once_some_are_turned_away_and_the_others_answered():
    enter, leave = threading.Semaphore(0), threading.Event()

    def slow(request, start):
        enter.release()
        leave.wait(PATIENCE_S)
        start("200 OK", [("Content-Length", "2")])
        return [b"ok"]

    codes = []
    with served(slow) as port:
        askers = [
            threading.Thread(target=lambda: codes.append(ask(port)[0]))
            for _ in range(MAX_AT_ONCE)
        ]
        for each in askers:
            each.start()
        for _ in askers:
            assert enter.acquire(timeout=PATIENCE_S)
        with pytest.raises((http.client.HTTPException, OSError)):
            ask(port)
        leave.set()
        for each in askers:
            each.join(PATIENCE_S)
        assert codes == [200] * MAX_AT_ONCE
        assert ask(port)[0] == 200


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9308", ("127.0.0.1", 9308)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:80", ("::1", 80)),
        ("0.0.0.0:65535", ("0.0.0.0", 65_535)),
    ],
)
def test_where_to_listen(text, expected):
    assert parse_listen(text) == expected


@pytest.mark.parametrize(
    "text", ["", "9308", ":9308", "host:", "host:65536", "host:-1", "::1:80", "h:٣"]
)
def test_what_is_no_place_to_listen_is_refused(text):
    with pytest.raises(typer.BadParameter, match="--metrics: expected HOST:PORT"):
        parse_listen(text, "--metrics")
