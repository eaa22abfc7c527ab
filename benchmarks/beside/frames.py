"""Frames of Atari games from environments to a learner: through our log and Reverb."""

from __future__ import annotations

from typing import Any

from benchmarks.beside.peer_side import SCRIPTS, peer_side
from benchmarks.beside.scripts.job import versions_of
from benchmarks.beside.scripts.recorded_frames import ENVS, FRAME_BYTES, FRAMES_ENV
from benchmarks.beside.section import OURS, Figure, Goal, Measured, Place, Section, Side
from benchmarks.peers import Peer
from benchmarks.pipeline import Load
from benchmarks.pipeline import measure as measure_pipeline

UNROLLS, SEQUENCES = "dm-reverb, whole unrolls", "dm-reverb, sequences"
UNROLL = 32
_PEER = Peer(
    "dm-reverb", ("dm-reverb[tensorflow]==0.14.0",), SCRIPTS / "frames_reverb.py"
)
_MODULE = "benchmarks.frames_env"
_NAMES = ("rollstream", "confluent-kafka", "faust-streaming", "zstandard", "numpy")


def recording(place: Place) -> str:
    """Return the directory of the recorded frames; they are made at first use."""
    # Here, not above: gymnasium takes a quarter of a second to import.
    from benchmarks.frames_env import recorded_frames

    return str(recorded_frames(place.settings.cache_dir))


def ours(name: str, encoding: str) -> Side:
    """Return a side that is the production pipeline, whose worker acts at random."""

    def measure(place: Place) -> Measured:
        modules = (*place.settings.env_modules, _MODULE)
        settings = place.settings.model_copy(update={"env_modules": modules})
        load = Load(
            workers=1,
            envs=ENVS,
            unroll=UNROLL,
            n_step=3,
            seconds=3.0 if place.quick else 10.0,
            rate=0.0,
            flow="credit",
            env_id=FRAMES_ENV,
            env_kwargs={"directory": recording(place)},
            encoding=encoding,
            has_policy=False,
        )
        found = measure_pipeline(settings, load, "credit", dict(place.services))
        return Measured(_figures(found), versions_of(*_NAMES))

    return Side(name, measure, is_ours=True)


def _figures(found: dict[str, Any]) -> dict[str, float]:
    used = sum(process["cpu_us_per_step"] for process in found["processes"])
    return {
        "steps_per_s": found["learner_ready_steps_per_s"],
        "bytes_per_step": found["bytes_per_step"],
        "raw_share": 100 * found["bytes_per_step"] / FRAME_BYTES,
        "cpu_us_per_step": used,
    }


def _reverb(name: str, items: str) -> Side:
    def job(place: Place) -> dict[str, Any]:
        return {
            "items": items,
            "envs": ENVS,
            "unroll": UNROLL,
            "directory": recording(place),
            "warm_up_s": 1.0 if place.quick else 2.0,
            "seconds": 3.0 if place.quick else 10.0,
        }

    side = peer_side(name, _PEER, job)

    def measure(place: Place) -> Measured:
        found = side.measure(place)
        share = 100 * found.figures["bytes_per_step"] / FRAME_BYTES
        return Measured({**found.figures, "raw_share": share}, found.versions)

    return Side(name, measure)


FRAMES = Section(
    name="frames",
    title="Frames of Atari games that a learner can learn from",
    text=(
        f"{ENVS} environments show 84 x 84 frames of Pong, Breakout and Seaquest that "
        "were recorded once, under random actions, in unrolls of 32 steps, without "
        "stacking; the learner's process gets all columns opened, with 3-step "
        "returns. All compress without loss: ours chooses how on its first records "
        "(`auto`); Reverb by its own means, as one column of all environments, or as "
        "columns of each. Ours writes each byte to a log on disk twice; Reverb keeps "
        "at most 8 unrolls, in memory. Bytes are those of whole records, and of "
        "what Reverb's server holds; CPU time is of all processes, Kafka's and "
        "ZooKeeper's too."
    ),
    figures=(
        Figure("steps_per_s", "learner-ready frames/s", "high"),
        Figure("bytes_per_step", "bytes a step", "low"),
        Figure("raw_share", "% of raw", "", 2),
        Figure("cpu_us_per_step", "CPU us a step", "low", 1),
    ),
    sides=(
        ours(OURS, "auto"),
        ours("rollstream, raw", "raw"),
        _reverb(UNROLLS, "unrolls"),
        _reverb(SEQUENCES, "sequences"),
    ),
    goals=(
        Goal(
            "at least 1.5 times the frames/s of dm-reverb's best",
            lambda m: (
                m[OURS]["steps_per_s"]
                >= 1.5 * max(m[side]["steps_per_s"] for side in (UNROLLS, SEQUENCES))
            ),
        ),
        Goal(
            "at most 2 % of raw bytes, without loss",
            lambda m: m[OURS]["raw_share"] <= 2,
        ),
    ),
)
