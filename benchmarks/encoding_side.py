"""How small observations become, and how quickly: ``python -m ... JOB FOUND``.

Both are JSON files. The job has ``default``, ``images`` and ``quality`` of a spec's
encoding, ``seconds`` of each rate, and the ``directory`` of recorded frames.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from benchmarks.beside.scripts.job import do_job, found
from producers.packing import MEASURED_UNROLLS, Packing
from schemas.encoding_spec import EncodingSpec
from schemas.tensors import Array, Tensor

ROWS, ENVS = 33, 16
"""Of an unroll: T + 1, B."""

_LEAST_S = 0.002

BODY, CAMERA = "body", "camera"
_BODY_ENV = "HalfCheetah-v5"
_NAMES = ("rollstream", "zstandard", "lz4", "imagecodecs", "numpy")

Unrolls = list[dict[str, Array]]


def record_body() -> list[Array]:
    """Return unrolls [T + 1, B, 17] float64 of random actions."""
    env = gymnasium.make_vec(_BODY_ENV, num_envs=ENVS, vectorization_mode="sync")
    env.action_space.seed(0)
    rows = [env.reset(seed=0)[0].copy()]
    while len(rows) < MEASURED_UNROLLS * ROWS:
        rows.append(env.step(env.action_space.sample())[0].copy())
    env.close()
    return [np.stack(rows[at : at + ROWS]) for at in range(0, len(rows), ROWS)]


def kinds(directory: Path) -> dict[str, Unrolls]:
    """Return the unrolls of each kind of observation."""
    bodies = record_body()
    frames = np.load(directory / "frames.npy", mmap_mode="r")
    cameras = [
        np.ascontiguousarray(frames[at : at + ROWS, :ENVS])
        for at in range(0, MEASURED_UNROLLS * ROWS, ROWS)
    ]
    pairs = zip(cameras, bodies, strict=True)
    return {
        "structured": [{BODY: body} for body in bodies],
        "image": [{CAMERA: camera} for camera in cameras],
        "mixed": [{CAMERA: camera, BODY: body} for camera, body in pairs],
    }


def measure(job: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of one encoding."""
    images = {CAMERA: job["images"]} if job["images"] else {}
    figures: dict[str, float] = {}
    for kind, unrolls in kinds(Path(job["directory"])).items():
        if images and kind == "structured":  # it is no image
            continue
        spec = EncodingSpec(
            default=job["default"], fields=images, quality=job["quality"]
        )
        figures |= _figures(kind, unrolls, Packing(spec), job["seconds"])
    return figures


def _figures(
    kind: str, unrolls: Unrolls, packing: Packing, seconds: float
) -> dict[str, float]:
    for unroll in unrolls:  # which it measures
        packing.pack(unroll)
    packed = [packing.pack(unroll) for unroll in unrolls]
    raw = sum(array.nbytes for unroll in unrolls for array in unroll.values())
    size = sum(len(tensor.data) for each in packed for tensor in each.values())
    states = len(unrolls) * ROWS * ENVS
    figures = {
        f"{kind}_kb": size / states / 1000,
        f"{kind}_share": 100 * size / raw,
        f"{kind}_encode_mb_per_s": _rate(lambda: _pack(packing, unrolls), raw, seconds),
        f"{kind}_decode_mb_per_s": _rate(lambda: _open(packed), raw, seconds),
    }
    if packing.losses:
        figures["psnr_db"] = min(loss.psnr_db for loss in packing.losses.values())
    return figures


def _pack(packing: Packing, unrolls: Unrolls) -> None:
    for unroll in unrolls:
        packing.pack(unroll)


def _open(packed: list[dict[str, Tensor]]) -> None:
    for each in packed:
        for tensor in each.values():
            tensor.array()


def _rate(act: Callable[[], None], size_bytes: int, seconds: float) -> float:
    """Return MB of raw observations a second of CPU time: the best of all times."""
    best_s, ends_s, repeats = float("inf"), time.monotonic() + seconds, 1
    while time.monotonic() < ends_s or best_s == float("inf"):
        began_s = time.thread_time()
        for _ in range(repeats):
            act()
        took_s = time.thread_time() - began_s
        if took_s < _LEAST_S:  # of views nothing is seen on a clock
            repeats *= 2
        else:
            best_s = min(best_s, took_s / repeats)
    return size_bytes / best_s / 1e6


if __name__ == "__main__":
    do_job(lambda job: found(measure(job), *_NAMES))
