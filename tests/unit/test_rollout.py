"""Environments and a policy -> unrolls, and those -> records."""

import bisect
from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Discrete

from infra.settings import Settings
from producers.acting import RandomActor
from producers.environments import describe_environments, make_environments
from producers.episodes import Rows
from producers.evaluation import evaluate
from producers.packing import Packing
from producers.policy import Policy, open_graph
from producers.q_actor import QActor
from producers.rollout import Rollout, UnrollArrays
from producers.seeding import StreamSeeds
from producers.spaces import describe
from producers.unrolls import encode_unrolls, to_record
from producers.watchdog import Watchdog
from schemas.codec import decode, encode
from schemas.errors import SchemaError
from schemas.experiment import EnvSpec
from schemas.records import NO_POLICY, SourceRef, SpaceField, Unroll
from schemas.sizes import (
    MAX_BATCH_BYTES,
    MAX_UNROLL_BYTES,
    longest_unroll,
    most_steps,
)
from schemas.tensors import pack
from stream_processors.tails import ReturnOptions, to_batch
from tests.unit.envs.graphs import graph_record, linear_q, version_record

MACHINE = Settings(env_modules=("tests.unit.envs",))
SEEDS = StreamSeeds(1, 0, 0)
TEMPLATE = Unroll(
    experiment="exp",
    run_id="run1",
    worker="w0",
    incarnation=3,
    sequence=0,
    first_step=0,
    num_steps=1,
    num_envs=1,
    policy=NO_POLICY,
    produced_at_ms=0,
    end_of_stream=False,
    observations={},
    actions={},
    rewards=pack(np.zeros(0)),
    terminated=pack(np.zeros(0)),
    truncated=pack(np.zeros(0)),
    valid=pack(np.zeros(0)),
    episodes=pack(np.zeros(0)),
    states={},
    behaviour={},
    infos={},
)


@pytest.fixture
def make():
    watchdog = Watchdog(20.0)
    made = []

    def make_(env_id, num_envs=2, **spec):
        values = {"vectorization": "sync"} | spec
        made.append(
            make_environments(EnvSpec(id=env_id, **values), num_envs, MACHINE, watchdog)
        )
        return made[-1]

    yield make_
    for environments in made:
        environments.close()
    watchdog.close()


def random_actor(environments):
    return RandomActor(environments.action.fields, environments.num_envs)


def q_actor(environments, weights, epsilons, version=4):
    spec = EnvSpec(id="E3-v0")
    env = describe_environments(spec, environments, MACHINE)
    wide = env.observation[0].shape[0]
    weights = np.asarray(weights, np.float32).reshape(wide, -1)
    from onnx import TensorProto

    kind = {"<f4": TensorProto.FLOAT, "<f8": TensorProto.DOUBLE}
    dtype = kind[env.observation[0].dtype]
    graph = graph_record(linear_q(wide, weights.shape[1], dtype), env)
    arrays = {"w": weights, "b": np.zeros(weights.shape[1], np.float32)}
    record = version_record(graph, version, arrays)
    session = open_graph(graph, env)
    params = session.load(record, record.tensors)
    policy = Policy(session, record, record.tensors, params)
    return QActor(policy, environments.num_envs, np.asarray(epsilons, float))


def test_e3_in_two_unrolls(make):
    environments = make("E3-v0")
    rollout, actor = Rollout(environments, SEEDS), random_actor(environments)
    first = rollout.collect(actor, 5)
    assert first.observations[""][:, 0, 0].tolist() == [10, 11, 12, 13, 20, 21]
    assert first.rows.rewards[:, 0].tolist() == [1, 1, 1, 0, 1]
    assert first.rows.truncated[:, 0].tolist() == [0, 0, 1, 0, 0]
    assert first.rows.valid[:, 0].tolist() == [1, 1, 1, 0, 1]
    assert first.episodes.tolist() == [0, 0]
    assert first.finished["returns"].tolist() == [3, 3]
    second = rollout.collect(actor, 3)
    assert second.observations[""][:, 0, 0].tolist() == [21, 22, 23, 30]
    assert second.rows.valid[:, 0].tolist() == [1, 1, 0]
    assert (second.first_step, second.episodes.tolist()) == (5, [1, 1])
    third = rollout.collect(actor, 1)
    assert (third.first_step, third.episodes.tolist()) == (8, [2, 2])


