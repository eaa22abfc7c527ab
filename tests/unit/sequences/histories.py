"""Streams as a log might hold them, and by brute force what can be drawn of them."""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from schemas.records import SpaceField
from schemas.tensors import pack
from tests.unit.replay_batches import Stream

STATES = (SpaceField("h", "box", "<f4", (2,)),)


@dataclass(frozen=True)
class Piece:
    """A batch of a stream, rows first to last - 1."""

    stream: Stream
    first: int
    last: int
    is_blank: bool = False
    ends: bool = False

    @property
    def key(self):
        return self.stream.worker, self.stream.incarnation

    @property
    def rows(self):
        return (self.last - self.first) * self.stream.envs

    def state(self):
        """That before its first row, [B, 2]; its own for each."""
        envs = np.arange(self.stream.envs, dtype="<f4")
        at = np.full_like(envs, 100 * self.stream.incarnation + self.first)
        return np.stack([at, envs + 1], 1)

    def batch(self, **changes):
        values = {"states": {"h": pack(self.state())}, "end_of_stream": self.ends}
        return self.stream.batch(self.first, self.last, **values | changes)


@dataclass
class Oracle:
    """What a buffer of sequences should hold and give; nothing in it is fast."""

    capacity: int
    length: int
    burn_in: int
    head: int = 0
    held: list = field(default_factory=list)  # (position, piece), oldest first
    newest: dict = field(default_factory=dict)

    def take(self, piece):
        self.hear(piece.stream, piece.last + piece.ends)
        if piece.is_blank:
            return
        while self.held and self.head + piece.rows - self.held[0][0] > self.capacity:
            self.held.pop(0)
        self.held.append((self.head, piece))
        self.head += piece.rows

    def hear(self, stream, step):
        before = self.newest.get(stream.worker, (-1, -1))
        self.newest[stream.worker] = max(before, (stream.incarnation, step))

    def restored(self):
        """What is known of it after a restart: nothing of what has been evicted."""
        other = Oracle(self.capacity, self.length, self.burn_in, self.head)
        other.held = list(self.held)
        for _, piece in self.held:
            other.hear(piece.stream, piece.last + piece.ends)
        return other

    def items(self):
        """{position of the first row: (piece, env, rows there are)} of all drawable."""
        there = {
            (*piece.key, step)
            for _, piece in self.held
            for step in range(piece.first, piece.last)
        }
        found = {}
        for position, piece in self.held:
            reach = 0
            while reach < self.length and (*piece.key, piece.first + reach) in there:
                reach += 1
            heard = self.newest[piece.stream.worker]
            if reach < self.length and heard <= (piece.key[1], piece.first + reach):
                continue  # what is missing may come
            for env in range(piece.stream.envs):
                if self._has_row_to_learn_from(piece, env, reach):
                    found[position + env] = piece, env, reach
        return found

    def _has_row_to_learn_from(self, piece, env, reach):
        for t in range(self.burn_in, reach):
            _, discount, steps = piece.stream.target(piece.first + t, env)
            if piece.stream.valid[piece.first + t, env] and (
                discount == 0 or t + steps <= reach
            ):
                return True
        return False


@st.composite
def histories(draw):
    """Streams cut into batches: some lost, late or blank, in a possible order."""
    queues = []
    for worker in range(draw(st.integers(1, 3))):
        queue = []
        for incarnation in range(draw(st.integers(1, 2))):
            queue += draw(_streams(f"w{worker}", incarnation))
        queues.append(queue)
    order = []
    while any(queues):
        order.append(draw(st.sampled_from([q for q in queues if q])).pop(0))
    return order


@st.composite
def _streams(draw, worker, incarnation):
    stream = Stream(
        worker,
        steps=draw(st.integers(2, 24)),
        envs=draw(st.integers(1, 3)),
        lengths=tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))),
        n=draw(st.integers(1, 5)),
        incarnation=incarnation,
    )
    ends = sorted(draw(st.sets(st.integers(1, stream.steps - 1), max_size=8)))
    cuts = list(zip([0, *ends], [*ends, stream.steps], strict=True))
    kinds = [draw(st.sampled_from("kkkkkkkbl")) for _ in cuts]  # kept, blank, lost
    for (first, last), kind in zip(cuts, kinds, strict=True):
        if kind == "b":
            stream.valid[first:last] = False
    pieces = [
        Piece(
            stream,
            first,
            last,
            is_blank=not stream.valid[first:last].any(),
            ends=last == stream.steps and draw(st.booleans()),
        )
        for (first, last), kind in zip(cuts, kinds, strict=True)
        if kind != "l"
    ]
    if pieces and draw(st.booleans()):  # one comes late
        pieces.append(pieces.pop(draw(st.integers(0, len(pieces) - 1))))
    return pieces
