"""The dashboard over HTTP: what it answers, and what it does not."""

from __future__ import annotations

import gzip
import http.client
import json
import math
import socket
import threading
from contextlib import ExitStack, closing, contextmanager
from urllib.parse import urlencode, urlsplit

import pytest

from infra.errors import KafkaUnavailable
from infra.monitoring.dashboard import connections, server
from infra.monitoring.dashboard import login as login_form
from infra.monitoring.dashboard.access import COOKIE, LOCAL, access_for
from infra.monitoring.dashboard.app import create_app
from infra.monitoring.dashboard.guard import CSP
from infra.monitoring.dashboard.server import ListenError, bind, url_of
from infra.monitoring.dashboard.sources import Unknown
from infra.monitoring.lag.model import (
    GroupLag,
    LagReport,
    PartitionLag,
    Place,
    Verdict,
)
from infra.monitoring.snapshot import (
    Experience,
    ExperimentView,
    ProcessView,
    Snapshot,
)
from tests.unit.dashboard_server import FakePast, FakeSource, serving
from tests.unit.envs.trial import until

TOKEN = "0123456789abcdef-token"
HOSTILE = "<img src=x onerror=alert(1)>\u2028\ud800"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def partition(number=0, **changes):
    values = {
        "current": 8, "committed": 5, "begin": 0, "end": 10, "open_records": 1,
        "held": 3, "unsaved": 3, "lag": 2, "raw_lag": 5, "lag_env_steps": 200,
        "lag_s": 1.5, "lag_s_method": "record", "produced_per_s": 4.0,
        "consumed_per_s": 2.0, "catch_up_s": math.inf, "retention_used": math.nan,
        "owner": "client@host", "verdict": Verdict("WARN", 7, HOSTILE),
    }  # fmt: skip
    place = Place("rollstream.a.processor", "rollstream.a.trajectories", number)
    return PartitionLag(place=place, **(values | changes))


def view(**changes):
    values = {
        "experiment": "a", "run_id": "run", "state": "running", "reason": HOSTILE,
        "managed_by": "run", "env_steps": 1000, "env_steps_per_s": math.nan,
        "updates": 10, "updates_per_s": 1.0, "policy_version": 3, "episodes": 7,
        "mean_return": -math.inf, "is_greedy": True, "loss": math.nan,
        "dead_letters": 1, "alerts": (),
        "experience": Experience(policy_lag_versions={"mean": 1.0, "p95": math.nan}),
        "processes": (ProcessView("worker", 0, 5, {"x": 1.0}, {}, 9.0),),
    }  # fmt: skip
    return ExperimentView(**(values | changes))


def snapshot(at_s=5.0, **changes):
    group = GroupLag("rollstream.a.processor", "Stable", 1, (partition(),))
    values = {"lag": LagReport(4.0, (group,)), "experiments": (view(),)}
    return Snapshot(at_s=at_s, **(values | changes))