def test_an_unroll_that_starts_with_the_reset_row_belongs_to_the_next_episode(make):
    environments = make("E3-v0")
    rollout, actor = Rollout(environments, SEEDS), random_actor(environments)
    rollout.collect(actor, 3)
    second = rollout.collect(actor, 1)
    assert second.rows.valid[0].tolist() == [False, False]
    assert second.episodes.tolist() == [1, 1]


def test_forms_give_the_same_unroll(make):
    unrolls = []
    for form in ("sync", "async", "vector_entry_point"):
        environments = make("E3-v0", vectorization=form)
        rollout = Rollout(environments, SEEDS)
        unrolls.append(rollout.collect(random_actor(environments), 12))
        # Of 12 rows of each, every fourth is a reset.
        (part,) = encode_unrolls(unrolls[-1], TEMPLATE, Packing())
        assert (rollout.next_step, part.valid_steps) == (12, 2 * 9)
        assert unrolls[-1].finished["lengths"].tolist() == [3] * 6
        unrolls[-1] = encode(to_record(unrolls[-1], TEMPLATE, Packing()))
    assert unrolls[0] == unrolls[1] == unrolls[2]


def test_a_stop_cuts_the_unroll_after_a_step_at_least(make):
    environments = make("E3-v0")
    rollout, actor = Rollout(environments, SEEDS), random_actor(environments)
    assert rollout.collect(actor, 8, lambda: True).num_steps == 1
    stops = iter([False, False, True])
    cut = rollout.collect(actor, 8, lambda: next(stops))
    assert cut.num_steps == 3 and cut.first_step == 1
    decode(encode(to_record(cut, TEMPLATE, Packing())), Unroll)


def test_rewards_that_are_not_finite_are_recorded_but_not_valid(make):
    environments = make("OddRewards-v0", 1)
    unroll = Rollout(environments, SEEDS).collect(random_actor(environments), 8)
    assert unroll.rows.valid[:, 0].tolist() == [1, 1, 1, 1, 1, 1, 0, 0]
    record = decode(encode(to_record(unroll, TEMPLATE, Packing())), Unroll)
    rewards = record.rewards.array()[:, 0]
    assert rewards[1] == 0.1 and np.isnan(rewards[6]) and np.isposinf(rewards[7])


def test_rows_are_counted_while_the_unroll_is_under_way(make):
    environments = make("OddRewards-v0", 1)
    rollout, actor = Rollout(environments, SEEDS), random_actor(environments)
    seen = []
    rollout.collect(actor, 8, lambda: seen.append(rollout.look()))
    assert [found.usable for found in seen] == [1, 2, 3, 4, 5, 6, 6]
    assert [found.unusable for found in seen] == [0, 0, 0, 0, 0, 0, 1]
    assert [bool(found.odd) for found in seen] == [False] * 6 + [True]
    assert seen[-1].odd == "environment 0: the reward of step 6 is nan"
    rollout.collect(actor, 8)
    whole = rollout.look()
    assert (whole.usable, whole.unusable) == (12, 4)
    assert whole.odd == "environment 0: the reward of step 14 is nan"
    assert rollout.look() == replace(whole, odd=""), "it is told once"


@pytest.mark.parametrize(
    ("kwargs", "usable", "odd"),
    [
        ({}, 12, ""),
        ({"reward": "nan", "ever": True}, 0, "the reward of step 0 is nan"),
        # The observation before the first step is the reset's, and a number.
        ({"blind": True, "ever": True}, 0, "the observation of step 1 is nan at [0]"),
        # Step 3 leads to it, and step 4 begins there.
        ({"at": 3, "blind": True}, 8, "the observation of step 3 is nan at [0]"),
    ],
)
def test_an_environment_of_which_nothing_can_be_learnt_is_found(
    make, kwargs, usable, odd
):
    environments = make("StepCount-v0", 2, kwargs={"at": 1} | kwargs)
    rollout = Rollout(environments, SEEDS)
    rollout.collect(random_actor(environments), 6)
    found = rollout.look()
    assert (found.usable, found.unusable) == (usable, 12 - usable)
    assert found.odd == (odd and f"environment 0: {odd}")


