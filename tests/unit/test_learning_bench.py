"""What learning curves are made of: the same settings for both, drawn as they are."""

import sys
import time
from dataclasses import replace

import numpy as np
import psutil
import pytest
import yaml

from benchmarks.children import ChildFailed, run_child
from benchmarks.learning import tasks
from benchmarks.learning.bench import Plan
from benchmarks.learning.figures import mean_curve, rows
from benchmarks.learning.ours import Told, first_step_ms, outcome, rate_of_second_half
from benchmarks.learning.peer_settings import peer_job, turns
from benchmarks.learning.results import Outcome, Point, Results
from benchmarks.learning.tasks import TASKS, Side, chosen
from benchmarks.learning.theirs import job_of
from benchmarks.learning.zoo import TUNED
from benchmarks.peers import SB3_PEER, PeerUnavailable, environment, python_of
from infra.monitoring.progress import Progress
from rollstream.overrides import apply_overrides
from schemas.experiment import from_values
from schemas.records import Evaluation, PolicyRef
from schemas.tensors import pack

OUTCOME = Outcome(
    task="t", side="rollstream", seed=1, reached=True, env_steps=100, updates=10,
    wall_s=5.0, start_s=1.0, final_return=480.0, steps_per_s=20.0,
    curve=(Point(50, 2.5, 100.0, 100), Point(100, 5.0, 480.0, 100)),
    versions={"torch": "1"}, settings={"set": ["spec.seed=1"]}, extra={"x": 1.0},
)  # fmt: skip


def experiment_of(task, side):
    values = yaml.safe_load(task.file(side).read_text())
    return from_values(apply_overrides(values, side.changes))


EVERY = [pytest.param(t, s, id=f"{t.name}-{s.name}") for t in TASKS for s in t.sides]


@pytest.mark.parametrize(("task", "side"), EVERY)
def test_every_side_of_every_task_can_be_told_what_to_do(task, side):
    experiment = experiment_of(task, side)
    if side.peer:
        job = job_of(experiment, task.name, side, 3)
        assert (job["seed"], job["env_id"]) == (3, experiment.spec.env.id)
        if side.is_timed:
            assert job["seconds"] > 0 and job.get("target") is None
    else:
        assert side.stop or experiment.spec.stop.env_steps


@pytest.mark.parametrize(
    ("rows_per_update", "most", "expected"),
    [
        (128, 128, (128, 1, 1)),  # one update for each step of 128 environments
        (128, 48, (32, 4, 1)),  # the largest divisor that is no more than 48
        (7, 4, (1, 7, 1)),
        (1, 64, (1, 1, 1)),
        (0.25, 64, (1, 1, 4)),  # four updates for each step of one environment
    ],
)
def test_as_many_rows_an_update_as_ours(rows_per_update, most, expected):
    envs, steps, updates = turns(rows_per_update, most)
    assert (envs, steps, updates) == expected
    assert envs * steps / updates == rows_per_update


def spec(learner, **more):
    return from_values(
        {
            "apiVersion": "rollstream/v1",
            "kind": "Experiment",
            "metadata": {"name": "x"},
            "spec": {
                "env": {"id": "CartPole-v1"},
                "workers": {"replicas": 2, "envsPerWorker": 8, "unrollLength": 16},
                "learner": learner,
                **more,
            },
        }
    )


def test_ppo_is_told_the_same_iteration():
    learner = {
        "algorithm": "ppo",
        "batchSize": 256,
        "learningRateDecayUpdates": 5,
        "ppo": {"minibatchSize": 64, "epochs": 4},
    }
    experiment = spec(learner, processor={"nStep": 1, "gamma": 0.9})
    job = peer_job(experiment, "PPO", 1, 5_000, 5)
    told = job["arguments"]
    # 256 rows are 16 steps of 16 environments.
    assert (job["num_envs"], told["n_steps"]) == (16, 16)
    assert (told["batch_size"], told["n_epochs"], told["gamma"]) == (64, 4, 0.9)
    assert told["target_kl"] is told["clip_range_vf"] is None
    # An update is an iteration.
    assert job["linear"] == {"learning_rate": 5 * 256}
    assert job["evaluate_every"] == 1_000


