"""Events on a real broker, as a person follows them."""

import pytest

from infra.control.experiments import publish_experiment
from infra.control.members import ensure_experiment_topics
from infra.kafka.clients import make_producer
from infra.kafka.delivery import Sender
from infra.kafka.topic_admin import delete_topics
from infra.monitoring.experiment_events import make_event
from schemas.codec import encode
from schemas.records import Event
from schemas.topics import EVENTS, topic_name
from tests.integration.command_rig import interrupted, lines_of
from tests.unit.envs.graphs import RUN_ID
from tests.unit.envs.trial import Trial, until

pytestmark = pytest.mark.kafka


@pytest.fixture
def trial(settings):
    made = Trial(settings)
    yield made
    made.close()


def test_events_are_followed_on_the_broker_over_runs(trial, command):
    writer = Teller(trial.sender, trial.name, RUN_ID)
    Teller(trial.sender, trial.name, "older").event(
        "worker", 0, "failed", "alert", "of an older run"
    )
    writer.event("worker", 0, "started", "info", "zero")
    writer.event("worker", 1, "restarted", "warning", "one")
    trial.sender.flush(30)
    process, out, error = command("events", trial.name, "-f", "--json")
    severe, severe_out, _ = command(
        "events", trial.name, "-f", "-n", "1", "--severity", "warning", "--json"
    )

    def reasons(path):
        return [line["reason"] for line in lines_of(path)]

    until(lambda: (reasons(out), reasons(severe_out)) == (["zero", "one"], ["one"]))
    # Other people's records say nothing; those of the older run are not asked for.
    trial.sender.send(topic_name(EVENTS, trial.name), b"garbage", "x")
    Teller(trial.sender, trial.name, "older").event(
        "worker", 0, "failed", "alert", "late"
    )
    writer.event("experiment", 0, "degraded", "alert", "two")
    trial.sender.flush(30)
    until(lambda: reasons(out) == ["zero", "one", "two"])
    until(lambda: reasons(severe_out) == ["one", "two"])
    publish_experiment(
        trial.sender, trial.experiment(), "run-2", trial.published.offset
    )
    writer.event("worker", 0, "stopped", "info", "three, while it is the older run")
    Teller(trial.sender, trial.name, "run-2").event(
        "worker", 0, "started", "info", "four"
    )
    trial.sender.flush(30)
    until(lambda: reasons(out)[-1] == "four")
    writer.event("worker", 0, "stopped", "info", "five, of the older run")
    Teller(trial.sender, trial.name, "run-2").event(
        "worker", 0, "stopped", "warning", "six"
    )
    trial.sender.flush(30)
    until(lambda: reasons(out)[-1] == "six")
    assert reasons(out)[:3] == ["zero", "one", "two"]
    assert reasons(out)[-2:] == ["four", "six"]
    until(lambda: reasons(severe_out) == ["one", "two", "six"])
    assert interrupted(process) == 130 and interrupted(severe) == 130
    assert error.read_text() == ""
    first = lines_of(out)[0]
    assert first.pop("time").endswith("Z") and first.pop("offset") == 1
    assert first == {
        "experiment": trial.name, "run_id": RUN_ID, "severity": "info",
        "role": "worker", "index": 0, "kind": "started", "reason": "zero",
    }  # fmt: skip


def test_events_are_chosen_by_kind_role_and_run(trial, rollstream, shown):
    old = Teller(trial.sender, trial.name, "older")
    old.event("worker", 0, "failed", "alert", "old")
    writer = Teller(trial.sender, trial.name, RUN_ID)
    for index in range(3):
        writer.event("worker", index, "restarted", "warning", f"w{index}")
    writer.event("learner", 0, "restarted", "warning", "l\x1b[31m\n\udc80" + "x" * 9000)
    strange = Event(trial.name, RUN_ID, "worker", 0, "new-kind", "grave", "s", 0)
    trial.sender.send(topic_name(EVENTS, trial.name), encode(strange), "worker/0")
    trial.sender.flush(30)

    def reasons(*arguments):
        return [line["reason"][:2] for line in shown("events", trial.name, *arguments)]

    assert reasons() == ["w0", "w1", "w2", "l\x1b", "s"]
    assert reasons("-n", "2") == ["l\x1b", "s"]
    assert reasons("--role", "worker/1") == ["w1"]
    assert reasons("--role", "worker", "--kind", "restarted") == ["w0", "w1", "w2"]
    assert reasons("--severity", "alert") == ["s"]
    assert reasons("--all", "--severity", "alert") == ["ol", "s"]
    nothing = ("events", trial.name, "--kind", "scaled")
    assert rollstream(*nothing) == (
        0, "", f"rollstream: no such events of {trial.name}; "
        "--all shows those of earlier runs, too\n",
    )  # fmt: skip
    code, out, error = rollstream(*nothing, "--all", "--json")
    assert (code, out) == (0, "") and error.endswith(f"events of {trial.name}\n")
    _, text, _ = rollstream("events", trial.name, "--role", "learner")
    assert "\x1b" not in text and len(text.splitlines()) == 1
    assert "warning  learner/0     restarted: l" in text and 4_090 < len(text) < 4_200
    code, _, error = rollstream("events", "nobody")
    assert code == 1 and "found 'nobody'" in error


def test_who_follows_events_is_told_when_the_topic_is_gone(trial, command):
    process, out, error = command("events", trial.name, "-f", "--all", "--json")
    Teller(trial.sender, trial.name, "r").event("worker", 0, "failed", "info", "x")
    trial.sender.flush(30)
    until(lambda: lines_of(out))
    delete_topics(trial.settings, [topic_name(EVENTS, trial.name)])
    assert process.wait(90) == 1
    assert "it was deleted" in error.read_text()


def test_events_of_a_topic_that_was_made_anew_are_followed(trial, command):
    process, out, _ = command("events", trial.name, "-f", "--all", "--json")
    writer = Teller(trial.sender, trial.name, "r")
    for reason in ("one", "two", "three"):
        writer.event("worker", 0, "failed", "info", reason)
    trial.sender.flush(30)
    until(lambda: len(lines_of(out)) == 3)
    delete_topics(trial.settings, [topic_name(EVENTS, trial.name)])
    ensure_experiment_topics(trial.settings, trial.experiment())
    writer = Teller(sender_of(trial.settings), trial.name, "r")
    writer.event("worker", 0, "failed", "info", "four")
    until(lambda: len(lines_of(out)) == 4)
    assert lines_of(out)[-1]["reason"] == "four" and lines_of(out)[-1]["offset"] == 0
    assert interrupted(process) == 130


class Teller:
    """Tells of any role of one run."""

    def __init__(self, sender, name, run_id):
        self._sender, self._of = sender, (name, run_id)

    def event(self, role, index, kind, severity, reason):
        event = make_event(*self._of, role, index, kind, severity, reason)
        self._sender.send(
            topic_name(EVENTS, self._of[0]), encode(event), f"{role}/{index}"
        )


def sender_of(settings):
    return Sender(make_producer(settings, client_id="test-events"))
