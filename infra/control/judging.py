"""The metrics of every experiment that runs -> which of them are over.

In a thread of its own: brokers that are away hold this up, and nothing else.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from infra.control.desired import PublishedExperiment
from infra.errors import RollstreamError
from infra.monitoring.follow import MetricsFollower
from infra.monitoring.lag.model import LagReport
from infra.monitoring.past_end import PastEnd
from infra.monitoring.progress import Finish, judge
from infra.monitoring.summary import Summary, summarise
from infra.settings import Settings
from schemas.experiment import Spec, StopSpec

_PASS_S = 0.5
_RETRY_S = 5.0
_LAST_WORDS_S = 2.0
_log = logging.getLogger("rollstream.leader")

Observe = Callable[[PublishedExperiment, MetricsFollower], None]


@dataclass(frozen=True)
class Case:
    """What is to be judged.

    Attributes:
        published: the spec in force.
        wall_before_s: how long it had run before this leader came.
        all_ended: none of its roles lives, and no more metrics come.
    """

    published: PublishedExperiment
    wall_before_s: float = 0.0
    all_ended: bool = False


@dataclass(frozen=True)
class Verdict:
    """What the metrics say of a run.

    Attributes:
        run_id: whose.
        finish: why it is over; stays what it was first, as long as the spec names the
            same ends. None: it is not.
        summary: so far.
        is_final: the last words of ended roles are in it.
    """

    run_id: str
    finish: Finish | None
    summary: Summary
    is_final: bool = False


@dataclass
class _Followed:
    run_id: str
    follower: MetricsFollower
    began_s: float
    stop: StopSpec
    past_end: PastEnd
    finish: Finish | None = None
    is_final: bool = False


class Judge:
    """Follows the metrics of what it is given."""

    def __init__(
        self,
        settings: Settings,
        observe: Observe | None = None,
        report: Callable[[], LagReport] | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            settings: where the brokers are.
            observe: sees each follower at each pass.
            report: tells the lag of the groups of all that is judged.
        """
        self._settings = settings
        self._observe = observe
        self._report = report
        self._cases: Mapping[str, Case] = {}
        self._verdicts: dict[str, Verdict] = {}
        self._followed: dict[str, _Followed] = {}
        self._retry_at_s: dict[str, float] = {}
        self._closed = threading.Event()

    def take(self, cases: Mapping[str, Case]) -> None:
        """Judge these from now on, by name, and no others."""
        self._cases = dict(cases)

    def verdict(self, published: PublishedExperiment) -> Verdict | None:
        """Return what was said last of a run; None: its metrics are not read yet."""
        found = self._verdicts.get(published.experiment.name)
        return found if found and found.run_id == published.run_id else None

    def close(self) -> None:
        """End ``run``."""
        self._closed.set()

    def run(self) -> None:
        """Follow and judge until closed."""
        try:
            while not self._closed.wait(_PASS_S):
                cases = self._cases
                for name in self._followed.keys() - cases.keys():
                    self._leave(name)
                for name, case in cases.items():
                    self._try(name, case)
        finally:
            for name in list(self._followed):
                self._leave(name)

    def _try(self, name: str, case: Case) -> None:
        if time.monotonic() < self._retry_at_s.get(name, 0.0):
            return
        try:
            self._verdicts[name] = self._judge(name, case)
        except RollstreamError as exc:
            _log.info("the metrics of %s are read again later: %s", name, exc.problem)
            self._put_off(name)
        except Exception:
            # Of one experiment: it is not judged, and all others are.
            _log.exception("the metrics of %s are read again later", name)
            self._put_off(name)

    def _put_off(self, name: str) -> None:
        self._retry_at_s[name] = time.monotonic() + _RETRY_S
        self._leave(name)

    def _judge(self, name: str, case: Case) -> Verdict:
        spec = case.published.experiment.spec
        followed = self._follow(name, case.published.run_id, spec)
        if followed.stop != spec.stop:
            # What was reached of another goal, while its roles still ended, is no end.
            followed.stop, followed.finish, followed.is_final = spec.stop, None, False
            followed.past_end = PastEnd(spec)
        if case.all_ended and followed.finish and not followed.is_final:
            followed.follower.read_to_end(_LAST_WORDS_S)
            followed.is_final = True
        else:
            followed.follower.poll(0.0)
        if self._observe is not None:
            self._observe(case.published, followed.follower)
        wall_s = case.wall_before_s + time.monotonic() - followed.began_s
        progress = followed.follower.progress
        finish = (
            followed.finish
            or judge(spec.stop, progress, wall_s)
            or followed.past_end.judge(progress, followed.follower.lag)
        )
        followed.finish = finish
        summary = summarise(
            name,
            progress,
            finish,
            state="finished" if finish else spec.state,
            reason=finish.reason if finish else "",
            wall_s=wall_s,
            env_steps_before=0,
        )
        return Verdict(case.published.run_id, finish, summary, followed.is_final)

    def _follow(self, name: str, run_id: str, spec: Spec) -> _Followed:
        followed = self._followed.get(name)
        if followed is not None and followed.run_id == run_id:
            return followed
        self._leave(name)
        follower = MetricsFollower(self._settings, name, run_id, self._report)
        self._followed[name] = _Followed(
            run_id, follower, time.monotonic(), spec.stop, PastEnd(spec)
        )
        follower.read_to_end()
        return self._followed[name]

    def _leave(self, name: str) -> None:
        self._verdicts.pop(name, None)
        if (followed := self._followed.pop(name, None)) is not None:
            with contextlib.suppress(RuntimeError):  # it is closed already
                followed.follower.close()