def test_dqn_counts_its_target_period_in_env_steps():
    learner = {"batchSize": 32, "samplesPerInsert": 2, "targetUpdatePeriod": 50}
    told = peer_job(spec(learner), "DQN", 1, 1_000, 10)["arguments"]
    assert told["target_update_interval"] == 50 * 16
    assert (told["train_freq"], told["gradient_steps"]) == (1, 1)


@pytest.mark.parametrize("name", sorted(TUNED))
def test_what_was_tuned_replaces_what_we_are_told(name):
    (task,) = chosen([name], quick=False)
    (side,) = [side for side in task.sides if side.is_tuned]
    job = job_of(experiment_of(task, side), name, side, 1)
    assert job["arguments"] == TUNED[name]["arguments"]
    assert job["env_steps"] == TUNED[name]["env_steps"]
    assert job["reward_scale"] == 1 and job["target"] is not None


def test_an_outcome_is_kept_once_and_whole(tmp_path):
    results = Results(tmp_path)
    assert results.find("t", "rollstream", 1, "") is None
    results.keep(OUTCOME)
    later = replace(OUTCOME, seed=2)
    results.path("t", "rollstream", 2).with_suffix(".unfinished").write_text("{")
    results.keep(later)
    assert results.find("t", "rollstream", 1, "") == OUTCOME
    assert results.find("t", "rollstream", 1, "of another file") is None
    assert results.of("t") == [OUTCOME, later]


def test_what_a_side_is_told_has_a_digest_of_its_own(tmp_path, monkeypatch):
    (task,) = chosen(["cartpole-dqn"], quick=False)
    digests = {task.told_sha256(side) for side in task.sides}
    assert len(digests) == len(task.sides)
    monkeypatch.setattr(tasks, "EXPERIMENTS", tmp_path)
    (tmp_path / "cartpole-dqn.yaml").write_text("something else")
    assert not digests & {task.told_sha256(side) for side in task.sides}


def test_sides_take_turns_within_a_seed(tmp_path):
    (task,) = chosen(["cartpole-dqn"], quick=False)
    turns = list(Plan([task], [1, 2], tmp_path).turns())
    sides = [side.name for side in task.sides]
    assert [(seed, side.name) for _, seed, side in turns] == [
        (seed, name) for seed in (1, 2) for name in sides
    ]


def test_a_task_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(ValueError, match="cartpole-dqn.*found cartpole-sarsa"):
        chosen(["cartpole-sarsa"], quick=False)


def test_a_mean_curve_stays_where_a_seed_has_ended():
    at, returns = mean_curve([([0, 10], [0, 100]), ([0, 20], [0, 300])])
    assert (at[0], at[-1]) == (0, 20)
    assert returns[0] == 0
    assert returns[-1] == pytest.approx((100 + 300) / 2)
    half = min(range(len(at)), key=lambda i: abs(at[i] - 10))
    assert returns[half] == pytest.approx((100 + 15 * at[half]) / 2, abs=5)


def test_a_row_has_the_medians_of_its_seeds():
    other = replace(OUTCOME, seed=2, reached=False, env_steps=300, final_return=None)
    third = replace(OUTCOME, seed=3, env_steps=200)
    (row,) = rows([OUTCOME, other, third])
    assert (row["reached"], row["env steps"], row["return"]) == (
        "2 of 3",
        "200",
        "480.0",
    )


def test_the_rate_is_of_the_second_half_of_the_time():
    # 10 steps/s for 10 s, then 100 steps/s for 10 s; nothing is learnt for 5 s before.
    told = [(0, 0), (5_000, 0)]
    told += [(5_000 + 1_000 * i, 10 * i) for i in range(1, 11)]
    told += [(15_000 + 1_000 * i, 100 + 100 * i) for i in range(1, 11)]
    assert rate_of_second_half(told) == pytest.approx(100, rel=0.06)
    assert rate_of_second_half(told[:2]) == 0


