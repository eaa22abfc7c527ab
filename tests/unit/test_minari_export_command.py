"""``rollstream export`` of an archive, on the command line; no broker is there."""

from __future__ import annotations

import json

import gymnasium
import minari
import numpy as np
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from archive.archiving import Archiving, Listener
from archive.errors import ArchiveError
from archive.parquet_export import export_parquet
from infra.settings import Settings
from producers.acting import RandomActor
from producers.environments import describe_environments, make_environments
from producers.packing import Packing
from producers.rollout import Rollout
from producers.seeding import StreamSeeds
from producers.unrolls import to_record
from producers.watchdog import Watchdog
from rollstream.cli import app
from rollstream.export_facts import seeds_of
from schemas.experiment import EnvSpec
from schemas.records import NO_POLICY, Unroll
from schemas.tensors import pack
from tests.unit.recorded_worlds import MemorySource, World, episodes_of

NOTHING = pack(np.zeros(0))


def acted(num_unrolls=8, incarnation=5, worker=2, vectorization="sync"):
    """CartPole by the production code, as one partition; how it was described."""
    watchdog, spec = Watchdog(20.0), EnvSpec(id="CartPole-v1")
    spec = spec.model_copy(update={"vectorization": vectorization})
    environments = make_environments(spec, 3, Settings(), watchdog)
    try:
        env = describe_environments(spec, environments, Settings())
        rollout = Rollout(environments, StreamSeeds(11, worker, incarnation))
        actor = RandomActor(environments.action.fields, 3)
        records, packing = [], Packing()
        for sequence in range(num_unrolls):
            template = Unroll(
                "past", "r1", f"w{worker}", incarnation, sequence, 0, 1, 1, NO_POLICY,
                1_700_000_000_000 + sequence, sequence == num_unrolls - 1, {}, {},
                *([NOTHING] * 5), {}, {}, {},
            )  # fmt: skip
            records.append(to_record(rollout.collect(actor, 32), template, packing))
    finally:
        environments.close()
        watchdog.close()
    return records, env


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """Make the folder of an archive of a source."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    monkeypatch.setenv("ROLLSTREAM_ARCHIVES", str(tmp_path / "archives"))
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)

    def make(source):
        folder = tmp_path / "archives" / "past" / "r1"
        archiving = Archiving(lambda: source, folder, Listener())
        archiving.run()
        archiving.close()
        return folder

    return make


def export(*words):
    return CliRunner().invoke(app, ["export", *map(str, words)])


def test_cartpole_comes_out_as_a_dataset_whose_episodes_can_be_played_again(archive):
    records, env = acted()
    source = MemorySource({2: records}, env=env, seed=11)
    archive(source)
    found = export("past/r1", "--json")
    assert found.exit_code == 0, found.output
    figures = json.loads(found.stdout)
    episodes = list(episodes_of(source))
    assert figures["source"] == "past/r1@topic-id"
    assert figures["dataset_id"] == "rollstream/past-v0"
    assert (figures["episodes"], figures["env_steps"]) == (
        len(episodes), sum(map(len, episodes))
    )  # fmt: skip
    assert figures["unfinished"] > 0
    assert figures["gaps"] == []
    dataset = minari.load_dataset("rollstream/past-v0")
    assert dataset.total_steps == figures["env_steps"]
    seeds = [
        each["seed"]
        for each in dataset.storage.get_episode_metadata(range(len(episodes)))
    ]
    assert len(set(seeds)) == len(seeds) > 3
    env = dataset.recover_environment()
    assert env.spec.id == "CartPole-v1"
    for seed, episode in zip(seeds, dataset.iterate_episodes(), strict=True):
        observed = [env.reset(seed=seed)[0]]
        for action in episode.actions:
            observed.append(env.step(action)[0])
        np.testing.assert_array_equal(observed, episode.observations)
    env.close()
    assert dataset.storage.metadata["algorithm_name"] == "dqn"
    told = dataset.storage.metadata["rollstream"]
    assert told["experiment"]["metadata"]["name"] == "past"
    again = export("past/r1", "--dataset-id", "b-v1").stdout
    assert again.startswith(f"b-v1: {len(episodes)} episodes, ")
    assert f"left out: 0 not chosen, {figures['unfinished']} unfinished" in again


@pytest.mark.parametrize(
    ("vectorization", "spec", "is_known"),
    [
        ("sync", {}, True),
        ("async", {}, True),
        ("vector_entry_point", {}, False),
        ("sync", {"workers": {"replicas": 0}}, False),
        ("sync", {"workers": {"replicas": 0}, "past": {"experiment": "x"}}, False),
    ],
)
def test_seeds_are_told_only_where_they_are_known(vectorization, spec, is_known):
    import dataclasses

    source = MemorySource({0: [World(1).unroll(60)]}, **spec)
    env = dataclasses.replace(source.info.env, vectorization=vectorization)
    info = dataclasses.replace(source.info, env=env)
    episode = next(episodes_of(source))
    assert (seeds_of(info)(episode) is not None) == is_known


def test_only_chosen_episodes_are_exported(archive):
    world = World(21)
    source = MemorySource({0: [world.unroll(25) for _ in range(8)]})
    archive(source)
    episodes = list(episodes_of(source))
    good = [e for e in episodes if not e.failed and e.rewards.sum() >= 0.5]
    assert 1 < len(good) < len(episodes)
    found = export("past/r1", "--episodes", "return>=0.5", "--json")
    figures = json.loads(found.stdout)
    assert figures["episodes"] == len(good)
    dataset = minari.load_dataset("rollstream/past-v0")
    for one, expected in zip(dataset.iterate_episodes(), good, strict=True):
        assert one.rewards.tolist() == expected.rewards.tolist()
    # By steps: whole episodes that lie within them.
    found = export(
        "past/r1", "--from", "step:50", "--to", "step:150", "--dataset-id", "part-v0",
        "--json",
    )  # fmt: skip
    inside = [
        (key, told)
        for key, told in world.told.items()
        if told.ending and told.rewards and not told.is_spoilt
        and told.rows[bool(key[1])] >= 50
        and told.rows[bool(key[1])] + len(told.rewards) <= 150
    ]  # fmt: skip
    assert json.loads(found.stdout)["episodes"] == len(inside) > 0


def test_parquet_has_the_rows_of_the_archive_that_are_chosen(archive, tmp_path):
    world = World(4)
    records = [world.unroll(25) for _ in range(8)]
    folder = archive(MemorySource({1: [*records, records[3]]}))
    steps = pads.dataset(folder / "steps").to_table()
    path = tmp_path / "all.parquet"
    found = export("past/r1", "--format", "parquet", "--out", path)
    assert found.exit_code == 0, found.output
    assert found.stdout == f"{path}: 600 rows\n"
    # As text: a reward that is not a number equals nothing.
    assert str(pq.read_table(path).to_pylist()) == str(steps.to_pylist())
    chosen = tmp_path / "chosen.parquet"
    words = "--format parquet --policy-version 2..3 --from step:30".split()
    figures = json.loads(export("past/r1", *words, "--out", chosen, "--json").stdout)
    expected = [
        row
        for row in steps.to_pylist()
        if row["valid"] and 2 <= row["policy_version"] <= 3 and row["step"] >= 30
    ]
    assert figures["rows"] == len(expected) > 0
    assert pq.read_table(chosen).to_pylist() == expected


def test_parquet_has_a_record_once_that_is_twice_in_the_log(tmp_path):
    world = World(4)
    records = [world.unroll(25) for _ in range(4)]
    source = MemorySource({0: [*records, records[2]]})
    path = tmp_path / "steps.parquet"
    assert export_parquet(path, source, source.bounds(), None) == 300
    rows = pq.read_table(path, columns=["sequence", "step", "env"]).to_pylist()
    assert len({tuple(row.values()) for row in rows}) == len(rows) == 300
    with pytest.raises(ArchiveError, match="expected no file, found one"):
        export_parquet(path, source, source.bounds(), None)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--dataset-id", "../../x-v0"], 2, "expected NAME/x-v0"),
        (["--dataset-id", "x-v0", "--format", "parquet"], 2, "expected --format"),
        (["--format", "hdf5"], 2, "expected one of minari, parquet"),
        (["--from", "2026-11-30T10:00:00"], 2, "expected a time with its zone"),
        (["--episodes", "return>=1e9"], 2, "episodes: expected"),
        (["--episodes", "return>=1000000"], 1, "nothing chosen"),
        (["--to", "step:1"], 1, "expected a whole episode"),
        (["--out", "/proc/nothing"], 1, "cannot be written"),
    ],
)
def test_what_cannot_be_exported_is_refused_and_leaves_nothing(
    archive, tmp_path, words, code, said
):
    archive(MemorySource({0: [World(3).unroll(40)]}))
    with pytest.raises(SystemExit) as ended:
        import sys

        from rollstream import cli

        sys.argv = ["rollstream", "export", "past/r1", *words]
        cli.main()
    assert ended.value.code == code
    left = tmp_path / "datasets"
    assert not [p for p in left.rglob("*") if p.is_file()]


def test_an_unknown_source_is_told(archive, tmp_path, capsys):
    found = export("no/such")
    assert found.exit_code == 1
    assert "expected" in str(found.exception)


def test_gymnasium_need_not_know_the_environment(archive):
    source = MemorySource({0: [World(3).unroll(60)]}, env_id="Nowhere-v7")
    archive(source)
    assert "Nowhere-v7" not in gymnasium.registry
    assert export("past/r1").exit_code == 0
    dataset = minari.load_dataset("rollstream/past-v0")
    assert dataset.env_spec is None
    assert dataset.total_episodes > 0
