"""Partitions -> which log it is, where it begins and ends: a few requests for all."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from infra.kafka.group_protocol import Partition
from infra.kafka.identity import TopicIdentity
from infra.kafka.offsets import BEGIN, END, STABLE_END, ask_offsets


@dataclass(frozen=True, slots=True)
class Log:
    """One partition; as ``model.Sample`` names it."""

    at_s: float
    topic_id: str
    begin: int
    end: int
    stable_end: int


def read_logs(
    admin: AdminClient,
    topics: Mapping[str, TopicIdentity],
    places: Collection[Partition],
    timeout_s: float,
) -> tuple[dict[Partition, Log], dict[Partition, str]]:
    """Return the logs of partitions; and of the others why they cannot be had.

    Args:
        admin: asks.
        topics: what their topics' names mean, asked for before.
        places: that exist and have leaders: one without holds up all others.
        timeout_s: how long the brokers may take.
    """
    asked = ask_offsets(admin, places, timeout_s, BEGIN, STABLE_END, END)
    until_s = time.monotonic() + 2 * timeout_s
    logs, problems = {}, {}
    for place in places:
        try:
            begin, stable, end = (_offset(each[place], until_s) for each in asked)
        except KafkaException as exc:
            problems[place] = exc.args[0].str()
            continue
        except TimeoutError:
            problems[place] = "its leader does not answer"
            continue
        # Read at the same time, in any order: what is stable was the end as well.
        end = max(end, stable)
        topic_id = topics[place[0]].topic_id
        logs[place] = Log(time.time(), topic_id, min(begin, stable), end, stable)
    return logs, problems


def _offset(future: Future[Any], until_s: float) -> int:
    return int(future.result(max(0.0, until_s - time.monotonic())).offset)