@pytest.fixture(scope="module")
def static(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("page")
    found = tmp_path / "static"
    (found / "js").mkdir(parents=True)
    (found / "index.html").write_text("<!doctype html><title>page</title>")
    (found / "js" / "app.js").write_text("// " + "x" * 5000)
    (tmp_path / "secret.txt").write_text("secret")
    (found / "link.txt").symlink_to(tmp_path / "secret.txt")
    return found


@pytest.fixture(scope="module")
def everyday(static):
    """Serve for all tests that only ask; what they ask of the past is an error."""
    past = FakePast(
        dead_letters=KafkaUnavailable("away"), history=ZeroDivisionError("a fault")
    )
    with dashboard(static, past=past) as url:
        yield url


@contextmanager
def dashboard(static, source=None, past=None, **options):
    app = create_app(
        source or FakeSource(snapshot()), past or FakePast(), static=static, **options
    )
    with serving(app) as url:
        yield url


def ask(url, path, method="GET", body=None, **headers):
    """Send the path as it is: clients would tidy it up."""
    where = urlsplit(url)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    with closing(http.client.HTTPConnection(where.netloc, timeout=60)) as connection:
        connection.putrequest(
            method, path, skip_host="Host" in sent, skip_accept_encoding=True
        )
        for name, value in sent.items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, dict(answer.headers.items()), answer.read()


def error_of(body):
    return json.loads(body)["error"]


def test_a_snapshot_is_what_the_page_reads(everyday):
    status, headers, body = ask(everyday, "/api/snapshot")
    assert status == 200 and headers["content-type"] == "application/json"
    found = json.loads(body)
    assert list(found) == ["at_s", "problem", "lag", "experiments"]
    (group,) = found["lag"]["groups"]
    parts = group.pop("partitions")
    assert group == {
        "group": "rollstream.a.processor", "state": "Stable", "members": 1,
        "problem": "", "lag": 2, "lag_env_steps": 200, "lag_s": 1.5,
        "verdict": {"state": "WARN", "rule": 7, "reason": HOSTILE},
    }  # fmt: skip
    assert parts[0]["group"] == "rollstream.a.processor"
    assert parts[0]["topic"] == "rollstream.a.trajectories"
    assert parts[0]["partition"] == 0 and parts[0]["held"] == 3
    assert parts[0]["verdict"]["rule"] == 7
    # What is no number is null: JSON has no word for it.
    assert parts[0]["catch_up_s"] is None and parts[0]["retention_used"] is None
    (shown,) = found["experiments"]
    assert shown["mean_return"] is None and shown["loss"] is None
    assert shown["env_steps"] == 1000 and shown["reason"] == HOSTILE
    assert shown["experience"]["policy_lag_versions"] == {"mean": 1.0, "p95": None}
    assert shown["processes"][0]["values"] == {"x": 1.0}


def test_texts_of_any_length_are_cut(static):
    source = FakeSource(snapshot(experiments=(view(reason="x" * 100_000),)))
    with dashboard(static, source) as url:
        shown = json.loads(ask(url, "/api/snapshot")[2])
    assert len(shown["experiments"][0]["reason"]) == 2_000


def test_before_the_first_look_there_is_an_empty_snapshot(static):
    with dashboard(static, FakeSource()) as url:
        found = json.loads(ask(url, "/api/snapshot")[2])
    assert found == {
        "at_s": 0.0, "problem": "", "experiments": [],
        "lag": {
            "at_s": 0.0, "took_s": 0.0, "problem": "", "groups": [],
            "left_out": {"groups": 0, "partitions": 0},
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    "path",
    [
        "/", "/static/js/app.js", "/api/snapshot", "/api/history", "/nothing",
        "/static/nothing", "/login", "/login.css", "/api/events?experiment=a",
        "/api/dead-letters?experiment=down", "/api/history?experiment=wrong",
    ],
)  # fmt: skip
@pytest.mark.parametrize("host", [None, "evil.example"])
def test_every_answer_binds_the_browser(everyday, path, host):
    status, headers, _ = ask(everyday, path, **({"Host": host} if host else {}))
    assert status == 403 or host is None
    assert headers["content-security-policy"] == CSP
    assert "unsafe" not in CSP and "default-src 'none'" in CSP
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] in ("no-referrer", "same-origin")
    assert headers["referrer-policy"] == "no-referrer" or path == "/login"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "server" not in headers and "set-cookie" not in headers
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/static/../secret.txt",
        "/static/%2e%2e/secret.txt",
        "/static/..%2fsecret.txt",
        "/static/%2e%2e%2fsecret.txt",
        "/static/....//secret.txt",
        "/static/js/../../secret.txt",
        "/static/..\\secret.txt",
        "/static/%5c..%5csecret.txt",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/%00",
        "/static/js/app.js%00.txt",
        "/static/link.txt",
        "/static/js",
        "/static/",
        "/static",
        "/static/" + "x" * 5000,
        "/static/%ff%fe",
        "//evil.example/static/js/app.js",
    ],
)
def test_no_path_leads_out_of_the_static_files(everyday, path):
    status, headers, body = ask(everyday, path)
    assert status == 404
    assert b"secret" not in body and b"root:" not in body
    assert "evil" not in headers.get("location", "")


def test_files_are_served_and_checked_again(everyday):
    status, headers, body = ask(everyday, "/static/js/app.js")
    assert status == 200 and body.startswith(b"// x")
    assert headers["content-type"].startswith(("text/javascript", "application/j"))
    assert headers["cache-control"] == "no-cache"
    again = ask(everyday, "/static/js/app.js", If_None_Match=headers["etag"])
    assert again[0] == 304 and again[2] == b""
    status, headers, body = ask(everyday, "/")
    assert status == 200 and b"<title>page" in body
    assert headers["content-type"].startswith("text/html")


