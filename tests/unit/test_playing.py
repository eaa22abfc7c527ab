"""Greedy episodes of a policy, here: what they come to, and what is seen of them."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from infra.control.role import RoleContext
from infra.settings import Settings
from producers.drawing import (
    CannotDraw,
    Screen,
    SeenRecipe,
    frames_per_second,
    has_display,
)
from producers.guarded_env import EnvFailed
from producers.playing import CannotPlay, playing
from producers.seeding import StreamSeeds, evaluation_seeds, play_seeds
from producers.spaces import describe
from schemas.experiment import EnvSpec, from_values
from schemas.records import SpaceField
from tests.unit.envs.drawn import HEIGHT, WIDTH, Drawn
from tests.unit.envs.graphs import (
    RUN_ID,
    echo,
    graph_record,
    linear_q,
    recurrent,
    version_record,
)
from tests.unit.policies.records import ENV

SETTINGS = Settings(env_modules=("tests.unit.envs",))
GRAPH = graph_record(linear_q(2, 3), ENV)
# q = [x0, x1, 0].
W = {"w": np.array([[1, 0, 0], [0, 1, 0]], np.float32), "b": np.zeros(3, np.float32)}


def context_of(**env):
    experiment = from_values(
        {
            "apiVersion": "rollstream/v1",
            "kind": "Experiment",
            "metadata": {"name": "exp"},
            "spec": {"env": {"id": "Drawn-v0"} | env},
        }
    )
    return RoleContext(SETTINGS, experiment, RUN_ID, "evaluator", 0, -1)


def play(episodes=2, seed=3, screen=None, arrays=W, graph=GRAPH, on_row=None, **env):
    version = version_record(graph, 1, arrays)
    with playing(
        context_of(**env),
        graph,
        version,
        screen or Screen(),
        episodes=episodes,
        seed=seed,
        on_row=on_row or (lambda: None),
    ) as played:
        return list(played)


def by_hand(seed):
    """The episode's return with the policy worked out by NumPy."""
    env = Drawn()
    seen, _ = env.reset(seed=seed)
    total, is_over = 0.0, False
    while not is_over:
        seen, reward, is_over, _, _ = env.step(np.argmax([*seen, 0]))
        total += reward
    return total


def test_each_episode_can_be_played_again_from_its_seed():
    played = play(episodes=5)
    assert [episode.length for episode in played] == [4] * 5
    assert [e.return_ for e in played] == [by_hand(e.seed) for e in played]
    assert len({episode.seed for episode in played}) == 5


def test_the_seed_decides_whatever_the_policy():
    first, again = play(seed=3), play(seed=3, arrays={**W, "b": np.ones(3, "<f4")})
    assert [e.seed for e in first] == [e.seed for e in again]
    assert [e.seed for e in first] != [e.seed for e in play(seed=4)]


def test_no_worker_and_no_evaluation_has_these_seeds():
    others = [StreamSeeds(3, 0, 0), evaluation_seeds(3, 0, 0, 0)]
    seeds = [each.episode(0, 0) for each in [play_seeds(3), *others]]
    assert len(set(seeds)) == 3


def test_a_frame_of_each_reset_and_step_and_no_row_beyond_the_last_episode():
    screen, frames = Screen("rgb_array"), []
    play(episodes=3, screen=screen, on_row=lambda: frames.extend(screen.take()))
    assert [frame[0, 0, 0] for frame in frames] == [0, 50, 100, 150, 200] * 3
    assert {frame.shape for frame in frames} == {(HEIGHT, WIDTH, 3)}
    assert screen.ended == 3


def test_an_environment_with_nothing_but_a_vector_entry_point_is_played_unseen():
    from tests.unit.envs.tables import E3Vector

    if "E3VectorOnly-v0" not in gymnasium.registry:
        gymnasium.register("E3VectorOnly-v0", vector_entry_point=E3Vector)
    spec = EnvSpec(id="E3VectorOnly-v0")
    with pytest.raises(CannotDraw, match="only a vector entry point"):
        frames_per_second(SeenRecipe.on(spec, SETTINGS, Screen("rgb_array")))


def test_the_environment_says_how_fast_its_frames_are():
    spec = EnvSpec(id="Drawn-v0")
    recipe = SeenRecipe.on(spec, SETTINGS, Screen("rgb_array"))
    assert frames_per_second(recipe) == 10
    assert recipe.screen.take() == [], "trying is not seen"


