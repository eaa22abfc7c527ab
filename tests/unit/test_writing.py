"""Records are written as fastavro would, or refused."""

import dataclasses
import io

import fastavro
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import encode
from schemas.errors import SchemaError
from schemas.registry import newest
from tests.unit.sample_records import SAMPLES, batch, unroll
from tests.unit.test_codec import as_plain

REWARDS = unroll().rewards


def written_by_fastavro(record):
    out = io.BytesIO()
    schema = newest(type(record).__name__).parsed
    fastavro.schemaless_writer(out, schema, as_plain(record))
    return out.getvalue()


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: type(s).__name__)
def test_the_bytes_are_those_that_fastavro_writes(sample):
    assert encode(sample)[5:] == written_by_fastavro(sample)


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.text(), st.floats(allow_nan=False))
def test_so_are_numbers_and_text_of_any_size(number, text, real):
    record = dataclasses.replace(
        batch(), incarnation=number, experiment=text, gamma=real
    )
    assert encode(record)[5:] == written_by_fastavro(record)


@pytest.mark.parametrize(
    "change",
    [
        {"num_envs": 1 << 31},
        {"sequence": 1 << 63},
        {"produced_at_ms": 1.5},
        {"experiment": b"e"},
        {"observations": None},
        {"policy": None},
        {"rewards": dataclasses.replace(REWARDS, data="text")},
        {"rewards": dataclasses.replace(REWARDS, data=np.ones(4))},
        {"rewards": dataclasses.replace(REWARDS, encoding="BROTLI")},
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_its_field_is_not_written(change):
    with pytest.raises(SchemaError, match="Unroll: cannot be written"):
        encode(unroll(**change))


@pytest.mark.parametrize("gamma", ["0.9", 10**400])
def test_a_number_that_is_none_or_too_large_is_not_written(gamma):
    with pytest.raises(SchemaError, match="TransitionBatch: cannot be written"):
        encode(dataclasses.replace(batch(), gamma=gamma))
