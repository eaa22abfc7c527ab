"""Policies from records: what they answer, and what is refused."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces
from onnx import TensorProto

from producers.acting import RandomActor
from producers.memory import Memory
from producers.policy import Policy, PolicyRefused, open_graph
from producers.policy_feed import PolicyFeed
from producers.q_actor import QActor
from producers.spaces import describe
from schemas.records import (
    NO_POLICY,
    EnvDescription,
    PolicyChunk,
    PolicyRef,
    SpaceField,
)
from tests.unit.envs.graphs import RUN_ID, graph_record, linear_q, version_record

# q = x @ W + B: for x = [1, 0] it is [1, 4, 0], for x = [0, 2] it is [3, 0, 6].
W = np.array([[1, 4, 0], [1.5, 0, 3]], np.float32)
B = np.zeros(3, np.float32)
X = {"": np.array([[1, 0], [0, 2]], np.float32)}


def env_of(observation=None, action=None):
    return EnvDescription(
        env_id="Any-v0",
        observation=describe(observation or spaces.Box(-9, 9, (2,), np.float32)),
        action=describe(action or spaces.Discrete(3, start=5)),
        max_episode_steps=None,
        vectorization="sync",
        versions={},
    )


ENV = env_of()
GRAPH = graph_record(linear_q(2, 3), ENV)


def make_policy(version=1, w=W, b=B):
    record = version_record(GRAPH, version, {"w": w, "b": b})
    session = open_graph(GRAPH, ENV)
    return Policy(session, record, record.tensors, session.load(record, record.tensors))


def make_actor(epsilons, steps=1, seed=0, policy=None):
    actor = QActor(policy or make_policy(), 2, np.array(epsilons, float))
    actor.begin(steps, np.random.default_rng(seed))
    return actor


def test_a_greedy_actor_takes_the_best_action_of_the_space():
    actor = make_actor([0, 0])
    actions = actor.act(0, X)[""]
    assert actions.tolist() == [1 + 5, 2 + 5], "the space starts at 5"
    assert actions.dtype == np.int64


def test_behaviour_columns_are_what_the_policy_thought():
    actor = make_actor([0, 0])
    actor.act(0, X)
    behaviour = actor.finish(1, {"": np.array([[0, 1], [1, 1]], np.float32)})
    # The last row of q_max is this policy's too: [1.5, 0, 3] and [2.5, 4, 3].
    assert behaviour["q_max"].tolist() == [[4, 6], [3, 4]]
    assert behaviour["q_taken"].tolist() == [[4, 6]]
    assert behaviour["log_prob"].tolist() == [[0, 0]]
    assert {column.dtype for column in behaviour.values()} == {np.dtype("<f4")}


def test_the_log_probability_is_that_of_epsilon_greedy():
    # Greedy: 1 - eps + eps/3; another: eps/3. eps = 0.3 -> 0.8 and 0.1.
    actor = make_actor([0.3, 1.0], steps=400)
    taken = np.stack([actor.act(t, X)[""] - 5 for t in range(400)])
    behaviour = actor.finish(400, X)
    expected = np.where(taken == [1, 2], np.log([0.8, 1 / 3]), np.log([0.1, 1 / 3]))
    np.testing.assert_allclose(behaviour["log_prob"], expected, rtol=1e-6)
    share = (taken[:, 0] == 1).mean()
    assert 0.74 < share < 0.86 and 0.25 < (taken[:, 1] == 2).mean() < 0.42
    chosen = np.take_along_axis(np.array([[1, 4, 0], [3, 0, 6]]), taken.T, 1).T
    np.testing.assert_array_equal(behaviour["q_taken"], chosen)
    assert (behaviour["q_max"] == [4, 6]).all(), "the best, whatever is tried"


def test_an_unroll_cut_short_has_short_columns():
    actor = make_actor([0, 0], steps=8)
    for t in range(3):
        actor.act(t, X)
    behaviour = actor.finish(3, X)
    assert {n: c.shape for n, c in behaviour.items()} == {
        "q_max": (4, 2),
        "q_taken": (3, 2),
        "log_prob": (3, 2),
    }


def test_observations_reach_the_graph_in_their_own_dtype():
    env = env_of(spaces.Box(0, 255, (2,), np.uint8))
    graph = graph_record(linear_q(2, 3, TensorProto.UINT8), env)
    session = open_graph(graph, env)
    record = version_record(graph, 1, {"w": W, "b": B})
    params = session.load(record, record.tensors)
    q = session.bind(params).run({"": np.array([[255, 2]], np.uint8)}, {})["q"]
    assert q.tolist() == [[258, 1020, 6]]


def test_each_run_has_outputs_of_its_own_and_takes_any_layout():
    record = version_record(GRAPH, 1, {"w": W, "b": B})
    session = open_graph(GRAPH, ENV)
    bound = session.bind(session.load(record, record.tensors))
    first = bound.run(X, {})["q"]
    before = first.copy()
    second = bound.run({"": np.asfortranarray(X[""][::-1])}, {})["q"]
    assert (
        first.tolist() == before.tolist() and second.tolist() == before[::-1].tolist()
    )
    assert len(bound.run({"": X[""][:1]}, {})["q"]) == 1


def test_of_equal_actions_only_the_first_is_greedy():
    actor = make_actor([0.5, 0.5], steps=200, policy=make_policy(w=W * 0))
    taken = np.stack([actor.act(t, X)[""] - 5 for t in range(200)])
    found = actor.finish(200, X)["log_prob"]
    expected = np.log(np.where(taken == 0, 0.5 + 0.5 / 3, 0.5 / 3))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert set(taken.flat) == {0, 1, 2}


def test_an_explorer_cut_short_has_the_columns_of_the_steps_it_took():
    whole, cut = make_actor([0.9, 0.9], steps=50), make_actor([0.9, 0.9], steps=50)
    for t in range(50):
        whole.act(t, X)
    for t in range(20):
        cut.act(t, X)
    expected, found = whole.finish(50, X), cut.finish(20, X)
    for name in ("q_taken", "log_prob"):
        np.testing.assert_array_equal(found[name], expected[name][:20])


def test_the_columns_of_an_unroll_outlive_the_next():
    actor = make_actor([0.5, 0.5], steps=2)
    actor.act(0, X), actor.act(1, X)
    first = actor.finish(2, X)
    before = {name: column.copy() for name, column in first.items()}
    other = {"": X[""][::-1] * 2}
    actor.begin(1, np.random.default_rng(5))
    actor.act(0, other)
    assert actor.finish(1, other)["q_max"].tolist() == [[12, 8], [12, 8]]
    for name, column in first.items():
        np.testing.assert_array_equal(column, before[name])


def test_parameters_may_be_named_with_or_without_their_prefix():
    record = version_record(GRAPH, 1, {"param/w": W, "param/b": B})
    assert open_graph(GRAPH, ENV).load(record, record.tensors).keys() == {
        "param/w",
        "param/b",
    }


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"w": W}, "expected also .*b"),
        ({"w": W, "b": B.astype(np.float64)}, "b: expected <f4"),
        ({"w": W.T, "b": B}, r"w: expected <f4\[2, 3\], found <f4\[3, 2\]"),
    ],
)
def test_tensors_that_do_not_fit_the_graph_are_refused(arrays, message):
    record = version_record(GRAPH, 1, arrays)
    with pytest.raises(PolicyRefused, match=message):
        open_graph(GRAPH, ENV).load(record, record.tensors)


@pytest.mark.parametrize(
    "data", [b"", b"\x80\x04\x95pickle", b"\xff" * 100, b"\x08\0\0\0\0\0\0\0{}      "]
)
def test_bytes_that_are_not_safetensors_are_refused(data):
    digest = hashlib.sha256(data).hexdigest()
    record = replace(version_record(GRAPH, 1, {"w": W}), tensors_sha256=digest)
    with pytest.raises(PolicyRefused):
        open_graph(GRAPH, ENV).load(record, data)


def test_a_flipped_bit_is_refused():
    record = version_record(GRAPH, 1, {"w": W, "b": B})
    damaged = record.tensors[:-1] + bytes([record.tensors[-1] ^ 1])
    with pytest.raises(PolicyRefused, match="sha256"):
        open_graph(GRAPH, ENV).load(record, damaged)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"onnx": b"not a graph"}, "sha256"),
        ({"head": "softmax"}, "head"),
        ({"head": "categorical"}, "exploration"),
        ({"head": "categorical", "exploration": "sample"}, "outputs .*logits.*value"),
        ({"exploration": "sample"}, "exploration: expected .*epsilon_ladder"),
        ({"observation": describe(spaces.Box(0, 1, (3,), np.float32))}, "obs/"),
        ({"observation": describe(spaces.Box(0, 1, (2,), np.float64))}, "obs/"),
        ({"action": describe(spaces.Discrete(3))}, "actions"),
        ({"states": (SpaceField("h", "box", "<f4", (4,)),)}, "state/h"),
    ],
)
def test_a_graph_that_cannot_act_here_is_refused(change, message):
    with pytest.raises(PolicyRefused, match=message):
        open_graph(replace(GRAPH, **change), ENV)


@pytest.mark.parametrize("onnx", [b"", b"garbage", GRAPH.onnx[:40]])
def test_damaged_graphs_are_refused_even_with_a_right_hash(onnx):
    graph = replace(GRAPH, onnx=onnx, sha256=hashlib.sha256(onnx).hexdigest())
    with pytest.raises(PolicyRefused):
        open_graph(graph, ENV)


def test_a_graph_that_would_read_files_is_refused():
    import onnx
    from onnx.external_data_helper import set_external_data

    model = onnx.load_from_string(GRAPH.onnx)
    secret = model.graph.initializer.add()
    secret.name, secret.data_type = "secret", TensorProto.FLOAT
    secret.dims.append(1)
    secret.raw_data = b"\0\0\0\0"
    set_external_data(secret, "/etc/hostname")
    secret.ClearField("raw_data")
    data = model.SerializeToString()
    graph = replace(GRAPH, onnx=data, sha256=hashlib.sha256(data).hexdigest())
    with pytest.raises(PolicyRefused, match="external data"):
        open_graph(graph, ENV)


# --- the feed ------------------------------------------------------------------------


def make_feed():
    opened = []

    def open_(graph):
        opened.append(graph.sha256)
        return open_graph(graph, ENV)

    feed = PolicyFeed(RUN_ID, open_)
    feed.opened = opened
    return feed


def take(feed, version, **more):
    more.setdefault("arrays", {"w": W, "b": B})
    arrays = more.pop("arrays")
    feed.take_version(version_record(GRAPH, version, arrays, **more))
    return feed.load()


def test_a_version_acts_once_its_graph_is_there():
    feed = make_feed()
    take(feed, 1)
    assert feed.ref == NO_POLICY
    feed.take_graph(GRAPH)
    feed.load()
    assert feed.ref == PolicyRef(0, 1)


def test_policies_never_go_back():
    feed = make_feed()
    feed.take_graph(GRAPH)
    seen = []
    for epoch, version in [(0, 3), (0, 2), (1, 1), (0, 9), (1, 1), (1, 0), (1, 2)]:
        take(feed, version, epoch=epoch)
        seen.append((feed.ref.epoch, feed.ref.version))
    assert seen == [(0, 3), (0, 3), (1, 1), (1, 1), (1, 1), (1, 1), (1, 2)]


def test_another_runs_policies_are_ignored():
    feed = make_feed()
    feed.take_graph(replace(GRAPH, run_id="run0"))
    assert feed.opened == []
    feed.take_graph(GRAPH)
    take(feed, 9, run_id="run0")
    assert feed.ref == NO_POLICY and feed.newest == NO_POLICY


def test_a_bad_version_leaves_the_policy_before_it():
    feed = make_feed()
    feed.take_graph(GRAPH)
    take(feed, 1)
    refusal = take(feed, 2, arrays={"w": W})
    assert refusal.ref == PolicyRef(0, 2) and "expected also" in refusal.reason
    assert feed.ref == PolicyRef(0, 1)
    assert feed.load() is None, "reported once"
    assert take(feed, 3) is None and feed.ref == PolicyRef(0, 3)


def test_a_bad_graph_is_reported_and_the_old_one_stays():
    feed = make_feed()
    feed.take_graph(GRAPH)
    refusal = feed.take_graph(replace(GRAPH, sha256="0" * 64, epoch=1))
    assert "sha256" in refusal.reason
    take(feed, 1)
    assert feed.ref == PolicyRef(0, 1)


def test_the_session_is_made_once_for_a_graph():
    feed = make_feed()
    for _ in range(3):
        feed.take_graph(GRAPH)
        feed.take_graph(replace(GRAPH, epoch=5))
    assert len(feed.opened) == 1


def test_other_exploration_of_the_same_graph_is_taken_over():
    feed = make_feed()
    feed.take_graph(GRAPH)
    feed.take_graph(replace(GRAPH, exploration_options={"epsilon": 0.1}))
    take(feed, 1)
    assert feed.current.session.graph.exploration_options == {"epsilon": 0.1}


def test_only_the_newest_of_many_versions_is_opened():
    feed = make_feed()
    feed.take_graph(GRAPH)
    feed.take_version(version_record(GRAPH, 1, {"w": W}))  # would be refused
    feed.take_version(version_record(GRAPH, 2, {"w": W, "b": B}))
    assert feed.load() is None and feed.ref == PolicyRef(0, 2)


def in_chunks(version, size=40, slot=1):
    whole = version_record(GRAPH, version, {"w": W, "b": B})
    parts = [whole.tensors[i : i + size] for i in range(0, len(whole.tensors), size)]
    chunks = [
        PolicyChunk("exp", RUN_ID, 0, version, slot, i, part)
        for i, part in enumerate(parts)
    ]
    return replace(whole, tensors=b"", num_chunks=len(parts), slot=slot), chunks


def test_a_version_in_chunks_acts_when_all_are_there():
    feed = make_feed()
    feed.take_graph(GRAPH)
    manifest, chunks = in_chunks(4)
    for chunk in chunks[1:]:
        feed.take_chunk(chunk)
    feed.take_version(manifest)
    assert feed.load() is None and feed.ref == NO_POLICY
    feed.take_chunk(chunks[0])
    feed.load()
    assert feed.ref == PolicyRef(0, 4)
    assert feed.current.params["param/w"].tolist() == W.tolist()
    assert not feed._chunks, "they are not kept"


def test_chunks_of_different_versions_are_not_mixed():
    feed = make_feed()
    feed.take_graph(GRAPH)
    old, new = in_chunks(4)[1], in_chunks(5)
    for chunk in [*old[:2], *new[1][2:]]:
        feed.take_chunk(chunk)
    feed.take_version(new[0])
    assert feed.load() is None and feed.ref == NO_POLICY


def test_chunks_that_were_changed_are_refused():
    feed = make_feed()
    feed.take_graph(GRAPH)
    manifest, chunks = in_chunks(4)
    for chunk in [replace(chunks[0], data=b"?" * 40), *chunks[1:]]:
        feed.take_chunk(chunk)
    feed.take_version(manifest)
    assert "sha256" in feed.load().reason


# --- memory --------------------------------------------------------------------------


def frames_of(memory, *values):
    return [memory.see({"": np.array([[v], [10 * v]])})[""][:, :, 0] for v in values]


def test_frames_are_stacked_oldest_first_and_begin_with_the_first():
    memory = Memory((SpaceField("", "box", "<f8", (3, 1)),), (), 2, 3)
    first, second = frames_of(memory, 1, 2)
    assert first.tolist() == [[1, 1, 1], [10, 10, 10]]
    assert second.tolist() == [[1, 1, 2], [10, 10, 20]]


def test_frames_restart_after_a_row_that_is_not_valid():
    memory = Memory((SpaceField("", "box", "<f8", (3, 1)),), (), 2, 3)
    frames_of(memory, 1, 2)
    memory.forget(np.array([True, False]))
    (third,) = frames_of(memory, 3)
    assert third.tolist() == [[1, 2, 3], [30, 30, 30]]


def test_a_first_policy_knows_the_frames_that_were_seen_at_random():
    frame = SpaceField("", "box", "<f8", (3, 1))
    action = describe(spaces.Discrete(2))
    random = RandomActor(action, 2, Memory((frame,), (), 2, 3))
    random.begin(2, np.random.default_rng(0))
    for t, value in enumerate((1, 2)):
        random.act(t, {"": np.array([[value], [10 * value]])})
        random.memory.forget(np.array([True, True]))
    memory = Memory((frame,), (), 2, 3)
    memory.take_over(random.memory)
    assert frames_of(memory, 3)[0].tolist() == [[1, 2, 3], [10, 20, 30]]


def test_peeking_leaves_the_frames_as_they_are():
    memory = Memory((SpaceField("", "box", "<f8", (2, 1)),), (), 2, 2)
    frames_of(memory, 1)
    for _ in range(2):
        assert memory.peek({"": np.array([[2], [20]])})[""][0, :, 0].tolist() == [1, 2]


def test_states_are_zeroed_where_the_row_was_not_valid():
    memory = Memory((), (SpaceField("h", "box", "<f4", (2,)),), 2, 1)
    assert memory.remembers
    memory.begin(1)
    memory.next_places()["next_state/h"].update_inplace(np.ones((2, 2), np.float32))
    memory.keep()
    memory.forget(np.array([False, True]))
    assert memory.states["h"].tolist() == [[0, 0], [1, 1]]
    assert memory.states["h"].dtype == np.float32
