from hypothesis import given
from hypothesis import strategies as st

from archive.sequences import Sequences


def test_ranges_grow_together():
    found = Sequences()
    for sequence in (0, 1, 5, 3, 4):
        found.add("w0/1", sequence, sequence + 1)
    assert found.to_ranges() == {"w0/1": [(0, 2), (3, 6)]}
    found.add("w0/1", 2, 3)
    assert found.to_ranges() == {"w0/1": [(0, 6)]}


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 12), st.integers(1, 4)),
        max_size=12,
    )
)
def test_they_are_the_set_of_what_was_added(added):
    found, expected = Sequences(), set()
    for stream, first, count in added:
        found.add(stream, first, first + count)
        expected |= {(stream, s) for s in range(first, first + count)}
    has = {(stream, s) for stream in "ab" for s in range(20) if found.has(stream, s)}
    assert has == expected
    for ranges in found.to_ranges().values():
        flat = [bound for each in ranges for bound in each]
        assert flat == sorted(set(flat))  # sorted, and none touches the next
    again = Sequences()
    again.add_all(found.to_ranges())
    assert again.to_ranges() == found.to_ranges()
