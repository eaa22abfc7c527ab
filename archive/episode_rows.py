"""An unroll -> its columns, opened."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schemas.records import Unroll
from schemas.tensors import Array

Arrays = dict[str, Array]


@dataclass(frozen=True, slots=True)
class Rows:
    """Its columns [T, B, ...]; observations [T+1, B, ...].

    Attributes:
        chosen: rows that are wanted, or not valid.
        ended: rows that end an episode.
        episodes: [B], the numbers of those that row 0 belongs to.
    """

    observations: Arrays
    actions: Arrays
    rewards: Array
    terminated: Array
    truncated: Array
    valid: Array
    chosen: Array
    ended: Array
    episodes: list[int]
    unroll: Unroll

    @classmethod
    def of(cls, unroll: Unroll, chosen: Array | None) -> Rows:
        """Open an unroll; ``chosen``: which rows are wanted; None: all.

        Raises:
            SchemaError: a tensor cannot be opened.
        """
        terminated, truncated = unroll.terminated.array(), unroll.truncated.array()
        valid = unroll.valid.array()
        return cls(
            {name: t.array() for name, t in unroll.observations.items()},
            {name: t.array() for name, t in unroll.actions.items()},
            unroll.rewards.array(),
            terminated,
            truncated,
            valid,
            # What is not valid cannot be chosen, and need not be.
            np.ones_like(valid) if chosen is None else chosen | ~valid,
            terminated | truncated,
            unroll.episodes.array().tolist(),
            unroll,
        )
