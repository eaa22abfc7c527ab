"""An ASGI application -> the same behind rules of access, with headers that bind."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from infra.monitoring.dashboard.access import (
    COOKIE,
    LOGIN,
    Access,
    Refusal,
    Request,
    Sessions,
    refuse,
)
from infra.monitoring.dashboard.as_json import encode

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_MAX_QUERY = 2_048
MAX_HEADER_BYTES = 16_384


def json_response(value: object, status: int = 200) -> Response:
    """Return a response that no cache keeps."""
    body = value if isinstance(value, bytes) else encode(value)
    headers = {"Cache-Control": "no-store"}
    return Response(body, status, headers, media_type="application/json")


def error_response(status: int, reason: str) -> Response:
    """Return what is answered instead of what was asked for."""
    return json_response({"error": reason}, status)


class Guard:
    """Lets requests through as ``refuse`` says; binds all answers, its own as well."""

    def __init__(self, app: ASGIApp, access: Access, sessions: Sessions) -> None:
        self._app = app
        self._access = access
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or have it answered."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": ""})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_bound(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._refused(scope) or self._app
        await answer(scope, receive, send_bound)

    def _refused(self, scope: Scope) -> Response | None:
        if len(scope["query_string"]) > _MAX_QUERY:
            return error_response(414, f"expected a query of at most {_MAX_QUERY} B")
        if sum(len(name) + len(value) for name, value in scope["headers"]) > (
            MAX_HEADER_BYTES
        ):
            return error_response(431, f"expected headers of {MAX_HEADER_BYTES} B")
        request = request_of(scope)
        found = refuse(self._access, request, self._sessions.is_open)
        if found is None:
            # Where another server on this host was signed in to, its cookie comes too.
            by_session = self._access.token is not None and not request.authorization
            session = request.session if by_session else ""
            scope.setdefault("state", {})["session"] = session
            return None
        return _response(found, request)


def _response(found: Refusal, request: Request) -> Response:
    if found.login and request.path == "/":
        return RedirectResponse(LOGIN, 303, {"Cache-Control": "no-store"})
    answer = error_response(found.status, found.reason)
    if found.login:
        answer.headers["WWW-Authenticate"] = "Bearer"
    if found.status == 405:
        answer.headers["Allow"] = "GET, HEAD"
    return answer


def request_of(scope: Scope) -> Request:
    """Return what of a request decides about it."""
    headers = Headers(scope=scope)
    return Request(
        method=scope["method"],
        path=scope["path"],
        hosts=tuple(headers.getlist("host")),
        origin=headers.get("origin", ""),
        site=headers.get("sec-fetch-site", ""),
        mode=headers.get("sec-fetch-mode", ""),
        authorization=headers.get("authorization", ""),
        session=cookie_parser(headers.get("cookie", "")).get(COOKIE, ""),
    )