def test_an_installation_without_a_page_says_so(static, tmp_path):
    with dashboard(tmp_path / "none") as url:
        status, _, body = ask(url, "/")
        assert status == 404 and error_of(body) == "this installation has no page"
        assert ask(url, "/static/x.js")[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/api/snapshot", "/static/js/app.js", "/x"])
def test_nothing_can_be_changed(everyday, method, path):
    status, headers, body = ask(everyday, path, method)
    assert status == 405 and headers["allow"] == "GET, HEAD"
    assert "nothing can be changed" in error_of(body)


@pytest.mark.parametrize("path", ["/", "/api/snapshot", "/api/stream", "/login.css"])
def test_a_look_at_the_headers_alone(everyday, path):
    status, _, body = ask(everyday, path, "HEAD")
    assert status == 200 and body == b""


def test_a_web_socket_is_refused(everyday):
    upgrade = {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    assert ask(everyday, "/api/stream2", **upgrade)[0] in (403, 404)


def test_much_is_sent_compressed(everyday):
    plain = ask(everyday, "/api/snapshot")
    packed = ask(everyday, "/api/snapshot", Accept_Encoding="gzip")
    assert packed[1]["content-encoding"] == "gzip"
    assert gzip.decompress(packed[2]) == plain[2]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/history", "experiment: expected the name of one"),
        ("/api/history?experiment=<img>", "experiment: expected the name of one"),
        ("/api/history?experiment=..%2f..", "experiment: expected the name of one"),
        ("/api/history?experiment=a%0ab", "experiment: expected the name of one"),
        ("/api/history?experiment=" + "a" * 64, "experiment: expected the name of one"),
        ("/api/history?experiment=a&points=1", "points: expected a number from 2"),
        ("/api/history?experiment=a&points=5001", "points: expected a number from 2"),
        ("/api/history?experiment=a&points=-5", "points: expected a number from 2"),
        ("/api/history?experiment=a&points=1e3", "points: expected a number from 2"),
        ("/api/history?experiment=a&points=", "points: expected a number from 2"),
        ("/api/history?experiment=a&points=" + "9" * 999, "points: expected a number"),
        ("/api/history?experiment=a&last_s=0", "last_s: expected seconds"),
        ("/api/history?experiment=a&last_s=nan", "last_s: expected seconds"),
        ("/api/history?experiment=a&last_s=inf", "last_s: expected seconds"),
        ("/api/history?experiment=a&last_s=x", "last_s: expected seconds"),
        ("/api/history?experiment=a&run=" + "r" * 129, "run: expected the id"),
        ("/api/dead-letters?experiment=a&limit=0", "limit: expected a number from 1"),
        ("/api/dead-letters?experiment=a&limit=501", "limit: expected a number from 1"),
        ("/api/events?experiment=A", "experiment: expected the name of one"),
        ("/api/events?experiment=a&limit=x", "limit: expected a number from 1 to 500"),
    ],
)
def test_what_cannot_be_meant_is_refused(everyday, path, expected):
    status, _, body = ask(everyday, path)
    assert status == 400 and error_of(body).startswith(expected)


def test_endless_requests_are_refused(everyday):
    assert ask(everyday, "/?" + "x" * 2_100)[0] == 414
    assert ask(everyday, "/login", "POST", b"x" * 5_000, **FORM)[0] in (303, 413)
    try:
        assert ask(everyday, "/", X_Long="x" * 70_000)[0] in (400, 431)
    except ConnectionError:
        pass  # the server hangs up before all of it is sent, or its answer is read
    assert ask(everyday, "/")[0] == 200


def test_the_past_is_asked_for_as_it_was_meant(static):
    answer = {"t": [1.0], "series": {"loss": [math.nan]}}
    past = FakePast(history=answer, dead_letters={"letters": []}, events={"events": []})
    with dashboard(static, past=past) as url:
        status, headers, body = ask(url, "/api/history?experiment=a")
        assert status == 200 and headers["cache-control"] == "no-store"
        assert json.loads(body) == {"t": [1.0], "series": {"loss": [None]}}
        ask(url, "/api/history?experiment=a&points=100&run=r-1&last_s=60")
        assert json.loads(ask(url, "/api/dead-letters?experiment=b")[2]) == {
            "letters": []
        }
        ask(url, "/api/events?experiment=b&limit=7")
    assert past.asked == [
        ("history", "a", 600, None, None),
        ("history", "a", 100, "r-1", 60.0),
        ("dead_letters", "b", 50),
        ("events", "b", 7),
    ]


