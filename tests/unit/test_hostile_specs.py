"""Whatever a file or a record says: a SpecError, at once, in little memory."""

import json
import time
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollstream.overrides import apply_overrides
from schemas.experiment import (
    SpecError,
    from_values,
    load_file,
    load_values,
    parse_json,
)
from schemas.plain_values import MAX_DEPTH, MAX_PROBLEMS, MAX_TEXT
from schemas.spec_text import load_json, load_yaml
from tests.unit.test_experiment import SAMPLE

HEAD = "apiVersion: rollstream/v1\nkind: Experiment\nmetadata: {name: x}\n"
ENV = HEAD + "spec:\n  env: {id: CartPole-v1, kwargs: "
LIMIT_S = 1.0
LIMIT_BYTES = 64 << 20


def env(kwargs, tail="}"):
    return ENV + kwargs + tail


def laughs(levels, width=9):
    """Aliases of aliases: a few lines, and width^levels values."""
    text = "a0: &a0 [x]\n"
    for level in range(1, levels):
        aliases = ", ".join([f"*a{level - 1}"] * width)
        text += f"a{level}: &a{level} [{aliases}]\n"
    return text


HOSTILE = {
    "nested lists": (env("[" * 5_000), "levels|nesting"),
    "nested mappings": (env("{a: " * 5_000), "levels|nesting"),
    "nested blocks": ("".join("- " * n + "\n" for n in [3_000]), "levels|nesting"),
    "one level too many": (env("{a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH + "}"),
                           "at most 32 levels"),
    "a billion laughs": (laughs(12), "at most 20,000 values"),
    "laughs of an allowed size, unknown": (laughs(3), "a2: expected a known key"),
    "an alias of itself": (env("{a: &x [*x]}"), "levels|alias"),
    "an alias of a redefined anchor": (env("{b: &x 1, a: &x [*x, *x, *x]}"),
                                       "second occurrence|levels"),
    "an alias of nothing": (env("{a: *x}"), "undefined alias"),
    "a merge key": (HEAD + "base: &b {id: A-v0}\nspec: {env: {<<: *b}}",
                    "<<: expected a known key"),
    "a key twice": (HEAD + "spec:\n  env: {id: A-v0}\n  seed: 1\n  seed: 2",
                    "spec.seed: expected the key once, found it again in line 7"),
    "a key twice, far inside": (env("{a: [{b: 1, c: {d: 1, 'd': 2}}]}"),
                                "spec.env.kwargs.a.0.c.d: expected the key once"),
    "a part twice": (HEAD + "spec: {env: {id: A-v0}}\nspec: {}", "spec: expected the "),
    "a list as a key": (env("{[a]: 1}"), "expected texts as keys"),
    "a number as a key": (env("{1: 1}"), "spec.env.kwargs: expected texts as keys"),
    "nothing as a key": (env("{~: 1}"), "expected texts as keys, found None"),
    "an object of Python": (env("{a: !!python/object/apply:os.system [ls]}"),
                            "spec.env.kwargs.a: expected no tag, found 'tag:yaml.org"),
    "an empty number": (env("{a: !!int ''}"), "expected no tag"),
    "a set": (env("{a: !!set {b, c}}"), "expected no tag"),
    "a time of no calendar": (env("{a: !!timestamp 2001-99-99}"), "expected no tag"),
    "not a number": (env("{a: [1, {b: .nan}]}"),
                     "spec.env.kwargs.a.1.b: expected a finite number, found nan"),
    "infinite": (HEAD + "spec: {env: {id: A-v0}, learner: {learningRate: .inf}}",
                 "spec.learner.learningRate: expected a finite number"),
    "more digits than Python reads": (env("{a: " + "9" * 5_000 + "}"), "5000 digits"),
    "many bits": (env("{a: 0x" + "f" * 100_000 + "}"),
                  "spec.env.kwargs.a: expected a number of 64 bits, found a number of "
                  "400,000 bits"),
    "a seed of 65 bits": (HEAD + f"spec: {{seed: {2**64}, env: {{id: A-v0}}}}",
                          "spec.seed: expected a number of 64 bits"),
    "a long text": (env("{a: " + "x" * MAX_TEXT + "}"), "at most 262,144 bytes"),
    "a text repeated": (env("{a: &x " + "x" * 100_000 + ", b: [*x, *x, *x]}"),
                        "at most 262,144 characters"),
    "a long name": (HEAD.replace("name: x", "name: " + "x" * 100_000) + "spec: 1",
                    "expected 1 to 63 of a-z"),
    "a long id": (HEAD + "spec: {env: {id: " + "x" * 100_000 + "}}",
                  "spec.env.id: expected at most 200 characters, found 'xx"),
    "a long list": (env("{a: [" + "0," * 30_000 + "]}"), "at most 20,000 values"),
    "many layers": (HEAD + "spec: {env: {id: A-v0}, learner: {network: {hidden: ["
                    + "1," * 15_000 + "]}}}", "hidden: expected at most 64 of them"),
    "many unknown keys": (HEAD + "spec: {" + ",".join(f"k{i}: 0" for i in range(9_000))
                          + "}", "and 8,981 more"),
    "many wrong values": (HEAD + "spec: {env: {id: A-v0}, learner: {network: {"
                          "observationScale: [" + "x," * 15_000 + "]}}}",
                          "and 14,980 more"),
    "a long unknown key": (HEAD + "? " + "k" * 100_000 + "\n: 1", "known key"),
    "keys of another terminal": (HEAD + 'spec: {"\\e[31m\\n": 1, env: {id: A-v0}}',
                                 "known key"),
    "two documents": (HEAD + "---\n" + HEAD, "another document"),
    "control characters": ("a: \x00", "expected YAML"),
    "broken": ("a: [1\nb: {", "expected YAML, found: did not find"),
    "a tab": ("a:\n\t- 1", "expected YAML"),
    "a list": ("[1, 2]", "expected a mapping, found .1, 2."),
    "nothing": ("", "expected a mapping, found None"),
    "comments": ("# " * 100_000, "expected a mapping, found None"),
    "not even text": (b"\xff\xfe\x00\xd8", "expected UTF-8, found"),
}  # fmt: skip