@pytest.mark.parametrize(
    ("env", "mode", "message"),
    [
        ({"kwargs": {"drawing": "not at all"}}, "rgb_array", "paint is not installed"),
        ({"kwargs": {"drawing": "badly"}}, "rgb_array", r"found uint8\[17, 21\]"),
        ({"id": "E3-v0"}, "human", "E3-v0: expected .* human"),
        ({"id": "E3-v0"}, "rgb_array", "E3-v0: expected .* rgb_array"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_anything_is_played(env, mode, message):
    spec = EnvSpec(**{"id": "Drawn-v0"} | env)
    with pytest.raises(CannotDraw, match=message):
        frames_per_second(SeenRecipe.on(spec, SETTINGS, Screen(mode)))


def test_a_policy_of_another_environment_is_refused():
    with pytest.raises(CannotPlay, match=r"policy version 1 \(epoch 0\).*obs/"):
        play(id="CartPole-v1")


def test_a_damaged_policy_is_refused():
    with pytest.raises(CannotPlay, match="expected float32|<f4"):
        play(arrays={**W, "w": np.ones((3, 2), np.float32)})


def test_an_environment_that_crashes_for_ever_ends_it():
    with pytest.raises(EnvFailed, match="crashed on purpose"):
        play(kwargs={"crashes_at": 2})


@pytest.mark.parametrize(
    ("variables", "found"),
    [({}, False), ({"DISPLAY": ""}, False), ({"DISPLAY": ":0"}, True),
     ({"WAYLAND_DISPLAY": "wayland-0"}, True)],
)  # fmt: skip
def test_a_display_is_known_by_its_variable(monkeypatch, variables, found):
    monkeypatch.setattr("sys.platform", "linux")
    assert has_display(variables) is found


def softmax_by_hand(arrays, seeds):
    """Returns of episodes under the recurrent policy, with NumPy alone."""
    returns = []
    for seed in seeds:
        env, h, c = Drawn(), np.zeros(4, np.float32), np.zeros(4, np.float32)
        seen, _ = env.reset(seed=seed)
        total, is_over = 0.0, False
        while not is_over:
            c = c / 2 + seen @ arrays["wc"]
            h = np.tanh(h @ arrays["wh"] + c)
            action = np.argmax(h @ arrays["w_logits"])
            seen, reward, is_over, _, _ = env.step(action)
            total += reward
        returns.append(total)
    return returns


def test_a_recurrent_policy_forgets_at_each_episodes_end_and_not_before():
    states = tuple(SpaceField(name, "box", "<f4", (4,)) for name in "hc")
    graph = graph_record(
        recurrent(2, 4, {"logits": 3, "value": 0}), ENV, head="categorical",
        exploration="sample", exploration_options={}, states=states,
    )  # fmt: skip
    rng = np.random.default_rng(5)
    shapes = {"wc": (2, 4), "wh": (4, 4), "w_logits": (4, 3), "w_value": (4,)}
    arrays = {n: rng.normal(size=s).astype(np.float32) for n, s in shapes.items()}
    # Five rows an episode: some begin before row 32 and end behind it.
    played = play(episodes=20, arrays=arrays, graph=graph)
    expected = softmax_by_hand(arrays, [episode.seed for episode in played])
    assert [episode.return_ for episode in played] == expected
    assert len(set(expected)) > 2, "what it does depends on what it sees"


@pytest.mark.parametrize("squashed", [0.0, 1.0])
def test_a_gaussian_policy_takes_its_mean_within_the_bounds(squashed):
    pendulum = gymnasium.make("Pendulum-v1").unwrapped
    env = replace(
        ENV,
        observation=describe(pendulum.observation_space),
        action=describe(pendulum.action_space),
    )
    # The mean is the angular velocity, up to 8; the torque at most 2.
    graph = graph_record(
        echo(3, {"mean": [2], "log_std": [0]}), env, head="gaussian",
        exploration="sample", exploration_options={"squashed": squashed},
    )  # fmt: skip
    (played,) = play(episodes=1, arrays={}, graph=graph, id="Pendulum-v1")
    seen, _ = pendulum.reset(seed=played.seed)
    total = 0.0
    for _ in range(200):
        mean = seen[[2]]
        action = 2 * np.tanh(mean) if squashed else np.clip(mean, -2, 2)
        seen, reward, *_ = pendulum.step(action.astype(np.float32))
        total += float(reward)
    assert played.length == 200
    assert played.return_ == pytest.approx(total, rel=1e-6)