@pytest.mark.parametrize(
    ("error", "status", "shown"),
    [
        (Unknown("there is no experiment a"), 404, "there is no experiment a"),
        (KafkaUnavailable("away", "wait"), 503, "away. To mend: wait"),
        (ZeroDivisionError("inner /etc/path"), 500, "this should not have happened"),
    ],
)
def test_errors_are_told_in_words(static, error, status, shown, caplog):
    with dashboard(static, past=FakePast(events=error)) as url:
        found, _, body = ask(url, "/api/events?experiment=a")
    assert found == status and error_of(body).startswith(shown)
    assert b"/etc/path" not in body
    assert (status == 500) == ("ZeroDivisionError" in caplog.text)


class Listener:
    """An event stream, read event by event."""

    def __init__(self, url, **headers):
        where = urlsplit(url)
        self.connection = http.client.HTTPConnection(where.netloc, timeout=60)
        self.connection.request("GET", "/api/stream", headers=headers)
        self.answer = self.connection.getresponse()

    def next(self):
        lines = []
        while (line := self.answer.readline()) not in (b"\r\n", b""):
            lines.append(line.decode())
        return lines

    def next_snapshot(self):
        event, data = self.next()
        assert event == "event: snapshot\r\n" and data.startswith("data: {")
        return json.loads(data.removeprefix("data: "))

    def close(self):
        self.answer.close()
        self.connection.close()


def test_snapshots_are_streamed_as_they_come(static):
    source = FakeSource(snapshot(1.0))
    with dashboard(static, source) as url, closing(Listener(url)) as listener:
        assert listener.answer.headers["content-type"].startswith("text/event-stream")
        assert listener.answer.headers["cache-control"] == "no-store"
        assert listener.next_snapshot()["at_s"] == 1.0
        for at_s in (2.0, 3.0):
            source.show(snapshot(at_s))
            assert listener.next_snapshot()["at_s"] == at_s
        with closing(Listener(url)) as other:
            # Who comes later sees the latest at once, and then the same as all.
            assert other.next_snapshot()["at_s"] == 3.0
            source.show(snapshot(4.0))
            assert other.next_snapshot()["at_s"] == 4.0
            assert listener.next_snapshot()["at_s"] == 4.0


def test_a_stream_says_the_same_as_the_snapshot(static):
    with dashboard(static) as url, closing(Listener(url)) as listener:
        assert listener.next_snapshot() == json.loads(ask(url, "/api/snapshot")[2])


def test_a_snapshot_that_cannot_be_shown_ends_no_stream(static, caplog):
    source = FakeSource(snapshot(1.0))
    with dashboard(static, source) as url, closing(Listener(url)) as listener:
        assert listener.next_snapshot()["at_s"] == 1.0
        source.show(snapshot(2.0, experiments=(object(),)))
        until(lambda: "cannot be shown" in caplog.text)
        source.show(snapshot(3.0))
        assert listener.next_snapshot()["at_s"] == 3.0


def test_no_more_listen_than_may(static):
    app = create_app(FakeSource(snapshot()), FakePast(), static=static, streams=2)
    with serving(app) as url:
        first, second = Listener(url), Listener(url)
        first.next(), second.next()
        status, _, body = ask(url, "/api/stream")
        assert status == 503 and "expected fewer open pages" in error_of(body)
        assert ask(url, "/api/snapshot")[0] == 200
        first.close()
        until(lambda: app.streams.listening == 1)
        with closing(Listener(url)) as third:
            assert third.next_snapshot()["at_s"] == 5.0
        second.close()
        until(lambda: app.streams.listening == 0)


def test_sixty_four_listen_and_hear_the_same(static):
    source = FakeSource(snapshot(1.0))
    with dashboard(static, source) as url:
        with ExitStack() as open_ones:
            listeners = [
                open_ones.enter_context(closing(Listener(url))) for _ in range(64)
            ]
            for each in listeners:
                each.next()
            assert ask(url, "/api/stream")[0] == 503
            source.show(snapshot(2.0))
            assert {each.next_snapshot()["at_s"] for each in listeners} == {2.0}


def test_nothing_is_waited_for_while_nobody_listens(static):
    source = FakeSource(snapshot(1.0))
    waits = []
    wait = source.wait_for_newer
    source.wait_for_newer = lambda *args: waits.append(args) or wait(*args)
    app = create_app(source, FakePast(), static=static)
    with serving(app) as url:
        ask(url, "/api/snapshot")
        assert waits == []
        with closing(Listener(url)) as listener:
            listener.next()
            until(lambda: waits)
        until(lambda: app.streams.listening == 0)


