"""What a leader has done beside itself, and in which order."""

from __future__ import annotations

from infra.control import chores as choring
from infra.control.chores import Chores


def test_what_somebody_waits_for_is_done_before_cleaning() -> None:
    chores, done = Chores(), []

    def see_to(key: str, *, last: bool = False) -> None:
        def act() -> None:
            done.append(key)
            if len(done) == 4:
                chores.close()

        assert not chores.see_to(key, act, last=last)
        assert not chores.see_to(key, act, last=last), "nor is it done twice"

    for key in ("clean a", "clean b"):
        see_to(key, last=True)
    for key in ("topics c", "topics d"):
        see_to(key)
    chores.run()
    assert done == ["topics c", "topics d", "clean a", "clean b"]
    assert all(chores.see_to(key, done.clear) for key in list(done))


def test_what_nobody_asks_for_any_more_is_forgotten(monkeypatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(choring.time, "monotonic", lambda: now_s[0])
    chores, done = Chores(), []

    def see_to(key: str) -> bool:
        def act() -> None:
            done.append(key)
            chores.close()

        found = chores.see_to(key, act)
        chores._closed.clear()
        if not found:
            chores.run()
        return found

    for number in range(50):
        see_to(f"restore {number}")
        see_to("topics")
        now_s[0] += 600.0
    assert done.count("topics") == 1, "it is asked for all the time"
    known = {*chores._done, *chores._asked, *chores._asked_before}
    assert "topics" in known and len(known) < 15
    # A leader that waited for the brokers all night has forgotten nothing.
    now_s[0] += 86_400.0
    assert see_to("topics")
