"""`rollstream init` writes what `validate` takes, whatever the environment."""

import json
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rollstream import cli
from rollstream.errors import exits_with_a_message
from rollstream.starter import SCHEMA_FILE, starter
from schemas.algorithms import BUILT_IN
from schemas.experiment import SpecError, from_values, load_file
from schemas.spec_text import load_yaml
from schemas.tensors import pack
from tests.unit.learner_specs import box, discrete, environment


def written(env, **more):
    return from_values(load_yaml(starter("mine", env, **more)))


def test_it_says_what_was_asked_for_and_explains_every_value():
    text = starter("mine", environment(), goal=475.0)
    experiment = from_values(load_yaml(text))
    assert experiment.name == "mine"
    assert experiment.spec.env.id == environment().env_id
    assert experiment.spec.stop.mean_return == 475
    lines = text.splitlines()
    assert max(map(len, lines)) <= 88
    for above, line in zip(lines, lines[1:], strict=False):
        if re.match(r"    +[a-z]\w*:", line):  # within a part of the spec
            assert above.strip().startswith("# "), line


def test_what_it_suggests_can_be_taken_as_it_stands():
    text = starter("mine", environment())
    taken = re.sub(r"# ([a-zA-Z]+: \S)", r"\1", text.partition("apiVersion")[2])
    spec = from_values(load_yaml("apiVersion" + taken)).spec
    assert spec.workers.most_replicas == 8
    assert spec.learner.node_selector == {"zone": "a"}
    assert spec.stop.wall_s == 3600 and spec.stop.mean_return == 100
    assert spec.env.frame_stack == 4


@pytest.mark.parametrize(
    "observation",
    [box(), discrete(16), box((84, 84), "|u1"), box((210, 160, 3), "|u1")],
)
def test_sizes_are_those_that_fit(observation):
    spec = written(environment(observation), memory_bytes=2 << 30).spec
    # The network divides bytes by 255 itself.
    assert spec.learner.network.observation_scale == ()
    is_large = observation.shape == (210, 160, 3)
    assert spec.learner.replay.capacity == (16_384 if is_large else 65_536)


def bounded(low, high):
    low, high = (pack(np.full(2, bound, np.float32)) for bound in (low, high))
    return replace(box((2,)), low=low, high=high)


@pytest.mark.parametrize(
    ("action", "algorithm"),
    [
        (discrete(3), "dqn"),
        (bounded(-1, 1), "sac"),
        (bounded(-np.inf, np.inf), "ppo"),
    ],
)
def test_the_algorithm_is_one_that_can_act_there(action, algorithm):
    assert written(environment(action=action)).spec.learner.algorithm == algorithm


@pytest.mark.parametrize("algorithm", list(BUILT_IN))
def test_every_algorithm_has_values_to_start_from(algorithm):
    action = bounded(-1, 1) if algorithm == "sac" else discrete(3)
    env = environment(box((84, 84), "|u1"), action=action)
    spec = written(env, algorithm=algorithm).spec
    assert spec.learner.algorithm == algorithm
    assert spec.learner.traits.needs_lstm == (spec.learner.network.lstm > 0)


def test_one_that_cannot_be_learnt_is_refused():
    with pytest.raises(SpecError, match="expected one discrete action for dqn"):
        written(environment(action=box((2,), "|u1")))
    with pytest.raises(SpecError, match="expected one box of floats for sac"):
        written(environment(), algorithm="sac")


