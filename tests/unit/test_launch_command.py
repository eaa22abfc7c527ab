"""What `launch` says of a sweep that fails midway, and `--follow` of a lonely one."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

import rollstream.client
from infra.control.desired import PublishedExperiment
from infra.control.launching import Launched
from infra.control.runs import Tick
from infra.control.watching import Moment
from infra.errors import RollstreamError
from infra.monitoring.progress import Progress
from infra.settings import Settings
from rollstream import following
from rollstream.cli import main
from rollstream.hints import NO_AGENT
from schemas.experiment import SpecError
from tests.unit.test_experiment import SAMPLE, values

SWEEP = ("launch", str(SAMPLE), "--sweep", "spec.processor.nStep=1,2,3")


class HalfClient:
    """Launches what there is room for; then it is as if somebody else were there."""

    settings = Settings()
    room, error = 2, RollstreamError("the brokers do not answer", "start them")

    def __init__(self):
        self.launched = []

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def check(self, *experiments):
        pass

    def agents(self):
        return ()

    def launch(self, experiment, fresh):
        if len(self.launched) == self.room:
            raise self.error
        self.launched.append(experiment)
        published = PublishedExperiment(experiment, "r1", len(self.launched), "agents")
        return Launched(published, True)


@pytest.fixture
def run(monkeypatch, capsys):
    def call(room, error, *arguments):
        monkeypatch.setattr(HalfClient, "room", room)
        monkeypatch.setattr(HalfClient, "error", error)
        monkeypatch.setattr(rollstream.client, "Client", HalfClient)
        monkeypatch.setattr(sys, "argv", ["rollstream", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, *capsys.readouterr()

    return call


@pytest.mark.parametrize(
    "error",
    [
        RollstreamError("the brokers do not answer", "start them"),
        SpecError(["spec.processor.gamma: expected 0.99"]),
    ],
)
def test_a_sweep_that_fails_midway_tells_what_it_has_launched(run, error):
    code, out, err = run(2, error, *SWEEP, "--json")
    first, second, third = json.loads(out)
    names = [f"cartpole-dqn-nstep{n}" for n in (1, 2, 3)]
    assert [row["experiment"] for row in (first, second, third)] == names
    assert [row["offset"] for row in (first, second)] == [1, 2]
    assert third == {"experiment": names[2], "error": str(error)}
    # Not 2: it is not so that nothing was published.
    assert code == 1
    assert f"{names[2]} is not launched, after 2 that are" in err


def test_a_sweep_that_fails_at_once_has_launched_nothing(run):
    code, out, err = run(0, SpecError(["no"]), *SWEEP, "--json")
    assert (code, len(json.loads(out))) == (2, 1) and "refused" in err
    code, out, _ = run(0, SpecError(["no"]), "launch", str(SAMPLE), "--json")
    assert (code, out) == (2, "")


def moment(wall_s, state="pending", reason="nobody has taken it on yet"):
    tick = Tick(Progress("r"), {}, wall_s, [])
    published = PublishedExperiment(values(), "r", 1, "agents")
    return Moment(published, tick, state, reason, None, state == "finished")


def test_who_follows_is_told_once_that_no_agent_runs(monkeypatch):
    agents = []  # of each time that it is asked
    monkeypatch.setattr(following, "ask_zookeeper", lambda *_: agents.pop(0))
    console = Console(file=io.StringIO(), width=100)
    client = SimpleNamespace(settings=Settings())
    teller = following._Teller(client, console)

    def said(*moments):
        for each in moments:
            teller.tell(each)
        text = console.file.getvalue()
        console.file.truncate(0)
        console.file.seek(0)
        return text.splitlines()

    agents[:] = [()]
    first = ["pending: nobody has taken it on yet", NO_AGENT]
    assert said(moment(0.1), moment(0.2), moment(4.9)) == first
    agents[:] = [(), None, ("a",), ()]  # nobody yet; not known; one; gone again
    assert said(*(moment(float(s)) for s in range(6, 21))) == []
    assert said(moment(26.0)) == [NO_AGENT] and agents == []
    # It runs: whoever runs it is there, and nobody is asked.
    assert said(moment(40.0, "running", "ok")) == ["running: ok"]
