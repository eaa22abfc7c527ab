"""What a leader's judge says of a run, and how its end is told; metrics are played."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from types import SimpleNamespace
from typing import Any

import pytest

from infra.control import endings, judging, leader_duties
from infra.control.desired import Desired, Entry, PublishedExperiment
from infra.control.election import Cluster
from infra.control.judging import Case, Judge, Verdict
from infra.control.leader_duties import Duties
from infra.control.placement import Placement
from infra.monitoring.progress import Finish, Progress
from infra.monitoring.summary import summarise
from infra.settings import Settings
from schemas.experiment import from_values
from schemas.records import RoleStatus
from tests.unit.test_experiment import values

NAME, RUN_ID = "cartpole-dqn", "r1"


def published(offset: int, **overrides: str) -> PublishedExperiment:
    experiment = from_values(values(**overrides))
    return PublishedExperiment(experiment, RUN_ID, offset, "agents")


class PlayedFollower:
    """Metrics that say nothing."""

    def __init__(self, _: Settings, name: str, run_id: str, report: object) -> None:
        self.progress = Progress(run_id)
        self.lag: dict[str, int | None] = {}
        self.reads: list[float] = []

    def read_to_end(self, timeout_s: float = 30.0) -> None:
        self.reads.append(timeout_s)

    def poll(self, timeout_s: float) -> None:
        pass

    def close(self) -> None:
        pass


def test_another_goal_is_judged_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "MetricsFollower", PlayedFollower)
    judge = Judge(Settings())
    short, longer = (
        published(offset, spec__stop__wallS=wall_s)
        for offset, wall_s in ((7, "60"), (8, "600"))
    )

    def judged(spec: PublishedExperiment, *, all_ended: bool) -> Verdict:
        return judge._judge(NAME, Case(spec, 100.0, all_ended))

    assert judged(short, all_ended=False).finish
    # The verdict that it has ended is older than the spec that lets it go on.
    on = judged(longer, all_ended=True)
    assert on.finish is None and not on.is_final
    again = judged(short, all_ended=False)
    assert again.finish and not again.is_final, "its last words are still to come"
    assert judged(short, all_ended=True).is_final


class Played:
    """Duties with everything around them played."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.verdict: Verdict | None = None
        self.state = "running"
        self.live = 2
        self.asked = 0
        self.finished: list[int] = []
        self.cases: dict[str, Case] = {}
        self._done: set[Hashable] = set()
        monkeypatch.setattr(endings, "publish_status", self._publish)
        monkeypatch.setattr(leader_duties, "ensure_experiment_topics", lambda *_: None)
        notices = SimpleNamespace(status=lambda *_, **__: None, event=lambda *_: None)
        leadership = SimpleNamespace(is_sure=True, live_roles=self._live_roles)
        judge = SimpleNamespace(verdict=lambda _: self.verdict, take=self._take)
        board = SimpleNamespace(of=self._board)
        chores = SimpleNamespace(see_to=self._see_to, problem=lambda key: "")
        self.over: list[tuple[int, str]] = []
        self.forgotten: list[str] = []
        self.kept: list[set[str]] = []
        alerting = SimpleNamespace(
            over=lambda spec, reason: self.over.append((spec.offset, reason)),
            forget=self.forgotten.append,
            keep=lambda names: self.kept.append(set(names)),
        )
        parts: list[Any] = [leadership, notices, board, judge, chores, alerting]
        self.duties = Duties(Settings(), *parts)
        self.duties._acts._sender = SimpleNamespace()  # type: ignore[assignment]

    def _live_roles(self, name: str) -> int:
        self.asked += 1
        return self.live

    def _take(self, cases: dict[str, Case]) -> None:
        self.cases = dict(cases)

    def _board(self, name: str, run_id: str) -> dict[str, RoleStatus]:
        whole = RoleStatus(NAME, RUN_ID, "experiment", 0, self.state, "h", 1, 0, "", 0)
        return {"experiment/0": whole}

    def _see_to(self, key: Hashable, action: Callable[[], None]) -> bool:
        if key not in self._done:
            action()
            self._done.add(key)
        return True

    def _publish(
        self, sender: object, spec: PublishedExperiment, state: str, *_: object
    ) -> None:
        self.state = state
        self.finished.append(spec.offset)

    def judged(self, finish: Finish | None, *, is_final: bool = False) -> None:
        summary = summarise(
            NAME, Progress(RUN_ID), finish, state="", reason="", wall_s=1.0,
            env_steps_before=0,
        )  # fmt: skip
        self.verdict = Verdict(RUN_ID, finish, summary, is_final)

    def attend(self, spec: PublishedExperiment) -> None:
        desired = Desired({NAME: Entry(spec, spec.offset)})
        cluster = Cluster({}, {}, frozenset())
        self.duties.attend(desired, cluster, {}, Placement({}, {}))


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(monkeypatch)


def test_a_run_that_is_launched_again_finishes_again(played: Played) -> None:
    for offset in (7, 9):
        spec = published(offset)
        played.state, played.live, played.verdict = "pending", 2, None
        assert played.duties.not_ready(spec) == "its metrics are being read"
        played.judged(Finish("done", True))
        played.attend(spec)
        assert not played.cases[NAME].all_ended, "its roles live"
        played.live = 0
        played.attend(spec)
        assert played.cases[NAME].all_ended
        played.judged(Finish("done", True), is_final=True)
        played.attend(spec)
        assert played.finished[-1] == offset
        played.attend(spec)
        assert NAME not in played.cases
    assert played.finished == [7, 9]


def test_of_what_has_stopped_nobody_asks_again(played: Played) -> None:
    stopped = published(7, spec__state="stopped")
    played.attend(stopped)
    played.live = 0
    for _ in range(3):
        played.attend(stopped)
    assert played.asked == 2
    played.attend(published(8, spec__state="stopped"))
    assert played.asked == 3


def test_nobody_is_alerted_of_roles_that_end(played: Played) -> None:
    running = published(7)
    assert played.duties.not_ready(running) == "its metrics are being read"
    played.judged(None)
    played.attend(running)
    assert (played.over, played.kept) == ([], [{NAME}])
    played.judged(Finish("done", True))
    played.attend(running)
    assert played.over == [(7, "the experiment has ended")], "and its roles still live"
    played.attend(published(8, spec__state="stopped"))
    assert [offset for offset, _ in played.over] == [7, 8] and played.kept[-1] == set()


def test_one_that_is_not_judged_yet_is_not_over(played: Played) -> None:
    """A new leader makes sure of its topics first, and reads its metrics."""
    played.attend(published(7))
    assert (played.over, played.kept) == ([], [set()])


@pytest.mark.parametrize("state", ["running", "stopped"])
def test_a_new_leader_knows_what_was_over_before(played: Played, state: str) -> None:
    played.state = "finished" if state == "running" else "pending"
    played.attend(published(7, spec__state=state))
    assert played.over == [(7, "the experiment has ended")]


def test_what_is_deleted_is_watched_no_more(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(played.duties._mender, "clean", lambda *_: None)
    desired = Desired({NAME: Entry(None, 9, deleted=True)})
    played.duties.attend(desired, Cluster({}, {}, frozenset()), {}, Placement({}, {}))
    assert played.forgotten == [NAME] and played.over == []
