import copy
from pathlib import Path

import pytest
import yaml

from rollstream.overrides import apply_overrides
from schemas.experiment import (
    SpecError,
    check_algorithm,
    from_values,
    load_file,
    parse_json,
)
from schemas.resume import check_resumable

SAMPLE = Path(__file__).parents[2] / "infra/experiments/cartpole-dqn.yaml"


def values(**overrides):
    return apply_overrides(
        yaml.safe_load(SAMPLE.read_text()),
        [f"{path.replace('__', '.')}={value}" for path, value in overrides.items()],
    )


def problems(changed):
    with pytest.raises(SpecError) as error:
        from_values(changed)
    return error.value.problems


@pytest.mark.parametrize(
    "path", sorted(SAMPLE.parent.glob("*.yaml")), ids=lambda path: path.name
)
def test_samples_are_fine_and_survive_their_json(path):
    experiment = load_file(path)
    assert parse_json(experiment.to_json()) == experiment
    assert experiment.name == path.stem


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("spec.learner.batchsize", "3", "spec.learner.batchsize: expected a known key "
         "(did you mean batchSize?)"),
        ("spec.workers.replicas", '"2"', "spec.workers.replicas: input should be a "
         "valid integer, found '2'"),
        ("spec.workers.replicas", "1.5", "spec.workers.replicas"),
        ("spec.workers.envsPerWorker", "0", "greater than or equal to 1, found 0"),
        ("metadata.name", "a_b", "expected 1 to 63 of a-z, 0-9 and inner '-'"),
        ("metadata.name", "a.b", "expected 1 to 63"),
        ("metadata.name", "../../x", "expected 1 to 63"),
        ("metadata.name", "'ALE/Pong:v5 [x]'", "expected 1 to 63"),
        ("metadata.name", "'..'", "expected 1 to 63"),
        ("metadata.name", "CON", "expected 1 to 63"),
        ("metadata.name", "\U0001f916", "expected 1 to 63"),
        ("metadata.name", "a" * 300, "expected 1 to 63"),
        ("spec.processor.group", "mine", "spec.processor.group: expected a known key"),
        ("spec.learner.groupId", "mine", "spec.learner.groupId: expected a known key"),
        ("spec.env.id", "os:X-v0", "spec.env.id"),
        ("spec.env.id", "evil.module:Env-v0", "spec.env.id"),
        ("spec.env.id", "CartPole", "spec.env.id"),
        ("spec.topics.diskBudget", "many", "expected a size such as 20GB"),
        ("spec.learner.device", "tpu", "spec.learner.device"),
        ("spec.learner.batchSize", "65000", ""),
        ("spec.learner.learningRate", ".nan", "spec.learner.learningRate"),
        ("spec.learner.replay.minSize", "70000", "expected at most capacity 65536"),
        ("spec.learner.algorithm", "os.system", "spec.learner.algorithm"),
        ("spec.state", "flying", "spec.state"),
        ("bootstrap.servers", "evil:9092", "bootstrap"),
        ("spec.kafka", "{}", "spec.kafka: expected a known key"),
    ],
)  # fmt: skip
def test_what_is_refused_says_where_and_what_was_expected(path, value, says):
    if not says:  # a large batch is fine: the row shows that the table can tell
        from_values(values(**{path.replace(".", "__"): value}))
        return
    changed = apply_overrides(yaml.safe_load(SAMPLE.read_text()), [f"{path}={value}"])
    assert any(says in problem for problem in problems(changed))


def test_every_problem_is_named_at_once():
    changed = copy.deepcopy(values())
    del changed["kind"]
    changed["spec"]["seed"] = -1
    assert len(problems(changed)) == 2


def test_wrappers_do_not_go_with_a_vector_entry_point():
    changed = values(spec__env__vectorization="vector_entry_point")
    from_values(changed)
    changed["spec"]["env"]["wrappers"] = [{"name": "TimeLimit", "kwargs": {}}]
    assert "choose sync or async" in problems(changed)[0]


def test_sizes_are_read_with_their_unit():
    experiment = from_values(values(spec__topics__diskBudget="1.5GB"))
    assert experiment.spec.topics.disk_budget == 1_500_000_000


@pytest.mark.parametrize(
    "override", ["noequals", "=3", "metadata.name.x=3", "spec.metadata=a: ["]
)
def test_a_bad_override_is_refused(override):
    with pytest.raises(SpecError, match="--set"):
        apply_overrides(yaml.safe_load(SAMPLE.read_text()), [override])


def test_files_that_are_no_experiment_are_refused(tmp_path):
    for name, text in {"a": "[1, 2]", "b": "{unclosed", "c": ""}.items():
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(SpecError, match=str(path)):
            load_file(path)
    with pytest.raises(SpecError, match="No such file"):
        load_file(tmp_path / "absent")


def test_an_algorithm_that_nobody_has_is_refused():
    spec = from_values(values(spec__learner__algorithm="sarsa")).spec
    check_algorithm(spec, has_modules=True)
    with pytest.raises(SpecError, match="expected dqn, found 'sarsa'"):
        check_algorithm(spec, has_modules=False)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.env.id", "Acrobot-v1"),
        ("spec.processor.nStep", "3"),
        ("spec.processor.gamma", "0.9"),
        ("spec.processor.rewardScale", "1"),
        ("spec.topics.partitions", "4"),
        ("spec.learner.network.hidden", "[64]"),
    ],
)
def test_a_run_does_not_go_on_with_what_would_mix_its_data(path, value):
    before = from_values(values())
    now = from_values(apply_overrides(values(), [f"{path}={value}"]))
    check_resumable(before, before)
    with pytest.raises(SpecError, match=f"^{path}: expected .*--fresh"):
        check_resumable(before, now)


def test_a_run_goes_on_with_more_workers_and_another_goal():
    now = from_values(values(spec__workers__replicas="7", spec__stop__envSteps="9"))
    check_resumable(from_values(values()), now)
