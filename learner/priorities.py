"""Priorities of rows by slot: as they were found, and as probabilities of being drawn.

A row that may be drawn has ``priority ** alpha`` in the tree, every other one 0.
"""

import numpy as np

from learner.sample import Drawn
from learner.stored_rows import Ring
from learner.sum_tree import Floats, Indices, SumTree
from schemas.experiment import ReplaySpec
from schemas.tensors import Array


class Priorities:
    """The priorities of a ring of rows.

    Attributes:
        highest_seen: the largest priority ever; 0: none yet.
    """

    def __init__(self, replay: ReplaySpec) -> None:
        self._replay = replay
        self._found = Ring(replay.capacity, np.float64)
        self._tree = SumTree(replay.capacity)
        self.highest_seen = 0.0

    @property
    def default(self) -> float:
        """That of rows that come without one: the largest ever seen, or 1."""
        return self.highest_seen or 1.0

    @property
    def epsilon(self) -> float:
        """What is added to each |TD error|."""
        return self._replay.priority_epsilon

    def completed(self, incoming: Array, valid: Array) -> Floats:
        """Return a batch's priorities [N], the default for those without one.

        Those of rows that are ``valid`` [N] count for the default of later ones.
        """
        incoming = incoming.astype(np.float64)
        known = np.isfinite(incoming) & (incoming > 0)
        self._see(incoming[known & valid])
        return np.where(known, incoming, self.default)

    def put(self, position: int, priorities: Floats) -> None:
        """Note priorities [N] from a position on; NaN: no row that is ever drawn."""
        self._found.put(position, priorities)

    def get(self, position: int, count: int) -> Floats:
        """Return a copy of what was noted of ``count`` rows from a position on."""
        found: Floats = self._found.get(position, count)
        return found

    def let_in(self, slots: Indices) -> None:
        """Let rows be drawn from now on."""
        self._tree.set(slots, self._found.rows[slots] ** self._replay.alpha)

    def leave_out(self, slots: Indices) -> None:
        """Let rows not be drawn any more."""
        self._tree.set(slots, np.zeros(len(slots)))

    def from_errors(self, td_errors: Array) -> Floats:
        """Return |TD error| + eps; not finite where the error is not."""
        priorities: Floats = np.abs(td_errors.astype(np.float64))
        priorities += self.epsilon
        return priorities

    def update(self, slots: Indices, priorities: Floats) -> None:
        """Replace the priorities of rows that may be drawn."""
        self._see(priorities)
        self._found.rows[slots] = priorities
        self._tree.set(slots, priorities**self._replay.alpha)

    def draw(self, count: int, rng: np.random.Generator) -> Drawn:
        """Draw one row from each of ``count`` equal parts of the probability.

        Raises:
            ValueError: no row can be drawn.
        """
        slots, probabilities = self._tree.sample(count, rng)
        least = self._tree.min_positive() / self._tree.total
        if self._replay.weights_normalised_by == "batch":
            least = float(probabilities.min(initial=np.inf))
        return Drawn(slots, probabilities, least)

    def _see(self, priorities: Floats) -> None:
        self.highest_seen = max(self.highest_seen, priorities.max(initial=0.0))
