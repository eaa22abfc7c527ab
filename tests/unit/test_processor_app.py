"""What can be said of the app without a broker."""

from __future__ import annotations

import asyncio
import json
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
from stream_processors.agents import Processor
from stream_processors.app import app_settings
from stream_processors.exits import Exits, Leaving
from stream_processors.generation import Generation
from stream_processors.health import LogRange
from stream_processors.tails import ReturnOptions, TailCounts
from stream_processors.telemetry import Counts, Telemetry
from tests.unit.test_processor_oracle import make_unroll


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
