"""The sections `frames` and `encodings`: what is replayed, what is reckoned, goals."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import encoding_side
from benchmarks.beside import encodings, frames
from benchmarks.beside.encodings import ENCODINGS, RAW
from benchmarks.beside.frames import FRAMES, SEQUENCES, UNROLLS
from benchmarks.beside.scripts.recorded_frames import ARRAYS, RecordedFrames
from benchmarks.beside.section import OURS
from benchmarks.frames_env import VectorRecordedFrames


@pytest.fixture
def recording(tmp_path):
    """Three rows of two environments; the first one's episode ends at row 1."""
    rows = np.arange(6, dtype=np.uint8).reshape(3, 2, 1, 1)
    arrays = (
        np.broadcast_to(rows, (3, 2, 84, 84)),
        np.array([[0, 0], [1.5, 0], [0, -1]]),
        np.array([[False, False], [True, False], [False, False]]),
    )
    for name, array in zip(ARRAYS, arrays, strict=True):
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


def test_what_was_recorded_comes_in_order_and_again(recording):
    env = RecordedFrames(str(recording))
    assert env.reset()[:, 0, 0].tolist() == [0, 1]
    seen = [env.step() for _ in range(4)]
    assert [step[0][:, 3, 3].tolist() for step in seen] == [
        [2, 3], [4, 5], [0, 1], [2, 3]
    ]  # fmt: skip
    assert seen[0][1].tolist() == [1.5, 0] and seen[0][2].tolist() == [True, False]
    # The end of the recording is the end of every episode, and told as such.
    assert seen[1][3].tolist() == [True, True]
    assert not seen[2][2].any() and not seen[2][3].any()


def test_gymnasium_sees_a_vector_environment(recording):
    env = VectorRecordedFrames(2, directory=str(recording))
    observations, _ = env.reset(seed=1)
    assert env.observation_space.contains(observations.copy())
    step = env.step(env.action_space.sample())
    assert step[0].shape == (2, 84, 84) and step[4] == {}
    with pytest.raises(ValueError, match="expected 2 environments, found 3"):
        VectorRecordedFrames(3, directory=str(recording))


def test_figures_are_of_all_processes_and_of_raw_frames():
    found = {
        "learner_ready_steps_per_s": 100_000,
        "bytes_per_step": 70.56,
        "processes": [{"cpu_us_per_step": 3.0}, {"cpu_us_per_step": 4.5}],
    }
    figures = frames._figures(found)
    assert figures["raw_share"] == pytest.approx(1.0)
    assert figures["cpu_us_per_step"] == 7.5 and figures["steps_per_s"] == 100_000


@pytest.mark.parametrize(
    ("ours", "share", "expected"),
    [(150, 2.0, [True, True]), (149, 2.1, [False, False])],
)
def test_goals_of_frames(ours, share, expected):
    medians = {
        OURS: {"steps_per_s": ours, "raw_share": share},
        UNROLLS: {"steps_per_s": 100},
        SEQUENCES: {"steps_per_s": 40},
    }
    assert [goal.reached(medians) for goal in FRAMES.goals] == expected


def test_the_goal_of_encodings():
    (goal,) = ENCODINGS.goals
    assert goal.reached({OURS: {"mixed_kb": 3.19}, RAW: {"mixed_kb": 12.0}})
    assert not goal.reached({OURS: {"mixed_kb": 3.21}, RAW: {"mixed_kb": 12.0}})


def test_every_side_of_encodings_is_a_spec_that_can_be_measured(monkeypatch, tmp_path):
    """With small arrays, for the least time; figures are those of the columns."""
    rng = np.random.default_rng(0)
    frame = np.repeat(rng.integers(0, 9, (1, 2, 32, 32), np.uint8), 5, 0)
    body = rng.random((5, 2, 3))
    monkeypatch.setattr(
        encoding_side,
        "kinds",
        lambda directory: {
            "structured": [{"body": body}],
            "image": [{"camera": frame}],
            "mixed": [{"camera": frame, "body": body}],
        },
    )
    ran = {}

    def run(command, name, job, place):
        ran[name] = encoding_side.measure(json.loads(json.dumps({**job, "seconds": 0})))
        return SimpleNamespace(figures=ran[name])

    monkeypatch.setattr("benchmarks.beside.peer_side._run", run)
    monkeypatch.setattr(encodings, "recording", lambda place: str(tmp_path))
    for side in ENCODINGS.sides:
        side.measure(SimpleNamespace(quick=True))
    assert set(ran) == {side.name for side in ENCODINGS.sides}
    columns = {figure.key for figure in ENCODINGS.figures}
    assert columns - {"psnr_db"} <= ran[OURS].keys()
    assert ran["zstd"]["image_kb"] < ran[RAW]["image_kb"]
    assert "structured_kb" not in ran["jpegxl without loss"]
    assert "psnr_db" in ran["webp of quality 90"]
    assert "psnr_db" not in ran["webp without loss"]


def test_what_takes_less_than_a_clock_shows_has_a_rate_all_the_same(monkeypatch):
    acted = []
    # It goes on by 10 ms, once in 100 times: to open views took no time at all.
    monkeypatch.setattr(
        encoding_side.time, "thread_time", lambda: len(acted) // 100 / 100
    )
    rate = encoding_side._rate(lambda: acted.append(1), 1_000_000, 0.0)
    assert 5_000 <= rate <= 13_000  # 10,000 MB/s
