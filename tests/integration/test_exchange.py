"""Datasets into a real log and out of it, whatever is killed when."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import minari
import numpy as np
import pytest

from infra.control.experiments import read_experiment
from schemas.codec import decode, encode
from schemas.records import (
    DataRange,
    Member,
    PolicyRef,
    TrainedOn,
    TransitionBatch,
)
from schemas.topics import LINEAGE, MEMBERS, TRAJECTORIES, topic_name
from tests.integration.exchange_rig import ID, TOPICS, ExchangeRig, imports
from tests.integration.replay_rig import PARTITIONS
from tests.unit.recorded_worlds import SPACES, World

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


@pytest.fixture
def rig(settings, tmp_path, rollstream, monkeypatch) -> Iterator[ExchangeRig]:
    with closing(ExchangeRig(settings, tmp_path, rollstream)) as found:
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(found.root))
        yield found


def test_a_dataset_is_in_the_log_once_however_often_it_is_killed_and_asked_for(rig):
    name = rig.name("imported")
    source = rig.dataset([500] * 60)
    for _ in range(3):
        # A minute and more for all of it: no kill comes too late.
        child = rig.start_command(*imports(name, "--rate", "400/s"))
        rig.wait_for_more(child, name)
        time.sleep(random.random())
        assert child.poll() is None, rig.log()[-3000:]
        child.kill()
        child.wait()
    standing = rig.standing(name)
    assert standing is not None and not standing.done
    figures = rig.run(*imports(name, "--resume"))
    assert figures["done"] and figures["resumed"]
    assert figures["total_env_steps"] == 30_000
    rig.check_is_the_dataset(name, source)
    # Again: nothing more.
    ends = rig.ends(name)
    figures = rig.run(*imports(name))
    assert (figures["done"], figures["records"]) == (True, 0)
    assert rig.ends(name) == ends
    # Something else: refused.
    rig.dataset([7] * 3, "other-v0")
    told = rig.run(*imports(name, dataset_id="other-v0"), code=1)["error"]
    assert "expected nothing in it but minari/other-v0@" in told
    assert rig.ends(name) == ends


def test_ctrl_c_leaves_what_is_in_and_the_same_command_goes_on(rig):
    name = rig.name("imported")
    source = rig.dataset([500] * 60)
    child = rig.start_command_piped(*imports(name, "--rate", "400/s"))
    rig.wait_for_more(child, name)
    rig.wait_for_more(child, name)  # it counts a commit a moment after it
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130, err.decode()
    figures = json.loads(out)
    assert 0 < figures["total_env_steps"] < 30_000
    assert b"interrupted; the same command goes on" in err
    assert rig.run(*imports(name))["total_env_steps"] == 30_000
    rig.check_is_the_dataset(name, source)


def test_processors_and_lineage_know_an_import(rig):
    name = rig.name("imported")
    lengths = [int(n) for n in np.random.default_rng(1).integers(1, 400, 30)]
    source = rig.dataset(lengths)
    figures = rig.run(*imports(name))
    assert figures["total_env_steps"] == sum(lengths)
    with rig.processor(name):
        rig.wait_until_processed(name)
    batches = [decode(value, TransitionBatch) for value in rig.batches(name).values()]
    assert sum(int(b.valid.array().sum()) for b in batches) == sum(lengths)
    assert {b.n_step for b in batches} == {5}
    rig.check_returns(name, 5, 0.99, 1.0)
    # A learner that was trained on it says so.
    told = rig.run("lineage", name, "--json", code=1)["error"]
    assert "found none yet" in told
    run_id = read_experiment(rig.settings, name).run_id
    topic = topic_name(TRAJECTORIES, name)
    acted = PolicyRef(-1, -1)
    data = tuple(
        DataRange(topic, partition, 0, 9, 100, acted, acted)
        for partition in range(PARTITIONS)
    )
    record = TrainedOn(name, run_id, PolicyRef(4, 7), 321, data, 1)
    rig.sender.send_and_wait(topic_name(LINEAGE, name), encode(record), "policy/4/7")
    found = rig.run("lineage", name, "--policy-version", "3", "--json")
    assert (found["env_steps"], found["is_exact"]) == (300, False)
    assert found["policy"] == {"epoch": 4, "version": 7}
    (own,) = found["trained_on"]
    (dataset,) = own["replayed_from"]
    assert (own["kind"], dataset["kind"]) == ("replay", "dataset")
    assert dataset["run_id"] == ID
    assert dataset["env_steps"] == sum(lengths)
    assert {each["topic"] for each in dataset["data"]} == {f"minari:{ID}"}
    bounds = {p: end for p, (_, end) in source.bounds().items()}
    assert {d["partition"]: d["next_offset"] for d in dataset["data"]} == bounds
    assert found["checkpoints"] == []


def test_a_log_comes_out_as_a_dataset_and_goes_in_again_the_same(rig):
    past = rig.publish("old", workers={"replicas": 4})
    run_id = read_experiment(rig.settings, past).run_id
    worlds = [World(40 + index, f"w{index}", 3 + index) for index in range(4)]
    for _ in range(20):
        for index, world in enumerate(worlds):
            record = replace(world.unroll(9), experiment=past, run_id=run_id)
            rig.sender.send(
                topic_name(TRAJECTORIES, past), encode(record), record.worker,
                index % PARTITIONS,
            )  # fmt: skip
    member = Member(past, run_id, "worker", 0, "here", 1, 0, SPACES)
    rig.sender.send(topic_name(MEMBERS, past), encode(member), "worker/0")
    assert rig.sender.flush(60.0) == 0
    figures = rig.run("export", past, "--dataset-id", "out/first-v0", "--json")
    whole = [
        told
        for world in worlds
        for told in world.told.values()
        if told.ending and told.rewards and not told.is_spoilt
    ]
    assert figures["episodes"] == len(whole) > 20
    assert figures["env_steps"] == sum(len(told.rewards) for told in whole)
    new = rig.name("again")
    rig.run(
        "import", "minari:out/first-v0", "--into", new, "--json", "--set", TOPICS,
        # It is CartPole's by name only: nobody could evaluate it here.
        "--set", "spec.env.id=Nowhere-v0", "--set", "spec.evaluator.replicas=0",
    )  # fmt: skip
    rig.run("export", new, "--dataset-id", "out/second-v0", "--json")
    first, second = (
        sorted(
            (
                each.rewards.tolist(), each.actions.tolist(),
                each.observations.tolist(), each.terminations.tolist(),
                each.truncations.tolist(),
            )
            for each in episodes_in(rig.root, dataset_id)
        )
        for dataset_id in ("out/first-v0", "out/second-v0")
    )  # fmt: skip
    assert first == second
    rewards = sorted(told.rewards for told in whole)
    assert sorted(each[0] for each in first) == rewards


def episodes_in(root: Path, dataset_id: str):
    return minari.MinariDataset(root / dataset_id / "data").iterate_episodes()
