"""The Schema Registry's REST interface, as far as clients use it <-> the log.

Nothing is ever deleted, and the rule of compatibility is one for all.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from aiohttp import web

from infra.kafka.schema_registry import SchemaRegistry
from rollstream.registry_answers import (
    ApiError,
    answer,
    invalid_schema,
    read_body,
    unknown_schema,
    unknown_subject,
    unknown_version,
)
from schemas.compatibility import IncompatibleSchema
from schemas.subjects import Registration, check_subject, resolve_subject

LEVEL = "BACKWARD_TRANSITIVE"
MODE = "READWRITE"

Result = TypeVar("Result")


class RegistryApi:
    """Answers requests from the log; each reads what was appended since.

    A subject ``<topic>-value`` of a topic of ours is that of its record.
    """

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._lock = asyncio.Lock()

    def routes(self) -> list[web.RouteDef]:
        """Return what is answered."""
        subject, check = "/subjects/{subject}", "/compatibility/subjects/{subject}"
        return [
            web.get("/", self._root),
            web.get("/schemas/types", self._types),
            web.get("/schemas/ids/{id}", self._schema),
            web.get("/schemas/ids/{id}/schema", self._schema_text),
            web.get("/schemas/ids/{id}/subjects", self._schema_subjects),
            web.get("/schemas/ids/{id}/versions", self._schema_versions),
            web.get("/subjects", self._subjects),
            web.post(subject, self._look_up),
            web.get(f"{subject}/versions", self._versions),
            web.post(f"{subject}/versions", self._register),
            web.get(f"{subject}/versions/{{version}}", self._version),
            web.get(f"{subject}/versions/{{version}}/schema", self._version_text),
            web.post(f"{check}/versions", self._check),
            web.post(f"{check}/versions/{{version}}", self._check),
            *(
                route
                for path in ("/config", "/config/{subject}")
                for route in (
                    web.get(path, self._level),
                    web.put(path, self._set_level),
                )
            ),
            *(
                route
                for path in ("/mode", "/mode/{subject}")
                for route in (web.get(path, self._mode), web.put(path, self._set_mode))
            ),
        ]

    async def _alone(self, work: Callable[..., Result], *args: Any) -> Result:
        """Do in a thread what one may do at a time.

        Who asked may give up at its deadline; the thread cannot, and keeps the others
        waiting until it is done.
        """

        async def do() -> Result:
            async with self._lock:
                return await _in_thread(work, *args)

        return await asyncio.shield(asyncio.create_task(do()))

    async def _refresh(self) -> None:
        await self._alone(self._registry.refresh)

    async def _root(self, request: web.Request) -> web.Response:
        return answer({})

    async def _types(self, request: web.Request) -> web.Response:
        return answer(["AVRO"])

    async def _text(self, request: web.Request) -> tuple[int, str]:
        number = _whole(request.match_info["id"])
        if number is None:
            raise unknown_schema()
        if self._registry.log.text(number) is None:
            await self._refresh()
        text = self._registry.log.text(number)
        if text is None:
            raise unknown_schema()
        return number, text

    async def _schema(self, request: web.Request) -> web.Response:
        _, text = await self._text(request)
        return answer({"schema": text})

    async def _schema_text(self, request: web.Request) -> web.Response:
        _, text = await self._text(request)
        return web.Response(text=text, content_type="application/json")

    async def _schema_subjects(self, request: web.Request) -> web.Response:
        return answer([use.subject for use in await self._uses(request)])

    async def _schema_versions(self, request: web.Request) -> web.Response:
        uses = await self._uses(request)
        return answer([{"subject": u.subject, "version": u.version} for u in uses])

    async def _uses(self, request: web.Request) -> list[Registration]:
        number, _ = await self._text(request)
        await self._refresh()
        return self._registry.log.uses(number)

    async def _subjects(self, request: web.Request) -> web.Response:
        await self._refresh()
        prefix = request.query.get("subjectPrefix", "")
        found = self._registry.log.subjects()
        return answer([subject for subject in found if subject.startswith(prefix)])

    async def _versions_of(
        self, request: web.Request, text: str | None = None
    ) -> list[Registration]:
        subject = request.match_info["subject"]
        await self._refresh()
        found = self._registry.log.versions(resolve_subject(subject, text))
        if not found:
            raise unknown_subject(subject)
        return found

    async def _versions(self, request: web.Request) -> web.Response:
        return answer([each.version for each in await self._versions_of(request)])

    async def _version(self, request: web.Request) -> web.Response:
        found = _select(await self._versions_of(request), request)
        return answer(_describe(found, request))

    async def _version_text(self, request: web.Request) -> web.Response:
        found = _select(await self._versions_of(request), request)
        return web.Response(text=found.text, content_type="application/json")

    async def _look_up(self, request: web.Request) -> web.Response:
        text = _schema_of(await read_body(request))
        await self._versions_of(request, text)
        subject = resolve_subject(request.match_info["subject"], text)
        found = self._registry.log.find(subject, text)
        if found is None:
            raise unknown_schema()
        return answer(_describe(found, request))

    async def _register(self, request: web.Request) -> web.Response:
        text = _schema_of(await read_body(request))
        subject = check_subject(request.match_info["subject"])
        resolved = resolve_subject(subject, text)
        found = await self._alone(self._registry.register, resolved, text)
        return answer({"id": found.id, "version": found.version})

    async def _check(self, request: web.Request) -> web.Response:
        text = _schema_of(await read_body(request))
        messages = []
        try:
            versions = await self._versions_of(request, text)
            if "version" in request.match_info:
                versions = [_select(versions, request)]
            await self._alone(self._registry.log.check, text, versions)
        except IncompatibleSchema as exc:
            messages.append(str(exc))
        verbose = request.query.get("verbose", "").lower() == "true"
        more = {"messages": messages} if verbose else {}
        return answer({"is_compatible": not messages, **more})

    async def _level(self, request: web.Request) -> web.Response:
        if "subject" in request.match_info:
            await self._versions_of(request)
        return answer({"compatibilityLevel": LEVEL})

    async def _set_level(self, request: web.Request) -> web.Response:
        found = (await read_body(request)).get("compatibility")
        if found != LEVEL:
            raise ApiError(422, 42203, f"expected {LEVEL}, found {found!r}")
        return answer({"compatibility": LEVEL})

    async def _mode(self, request: web.Request) -> web.Response:
        return answer({"mode": MODE})

    async def _set_mode(self, request: web.Request) -> web.Response:
        found = (await read_body(request)).get("mode")
        if found != MODE:
            raise ApiError(422, 42204, f"expected {MODE}, found {found!r}")
        return answer({"mode": MODE})


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 11 else None


def _select(versions: list[Registration], request: web.Request) -> Registration:
    wanted = request.match_info["version"]
    if wanted in ("latest", "-1"):
        return versions[-1]
    number = _whole(wanted)
    if not number:
        raise ApiError(
            422,
            42202,
            f"expected a version from 1 on, or latest, found {wanted[:80]!r}",
        )
    if number > len(versions):
        raise unknown_version(number)
    return versions[number - 1]


def _describe(found: Registration, request: web.Request) -> dict[str, Any]:
    return {
        "subject": request.match_info["subject"],  # also where it is an alias
        "version": found.version,
        "id": found.id,
        "schema": found.text,
    }


def _schema_of(values: dict[str, Any]) -> str:
    if values.get("schemaType") not in (None, "AVRO"):
        raise invalid_schema(f"expected AVRO, found {values['schemaType']!r}")
    if values.get("references"):
        raise invalid_schema("expected a schema that holds all of it, found references")
    text = values.get("schema")
    if not isinstance(text, str):
        raise invalid_schema(f"expected its text, found {text!r:.80}")
    return text


async def _in_thread(work: Callable[..., Result], *args: Any) -> Result:
    """Do in a thread that nobody waits for at the end: brokers may be away."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def settle(result: Result | None, error: Exception | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast(Result, result))

    def run() -> None:
        result, error = None, None
        try:
            result = work(*args)
        except Exception as exc:
            error = exc
        # The loop is closed when we were interrupted.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="registry", daemon=True).start()
    return await done