@pytest.fixture
def rollstream(tmp_path, monkeypatch, capsys):
    """Run a command in an empty directory; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = 0
        try:
            with exits_with_a_message():
                cli.app(arguments, standalone_mode=False)
        except SystemExit as exc:
            code = exc.code
        return code, *capsys.readouterr()

    return run


def test_init_writes_a_file_that_validates(rollstream):
    code, out, _ = rollstream("init")
    assert code == 0
    assert "rollstream validate cartpole.yaml" in out
    experiment = load_file(Path("cartpole.yaml"))
    assert (experiment.name, experiment.spec.env.id) == ("cartpole", "CartPole-v1")
    assert experiment.spec.stop.mean_return == 475
    assert rollstream("validate", "cartpole.yaml")[:2] == (0, "cartpole: fine\n")


def test_what_init_says_comes_next_works_as_it_is(rollstream, tmp_path, monkeypatch):
    (tmp_path / "some_envs.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('some/E-v0', CartPoleEnv)\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    options = ("--env", "some/E-v0", "--env-module", "some_envs")
    code, out, _ = rollstream("init", "a b.yaml", *options)
    assert code == 0
    first, second = (line.partition("rollstream ")[2] for line in out.splitlines()[1:])
    assert first == "validate 'a b.yaml' --env-module some_envs"
    assert second == first.replace("validate", "run")
    assert rollstream(*shlex.split(first)) == (0, "a-b: fine\n", "")


def test_a_module_that_cannot_be_imported_is_named(rollstream, tmp_path, monkeypatch):
    (tmp_path / "quits.py").write_text("raise SystemExit(3)")
    (tmp_path / "raises.py").write_text("raise RuntimeError('boom')")
    monkeypatch.setattr(sys, "path", [*sys.path])
    for module, raised in (("quits", "SystemExit(3)"), ("raises", "'boom'")):
        code, out, err = rollstream("init", "--env-module", module)
        assert (code, out) == (2, "") and raised in err and f"{module!r}" in err


def test_init_overwrites_only_when_told_to(rollstream, tmp_path):
    (tmp_path / "mine.yaml").write_text("precious")
    code, out, err = rollstream("init", "mine.yaml")
    assert (code, out) == (1, "") and "--force overwrites it" in err
    assert (tmp_path / "mine.yaml").read_text() == "precious"
    assert rollstream("init", "mine.yaml", "--force")[0] == 0
    assert load_file(tmp_path / "mine.yaml").name == "mine"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--env", "CartPol-v1"], 2, "(did you mean CartPole-v1"),
        (["--env", "os:X-v0"], 2, "ROLLSTREAM_ENV_MODULES"),
        (["--env", "Pendulum-v1", "--algorithm", "dqn"], 2, "expected one discrete"),
        (["--algorithm", "sarsa"], 2, "r2d2, sac, found 'sarsa'"),
        (["--name", "A_B"], 2, "--name: experiment name: expected 1 to 63"),
        (["absent/x.yaml"], 1, "absent/x.yaml: cannot be written"),
    ],
)
def test_init_refuses_what_cannot_run(rollstream, tmp_path, arguments, code, says):
    found, out, err = rollstream("init", *arguments)
    assert (found, out) == (code, "") and says in err
    assert list(tmp_path.iterdir()) == []


def test_init_names_the_experiment_for_the_file_or_the_environment(rollstream):
    _, out, _ = rollstream("init", "--env", "Taxi-v4", "--json")
    assert json.loads(out) == {
        "file": "taxi.yaml", "name": "taxi", "env": "Taxi-v4", "algorithm": "dqn",
    }  # fmt: skip
    _, out, _ = rollstream("init", "My Own.yaml", "--json")
    assert json.loads(out)["name"] == "my-own" == load_file(Path("My Own.yaml")).name
    _, out, _ = rollstream("init", "z.yaml", "--name", "other", "--json")
    assert json.loads(out)["name"] == "other" == load_file(Path("z.yaml")).name


def test_editors_are_told_of_the_schema_where_it_lies(rollstream, tmp_path):
    code, out, _ = rollstream("schema")
    assert code == 0 and json.loads(out)["$schema"].startswith("https://json-schema")
    rollstream("init", "without.yaml")
    assert (
        f"rollstream schema > {SCHEMA_FILE}" in (tmp_path / "without.yaml").read_text()
    )
    (tmp_path / SCHEMA_FILE).write_text(out)
    rollstream("init", "with.yaml")
    first, *_ = (tmp_path / "with.yaml").read_text().splitlines()
    assert first == f"# yaml-language-server: $schema={SCHEMA_FILE}"
