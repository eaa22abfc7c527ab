"""A load for processors that is never the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from schemas.records import StreamEnd
from schemas.topics import worker_name
from tests.unit.test_processor_oracle import make_unroll

if TYPE_CHECKING:
    from tests.integration.processor_rig import Rig

RATES = (0.05, 0.05, 0.05)


class Load(threading.Thread):
    """Workers at random: unrolls of 1 to 8 steps, now and then a new incarnation."""

    def __init__(self, rig: Rig, workers: int = 6, rate: float = 60.0) -> None:
        super().__init__(daemon=True)
        self._rig = rig
        self._rng = np.random.default_rng(0)
        self._stop_event = threading.Event()
        self._pause_s = 1.0 / rate
        # Worker -> incarnation, sequence, step.
        self._at = {worker_name(i): [0, 0, 0] for i in range(workers)}
        self.failure: Exception | None = None
        self.count = 0

    def run(self) -> None:
        try:
            while not self._stop_event.wait(self._pause_s):
                self.put(str(self._rng.choice(list(self._at))))
            for worker, (incarnation, _, _) in self._at.items():
                self._rig.put(
                    StreamEnd(self._rig.name, "run1", worker, incarnation + 1, "", 0)
                )
        except Exception as exc:
            self.failure = exc

    def put(self, worker: str) -> None:
        rng, at = self._rng, self._at[worker]
        if rng.random() < 0.02:
            at[:] = at[0] + 1, 0, 0
        shape = (int(rng.integers(1, 9)), 2)
        marks = [[tuple(p) for p in np.argwhere(rng.random(shape) < r)] for r in RATES]
        unroll = make_unroll(
            rng.normal(size=shape).tolist(),
            worker=worker,
            incarnation=at[0],
            sequence=at[1],
            first_step=at[2],
            terminated=marks[0],
            truncated=marks[1],
            invalid=marks[2],
            experiment=self._rig.name,
            produced_at_ms=time.time_ns() // 1_000_000,
        )
        self._rig.put(unroll)
        at[1] += 1
        at[2] += shape[0]
        self.count += 1

    def finish(self) -> None:
        """Stop, and close every stream."""
        self._stop_event.set()
        self.join(90.0)
        assert not self.is_alive()
        assert self.failure is None, self.failure
        self._rig.flush()


@contextmanager
def loaded(rig: Rig) -> Iterator[Load]:
    load = Load(rig)
    load.start()
    try:
        yield load
    finally:
        load.finish()
