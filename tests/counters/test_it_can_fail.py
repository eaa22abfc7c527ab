"""Each counter finds what it is there for: planted here, in the production code."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import producers.packing
import producers.rollout
import producers.unrolls
import stream_processors.tails
import tests.counters.hot_paths as hot_paths
from learner.algorithms.trained import Trained
from learner.replay_buffer import ReplayBuffer
from schemas.tensors import pack
from tests.counters import expectations, log_counters, policy_counters
from tests.counters.counting import bytecodes, calls, kept_bytes, peak_bytes
from tests.counters.expectations import changes, differences
from tests.counters.hot_paths import Shape
from tests.counters.measured import (
    GROUPS,
    work_of_learner,
    work_of_processor,
    work_of_worker,
)
from tests.counters.test_counters import EXPECTED, PYTHON
from tests.counters.test_flatness import FEW, MANY, of_python

WORKER, PROCESSOR, LEARNER = (
    f"work, {role} 256 x 32" for role in ("worker", "processor", "learner")
)
BYTES = "bytes, CartPole 256 x 32"


def found_in(group):
    """The counters that are not as expected now."""
    same = expectations.python_version() == PYTHON
    told = differences(GROUPS[group](), EXPECTED[group], same_python=same)
    return {line.partition(":")[0] for line in told}


def look_at_each(column):
    """What nobody should do: in Python, environment by environment."""
    for each in column:
        float(each)


def test_a_loop_over_environments_in_a_worker(monkeypatch):
    real = producers.rollout._Buffers.write

    def write(self, t, actions, step):
        look_at_each(step.rewards)
        real(self, t, actions, step)

    monkeypatch.setattr(producers.rollout._Buffers, "write", write)
    assert of_python(work_of_worker(FEW)) != of_python(work_of_worker(MANY))
    assert {"bytecodes per unroll", "calls per unroll"} <= found_in(WORKER)


def test_a_loop_over_environments_in_a_processor(monkeypatch):
    real = stream_processors.tails.n_step

    def n_step(rewards, *columns, **options):
        look_at_each(rewards[0])
        return real(rewards, *columns, **options)

    monkeypatch.setattr(stream_processors.tails, "n_step", n_step)
    assert of_python(work_of_processor(FEW)) != of_python(work_of_processor(MANY))
    assert "bytecodes per unroll" in found_in(PROCESSOR)


def test_a_loop_over_rows_in_a_learner(monkeypatch):
    real = ReplayBuffer._link

    def link(self, chunk, slots, bootstrap_at):
        for _ in slots:  # nothing is called here: instructions alone tell
            pass
        real(self, chunk, slots, bootstrap_at)

    monkeypatch.setattr(ReplayBuffer, "_link", link)
    assert of_python(work_of_learner(FEW)) != of_python(work_of_learner(MANY))
    assert found_in(LEARNER) >= {"bytecodes per unroll"}


@pytest.mark.parametrize(
    ("group", "where", "stage"),
    [(WORKER, producers.unrolls, "encode"), (PROCESSOR, hot_paths, "compute")],
)
def test_one_more_copy_of_a_record(monkeypatch, group, where, stage):
    real = where.encode
    monkeypatch.setattr(where, "encode", lambda record: bytes(bytearray(real(record))))
    assert f"peak bytes per step, {stage}" in found_in(group)


def test_buffers_that_are_made_anew_for_each_unroll(monkeypatch):
    real = producers.rollout.Rollout.collect

    def collect(self, *arguments):
        self._buffers = None
        return real(self, *arguments)

    monkeypatch.setattr(producers.rollout.Rollout, "collect", collect)
    assert "peak bytes per step, collect" in found_in(WORKER)


def test_one_more_copy_in_a_learner(monkeypatch):
    real = ReplayBuffer._open

    def opened(self, batch):
        arrays = real(self, batch)
        copied = {name: column.copy() for name, column in arrays.observations.items()}
        return replace(arrays, observations=copied)

    monkeypatch.setattr(ReplayBuffer, "_open", opened)
    assert "peak bytes per step, learn" in found_in(LEARNER)


def test_columns_that_are_wider_than_they_were(monkeypatch):
    def wide(array, encoding="RAW"):
        is_rewards = array.dtype == np.float32 and array.ndim == 2
        return pack(array.astype(np.float64) if is_rewards else array, encoding)

    monkeypatch.setattr(producers.unrolls, "pack", wide)
    assert "unroll bytes per step" in found_in(BYTES)


def test_pictures_that_are_not_packed_any_more(monkeypatch):
    monkeypatch.setattr(producers.packing, "_PAYS_BELOW", 0.0)
    group = "bytes, pictures 8 x 32"
    assert found_in(group) >= {"unroll bytes per step", "batch bytes per step"}


def test_unrolls_that_are_cut_for_nothing(monkeypatch):
    limits = iter([False, True, True] * 100)
    monkeypatch.setattr(producers.unrolls, "fits_record", lambda *_: next(limits))
    assert "records per 1,000 steps" in found_in("bytes, four numbers 16 x 8")


@pytest.mark.kafka
def test_records_that_are_sent_and_read_twice(settings, make_topic, monkeypatch):
    records, receive = log_counters.records, log_counters.receive

    def twice(*arguments):
        return [value for value in records(*arguments) for _ in (0, 1)]

    def receive_all(settings, topic, expected):
        return receive(settings, topic, 2 * expected)

    monkeypatch.setattr(log_counters, "records", twice)
    monkeypatch.setattr(log_counters, "receive", receive_all)
    found = log_counters.measure(settings, make_topic)
    expected = EXPECTED[log_counters.GROUP]
    told = differences(found, expected, same_python=True)
    assert len(told) == len(expected), told


@pytest.mark.kafka
def test_versions_of_a_policy_that_are_wider(settings, monkeypatch):
    real = Trained.policy_tensors

    def wide(self):
        return {name: each.astype(np.float64) for name, each in real(self).items()}

    monkeypatch.setattr(Trained, "policy_tensors", wide)
    found = policy_counters.measure(settings)
    expected = EXPECTED[policy_counters.GROUP]
    told = differences(found, expected, same_python=True)
    assert len(told) == len(expected), told


def test_what_is_counted():
    # A frame begins with RESUME; `for` over n items: two instructions and a jump each.
    def loop(n):
        for _ in range(n):
            pass

    few, many = (bytecodes(lambda n=n: loop(n)) for n in (10, 110))
    assert (many - few) % 100 == 0 and many > few
    assert calls(lambda: loop(5)) == 2
    assert calls(lambda: [len("a"), len("b")]) == 3
    assert bytecodes(lambda: loop(10)) == few


def test_what_memory_is_counted():
    assert 10**6 <= peak_bytes(lambda: (bytes(10**6), None)[1]) < 1.01 * 10**6
    # One at a time is no more than one.
    assert peak_bytes(lambda: [len(bytes(10**6)) for _ in range(3)]) < 1.01 * 10**6
    kept: list[np.ndarray] = []
    found = kept_bytes(lambda: kept.append(np.zeros(10**5, np.uint8)), 4)
    assert 4 * 10**5 <= found < 4.04 * 10**5
    assert kept_bytes(lambda: np.zeros(10**5, np.uint8), 4) < 4000


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (1000, []),
        (1020, []),
        (1021, ["a: 1,000 -> 1,021 (+2.1%); 2% more is let be"]),
        (950, []),
        (949, ["a: 1,000 -> 949 (-5.1%): better; if that is meant, "]),
    ],
)
def test_a_little_more_is_let_be_and_less_has_to_be_written_down(now, told):
    found = differences({"a": now}, {"a": 1000}, same_python=True)
    assert len(found) == len(told)
    assert all(line.startswith(part) for line, part in zip(found, told, strict=True))


def test_a_counter_that_nobody_expects_or_that_is_gone():
    found = differences({"new": 1, "same": 2}, {"old": 1, "same": 2}, same_python=True)
    assert [line.partition(":")[0] for line in found] == ["new", "old"]


def test_another_python_has_other_bytecodes_and_the_same_bytes():
    expected = {"bytecodes per unroll": 1000, "bytes per step": 1000}
    found = {"bytecodes per unroll": 1140, "bytes per step": 1040}
    (line,) = differences(found, expected, same_python=False)
    assert line.startswith("bytes per step")


def test_an_update_tells_what_has_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(expectations, "FILE", tmp_path / "expected.json")
    before = {"g": {"a": 100, "b": 1.5}}
    expectations.save(before)
    assert expectations.load() == (expectations.python_version(), before)
    assert json.loads(expectations.FILE.read_text())["counters"]["g"]["b"] == 1.5
    told = changes(before, {"g": {"a": 110, "c": 2}, "h": {"b": 1}})
    assert told == [
        "g: a: 100 -> 110 (+10.0%)",
        "g: b: 1.5 -> nothing",
        "g: c: nothing -> 2",
        "h: b: nothing -> 1",
    ]
    assert changes({"g": {"a": 1}}, {"g": {"a": 1}}) == []


def test_it_is_the_same_again():
    """Also beside other work: nothing here looks at a clock."""
    shape = Shape(16, 16)
    found = [work_of_worker(shape) for _ in range(3)]
    assert of_python(found[0]) == of_python(found[1]) == of_python(found[2])
