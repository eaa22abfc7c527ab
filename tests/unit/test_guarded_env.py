"""One bad environment costs its own rows, is named, and leaves nothing behind."""

import faulthandler
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from infra.settings import Settings
from producers.env_recipe import EnvRecipe, EnvRefused
from producers.environments import describe_environments, make_environments
from producers.episode_runner import scalar
from producers.guarded_env import MAX_REBUILDS, EnvFailed
from producers.rollout import Rollout
from producers.seeding import StreamSeeds
from producers.spaces import SpaceRefused
from producers.watchdog import StepTimeout, Watchdog
from schemas.experiment import EnvSpec, Wrapper
from tests.unit.envs.tables import E3

MACHINE = Settings(env_modules=("tests.unit.envs",))
SEEDS = StreamSeeds(1, 0, 0)
FORMS = ["sync", "async", "vector_entry_point"]
BAD_ENV = 1
BAD_SEED = SEEDS.episode(BAD_ENV, 0)


@pytest.fixture
def make():
    """Makes environments, and closes them whatever happens."""
    made = []

    def make_(env_id, num_envs=3, timeout_s=60.0, **spec):
        watchdog = Watchdog(timeout_s)
        made.append(watchdog)
        values = {"vectorization": "sync", "step_timeout_s": timeout_s} | spec
        environments = make_environments(
            EnvSpec(id=env_id, **values), num_envs, MACHINE, watchdog
        )
        made.append(environments)
        return environments

    yield make_
    for each in reversed(made):
        each.close()


def push(environments):
    """Action 0 for all."""
    return {"": np.zeros(environments.num_envs, np.int64)}


def run(environments, steps):
    """All steps, with copies of what the next step overwrites."""
    environments.reset(SEEDS)
    taken = []
    for _ in range(steps):
        step = environments.step(push(environments))
        observations = step.observations[""].copy()
        taken.append(step._replace(observations={"": observations}))
    return taken


def single_e3(steps):
    """The rows of E3 alone, stepped by a plain loop: the reset is a row of its own."""
    env, rows, over = E3(), [], False
    env.reset()
    for _ in range(steps):
        if over:
            row = (env.reset()[0][0], 0.0, False)
        else:
            observation, reward, _, truncated, _ = env.step(0)
            row = (observation[0], reward, truncated)
        over = row[2]
        rows.append(row)
    return rows


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_rows_of_the_single_environment(make, form):
    environments = make("E3-v0", vectorization=form)
    rows = Counter(
        (step.observations[""][b, 0], step.rewards[b], bool(step.truncated[b]))
        for step in run(environments, 12)
        for b in range(3)
    )
    assert rows == Counter(single_e3(12) * 3)
    # 11, 12, 13 (truncated), 20 (reset row, reward 0), 21, ...
    assert rows[(13.0, 1.0, True)] == 3 and rows[(20.0, 0.0, False)] == 3
    assert environments.vectorization == form


def test_auto_prefers_the_environments_own_vector_form(make):
    assert make("E3-v0", vectorization="auto").vectorization == "vector_entry_point"
    assert make("OddRewards-v0", vectorization="auto").vectorization == "sync"
    halved = make("E3-v0", vectorization="auto", wrappers=(Wrapper(name="Halved"),))
    assert halved.vectorization == "sync"
    assert run(halved, 1)[0].rewards.tolist() == [0.5] * 3


@pytest.mark.filterwarnings("ignore:.*is missing AutoresetMode metadata")
@pytest.mark.parametrize(
    ("env_id", "found"),
    [
        ("E3SameStep-v0", "SAME_STEP"),
        ("E3Disabled-v0", "DISABLED"),
        ("E3Undeclared-v0", "autoreset_mode None"),
    ],
)
def test_any_other_autoreset_is_refused_at_start(make, env_id, found):
    with pytest.raises(EnvRefused, match=f"expected .* NEXT_STEP.* found .*{found}"):
        make(env_id, vectorization="auto")


def test_an_environment_that_lies_about_its_mode_is_found_out(make):
    environments = make("E3Lying-v0", vectorization="auto")
    rollout = Rollout(environments, SEEDS)
    with pytest.raises(EnvRefused, match="a reset with reward 0"):
        rollout.collect(RandomE3(environments), 12)


def test_final_observations_within_infos_are_found_out_at_once(make):
    environments = make("E3LyingWithInfos-v0", vectorization="auto")
    with pytest.raises(EnvRefused, match="infos with final_obs"):
        run(environments, 1)


