import pytest

from infra.errors import SettingsError
from infra.kafka.clients import (
    MAX_MESSAGE_BYTES,
    Traffic,
    consumer_config,
    faust_broker_settings,
    make_producer,
    producer_config,
)
from infra.settings import Settings

LOCAL = Settings(bootstrap_servers="127.0.0.1:1")
SECURE = Settings(
    bootstrap_servers="a.example:9093,b.example:9093",
    security_protocol="SASL_SSL",
    sasl_mechanism="SCRAM-SHA-512",
    sasl_username="me",
    sasl_password="geheim",
)


def test_producer_gives_nothing_up_and_keeps_order():
    config = producer_config(LOCAL, "w0")
    assert config["acks"] == "all"
    assert config["enable.idempotence"] is True
    assert config["message.timeout.ms"] == 0
    assert config["partitioner"] == "murmur2_random"


def test_consumer_never_commits_or_jumps_by_itself():
    config = consumer_config(LOCAL, "l0", "group")
    assert config["enable.auto.commit"] is False
    assert config["enable.auto.offset.store"] is False
    assert config["auto.offset.reset"] == "error"
    assert config["isolation.level"] == "read_committed"


@pytest.mark.parametrize("traffic", list(Traffic))
def test_every_client_allows_the_largest_record(traffic):
    producer = producer_config(LOCAL, "w0", traffic)
    consumer = consumer_config(LOCAL, "l0", None, traffic)
    assert producer["message.max.bytes"] == MAX_MESSAGE_BYTES
    assert producer["queue.buffering.max.kbytes"] * 1024 >= 2 * MAX_MESSAGE_BYTES
    assert consumer["fetch.message.max.bytes"] == MAX_MESSAGE_BYTES
    assert consumer["queued.max.messages.kbytes"] * 1024 >= MAX_MESSAGE_BYTES
    assert consumer["receive.message.max.bytes"] > consumer["fetch.max.bytes"]


def test_security_reaches_librdkafka_and_aiokafka():
    config = producer_config(SECURE, "w0")
    assert config["security.protocol"] == "SASL_SSL"
    assert config["sasl.mechanisms"] == "SCRAM-SHA-512"
    assert (config["sasl.username"], config["sasl.password"]) == ("me", "geheim")
    faust = faust_broker_settings(SECURE, lambda cafile: f"context of {cafile}")
    assert faust == {
        "bootstrap_servers": ["a.example:9093", "b.example:9093"],
        "security_protocol": "SASL_SSL",
        "ssl_context": "context of None",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "me",
        "sasl_plain_password": "geheim",
    }


def test_client_without_brokers_names_the_variable():
    with pytest.raises(SettingsError, match="KAFKA_BOOTSTRAP_SERVERS.*rollstream up"):
        make_producer(Settings(), client_id="w0")


def test_librdkafka_accepts_the_configuration():
    make_producer(LOCAL, client_id="w0")
