"""Alerts of real experiments: who stalls is told of soon, and once, whoever watches."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from infra.kafka.reading import read_to_end
from infra.monitoring.status import read_status
from infra.settings import Settings
from rollstream.client import Client
from schemas.codec import decode
from schemas.records import Event, MetricsPoint
from schemas.topics import EVENTS, METRICS, topic_name
from tests.integration.agent_rig import SMALL, Fleet, small, until
from tests.role_processes import role_processes
from tests.unit.test_experiment import SAMPLE
from tests.unit.test_webhook import Receiver, receiving

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]

# From the contract, and what a busy machine needs on top.
TOLD_WITHIN_S = 10.0
SLACK_S = 5.0
# Nobody else does anything about it meanwhile.
UNTOUCHED = ("spec.health.deadAfterS=600", "spec.health.stuckAfterS=600")
# Three processes start, of which each loads what it computes with.
LEARNS_WITHIN_S = 200.0
KINDS = ("alert-on", "alert-off")


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with receiving() as found:
        yield found


@pytest.fixture
def freeze() -> Iterator[Callable[[int], None]]:
    """Freeze processes; let all go on that a failed test has left so."""
    frozen: list[int] = []

    def stop(pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        frozen.append(pid)

    yield stop
    for pid in frozen:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def told(settings: Settings, name: str) -> list[Event]:
    """Alerts of processors that went on and off, oldest first.

    On a busy machine a learner may be slow enough to be told of.
    """
    messages = read_to_end(settings, topic_name(EVENTS, name))
    events = [decode(message.value, Event) for message in messages]
    return [e for e in events if e.kind in KINDS and e.role == "processor"]


def kinds_of(events: list[Event]) -> list[tuple[str, str, str]]:
    return [(e.kind, e.role, e.reason.partition(":")[0]) for e in events]


def lag_history(settings: Settings, name: str) -> list[MetricsPoint]:
    found = []
    for message in read_to_end(settings, topic_name(METRICS, name)):
        if message.key == "monitor/0":
            found.append(decode(message.value, MetricsPoint))
    return found


def learns(settings: Settings, name: str) -> bool:
    return read_status(settings, name).summary.updates > 0


def pid_of(fleet: Fleet, name: str, role: str) -> int:
    (pid,) = fleet.processes(name)[role]
    return pid


def bodies(receiver: Receiver) -> list[dict[str, Any]]:
    found = [json.loads(body) for _, _, body in receiver.got]
    return [each for each in found if each["role"] == "processor"]


def shown_alerts(settings: Settings, name: str) -> list[str]:
    found = read_status(settings, name).alerts
    return [each.kind for each in found if each.role == "processor"]


@pytest.mark.heavy
def test_a_frozen_processor_is_told_of_and_that_it_goes_on(
    fleet: Fleet,
    settings: Settings,
    receiver: Receiver,
    freeze: Callable[[int], None],
) -> None:
    agent = fleet.start("--capacity", "cpu=4", ROLLSTREAM_ALERT_WEBHOOK=receiver.url)
    name = fleet.named("stalling")
    fleet.launch(small(name, *UNTOUCHED, "spec.alerts.webhook=true"))
    until(lambda: learns(settings, name), "it learns", LEARNS_WITHIN_S)
    until(lambda: len(lag_history(settings, name)) > 1, "its lag has a history")
    assert told(settings, name) == [], "nothing is wrong"

    victim = pid_of(fleet, name, "processor/0")
    freeze(victim)
    frozen_s = time.monotonic()
    (on,) = until(lambda: told(settings, name), "it is told of")
    told_after_s = time.monotonic() - frozen_s
    print(f"told of after {told_after_s:.1f} s: {on.reason}")
    assert (on.kind, on.role, on.severity) == ("alert-on", "processor", "alert")
    assert on.reason.startswith("stalled: ST")
    assert told_after_s < TOLD_WITHIN_S + SLACK_S
    assert shown_alerts(settings, name) == ["alert-on"]

    os.kill(victim, signal.SIGCONT)
    goes_on_s = time.monotonic()
    both = until(lambda: (t := told(settings, name))[1:] and t, "it is over")
    over_after_s = time.monotonic() - goes_on_s
    print(f"over after {over_after_s:.1f} s: {both[-1].reason}")
    assert kinds_of(both) == [
        ("alert-on", "processor", "stalled"),
        ("alert-off", "processor", "stalled"),
    ]
    assert both[-1].severity == "info"
    assert over_after_s < TOLD_WITHIN_S + SLACK_S
    assert shown_alerts(settings, name) == []

    until(lambda: len(bodies(receiver)) == 2, "it was posted")
    assert [each["state"] for each in bodies(receiver)] == ["on", "off"]
    assert f"stalled: {bodies(receiver)[0]['reason']}" == on.reason
    assert {each["experiment"] for each in bodies(receiver)} == {name}
    assert "s3cret" not in agent.text and "alert-on: stalled" in agent.text
    assert len(told(settings, name)) == 2 == len(bodies(receiver)), "once"


@pytest.mark.heavy
def test_the_next_leader_tells_nobody_twice(
    fleet: Fleet,
    settings: Settings,
    receiver: Receiver,
    freeze: Callable[[int], None],
) -> None:
    post = {"ROLLSTREAM_ALERT_WEBHOOK": receiver.url}
    first = fleet.start("--capacity", "cpu=0", **post)
    until(lambda: fleet.leader() == first.name, "the first leads")
    fleet.start("--capacity", "cpu=4", **post)
    name = fleet.named("handed-on")
    fleet.launch(small(name, *UNTOUCHED, "spec.alerts.webhook=true"))
    until(lambda: learns(settings, name), "it learns", LEARNS_WITHIN_S)
    victim = pid_of(fleet, name, "processor/0")
    freeze(victim)
    until(lambda: told(settings, name), "it is told of")
    until(lambda: len(bodies(receiver)) == 1, "it is posted")

    before = max(point.incarnation for point in lag_history(settings, name))
    first.signal(signal.SIGKILL)
    until(
        lambda: len({p.incarnation for p in lag_history(settings, name)}) > 1,
        "the next leader watches",
    )
    after = [p for p in lag_history(settings, name) if p.incarnation > before]
    until(lambda: len(lag_history(settings, name)) > len(after) + 2, "for a while")
    assert kinds_of(told(settings, name)) == [("alert-on", "processor", "stalled")]
    os.kill(victim, signal.SIGCONT)
    both = until(lambda: (t := told(settings, name))[1:] and t, "it is over")
    assert kinds_of(both)[1:] == [("alert-off", "processor", "stalled")]
    until(lambda: len(bodies(receiver)) == 2, "that is posted")
    assert [each["state"] for each in bodies(receiver)] == ["on", "off"]


def test_a_stopped_experiment_has_no_alerts(
    fleet: Fleet, settings: Settings, freeze: Callable[[int], None]
) -> None:
    fleet.start("--capacity", "cpu=4")
    name = fleet.named("alerts-stopped")
    # A bound that any lag is beyond.
    fleet.launch(small(name, *UNTOUCHED, "spec.alerts.lagS=0.001"))
    until(lambda: learns(settings, name), "it learns", LEARNS_WITHIN_S)
    freeze(pid_of(fleet, name, "processor/0"))
    until(lambda: ("alert-on", "processor", "late") in kinds_of(told(settings, name)),
          "it is late")  # fmt: skip
    with Client(settings) as client:
        assert client.stop(name).changed
    until(lambda: read_status(settings, name).alerts == (), "all are over")
    assert told(settings, name)[-1].reason.endswith("the experiment has ended")
    until(lambda: not fleet.processes(name), "its roles end")
    assert read_status(settings, name).alerts == ()


@pytest.mark.heavy
def test_what_is_stopped_while_nobody_leads_has_no_alerts(
    fleet: Fleet, settings: Settings, freeze: Callable[[int], None]
) -> None:
    first = fleet.start("--capacity", "cpu=4")
    name = fleet.named("stopped-alone")
    fleet.launch(small(name, *UNTOUCHED))
    until(lambda: learns(settings, name), "it learns", LEARNS_WITHIN_S)
    freeze(pid_of(fleet, name, "processor/0"))
    until(lambda: shown_alerts(settings, name), "it is told of")
    first.signal(signal.SIGKILL)
    with Client(settings) as client:
        assert client.stop(name).changed
    assert shown_alerts(settings, name) == ["alert-on"], "nobody is there to tell"
    fleet.start("--capacity", "cpu=4")
    until(lambda: read_status(settings, name).alerts == (), "all are over")
    assert told(settings, name)[-1].reason.endswith("the experiment has ended")


def test_a_foreground_run_watches_over_its_own(
    command: Callable[..., Any],
    settings: Settings,
    freeze: Callable[[int], None],
) -> None:
    name = f"alerts-run-{secrets.token_hex(3)}"
    changes = [f"metadata.name={name}", *SMALL]
    sets = [word for change in changes for word in ("--set", change)]
    process, out, err = command("run", str(SAMPLE), *sets)

    def says() -> str:
        assert process.poll() is None, err.read_text()
        return out.read_text() + err.read_text()

    until(
        lambda: "processor/0" in (says() and role_processes(name)),
        "it runs",
        LEARNS_WITHIN_S,
    )
    until(lambda: learns(settings, name), "it learns", LEARNS_WITHIN_S)
    until(lambda: lag_history(settings, name), "its lag has a history")
    assert lag_history(settings, name)[0].incarnation == 0
    # On a busy machine it may have been slow enough to be told of before.
    until(lambda: not shown_alerts(settings, name), "it does well")
    before = len(told(settings, name))

    def stalls() -> list[Event]:
        since = told(settings, name)[before:]
        return [e for e in since if e.reason.startswith("stalled: ")]

    freeze(role_processes(name)["processor/0"])
    until(stalls, "it is told of")
    until(lambda: "alert-on: stalled: " in says(), "also where it runs")
    process.send_signal(signal.SIGINT)
    assert process.wait(90) == 130
    events = stalls()
    assert kinds_of(events) == [
        ("alert-on", "processor", "stalled"),
        ("alert-off", "processor", "stalled"),
    ]
    assert events[-1].reason == "stalled: the run has ended"