@pytest.mark.parametrize("text, says", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_refused_at_once(tmp_path, text, says):
    path = tmp_path / "hostile.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    check_refused(lambda: load_file(path), says)


HOSTILE_JSON = {
    "nested": ("[" * 100_000, "levels"),
    "nested within": ('{"spec": ' * 5_000, "levels"),
    "long": (" " * (MAX_TEXT + 1), "at most 262,144 characters"),
    "a key twice": ('{"kind": 1, "kind": 2}', "each key once, found 'kind' again"),
    "not a number": ('{"seed": NaN}', "finite number, found NaN"),
    "infinite": ('{"seed": -Infinity}', "finite number, found -Infinity"),
    "overflowing": ('{"seed": 1e999}', "seed: expected a finite number, found inf"),
    "many digits": ('{"seed": ' + "9" * 5_000 + "}", "5000 digits"),
    "half a pair": ('{"kind": "\\ud800"}', "whole characters"),
    "half a pair as a key": ('{"\\udfff": 1}', "expected texts as keys"),
    "not JSON": ("{'a': 1}", "expected JSON, found"),
    "a text": ('"spec"', "expected a mapping, found 'spec'"),
}


@pytest.mark.parametrize("text, says", HOSTILE_JSON.values(), ids=HOSTILE_JSON)
def test_a_hostile_record_is_refused_at_once(text, says):
    check_refused(lambda: parse_json(text), says)


def check_refused(load, says):
    started_s = time.process_time()
    with pytest.raises(SpecError, match=says) as refusal:
        load()
    assert time.process_time() - started_s < LIMIT_S
    problems = refusal.value.problems
    assert 0 < len(problems) <= MAX_PROBLEMS + 1
    for problem in problems:
        assert problem.isprintable() and len(problem) < 600, problem
    tracemalloc.start()
    try:
        with pytest.raises(SpecError):
            load()
        assert tracemalloc.get_traced_memory()[1] < LIMIT_BYTES
    finally:
        tracemalloc.stop()


def test_the_number_of_levels_is_the_same_in_every_language():
    # Within spec.env.kwargs.a there are 28 more.
    for extra, fine in ((MAX_DEPTH - 4, True), (MAX_DEPTH - 3, False)):
        text = json.dumps(load_yaml(env("{a: 1}")))
        text = text.replace('"a": 1', '"a": ' + "[" * extra + "]" * extra)
        for load in (parse_json, lambda text: from_values(load_yaml(text))):
            if fine:
                load(text)
            else:
                check_refused(lambda load=load, text=text: load(text), "at most 32")


def test_values_of_no_text_are_refused():
    endless = []
    endless.append(endless)
    for value in (endless, {"a": {1, 2}}, {"a": b"x"}, {"a": object()}, {"a": 2j}):
        with pytest.raises(SpecError):
            from_values({"kind": value})


def test_a_spec_is_not_longer_than_its_record_may_be():
    values = load_values(SAMPLE)
    values["spec"]["env"]["kwargs"] = {f"k{i}": "é" * 40 for i in range(1_500)}
    with pytest.raises(SpecError, match="expected a spec of at most 245,760 char"):
        from_values(values)  # each é is six characters of JSON
    values["spec"]["env"]["kwargs"] = {f"k{i}": "e" * 40 for i in range(1_500)}
    assert len(from_values(values).to_json()) < 245_760


def test_an_alias_is_read_and_changed_in_one_place_only():
    text = env("{a: &x {b: 1}, c: *x}")
    values = load_yaml(text)
    changed = apply_overrides(values, ["spec.env.kwargs.a.b=2"])
    assert changed["spec"]["env"]["kwargs"] == {"a": {"b": 2}, "c": {"b": 1}}
    from_values(changed)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001), ("3E+4", 30_000.0), ("1.", 1.0), (".5", 0.5), ("-2", -2),
        ("010", 10), ("0x1f", 31), ("0o17", 15), ("1_000", "1_000"), ("0b1", "0b1"),
        ("12:30", "12:30"), ("2001-01-01", "2001-01-01"), ("yes", "yes"), ("on", "on"),
        ("no", "no"), ("true", True), ("True", True), ("~", None), ("", None),
        ("null", None), ("'1'", "1"), ("1e5 # x", 1e5), ("[1, 2.5, a]", [1, 2.5, "a"]),
        ("20GB", "20GB"), ("=", "="), ("<<", "<<"), ("CartPole-v1", "CartPole-v1"),
    ],
)  # fmt: skip
def test_yaml_is_read_as_editors_read_it(text, value):
    found = load_yaml(f"a: {text}")["a"]
    assert found == value and type(found) is type(value)


