"""What is in force, whoever wrote what into the topic of experiments."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.control.desired import MAX_REASON, MAX_RECORD_BYTES, Desired, Entry
from infra.kafka.reading import Message
from schemas.codec import encode
from schemas.experiment import from_values
from schemas.records import ExperimentSpec, StreamEnd
from tests.unit.test_experiment import values

NAME, RUN = "folded", "run1"


def spec(name=NAME, **overrides):
    return from_values(values(metadata__name=name, **overrides))


SPECS = [spec(spec__workers__replicas=count) for count in range(1, 6)]


def record(replaces=-1, experiment=SPECS[0], run_id=RUN, name=NAME, by="agents"):
    return encode(ExperimentSpec(name, run_id, experiment.to_json(), replaces, 0, by))


def message(offset, value, key=NAME):
    """A record of the topic; value None: a tombstone."""
    return Message("t", 0, offset, 0, key, value or b"", value is None)


def fold(*values_):
    desired = Desired()
    for offset, value in enumerate(values_):
        desired.apply(message(offset, value))
    return desired.of(NAME)


def offset_in_force(entry):
    return entry.accepted.offset if entry.accepted else None


def test_a_spec_is_in_force_until_another_replaces_it():
    entry = fold(record(), record(0, SPECS[1]))
    assert (offset_in_force(entry), entry.newest_offset) == (1, 1)
    assert entry.accepted.experiment == SPECS[1]
    assert (entry.accepted.run_id, entry.accepted.managed_by) == (RUN, "agents")
    assert entry.refused is None and not entry.deleted


def test_of_two_that_replace_the_same_the_first_wins():
    entry = fold(record(), record(0, SPECS[1]), record(0, SPECS[2]))
    assert (offset_in_force(entry), entry.newest_offset) == (1, 2)
    assert entry.refused.offset == 2
    assert "stale: expected it to replace offset 1, found 0" in entry.refused.reason


def test_the_newest_may_be_replaced_though_it_was_refused():
    entry = fold(record(), b"garbage", record(1, SPECS[1]))
    assert (offset_in_force(entry), entry.refused) == (2, None)


def test_the_first_is_accepted_whatever_it_replaces():
    assert offset_in_force(fold(record(77))) == 0
    # Also after records that nobody can read: what they hid may be compacted away.
    assert offset_in_force(fold(b"garbage", record(77))) == 1


@pytest.mark.parametrize(
    ("replaces", "accepted"), [(-1, True), (1, True), (0, False), (7, False)]
)
def test_a_late_change_does_not_resurrect(replaces, accepted):
    entry = fold(record(), None, record(replaces, SPECS[1]))
    assert entry.deleted is not accepted
    assert offset_in_force(entry) == (2 if accepted else None)


def test_after_a_late_change_there_may_be_a_new_beginning():
    for replaces in (-1, 1, 2):  # nothing, the tombstone, the late one
        entry = fold(record(), None, record(0, SPECS[1]), record(replaces))
        assert offset_in_force(entry) == 3
    assert fold(record(), None, record(0), None).tombstone_offset == 3


def test_data_of_one_run_is_not_mixed_and_another_run_may_begin():
    other = spec(spec__processor__gamma=0.5)
    entry = fold(record(), record(0, other))
    assert offset_in_force(entry) == 0
    assert "mix the run's data: spec.processor.gamma" in entry.refused.reason
    assert offset_in_force(fold(record(), record(0, other, "run2"))) == 1


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"", "expected a header"),
        (b"\0\0\0\0\1", "schema id"),
        (encode(StreamEnd(NAME, RUN, "w0", 1, "r", 5)), "expected ExperimentSpec"),
        (record(name="other"), "expected the name 'folded', found 'other'"),
        (record(experiment=spec("other")), "expected the name 'folded'"),
        (record(run_id="../../etc"), "expected a run id"),
        (record(by="root"), "managed_by: expected run or agents, found 'root'"),
        (b"\0" * (MAX_RECORD_BYTES + 1), "expected at most 262144 bytes"),
    ],
)  # fmt: skip
def test_what_is_refused_leaves_what_was_in_force(value, says):
    entry = fold(record(), value)
    assert (offset_in_force(entry), entry.newest_offset) == (0, 1)
    assert entry.refused.offset == 1 and says in entry.refused.reason


def hostile(text):
    return encode(ExperimentSpec(NAME, RUN, text, 0, 0, "agents"))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 50_000,
        "9" * 5_000,
        json.dumps({"\x1b[31m\n": "\ud800", "spec": {"sed": 1}}),
        json.dumps({f"k{i}": i for i in range(20_000)}),
        SPECS[0].to_json().replace('"CartPole-v1"', '"os:system"'),
        SPECS[0].to_json().replace("20000000000", '"' + "9" * 400 + 'GB"'),
        SPECS[0].to_json().replace("{}", '{"a":' * 900 + "1" + "}" * 900, 1),
    ],
    ids=range(8),
)  # fmt: skip
def test_hostile_specs_are_refused_in_one_printable_line(text):
    entry = fold(record(), hostile(text))
    assert offset_in_force(entry) == 0
    reason = entry.refused.reason
    assert reason and reason.isprintable() and len(reason) <= MAX_REASON


def test_a_hostile_key_is_only_a_key():
    desired = Desired()
    for offset, key in enumerate(["", "\x1b[31m", "a.b", "x" * 5_000]):
        found = desired.apply(message(offset, record(), key))
        assert found == (key or None)
    assert desired.in_force() == {}


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_refused_and_never_raise(garbage, with_header):
    # An ExperimentSpec's header, so that what follows is read as one.
    value = record()[:5] + garbage if with_header else garbage
    entry = fold(record(), value or b"x")
    assert offset_in_force(entry) == 0


Writers = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(["read", "write", "write", "write", "delete", "garbage"]),
    ),
    max_size=20,
)


def simulate(steps):
    """Writers that read at some time and write at another -> log, and what they know.

    Returns:
        records, and of each record of a spec the offset in force and the newest one
        that its writer had read; None: it had seen nothing, or a tombstone.
    """
    log, views, based_on = [], [Entry()] * 4, {}
    desired = Desired()
    for writer, action in steps:
        if action == "read":
            views[writer] = desired.of(NAME)
            continue
        offset, view = len(log), views[writer]
        value: bytes | None = b"garbage"
        if action == "delete":
            value = None
        elif action == "write":
            value = record(view.newest_offset, SPECS[offset % len(SPECS)])
            based_on[offset] = view
        log.append(value)
        desired.apply(message(offset, value))
    return log, based_on


@settings(max_examples=100, deadline=None)
@given(Writers)
def test_any_interleaving_of_writers_gives_a_chain(steps):
    """An independent oracle: who is accepted knew all that was in force before."""
    log, based_on = simulate(steps)
    desired, in_force, deleted_at = Desired(), None, None
    for offset, value in enumerate(log):
        desired.apply(message(offset, value))
        entry = desired.of(NAME)
        if value is None:
            in_force, deleted_at = None, offset
        elif offset in based_on and offset_in_force(entry) == offset:
            view = based_on[offset]
            if in_force is not None:  # it replaces what it had read: no lost update
                assert offset_in_force(view) == in_force
            elif deleted_at is not None:  # it had seen the end, or nothing ever
                assert view.newest_offset in (-1, *range(deleted_at, offset))
            in_force = offset
        assert offset_in_force(entry) == in_force
        assert entry.newest_offset == offset


@settings(max_examples=100, deadline=None)
@given(Writers)
def test_from_any_record_that_was_not_refused_on_the_log_says_the_same(steps):
    """What compaction leaves: the newest record up to some point, and what follows."""
    log, _ = simulate(steps)
    whole = fold(*log)
    for start in range(len(log)):
        if fold(*log[: start + 1]).refused is None:
            rest = Desired()
            for offset in range(start, len(log)):
                rest.apply(message(offset, log[offset]))
            # Only what is told of may be compacted away.
            assert replace(rest.of(NAME), last_refused=whole.last_refused) == whole


def test_a_refusal_is_known_until_another_spec_comes_in_force():
    """Also when it and its mend are read at once."""
    bad = fold(record(), b"garbage")
    assert bad.last_refused == bad.refused
    mended = fold(record(), b"garbage", record(1))
    assert (mended.refused, mended.last_refused) == (None, bad.refused)
    other = fold(record(), b"garbage", record(1), record(2, SPECS[1]))
    assert offset_in_force(other) == 3 and other.last_refused is None
    assert fold(record(), b"garbage", None).last_refused is None
