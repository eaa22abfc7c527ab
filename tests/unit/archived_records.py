"""Records of any kind that an archive may meet, and what all of them have in common."""

import numpy as np
import zstandard
from hypothesis import strategies as st

from archive.recorded import Recorded
from schemas.codec import decode, encode
from schemas.records import PolicyRef, SourceRef, StreamEnd, Unroll
from schemas.tensors import Tensor, pack

TOPIC = "rollstream.past.trajectories"
DTYPES = (
    "|b1", "|u1", "|i1", "<u2", "<i4", "<i8", "<u8", "<f2", "<f4", "<f8", "<c8",
)  # fmt: skip
LOSSLESS = ("RAW", "ZSTD", "LZ4", "ZSTD_DELTA", "LZ4_DELTA")
SHAPES = ((), (1,), (4,), (2, 3), (256,), (257,), (20, 20, 1), (0,), (3, 0))
LARGEST = np.iinfo(np.int64).max


def recorded(record, offset, partition=0, appended_at_ms=7):
    """As a source gives it: what was written is what can be read."""
    decode(encode(record), type(record))
    return Recorded(SourceRef(TOPIC, partition, offset), appended_at_ms, record)


def bits(dtype, shape, rng):
    """Any bits of a dtype: NaNs of all kinds among them; bools are 0 or 1."""
    if dtype == "|b1":
        return rng.random(shape) < 0.5
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(rng.bytes(size), dtype).reshape(shape)


def foreign(tensor):
    """The same, compressed by another program."""
    data = zstandard.ZstdCompressor(level=19).compress(tensor.array().tobytes())
    return Tensor(tensor.dtype, tensor.shape, "ZSTD", data)


def plain_unroll(rng, steps=3, envs=2, observation=("<f4", (4,)), **changes):
    """CartPole's, unless told otherwise: episodes end now and then."""
    rows = (steps, envs)
    dtype, shape = observation
    values = {
        "experiment": "past",
        "run_id": "r1",
        "worker": "w0",
        "incarnation": 5,
        "sequence": 0,
        "first_step": 0,
        "num_steps": steps,
        "num_envs": envs,
        "policy": PolicyRef(1, 4),
        "produced_at_ms": 1_700_000_000_000,
        "end_of_stream": False,
        "observations": {"": pack(bits(dtype, (steps + 1, envs, *shape), rng))},
        "actions": {"": pack(rng.integers(0, 2, rows))},
        "rewards": pack(rng.normal(size=rows)),
        "terminated": pack(rng.random(rows) < 0.2),
        "truncated": pack(rng.random(rows) < 0.1),
        "valid": pack(rng.random(rows) < 0.8),
        "episodes": pack(rng.integers(0, 9, envs)),
        "states": {},
        "behaviour": {"q_max": pack(bits("<f4", (steps + 1, envs), rng))},
        "infos": {},
    }
    return Unroll(**{**values, **changes})


@st.composite
def spaces(draw):
    """Fields of a space: plain or by name."""
    leaf = st.tuples(st.sampled_from(DTYPES), st.sampled_from(SHAPES))
    if draw(st.booleans()):
        return {"": draw(leaf)}
    names = st.sampled_from(["camera/left", "a.b", "list", "0", "é", "q_max"])
    return draw(st.dictionaries(names, leaf, min_size=1, max_size=3))


@st.composite
def histories(draw):
    """Records of one partition: most have the same spaces, some are odd."""
    observation, action = draw(spaces()), draw(spaces())
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    records = []
    for sequence in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["usual", "usual", "usual", "odd", "end"]))
        if kind == "end":
            end = StreamEnd("past", "r1", "w0", sequence, "bye", -sequence)
            records.append(recorded(end, 10 + 2 * sequence))
            continue
        spaces_of = (observation, action) if kind == "usual" else (
            draw(spaces()), draw(spaces()),
        )  # fmt: skip
        unroll = draw(unrolls(rng, *spaces_of, sequence=sequence, odd=kind == "odd"))
        records.append(recorded(unroll, 10 + 2 * sequence))
    return records


@st.composite
def unrolls(draw, rng, observation, action, *, sequence, odd):
    steps, envs = draw(st.integers(1, 5)), draw(st.integers(1, 3))

    def tensor(dtype, *shape):
        encoding = draw(st.sampled_from(LOSSLESS))
        found = pack(bits(dtype, shape, rng), encoding)
        return foreign(found) if odd and draw(st.booleans()) else found

    def fields(of, lead):
        return {n: tensor(d, *lead, *shape) for n, (d, shape) in of.items()}

    rows = (steps, envs)
    behaviour = {
        "q_max": ("<f4", (steps + 1, envs)),
        "q_taken": ("<f4", rows),
        "value": (draw(st.sampled_from(["<f4", "<f8"])), (steps + 1, envs)),
        "log_prob": ("<f4", rows),
        "logits": ("<f4", (*rows, draw(st.integers(0, 3)))),
        "sample": ("<f4", (*rows, 2)),
    }
    chosen = draw(st.lists(st.sampled_from(list(behaviour)), unique=True))
    changes = {
        "sequence": sequence,
        "first_step": draw(st.sampled_from([0, 7, 1 << 62])),
        "produced_at_ms": draw(st.sampled_from([0, -1, 1_700_000_000_000, LARGEST])),
        "end_of_stream": draw(st.booleans()),
        "observations": fields(observation, (steps + 1, envs)),
        "actions": fields(action, rows),
        "rewards": tensor(draw(st.sampled_from(["<f4", "<f8"])), *rows),
        "states": {"h": tensor("<f4", envs, 2)} if draw(st.booleans()) else {},
        "behaviour": {name: tensor(*_flat(behaviour[name])) for name in chosen},
        "infos": {"lives": tensor("<i8", *rows)} if draw(st.booleans()) else {},
    }
    if odd and draw(st.booleans()):
        strange = Tensor("|b1", rows, "RAW", rng.bytes(steps * envs))
        changes[draw(st.sampled_from(["terminated", "truncated", "valid"]))] = strange
    if odd and draw(st.booleans()):
        # Passed on unopened: nobody has found out yet.
        field = draw(st.sampled_from(["rewards", "valid"]))
        dtype = {"rewards": "<f8", "valid": "|b1"}[field]
        changes[field] = Tensor(dtype, rows, "ZSTD", b"no zstd")
    return plain_unroll(rng, steps, envs, **changes)


def _flat(of):
    dtype, shape = of
    return (dtype, *shape)