def test_a_crash_is_told_while_the_unroll_is_under_way(make):
    """One that hangs in each step would not come to the unroll's end for hours."""
    kwargs = {"how": "raise", "bad_seed": SEEDS.episode(1, 0)}
    environments = make("Misbehaving-v0", kwargs=kwargs)
    rollout, seen = Rollout(environments, SEEDS), []
    rollout.collect(
        random_actor(environments), 6, lambda: seen.append(rollout.look().crash)
    )
    assert seen == ["", "", "", "environment 1: ValueError('boom')", ""]


def test_resets_are_neither_good_nor_bad(make):
    environments = make("E3-v0", 2)
    rollout = Rollout(environments, SEEDS)
    rollout.collect(random_actor(environments), 12)
    found = rollout.look()
    # Of 12 rows of each, every fourth is a reset.
    assert (found.usable, found.unusable, found.odd) == (18, 0, "")


def test_a_crash_marks_its_row_and_aborts_its_episode(make):
    kwargs = {"how": "raise", "bad_seed": SEEDS.episode(1, 0)}
    environments = make("Misbehaving-v0", kwargs=kwargs)
    rollout = Rollout(environments, SEEDS)
    unroll = rollout.collect(random_actor(environments), 6)
    assert unroll.rows.valid[:, 1].tolist() == [1, 1, 1, 0, 0, 1]
    assert unroll.rows.truncated[:, 1].tolist() == [0, 0, 0, 1, 0, 0]
    assert unroll.rows.valid[:, 0].all()
    found = rollout.look()
    assert (found.crashes, found.crash) == (1, "environment 1: ValueError('boom')")
    assert (found.usable, found.unusable) == (10, 1), "and a reset"
    finished = unroll.finished
    assert finished["endings"].tolist() == [2] and finished["lengths"].tolist() == [3]


@pytest.mark.parametrize("env_id", ["Nested-v0", "CartPole-v1"])
def test_the_same_seed_gives_the_same_bytes(make, env_id):
    form = "auto"

    def record(worker, incarnation=0):
        environments = make(env_id, 3, vectorization=form)
        seeds = StreamSeeds(1, worker, incarnation)
        unroll = Rollout(environments, seeds).collect(random_actor(environments), 40)
        return encode(to_record(unroll, TEMPLATE, Packing()))

    first = [record(worker) for worker in range(3)]
    assert [record(worker) for worker in range(3)] == first
    assert len({*first, record(0, 1)}) == 4, "and other streams others"


def test_what_the_environment_received_is_what_is_recorded(make):
    environments = make("Nested-v0", 2)  # asserts that its actions are members
    unroll = Rollout(environments, SEEDS).collect(random_actor(environments), 20)
    record = decode(encode(to_record(unroll, TEMPLATE, Packing())), Unroll)
    assert record.actions["move"].array().min() >= 7
    opened = {name: t.array() for name, t in record.observations.items()}
    assert set(opened) == {"a/0", "a/1", "b", "image"}
    assert opened["b"].dtype == np.float64 and opened["image"].shape == (21, 2, 3, 4, 4)
    for name, array in unroll.observations.items():
        assert opened[name].tobytes() == array.tobytes()


def test_values_are_the_policys_own_at_every_row(make):
    environments = make("E3-v0")
    actor = q_actor(environments, [[1.0, -1.0]], [0, 0])
    unroll = Rollout(environments, SEEDS).collect(actor, 5)
    assert unroll.behaviour["q_max"][:, 0].tolist() == [10, 11, 12, 13, 20, 21]
    assert unroll.behaviour["q_taken"][:, 0].tolist() == [10, 11, 12, 13, 20]
    assert unroll.policy.version == 4 and unroll.finished["versions"].tolist() == [4, 4]


