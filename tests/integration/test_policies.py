"""`rollstream policies`, `play` and `export-policy` on the real broker."""

import json
import uuid
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import av
import gymnasium
import numpy as np
import onnxruntime as ort
import pytest

from infra.control.experiments import publish_experiment
from infra.policies.chunks import addressed
from infra.policies.precision import halved
from producers.env_recipe import import_modules
from schemas.records import Evaluation, MetricsPoint, PolicyRef
from schemas.tensors import pack
from schemas.topics import METRICS, POLICIES, POLICY_CHUNKS, POLICY_HISTORY
from tests.integration.command_rig import interrupted, lines_of
from tests.unit.envs.graphs import RUN_ID, graph_record, linear_q, version_record
from tests.unit.envs.trial import Trial, until
from tests.unit.policies.records import ENV, in_chunks

pytestmark = pytest.mark.kafka
MODULES = "tests.unit.envs"
B = np.zeros(3, np.float32)


@pytest.fixture
def trial(settings, monkeypatch):
    monkeypatch.setenv("ROLLSTREAM_ENV_MODULES", MODULES)
    made = Trial(settings, env={"id": "Drawn-v0"})
    yield made
    made.close()


class Learnt:
    """What a learner and an evaluator would have written of a trial."""

    def __init__(self, trial):
        self.trial = trial
        self.graph = graph_record(linear_q(2, 3), ENV, experiment=trial.name)
        trial.send_policy(self.graph)

    def version(self, number, **more):
        rng = np.random.default_rng(number)
        arrays = {"w": rng.normal(size=(2, 3)).astype(np.float32), "b": B}
        return version_record(self.graph, number, arrays, **more)

    def publish(self, number, **more):
        record = self.version(number, **more)
        self.trial.send_policy(record)
        if number % 25 == 0:
            self.trial.send(POLICY_HISTORY, record, str(number))

    def judge(self, number, returns):
        returns = np.array(returns, float)
        evaluation = Evaluation(
            experiment=self.trial.name,
            run_id=RUN_ID,
            policy=PolicyRef(0, number),
            train_step=10 * number,
            returns=pack(returns),
            lengths=pack(np.ones(len(returns), np.int32)),
            confirmation=False,
            produced_at_ms=0,
        )
        self.trial.send(METRICS, evaluation, "evaluator/0")

    def find_best(self, number, returns):
        self.trial.send(POLICIES, self.version(number), "best")
        self.trial.send(POLICY_HISTORY, self.version(number), str(number))
        self.judge(number, returns)

    def tell(self, updates, env_steps):
        values = {"updates": updates, "env_steps": env_steps}
        point = MetricsPoint(self.trial.name, RUN_ID, "learner", 0, 0, 0, values)
        self.trial.send(METRICS, point, "learner/0")


@pytest.fixture
def learnt(trial):
    made = Learnt(trial)
    made.publish(0)
    made.tell(0, 100)
    made.publish(25)
    made.find_best(26, [3, 5])
    made.tell(260, 9_000)
    made.publish(31)
    return made


def test_all_that_can_be_had_is_listed_with_what_is_known_of_it(
    learnt, shown, rollstream
):
    ((found),) = shown("policies", learnt.trial.name)
    assert found["run_id"] == RUN_ID and found["gone"] == []
    facts = [(r["version"], r["kept_as"], r["env_steps"]) for r in found["rows"]]
    assert facts == [
        (31, ["current"], 9_000),
        (26, ["best", "history"], 9_000),
        (25, ["history"], 8_658),
        (0, ["history"], 100),
    ]
    assert [r["parameters"] for r in found["rows"]] == [9] * 4
    judged = {r["version"]: r["evaluation"] for r in found["rows"]}
    assert judged[26] == {
        "episodes": 2, "mean": 4.0, "least": 3.0, "most": 5.0, "confirmed": False,
    }  # fmt: skip
    assert judged[31] is None
    code, out, _ = rollstream("policies", learnt.trial.name, "-n", "1")
    assert code == 0
    first, *rows = out.splitlines()
    assert first.split()[:2] == ["VERSION", "EPOCH"]
    assert [row.split()[0] for row in rows] == ["31", "26"]


