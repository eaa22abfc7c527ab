import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings

from archive.columns import Columns
from archive.placement import slots_of
from archive.restoring import restore
from archive.step_table import PlacedUnroll, step_table
from archive.unroll_table import unroll_table
from schemas.codec import encode
from schemas.records import EnvDescription, SpaceField, Unroll
from schemas.tensors import pack
from tests.unit.archived_records import histories, plain_unroll, recorded


def tables(records, columns):
    slots = slots_of(columns)
    placed = [
        PlacedUnroll.of(each.address, each.appended_at_ms, each.record, slots)
        if isinstance(each.record, Unroll)
        else each
        for each in records
    ]
    unrolls = [each for each in placed if isinstance(each, PlacedUnroll)]
    return step_table(unrolls, columns), unroll_table(placed)


def through_parquet(table, path):
    pq.write_table(table, path)
    return pq.ParquetFile(path).read()


def columns_of(records):
    found = [r.record for r in records if isinstance(r.record, Unroll)]
    return Columns.of_unroll(found[0]) if found else Columns((), ())


@given(records=histories())
@hypothesis_settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_every_record_comes_back_to_the_byte(records, tmp_path):
    columns = Columns.from_json(columns_of(records).to_json())
    steps, unrolls = tables(records, columns)
    steps = through_parquet(steps, tmp_path / "steps")
    unrolls = through_parquet(unrolls, tmp_path / "unrolls")
    found = list(restore(steps, unrolls, columns))
    assert [r.address for r in found] == [r.address for r in records]
    assert [r.appended_at_ms for r in found] == [7] * len(records)
    assert [encode(r.record) for r in found] == [encode(r.record) for r in records]


def by_hand():
    """Two steps of two environments; the first ends its episode at step 0."""
    rng = np.random.default_rng(0)
    return plain_unroll(
        rng,
        steps=2,
        envs=2,
        sequence=3,
        first_step=6,
        observations={"": pack(np.arange(12, dtype="<f4").reshape(3, 2, 2))},
        actions={"": pack(np.array([[0, 1], [2, 3]]))},
        rewards=pack(np.array([[0.1, 0.2], [0.3, 0.4]], "<f4")),
        terminated=pack(np.array([[True, False], [False, False]])),
        truncated=pack(np.zeros((2, 2), bool)),
        valid=pack(np.array([[True, True], [False, True]])),
        episodes=pack(np.array([7, 40])),
        behaviour={"q_taken": pack(np.array([[1, 2], [3, 4]], "<f4"))},
    )


def test_a_row_is_a_step_and_environments_stay_together():
    unroll = by_hand()
    steps, _ = tables([recorded(unroll, 12)], Columns.of_unroll(unroll))
    columns = steps.to_pydict()
    assert columns["env"] == [0, 0, 1, 1]
    assert columns["step"] == [6, 7, 6, 7]
    # The end belongs to its episode, the reset row to the next.
    assert columns["episode"] == [7, 8, 40, 40]
    assert columns["observation"] == [[0, 1], [4, 5], [2, 3], [6, 7]]
    assert columns["action"] == [0, 2, 1, 3]
    assert columns["reward"] == [float(np.float32(r)) for r in (0.1, 0.3, 0.2, 0.4)]
    assert columns["terminated"] == [True, False, False, False]
    assert columns["valid"] == [True, False, True, True]
    assert [b["q_taken"] for b in columns["behaviour"]] == [1, 3, 2, 4]
    assert {b["q_max"] for b in columns["behaviour"]} == {None}
    assert set(columns["offset"]) == {12}
    assert set(columns["worker"]) == {"w0"}
    assert str(columns["produced_at"][0]) == "2023-11-14 22:13:20+00:00"


@pytest.mark.parametrize(
    ("dtype", "shape", "arrow"),
    [
        ("<f4", (), pa.float32()),
        ("<f4", (4,), pa.list_(pa.float32(), 4)),
        ("|u1", (2, 128), pa.list_(pa.uint8(), 256)),
        # Lists of pixels take thirty times as long as rows of bytes.
        ("|u1", (84, 84), pa.binary(84 * 84)),
        ("<c8", (), pa.binary(8)),
    ],
)
def test_columns_are_typed_by_the_spaces(dtype, shape, arrow):
    field = SpaceField("", "box", dtype, shape)
    named = SpaceField("camera/left", "box", dtype, shape)
    env = EnvDescription("e", (field,), (named,), None, "sync", {})
    columns = Columns.of_env(env)
    assert columns.observation[0].type == arrow
    assert columns.observation[0].field("observation").metadata == {
        b"dtype": dtype.encode(),
        b"shape": ",".join(map(str, shape)).encode(),
    }
    (action,) = columns.action
    assert (action.name, action.type) == ("camera/left", arrow)


def test_named_fields_are_one_struct():
    rng = np.random.default_rng(0)
    left, right = rng.random((4, 2, 3)), rng.integers(0, 9, (4, 2))
    unroll = plain_unroll(
        rng, observations={"camera/left": pack(left), "0": pack(right)}
    )
    steps, _ = tables([recorded(unroll, 0)], Columns.of_unroll(unroll))
    row = steps.column("observation")[4].as_py()  # environment 1, step 1
    assert row == {"camera/left": left[1, 1].tolist(), "0": right[1, 1]}


def test_steps_of_other_spaces_have_nulls_there():
    rng = np.random.default_rng(0)
    usual = plain_unroll(rng)
    other = plain_unroll(rng, sequence=1, observation=("<f8", (4,)))
    columns = Columns.of_unroll(usual)
    steps, _ = tables([recorded(usual, 0), recorded(other, 1)], columns)
    assert steps.column("observation").is_null().to_pylist() == [False] * 6 + [True] * 6
    assert steps.column("action").null_count == 0


def test_an_image_that_has_lost_something_comes_back_as_it_was_lost(tmp_path):
    """Packed again it would lose more: it is kept as it came; its steps can be read."""
    ramp = np.linspace(0, 255, 3 * 2 * 64 * 64).reshape(3, 2, 64, 64).astype(np.uint8)
    images = pack(ramp, "JPEGXL", 60)
    assert images.encoding == "JPEGXL"
    unroll = plain_unroll(np.random.default_rng(0), 2, 2, observations={"": images})
    records = [recorded(unroll, 12)]
    steps, unrolls = tables(records, columns_of(records))
    steps = through_parquet(steps, tmp_path / "steps")
    (found,) = restore(steps, unrolls, columns_of(records))
    assert encode(found.record) == encode(unroll)
    first = np.frombuffer(steps.column("observation")[0].as_py(), np.uint8)
    assert np.array_equal(first.reshape(64, 64), images.array()[0, 0])
