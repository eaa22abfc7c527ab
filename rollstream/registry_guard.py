"""Who may ask the schema registry: this machine, or who has the token."""

from __future__ import annotations

import hmac
import ipaddress
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from infra.errors import SettingsError
from rollstream.registry_answers import ApiError, Handler

MIN_TOKEN = 16


def check_reach(host: str, token: str | None) -> None:
    """Check that a registry which others can reach has a token.

    Raises:
        SettingsError: it has none, or one that can be guessed.
    """
    if token is not None and (len(token) < MIN_TOKEN or not token.isascii()):
        raise SettingsError(
            f"ROLLSTREAM_REGISTRY_TOKEN: expected at least {MIN_TOKEN} ASCII "
            f"characters, found {len(token)}",
            "make one with `openssl rand -hex 32`",
        )
    if token is None and not is_loopback(host):
        raise SettingsError(
            f"--host {host}: expected ROLLSTREAM_REGISTRY_TOKEN where others can "
            "reach the registry, found none",
            "set it, or stay on 127.0.0.1",
        )


def is_loopback(host: str) -> bool:
    """Say whether a host, as in an address or a Host header, is this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def make_guard(host: str, token: str | None) -> Middleware:
    """Return what lets requests through, or answers 401 or 403.

    1. On loopback the Host header has to name loopback: a page whose name was made to
       point here (DNS rebinding) sends its own.
    2. A page that sends to another site says so in Origin; clients never do.
    3. Where there is a token, it has to be in the request.
    """
    local = is_loopback(host)

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if local and not is_loopback(_host_of(request)):
            raise ApiError(403, 403, "expected a Host header of this machine")
        if "Origin" in request.headers:
            raise ApiError(403, 403, "expected no request of a web page")
        if token is not None and not _has_token(request, token):
            raise ApiError(401, 40101, "expected `Authorization: Bearer <token>`")
        return await handler(request)

    return guard


def _host_of(request: web.Request) -> str:
    try:
        return urlsplit(f"//{request.headers.get('Host', '')}").hostname or ""
    except ValueError:
        return ""


def _has_token(request: web.Request, token: str) -> bool:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    same = hmac.compare_digest(
        given.strip().encode(errors="surrogateescape"), token.encode()
    )
    return scheme.lower() == "bearer" and same