def test_a_child_that_fails_is_told_with_its_last_words(tmp_path):
    command = [sys.executable, "-c", "import sys; sys.exit('no such game')"]
    with pytest.raises(ChildFailed, match="found 1: no such game"):
        run_child(command, environment(), tmp_path / "log", print)


def test_an_interrupted_child_leaves_no_grandchild(tmp_path, monkeypatch):
    pid = tmp_path / "pid"
    code = (
        "import subprocess, sys, time\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "child = subprocess.Popen(sleep, start_new_session=True)\n"
        f"open({str(pid)!r}, 'w').write(str(child.pid) + chr(10))\n"
        "time.sleep(600)\n"
    )

    def interrupt(_):
        if pid.exists() and pid.read_text().endswith("\n"):
            raise KeyboardInterrupt

    monkeypatch.setattr("benchmarks.children.last_line", lambda log: "works")
    monkeypatch.setattr("benchmarks.children.SHOW_S", 0.0)
    with pytest.raises(KeyboardInterrupt):
        run_child(
            [sys.executable, "-c", code], environment(), tmp_path / "log", interrupt
        )
    deadline_s = time.monotonic() + 60
    while psutil.pid_exists(int(pid.read_text())):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def evaluation(returns, at_ms, version, *, confirmation=False, train_step=0):
    return Evaluation(
        experiment="x", run_id="r", policy=PolicyRef(1, version),
        train_step=train_step,
        confirmation=confirmation, returns=pack(np.asarray(returns, "<f8")),
        lengths=pack(np.ones(len(returns), "<i4")), produced_at_ms=at_ms,
    )  # fmt: skip


def told(*, is_reached):
    progress = Progress("r")
    progress.step_times.extend([(10_000, 0), (12_000, 1_000), (14_000, 3_000)])
    progress.learnt_steps.extend([(0, 0), (20, 1_000), (40, 3_000)])
    progress.add(evaluation([10.0, 30.0], 11_000, 1, train_step=10))
    passed = evaluation([480.0, 500.0], 13_000, 2, train_step=30, confirmation=True)
    progress.add(passed)
    summary = {
        "reached": is_reached, "env_steps": 3_000, "updates": 40, "wall_s": 9.0,
        "eval_return_mean": 490.0, "lost_steps": 0, "duplicate_steps": 0,
    }  # fmt: skip
    return Told(8_000, 18_000, summary, progress, first_step_ms(progress))


def test_our_curve_is_over_the_steps_that_were_learnt_from_and_time_since_launch():
    found = outcome("t", Side(), 1, ["spec.seed=1"], told(is_reached=True))
    # Halfway between 0 steps at no update and 1,000 at 20; likewise at 30.
    assert found.curve == (Point(500, 3.0, 20.0, 2), Point(2_000, 5.0, 490.0, 2))
    # To the evaluation that passed; the first step was told of at 12 s.
    assert (found.wall_s, found.start_s) == (5.0, 4.0)
    assert found.env_steps == 2_000
    assert found.extra["updates_per_s"] == 20.0


def test_a_missed_target_took_all_the_time_and_none_is_no_success():
    missed = outcome("t", Side(), 1, [], told(is_reached=False))
    assert (missed.reached, missed.wall_s) == (False, 10.0)
    assert missed.env_steps == 3_000
    none = outcome("t", Side(stop="{wallS: 9}"), 1, [], told(is_reached=True))
    assert (none.reached, none.wall_s) == (None, 10.0)
    assert rows([none])[0]["reached"] == "-"


def test_a_peer_that_is_installed_is_not_installed_again(tmp_path):
    root = tmp_path / "peers" / SB3_PEER.name
    python = root / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    (root / "installed").write_text("stable-baselines3==2.9.2")
    said = []
    assert python_of(SB3_PEER, tmp_path, said.append) == python
    assert said == []


def test_a_peer_that_cannot_be_installed_is_told_and_tried_again(tmp_path):
    peer = replace(SB3_PEER, requirements=("/no/such/package",))
    for _ in range(2):
        said = []
        with pytest.raises(PeerUnavailable, match="no/such/package"):
            python_of(peer, tmp_path, said.append)
        assert said