# --- records -------------------------------------------------------------------------


def wide_unroll(make, bytes_a_step, steps):
    """An unroll of E3 whose observation is noise of this size, rows numbered."""
    environments = make("E3-v0", 1)
    unroll = Rollout(environments, SEEDS).collect(
        q_actor(environments, [[1.0, -1.0]], [0]), steps
    )
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (steps + 1, 1, bytes_a_step), np.uint8)
    return replace(unroll, observations={"": noise})


def test_an_unroll_too_large_for_a_record_is_cut_without_holes(make):
    unroll = wide_unroll(make, 1 << 20, 20)
    parts = list(
        encode_unrolls(unroll, replace(TEMPLATE, end_of_stream=True), Packing())
    )
    records = [decode(part.value, Unroll) for part in parts]
    assert len(records) >= 3 and max(len(p.value) for p in parts) <= MAX_UNROLL_BYTES
    assert [record.sequence for record in records] == list(range(len(records)))
    assert [r.end_of_stream for r in records] == [False] * (len(records) - 1) + [True]
    expected_step = 0
    for record in records:
        assert record.first_step == expected_step
        stop = expected_step + record.num_steps
        whole = unroll.observations[""][expected_step : stop + 1]
        assert record.observations[""].array().tobytes() == whole.tobytes()
        q_max = record.behaviour["q_max"].array()
        np.testing.assert_array_equal(
            q_max, unroll.behaviour["q_max"][expected_step : stop + 1]
        )
        ended = unroll.rows.ended[:expected_step].sum(0)
        assert record.episodes.array().tolist() == ended.tolist()
        expected_step = stop
    assert expected_step == 20
    assert sum(part.valid_steps for part in parts) == unroll.rows.valid.sum()


def unroll_of(observations, actions):
    """An unroll of these arrays, [T+1, B, ...] and [T, B], in which nothing ends."""
    rows = actions.shape
    none = np.zeros(rows, np.bool_)
    return UnrollArrays(
        first_step=0,
        policy=NO_POLICY,
        observations={"": observations},
        actions={"": actions},
        rows=Rows(np.ones(rows), none, none, ~none, none),
        episodes=np.zeros(rows[1], np.int64),
        states={},
        behaviour={
            "q_max": np.ones((rows[0] + 1, rows[1]), np.float32),
            "q_taken": np.ones(rows, np.float32),
            "log_prob": np.ones(rows, np.float32),
        },
        finished={},
    )


def batch_bytes(record):
    """The size of the largest batch that a processor makes of an unroll."""
    shape = (record.num_steps, record.num_envs)
    columns = {
        name: pack(np.ones(shape, dtype))
        for name, dtype in {
            "returns": "<f4",
            "discounts": "<f4",
            "bootstrap_steps": "<i4",
            "priorities": "<f4",
        }.items()
    }
    topic = "rollstream." + "e" * 63 + ".trajectories"
    source = SourceRef(topic, 1023, 2**62)
    options = ReturnOptions(n=1000, gamma=0.99)
    return len(encode(to_batch(record, source, options, columns)))


def test_the_batch_made_of_an_unroll_fits_its_topic_too():
    """Small rows: observations that compress to nothing, and 16 bytes more in a batch.

    One record of these would be within 8 MiB, and its batch of 13 MiB.
    """
    rows = (340, 1024)
    unroll = unroll_of(np.zeros((341, 1024), np.int64), np.zeros(rows, np.int64))
    at_random = {"log_prob": unroll.behaviour["log_prob"]}
    unroll = replace(unroll, behaviour=at_random)
    whole = encode(to_record(unroll, TEMPLATE, Packing()))
    assert len(whole) <= MAX_UNROLL_BYTES
    assert batch_bytes(decode(whole, Unroll)) > MAX_BATCH_BYTES
    parts = list(encode_unrolls(unroll, TEMPLATE, Packing()))
    assert [part.num_steps for part in parts] == [170, 170]
    for part in parts:
        assert batch_bytes(decode(part.value, Unroll)) <= MAX_BATCH_BYTES


