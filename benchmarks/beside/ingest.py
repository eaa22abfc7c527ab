"""Experience from environments to a learner: through our log, and through others."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from benchmarks.beside.peer_side import SCRIPTS, peer_side
from benchmarks.beside.scripts.job import versions_of
from benchmarks.beside.section import Figure, Goal, Measured, Place, Section, Side
from benchmarks.peers import RLLIB_PEER, Peer, PeerUnavailable
from benchmarks.pipeline import Load
from benchmarks.pipeline import measure as measure_pipeline

CREDIT, FREE = "rollstream", "rollstream, no credits"
CHUNKS, SEQUENCES, TRANSITIONS = (
    f"dm-reverb, {kind} (memory)"
    for kind in ("whole unrolls", "sequences", "transitions")
)
RAY, REDIS = "Ray objects (memory)", "Redis stream (file)"
REVERB_SIDES = (CHUNKS, SEQUENCES, TRANSITIONS)

_REVERB_PEER = Peer(
    "dm-reverb", ("dm-reverb[tensorflow]==0.14.0",), SCRIPTS / "ingest_reverb.py"
)
_RAY_PEER = Peer(RLLIB_PEER.name, RLLIB_PEER.requirements, SCRIPTS / "ingest_ray.py")
_REDIS_PEER = Peer(
    "redis", ("redis==8.1.0", "hiredis==3.5.0"), SCRIPTS / "ingest_redis.py"
)

_FULL_SPEED = {"envs": 256, "unroll": 32, "n_step": 3, "rate": 0.0}
_HELD = {"envs": 64, "unroll": 32, "n_step": 3, "rate": 100_000.0}
_WARM_UP_S = 2.0


def _seconds(place: Place) -> float:
    return 3.0 if place.quick else 10.0


def ours(name: str, flow: str, wanted: Mapping[str, Any]) -> Side:
    """Return a side that is the production pipeline: one worker, one processor."""

    def measure(place: Place) -> Measured:
        load = Load(workers=1, seconds=_seconds(place), flow=flow, **wanted)
        found = measure_pipeline(place.settings, load, flow, dict(place.services))
        return Measured(_figures(found), _versions())

    return Side(name, measure, is_ours=True)


def _figures(found: Mapping[str, Any]) -> dict[str, float]:
    latency = found["latency_ms"]
    return {
        "steps_per_s": found["learner_ready_steps_per_s"],
        "p50_ms": latency["p50"],
        "p95_ms": latency["p95"],
        "p99_ms": latency["p99"],
        "bytes_per_step": found["bytes_per_step"],
    }


def _versions() -> dict[str, str]:
    return versions_of("rollstream", "confluent-kafka", "faust-streaming", "numpy")


def _job(wanted: Mapping[str, Any], **more: Any) -> Callable[[Place], dict[str, Any]]:
    def job(place: Place) -> dict[str, Any]:
        warm_up_s = _WARM_UP_S / 2 if place.quick else _WARM_UP_S
        times = {"warm_up_s": warm_up_s, "seconds": _seconds(place)}
        return {**wanted, **times, **more}

    return job


def _redis_job(wanted: Mapping[str, Any]) -> Callable[[Place], dict[str, Any]]:
    make = _job(wanted)

    def job(place: Place) -> dict[str, Any]:
        if shutil.which("redis-server") is None:
            raise PeerUnavailable(
                "redis: expected the program redis-server, found none",
                "apt-get install redis-server",
            )
        return make(place)

    return job


def _reverb(name: str, items: str, wanted: Mapping[str, Any]) -> Side:
    return peer_side(name, _REVERB_PEER, _job(wanted, items=items))


def _others(wanted: Mapping[str, Any]) -> tuple[Side, ...]:
    return (
        # With two producers Ray was slower, here on two cores.
        peer_side(RAY, _RAY_PEER, _job(wanted, producers=1)),
        peer_side(REDIS, _REDIS_PEER, _redis_job(wanted)),
    )


_LATENCIES = (
    Figure("p50_ms", "p50, ms", "low", 1),
    Figure("p95_ms", "p95, ms", "low", 1),
    Figure("p99_ms", "p99, ms", "low", 1),
)

INGEST = Section(
    name="ingest",
    title="CartPole steps that a learner can learn from, as fast as they come",
    text=(
        "One process acts in 256 environments behind CartPole's vector entry point "
        "with an MLP of 64, in unrolls of 32 steps; a learner gets the same columns "
        "with 3-step returns and priorities. With ours a processor makes them, across "
        "unrolls, and each step is written and read twice; with others the learner "
        "makes them, and horizons end with the unroll. Transitions leave out an "
        "episode's last two steps, and have no priorities. Latency is from an "
        "unroll's last step, of transitions and sequences the mean of 256. Others "
        "hold at most 16 unrolls that are not read (100,000 transitions); ours as "
        "many as credits allow, or, without, the disk. After a kill -9 of any process "
        "ours goes on with all that was acknowledged, and the learner drops what "
        "comes twice; the Redis stream is in a file, synchronised once a second; what "
        "Reverb and Ray hold is gone with the process that holds it. Ours stays on "
        "the log when it is read; others delete it."
    ),
    figures=(
        Figure("steps_per_s", "learner-ready steps/s", "high"),
        *_LATENCIES,
        Figure("bytes_per_step", "bytes a step", "low", 1),
    ),
    sides=(
        ours(CREDIT, "credit", _FULL_SPEED),
        replace(ours(FREE, "free", _FULL_SPEED), in_quick=False),
        _reverb(CHUNKS, "chunks", _FULL_SPEED),
        replace(_reverb(SEQUENCES, "sequences", _FULL_SPEED), in_quick=False),
        _reverb(TRANSITIONS, "transitions", _FULL_SPEED),
        *_others(_FULL_SPEED),
    ),
    goals=(
        Goal(
            "at least 1.2 M learner-ready steps/s",
            lambda m: m[CREDIT]["steps_per_s"] >= 1.2e6,
        ),
        Goal(
            "at least 8 times the steps/s of dm-reverb's best",
            lambda m: (
                m[CREDIT]["steps_per_s"]
                >= 8 * max(m[side]["steps_per_s"] for side in REVERB_SIDES)
            ),
        ),
        Goal(
            "at least 8 times the steps/s of dm-reverb where single environments' "
            "steps can be drawn (sequences, transitions)",
            lambda m: (
                m[CREDIT]["steps_per_s"]
                >= 8 * max(m[side]["steps_per_s"] for side in REVERB_SIDES[1:])
            ),
        ),
    ),
)

ONE, THREE = "rollstream, n = 1", "rollstream, n = 3"

HELD = Section(
    name="ingest-held",
    title="Latency at 100,000 CartPole steps/s",
    text=(
        "The same with 64 environments: an unroll of 32 steps each 20.5 ms. With n = 3 "
        "ours is ready when the next unroll has come; others end horizons with the "
        "unroll, as ours does with n = 1. Redis and we acknowledge what is in the "
        "system's cache of a file, the others what is in memory."
    ),
    figures=(
        *_LATENCIES,
        Figure("steps_per_s", "steps/s"),
    ),
    sides=(
        ours(ONE, "credit", {**_HELD, "n_step": 1}),
        ours(THREE, "credit", _HELD),
        replace(_reverb(CHUNKS, "chunks", _HELD), in_quick=False),
        *_others(_HELD),
    ),
    goals=(
        Goal(
            "n = 1: p50 at most 30 ms, p99 at most 100 ms",
            lambda m: m[ONE]["p50_ms"] <= 30 and m[ONE]["p99_ms"] <= 100,
        ),
        Goal("n = 3: p50 at most 50 ms", lambda m: m[THREE]["p50_ms"] <= 50),
    ),
)
