"""An experiment is refused before it runs for exactly what would fail later."""

import pytest

from learner.networks import Encoder
from schemas.errors import SchemaError
from schemas.experiment import SpecError, from_values
from schemas.fit import check_fit
from schemas.records import SpaceField
from schemas.sizes import longest_unroll, stacked
from tests.unit.learner_specs import DICT_OBSERVATION, box, discrete, environment


def spec(**parts):
    values = {"env": {"id": "CartPole-v1"}} | parts
    return from_values(
        {
            "apiVersion": "rollstream/v1",
            "kind": "Experiment",
            "metadata": {"name": "test"},
            "spec": values,
        }
    ).spec


def problems(description, memory_bytes=None, **parts):
    try:
        check_fit(spec(**parts), description, memory_bytes)
    except SpecError as exc:
        return exc.problems
    return []


def test_what_fits_is_accepted():
    assert problems(environment(), 1 << 34, stop={"meanReturn": 475}) == []


BIG_BUFFER = {"replay": {"capacity": 50_000_000}}


@pytest.mark.parametrize(
    ("num_envs", "observation"),
    [
        (65_536, box((15,))),
        (65_536, box((14,))),
        (65_536, box((11,))),
        (65_536, box((10,))),
        (1, box((1 << 20,))),
        (1, box((1 << 22,), "|u1")),
        (5, box((1 << 20,), "|u1")),
        (65_536, discrete(16)),
    ],
)
def test_a_step_is_refused_exactly_when_a_worker_would_refuse_it(num_envs, observation):
    env = environment(observation)
    workers = {"envsPerWorker": num_envs, "unrollLength": 1}
    found = problems(env, workers=workers, learner=BIG_BUFFER)
    try:
        longest_unroll(env.observation, env.action, num_envs)
    except SchemaError as exc:
        assert found == [f"spec.workers.envsPerWorker: {exc}"]
        assert "expected a step of" in found[0] and "fewer envsPerWorker" in found[0]
    else:
        assert found == []


def test_two_steps_of_observations_are_not_all_that_a_record_holds():
    workers = {"envsPerWorker": 65_536, "unrollLength": 1}
    env = environment(box((15,)))  # 2 x 65,536 x 60 bytes are 7.5 MiB
    (problem,) = problems(env, workers=workers, learner=BIG_BUFFER)
    found = 65_536 * (2 * 60 + 8 + 23 + 12)
    assert problem.startswith("spec.workers.envsPerWorker: expected a step of 65536")
    assert f"found {found}" in problem


def test_a_buffer_holds_a_few_unrolls():
    workers = {"envsPerWorker": 64, "unrollLength": 32}
    for capacity, fine in ((8192, True), (8191, False)):
        learner = {"replay": {"capacity": capacity, "minSize": 100}}
        found = problems(environment(), workers=workers, learner=learner)
        assert (found == []) == fine
    assert found == [
        "spec.learner.replay.capacity: expected at least 8,192, 4 unrolls of 2,048 "
        "rows (unrollLength x envsPerWorker), found 8,191"
    ]


def test_an_unroll_that_a_worker_shortens_counts_as_it_is():
    """10,000 steps of 1,024 environments fit no record: a worker takes fewer."""
    workers = {"envsPerWorker": 1024, "unrollLength": 10_000}
    learner = {"replay": {"capacity": 2_000_000}}
    assert problems(environment(), workers=workers, learner=learner) == []


def test_learning_starts_before_the_buffer_is_full():
    for smallest, fine in ((7500, True), (7501, False)):
        learner = {"replay": {"capacity": 10_000, "minSize": smallest}}
        found = problems(environment(), learner=learner)
        assert (found == []) == fine
    assert found == [
        "spec.learner.replay.minSize: expected at most 7,500, 75% of capacity, found "
        "7,501: reset rows take slots too"
    ]


def test_a_goal_needs_somebody_who_judges():
    (problem,) = problems(
        environment(), stop={"meanReturn": 475}, evaluator={"replicas": 0}
    )
    assert problem.startswith("spec.evaluator.replicas: expected 1")
    assert "stop.meanReturn 475" in problem and problem.endswith("found 0")
    assert problems(environment(), evaluator={"replicas": 0}) == []


@pytest.mark.parametrize("frame_stack", [1, 4])
@pytest.mark.parametrize(
    "observation",
    [
        (box(),),
        (discrete(16),),
        (SpaceField("", "multi_discrete", "<i8", (2,), n=(3, 4), start=(0, 0)),),
        (SpaceField("", "multi_binary", "|i1", (2, 3)),),
        DICT_OBSERVATION,
    ],
    ids=["box", "discrete", "multi_discrete", "multi_binary", "dict"],
)
def test_a_scale_has_a_number_for_each_input_of_the_network(observation, frame_stack):
    inputs = Encoder(tuple(stacked(f, frame_stack) for f in observation), ()).features
    env = environment(*observation)

    def found(count):
        return problems(
            env,
            env={"id": "CartPole-v1", "frameStack": frame_stack},
            learner={"network": {"observationScale": [0.5] * count}},
        )

    assert found(0) == found(1) == found(inputs) == []
    (problem,) = found(inputs + 1)
    assert problem == (
        "spec.learner.network.observationScale: expected 1 or "
        f"{inputs} numbers for Test-v0, found {inputs + 1}"
    )


def test_actions_are_those_of_the_algorithm():
    (problem,) = problems(environment(action=box((2,))))
    assert problem == (
        "spec.learner.algorithm: expected one discrete action for dqn, found box in "
        "Test-v0"
    )


def test_a_buffer_fits_the_machine():
    assert problems(environment(), memory_bytes=65_536 * (16 + 8 + 64)) == []
    (problem,) = problems(environment(), memory_bytes=65_536 * (16 + 8 + 64) - 1)
    assert problem.startswith("spec.learner.replay.capacity: expected a buffer within")
