"""A token in a form -> a session in a cookie; and back to nothing."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from infra.http_access import is_same_secret
from infra.monitoring.dashboard.access import (
    COOKIE,
    LOGIN,
    LOGOUT,
    SESSION_S,
    Access,
    Sessions,
)
from infra.monitoring.dashboard.guard import error_response

MAX_FORM_BYTES = 4_096
_BODY_S = 10.0

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>rollstream: sign in</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/login.css">
<main>
<h1>rollstream</h1>
{message}<form method="post" action="/login">
<label for="token">Token of this dashboard</label>
<input id="token" name="token" type="password" required autofocus
 autocomplete="current-password">
<button>Sign in</button>
</form>
</main>
</html>
"""
_WRONG = '<p role="alert">That is not the token.</p>\n'

_STYLE = """:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center;
  background: light-dark(#f6f7f9, #10141a); color: light-dark(#1b2430, #dde3ea); }
main { width: min(22rem, 88vw); }
h1 { font-size: 1.25rem; font-weight: 600; }
form { display: grid; gap: .6rem; }
input, button { font: inherit; padding: .55rem .7rem; border-radius: .4rem;
  border: 1px solid light-dark(#c3cbd5, #3a4552); }
button { background: #1f6feb; border-color: #1f6feb; color: #fff; cursor: pointer; }
[role=alert] { color: light-dark(#b42318, #ff9b8f); }
"""


class Login:
    """The only routes that take anything."""

    def __init__(self, access: Access, sessions: Sessions) -> None:
        self._access = access
        self._sessions = sessions

    def routes(self) -> list[Route]:
        """Return what is answered."""
        return [
            Route(LOGIN, self._form, methods=["GET"]),
            Route(LOGIN, self._take, methods=["POST"]),
            Route(LOGOUT, self._leave, methods=["POST"]),
            Route("/login.css", self._style, methods=["GET"]),
        ]

    async def _form(self, request: Request) -> Response:
        if self._access.token is None:
            return RedirectResponse("/", 303)
        return _page("")

    async def _style(self, request: Request) -> Response:
        return Response(_STYLE, media_type="text/css")

    async def _take(self, request: Request) -> Response:
        token = self._access.token
        if token is None:
            return RedirectResponse("/", 303)
        if request.headers.get("content-type", "").partition(";")[0] != (
            "application/x-www-form-urlencoded"
        ):
            return error_response(415, "expected a form")
        try:
            async with asyncio.timeout(_BODY_S):
                body = await request.body()
            form = parse_qs(body.decode(), max_num_fields=4)
        except TimeoutError:
            return error_response(408, "expected a form, and soon")
        except ValueError:
            return error_response(400, "expected a form with a token")
        if not is_same_secret(form.get("token", [""])[0].strip(), token):
            return _page(_WRONG, 401)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            COOKIE,
            self._sessions.open(),
            max_age=SESSION_S,
            httponly=True,
            samesite="strict",
            # Behind a proxy that speaks TLS, the browser names it in Origin.
            secure=request.headers.get("origin", "").startswith("https://"),
        )
        return answer

    async def _leave(self, request: Request) -> Response:
        self._sessions.close(request.cookies.get(COOKIE, ""))
        answer = RedirectResponse(LOGIN, 303)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer


def _page(message: str, status: int = 200) -> Response:
    # With `no-referrer` a browser would send `Origin: null` with the form.
    headers = {"Cache-Control": "no-store", "Referrer-Policy": "same-origin"}
    return HTMLResponse(_PAGE.format(message=message), status, headers)
