"""What could not be used is put back after a fix: once, and learnt once."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest

from infra.kafka import transactions
from infra.kafka.clients import make_producer
from infra.kafka.dead_letters import REINJECTED, dead_letter, read_letters
from infra.kafka.reading import read_to_end
from infra.kafka.reinjection import Reinjector, Superseded
from rollstream.dead_letter_names import UnknownLetter
from rollstream.dead_letters_command import BadUse, dead_letters
from schemas.codec import decode, encode
from schemas.records import SourceRef, StreamEnd, TransitionBatch, Unroll
from schemas.tensors import pack
from schemas.topics import DEAD_LETTERS, METRICS, REPLAY, TRAJECTORIES
from tests.integration import pipeline_rig
from tests.integration.learner_rig import (  # noqa: F401
    cached_export,
    experiment,
    make_batch,
)
from tests.integration.pipeline_rig import (
    ROWS,
    STEPS,
    PipelineRig,
    make_unroll,
    processor,
    put,
    records,
)
from tests.integration.processor_rig import PATIENT
from tests.integration.topic_limits import limit

pytestmark = pytest.mark.kafka

# A machine that stalls ends no transaction.
OPEN_MS = 60_000
OPEN_LONG = f"from infra.kafka import transactions\ntransactions.OPEN_MS = {OPEN_MS}\n"

# Before its code is mended, this processor cannot use w1's unroll 4.
DEFECT = """
import stream_processors.tails as tails
from schemas.errors import SchemaError
mended = tails.open_rows
def open_rows(unroll):
    if (unroll.worker, unroll.sequence) == ("w1", 4):
        raise SchemaError("rewards: expected what the defect expects")
    return mended(unroll)
