"""A pole is balanced by a learner that has never touched an environment."""

import json
import os
import secrets
import subprocess
import sys

import pytest

from infra.kafka.reading import read_to_end
from schemas.codec import decode
from schemas.records import Member
from schemas.topics import MEMBERS, topic_name
from tests.unit.test_experiment import SAMPLE

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]
OFFLINE = SAMPLE.with_name("cartpole-offline.yaml")


@pytest.fixture(scope="module")
def run(settings, tmp_path_factory):
    """Run an experiment to its end; return code, summary and what was shown."""

    def start(file, name, *arguments):
        found = subprocess.run(
            [sys.executable, "-m", "rollstream.cli", "run", str(file), "--json",
             "--set", f"metadata.name={name}", *arguments],
            capture_output=True, text=True, timeout=400,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        text = found.stdout.strip()
        return found.returncode, json.loads(text) if text else None, found.stderr

    return start


def named(word):
    """A name of this run of the tests alone: an experiment goes on where it was."""
    return f"pole-{word}-{secrets.token_hex(4)}"


@pytest.fixture(scope="module")
def source(run):
    name = named("live")
    # Not until it balances: by luck that is soon, and too little to learn from.
    code, summary, shown = run(SAMPLE, name, "--set", "spec.stop={envSteps: 150000}")
    assert code == 0, shown
    return name, summary


def test_a_learner_reaches_475_from_the_past_alone(run, source, settings):
    source_name, past = source
    name = named("offline")
    code, summary, shown = run(OFFLINE, name, "--from", source_name)
    assert code == 0, shown
    assert summary["eval_return_mean"] >= 475
    assert summary["lost_steps"] == summary["dead_letters"] == 0
    assert 0 < summary["env_steps"] <= past["env_steps"] * 2
    members = [
        decode(message.value, Member).role
        for message in read_to_end(settings, topic_name(MEMBERS, name))
    ]
    assert "replayer" in members and "worker" not in members


def test_a_past_that_ends_before_the_goal_ends_the_run(run, source):
    name, _ = source
    code, summary, shown = run(
        OFFLINE, named("short"), "--from", name,
        "--set", "spec.past.workers='0'", "--set", "spec.past.until=step:96",
        "--set", "spec.learner.replay.minSize=1000",
        "--set", "spec.learner.samplesPerInsert=1",
    )  # fmt: skip
    assert code == 3, shown
    assert "the past is learnt" in summary["reason"]
    assert summary["updates"] > 0 and not summary["reached"]


def test_a_past_that_cannot_be_replayed_ends_the_run_with_the_reason(run, source):
    code, _, shown = run(
        OFFLINE, named("nothing"), "--from", source[0],
        "--set", "spec.past.policyVersions=99999..",
    )  # fmt: skip
    assert code == 1 and "nothing chosen" in shown
    code, _, shown = run(
        OFFLINE, named("noon"), "--from", source[0], "--set", "spec.past.since=noon"
    )
    assert code == 2 and "spec.past: since: expected a time" in shown
