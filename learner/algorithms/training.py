"""What algorithms do alike: devices, arrays to tensors, networks from a seed, decay."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from learner.algorithms.base import actor_tensors
from schemas.experiment import LearnerSpec
from schemas.tensors import Array


def choose_device(name: str) -> torch.device:
    """Return the device of a spec; ``auto``: a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Have torch draw from a seed within, and go on as before behind it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def as_tensors(arrays: Mapping[str, Array], device: torch.device) -> dict[str, Tensor]:
    """Return arrays as tensors on a device; on the CPU they share their memory."""
    return {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}


def tensor_copies(module: torch.nn.Module) -> dict[str, Array]:
    """Return copies of a module's parameters and buffers by name, in graph's order."""
    tensors = actor_tensors(module)
    return {name: t.detach().cpu().numpy().copy() for name, t in tensors.items()}


def learning_rate(spec: LearnerSpec, updates: int) -> float:
    """Return the step size of the update after ``updates`` others.

    It falls linearly, and is 0 after ``learning_rate_decay_updates``.
    """
    over = spec.learning_rate_decay_updates
    if over is None:
        return spec.learning_rate
    return spec.learning_rate * max(0.0, 1 - updates / over)
