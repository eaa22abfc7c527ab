"""Single frames of unrolls -> stacks of them, as ``ObservationRows`` makes them.

An unroll's first stacks need frames of those before it, which may have been learnt from
long ago: of each worker what its next unroll needs is kept, and how to read it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from learner.chunks import ChunkRef
from learner.frame_ages import age_alone, ages_from
from schemas.tensors import Array


@dataclass(frozen=True, slots=True)
class Past:
    """An unroll whose frames a later one needs.

    Attributes:
        serial: its place in the order of all.
        ref: where it can be read again.
        is_after_blank: see Chunk.
    """

    serial: int
    ref: ChunkRef
    is_after_blank: bool


@dataclass(frozen=True, slots=True)
class _Tail:
    """What the unroll after the newest of a worker needs.

    Attributes:
        frames: the last k - 1 before its own, by field, [k-1, B, ...].
        ages: [B] int, frames of the episode before its first, as in ``Frames``.
        pasts: of which unrolls this was made, oldest first; the newest is the last.
    """

    frames: Mapping[str, Array]
    ages: Array
    pasts: tuple[Past, ...]

    @property
    def place(self) -> tuple[int, int]:
        """Its worker's incarnation, and how far that had come."""
        last = self.pasts[-1].ref
        return last.incarnation, last.end_step


@dataclass(frozen=True, slots=True)
class Frames:
    """The frames of an unroll.

    Attributes:
        frames: by field, [history + T + 1, B, ...]; numbers are finite.
        ages: [T+1, B] int, how many frames of the episode come before a row, at most
            k - 1; below zero: not all of them are known.
        pasts: the unrolls that frames before its own are of, oldest first.
    """

    frames: Mapping[str, Array]
    ages: Array
    pasts: tuple[Past, ...] = ()

    @property
    def known(self) -> Array:
        """Whether all frames of an observation are, [T+1, B]."""
        known: Array = self.ages >= 0
        return known

    def stacked(self, stack: int) -> dict[str, Array]:
        """Return the observations by field: [T+1, B, k, ...], [T+1, B, ...] of one."""
        if stack == 1:
            return dict(self.frames)
        rows, num_envs = self.ages.shape
        back = np.minimum(np.arange(stack - 1, -1, -1), self.ages.clip(0)[..., None])
        at = np.arange(rows)[:, None, None] + stack - 1 - back
        envs = np.arange(num_envs)[None, :, None]
        return {name: values[at, envs] for name, values in self.frames.items()}


@dataclass
class FrameStacks:
    """Puts unrolls behind each other, worker by worker.

    Attributes:
        stack: k; 1: nothing is kept.
        blanks: by worker, incarnation and end step of a newest unroll that had no valid
            row, as long as nothing has followed it.
    """

    stack: int
    blanks: dict[str, tuple[int, int]] = field(default_factory=dict)
    _tails: dict[str, _Tail] = field(default_factory=dict)
    _over: dict[str, int] = field(default_factory=dict)

    def over_before(self, worker: str, incarnation: int) -> None:
        """Note that no stream of a worker before an incarnation goes on.

        What of it is still under way finds its frames; but the log need not keep them.
        """
        self._over[worker] = max(incarnation, self._over.get(worker, 0))

    def note_blank(self, worker: str, incarnation: int, end_step: int) -> None:
        """Note an unroll without a valid row: an episode begins behind it."""
        if self.stack == 1:
            return
        self.blanks[worker] = incarnation, end_step
        tail = self._tails.get(worker)
        if tail is not None and tail.place < (incarnation, end_step):
            del self._tails[worker]

    def is_after_blank(self, ref: ChunkRef) -> bool:
        """Whether the unroll before had no valid row; it is forgotten with that."""
        if self.blanks.get(ref.worker) != (ref.incarnation, ref.first_step):
            return False
        del self.blanks[ref.worker]
        return True

    def put(
        self, past: Past, observations: Mapping[str, Array], valid: Array, *, ends: bool
    ) -> Frames:
        """Put an unroll behind the one before of its worker.

        Args:
            past: what it is.
            observations: finite, by field, [T+1, B, ...].
            valid: [T, B]; an episode begins in the row after one that is not.
            ends: its stream ends with it.
        """
        if self.stack == 1:
            return Frames(observations, np.zeros(_leading(observations), np.int16))
        before = self._before(past)
        if before is None:
            frames = {
                name: _with_history(v, self.stack) for name, v in observations.items()
            }
            first: Array | int = age_alone(
                past.ref, is_after_blank=past.is_after_blank, full=self.stack - 1
            )
        else:
            frames = {
                n: np.concatenate([before.frames[n], v])
                for n, v in observations.items()
            }
            first = before.ages
        made = Frames(
            frames,
            ages_from(first, valid, self.stack - 1),
            before.pasts if before else (),
        )
        self._keep(past, made, ends=ends)
        return made

    def pasts(self) -> Iterator[Past]:
        """Yield the unrolls that the next ones need."""
        for worker, tail in self._tails.items():
            if tail.place[0] >= self._over.get(worker, 0):
                yield from tail.pasts

    def _before(self, past: Past) -> _Tail | None:
        """Return what is there of the unroll that one continues."""
        tail = self._tails.get(past.ref.worker)
        if tail is None:
            return None
        last = tail.pasts[-1].ref
        follows = (last.stream, last.end_step, last.num_envs) == (
            past.ref.stream,
            past.ref.first_step,
            past.ref.num_envs,
        )
        return tail if follows else None

    def _keep(self, past: Past, made: Frames, *, ends: bool) -> None:
        """Keep what the next unroll needs, unless one after that is there already."""
        ref = past.ref
        if ends:
            self.over_before(ref.worker, ref.incarnation + 1)
        tail = self._tails.get(ref.worker)
        if tail is not None and tail.place > (ref.incarnation, ref.end_step):
            return
        pasts = (*made.pasts, past)
        # Fewer than k - 1 steps are in the last ones: those before are needed too.
        while sum(p.ref.num_steps for p in pasts[1:]) >= self.stack - 1:
            pasts = pasts[1:]
        count = self.stack - 1
        kept = {name: values[-1 - count : -1] for name, values in made.frames.items()}
        self._tails[ref.worker] = _Tail(kept, made.ages[-1], pasts)


def _leading(observations: Mapping[str, Array]) -> tuple[int, int]:
    rows, num_envs = next(iter(observations.values())).shape[:2]
    return rows, num_envs


def _with_history(values: Array, stack: int) -> Array:
    """Put k - 1 frames of zeros before those [T+1, B, ...]: nobody looks at them."""
    nothing = np.zeros((stack - 1, *values.shape[1:]), values.dtype)
    return np.concatenate([nothing, values])
