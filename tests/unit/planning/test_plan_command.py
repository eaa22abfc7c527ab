"""`rollstream plan`: what it says, and what it refuses."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from infra.planning.growth import make_plan
from infra.planning.limits import Host
from infra.planning.workload import EnvFacts, workload_of
from rollstream.cli import app
from rollstream.errors import exits_with_a_message
from rollstream.plan_display import as_object, show
from schemas.experiment import load_file
from tests.unit.learner_specs import box, discrete, environment
from tests.unit.planning.works import COSTS

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "infra/experiments/cartpole-5000.yaml"
GOLDEN = Path(__file__).parent / "cartpole-5000.txt"
FACTS = EnvFacts(0.1, valid_share=0.957)
SAID = ["--observation", "4:float32", "--action", "2", "--env-step-us", "0.1"]


def sample_plan(**more):
    experiment = load_file(SAMPLE)
    env = environment(box((4,)), action=discrete(2))
    work = workload_of(experiment.spec, env, FACTS)
    return make_plan(work, Host(2, 1.25e9), COSTS, **more)


def shown(plan):
    text = StringIO()
    show("cartpole-5000", FACTS, plan, Console(file=text, width=150))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def test_the_text_of_a_sample():
    """Costs are round ones: what is measured changes with the machine."""
    assert shown(sample_plan()) == GOLDEN.read_text()


def test_what_is_asked_for_and_not_carried_is_said():
    text = shown(sample_plan(rate=1e6))
    assert "of 1,000,000 offered, with hosts enough, held by: learner" in text


def test_json_has_what_the_text_has():
    found = json.loads(
        json.dumps(as_object("x", FACTS, sample_plan()), allow_nan=False)
    )
    assert found["work"]["most_steps_per_s"] is None  # no limit
    row = found["rows"][0]
    assert row["num_envs"] == 5_000 and row["held_by"] == "learner"
    names = [limit["name"] for limit in row["limits"]]
    assert {each["name"] for each in found["saturations"]} <= set(names)
    assert found["constants"]["metrics_point_us"] == COSTS.metrics_point_us


def planned(*words):
    return CliRunner().invoke(app, ["plan", *map(str, words)])


def test_an_environment_that_is_described_is_not_made():
    found = planned(SAMPLE, *SAID, "--json", "--set", "spec.env.id=nobody/Has-v1")
    assert found.exit_code == 0
    assert json.loads(found.stdout)["environment"]["source"] == "said"


def test_an_environment_that_is_here_is_measured():
    found = planned(SAMPLE, "--json", "--envs", "20000", "--envs", "50")
    assert found.exit_code == 0
    values = json.loads(found.stdout)
    assert values["environment"]["us_per_step"] > 0
    assert 0.9 < values["environment"]["valid_share"] < 1  # about 22 steps an episode
    assert [row["num_envs"] for row in values["rows"]] == [5_000, 20_000, 50]


REFUSED = {
    ("--observation", "4:float32"): "expected with --action",
    ("--observation", "4:float32", "--action", "2"): "--env-step-us: expected",
    (*SAID[:1], "4", *SAID[2:]): "--observation: expected something like",
    (*SAID[:3], "x", *SAID[4:]): "--action: expected something like",
    ("--set", "spec.env.id=nobody/Has-v1"): "to plan without it say what it is",
    ("--set", "spec.workers.replicas=0"): "expected workers to plan for, found 0",
    (*SAID[:1], "9000x9000:uint8", *SAID[2:]): "fewer envsPerWorker",
}


@pytest.mark.parametrize("words", list(REFUSED))
def test_refusals_say_what_to_mend(words, capsys):
    with pytest.raises(SystemExit) as ended, exits_with_a_message():
        CliRunner().invoke(app, ["plan", str(SAMPLE), *words], catch_exceptions=False)
    assert ended.value.code == 2
    assert REFUSED[words] in capsys.readouterr().err
