"""Every encoding gives back every bit, and no bytes make more of themselves."""

import copy
import io
import json
import tracemalloc

import fastavro
import imagecodecs
import numpy as np
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from schemas.codec import decode, encode
from schemas.deltas import accumulated, differences
from schemas.encodings import ENCODINGS, LOSSY, PLAIN, from_wire, to_wire
from schemas.errors import SchemaError
from schemas.records import Unroll
from schemas.registry import Registry, newest, shipped
from schemas.tensors import MAX_TENSOR_BYTES, Tensor, pack
from tests.unit.archived_records import bits, plain_unroll
from tests.unit.test_tensors import DTYPES

LOSSLESS = [each for each in ENCODINGS if each not in LOSSY]
by_encoding = pytest.mark.parametrize("encoding", ENCODINGS)


@st.composite
def arrays(draw):
    """Any bits at all: every NaN, both zeros; most repeat what was before."""
    dtype = draw(st.sampled_from([each for each in DTYPES if each != "|b1"]))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6))
    array = bits(dtype, shape, np.random.default_rng(draw(st.integers(0, 2**32))))
    if shape and draw(st.booleans()):
        array = np.repeat(array, 5, axis=0)
    return array


@given(arrays(), st.sampled_from(LOSSLESS))
@example(np.array([np.nan, -np.nan, -0.0, 0.0, np.inf], "<f8"), "ZSTD_DELTA")
@example(np.zeros((0, 3), "<f4"), "LZ4_DELTA")
@example(np.zeros((100, 0, 3), "<f4"), "ZSTD_DELTA")
@example(np.array(7, "<i8"), "LZ4")
@example(np.zeros((70, 3, 2_000), "<f8"), "ZSTD_DELTA")
@example(np.ones((70, 3, 2_000), "|u1"), "LZ4_DELTA")
@example(np.zeros((70, 5), "<c16"), "LZ4_DELTA")
def test_every_bit_comes_back(array, encoding):
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    tensor = pack(array, encoding)
    found = tensor.array()
    assert (found.dtype, found.shape) == (little.dtype, array.shape)
    assert found.tobytes() == little.tobytes()
    assert not found.flags.writeable
    assert tensor.encoding in (encoding, "RAW")


def test_differences_by_hand():
    """Rows are XORed with those before; then first bytes, then second ones."""
    array = np.array([[0x0102, 0x0304], [0x0103, 0x0304], [0x0000, 0xFFFF]], "<u2")
    words = [0x0102, 0x0304, 0x0001, 0x0000, 0x0103, 0xFCFB]
    expected = [word & 0xFF for word in words] + [word >> 8 for word in words]
    assert differences(array).tolist() == expected
    found = accumulated(bytes(expected), "<u2", (3, 2))
    assert found.tolist() == array.tolist()


def test_what_stands_still_costs_next_to_nothing_however_many_environments():
    frame = np.random.default_rng(0).integers(0, 256, (1, 64, 84, 84), np.uint8)
    frames = np.repeat(frame, 9, axis=0)
    assert len(pack(frames, "ZSTD_DELTA").data) < frame.nbytes * 1.01
    assert len(pack(frames, "LZ4_DELTA").data) < frame.nbytes * 1.04
    # Further apart than these look back.
    assert len(pack(frames, "LZ4").data) > 0.9 * frames.nbytes or (
        pack(frames, "LZ4").encoding == "RAW"
    )


@pytest.mark.parametrize("encoding", ["LZ4", "ZSTD_DELTA", "LZ4_DELTA"])
def test_what_would_not_be_smaller_stays_as_it_is(encoding):
    noise = np.random.default_rng(0).random((4, 3))
    assert pack(noise, encoding) == pack(noise)


@by_encoding
@given(data=st.binary(max_size=200), shape=hnp.array_shapes(max_dims=4, max_side=9))
@example(data=b"", shape=(2, 1, 3, 3))
@example(data=b"\1\0\0\0\1\0\0\0xx", shape=(2, 1, 3, 3))
@example(data=b"\xff" * 8, shape=(2, 1, 3, 3))
def test_bytes_of_anybody_are_an_array_or_a_schema_error(encoding, data, shape):
    for dtype in ("|u1", "<f4"):
        try:
            assert Tensor(dtype, shape, encoding, data).array().shape == shape
        except SchemaError:
            pass


@by_encoding
@given(st.data())
def test_bytes_that_were_changed_are_an_array_or_a_schema_error(encoding, data):
    image = np.arange(2 * 1 * 8 * 8, dtype=np.uint8).reshape(2, 1, 8, 8) // 16
    good = bytearray(pack(np.repeat(image, 4, 0), encoding).data)
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(good)))
    for changed in (bytes(good), bytes(good[:cut]), bytes(good) + b"\0"):
        try:
            found = Tensor("|u1", (8, 1, 8, 8), encoding, changed).array()
            assert found.shape == (8, 1, 8, 8)
        except SchemaError:
            pass


