import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from producers.random_policy import draw
from producers.spaces import SpaceRefused, Structure, describe
from schemas.records import SpaceField
from schemas.tensors import pack

LEAVES = [
    spaces.Box(-1.0, 1.0, (2, 3), np.float32),
    spaces.Box(-np.inf, np.inf, (), np.float64),
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.Box(np.array([0, -5], np.int16), np.array([7, 7], np.int16), dtype=np.int16),
    spaces.Box(0.0, 1.0, (1,), np.float16),
    spaces.Discrete(4),
    spaces.Discrete(4, start=-7),
    spaces.Discrete(3, dtype=np.int32),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, -1], [0, 9]]),
    spaces.MultiBinary(3),
    spaces.MultiBinary([2, 2]),
]
NESTED = spaces.Dict(
    {
        "b": spaces.Box(-1, 1, (2,), np.float64),
        "a": spaces.Tuple((spaces.Discrete(5, start=2), spaces.MultiBinary(2))),
        "c": spaces.Dict({"left": spaces.Box(0, 9, (2, 2), np.uint8)}),
    }
)


def leaf_space(field):
    """The space that a field describes: it says enough to make one."""
    dtype = np.dtype(field.dtype).type
    if field.kind == "box":
        return spaces.Box(field.low.array(), field.high.array(), dtype=dtype)
    if field.kind == "discrete":
        return spaces.Discrete(field.n[0], start=field.start[0], dtype=dtype)
    if field.kind == "multi_binary":
        return spaces.MultiBinary(field.shape)
    n, start = (np.reshape(values, field.shape) for values in (field.n, field.start))
    return spaces.MultiDiscrete(n, dtype=dtype, start=start)


@pytest.mark.parametrize("space", LEAVES, ids=str)
def test_a_plain_space_comes_back_from_its_field(space):
    (field,) = describe(space)
    assert field.name == ""
    assert leaf_space(field) == space or describe(leaf_space(field)) == (field,)


def test_fields_are_named_by_their_path_whatever_the_order():
    names = [field.name for field in describe(NESTED)]
    assert names == ["a/0", "a/1", "b", "c/left"]
    backwards = spaces.Dict(dict(reversed(list(NESTED.spaces.items()))))
    assert describe(backwards) == describe(NESTED)


def test_fields_travel_by_name_however_space_and_values_are_ordered():
    a, b = spaces.Box(0, 9, (2,), np.float64), spaces.Box(0, 9, (2,), np.float64)
    listed = spaces.Dict([("b", b), ("a", a)])
    assert list(listed.spaces) != list(spaces.Dict({"b": b, "a": a}).spaces)
    assert describe(listed) == describe(spaces.Dict({"b": b, "a": a}))
    ours, theirs = Structure.of(listed), Structure.of(spaces.Dict({"a": a, "b": b}))
    value = {"a": np.array([1.0, 2.0]), "b": np.array([3.0, 4.0])}
    for writer, reader in ((ours, theirs), (theirs, ours)):
        for each in (value, dict(reversed(value.items()))):
            batch = writer.empty(1)
            writer.write(each, batch, 0)
            again = reader.unflatten({name: x[0] for name, x in batch.items()})
            assert {k: v.tolist() for k, v in again.items()} == {
                "a": [1, 2],
                "b": [3, 4],
            }


ODD_NAMES = [
    *("x:y", "[0]", "(", " ", "'", '"', "*", "a.b", ".", "..", "CON", "end."),
    *("\u00e9", "e\u0301", "\U0001f916", "A", "a", "0", "w" * 300),
]


def test_odd_names_stay_apart_and_come_back():
    space = spaces.Dict({name: spaces.Discrete(99) for name in ODD_NAMES})
    structure = Structure.of(space)
    assert len({field.name for field in structure.fields}) == len(ODD_NAMES)
    value = {name: np.int64(i) for i, name in enumerate(ODD_NAMES)}
    assert structure.unflatten(structure.flatten(value)) == value


def test_discrete_keeps_where_it_starts():
    (field,) = describe(spaces.Discrete(4, start=-7))
    assert field == SpaceField("", "discrete", "<i8", (), n=(4,), start=(-7,))


@pytest.mark.parametrize(
    ("space", "path"),
    [
        (spaces.Text(5), "space"),
        (spaces.Dict({"a": spaces.Dict({"tail": spaces.Text(5)})}), "a/tail"),
        (
            spaces.Dict(
                head=spaces.Box(0, 1, (2,)), tail=spaces.Sequence(spaces.Box(0, 1))
            ),
            "tail",
        ),
        (spaces.Tuple((spaces.Sequence(spaces.Discrete(2)),)), "0"),
        (spaces.Dict({"g": spaces.Graph(spaces.Box(0, 1), None)}), "g"),
        (spaces.Dict({"one": spaces.OneOf((spaces.Discrete(2),))}), "one"),
        (spaces.Dict({"a/b": spaces.Discrete(2)}), "space"),
    ],
)
def test_what_cannot_travel_is_refused_with_its_path(space, path):
    with pytest.raises(SpaceRefused, match=f"^{path}: expected"):
        describe(space)


def test_values_nest_again_as_they_were():
    structure = Structure.of(NESTED)
    NESTED.seed(1)
    for _ in range(200):
        value = NESTED.sample()
        again = structure.unflatten(structure.flatten(value))
        assert NESTED.contains(again)
        assert again["a"][0] == value["a"][0]
        np.testing.assert_array_equal(again["c"]["left"], value["c"]["left"])