def RandomE3(environments):  # noqa: N802
    from producers.acting import RandomActor

    return RandomActor(environments.action.fields, environments.num_envs)


@pytest.mark.parametrize(
    ("form", "how", "steps"),
    [
        ("sync", "reset-in-step", 2),
        ("async", "reset-in-step", 2),
        ("sync", "reset-at-end", 10),
    ],
)
def test_an_environment_that_resets_itself_is_refused(make, form, how, steps):
    environments = make("Misbehaving-v0", vectorization=form, kwargs={"how": how})
    run(environments, steps - 1)
    with pytest.raises(EnvRefused, match=r"found reset\(\) called within step"):
        environments.step(push(environments))


def test_the_autoreset_wrapper_is_refused(make):
    with pytest.raises(EnvRefused, match="gymnasium.wrappers.Autoreset"):
        make("SelfResetting-v0")


@pytest.mark.parametrize(
    ("form", "how", "reason"),
    [
        ("sync", "raise", r"environment 1: ValueError\('boom'\)"),
        ("async", "raise", r"environment 1: ValueError\('boom'\)"),
        ("async", "exit", "environment 1: its process ended with code 1"),
        ("sync", "hang", "environment 1: expected an answer within 0.2 s"),
        ("async", "hang", "environment 1: expected it to be stepped within 0.2 s"),
    ],
)
def test_one_bad_environment_costs_its_own_rows(make, form, how, reason):
    kwargs = {"how": how, "bad_seed": BAD_SEED}
    environments = make("Misbehaving-v0", vectorization=form, kwargs=kwargs)
    environments.reset(SEEDS)
    steps = []
    deadline = time.monotonic() + 60
    while len(steps) < 12 or steps[-1].failures:
        assert time.monotonic() < deadline
        hangs = how == "hang" and len(steps) == 3
        with impatient(environments._slots[BAD_ENV]) if hangs else nullcontext():
            step = environments.step(push(environments))
        steps.append(step._replace(observations={"": step.observations[""].copy()}))
    bad = steps[3]
    assert [failure.env for failure in bad.failures] == [BAD_ENV]
    assert pytest.approx(1) == len(bad.failures)
    import re

    assert re.search(reason, bad.failures[0].reason)
    assert bad.truncated.tolist() == [False, True, False], "an explicit mark"
    # The others never noticed: 1, 2, 3, ... 10 (terminated), 0 (reset row).
    for other in (0, 2):
        seen = [step.observations[""][other, 0] for step in steps[:11]]
        assert seen == [*range(1, 11), 0]
    # The bad one began a new episode, seeded as the next one always is.
    healed = next(i for i in range(4, len(steps)) if not steps[i].failures)
    assert steps[healed].observations[""][BAD_ENV, 0] == 0
    assert environments.restarts == 1


@contextmanager
def impatient(slot):
    """No time for one that hangs: the others have theirs, however busy the machine."""
    answer = slot.answer

    def at_once():
        with pytest.MonkeyPatch.context() as patch, closing(Watchdog(0.2)) as watchdog:
            own = {"_watchdog": watchdog, "_timeout_s": 0.2}
            for name, value in {**own, "_deadline": time.monotonic() + 0.2}.items():
                patch.setattr(slot, name, value, raising=False)
            return answer()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slot, "answer", at_once)
        yield


def test_a_vector_environment_that_raises_is_made_anew(make):
    environments = make("E3-v0", vectorization="vector_entry_point")
    environments.reset(SEEDS)
    environments.step(push(environments))
    broken = environments._env
    broken.step = _raise_boom
    step = environments.step(push(environments))
    assert [failure.env for failure in step.failures] == [0, 1, 2]
    assert "boom" in step.failures[0].reason
    assert step.truncated.all()
    assert broken.closed
    after = environments.step(push(environments))
    assert after.observations[""][:, 0].tolist() == [10.0] * 3, "reset rows"
    assert not after.failures and environments.restarts == 1


def _raise_boom(actions):
    raise ValueError("boom")


