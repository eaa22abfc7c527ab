"""What can be said of the app without a broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.control.role import RoleContext
from infra.kafka import foreign_schemas
from infra.kafka.foreign_schemas import learn_schema
from infra.settings import Settings
from schemas.codec import encode
from schemas.experiment import from_values
from schemas.records import Position
from schemas.registry import Registry, newest, schema_id
from stream_processors import agents, transport
from stream_processors import exits as exits_module
from stream_processors.agents import Processor
from stream_processors.app import app_settings
from stream_processors.exits import Exits, Leaving
from stream_processors.generation import Generation
from stream_processors.health import LogRange
from stream_processors.tails import ReturnOptions, TailCounts, Tails
from stream_processors.telemetry import Counts, Telemetry
from tests.unit.test_processor_oracle import make_end, make_unroll


class Reports:
    """Remembers events."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def event(self, kind: str, severity: str, reason: str) -> None:
        self.kinds.append(kind)


@pytest.fixture
def context(tmp_path: Path) -> RoleContext:
    experiment = from_values(
        {
            "apiVersion": "rollstream/v1",
            "kind": "Experiment",
            "metadata": {"name": "exp"},
            "spec": {"env": {"id": "CartPole-v1"}},
        }
    )
    settings = Settings(bootstrap_servers="127.0.0.1:1", data_dir=tmp_path)
    return RoleContext(settings, experiment, "run1", "processor", 2, -1)


def make_processor(context: RoleContext, **options: Any) -> tuple[Processor, Exits]:
    sender: Any = SimpleNamespace(flush=lambda timeout_s: 0)
    reports: Any = Reports()
    exits = Exits(sender, reports)
    deliveries: Any = None  # nothing is sent here
    return Processor(context, sender, deliveries, Telemetry(), exits, **options), exits


def test_settings_that_delivery_depends_on(context: RoleContext) -> None:
    found = app_settings(context)
    assert found["id"] == "rollstream.exp.processor"
    assert found["stream_wait_empty"] is False
    assert found["topic_disable_leader"] is True
    assert found["topic_allow_declare"] is False
    assert found["web_enabled"] is False
    assert "consumer_group_instance_id" not in found
    assert found["broker_session_timeout"] <= found["broker_request_timeout"]


def test_what_is_committed_is_the_offset_after_the_last_acknowledged_one() -> None:
    consumer: Any = SimpleNamespace(_acked={0: [0, 5, 6]}, _acked_index={0: {0, 5, 6}})
    assert transport.Consumer._new_offset(consumer, 0) == 7  # type: ignore[arg-type]
    assert transport.Consumer._new_offset(consumer, 0) is None  # type: ignore[arg-type]


def test_nothing_is_handled_before_it_is_known_where_the_log_begins(
    context: RoleContext,
) -> None:
    async def run() -> Generation:
        processor, _ = make_processor(context)
        generation = processor.drop_state()
        event: Any = object()
        handling = asyncio.create_task(processor._handle(generation, event))
        await asyncio.sleep(0)
        assert not handling.done()
        processor.drop_state()  # the next rebalance
        with pytest.raises(Leaving):
            await handling
        return generation

    assert asyncio.run(run()).dead


class Event:
    """A record of a partition, as Faust hands it out."""

    def __init__(self, offset: int, value: bytes | None) -> None:
        self.message = SimpleNamespace(
            topic="t", partition=0, offset=offset, value=value, key=b"w0", headers=()
        )
        self.value, self.acked = value, False

    def ack(self) -> None:
        self.acked = True


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The codes with which the process would have ended."""
    found: list[int] = []

    def end(code: int) -> None:
        found.append(code)
        raise SystemExit(code)

    monkeypatch.setattr(exits_module.os, "_exit", end)
    return found


def consume(processor: Processor, *events: Event) -> None:
    """Have a processor consume events that come one after the other."""

    async def each() -> AsyncIterator[Event]:
        for event in events:
            yield event

    stream: Any = SimpleNamespace(noack=lambda: SimpleNamespace(events=each))
    asyncio.run(processor.consume(stream))


def test_a_partition_that_comes_back_goes_on_where_another_owner_committed(
    context: RoleContext, codes: list[int]
) -> None:
    processor, _ = make_processor(context)
    first = processor.drop_state()
    first.begin("t", [LogRange(0, 0, 0, 20)])
    unrolls = [make_unroll([[1.0]], sequence=i, first_step=i) for i in (10, 500)]
    mine, again, theirs = (
        Event(offset, encode(unroll))
        for offset, unroll in ((0, unrolls[0]), (1, unrolls[0]), (500, unrolls[1]))
    )
    consume(processor, mine)
    assert processor.positions() == (Position("t", 0, 1, 0, 1),)
    # It goes to another member, which commits 500, and comes back.
    processor.drop_state()
    assert processor.positions() == ()
    second = processor.drop_state()
    second.begin("t", [LogRange(0, 500, 0, 600)])
    # What was fetched before the rebalance is handed out late.
    consume(processor, again, theirs)
    assert processor.positions() == (Position("t", 0, 501, 500, 1),)
    assert not any(event.acked for event in (mine, again, theirs))
    assert codes == []


def test_nothing_committed_is_no_reason_to_begin_where_the_first_record_happens_to_be(
    context: RoleContext, codes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was thrown away in a rebalance would be passed over for good."""
    monkeypatch.setattr(agents, "first_offset", lambda *_: (1, True))
    processor, _ = make_processor(context)
    processor.drop_state().begin("t", [LogRange(0, -1, 1, 20)])
    skipped = Event(2, encode(make_end("w0", 0)))
    with pytest.raises(SystemExit):
        consume(processor, skipped)
    assert codes == [70]
    assert not skipped.acked