def test_a_batch_flattens_to_one_array_a_field():
    structure = Structure.of(NESTED)
    batched = batch_space(NESTED, 6)
    batch = batched.sample()
    leaves = structure.flatten(batch)
    assert {n: a.shape for n, a in leaves.items()} == {
        "a/0": (6,),
        "a/1": (6, 2),
        "b": (6, 2),
        "c/left": (6, 2, 2),
    }
    assert batched.contains(structure.unflatten(leaves))


def test_samples_of_every_countable_kind_come_back_equal():
    space = spaces.Tuple(
        (
            spaces.Discrete(5, start=-2),
            spaces.MultiBinary(3),
            spaces.MultiDiscrete([2, 3], start=[7, -1]),
        ),
        seed=1,
    )
    structure = Structure.of(space)
    samples = [space.sample() for _ in range(1000)]
    batch = structure.empty(1000)
    for row, sample in enumerate(samples):
        structure.write(sample, batch, row)
    travelled = {name: pack(array).array() for name, array in batch.items()}
    for row, sample in enumerate(samples):
        found = structure.unflatten({n: array[row] for n, array in travelled.items()})
        assert [x.tolist() for x in found] == [np.asarray(x).tolist() for x in sample]


def test_a_missing_part_is_named():
    structure = Structure.of(NESTED)
    with pytest.raises(SpaceRefused, match="c/left: expected a value"):
        structure.flatten({"a": (2, [0, 1]), "b": [0, 0], "c": {}})
    with pytest.raises(SpaceRefused, match="expected the fields"):
        structure.unflatten({"a/0": 1})


DTYPES = ["|b1", "|u1", "|i1", "<i2", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8"]


@st.composite
def boxed(draw_):
    dtype = np.dtype(draw_(st.sampled_from(DTYPES)))
    shape = draw_(hnp.array_shapes(min_dims=0, max_dims=3, max_side=4))
    return draw_(hnp.arrays(dtype, shape))


@settings(max_examples=1000, deadline=None)
@given(boxed())
def test_every_bit_of_an_observation_survives(value):
    """NaN payloads, infinities, 2**53 + 1, -0.0: the record holds what the env gave."""
    field = SpaceField("", "box", pack(value).dtype, value.shape)
    structure = Structure(spaces.Box(0, 1, value.shape, value.dtype), (field,))
    batch = structure.empty(3)
    structure.write(value, batch, 1)
    travelled = pack(batch[""]).array()[1]
    assert travelled.dtype == value.dtype
    assert travelled.tobytes() == value.tobytes()


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (np.zeros(3), "<?float64"),
        (np.zeros((2, 2), np.uint8), r"uint8\[2, 2\]"),
        (np.float32(1), r"float32\[\]"),
    ],
)
def test_a_value_that_is_not_of_its_field_is_refused(value, found):
    structure = Structure.of(spaces.Box(0, 9, (3,), np.uint8))
    with pytest.raises(SpaceRefused, match=found):
        structure.write(value, structure.empty(2), 0)


def _scalars(space, leaves):
    """Discrete takes numpy scalars only, where a batch's row is a 0-d array."""
    discrete = {f.name for f in describe(space) if f.kind == "discrete"}
    return {n: leaf[()] if n in discrete else leaf for n, leaf in leaves.items()}


@pytest.mark.parametrize("space", [*LEAVES, NESTED], ids=str)
def test_random_actions_are_members_of_their_space(space):
    structure = Structure.of(space)
    actions, log_prob = draw(structure.fields, (50, 4), np.random.default_rng(1))
    assert log_prob.shape == (50, 4) and log_prob.dtype == np.float32
    for t, b in np.ndindex(50, 4):
        leaves = {name: array[t, b, ...] for name, array in actions.items()}
        assert space.contains(structure.unflatten(_scalars(space, leaves)))


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Discrete(4, start=3), np.log(1 / 4)),
        (spaces.MultiDiscrete([2, 3]), np.log(1 / 6)),
        (spaces.MultiBinary(3), np.log(1 / 8)),
        (spaces.Box(-1.0, 3.0, (2,), np.float32), np.log(1 / 16)),
        (spaces.Box(0, 9, (1,), np.uint8), np.log(1 / 10)),
        (spaces.Tuple((spaces.Discrete(2), spaces.Discrete(5))), np.log(1 / 10)),
    ],
)
def test_the_log_probability_of_random_actions(space, expected):
    _, log_prob = draw(describe(space), (5, 2), np.random.default_rng(1))
    np.testing.assert_allclose(log_prob, expected, rtol=1e-6)


def test_unbounded_actions_have_the_density_they_are_drawn_from():
    low, high = np.array([-np.inf, 2.0, -np.inf]), np.array([np.inf, np.inf, 5.0])
    fields = describe(spaces.Box(low, high, dtype=np.float64))
    actions, log_prob = draw(fields, (7,), np.random.default_rng(1))
    x = actions[""]
    normal = -0.5 * x[:, 0] ** 2 - 0.5 * np.log(2 * np.pi)
    expected = normal - (x[:, 1] - 2) - (5 - x[:, 2])
    np.testing.assert_allclose(log_prob, expected, rtol=1e-5)