def test_a_server_that_ends_ends_its_streams(static, monkeypatch):
    # Not by the limit after which it would cut them off.
    monkeypatch.setattr(server, "_SHUTDOWN_S", 600)
    with ExitStack() as streams:
        with dashboard(static) as url:
            listener = streams.enter_context(closing(Listener(url)))
            listener.next_snapshot()
        assert listener.next() == []


def login(url, token, **headers):
    return ask(
        url, "/login", "POST", urlencode({"token": token}).encode(), **FORM, **headers
    )


def session_of(headers):
    return headers["set-cookie"].partition(";")[0]


@pytest.fixture(scope="module")
def shared(static):
    with dashboard(static, access=access_for("127.0.0.1", TOKEN)) as url:
        yield url


def test_with_a_token_nothing_is_shown_without_it(shared):
    status, headers, _ = ask(shared, "/")
    assert status == 303 and headers["location"] == "/login"
    for path in ("/api/snapshot", "/api/stream", "/static/js/app.js", "/nothing"):
        status, headers, body = ask(shared, path)
        assert status == 401 and headers["www-authenticate"] == "Bearer"
        assert "Bearer <token>" in error_of(body)
    given = {"Authorization": f"Bearer {TOKEN}"}
    assert ask(shared, "/api/snapshot", **given)[0] == 200
    assert ask(shared, "/", **given)[0] == 200


def test_a_token_is_given_in_a_form_and_taken_back(shared):
    status, headers, body = ask(shared, "/login")
    assert status == 200 and b'<form method="post" action="/login">' in body
    # Else the browser would say `Origin: null` with the form.
    assert headers["referrer-policy"] == "same-origin"
    assert b"<script" not in body and b"style=" not in body and b"<style" not in body
    status, headers, body = login(shared, TOKEN, Origin=shared.rstrip("/"))
    assert status == 303 and headers["location"] == "/"
    cookie = headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=") and TOKEN not in cookie
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Path=/" in cookie
    assert "Secure" not in cookie
    session = session_of(headers)
    assert ask(shared, "/api/snapshot", Cookie=session)[0] == 200
    assert ask(shared, "/", Cookie=f"x=y; {session}; z")[0] == 200
    status, headers, _ = ask(shared, "/logout", "POST", b"", Cookie=session)
    assert status == 303 and headers["location"] == "/login"
    assert "Max-Age=0" in headers["set-cookie"]
    assert ask(shared, "/api/snapshot", Cookie=session)[0] == 401


def test_behind_tls_the_cookie_is_for_tls_only(static):
    access = access_for("127.0.0.1", TOKEN, ("dash.example",))
    with dashboard(static, access=access) as url:
        here = {"Host": "dash.example", "Origin": "https://dash.example"}
        assert "Secure" in login(url, TOKEN, **here)[1]["set-cookie"]


def test_a_wrong_token_opens_nothing_and_is_told_nowhere(shared, caplog, capfd):
    for wrong in ("", TOKEN[:-1], TOKEN + "x", "wrong-wrong-wrong-wrong", "\udcff"):
        body = urlencode({"token": wrong}, errors="surrogateescape").encode()
        status, headers, page = ask(shared, "/login", "POST", body, **FORM)
        assert status in (401, 400) and "set-cookie" not in headers
        assert not wrong or wrong.encode(errors="replace") not in page
    ask(shared, "/api/snapshot", Authorization="Bearer wrong-wrong-wrong-wrong")
    login(shared, TOKEN)
    told = caplog.text + "".join(capfd.readouterr())
    assert TOKEN not in told and "wrong-wrong" not in told


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        (b"token=" + TOKEN.encode(), {"Origin": "http://evil.example", **FORM}, 403),
        (b"token=" + TOKEN.encode(), {"Origin": "null", **FORM}, 403),
        (b"token=" + TOKEN.encode(), {"Sec_Fetch_Site": "same-site", **FORM}, 403),
        (b"token=" + TOKEN.encode(), {"Content_Type": "text/plain"}, 415),
        (
            b'{"token": "%s"}' % TOKEN.encode(),
            {"Content_Type": "application/json"},
            415,
        ),
        (b"a=1&b=2&c=3&d=4&e=5", FORM, 400),
        (b"token=\xff\xfe", FORM, 400),
        (b"token=%00%ff", FORM, 401),
        (b"x" * 5_000, FORM, 413),
        (b"", FORM, 401),
    ],
)
def test_odd_forms_open_nothing(shared, body, headers, expected):
    status, found, _ = ask(shared, "/login", "POST", body, **headers)
    assert status == expected and "set-cookie" not in found