@pytest.mark.parametrize("wide", [1, 60, 4096])
def test_the_longest_unroll_fits_whatever_the_observations_are(wide):
    """Of as many environments as a worker accepts, and of a few."""
    observation, action = SpaceField("", "box", "|u1", (wide,)), describe(Discrete(9))
    num_envs = most_envs(observation, action)
    rng = np.random.default_rng(0)
    for envs in (num_envs, 1 + num_envs // 50):
        steps = longest_unroll((observation,), action, envs)
        noise = rng.integers(0, 256, (steps + 1, envs, wide), np.uint8)
        unroll = unroll_of(noise, np.ones((steps, envs), np.int64))
        (part,) = encode_unrolls(unroll, TEMPLATE, Packing())
        assert part.num_steps == steps
        in_replay = batch_bytes(decode(part.value, Unroll)) / MAX_BATCH_BYTES
        assert in_replay <= 1
        assert max(len(part.value) / MAX_UNROLL_BYTES, in_replay) > 0.95


def most_envs(observation, action):
    """The most environments of which a worker accepts one step."""

    def refused(envs):
        try:
            return longest_unroll((observation,), action, envs) < 1
        except SchemaError:
            return True

    return bisect.bisect_left(range(1, 1 << 20), True, key=refused)


def test_an_unroll_may_be_as_long_as_compression_allows():
    """Rewards and actions never compress: 10,000 steps would be a tensor too large."""
    observation, action = SpaceField("", "box", "|u1", (1,)), describe(Discrete(9))
    steps = most_steps((observation,), action, 1024)
    assert longest_unroll((observation,), action, 1024) <= steps < 300
    frames = SpaceField("", "box", "|u1", (84, 84))
    assert most_steps((frames,), action, 16) == (64 << 20) // (84 * 84 * 16) - 1
    assert most_steps((SpaceField("", "box", "<f8", (1 << 23,)),), action, 1) == 1


def test_one_step_too_large_is_refused_with_the_sum():
    field = SpaceField("", "box", "|u1", (1 << 20,))
    with pytest.raises(SchemaError, match=r"a step of 5 environments.*fewer envs"):
        longest_unroll((field,), (), 5)
    assert longest_unroll((field,), (), 1) == 6


def test_frames_that_repeat_are_compressed_and_noise_is_not():
    packing, rng = Packing(), np.random.default_rng(0)
    frame = np.tile(rng.integers(0, 256, (1, 2, 84, 84), np.uint8), (33, 1, 1, 1))
    noise = rng.random((33, 2, 4)).astype(np.float32)
    for _ in range(6):
        packed = packing.pack({"frame": frame, "noise": noise})
    assert packed["frame"].encoding != "RAW" and packed["noise"].encoding == "RAW"
    assert len(packed["frame"].data) < 0.05 * frame.nbytes
    assert packed["frame"].array().tobytes() == frame.tobytes()


# --- evaluation ----------------------------------------------------------------------


def test_each_environment_gives_its_first_episodes(make):
    environments = make("E3-v0", 3)
    actor = q_actor(environments, [[1.0, -1.0]], [0, 0, 0])
    result = evaluate(environments, actor, SEEDS, 7)
    assert result.returns.tolist() == [3.0] * 9, "three each: 7 rounded up"
    assert result.lengths.tolist() == [3] * 9


def test_short_episodes_do_not_crowd_out_long_ones(make):
    """Ten steps each, one environment's cut by a crash: it gives its next ones."""
    kwargs = {"how": "raise", "bad_seed": SEEDS.episode(1, 0)}
    environments = make("Misbehaving-v0", 2, kwargs=kwargs)
    actor = q_actor(environments, [[1.0, -1.0]], [0, 0])
    result = evaluate(environments, actor, SEEDS, 4)
    assert result.lengths.tolist() == [10, 10, 10, 10]
    assert environments.restarts == 1


def test_an_evaluation_that_is_told_to_stop_has_no_result(make):
    environments = make("E3-v0", 3)
    actor = q_actor(environments, [[1.0, -1.0]], [0, 0, 0])
    assert evaluate(environments, actor, SEEDS, 9, lambda: True) is None