@pytest.mark.parametrize("encoding", LOSSLESS[1:])
def test_a_bomb_is_not_opened_beyond_its_header(encoding):
    bomb = pack(np.zeros(MAX_TENSOR_BYTES, np.uint8), encoding).data
    tensor = Tensor("|u1", (1_000,), encoding, bomb)
    tracemalloc.start()
    try:
        with pytest.raises(SchemaError, match="1000 bytes"):
            tensor.array()
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("encoding", ["ZSTD", "ZSTD_DELTA"])
def test_a_frame_that_would_look_back_further_than_there_is_memory_for(encoding):
    far = zstandard.ZstdCompressionParameters.from_level(1, window_log=27)
    stream = zstandard.ZstdCompressor(compression_params=far).compressobj()
    data = stream.compress(bytes(100)) + stream.flush()
    with pytest.raises(SchemaError, match="too much memory"):
        Tensor("|u1", (100,), encoding, data).array()


@pytest.mark.parametrize("encoding", sorted(LOSSY))
def test_an_image_of_another_size_is_refused_before_it_is_opened(encoding):
    large = np.zeros((4_000, 4_000), np.uint8)
    if encoding == "JPEGXL":
        blob = imagecodecs.jpegxl_encode(large, lossless=True, effort=1)
    else:
        blob = imagecodecs.webp_encode(large[..., None].repeat(3, -1), lossless=True)
    data = np.array([len(blob)], "<u4").tobytes() + bytes(blob)
    with pytest.raises(SchemaError, match=r"invalid out\.shape"):
        Tensor("|u1", (1, 1, 8, 8), encoding, data).array()


def test_an_encoding_that_nobody_knows_is_refused():
    with pytest.raises(SchemaError, match="expected one of RAW"):
        Tensor("|u1", (1,), "UNKNOWN", b"x").array()


# --- on the wire ---------------------------------------------------------------------


@by_encoding
def test_names_on_the_wire_come_back(encoding):
    assert from_wire(*to_wire(encoding)) == encoding


@pytest.mark.parametrize(
    "pair", [("RAW", "UNKNOWN"), ("ZSTD", "LZ4"), ("RAW", "ZSTD"), ("LZ4", PLAIN)]
)
def test_names_that_contradict_each_other_are_refused(pair):
    with pytest.raises(SchemaError, match="tensor encoding"):
        from_wire(*pair)


def frames_unroll(encoding):
    rng = np.random.default_rng(0)
    unroll = plain_unroll(rng, 3, 2)
    frames = np.repeat(rng.integers(0, 2, (1, 2, 32, 32), np.uint8), 4, axis=0)
    observations = {"": pack(frames, encoding)}
    assert observations[""].encoding == encoding
    changes = {name: getattr(unroll, name) for name in unroll.__slots__}
    return Unroll(**{**changes, "observations": observations})


@by_encoding
def test_records_hold_every_encoding(encoding):
    unroll = frames_unroll(encoding)
    found = decode(encode(unroll), Unroll)
    assert found == unroll and encode(found) == encode(unroll)


@by_encoding
def test_who_knows_only_the_first_schema_never_misreads(encoding):
    """As an earlier version of this project would: the new field is not in its schema.

    RAW and ZSTD it reads; of others it finds a number of bytes that RAW cannot have.
    """
    first = next(s for s in shipped() if (s.name, s.version) == ("Unroll", 1))
    unroll = frames_unroll(encoding)
    body = io.BytesIO(encode(unroll)[5:])
    old = fastavro.schemaless_reader(body, newest("Unroll").parsed, first.parsed)
    seen = old["observations"][""]
    tensor = Tensor(seen["dtype"], tuple(seen["shape"]), seen["encoding"], seen["data"])
    if encoding in ("RAW", "ZSTD"):
        assert np.array_equal(tensor.array(), unroll.observations[""].array())
    else:
        with pytest.raises(SchemaError, match=r"expected 8192 bytes"):
            tensor.array()


def test_a_later_version_s_encoding_is_a_dead_letter_and_no_other_image():
    """Their enum has more symbols than ours; ours says UNKNOWN for those."""
    schema = json.loads(newest("Unroll").text)
    enum = schema["fields"][11]["type"]["values"]["fields"][3]["type"]
    assert enum["name"] == "Codec"
    enum["symbols"].insert(1, "NEURAL")
    registry = Registry()
    known = registry.add(json.dumps(schema))
    ours = frames_unroll("LZ4")
    plain = fastavro.schemaless_reader(
        io.BytesIO(encode(ours)[5:]), newest("Unroll").parsed, None
    )
    theirs = copy.deepcopy(plain)
    theirs["observations"][""]["codec"] = "NEURAL"
    for record, is_known in ((plain, True), (theirs, False)):
        body = io.BytesIO()
        fastavro.schemaless_writer(body, known.parsed, record)
        data = b"\0" + known.id.to_bytes(4, "big") + body.getvalue()
        if is_known:
            assert decode(data, Unroll, registry=registry) == ours
        else:
            with pytest.raises(SchemaError, match="found RAW with the codec UNKNOWN"):
                decode(data, Unroll, registry=registry)
