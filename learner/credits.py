"""Arrivals -> how far each worker may step: a receive window per worker.

Pure: times are seconds of one monotonic clock, passed in.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.flow import floor_window
from schemas.records import WorkerCredit

MIN_INTERVAL_S = 0.05
"""Credits are sent at most this often ..."""

REPEAT_S = 1.0
"""... and at least this often: workers read from the topic's end."""

MAX_WINDOW = 64
"""Unrolls; what a measured window never exceeds: the pipeline needs 22 to 28."""

SILENCE_S = 30.0
"""After this long without a batch what was granted is taken for gone at first."""

_RATE_SPAN_S = 2.0
_LEAST_SPAN_S = 0.25
# A worker is told nothing between two credits; what it may do meanwhile, and something
# more, or its rate could not be seen to grow.
_SPARE_S = 1.5 * MIN_INTERVAL_S
_MOMENT_S = 0.4
_LEAST_IN_MOMENT = 8  # or an accident makes a rate
_ROUND_TRIP_SPAN_S = 30.0


@dataclass
class _Worker:
    """One incarnation of a worker, as far as its batches have come.

    Attributes:
        unroll_length: the longest a window has to be counted in; see ``arrived``.
        next_step: after the newest row that has come.
        forgiven: steps below this are treated as if they had come.
        allowed: the step that it may not pass.
        sent: the newest ``allowed`` that it was told.
        silent_since_s: when it was last heard or forgiven, or could not be.
        patience_s: the silence after which it is forgiven next.
        arrivals: when batches came, and their steps.
        dealt: the number of the deal in which it got its last unroll.
    """

    incarnation: int
    unroll_length: int
    next_step: int = 0
    forgiven: int = 0
    allowed: int = 0
    sent: int = 0
    silent_since_s: float | None = None
    patience_s: float = SILENCE_S
    dealt: int = 0
    arrivals: deque[tuple[float, int]] = field(default_factory=deque)
    grants: deque[tuple[int, float]] = field(default_factory=deque)
    round_trips: deque[tuple[float, float]] = field(default_factory=deque)