@pytest.mark.parametrize("form", ["sync", "async"])
@pytest.mark.parametrize("how", ["raise-at-start", "raise-at-reset"])
def test_what_fails_for_ever_is_given_up_with_its_cause(make, form, how, monkeypatch):
    monkeypatch.setattr("producers.guarded_env._FIRST_DELAY_S", 0.001)
    with pytest.raises(EnvFailed, match=f"environment 0: .*boom.*{MAX_REBUILDS} times"):
        environments = make(
            "Misbehaving-v0", 1, vectorization=form, kwargs={"how": how}
        )
        environments.reset(SEEDS)


@pytest.mark.parametrize("form", ["sync", "async"])
def test_episodes_without_a_number_do_not_make_up_for_crashes(make, form, monkeypatch):
    monkeypatch.setattr("producers.guarded_env._FIRST_DELAY_S", 0.001)
    environments = make("NanEnds-v0", 1, vectorization=form)
    deadline_s = time.monotonic() + 120
    with pytest.raises(EnvFailed, match=f"environment 0: .*boom.*{MAX_REBUILDS} times"):
        environments.reset(SEEDS)
        while time.monotonic() < deadline_s:  # else: it is rebuilt for ever
            environments.step(push(environments))


def test_a_process_that_ends_at_its_start_is_given_up_with_its_code(make, monkeypatch):
    monkeypatch.setattr("producers.guarded_env.MAX_REBUILDS", 1)
    kwargs = {"how": "exit-at-start"}
    # Its end says so, and not the end of the time for it: that has another text.
    with pytest.raises(EnvFailed, match="environment 0: its process ended with code 3"):
        make("Misbehaving-v0", 1, vectorization="async", kwargs=kwargs)


def test_tries_are_made_later_each_time_and_then_no_more(make, monkeypatch):
    waits_s = []
    clock = SimpleNamespace(monotonic=lambda: 100.0, sleep=waits_s.append)
    monkeypatch.setattr("producers.guarded_env.time", clock)
    with pytest.raises(EnvFailed, match="boom at start"):
        make("Misbehaving-v0", 1, kwargs={"how": "raise-at-start"})
    # The first try, a second one at once, then 0.1 s and twice as long each time.
    assert waits_s == pytest.approx([0, 0, 0.1, 0.2, 0.4, 0.8])


@pytest.mark.parametrize("form", ["sync", "async"])
def test_a_constructor_that_blocks_is_named_in_time(make, form, monkeypatch):
    monkeypatch.setattr("producers.guarded_env.MAX_REBUILDS", 0)
    kwargs = {"how": "hang-at-start"}
    with pytest.raises(EnvFailed, match="environment 0: expected .* within 0.2 s"):
        make("Misbehaving-v0", 2, 0.2, vectorization=form, kwargs=kwargs)


def test_no_process_is_left_after_an_error_in_the_loop(make):
    environments = make("E3-v0", vectorization="async")
    pids = [slot._process.pid for slot in environments._slots]
    with pytest.raises(ZeroDivisionError):
        run(environments, 2)
        raise ZeroDivisionError
    environments.close()
    assert not any(_is_alive(pid) for pid in pids)
    assert multiprocessing.active_children() == []


def _is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


RAISES = """
import logging
from infra.control import role
from infra.settings import Settings
from producers.acting import RandomActor
from producers.role_environments import role_environments
from producers.rollout import Rollout
from producers.seeding import StreamSeeds
from schemas.experiment import from_values


class Broken(RandomActor):
    def act(self, t, observations):
        return 1 / 0 if t == 9 else super().act(t, observations)


def run(context, stop):
    with role_environments(context, 2) as environments:
        print(*(slot._process.pid for slot in environments._slots), flush=True)
        actor = Broken(environments.action.fields, 2)
        Rollout(environments, StreamSeeds(1, 0, 0)).collect(actor, 20)
    return 0


spec = {"env": {"id": "E3-v0", "vectorization": "async"}}
values = {"apiVersion": "rollstream/v1", "kind": "Experiment"}
experiment = from_values(values | {"metadata": {"name": "exp"}, "spec": spec})
settings = Settings(env_modules=("tests.unit.envs",))
role.load_context = lambda name, kind, index, offset: role.RoleContext(
    settings, experiment, "run1", kind, index, -1
)
role.role_main("worker", run, ["exp"])
"""