def test_before_the_first_policy_there_is_nothing_to_list_or_to_play(trial, rollstream):
    code, out, error = rollstream("policies", trial.name)
    assert (code, out) == (0, "") and "no policy yet of run" in error
    code, _, error = rollstream("play", trial.name)
    assert code == 1 and "found none yet" in error


@pytest.mark.parametrize(
    "words", [["policies"], ["play"], ["export-policy", "--onnx", "p.onnx"]]
)
def test_an_experiment_that_is_not_there_is_named(
    settings, rollstream, words, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code, _, error = rollstream(words[0], "nobody-made-this", *words[1:])
    assert code == 1 and "found 'nobody-made-this'" in error
    assert list(tmp_path.iterdir()) == []


def test_policies_are_watched_until_ctrl_c_also_of_the_run_after(learnt, command):
    trial = learnt.trial
    process, out, error = command(
        "policies", learnt.trial.name, "-w", "--json", "--every", "0.2"
    )
    until(lambda: lines_of(out), by=process)
    learnt.publish(50)

    def newest():
        lines = lines_of(out)
        return lines and [row["version"] for row in lines[-1]["rows"]][:3]

    until(lambda: newest() == [50, 26, 25], by=process)
    before = trial.published.offset
    publish_experiment(trial.sender, trial.experiment(), "run2", before)
    until(lambda: lines_of(out)[-1]["run_id"] == "run2", by=process)
    assert lines_of(out)[-1]["rows"] == []
    assert interrupted(process) == 130, error.read_text()


def test_a_version_that_is_gone_is_not_played_and_the_error_says_what_is_there(
    learnt, rollstream
):
    code, _, error = rollstream("play", learnt.trial.name, "--version", "30")
    assert code == 1 and "one of 31, 26, 25, 0, found 30" in error
    code, _, error = rollstream("play", learnt.trial.name, "--version", "last")
    assert code == 2 and "expected a number, best or newest" in error


def test_the_best_is_played_and_filmed_unless_another_is_asked_for(
    learnt, shown, rollstream, tmp_path
):
    name, path = learnt.trial.name, tmp_path / "a.mp4"
    (found,) = shown("play", name, "--episodes", "3", "--record", str(path))
    assert found["version"] == 26 and found["seed"] == 1
    lengths = [episode["length"] for episode in found["episodes"]]
    assert lengths == [4, 4, 4]
    returns = [episode["return"] for episode in found["episodes"]]
    assert found["mean_return"] == pytest.approx(np.mean(returns))
    with av.open(str(path)) as video:
        frames = [frame.width for frame in video.decode(video=0)]
        assert float(video.streams.video[0].average_rate) == 10
    assert len(frames) == found["video"]["frames"] == sum(lengths) + 3
    code, _, error = rollstream("play", name, "--record", str(path))
    assert code == 2 and "--force" in error
    (other,) = shown(
        "play", name, "--version", "newest", "--seed", "1", "--record", str(path),
        "--force",
    )  # fmt: skip
    assert other["version"] == 31 and other["video"]["frames"] == 5
    assert other["episodes"][0]["seed"] == found["episodes"][0]["seed"]


def test_without_a_display_episodes_are_counted_and_that_is_said(
    learnt, rollstream, monkeypatch
):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    code, out, error = rollstream("play", learnt.trial.name, "--episodes", "2")
    assert code == 0 and "no display: episodes are counted" in error
    head, *episodes, mean = out.splitlines()
    assert "version 26 (epoch 0), best, after 260 updates" in head
    assert [line.split(":")[0] for line in episodes] == ["episode 1", "episode 2"]
    assert mean.startswith("mean ")


def test_ctrl_c_while_it_films_leaves_no_file(learnt, command, tmp_path):
    path = tmp_path / "long.mp4"
    process, _, error = command(
        "play", learnt.trial.name, "--episodes", "1000000", "--record", str(path),
        ROLLSTREAM_ENV_MODULES=MODULES,
    )  # fmt: skip
    until(lambda: [*tmp_path.glob(".long.mp4.*")], by=process)
    assert interrupted(process) == 130, error.read_text()
    assert [*tmp_path.glob("*long*")] == []


def act_alone(path, seeds):
    """Episodes of a file, with what it says of itself and nothing of ours."""
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    facts = session.get_modelmeta().custom_metadata_map
    spec, (action,) = json.loads(facts["environment"]), json.loads(facts["action"])
    env = gymnasium.make(spec["id"], **spec["kwargs"])
    returns = []
    for seed in seeds:
        observation, _ = env.reset(seed=seed)
        total, is_over = 0.0, False
        while not is_over:
            (q,) = session.run(["q"], {"obs/": observation[None]})
            step = env.step(action["start"][0] + int(q[0].argmax()))
            observation, reward, terminated, truncated, _ = step
            total, is_over = total + float(reward), terminated or truncated
        returns.append(total)
    env.close()
    return returns


@pytest.mark.parametrize("version", ["best", "newest", "25"])
def test_what_is_exported_acts_as_what_is_played(learnt, shown, tmp_path, version):
    import_modules((MODULES,))
    path = tmp_path / "p.onnx"
    name, words = learnt.trial.name, ("--version", version)
    (told,) = shown("export-policy", name, "--onnx", str(path), *words)
    (played,) = shown("play", name, "--episodes", "5", *words)
    assert told["version"] == played["version"] and told["largest_difference"] <= 1e-6
    seeds = [episode["seed"] for episode in played["episodes"]]
    assert act_alone(path, seeds) == [e["return"] for e in played["episodes"]]
    assert [each.name for each in tmp_path.glob("*.onnx*")] == ["p.onnx"]


def test_a_file_is_replaced_only_where_that_is_wanted(learnt, rollstream, tmp_path):
    path = tmp_path / "p.onnx"
    path.write_bytes(b"mine")
    words = ("export-policy", learnt.trial.name, "--onnx", str(path))
    code, _, error = rollstream(*words)
    assert code == 2 and "--force replaces it" in error
    assert path.read_bytes() == b"mine"
    code, out, _ = rollstream(*words, "--force")
    assert code == 0 and "head q" in out and path.read_bytes() != b"mine"


def test_a_policy_in_chunks_is_put_together_and_verified(trial, shown, rollstream):
    learnt = Learnt(trial)
    manifest, chunks = in_chunks(learnt.version(4))
    for chunk in chunks:
        trial.send(POLICIES, chunk, f"chunk/1/{chunk.chunk}")
    trial.send_policy(manifest)
    (found,) = shown("policies", trial.name)
    (row,) = found["rows"]
    assert row["bytes"] == len(learnt.version(4).tensors) and row["parameters"] is None
    (played,) = shown("play", trial.name)
    assert played["version"] == 4
    # Another version's chunk in its place: nothing is put together of the two.
    _, others = in_chunks(learnt.version(6))
    trial.send(POLICIES, others[0], "chunk/1/0")
    code, _, error = rollstream("play", trial.name)
    assert code == 1 and "found none" in error
    (found,) = shown("policies", trial.name)
    assert found["rows"] == [] and found["gone"] == [4]


def test_a_policy_that_says_where_its_chunks_are_is_listed_played_and_exported(
    trial, shown, rollstream, tmp_path
):
    learnt = Learnt(trial)
    whole = learnt.version(4)
    offsets = [
        trial.send(POLICY_CHUNKS, chunk, f"chunk/1/{chunk.chunk}")
        for chunk in in_chunks(whole)[1]
    ]
    trial.send_policy(addressed(replace(whole, slot=1), whole.tensors, tuple(offsets)))
    (found,) = shown("policies", trial.name)
    (row,) = found["rows"]
    assert row["bytes"] == len(whole.tensors) and row["parameters"] == 9
    (played,) = shown("play", trial.name)
    assert played["version"] == 4
    path = tmp_path / "p.onnx"
    (told,) = shown("export-policy", trial.name, "--onnx", str(path))
    assert told["tensors_sha256"] == whole.tensors_sha256
    # Of a chunk that compaction has removed nothing is made up.
    last = max(offsets) + 1000
    wrong = replace(learnt.version(5), slot=0)
    trial.send_policy(addressed(wrong, wrong.tensors, (*offsets[:-1], last)))
    code, _, error = rollstream("play", trial.name)
    assert code == 1 and "expected a chunk of a policy, found it gone" in error


def test_half_precision_is_played_and_exported_as_the_graph_takes_it(
    trial, shown, tmp_path
):
    learnt = Learnt(trial)
    w = np.random.default_rng(3).normal(size=(2, 3)).astype(np.float32)
    trial.send_policy(version_record(learnt.graph, 3, halved({"w": w, "b": B})))
    path = tmp_path / "p.onnx"
    (played,) = shown("play", trial.name, "--episodes", "3")
    (told,) = shown("export-policy", trial.name, "--onnx", str(path))
    assert told["largest_difference"] <= 1e-6 and told["parameters"] == 9
    import_modules((MODULES,))
    seeds = [episode["seed"] for episode in played["episodes"]]
    assert act_alone(path, seeds) == [e["return"] for e in played["episodes"]]


def test_tensors_that_are_not_what_was_published_are_refused(
    trial, rollstream, tmp_path
):
    learnt = Learnt(trial)
    record = learnt.version(1)
    trial.send_policy(learnt.version(1, tensors=record.tensors[:-1] + b"\x7f"))
    for words in (["play"], ["export-policy", "--onnx", str(tmp_path / "p.onnx")]):
        code, _, error = rollstream(words[0], trial.name, *words[1:])
        assert code == 1 and "tensors of policy version 1 (epoch 0)" in error
        assert "expected the sha256" in error
    assert not (tmp_path / "p.onnx").exists()


def test_an_environment_that_cannot_draw_is_told_before_anything_is_written(
    settings, rollstream, monkeypatch, tmp_path
):
    monkeypatch.setenv("ROLLSTREAM_ENV_MODULES", MODULES)
    kwargs = {"drawing": "not at all"}
    path = tmp_path / "a.mp4"
    with closing(Trial(settings, env={"id": "Drawn-v0", "kwargs": kwargs})) as trial:
        Learnt(trial).publish(1)
        code, _, error = rollstream("play", trial.name, "--record", str(path))
    assert code == 1 and "paint is not installed" in error and "Traceback" not in error
    assert not [*tmp_path.glob("*.mp4*")]


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_policy_that_was_learnt_is_listed_played_filmed_and_exported(
    settings, command, shown, rollstream, tmp_path
):
    sample = Path(__file__).parents[2] / "infra/experiments/cartpole-dqn.yaml"
    name = f"shown-{uuid.uuid4().hex[:8]}"
    process, _, error = command(
        "run", str(sample), "--json", "--set", f"metadata.name={name}",
        "--set", "spec.stop={}",
        "--set", "spec.evaluator={episodes: 8, envs: 8, everyVersions: 2}",
        OMP_NUM_THREADS="1",
    )  # fmt: skip

    def has_learnt():
        """Whether one is the best, and there is one that is not the first."""
        code, out, _ = rollstream("policies", name, "--json")
        rows = [row for line in out.splitlines() for row in json.loads(line)["rows"]]
        has_best = any("best" in row["kept_as"] for row in rows)
        return code == 0 and has_best and max(row["version"] for row in rows) > 1

    until(has_learnt, 180.0, by=process)
    assert interrupted(process) == 130, error.read_text()
    (found,) = shown("policies", name)
    (best,) = [row for row in found["rows"] if "best" in row["kept_as"]]
    judged = [row for row in found["rows"] if row["evaluation"]]
    assert best in judged and all(row["version"] % 2 == 0 for row in judged)
    assert best["evaluation"]["episodes"] == 8 and best["parameters"] > 1_000

    path, film = tmp_path / "p.onnx", tmp_path / "p.mp4"
    words = ("--episodes", "2", "--record", str(film))
    (played,) = shown("play", name, *words)
    shown("export-policy", name, "--onnx", str(path))
    assert played["version"] == best["version"]
    with av.open(str(film)) as video:
        assert float(video.streams.video[0].average_rate) == 50
        frames = sum(1 for _ in video.decode(video=0))
    assert frames == sum(e["length"] + 1 for e in played["episodes"])
    seeds = [episode["seed"] for episode in played["episodes"]]
    assert act_alone(path, seeds) == [e["return"] for e in played["episodes"]]
