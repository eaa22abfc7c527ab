"""What a real learner was trained on, back through a replay to a dataset."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from infra.control.experiments import read_experiment
from schemas.codec import decode_or_none
from schemas.records import TrainedOn
from schemas.topics import LINEAGE
from tests.integration import bundled_export
from tests.integration.exchange_rig import ID, TOPICS, ExchangeRig, imports
from tests.integration.processor_rig import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
LENGTHS = [200] * 30
SMALL = (
    "spec.learner.network.hidden=[16]",
    "spec.learner.replay.minSize=200",
    "spec.learner.batchSize=32",
    "spec.learner.samplesPerInsert=0.5",
    "spec.learner.publishEveryUpdates=10",
    "spec.learner.checkpointIntervalS=1",
)


@pytest.fixture
def rig(settings, tmp_path, rollstream, monkeypatch) -> Iterator[ExchangeRig]:
    with closing(ExchangeRig(settings, tmp_path, rollstream)) as found:
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(found.root))
        yield found


def newest(rig: ExchangeRig, name: str) -> TrainedOn | None:
    found = None
    for message in rig.messages(LINEAGE, name):
        found = decode_or_none(message.value, TrainedOn) or found
    return found


def test_a_policy_is_traced_through_a_replay_to_the_dataset_it_comes_from(rig):
    past, name = rig.name("human"), rig.name("learns")
    rig.dataset(LENGTHS)
    rig.run(*imports(past))
    overrides = [word for each in (*SMALL, TOPICS) for word in ("--set", each)]
    rig.run("replay", past, "--into", name, "--json", "--worker", "0-3", *overrides)
    # Streams w0 to w3 of eight have the episodes 0, 1, 2, 3, 8, 9, 10, 11, ...
    steps = sum(n for i, n in enumerate(LENGTHS) if i % 8 < 4)
    with rig.processor(name):
        learner = rig.popen([sys.executable, "-c", bundled_export.LEARNER, name])
        try:

            def has_all() -> bool:
                assert learner.poll() is None, rig.log()[-3000:]
                found = newest(rig, name)
                return found is not None and (
                    sum(each.env_steps for each in found.data) == steps
                )

            wait_until(has_all, 400.0, "a checkpoint with all of it")
        finally:
            learner.send_signal(signal.SIGTERM)
            learner.wait(90)
    found = rig.run("lineage", name, "--json")
    assert found["run_id"] == read_experiment(rig.settings, name).run_id
    assert (found["env_steps"], found["is_exact"]) == (steps, True)
    assert found["checkpoints"]
    (own,) = found["trained_on"]
    (human,) = own["replayed_from"]
    (dataset,) = human["replayed_from"]
    assert [each["experiment"] for each in (own, human)] == [name, past]
    assert [each["kind"] for each in (own, human, dataset)] == [
        "replay", "replay", "dataset"
    ]  # fmt: skip
    assert dataset["run_id"] == ID
    assert [each["env_steps"] for each in (own, human, dataset)] == [
        steps, steps, sum(LENGTHS)
    ]  # fmt: skip
    assert all(each["done"] for each in (human, dataset))
    assert '"workers":[[0,3]]' in human["selection"]
