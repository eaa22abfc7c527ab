"""F26: the wall clocks of workers are wrong; nothing but their times is."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from infra.kafka.reading import read_to_end
from infra.settings import Settings
from schemas.codec import decode
from schemas.errors import SchemaError
from schemas.records import Unroll
from schemas.topics import TRAJECTORIES, topic_name
from tests.chaos.checks import assert_clean
from tests.chaos.harness import Harness

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.heavy]

HOUR_S = 3600.0


@pytest.mark.timeout(600)
def test_wrong_clocks_change_no_order_no_return_and_no_retention(
    settings: Settings, tmp_path: Path, record_fault
) -> None:
    modules = "tests.chaos.counting_env,tests.chaos.skewed_clock"
    variables = {"ROLLSTREAM_ENV_MODULES": modules}
    with Harness(settings, tmp_path, variables=variables) as harness:
        harness.start()
        harness.injected("skew clocks", "worker")
        harness.wait_for_progress(acked=8_000, trained=8_000)
        evidence = harness.finish()
        skews = skews_s(harness)
    record_fault("F26", evidence, what="worker clocks -1 h, +1 h, strobing")
    assert_clean(evidence)
    # The clocks were wrong, and the log's own times are right all the same.
    close_s = 300.0
    assert all(abs(s + HOUR_S) < close_s for s in skews["w0"])
    assert all(abs(s - HOUR_S) < close_s for s in skews["w1"])
    assert min(skews["w2"]) < -HOUR_S / 2 and max(skews["w2"]) > HOUR_S / 2
    assert all(abs(s) < close_s for s in skews["w3"])


def skews_s(harness: Harness) -> dict[str, list[float]]:
    """By worker: the time that each unroll claims, less the broker's when it came."""
    found: dict[str, list[float]] = defaultdict(list)
    topic = topic_name(TRAJECTORIES, harness.name)
    for partition in range(harness.experiment.spec.topics.partitions):
        times_ms = []
        for message in read_to_end(harness.settings, topic, partition):
            times_ms.append(message.timestamp_ms)
            try:
                unroll = decode(message.value, Unroll)
            except SchemaError:
                continue
            skew_ms = unroll.produced_at_ms - message.timestamp_ms
            found[unroll.worker].append(skew_ms / 1e3)
        assert times_ms == sorted(times_ms)
    return found
