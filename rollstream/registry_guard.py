"""Who may ask the schema registry: this machine, or who has the token."""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Middleware

from infra.errors import SettingsError
from infra.http_access import check_token, host_of, is_bearer, is_loopback
from rollstream.registry_answers import ApiError, Handler


def check_reach(host: str, token: str | None) -> None:
    """Check that a registry which others can reach has a token.

    Raises:
        SettingsError: it has none, or one that can be guessed.
    """
    if token is not None:
        check_token("ROLLSTREAM_REGISTRY_TOKEN", token)
    elif not is_loopback(host):
        raise SettingsError(
            f"--host {host}: expected ROLLSTREAM_REGISTRY_TOKEN where others can "
            "reach the registry, found none",
            "set it, or stay on 127.0.0.1",
        )


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
        if local and not is_loopback(host_of(request.headers.get("Host", ""))):
            raise ApiError(403, 403, "expected a Host header of this machine")
        if "Origin" in request.headers:
            raise ApiError(403, 403, "expected no request of a web page")
        if token is not None and not is_bearer(
            request.headers.get("Authorization", ""), token
        ):
            raise ApiError(401, 40101, "expected `Authorization: Bearer <token>`")
        return await handler(request)

    return guard
