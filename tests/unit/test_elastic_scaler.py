"""What fits nowhere: asked for seldom, and at once when there is room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.control import elastic_scaler
from infra.control.desired import PublishedExperiment
from infra.control.elastic import Decision, Known
from infra.control.elastic_scaler import ElasticScaler
from infra.control.placement import Free
from infra.control.wants import Counts
from schemas.experiment import from_values
from tests.unit.test_experiment import values

COOL_S = 30.0
NOW = Counts(2, 1)
FREE = {"h-1": Free(100, 0, 500)}


class Played:
    """A scaler whose clock and whose load are played."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        spec = values(spec__workers="{replicas: 2, min: 1, max: 8}")
        self.published = PublishedExperiment(from_values(spec), "r1", 7, "agents")
        self.now_s, self.workers = 1_000.0, 4
        monkeypatch.setattr(elastic_scaler.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(elastic_scaler, "decide", self._decide)
        self.scaler = ElasticScaler()

    def _decide(
        self, spec: object, samples: object, known: Known, now: Counts, now_s: float
    ) -> Decision:
        if now_s - known.workers_since_s < COOL_S or self.workers == now.workers:
            return Decision(None, None, "", known)
        return Decision(
            self.workers, None, "why", replace(known, workers_since_s=now_s)
        )

    def seconds_until_asked(
        self, free: dict[str, Free], now: Counts = NOW, most: int = 50_000
    ) -> int | None:
        for second in range(most):
            if self.scaler.decide(self.published, now, free) is not None:
                return second
            self.now_s += 1.0
        return None

    def no_room(self, free: dict[str, Free] = FREE) -> bool:
        return self.scaler.no_room(self.published, free)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(monkeypatch)


def test_what_fits_nowhere_is_asked_for_ever_more_seldom(played: Played) -> None:
    assert played.seconds_until_asked(FREE) == COOL_S, "it looks first"
    assert played.no_room(), "this is news"
    waits = []
    for _ in range(6):
        waits.append(played.seconds_until_asked(FREE))
        assert not played.no_room(), "this is not"
    assert waits == [300, 600, 1200, 2400, 3600, 3600]


@pytest.mark.parametrize(
    ("because", "free", "wait_s"),
    [
        ("as before", FREE, 300),
        ("less than before", {"h-1": Free(50, 0, 499)}, 300),
        ("one is gone", {}, 300),
        ("more cpu", {"h-1": Free(101, 0, 500)}, COOL_S),
        ("another process", {"h-1": Free(100, 0, 501)}, COOL_S),
        ("another agent", {**FREE, "h-2": Free(0, 1, 0)}, COOL_S),
        ("one that has nothing", {**FREE, "h-2": Free(0, 0, 0)}, 300),
    ],
)
def test_room_that_was_not_there_is_asked_for_at_once(
    played: Played, because: str, free: dict[str, Free], wait_s: float
) -> None:
    played.seconds_until_asked(FREE)
    played.no_room()
    assert played.seconds_until_asked(free) == wait_s, because


def test_fewer_are_possible_all_the_time(played: Played) -> None:
    played.seconds_until_asked(FREE)
    played.no_room()
    played.workers = 1
    assert played.seconds_until_asked(FREE) == COOL_S
    found = played.scaler.decide(played.published, Counts(1, 1), FREE)
    assert found is None, "and it looks again"


def test_once_there_are_more_it_is_news_again(played: Played) -> None:
    played.seconds_until_asked(FREE)
    assert played.no_room()
    assert played.seconds_until_asked(FREE, Counts(3, 1)) == COOL_S
    assert played.no_room()