def test_json_files_are_read_as_json(tmp_path):
    path = tmp_path / "x.json"
    values = load_values(SAMPLE)
    values["spec"]["env"]["kwargs"] = {"name": "\U0001f916"}
    path.write_text("﻿" + json.dumps(values, indent="\t"), "utf-8")
    assert load_file(path) == from_values(values)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
WHERE = st.sampled_from(
    ["metadata", "spec", "spec.env", "spec.env.wrappers", "spec.workers.resources",
     "spec.workers.nodeSelector", "spec.learner.network.hidden", "spec.topics",
     "spec.topics.diskBudget", "spec.stop", "spec.env.kwargs", "spec.env.id"]
)  # fmt: skip
calmly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(WHERE, PLAIN)
@calmly
def test_any_value_anywhere_is_accepted_or_refused(path, value):
    values = load_values(SAMPLE)
    target = values
    *parents, last = path.split(".")
    for parent in parents:
        target = target.setdefault(parent, {})
    target[last] = value
    try:
        experiment = from_values(values)
    except SpecError as exc:
        assert all(line.isprintable() and len(line) < 600 for line in exc.problems)
    else:
        assert parse_json(experiment.to_json()) == experiment


@given(st.text() | st.binary().map(lambda b: b.decode("latin-1")))
@calmly
def test_any_text_is_read_or_refused(text):
    for load in (load_yaml, load_json):
        try:
            load(text)
        except SpecError as exc:
            assert all(line.isprintable() and len(line) < 600 for line in exc.problems)


@given(st.data())
@calmly
def test_the_sample_with_a_piece_gone_or_doubled_is_read_or_refused(data):
    text = SAMPLE.read_text()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    for changed in (text[:start] + text[end:], text[:end] + text[start:]):
        try:
            from_values(load_yaml(changed))
        except SpecError as exc:
            assert all(line.isprintable() for line in exc.problems)
