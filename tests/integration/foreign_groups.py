"""Consumer groups that are nobody's of ours, in any number."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing, contextmanager

from aiokafka.conn import collect_hosts, create_conn
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.group import (
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from infra.kafka.clients import (
    faust_broker_settings,
    make_admin,
    make_consumer,
    make_producer,
)
from infra.kafka.transactions import commit, make_transactional


def produce(settings, topic, partition, count):
    """Append records."""
    producer = make_producer(settings, client_id="foreign")
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=partition)
    assert producer.flush(60) == 0


def produce_in_transaction(settings, topic, partition, count):
    """Append records, and the mark that they are committed."""
    producer = make_transactional(settings, f"{topic}-foreign", "foreign")
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=partition)
    commit(producer)


def commit_offsets(settings, group, topic, offsets):
    """Commit offsets, by partition, as a consumer without partitions would."""
    with closing(make_consumer(settings, group=group, client_id="foreign")) as consumer:
        places = [TopicPartition(topic, *place) for place in offsets.items()]
        consumer.commit(offsets=places, asynchronous=False)


@contextmanager
def member(settings, group, topic):
    """Be the only member of a group, with all partitions."""
    more = {"auto.offset.reset": "earliest"}
    consumer = make_consumer(settings, group=group, client_id="member", overrides=more)
    with closing(consumer):
        consumer.subscribe([topic])
        deadline_s = time.monotonic() + 60
        while not consumer.assignment():
            assert time.monotonic() < deadline_s, "expected to get partitions"
            consumer.poll(0.1)
        yield consumer


@contextmanager
def odd_member(settings, group, assignment):
    """Be the only member of a group, to which it has assigned what nobody can read."""
    config = faust_broker_settings(settings)
    hosts = collect_hosts(config.pop("bootstrap_servers"))

    async def joined():
        connection = await create_conn(*hosts[0][:2], **config)
        found = await connection.send(FindCoordinatorRequest(group, 0))
        connection.close()
        connection = await create_conn(found.host, found.port, **config)
        own = [("own", b"")]
        join = JoinGroupRequest(group, 60_000, 60_000, "", None, "consumer", own)
        deadline_s = time.monotonic() + 60
        while (answer := await connection.send(join)).error_code:
            assert time.monotonic() < deadline_s, f"error {answer.error_code}"
            name = getattr(answer, "member_id", "")
            join = JoinGroupRequest(group, 60_000, 60_000, name, None, "consumer", own)
        name, generation = answer.member_id, answer.generation_id
        sync = SyncGroupRequest(group, generation, name, None, [(name, assignment)])
        assert (await connection.send(sync)).error_code == 0
        return connection, name

    with closing(asyncio.new_event_loop()) as loop:
        connection, name = loop.run_until_complete(joined())
        yield
        leave = LeaveGroupRequest(group, name)
        loop.run_until_complete(connection.send(leave))
        connection.close()
        loop.run_until_complete(asyncio.sleep(0))


def commit_many(settings, offsets_of, topic):
    """Commit offsets, by group and partition: many groups at once.

    A coordinator that has only just been made may refuse some: they are tried again.
    """
    admin = make_admin(settings)
    left, deadline_s = dict(offsets_of), time.monotonic() + 60
    while left:
        asked = {}
        for group, offsets in left.items():
            places = [TopicPartition(topic, *place) for place in offsets.items()]
            request = [ConsumerGroupTopicPartitions(group, places)]
            asked |= admin.alter_consumer_group_offsets(request)
        done = [group for group, future in asked.items() if _is_committed(future)]
        for group in done:
            del left[group]
        assert time.monotonic() < deadline_s, f"not committed: {sorted(left)}"


def _is_committed(future):
    """What was refused is told of each partition, and raised only of the whole."""
    try:
        return all(place.error is None for place in future.result(60).topic_partitions)
    except KafkaException as exc:
        print(exc)
        return False


def forget(settings, groups):
    """Delete groups without members."""
    admin = make_admin(settings)
    for future in admin.delete_consumer_groups(list(groups)).values():
        future.result(60)
