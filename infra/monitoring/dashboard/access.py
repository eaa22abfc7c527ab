"""Requests -> let through, or refused: who may see the dashboard."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from infra.errors import SettingsError
from infra.http_access import (
    check_token,
    host_of,
    is_address,
    is_bearer,
    is_loopback,
    is_same_origin,
)

TOKEN_VARIABLE = "ROLLSTREAM_DASHBOARD_TOKEN"
COOKIE = "rollstream_dashboard"
SESSION_S = 12 * 3600
MAX_SESSIONS = 256

LOGIN = "/login"
LOGOUT = "/logout"
# What who has no token yet may ask for, to give it.
OPEN_PATHS = (LOGIN, "/login.css")
PAGES = ("/", LOGIN)


@dataclass(frozen=True)
class Access:
    """Who may ask.

    Attributes:
        is_local: the server is reached from this machine only.
        token: that a request has to carry; None: none.
        names: host names by which it is known, besides addresses.
    """

    is_local: bool = True
    token: str | None = field(default=None, repr=False)
    names: frozenset[str] = frozenset()


LOCAL = Access()
"""Anybody on this machine, and nobody else."""


def access_for(host: str, token: str | None, names: tuple[str, ...] = ()) -> Access:
    """Return who may ask a server that listens on a host.

    Raises:
        SettingsError: others could reach it, and there is no token, or a poor one.
    """
    if token is not None:
        check_token(f"{TOKEN_VARIABLE} or --token-file", token)
    elif not is_loopback(host) or names:
        what = f"--host-name {names[0]}" if names else f"--listen {host}"
        raise SettingsError(
            f"{what}: expected {TOKEN_VARIABLE} or --token-file where others can reach "
            "the dashboard, found neither",
            "give one, or stay on 127.0.0.1",
        )
    known = {name.lower() for name in names}
    if not is_address(host):
        known.add(host.lower())
    return Access(is_loopback(host) and not names, token, frozenset(known))


@dataclass(frozen=True)
class Request:
    """What of a request decides whether it is answered; "" where a header is absent.

    Attributes:
        hosts: all of its Host headers.
        site: its Sec-Fetch-Site.
        mode: its Sec-Fetch-Mode.
        session: of its cookie.
    """

    method: str
    path: str
    hosts: tuple[str, ...]
    origin: str = ""
    site: str = ""
    mode: str = ""
    authorization: str = ""
    session: str = ""


@dataclass(frozen=True)
class Refusal:
    """Why a request is not answered; ``login``: the token is missing."""

    status: Literal[401, 403, 405]
    reason: str
    login: bool = False


def refuse(
    access: Access, request: Request, is_open: Callable[[str], bool]
) -> Refusal | None:
    """Return why a request is refused; None: it is answered.

    1. There is one Host header, and it names this server: a page whose name was made
       to point here (DNS rebinding) sends its own. An address cannot be rebound.
    2. A browser that says where the request comes from (Origin, Sec-Fetch-Site) says
       that it comes from a page of this server; only the pages themselves may be
       opened from elsewhere, by a link.
    3. Nothing but login and logout takes anything: the rest is GET and HEAD.
    4. Where there is a token, the request has it, or a session of who had it; the form
       to give it is for all.

    Args:
        access: who may ask.
        request: what is asked.
        is_open: says of a session whether it lasts.
    """
    host = request.hosts[0] if len(request.hosts) == 1 else ""
    if not _is_ours(access, host_of(host)):
        return Refusal(403, "expected a Host header that names this server")
    if request.origin and not is_same_origin(request.origin, host):
        return Refusal(403, "expected no request of another site's page")
    if not _is_from_here(request):
        return Refusal(403, "expected no request of another site's page")
    takes = request.path in (LOGIN, LOGOUT)
    if request.method not in (("GET", "HEAD", "POST") if takes else ("GET", "HEAD")):
        return Refusal(405, "expected GET or HEAD: nothing can be changed here")
    if access.token is None or request.path in OPEN_PATHS:
        return None
    if request.authorization:
        if is_bearer(request.authorization, access.token):
            return None
    elif request.session and is_open(request.session):
        return None
    return Refusal(401, "expected `Authorization: Bearer <token>`", login=True)


def _is_ours(access: Access, host: str) -> bool:
    if is_loopback(host):
        return True
    return not access.is_local and (is_address(host) or host in access.names)


def _is_from_here(request: Request) -> bool:
    if request.site in ("", "none", "same-origin"):
        return True
    is_link = request.mode == "navigate" and request.method == "GET"
    return is_link and request.path in PAGES


class Sessions:
    """Who has given the token; forgotten when the server ends."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._until_s: dict[str, float] = {}

    def open(self) -> str:
        """Begin one; of too many, the oldest ends."""
        while len(self._until_s) >= MAX_SESSIONS:
            del self._until_s[next(iter(self._until_s))]
        found = secrets.token_urlsafe(32)
        self._until_s[found] = self._now_s() + SESSION_S
        return found

    def is_open(self, session: str) -> bool:
        """Say whether it lasts."""
        return self._until_s.get(session, 0.0) > self._now_s()

    def close(self, session: str) -> None:
        """End it, if there is such a one."""
        self._until_s.pop(session, None)
