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
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)

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
    where = TopicPartition(topic, partition)
    with closing(make_consumer(settings, group=None, client_id="foreign")) as consumer:
        _, end = consumer.get_watermark_offsets(where, 60)
        producer.init_transactions(60)
        producer.begin_transaction()
        for number in range(count):
            producer.produce(topic, str(number).encode(), partition=partition)
        commit(producer)
        # The mark comes a moment after the news that it will.
        deadline_s = time.monotonic() + 60
        while consumer.get_watermark_offsets(where, 60)[1] < end + count + 1:
            assert time.monotonic() < deadline_s, "expected a mark"
            time.sleep(0.02)


# Of a coordinator that has only just been made, or is slow.
_PASSING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TIMED_OUT,
)


def commit_offsets(settings, group, topic, offsets):
    """Commit offsets, by partition, as a consumer without partitions would."""
    with closing(make_consumer(settings, group=group, client_id="foreign")) as consumer:
        places = [TopicPartition(topic, *place) for place in offsets.items()]
        commit_with(consumer, places)


def commit_with(consumer, places):
    """Commit offsets, as soon as a coordinator takes them."""
    deadline_s = time.monotonic() + 60
    while True:
        try:
            consumer.commit(offsets=places, asynchronous=False)
            return
        except KafkaException as exc:
            if exc.args[0].code() not in _PASSING or time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)


@contextmanager
def member(settings, group, topic):
    """Be the only member of a group, with all partitions."""
    # Its session outlasts a machine that stands still for a while.
    more = {"auto.offset.reset": "earliest", "session.timeout.ms": 60_000}
    consumer = make_consumer(settings, group=group, client_id="member", overrides=more)
    deadline_s = time.monotonic() + 60
    with closing(consumer):
        consumer.subscribe([topic])
        while not consumer.assignment():
            assert time.monotonic() < deadline_s, "expected to get partitions"
            consumer.poll(0.1)
        yield consumer
    # Who leaves does not wait for a slow coordinator to have heard of it.
    admin, deadline_s = make_admin(settings), time.monotonic() + 60
    while admin.describe_consumer_groups([group])[group].result(60).members:
        assert time.monotonic() < deadline_s, "expected to have left"
        time.sleep(0.05)


@contextmanager
def odd_member(settings, group, assignment):
    """Be the only member of a group, to which it has assigned what nobody can read."""
    config = faust_broker_settings(settings)
    hosts = collect_hosts(config.pop("bootstrap_servers"))

    async def joined():
        deadline_s = time.monotonic() + 60
        with closing(await create_conn(*hosts[0][:2], **config)) as connection:
            asked = FindCoordinatorRequest(group, 0)
            # The first group of a cluster waits until offsets can be kept.
            while (found := await connection.send(asked)).error_code:
                assert time.monotonic() < deadline_s, f"error {found.error_code}"
                await asyncio.sleep(0.1)
        connection = await create_conn(found.host, found.port, **config)
        own = [("own", b"")]
        join = JoinGroupRequest(group, 60_000, 60_000, "", None, "consumer", own)
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
        try:
            yield
            leave = LeaveGroupRequest(group, name)
            loop.run_until_complete(connection.send(leave))
        finally:
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
    """Delete groups without members, those of them that there are."""
    admin = make_admin(settings)
    for future in admin.delete_consumer_groups(list(groups)).values():
        try:
            future.result(60)
        except KafkaException as exc:
            if exc.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise
