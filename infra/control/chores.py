"""What takes long and may be repeated: done one after the other, beside the leader."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from infra.errors import RollstreamError

_RETRY_S = 5.0
_POLL_S = 0.5
# A leader asks for whatever its topics ask for at each tick.
_AGE_S = 1_800.0
_log = logging.getLogger("rollstream.leader")


@dataclass(frozen=True, slots=True, order=True)
class _Chore:
    last: bool
    number: int
    key: Hashable = field(compare=False)
    action: Callable[[], object] = field(compare=False)


class Chores:
    """Each chore has a key, and is done once; one that fails is repeated later.

    What nobody has asked for in this half hour or the one before is forgotten, or a
    leader of months would remember all that there ever was.

    One thread for all: what makes topics and what deletes those of the same name never
    run at the same time.
    """

    def __init__(self) -> None:
        self._queue: queue.PriorityQueue[_Chore] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._done: set[Hashable] = set()
        self._asked: set[Hashable] = set()
        self._asked_before: set[Hashable] = set()
        self._age_began_s = time.monotonic()
        self._waiting: set[Hashable] = set()
        self._problems: dict[Hashable, str] = {}
        self._retry_at_s: dict[Hashable, float] = {}
        self._closed = threading.Event()

    def see_to(
        self, key: Hashable, action: Callable[[], object], *, last: bool = False
    ) -> bool:
        """Return whether it is done; else it will be: ``last``, after the others."""
        now_s = time.monotonic()
        self._asked.add(key)
        if now_s - self._age_began_s > _AGE_S:
            self._begin_age(now_s)
        if key in self._done:
            return True
        late = now_s >= self._retry_at_s.get(key, 0.0)
        if key not in self._waiting and late:
            self._waiting.add(key)
            self._queue.put(_Chore(last, next(self._numbers), key, action))
        return False

    def problem(self, key: Hashable) -> str:
        """Return why it failed last; empty: it did not."""
        return self._problems.get(key, "")

    def close(self) -> None:
        """Begin no other chore."""
        self._closed.set()

    def run(self) -> None:
        """Work until closed."""
        while not self._closed.is_set():
            try:
                chore = self._queue.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            key = chore.key
            try:
                chore.action()
            except RollstreamError as exc:
                self._fail(key, exc.problem)
            except Exception as exc:
                # Of one experiment: all others go on, and this one says so.
                _log.exception("%s", key)
                self._fail(key, repr(exc))
            else:
                self._problems.pop(key, None)
                self._done.add(key)
            self._waiting.discard(key)

    def _begin_age(self, now_s: float) -> None:
        asked = self._asked | self._asked_before | self._waiting
        for key in {*self._done, *self._problems, *self._retry_at_s} - asked:
            self._done.discard(key)
            self._problems.pop(key, None)
            self._retry_at_s.pop(key, None)
        self._asked_before, self._asked = self._asked, set()
        self._age_began_s = now_s

    def _fail(self, key: Hashable, problem: str) -> None:
        _log.info("%s is tried again: %s", key, problem)
        self._problems[key] = problem
        self._retry_at_s[key] = time.monotonic() + _RETRY_S
