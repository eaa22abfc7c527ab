"""An experiment is refused before it runs for exactly what would fail later."""

import math
from dataclasses import replace

import numpy as np
import pytest

from learner.networks import Encoder, UnsupportedSpace
from schemas.errors import SchemaError
from schemas.experiment import SpecError, from_values
from schemas.fit import check_fit
from schemas.records import SpaceField
from schemas.sizes import longest_unroll, stacked
from schemas.tensors import pack
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
    seen = tuple(stacked(f, frame_stack) for f in observation)
    pixels = sum(math.prod(f.shape) for f in seen if f.name == "a/img")
    inputs = Encoder(seen).features - pixels
    env = environment(*observation)

    def found(count):
        return problems(
            env,
            env={"id": "CartPole-v1", "frameStack": frame_stack},
            learner={
                "network": {
                    "observationScale": [0.5] * count,
                    "imageEncoder": "flat",
                }
            },
        )

    assert found(0) == found(1) == found(inputs) == []
    (problem,) = found(inputs + 1)
    assert problem == (
        "spec.learner.network.observationScale: expected 1 or "
        f"{inputs} numbers for Test-v0, one for each input but images, found "
        f"{inputs + 1}"
    )
    with pytest.raises(UnsupportedSpace, match=f"expected 0, 1 or {inputs} numbers"):
        Encoder(seen, (0.5,) * (inputs + 1))


BOUNDED = SpaceField(
    "", "box", "<f4", (1,), pack(np.float32([-2])), pack(np.float32([2]))
)
RECURRENT = {"network": {"lstm": 8}}
FILLS = {
    "dqn": {"discrete"},
    "r2d2": {"discrete"},
    "ppo": {"discrete", "box", "bounded"},
    "impala": {"discrete", "box", "bounded"},
    "sac": {"bounded"},
}
ACTIONS = {
    "discrete": discrete(3, start=-1),
    "box": box((2, 2)),
    "bounded": BOUNDED,
    "integers": box((2,), "<i4"),
    "multi_binary": SpaceField("", "multi_binary", "|i1", (2,)),
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("algorithm", FILLS)
def test_actions_are_those_of_the_algorithm(algorithm, action):
    learner = {"algorithm": algorithm} | (RECURRENT if algorithm == "r2d2" else {})
    processor = {"nStep": 1 if algorithm in ("ppo", "impala") else 3}
    env = environment(action=ACTIONS[action])
    found = problems(env, learner=learner, processor=processor)
    if action in FILLS[algorithm]:
        assert found == []
    else:
        (problem,) = found
        assert problem.startswith("spec.learner.algorithm: expected ")
        assert f"for {algorithm}, " in problem and "found" in problem


def test_a_refused_action_is_told_with_what_was_expected():
    (problem,) = problems(environment(action=box((2,))))
    assert problem == (
        "spec.learner.algorithm: expected one discrete action for dqn, found box '' "
        "<f4[2] in Test-v0"
    )
    (problem,) = problems(environment(action=box((2,))), learner={"algorithm": "sac"})
    assert problem == (
        "spec.learner.algorithm: expected finite bounds of the action for sac, low "
        "below high, found none in Test-v0"
    )


def test_several_actions_at_once_are_nobodys():
    env = replace(environment(), action=(discrete(2, name="a"), discrete(2, name="b")))
    (problem,) = problems(env)
    assert "found discrete 'a' <i8[], discrete 'b' <i8[] in Test-v0" in problem


def test_of_an_algorithm_of_this_machines_modules_nothing_is_known():
    learner = {"algorithm": "mine"}
    assert problems(environment(action=box((2,))), learner=learner) == []


@pytest.mark.parametrize("frame_stack", [1, 4])
@pytest.mark.parametrize("encoder", ["nature", "impala", "flat"])
@pytest.mark.parametrize("shape", [
    (84, 84), (35, 84, 3), (7, 9, 1), (8, 8), (128,), (3, 64, 64),
])  # fmt: skip
def test_images_are_refused_exactly_when_the_network_would_refuse_them(
    shape, encoder, frame_stack
):
    field = box(shape, "|u1", "camera")
    found = problems(
        environment(field),
        env={"id": "CartPole-v1", "frameStack": frame_stack},
        learner={"network": {"imageEncoder": encoder}},
    )
    try:
        Encoder((stacked(field, frame_stack),), (), encoder)
    except UnsupportedSpace as exc:
        assert found == [f"spec.{exc}"]
        assert f"for {encoder}, " in found[0]
    else:
        assert found == []


def test_what_is_not_kept_needs_no_buffer():
    ppo = {
        "algorithm": "ppo",
        "batchSize": 2048,
    }
    workers = {"replicas": 2, "envsPerWorker": 64, "unrollLength": 16}
    run = {"learner": ppo, "processor": {"nStep": 1}, "workers": workers}
    # 2,048 are learnt from, 2,048 wait, and an unroll of each worker is under way.
    needed = (2048 + 2048 + 2 * 64 * 16) * (16 + 8 + 64)
    assert problems(environment(), needed, **run) == []
    (problem,) = problems(environment(), needed - 1, **run)
    assert problem == (
        f"spec.learner.batchSize: expected experience within {needed - 1:,} bytes of "
        f"memory, found {needed:,} for 2,048 rows"
    )


def recurrent(capacity=10_000, **r2d2):
    return {
        "learner": {
            "algorithm": "r2d2",
            "network": {"lstm": 100},
            "r2d2": r2d2,
            "replay": {"capacity": capacity, "minSize": 10},
        },
        "workers": {"envsPerWorker": 10, "unrollLength": 20},
    }


def test_a_buffer_holds_a_few_sequences():
    sizes = {"burnIn": 10, "sequenceLength": 40}
    assert problems(environment(), **recurrent(2000, **sizes)) == []
    (problem,) = problems(environment(), **recurrent(1999, **sizes))
    assert problem == (
        "spec.learner.replay.capacity: expected at least 2,000, 4 sequences of 500 "
        "rows ((burnIn + sequenceLength) x envsPerWorker), found 1,999"
    )


def test_targets_lie_within_a_sequence():
    run = recurrent(burnIn=40, sequenceLength=5)
    assert problems(environment(), processor={"nStep": 5}, **run) == []
    (problem,) = problems(environment(), processor={"nStep": 6}, **run)
    assert problem.startswith(
        "spec.learner.r2d2.sequenceLength: expected at least processor.nStep, 6, "
        "found 5"
    )


def test_the_states_that_unrolls_begin_with_take_memory():
    run = recurrent(burnIn=0, sequenceLength=20)
    # A state each 20 rows: h and c of 100 float32.
    needed = 10_000 * (16 + 8 + 64) + 500 * 800
    assert problems(environment(), needed, **run) == []
    assert len(problems(environment(), needed - 1, **run)) == 1


def test_a_buffer_fits_the_machine():
    assert problems(environment(), memory_bytes=65_536 * (16 + 8 + 64)) == []
    (problem,) = problems(environment(), memory_bytes=65_536 * (16 + 8 + 64) - 1)
    assert problem.startswith("spec.learner.replay.capacity: expected experience")