class CreditWindows:
    """Computes what each worker is allowed, and when that is worth a record.

    With p = rate x round trip, the unrolls that fill the pipeline, the window is
    ``max(floor, p + min(p, room))`` unrolls beyond what has arrived: twice the pipeline
    while the limiter has room for that, and no more than the pipeline otherwise, or
    experience would wait in the log and be stale when it is read. Where a round trip is
    shorter than the time between credits, that time stands for the second p.

    Where windows are ``counted`` (on-policy, see ``schemas.flow.is_counted``) room is
    what the next updates take, and what is under way has its share of it: who has least
    under way and has waited longest goes next, a floor window each at most. One more
    unroll would be of a policy too old when it comes; and a slow worker has its turn.

    A round trip is from the grant of a step to its arrival, on the learner's clock. The
    smallest of the last 30 s counts, and none during which the limiter had no room: a
    longer one holds the queues that a larger window makes.

    What was granted may never arrive: it was buried by a processor, or expired before
    one had read it, and nobody tells. So a worker that nothing is heard of for 30 s,
    while the limiter has room, is forgiven what it was granted, as a sender probes a
    closed TCP window; then after 60 s, and so on. Never more than MAX_WINDOW unrolls
    beyond what has come: it may only be slow.
    """

    def __init__(
        self,
        *,
        fixed_window: int,
        n_step: int,
        unroll_length: int,
        least: int = 2,
        counted: bool = False,
    ) -> None:
        """Begin with no worker; ``least`` is of ``schemas.flow.least_window``."""
        self._fixed = fixed_window
        self._n_step = n_step
        self._least = least
        self._counted = counted
        self._unroll_length = unroll_length
        self._workers: dict[str, _Worker] = {}
        self._sent_at = -math.inf
        self._full_at = -math.inf
        self._deals = 0

    def workers(self) -> frozenset[str]:
        """Return the workers that are known."""
        return frozenset(self._workers)

    def started(self, worker: str, incarnation: int, next_step: int = 0) -> None:
        """Note a worker's incarnation; an older one than the known changes nothing.

        Args:
            worker: its name.
            incarnation: as in its Member, or in its batches.
            next_step: where its stream goes on, when batches of it were read before.
        """
        known = self._workers.get(worker)
        if known is not None and known.incarnation >= incarnation:
            return
        self._workers[worker] = _Worker(incarnation, self._unroll_length, next_step)
        # A new incarnation waits for nothing but this: tell it now.
        self._sent_at = -math.inf

    def stopped(self, worker: str) -> None:
        """Forget a worker that was removed."""
        self._workers.pop(worker, None)

    def arrived(
        self,
        worker: str,
        incarnation: int,
        next_step: int,
        num_steps: int,
        now_s: float,
    ) -> None:
        """Note that the rows up to ``next_step`` of a worker have come.

        Windows are counted in unrolls of the spec's length though one was cut, for the
        next may be whole again; in longer ones where they come.
        """
        self.started(worker, incarnation)
        state = self._workers[worker]
        if state.incarnation != incarnation:
            return
        state.next_step = max(state.next_step, next_step)
        state.unroll_length = max(state.unroll_length, num_steps)
        state.silent_since_s, state.patience_s = now_s, SILENCE_S
        state.arrivals.append((now_s, num_steps))
        while state.grants and state.grants[0][0] <= next_step:
            _, granted_at = state.grants.popleft()
            if granted_at > self._full_at:
                state.round_trips.append((now_s, now_s - granted_at))
        # Here too: where no window is measured nobody else would.
        _drop_old(state, now_s)

    def forgive(self, worker: str) -> None:
        """Treat what was granted as arrived: it is known to be gone.

        Records that expired unread never arrive, and their worker would wait for ever.
        """
        state = self._workers.get(worker)
        if state is not None:
            state.forgiven = state.allowed

    def window(self, worker: str, now_s: float, room: float) -> int:
        """Return a worker's window in unrolls; ``room`` as in ``grant``."""
        state = self._workers[worker]
        floor = self._floor(state)
        if self._fixed or self._counted:
            return floor
        rate = _rate(state, now_s)
        pipeline = rate * _round_trip(state, now_s)
        share = max(0.0, room) / len(self._workers)
        spare = max(pipeline, rate * _SPARE_S)
        return max(floor, min(MAX_WINDOW, math.ceil(pipeline + min(spare, share))))

    def grant(self, now_s: float, *, room: float) -> Mapping[str, WorkerCredit]:
        """Return what to send now; empty when there is nothing new to say.

        A step that was allowed stays allowed. Nobody gets less than a floor window from
        the start of an incarnation: that much a worker takes anyway.

        Args:
            now_s: the time.
            room: how many more unrolls the limiter takes; below 1 no window moves,
                but where they are counted.
        """
        if room < 1:
            self._full_at = now_s
        moved = (self._deal if self._counted else self._move)(now_s, room)
        waited = now_s - self._sent_at
        due = waited >= REPEAT_S or (moved and waited >= MIN_INTERVAL_S)
        if not due or not self._workers:
            return {}
        self._sent_at = now_s
        return {worker: _send(state, now_s) for worker, state in self._workers.items()}

    def allowed_step(self, worker: str) -> int:
        """Return the step that a worker may not pass."""
        return self._workers[worker].allowed

    def _move(self, now_s: float, room: float) -> bool:
        """Move each worker's window, as long as there is room for an unroll.

        Returns:
            Whether a window has moved far enough to be told of; as ``_deal`` does.
        """
        moved = False
        for worker, state in self._workers.items():
            window = self.window(worker, now_s, room)
            _forgive_silence(state, now_s, may_move=room >= 1)
            self._allow_floor(state)
            if room >= 1:
                _allow(state, window)
            moved = moved or _has_moved(state, window)
        return moved

    def _deal(self, now_s: float, room: float) -> bool:
        """Deal out room, one unroll at a time; a part of one takes a whole one.

        A worker that was forgiven has its window, and takes nothing away from others
        until it is heard of again: it may be gone.
        """
        left = room
        for state in self._workers.values():
            self._allow_floor(state)
            _forgive_silence(state, now_s, may_move=room > 0 and _under_way(state) > 0)
            if _is_silent(state):
                _allow(state, self._floor(state))
            else:
                left -= _under_way(state)
        waiting = [
            (_under_way(state), state.dealt, worker)
            for worker, state in self._workers.items()
            if not _is_silent(state)
        ]
        heapq.heapify(waiting)
        while left > 0 and waiting:
            under_way, _, worker = heapq.heappop(waiting)
            state = self._workers[worker]
            if under_way >= self._floor(state):
                continue
            _allow(state, under_way + 1)
            self._deals += 1
            state.dealt = self._deals
            heapq.heappush(waiting, (under_way + 1, state.dealt, worker))
            left -= 1
        return any(_has_moved(s, self._floor(s)) for s in self._workers.values())

    def _floor(self, state: _Worker) -> int:
        return floor_window(
            self._n_step, state.unroll_length, self._fixed, least=self._least
        )

    def _allow_floor(self, state: _Worker) -> None:
        """Allow what a worker takes anyway at the start of an incarnation."""
        state.allowed = max(state.allowed, self._floor(state) * state.unroll_length)


