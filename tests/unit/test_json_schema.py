"""What editors accept and refuse is what the parser does."""

import copy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from rollstream.starter import starter
from schemas.experiment import SpecError, from_values, load_file, load_values
from schemas.json_schema import experiment_schema
from schemas.spec_paths import values_of
from schemas.spec_text import load_yaml
from tests.unit.learner_specs import environment
from tests.unit.test_experiment import SAMPLE

SCHEMA = experiment_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
FULL = values_of(load_file(SAMPLE))
FULL["spec"]["env"]["wrappers"] = [{"name": "TimeLimit", "kwargs": {"a": [1, None]}}]
FULL["spec"]["workers"] |= {"min": 1, "max": 4, "nodeSelector": {"zone": "a"}}

# One of each kind, and what is easily taken for another.
POOL = [
    None, True, False, 0, 1, 2, -1, 10**6, 2**63, 0.5, -0.5, 1.5, "", "1", "true",
    "running", "20GB", "1.5 TB", "20gb", "a-name", "CartPole-v1", "os:X-v0", "cpu",
    [], [1], ["a"], [0.5, 2], {}, {"a": "b"}, {"a b": "c"}, {"id": "Acrobot-v1"},
    {"cpu": 1}, {"cpu": -1},
]  # fmt: skip
# Refused by rules over several fields, which a schema does not have.
TOGETHER = (
    "min:", "max:", "replicas:", "minSize:", "batchSize:", "wrappers:", "lstm:",
    "vMin:", "vMax:", "samplesPerInsert:", "nStep:",
)  # fmt: skip


def parser_says(values):
    try:
        from_values(values)
    except SpecError as exc:
        return exc.problems
    return []


def places(values, path=()):
    yield path
    items = values.items() if isinstance(values, dict) else enumerate(values)
    for key, item in items:
        if isinstance(item, dict | list):
            yield from places(item, (*path, key))
        else:
            yield (*path, key)


def changed(path, value):
    if not path:
        return value
    values = copy.deepcopy(FULL)
    target = values
    for part in path[:-1]:
        target = target[part]
    target[path[-1]] = value
    return values


def test_it_is_a_schema_and_the_sample_is_valid():
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == VALIDATOR.META_SCHEMA["$schema"]
    for path in SAMPLE.parent.glob("*.yaml"):
        VALIDATOR.validate(load_values(path))
    VALIDATOR.validate(FULL)
    VALIDATOR.validate(load_yaml(starter("x", environment(), goal=5)))
    assert parser_says(FULL) == []


@pytest.mark.parametrize(
    "path", list(places(FULL)), ids=lambda p: ".".join(map(str, p))
)
def test_every_value_in_every_place_is_judged_alike(path):
    accepted = 0
    for value in POOL:
        values = changed(path, value)
        refused, valid = parser_says(values), VALIDATOR.is_valid(values)
        where = f"{path}: {value!r}: {refused}"
        if not refused:
            accepted += 1
            assert valid, where
        elif valid:
            assert (
                any(f".{rule}" in refused[0] for rule in TOGETHER)
                or "which does not read it" in refused[0]  # the algorithm
                or value == 2**63  # a schema has no size of numbers
            ), where
    assert accepted < len(POOL) or "kwargs" in path


@pytest.mark.parametrize(
    "path", [p for p in places(FULL) if isinstance(changed(p, 0), dict)],
    ids=lambda p: ".".join(map(str, p)),
)  # fmt: skip
def test_what_is_left_out_or_unknown_is_judged_alike(path):
    if not path:
        return
    values = copy.deepcopy(FULL)
    target = values
    for part in path[:-1]:
        target = target[part]
    del target[path[-1]]
    assert VALIDATOR.is_valid(values) == (not parser_says(values)) or (
        "expected min" in parser_says(values)[0]
    )
    if isinstance(target, dict):
        target["unheardOf"] = 1
        free = {"kwargs"} & set(path[:-1])
        assert VALIDATOR.is_valid(values) == (not parser_says(values)) == bool(free)


@given(
    st.lists(
        st.tuples(st.sampled_from(list(places(FULL))[1:]), st.sampled_from(POOL)),
        min_size=2,
        max_size=4,
    )
)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_the_parser_accepts_is_valid(changes):
    values = copy.deepcopy(FULL)
    for path, value in changes:
        target = values
        try:
            for part in path[:-1]:
                target = target[part]
            target[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took its place
    if not parser_says(values):
        VALIDATOR.validate(values)


def test_every_key_is_explained_with_its_unit():
    units = {"S": "second", "Ms": "millisecond", "Budget": "bytes"}
    for name, part in SCHEMA["$defs"].items():
        for key, field in part["properties"].items():
            about = field.get("description", "")
            assert about.endswith("."), f"{name}.{key}"
            for suffix, unit in units.items():
                if key.endswith(suffix):
                    assert unit in about.lower(), f"{name}.{key}"
    assert "title" not in SCHEMA["$defs"]["LearnerSpec"]["properties"]["batchSize"]