def test_after_a_rebalance_all_is_read_again_also_where_nothing_is_committed() -> None:
    async def run() -> list[tuple[str, int]]:
        sought: list[tuple[str, int]] = []

        async def seek_to_committed() -> dict[tuple[str, int], int | None]:
            return {("t", 0): 5, ("t", 1): None, ("t", 2): 0, ("t", 3): None}

        async def seek_to_beginning(*partitions: tuple[str, int]) -> None:
            sought.extend(partitions)

        consumer: Any = SimpleNamespace(
            seek_to_committed=seek_to_committed,
            seek_to_beginning=seek_to_beginning,
            # Partition 3 was taken away meanwhile.
            assignment=lambda: {("t", 0), ("t", 1), ("t", 2)},
        )
        thread: Any = SimpleNamespace(_ensure_consumer=lambda: consumer)
        found = await transport._ConsumerInLoop._seek_back(thread)
        assert found == await seek_to_committed()
        return sorted(sought)

    assert asyncio.run(run()) == [("t", 1), ("t", 2)]


def test_an_unexpected_error_ends_the_process_and_acknowledges_nothing(
    context: RoleContext, codes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    processor, exits = make_processor(context)
    processor.drop_state().begin("t", [LogRange(0, 0, 0, 20)])
    events = [Event(i, encode(make_end("w0", i))) for i in range(3)]
    feed = Tails.feed

    def broken(tails: Tails, offset: int, record: Any, *, alone: bool = False) -> Any:
        if offset == 1:
            raise RuntimeError("a defect")
        return feed(tails, offset, record, alone=alone)

    monkeypatch.setattr(Tails, "feed", broken)
    with pytest.raises(SystemExit):
        consume(processor, *events)
    assert codes == [70]
    assert [event.acked for event in events] == [True, False, False]
    assert exits._reporter.kinds == ["processor-crashed"]  # type: ignore[attr-defined]


def test_positions_tell_what_is_read_committed_and_held() -> None:
    generation = Generation(ReturnOptions(3, 0.9), TailCounts())
    ranges = [LogRange(0, 5, 2, 9), LogRange(1, -1, 0, 0), LogRange(2, 3, 8, 9)]
    generation.begin("t", ranges)
    event: Any = object()
    generation.partition("t", 0).window.add(5, event)
    assert generation.positions() == (
        Position("t", 0, 5, 5, 1),
        Position("t", 1, 0, -1, 0),
        Position("t", 2, 8, 3, 0),
    )


def test_an_unknown_schema_is_waited_for_and_then_the_reason_to_leave(
    context: RoleContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign_schemas, "read_to_end", lambda *_: iter(()))
    monkeypatch.setattr(agents, "_SCHEMA_POLL_S", 0.01)
    processor, exits = make_processor(context, schema_wait_s=0.05)
    value = b"\x00\x12\x34\x56\x78" + encode(make_unroll([[1.0]]))[5:]
    with pytest.raises(Leaving):
        asyncio.run(processor._decode(value))
    assert exits.leaving and exits.failure.startswith("unknown-schema")
    assert str(0x12345678) in exits.failure


def test_schemas_are_found_as_text_or_within_json(
    context: RoleContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = json.loads(newest("StreamEnd").text)
    schema["fields"].append({"name": "more", "type": "int", "default": 0})
    text = json.dumps(schema)
    wrapped = json.dumps({"subject": "s", "version": 9, "schema": text})
    for value in (text, wrapped):
        messages = [
            SimpleNamespace(value=b"garbage"),
            SimpleNamespace(value=value.encode()),
        ]
        monkeypatch.setattr(foreign_schemas, "read_to_end", lambda *_, m=messages: m)
        registry = Registry()
        assert learn_schema(context.settings, registry, schema_id(schema))
        assert not learn_schema(context.settings, registry, 77)


def test_counts_have_flat_names() -> None:
    found = Counts(TailCounts(unrolls=3, holes=1), batches=2).values()
    assert found["unrolls"] == 3.0 and found["holes"] == 1.0 and found["batches"] == 2.0
    assert {"env_steps", "dead_letters", "late_records", "repeated_records"} <= set(
        found
    )
