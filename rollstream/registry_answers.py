"""What the schema registry answers, right and wrong, as its clients expect it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from infra.errors import RollstreamError
from schemas.compatibility import IncompatibleSchema
from schemas.errors import SchemaError

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
ACCEPTED_TYPES = (
    CONTENT_TYPE,
    "application/vnd.schemaregistry+json",
    "application/json",
    "application/octet-stream",
)
TIMEOUT_S = 60.0
_log = logging.getLogger("rollstream.registry")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ApiError(Exception):
    """An answer that is an error: HTTP status, the registry's code, what is wrong."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def unknown_subject(subject: str) -> ApiError:
    """No version of the subject is registered."""
    return ApiError(404, 40401, f"Subject '{subject}' not found.")


def unknown_version(version: object) -> ApiError:
    """The subject has no such version."""
    return ApiError(404, 40402, f"Version {version} not found.")


def unknown_schema() -> ApiError:
    """No such id, or the subject has no such schema."""
    return ApiError(404, 40403, "Schema not found")


def invalid_schema(reason: object) -> ApiError:
    """It is no schema, or not one that can be kept here."""
    return ApiError(422, 42201, f"Invalid schema: {reason}")


def answer(values: Any, status: int = 200) -> web.Response:
    """Return JSON with the registry's content type."""
    body = json.dumps(values).encode()
    return web.Response(body=body, status=status, content_type=CONTENT_TYPE)


async def read_body(request: web.Request) -> dict[str, Any]:
    """Return the JSON object that a request carries.

    Raises:
        ApiError: it carries something else.
    """
    if request.content_type not in ACCEPTED_TYPES:
        raise ApiError(
            415, 415, f"expected {CONTENT_TYPE}, found {request.content_type[:80]}"
        )
    try:
        values = json.loads(await request.read())
    except (ValueError, RecursionError) as exc:
        raise ApiError(400, 400, f"expected JSON, found {exc!r}") from exc
    if not isinstance(values, dict):
        raise ApiError(422, 422, "expected a JSON object")
    return values


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error with a code and a message."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            if request.method == "DELETE":
                raise ApiError(405, 405, "nothing is ever deleted here")
            return await handler(request)
    except ApiError as exc:
        found = exc
    except IncompatibleSchema as exc:
        found = ApiError(409, 409, f"Incompatible schema: {exc}")
    except SchemaError as exc:
        found = invalid_schema(exc)
    except RollstreamError as exc:
        _log.warning("%s", exc)
        found = ApiError(500, 50001, f"Error in the backend data store: {exc}")
    except TimeoutError:
        found = ApiError(500, 50002, f"Operation timed out after {TIMEOUT_S:g} s")
    except web.HTTPException as exc:
        found = ApiError(exc.status, exc.status, f"HTTP {exc.status} {exc.reason}")
    return answer({"error_code": found.code, "message": str(found)}, found.status)