@pytest.mark.parametrize(
    "cookie",
    [
        "",
        "x",
        f"{COOKIE}=",
        f"{COOKIE}={TOKEN}",
        f"{COOKIE}=x; {COOKIE}=y",
        "=;=;",
        '"',
    ],
)
def test_odd_cookies_open_nothing(shared, cookie):
    assert ask(shared, "/api/snapshot", Cookie=cookie)[0] == 401


def test_a_session_that_ends_ends_its_streams(static):
    source = FakeSource(snapshot(1.0))
    access = access_for("127.0.0.1", TOKEN)
    with dashboard(static, source, access=access) as url:
        session = session_of(login(url, TOKEN)[1])
        with closing(Listener(url, Cookie=session)) as listener:
            listener.next_snapshot()
            ask(url, "/logout", "POST", b"", Cookie=session)
            source.show(snapshot(2.0))
            assert listener.next() == []


@pytest.mark.parametrize(
    ("access", "headers"),
    [
        (LOCAL, {}),
        (access_for("127.0.0.1", TOKEN), {"Authorization": f"Bearer {TOKEN}"}),
    ],
)
def test_a_cookie_that_is_not_asked_for_ends_nothing(static, access, headers):
    """A browser sends it to each server of the host, whatever the port."""
    source = FakeSource(snapshot(1.0))
    with dashboard(static, source, access=access) as url:
        with closing(Listener(url, Cookie=f"{COOKIE}=other", **headers)) as listener:
            assert listener.next_snapshot()["at_s"] == 1.0
            source.show(snapshot(2.0))
            assert listener.next_snapshot()["at_s"] == 2.0


def test_on_loopback_there_is_nothing_to_log_in_to(static):
    with dashboard(static) as url:
        assert ask(url, "/login")[1]["location"] == "/"
        status, headers, _ = login(url, "x")
        assert status == 303 and "set-cookie" not in headers


def test_requests_of_a_few_at_a_time_reach_the_brokers(static):
    inside, most, lock = [0], [0], threading.Lock()
    go_on = threading.Event()

    def slow(experiment, limit):
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        assert go_on.wait(60)
        with lock:
            inside[0] -= 1
        return {"events": []}

    with dashboard(static, past=FakePast(events=slow)) as url:
        found = []
        threads = [
            threading.Thread(
                target=lambda: found.append(ask(url, "/api/events?experiment=a")[0])
            )
            for _ in range(12)
        ]
        for each in threads:
            each.start()
        until(lambda: inside[0] == 4)
        # Who asks for what is known anyway does not wait for them.
        assert ask(url, "/api/snapshot")[0] == 200
        go_on.set()
        for each in threads:
            each.join(60)
    assert found == [200] * 12 and most[0] == 4


def test_who_holds_a_connection_and_asks_nothing_loses_it(static, monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_S", 0.3)
    monkeypatch.setattr(server, "_KEEP_ALIVE_S", 0.3)
    monkeypatch.setattr(login_form, "_BODY_S", 0.3)
    with dashboard(static) as url, closing(Listener(url)) as listener:
        where = urlsplit(url)
        for sent in (b"", b"GET / HTT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "):
            with socket.create_connection((where.hostname, where.port), 60) as slow:
                slow.sendall(sent)
                assert slow.recv(100) == b""
        with socket.create_connection((where.hostname, where.port), 60) as slow:
            request = b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"
            slow.sendall(request + b"GET /second HTTP")
            shown = b""
            while part := slow.recv(10_000):
                shown += part
            assert shown.count(b"HTTP/1.1 404") == 1
        # Who has asked may be answered for as long as it takes.
        listener.next_snapshot()
        assert ask(url, "/api/snapshot")[0] == 200
    with dashboard(static, access=access_for("127.0.0.1", TOKEN)) as url:
        where = urlsplit(url)
        with socket.create_connection((where.hostname, where.port), 60) as slow:
            slow.sendall(
                b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
                b"Content-Type: application/x-www-form-urlencoded\r\n\r\ntoken"
            )
            assert slow.recv(100).startswith(b"HTTP/1.1 408")


def test_a_port_that_is_taken_is_told():
    with bind("127.0.0.1", 0) as taken:
        with pytest.raises(ListenError, match="the port is taken.*--listen HOST:PORT"):
            bind("127.0.0.1", taken.getsockname()[1])
        assert url_of(taken).startswith("http://127.0.0.1:")


def test_a_host_that_is_not_here_is_told():
    with pytest.raises(ListenError, match="cannot listen on 192.0.2.1:0"):
        bind("192.0.2.1", 0)
