"""Acknowledgements come in the order of offsets, whatever is done first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_processors.acks import Window


@given(data=st.data(), offsets=st.sets(st.integers(0, 60), min_size=1, max_size=30))
def test_acks_are_in_order_and_never_pass_a_record_that_is_not_done(
    data: st.DataObject, offsets: set[int]
) -> None:
    window: Window[int] = Window()
    coming = sorted(offsets)
    waiting: list[int] = []
    done: set[int] = set()
    acked: list[int] = []
    while coming or waiting:
        if coming and (not waiting or data.draw(st.booleans())):
            window.add(coming[0], coming[0])
            waiting.append(coming.pop(0))
            continue
        offset = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
        done.add(offset)
        acked += window.done(offset)
        oldest = min(waiting, default=61)
        assert acked == sorted(each for each in done if each < oldest)
        assert len(window) == len(done) + len(waiting) - len(acked)
    assert acked == sorted(offsets)


def test_a_single_record_holds_back_all_after_it() -> None:
    window: Window[str] = Window()
    for offset in range(10, 13):
        window.add(offset, f"record {offset}")
    assert window.done(11) == []
    assert window.done(12) == []
    assert window.done(10) == ["record 10", "record 11", "record 12"]


def test_offsets_must_grow() -> None:
    window: Window[str] = Window()
    window.add(5, "five")
    with pytest.raises(ValueError, match="more than 5, found 5"):
        window.add(5, "again")


def test_a_record_is_done_once() -> None:
    window: Window[str] = Window()
    window.add(5, "five")
    window.done(5)
    with pytest.raises(KeyError):
        window.done(5)
