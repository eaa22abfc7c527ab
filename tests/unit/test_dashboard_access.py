"""Who may see the dashboard: each rule, both ways."""

from dataclasses import replace

import pytest

from infra.errors import SettingsError
from infra.monitoring.dashboard.access import (
    LOCAL,
    MAX_SESSIONS,
    SESSION_S,
    Access,
    Request,
    Sessions,
    access_for,
    refuse,
)

TOKEN = "0123456789abcdef-token"
HERE = Request("GET", "/api/snapshot", ("localhost:8580",))
SHARED = access_for("0.0.0.0", TOKEN, ("dash.example",))
THERE = replace(HERE, hosts=("dash.example",), authorization=f"Bearer {TOKEN}")


def status(access, request, open_sessions=()):
    found = refuse(access, request, lambda each: each in open_sessions)
    return found.status if found else None


@pytest.mark.parametrize(
    ("why", "changes", "expected"),
    [
        ("a request of this machine", {}, None),
        ("by address", {"hosts": ("127.0.0.1:8580",)}, None),
        ("by IPv6 address", {"hosts": ("[::1]:8580",)}, None),
        ("a name that was made to point here", {"hosts": ("evil.example",)}, 403),
        ("one that looks like ours", {"hosts": ("localhost.evil.example",)}, 403),
        ("an address that is not loopback", {"hosts": ("10.0.0.1",)}, 403),
        ("no host", {"hosts": ()}, 403),
        ("two hosts", {"hosts": ("localhost", "evil.example")}, 403),
        ("our own page", {"origin": "http://localhost:8580"}, None),
        ("another site's page", {"origin": "http://evil.example"}, 403),
        ("a page in a sandbox", {"origin": "null"}, 403),
        ("another server here", {"origin": "http://localhost:3000"}, 403),
        ("our page, by the browser's word", {"site": "same-origin"}, None),
        ("typed by a person", {"site": "none", "mode": "navigate"}, None),
        ("an image in another site's page", {"site": "cross-site"}, 403),
        ("likewise of a server here", {"site": "same-site", "mode": "no-cors"}, 403),
        ("a link to data", {"site": "cross-site", "mode": "navigate"}, 403),
        (
            "a link to the page",
            {"site": "cross-site", "mode": "navigate", "path": "/"},
            None,
        ),
        (
            "a form of another site",
            {
                "site": "cross-site",
                "mode": "navigate",
                "path": "/login",
                "method": "POST",
            },
            403,
        ),
        ("a look at the headers", {"method": "HEAD"}, None),
        ("a change", {"method": "POST"}, 405),
        ("a change", {"method": "PUT"}, 405),
        ("a change", {"method": "DELETE"}, 405),
        ("a question of what may be done", {"method": "OPTIONS"}, 405),
        ("an echo", {"method": "TRACE"}, 405),
        ("a word of our own", {"method": "FROB"}, 405),
        ("a change of the page", {"method": "POST", "path": "/"}, 405),
        ("a login", {"method": "POST", "path": "/login"}, None),
        ("a logout", {"method": "POST", "path": "/logout"}, None),
        ("no such change", {"method": "DELETE", "path": "/login"}, 405),
    ],
)
def test_on_loopback(why, changes, expected):
    assert status(LOCAL, replace(HERE, **changes)) == expected, why


@pytest.mark.parametrize(
    ("why", "changes", "expected"),
    [
        ("with the token", {}, None),
        ("by an address, which none can rebind", {"hosts": ("10.0.0.7:8580",)}, None),
        ("by a name that was not given", {"hosts": ("evil.example",)}, 403),
        ("our page behind TLS", {"origin": "https://dash.example"}, None),
        ("another site's page", {"origin": "https://evil.example"}, 403),
        ("no token", {"authorization": ""}, 401),
        ("a wrong one", {"authorization": "Bearer 0123456789abcdef-tokem"}, 401),
        ("an open session", {"authorization": "", "session": "s"}, None),
        ("no such session", {"authorization": "", "session": "t"}, 401),
        # Who gives a wrong token is not let in by a cookie that a browser adds.
        ("a wrong one beside", {"authorization": "Bearer x", "session": "s"}, 401),
        ("the page", {"authorization": "", "path": "/"}, 401),
        ("its files", {"authorization": "", "path": "/static/app.js"}, 401),
        ("what is not there", {"authorization": "", "path": "/nothing"}, 401),
        ("the form", {"authorization": "", "path": "/login"}, None),
        ("a token", {"authorization": "", "path": "/login", "method": "POST"}, None),
        ("how it looks", {"authorization": "", "path": "/login.css"}, None),
        ("what is like the form", {"authorization": "", "path": "/login/"}, 401),
        ("a logout", {"authorization": "", "path": "/logout", "method": "POST"}, 401),
        ("from this machine, too", {"authorization": "", "hosts": ("localhost",)}, 401),
    ],
)  # fmt: skip
def test_where_others_can_reach_it(why, changes, expected):
    assert status(SHARED, replace(THERE, **changes), ("s",)) == expected, why


def test_a_token_on_loopback_is_asked_for():
    access = access_for("127.0.0.1", TOKEN)
    assert access.is_local
    assert status(access, HERE) == 401
    assert status(access, replace(HERE, authorization=f"Bearer {TOKEN}")) is None


@pytest.mark.parametrize(
    ("host", "token", "names"),
    [
        ("0.0.0.0", None, ()),
        ("::", None, ()),
        ("dash.example", None, ()),
        # Behind a proxy on this machine, others reach it as well.
        ("127.0.0.1", None, ("dash.example",)),
        ("127.0.0.1", "short", ()),
        ("0.0.0.0", "", ()),
    ],
)
def test_without_a_token_nobody_else_may_reach_it(host, token, names):
    with pytest.raises(SettingsError, match="expected"):
        access_for(host, token, names)


def test_a_name_to_listen_on_is_one_of_the_server():
    assert access_for("Dash.Example", TOKEN).names == {"dash.example"}


def test_what_is_printed_of_access_holds_no_token():
    assert TOKEN not in repr(Access(token=TOKEN))


def test_sessions_end_and_are_bounded():
    now_s = 100.0
    sessions = Sessions(lambda: now_s)
    first = sessions.open()
    assert sessions.is_open(first) and not sessions.is_open("") and len(first) >= 43
    now_s += SESSION_S - 1
    others = [sessions.open() for _ in range(MAX_SESSIONS - 1)]
    assert sessions.is_open(first)
    sessions.close(others[0])
    assert not sessions.is_open(others[0])
    now_s += 1
    assert not sessions.is_open(first) and sessions.is_open(others[1])
    newer = [sessions.open() for _ in range(MAX_SESSIONS)]
    assert not sessions.is_open(others[1]) and all(map(sessions.is_open, newer))