def test_an_error_in_the_policy_ends_the_process_and_its_environments():
    ended = subprocess.run(
        [sys.executable, "-c", RAISES],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 1, ended.stderr
    assert "ZeroDivisionError" in ended.stderr
    pids = [int(pid) for pid in ended.stdout.split()]
    assert len(pids) == 2 and not any(_is_alive(pid) for pid in pids)


def test_environments_are_closed_when_they_are_given_up(make):
    kwargs = {"how": "raise", "bad_seed": BAD_SEED}
    environments = make("Misbehaving-v0", kwargs=kwargs)
    environments.reset(SEEDS)
    envs = [slot._runner.env.unwrapped for slot in environments._slots]
    for _ in range(4):
        environments.step(push(environments))
    assert [env.closed for env in envs] == [0, 1, 0]
    environments.close()
    assert [env.closed for env in envs] == [1, 1, 1]


def test_rewards_of_every_kind_of_number_are_floats(make):
    steps = run(make("OddRewards-v0", 1), 8)
    rewards = [step.rewards[0] for step in steps]
    assert rewards[:6] == [0.5, 0.1, 2.0, 3.0, 4.0, 1.0]
    assert np.isnan(rewards[6]) and np.isposinf(rewards[7])
    assert all(step.rewards.dtype == np.float64 for step in steps)


def test_a_reward_of_two_numbers_is_an_error_with_the_environment(make):
    environments = make("OddRewards-v0", 1, kwargs={"wide": True})
    step = run(environments, 1)[0]
    assert (
        "environment 0: ValueError('reward: expected one number"
        in step.failures[0].reason
    )


@pytest.mark.parametrize(
    ("rewards", "dtype"),
    [
        (np.array([1, 2, 3], np.float32), np.float32),
        (np.array([1, 2, 3], np.float16), np.float64),
        (np.array([1, 2, 3]), np.float64),
        ([1, 2, 3], np.float64),
        (np.array([[1.0], [2.0], [3.0]]), np.float64),
        (np.ones((3, 2)), None),
        (np.ones(4), None),
        (np.array(["1", "2", "3"]), None),
    ],
)
def test_rewards_of_a_vector_are_one_number_each(make, rewards, dtype):
    environments = make("E3-v0", vectorization="vector_entry_point")
    environments.reset(SEEDS)
    observed, _, *more = environments._env.step(np.zeros(3, np.int64))
    environments._env.step = lambda actions: (observed, rewards, *more)
    if dtype is None:
        with pytest.raises(EnvFailed, match="rewards: expected 3 numbers"):
            environments.step(push(environments))
        return
    found = environments.step(push(environments)).rewards
    assert found.tolist() == [1, 2, 3] and found.dtype == dtype


@pytest.mark.parametrize("odd", ["2", None, np.ones(2), np.array([]), object(), 1j])
def test_what_is_not_one_number_is_no_reward(odd):
    with pytest.raises(ValueError, match="expected one number"):
        scalar(odd)


def test_every_episode_can_be_played_again_alone(make):
    environments = make("Misbehaving-v0", kwargs={"how": ""})
    rngs = []
    environments.reset(SEEDS)
    for _ in range(12):  # 10 steps, the reset row, and one more
        environments.step(push(environments))
    rngs = [
        slot._runner.env.unwrapped.np_random.random() for slot in environments._slots
    ]
    for index, drawn in enumerate(rngs):
        alone = gymnasium.make("Misbehaving-v0", disable_env_checker=True)
        alone.reset(seed=SEEDS.episode(index, 1))
        assert alone.unwrapped.np_random.random() == drawn


def test_a_field_that_cannot_travel_is_refused_at_start(make):
    with pytest.raises(SpaceRefused, match="deep/tail"):
        make("NotSupported-v0")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"id": "CartPole-v9"}, "did you mean CartPole-v1"),
        ({"id": "E3-v0", "kwargs": {"num_envs": 3}}, "num_envs"),
        ({"id": "E3-v0", "wrappers": (Wrapper(name="TimeLimits"),)}, "TimeLimit"),
        (
            {"id": "E3-v0", "wrappers": (Wrapper(name="RecordVideo"),)},
            "allowed wrapper",
        ),
        ({"id": "E3-v0", "wrappers": (Wrapper(name="Autoreset"),)}, "allowed wrapper"),
    ],
)
def test_what_is_not_on_the_lists_is_refused(spec, message):
    with pytest.raises(EnvRefused, match=message):
        EnvRecipe(EnvSpec(**spec), MACHINE.env_modules).make()


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting")
@pytest.mark.parametrize("form", ["sync", "async"])
def test_a_wrapper_has_its_effect_in_every_form(make, form):
    """Its arguments come from a spec, which knows lists and texts only."""
    wrappers = (
        Wrapper(name="DtypeObservation", kwargs={"dtype": "float32"}),
        Wrapper(name="ReshapeObservation", kwargs={"shape": [1, 1]}),
    )
    environments = make("E3-v0", vectorization=form, wrappers=wrappers)
    (field,) = environments.observation.fields
    assert (field.dtype, field.shape) == ("<f4", (1, 1))
    (step,) = run(environments, 1)
    assert step.observations[""].dtype == np.float32
    assert step.observations[""].tolist() == [[[11.0]]] * 3