def _allow(state: _Worker, window: int) -> None:
    edge = max(state.next_step, state.forgiven) + window * state.unroll_length
    state.allowed = max(state.allowed, edge)


def _has_moved(state: _Worker, window: int) -> bool:
    """Whether a quarter of a window was not told to its worker yet."""
    return state.allowed - state.sent >= max(1, window * state.unroll_length // 4)


def _under_way(state: _Worker) -> int:
    """Return how many whole unrolls a worker may send yet; of less it makes none."""
    beyond = state.allowed - max(state.next_step, state.forgiven)
    return max(beyond // state.unroll_length, 0)


def _is_silent(state: _Worker) -> bool:
    """Whether a worker was forgiven, and not heard of since."""
    return state.patience_s > SILENCE_S


def _send(state: _Worker, now_s: float) -> WorkerCredit:
    if state.allowed > state.sent:
        # The first one says what the worker knew or had done before: no round trip.
        if state.sent:
            state.grants.append((state.allowed, now_s))
        state.sent = state.allowed
    return WorkerCredit(state.incarnation, state.allowed)


def _forgive_silence(state: _Worker, now_s: float, *, may_move: bool) -> None:
    if state.silent_since_s is None or not may_move:
        state.silent_since_s = now_s
    in_flight = state.allowed - state.next_step
    if in_flight >= MAX_WINDOW * state.unroll_length:
        return
    if now_s - state.silent_since_s >= state.patience_s:
        state.forgiven = state.allowed
        state.silent_since_s = now_s
        state.patience_s *= 2


def _drop_old(state: _Worker, now_s: float) -> None:
    arrivals, trips = state.arrivals, state.round_trips
    while arrivals and arrivals[0][0] < now_s - _RATE_SPAN_S:
        arrivals.popleft()
    # The last round trip stays when none is younger.
    while len(trips) > 1 and trips[0][0] < now_s - _ROUND_TRIP_SPAN_S:
        trips.popleft()


def _rate(state: _Worker, now_s: float) -> float:
    """Return the unrolls, of the length that windows have, that came per second."""
    _drop_old(state, now_s)
    if not state.arrivals:
        return 0.0
    steps = sum(num_steps for _, num_steps in state.arrivals)
    span_s = max(_LEAST_SPAN_S, now_s - state.arrivals[0][0])
    return max(steps / span_s, _rate_of_late(state, now_s)) / state.unroll_length


def _rate_of_late(state: _Worker, now_s: float) -> float:
    """Return the steps per second of the last moment; 0 where too little came in it.

    A window that follows what came in two seconds doubles once in two seconds.
    """
    count = steps = 0
    for at_s, num_steps in reversed(state.arrivals):
        if at_s < now_s - _MOMENT_S:
            break
        count, steps = count + 1, steps + num_steps
    return steps / _MOMENT_S if count >= _LEAST_IN_MOMENT else 0.0


def _round_trip(state: _Worker, now_s: float) -> float:
    """Return the smallest round trip of late; the last one when none is younger."""
    _drop_old(state, now_s)
    return min((trip for _, trip in state.round_trips), default=0.0)
