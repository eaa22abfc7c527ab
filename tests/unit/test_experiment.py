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
        ("spec.workers.replicas", '"2"', "spec.workers.replicas: expected a whole "
         "number, found '2'"),
        ("spec.workers.replicas", "1.5", "spec.workers.replicas"),
        ("spec.workers.envsPerWorker", "0", "expected at least 1, found 0"),
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
        ("spec.topics.diskBudget", "1MB", "expected at least 100,000,000"),
        ("spec.topics.diskBudget", "9999999TB", "expected at most 1,000,000,000,000"),
        ("spec.learner.device", "tpu", "spec.learner.device"),
        ("spec.learner.batchSize", "65000", ""),
        ("spec.learner.replicas", "true", "expected a whole number, found True"),
        ("spec.learner.replicas", "2", "spec.learner.replicas: expected at most 1"),
        ("spec.evaluator.replicas", "2", "expected at most 1, found 2"),
        ("spec.learner.adam_epsilon", "1", "did you mean adamEpsilon?"),
        ("spec.learner.double", "maybe", "expected true or false, found 'maybe'"),
        ("spec.learner", "[]", "spec.learner: expected a mapping, found []"),
        ("spec.env.wrappers", "TimeLimit", "expected a list, found 'TimeLimit'"),
        ("spec.env.wrappers", "[{nmae: A}]", "spec.env.wrappers.0.nmae: expected a "
         "known key (did you mean name?)"),
        ("spec.env", "{}", "spec.env.id: expected a value, found none"),
        ("spec.workers.min", "2", "spec.workers.max: expected min and max or neither"),
        ("spec.workers.max", "2", "spec.workers.min: expected min and max or neither"),
        ("spec.workers", "{min: 5, max: 4}", "spec.workers.min: expected at most max"),
        ("spec.workers", "{min: 0, max: 4}", "workers.min: expected at least 1"),
        ("spec.workers", "{min: 2, max: 4, replicas: 5}", "spec.workers.replicas: "
         "expected min 2 to max 4, found 5"),
        ("spec.processor", "{min: 1, max: 9}", "spec.processor.max: expected at most "
         "topics.partitions 8, found 9"),
        ("spec.workers.resources", "{cpu: -1}", "resources.cpu: expected at least 0"),
        ("spec.workers.resources", "{memory: 1GB}", "expected a known key (cpu, gpu)"),
        ("spec.workers.nodeSelector", "{zone: 1}", "zone: expected a text, found 1"),
        ("spec.workers.nodeSelector", "{'a b': c}", "expected a match of"),
        ("spec.evaluator.min", "1", "spec.evaluator.min: expected a known key"),
        ("spec.health.deadAfterS", "1", "expected at least 3, found 1"),
        ("spec.health.retries", "1", "spec.health.retries: expected a known key"),
        ("spec.learner.learningRate", ".nan", "spec.learner.learningRate"),
        ("spec.learner.replay.minSize", "70000", "expected at most capacity 65536"),
        ("spec.learner.algorithm", "os.system", "spec.learner.algorithm"),
        ("spec.state", "flying", "spec.state"),
        ("bootstrap.servers", "evil:9092", "bootstrap: expected a known key, found "
         "bootstrap: brokers and clients' settings are the machine's"),
        ("spec.kafka", "{}", "are the machine's (KAFKA_BOOTSTRAP_SERVERS,"),
        ("spec.brokers", "[a:1]", "are the machine's"),
        ("spec.learner.bootstrapServers", "a:1", "are the machine's"),
        ("spec.topics.replicationFactor", "1", "are the machine's"),
        ("spec.workers.producer", "{acks: 0}", "are the machine's"),
        ("spec.flow.consumerConfig", "{}", "are the machine's"),
        ("spec.flow.windwo", "1", "did you mean window?"),
        ("spec.env.id", "evil.module:Env", "ROLLSTREAM_ENV_MODULES on each machine"),
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


def test_the_number_of_processes_is_fixed_or_between_two():
    fixed = from_values(values(spec__workers__replicas="3")).spec.workers
    assert (fixed.is_elastic, fixed.most_replicas) == (False, 3)
    some = from_values(values(spec__workers="{min: 2, max: 8}")).spec.workers
    assert (some.is_elastic, some.most_replicas, some.replicas) == (True, 8, 2)
    more = from_values(values(spec__processor="{min: 1, max: 8, replicas: 8}")).spec
    assert (more.processor.most_replicas, more.processor.replicas) == (8, 8)
    one = from_values(values(spec__workers="{min: 2, max: 2}")).spec.workers
    assert (one.is_elastic, one.most_replicas) == (True, 2)


def test_what_older_specs_do_not_say_is_as_it_was():
    spec = from_values(values()).spec
    for part in (spec.workers, spec.processor, spec.learner, spec.evaluator):
        assert (part.resources.cpu, part.resources.gpu) == (0.25, 0)
        assert part.node_selector == {}
    assert not spec.workers.is_elastic and not spec.processor.is_elastic
    health = spec.health
    assert (health.dead_after_s, health.stuck_after_s, health.max_failures) == (
        10, 60, 5,
    )  # fmt: skip


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
    with pytest.raises(SpecError, match="of dqn, .*sac, found 'sarsa'"):
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
        ("spec.learner.distribution.vMax", "20"),
        ("spec.learner.distribution.kind", "quantile"),
    ],
)
def test_a_run_does_not_go_on_with_what_would_mix_its_data(path, value):
    before = from_values(values())
    now = from_values(apply_overrides(values(), [f"{path}={value}"]))
    check_resumable(before, before)
    with pytest.raises(SpecError, match=f"^{path}: expected .*--fresh"):
        check_resumable(before, now)


def test_a_recurrent_run_does_not_go_on_with_values_on_another_scale():
    path = "spec.learner.r2d2.rescaleValues"
    own = {"spec__learner__algorithm": "r2d2", "spec__learner__network__lstm": "8"}
    before = from_values(values(**own))
    now = from_values(values(**own, **{path.replace(".", "__"): "false"}))
    with pytest.raises(SpecError, match=f"^{path}: expected True .*--fresh"):
        check_resumable(before, now)
    warmer = values(**own, spec__learner__r2d2__burnIn="3")
    check_resumable(before, from_values(warmer))


def test_a_run_goes_on_with_more_workers_and_another_goal():
    now = from_values(values(spec__workers__replicas="7", spec__stop__envSteps="9"))
    check_resumable(from_values(values()), now)
