"""Write the expected counters anew: `python -m tests.counters.update`.

Measures all of them, on a broker of its own too, and prints what is not as it was.
"""

from __future__ import annotations

import tempfile
from itertools import count
from pathlib import Path

from infra.cluster.local import LocalCluster
from infra.kafka.topic_admin import TopicConfig, ensure_topics
from infra.settings import Settings
from tests.counters import log_counters, policy_counters
from tests.counters.expectations import Counters, changes, load, save
from tests.counters.measured import GROUPS


def measure_log() -> dict[str, Counters]:
    """Return the counters of a broker that is there for them alone, by group."""
    with tempfile.TemporaryDirectory() as folder:
        nowhere = {"bootstrap_servers": None, "zookeeper": None}
        settings = Settings(data_dir=Path(folder), **nowhere)
        with LocalCluster(settings) as cluster:
            there = cluster.start()
            found = settings.at(there.bootstrap_servers, there.zookeeper)
            numbers = count()

            def make_topic() -> str:
                name = f"rollstream.counted-{next(numbers)}"
                ensure_topics(found, [TopicConfig(name, 1, {})])
                return name

            return {
                log_counters.GROUP: log_counters.measure(found, make_topic),
                policy_counters.GROUP: policy_counters.measure(found),
            }


def main() -> None:
    """Measure, write, and tell."""
    counters = {name: measure() for name, measure in GROUPS.items()}
    counters |= measure_log()
    old = load()[1]
    save(counters)
    for line in changes(old, counters):
        print(line)


if __name__ == "__main__":
    main()
