"""Other people's tools read the files of an archive, with nothing of ours."""

import duckdb
import numpy as np
import polars as pl
import pyarrow.dataset as ds
import pytest

from archive import parts
from archive.archiving import Archiving, Listener
from schemas.records import EnvDescription, SpaceField
from schemas.tensors import pack
from tests.unit.archived_records import plain_unroll, recorded
from tests.unit.memory_source import MemorySource

FRAME = (20, 20)


def camera(rng, sequence):
    """Steps of a Dict space: a vector and a frame; two environments."""
    return plain_unroll(
        rng,
        sequence=sequence,
        first_step=3 * sequence,
        observations={
            "camera": pack(rng.integers(0, 256, (4, 2, *FRAME), "u1"), "ZSTD"),
            "speed": pack(rng.normal(size=(4, 2, 3)).astype("<f4")),
        },
        rewards=pack(np.full((3, 2), sequence + 0.5)),
        behaviour={"q_max": pack(np.full((4, 2), 2.5, "<f4"))},
    )


@pytest.fixture
def archived(tmp_path, monkeypatch):
    """The folder of an archive of several files, and what went into it."""
    monkeypatch.setattr(parts, "MAX_ROWS", 12)
    rng = np.random.default_rng(0)
    records = [recorded(camera(rng, s), s, p) for p in range(2) for s in range(3)]
    for p, each in enumerate(records):
        object.__setattr__(each.record, "worker", f"w{p // 3}")
    env = EnvDescription(
        "Camera-v0",
        (
            SpaceField("camera", "box", "|u1", FRAME),
            SpaceField("speed", "box", "<f4", (3,)),
        ),
        (SpaceField("", "discrete", "<i8", (), n=(2,), start=(0,)),),
        None,
        "sync",
        {},
    )
    archiving = Archiving(lambda: MemorySource(records, env), tmp_path, Listener())
    archiving.run()
    archiving.close()
    assert len(list((tmp_path / "steps").iterdir())) == 4
    return tmp_path, [each.record for each in records]


def expected(records):
    """Reward and first speed by (worker, step, env), the slow way."""
    return {
        (r.worker, r.first_step + t, b): (
            float(r.rewards.array()[t, b]),
            r.observations["speed"].array()[t, b].tolist(),
        )
        for r in records
        for t in range(3)
        for b in range(2)
    }


def test_pyarrow_reads_a_folder_of_steps(archived):
    folder, records = archived
    steps = ds.dataset(folder / "steps")
    assert steps.count_rows() == 36
    rows = steps.to_table(
        columns={
            **{name: ds.field(name) for name in ("worker", "step", "env", "reward")},
            "speed": ds.field("observation", "speed"),
        },
        filter=ds.field("worker") == "w1",
    ).to_pylist()
    found = {
        (r["worker"], r["step"], r["env"]): (r["reward"], r["speed"]) for r in rows
    }
    assert found == {k: v for k, v in expected(records).items() if k[0] == "w1"}


def test_polars_reads_a_folder_of_steps(archived):
    folder, records = archived
    steps = pl.scan_parquet(folder / "steps" / "*.parquet")
    rows = (
        steps.filter(pl.col("valid"))
        .select("worker", "step", "env", "reward", pl.col("observation"))
        .collect()
    )
    wanted = expected(records)
    assert rows.height == sum(int(r.valid.array().sum()) for r in records)
    for worker, step, env, reward, observation in rows.iter_rows():
        assert (reward, observation["speed"]) == wanted[worker, step, env]


def test_duckdb_reads_a_folder_of_steps(archived):
    folder, records = archived
    rows = duckdb.sql(
        f"""
        SELECT worker, count(*), sum(reward), min(observation.speed[1]),
               max(behaviour.q_max), min(produced_at)
        FROM '{folder}/steps/*.parquet' GROUP BY worker ORDER BY worker
        """
    ).fetchall()
    wanted = expected(records)
    for worker, count, total, least, q_max, produced_at in rows:
        mine = [value for key, value in wanted.items() if key[0] == worker]
        assert count == len(mine) == 18
        assert total == sum(reward for reward, _ in mine)
        assert least == min(speed[0] for _, speed in mine)
        assert q_max == 2.5
        assert produced_at.timestamp() == 1_700_000_000
    assert [row[0] for row in rows] == ["w0", "w1"]


def test_frames_are_rows_of_bytes_that_say_their_shape(archived):
    folder, records = archived
    steps = ds.dataset(folder / "steps")
    camera_field = steps.schema.field("observation").type.field("camera")
    shape = [int(size) for size in camera_field.metadata[b"shape"].split(b",")]
    dtype = camera_field.metadata[b"dtype"].decode()
    table = steps.to_table(filter=ds.field("worker") == "w0")
    observation = table.column("observation").combine_chunks()
    frames = np.frombuffer(observation.field("camera").buffers()[1], dtype)
    frames = frames.reshape(-1, *shape)
    # Environment-major within a record: its first three rows are environment 0's.
    assert (frames[:3] == records[0].observations["camera"].array()[:3, 0]).all()
