"""What a leader has done beside itself, and in which order."""

from __future__ import annotations

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