tails.open_rows = open_rows
"""


def bury(rig, value, source=None, error="planted"):
    """Write a dead letter as the processor does; return its number."""
    offset = len(list(read_to_end(rig.settings, rig.topic(DEAD_LETTERS))))
    source = source or SourceRef(rig.topic(TRAJECTORIES), 0, 1_000_000 + offset)
    dead_letter(rig.sender, rig.context("processor"), source, b"w0", value, error)
    assert rig.sender.flush(60) == 0
    return read_letters(rig.settings, rig.name)[-1].number


def command(rig, capsys, *names, action="reinject", code=0, **options):
    """Run the command; return what it printed as JSON."""
    values = {"all_letters": False, "dry_run": False} | options
    found = dead_letters(
        rig.settings, rig.name, action, [str(n) for n in names], as_json=True, **values
    )
    assert found == code
    return json.loads(capsys.readouterr().out)


def states(outcomes):
    return {outcome["number"]: outcome["state"] for outcome in outcomes}


def test_what_a_defect_and_a_limit_refused_is_recovered_and_learnt_once(rig, capsys):
    rig.start_worker(0)
    first, second = rig.start_worker(0), rig.start_worker(1)
    learner = rig.start_thread()

    def wait(**expected):
        pipeline_rig.wait(rig, learner, **expected)

    # A processor with a defect: w1's stream has a hole, goes on, and ends.
    with processor(rig, PATIENT + DEFECT):
        for sequence in range(7):
            put(rig, make_unroll(rig, "w1", second, sequence))
        put(rig, StreamEnd(rig.name, rig.run_id, "w1", second, "done", 0))
        wait(env_steps=6 * ROWS, lost_steps=STEPS)

    # A limit that is too low: w0's unroll 2 is larger than its letter, too.
    limit(rig.settings, rig.topic(REPLAY), 30_000)
    padding = np.random.default_rng(0).integers(0, 256, (8, 8, 1200), np.uint8)
    with processor(rig, PATIENT):
        for sequence in range(5):
            more = {"infos": {"padding": pack(padding)}} if sequence == 2 else {}
            put(rig, make_unroll(rig, "w0", first, sequence, **more))
        put(rig, StreamEnd(rig.name, rig.run_id, "w0", first, "done", 0))
        wait(env_steps=10 * ROWS, lost_steps=2 * STEPS)
        by_defect, by_size = command(rig, capsys, action="list")
        assert by_defect["error"].startswith("rewards: expected what")
        assert "refused for its size" in by_size["error"]
        assert by_size["bytes"] > 64_000
        assert {by_defect["reinjected"], by_size["reinjected"]} == {None}

        would = command(rig, capsys, all_letters=True, dry_run=True)
        assert states(would) == {
            by_defect["number"]: "would be",
            by_size["number"]: "refused",
        }
        before = len(list(records(rig, TRAJECTORIES)))
        done = command(rig, capsys, all_letters=True)
        assert states(done) == {
            by_defect["number"]: "reinjected",
            by_size["number"]: "refused",
        }
        assert "still larger" in done[1]["detail"]
        wait(env_steps=11 * ROWS, lost_steps=STEPS, recovered_steps=STEPS)

        # The processor that made the batch in vain still remembers its stream.
        limit(rig.settings, rig.topic(REPLAY), 1_000_000)
        done = command(rig, capsys, by_size["source"])
        assert states(done) == {by_size["number"]: "reinjected"}
        wait(env_steps=12 * ROWS, lost_steps=0, recovered_steps=2 * STEPS)

        assert command(rig, capsys, all_letters=True) == []
        again = command(rig, capsys, by_size["number"], by_defect["number"])
        assert {outcome["state"] for outcome in again} == {"was before"}
        assert len(list(records(rig, TRAJECTORIES))) == before + 2

        # Whatever a person does: the learner takes no step twice.
        value = encode(make_unroll(rig, "w1", second, 4))
        producer = make_producer(rig.settings, client_id="a-person")
        producer.produce(
            rig.topic(TRAJECTORIES), value, "w1", 1, headers={REINJECTED: "0"}
        )
        assert producer.flush(60) == 0
        wait(duplicate_steps=ROWS, env_steps=12 * ROWS, lost_steps=0)
    assert rig.unique_rows == 12 * ROWS
    assert learner.stop() == 0
    _check_put_back_batches(rig)


def _check_put_back_batches(rig):
    """They stand alone: returns end with the unroll, and no other was changed."""
    batches = [decode(m.value, TransitionBatch) for m in records(rig, REPLAY)]
    whole = np.full(8, 3)
    alone = np.array([3, 3, 3, 3, 3, 3, 2, 1])
    for batch in batches:
        cut = (batch.worker, batch.sequence) in {
            ("w1", 4), ("w0", 2),  # put back
            ("w1", 3), ("w0", 4), ("w1", 6),  # before a hole, or the stream's end
        }  # fmt: skip
        expected = alone if cut else whole
        np.testing.assert_array_equal(batch.bootstrap_steps.array()[:, 1], expected)


def test_a_learners_letter_goes_back_to_the_replay_topic(rig, capsys):
    incarnation = rig.start_worker()
    batches = {
        n: make_batch(rig.name, rig.run_id, "w0", incarnation, n) for n in (0, 1, 2)
    }
    rig.send("w0", incarnation, 0, 2)
    source = SourceRef(rig.topic(REPLAY), 0, 999)
    number = bury(rig, encode(batches[1]), source)
    learner = rig.start_thread()
    rig.wait_for(lambda: rig.metrics().get("lost_steps") == STEPS, learner=learner)
    (outcome,) = command(rig, capsys, number)
    assert outcome["detail"].startswith(f"{rig.topic(REPLAY)}[0]@")
    pipeline_rig.wait(
        rig, learner, recovered_steps=STEPS, lost_steps=0, env_steps=3 * ROWS
    )
    assert learner.stop() == 0


def test_what_cannot_be_used_stays_and_says_why(rig, capsys):
    good = make_unroll(rig, "w0", 3, 0)
    value = encode(good)
    foreign = encode(dataclasses.replace(good, run_id="another-run"))
    here = rig.topic(TRAJECTORIES)
    large = value + bytes(70_000)
    rig.sender.send_and_wait(here, b"another record", "w0", 0)
    refused = {
        "found 371": bury(rig, value[: len(value) // 2], error="found 371"),
        "expected the first byte 0": bury(rig, b"\x07" + value[1:]),
        "expected a known schema id": bury(rig, b"\0\x12\x34\x56\x78" + value[5:]),
        "of the run another-run": bury(rig, foreign),
        "before it was in any log": bury(rig, large, SourceRef(here, 0, -1)),
        "is no longer in the log": bury(rig, large, SourceRef(here, 0, 77)),
        "is another record now": bury(rig, large, SourceRef(here, 0, 0)),
        "nobody reads": bury(rig, value, SourceRef(rig.topic(METRICS), 0, 0)),
    }
    numbers = list(refused.values())
    outcomes = command(rig, capsys, all_letters=True)
    assert states(outcomes) == dict.fromkeys(numbers, "refused")
    details = {outcome["number"]: outcome["detail"] for outcome in outcomes}
    for reason, number in list(refused.items())[1:]:
        assert reason in details[number]
    assert "it still cannot be used: /" in details[numbers[0]]
    assert command(rig, capsys, numbers[1], code=1) == outcomes[1:2]
    assert len(list(records(rig, TRAJECTORIES))) == 1
    with pytest.raises(UnknownLetter, match="expected a number of the list"):
        command(rig, capsys, 12_345)
    for words in ([], ["1", "2"]):
        with pytest.raises(BadUse, match="dead-letters: expected"):
            command(rig, capsys, *words, action="show")


def test_a_letter_is_shown_as_far_as_it_can_be_read(rig, capsys):
    value = encode(make_unroll(rig, "w0", 3, 5))
    broken = bury(rig, value[:-2_000], error="it was cut")
    fine = bury(rig, value)
    shown = command(rig, capsys, broken, action="show")
    assert (shown["magic"], shown["schema"]) == (0, "Unroll")
    assert shown["schema_known"] == "yes, shipped"
    # What follows the observations is some 1,200 bytes.
    assert (shown["decodes"], shown["field"]) == (False, "observations")
    assert shown["identity"]["worker"] == "w0"
    assert (shown["identity"]["incarnation"], shown["identity"]["sequence"]) == (3, 5)
    assert shown["head"][0].startswith("00000000  00 ")
    assert shown["value"] == "whole" and shown["reinjectable"].startswith("no: ")
    shown = command(rig, capsys, fine, action="show")
    assert shown["decodes"] is shown["reinjectable"] is True
    garbage = bury(rig, b"\x07random")
    shown = command(rig, capsys, garbage, action="show")
    assert shown["magic"] == "expected 0, found 7" and shown["identity"] == {}
    dead_letters(
        rig.settings, rig.name, "show", [str(broken)],
        all_letters=False, dry_run=False, as_json=False,
    )  # fmt: skip
    text = capsys.readouterr().out
    assert "worker w0" in text and "00000000  00 " in text


def test_without_letters_the_list_says_so(rig, capsys):
    assert command(rig, capsys, action="list") == []
    code = dead_letters(
        rig.settings, rig.name, "list", [],
        all_letters=False, dry_run=False, as_json=False,
    )  # fmt: skip
    assert code == 0 and "no dead letters" in capsys.readouterr().out


def test_a_record_that_was_buried_twice_is_put_back_once(rig, capsys):
    value = encode(make_unroll(rig, "w0", 3, 0))
    source = SourceRef(rig.topic(TRAJECTORIES), 0, 41)
    # Its reader was killed before it acknowledged, and read it again.
    first, second = bury(rig, value, source), bury(rig, value, source)
    assert states(command(rig, capsys, all_letters=True)) == {
        first: "reinjected",
        second: "was before",
    }
    wait_for(rig, [0])
    listed = command(rig, capsys, action="list")
    assert listed[0]["reinjected"] == listed[1]["reinjected"] is not None


def test_a_command_killed_between_record_and_mark_leaves_neither(rig, capsys):
    for sequence in range(3):
        bury(rig, encode(make_unroll(rig, "w0", 3, sequence)))
    kill_at_second = (
        "import os, signal\n"
        "from infra.kafka import reinjection\n"
        "commit, calls = reinjection.commit, []\n"
        "def kill_at_second(producer):\n"
        "    calls.append(1)\n"
        "    if len(calls) == 2: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    commit(producer)\n"
        "reinjection.commit = kill_at_second\n"
    )
    with _command_process(rig, kill_at_second) as killed:
        assert killed.wait(120) == -signal.SIGKILL
    # Without the next command, readers wait until the broker gives the killed one up.
    done = command(rig, capsys, all_letters=True)
    assert [outcome["state"] for outcome in done] == ["reinjected"] * 2
    wait_for(rig, [0, 1, 2])
    assert all(each["reinjected"] for each in command(rig, capsys, action="list"))


def test_two_commands_at_once_put_each_letter_back_once(rig, capsys):
    for sequence in range(12):
        bury(rig, encode(make_unroll(rig, "w0", 3, sequence)))
    with _command_process(rig) as one, _command_process(rig) as other:
        assert {process.wait(120) for process in (one, other)} <= {0, 1}
    command(rig, capsys, all_letters=True)
    wait_for(rig, list(range(12)))


def test_who_begins_later_ends_who_began_before(rig):
    values = [encode(make_unroll(rig, "w0", 3, n)) for n in range(2)]
    for value in values:
        bury(rig, value)
    older, newer = read_letters(rig.settings, rig.name)
    first, second = (Reinjector(rig.settings, rig.name, 2) for _ in range(2))
    first.begin()
    first.put_back(older, values[0])
    second.begin()
    with pytest.raises(Superseded, match="another process has begun"):
        first.put_back(newer, values[1])
    second.put_back(newer, values[1])
    wait_for(rig, [0, 1])


@contextmanager
def _command_process(rig, prelude=""):
    code = f"{OPEN_LONG}{prelude}\nfrom rollstream.cli import main\nmain()\n"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "dead-letters", rig.name, "reinject", "--all"],
        env={**os.environ, "ROLLSTREAM_DATA_DIR": str(rig.settings.data_dir)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(rig, sequences):
    """Wait for what was committed: brokers mark the end of a transaction afterwards."""

    def found():
        unrolls = records(rig, TRAJECTORIES, Unroll)
        return sorted(unroll.sequence for unroll in unrolls)

    pipeline_rig.wait_until(rig, lambda: len(found()) >= len(sequences), found)
    assert found() == sequences


@pytest.fixture
def rig(settings, cached_export, monkeypatch):  # noqa: F811
    monkeypatch.setattr(transactions, "OPEN_MS", OPEN_MS)
    rig = PipelineRig(settings, experiment())
    yield rig
    rig.close()
