"""Processes that register at once: the log decides, and everybody sees the same."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from infra.control.members import ensure_shared_topics
from infra.errors import DeliveryError
from infra.kafka import schema_registry
from infra.kafka.clients import make_producer
from infra.kafka.delivery import Sender
from infra.kafka.reading import Message, read_to_end
from infra.kafka.schema_registry import SchemaRegistry, publish_shipped
from infra.settings import Settings
from schemas.compatibility import IncompatibleSchema
from schemas.registry import schema_id, shipped
from schemas.subjects import Registration, SubjectLog
from schemas.topics import SCHEMAS, topic_name
from tests.integration.registry_rig import added, thing, unique

pytestmark = pytest.mark.kafka

# Registers each schema of a list; prints what became of it.
CHILD = """
import json, sys
from infra.kafka.schema_registry import SchemaRegistry
from infra.settings import load_settings
from schemas.compatibility import IncompatibleSchema
topic, wanted = sys.argv[1], json.loads(sys.argv[2])
registry = SchemaRegistry(load_settings(), topic)
registry.refresh()
print("ready", flush=True)
sys.stdin.readline()
for subject, text in wanted:
    try:
        found = registry.register(subject, text)
        print(json.dumps([subject, found.version, found.id]))
    except IncompatibleSchema as exc:
        print(json.dumps([subject, 0, str(exc)]))
"""


class Overtaken(SchemaRegistry):
    """Between its look at the log and its own record, another process writes."""

    def __init__(self, settings: Settings, topic: str) -> None:
        super().__init__(settings, topic)
        self.rivals: list[tuple[str, str]] = []
        self._rival = SchemaRegistry(settings, topic)

    def _publish(self, plans: Iterable[Registration]) -> None:
        if self.rivals:
            self._rival.register(*self.rivals.pop(0))
        super()._publish(plans)


def read_log(settings: Settings, topic: str) -> SubjectLog:
    fresh = SchemaRegistry(settings, topic)
    fresh.refresh()
    return fresh.log


def versions(settings: Settings, topic: str, subject: str) -> list[tuple[int, str]]:
    found = read_log(settings, topic).versions(subject)
    return [(each.version, each.text) for each in found]


def test_who_is_overtaken_checks_again_and_comes_next(
    settings: Settings, topic: str
) -> None:
    registry = Overtaken(settings, topic)
    one, two, rival = thing("T"), thing("T", added("b")), thing("T", added("c"))
    registry.register("s", one)
    registry.rivals = [("s", rival)]
    assert registry.register("s", two).version == 3
    assert versions(settings, topic, "s") == [(1, one), (2, rival), (3, two)]


def test_who_is_overtaken_by_what_it_cannot_read_is_refused(
    settings: Settings, topic: str
) -> None:
    registry = Overtaken(settings, topic)
    registry.register("s", thing("T"))
    rival = thing("T", added("b", "string", ""))
    registry.rivals = [("s", rival)]
    with pytest.raises(
        IncompatibleSchema, match="s version 2: /b: expected what reads"
    ):
        registry.register("s", thing("T", added("b")))
    assert versions(settings, topic, "s") == [(1, thing("T")), (2, rival)]


def test_who_is_overtaken_by_the_same_schema_gets_its_version(
    settings: Settings, topic: str
) -> None:
    registry = Overtaken(settings, topic)
    registry.rivals = [("s", thing("T"))]
    assert registry.register("s", thing("T")).version == 1
    assert len(versions(settings, topic, "s")) == 1


def test_who_is_always_overtaken_gives_up(settings: Settings, topic: str) -> None:
    registry = Overtaken(settings, topic)
    registry.rivals = [("s", thing("T", added(f"x{n}"))) for n in range(10)]
    with pytest.raises(DeliveryError, match="another process was first 10 times"):
        registry.register("s", thing("T", added("mine")))


def run_at_once(topic: str, *lists: list[tuple[str, str]]) -> list[list[list[object]]]:
    results = []
    with contextlib.ExitStack() as started:
        children = []
        for wanted in lists:
            child = subprocess.Popen(
                [sys.executable, "-c", CHILD, topic, json.dumps(wanted)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            started.enter_context(child)
            started.callback(child.kill)
            children.append(child)
        for child in children:
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        for child in children:
            out, _ = child.communicate(timeout=120.0)
            assert child.returncode == 0
            results.append([json.loads(line) for line in out.splitlines()])
    return results


def test_two_processes_at_once_agree(settings: Settings, topic: str) -> None:
    """Of what does not go together one gets in; of what does, both do."""
    apart, together = ([unique() for _ in range(8)] for _ in range(2))
    base = SchemaRegistry(settings, topic)
    base.register_all([(name, thing(name)) for name in apart + together])
    lists = [
        [(name, thing(name, added("b", kind, default))) for name in apart]
        + [(name, thing(name, added(field))) for name in together]
        for kind, default, field in (("int", 0, "mine"), ("string", "", "yours"))
    ]
    results = run_at_once(topic, *lists)
    log = read_log(settings, topic)
    for index, name in enumerate(apart):
        found = [result[index] for result in results]
        assert sorted(entry[1] for entry in found) == [0, 2], found  # type: ignore[type-var]
        (refused,) = [str(entry[2]) for entry in found if entry[1] == 0]
        assert f"{name} version 2: /b: expected what reads" in refused
        assert len(log.versions(name)) == 2
    for index, name in enumerate(together, start=len(apart)):
        found = [result[index] for result in results]
        assert sorted(entry[1] for entry in found) == [2, 3]  # type: ignore[type-var]
        texts = {each.version: each.text for each in log.versions(name)}
        for _, version, number in found:
            assert schema_id(json.loads(texts[version])) == number  # type: ignore[index]


def test_garbage_in_the_topic_is_passed_over(settings: Settings, topic: str) -> None:
    sender = Sender(make_producer(settings, client_id="garbage"))
    for value in (b"garbage", None, b'{"schema": "int"}', thing("T").encode()):
        sender.send_and_wait(topic, value, "x")
    registry = SchemaRegistry(settings, topic)
    assert registry.register("s", thing("T")).version == 1
    assert registry.log.subjects() == ["s"]


def test_what_shipped_is_published_once_and_in_no_time(settings: Settings) -> None:
    ensure_shared_topics(settings)
    registry = SchemaRegistry(settings, topic_name(SCHEMAS))
    registry.refresh()
    before = registry._next_offset
    # Of all that it could do, a producer is what takes its time.
    reads = []

    def read(*args: Any, **options: Any) -> Iterator[Message]:
        reads.append(args)
        return read_to_end(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema_registry, "read_to_end", read)
        patch.setattr(schema_registry, "make_producer", None)
        publish_shipped(settings)
    assert len(reads) == 1
    registry.refresh()
    assert registry._next_offset == before
    for schema in shipped():
        versions = registry.log.versions(f"rollstream.{schema.name}")
        known = {found.version: found.id for found in versions}
        assert known[schema.version] == schema.id


def test_a_schema_that_cannot_be_published_stops_no_run(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    nowhere = settings.model_copy(update={"bootstrap_servers": "127.0.0.1:1"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("infra.kafka.schema_registry.TIMEOUT_S", 1.0)
        publish_shipped(nowhere)
    assert "the schemas of this version are not published" in caplog.text
