"""Batches awaited on the event loop, on a real broker."""

from __future__ import annotations

import asyncio

import pytest

from infra.control.role import RoleContext
from infra.kafka.reading import read_to_end
from infra.settings import Settings
from schemas.experiment import from_values
from stream_processors.deliveries import Deliveries
from tests.conftest import MakeTopic

pytestmark = pytest.mark.kafka

NUM_WORKERS = 40
TOO_LARGE = 17
LIMIT_BYTES = 20_000


def context_at(settings: Settings) -> RoleContext:
    experiment = from_values(
        {
            "apiVersion": "rollstream/v1",
            "kind": "Experiment",
            "metadata": {"name": "exp"},
            "spec": {"env": {"id": "CartPole-v1"}},
        }
    )
    return RoleContext(settings, experiment, "run1", "processor", 0, -1)


def test_what_is_refused_for_its_size_takes_no_other_record_with_it(
    settings: Settings, make_topic: MakeTopic
) -> None:
    topic = make_topic(max_message_bytes=str(LIMIT_BYTES))
    values = {f"w{i}": bytes([i]) * 10_000 for i in range(NUM_WORKERS)}
    values[f"w{TOO_LARGE}"] *= 3

    async def send_all() -> list[str]:
        deliveries = Deliveries.open(context_at(settings))
        deliveries.start()
        # All at once, to one partition: as many workers' batches under way.
        return await asyncio.gather(
            *(deliveries.send(topic, key, value, 0) for key, value in values.items())
        )

    refused = asyncio.run(send_all())
    assert [i for i, reason in enumerate(refused) if reason] == [TOO_LARGE]
    del values[f"w{TOO_LARGE}"]
    read = read_to_end(settings, topic)
    assert sorted((m.key, m.value) for m in read) == sorted(values.items())