def test_a_module_in_an_id_is_never_imported():
    spec = EnvSpec.model_construct(id="antigravity:X-v0", kwargs={}, wrappers=())
    with pytest.raises(EnvRefused, match="registered environment"):
        EnvRecipe(spec).make()


def test_the_description_says_what_a_learner_needs(make):
    spec = EnvSpec(id="CartPole-v1")
    description = describe_environments(spec, make("CartPole-v1"), MACHINE)
    (observation,), (action,) = description.observation, description.action
    assert (observation.shape, observation.dtype) == ((4,), "<f4")
    assert (action.kind, action.n, action.start) == ("discrete", (2,), (0,))
    assert description.max_episode_steps == 500
    assert {"gymnasium", "numpy"} <= description.versions.keys()


def test_the_watchdog_raises_in_the_call_that_hangs():
    watchdog = Watchdog(0.2)
    try:
        with pytest.raises(StepTimeout, match="sleep: expected an answer within 0.2 s"):
            with watchdog.watching("sleep"):
                time.sleep(60)
        with watchdog.watching("quick"):
            pass
        # The thread may look just before a call returns: its signal comes too late.
        signal.raise_signal(signal.SIGUSR2)
    finally:
        watchdog.close()


HANGS = """
import ctypes, sys
from producers import watchdog

watchdog._DUMP_GRACE_S = float(sys.argv[2])
libc = getattr(ctypes, sys.argv[1])(None)
lock = ctypes.create_string_buffer(64)
libc.pthread_mutex_lock(lock)
looks = watchdog.Watchdog(0.1)
while True:
    try:
        with looks.watching("a native call"):
            libc.pthread_mutex_lock(lock)  # for ever
    except watchdog.StepTimeout:
        pass  # it came late to the call: once more
"""


@pytest.mark.parametrize(
    ("library", "grace_s", "says"),
    [
        ("CDLL", "60", "a native call: hangs in native code"),
        ("PyDLL", "1", "Timeout (0:00:01.4"),
    ],
    ids=["other threads run", "no other thread runs"],
)
def test_a_hang_in_native_code_ends_the_process_and_says_where(library, grace_s, says):
    ended = subprocess.run(
        [sys.executable, "-c", HANGS, library, grace_s],
        cwd=Path(__file__).parents[2],
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 1
    assert says in ended.stderr
    assert 'File "<string>", line 13 in <module>' in ended.stderr


def test_who_was_frozen_is_sent_an_exception_before_it_is_given_up(monkeypatch):
    """Its clock has gone on meanwhile: at the first look the call is long overdue."""
    given_up, frozen_s = [], [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + frozen_s[0])
    monkeypatch.setattr("producers.watchdog.time", clock)
    monkeypatch.setattr("producers.watchdog.os._exit", given_up.append)
    with closing(Watchdog(1.0)) as watchdog:
        with pytest.raises(StepTimeout), watchdog.watching("a step"):
            frozen_s[0] = 1_000.0
            time.sleep(60)
    assert given_up == []


def test_a_closed_watchdog_leaves_nothing_that_ends_the_process(monkeypatch):
    """It is closed while its thread is about to put the dump off once more."""
    calls, looking = [], threading.Event()

    def put_off(*args, **kwargs):
        if threading.current_thread() is threading.main_thread():
            return
        looking.set()
        time.sleep(0.05)  # close() comes meanwhile
        calls.append("start")

    monkeypatch.setattr(faulthandler, "dump_traceback_later", put_off)
    monkeypatch.setattr(
        faulthandler, "cancel_dump_traceback_later", lambda: calls.append("cancel")
    )
    watchdog = Watchdog(0.1)
    assert looking.wait(60)
    watchdog.close()
    assert calls[-1] == "cancel"
