"""Best, newest, or a number: which version that is, and what is said where none is."""

import pytest

from infra.policies.choosing import choose
from infra.policies.errors import NoPolicy, PolicyGone
from infra.policies.shelf import Kept
from schemas.records import SourceRef
from tests.unit.policies.records import version

WHERE = SourceRef("topic", 0, 0)


def kept(number, **more):
    return Kept(version(number), WHERE, WHERE, (WHERE,), 1, 1, **more)


VERSIONS = [kept(0), kept(7, is_best=True), kept(25), kept(31, is_current=True)]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("best", 7), ("newest", 31), (None, 7), (25, 25), (0, 0)],
)
def test_it_is_the_one_that_is_named(wanted, found):
    assert choose(VERSIONS, wanted).version.version == found


def test_without_a_best_it_is_the_newest_unless_the_best_is_asked_for():
    unjudged = [kept(3), kept(4)]
    assert choose(unjudged, None).version.version == 4
    with pytest.raises(NoPolicy, match="no evaluator has judged any.*newest` is 4"):
        choose(unjudged, "best")


def test_of_a_number_that_is_gone_it_is_said_which_there_are():
    with pytest.raises(PolicyGone, match="one of 31, 25, 7, 0, found 26"):
        choose(VERSIONS, 26)
    many = [kept(n) for n in range(25)]
    with pytest.raises(PolicyGone, match="one of 24, 23, .*, 5 and 5 more, found 99"):
        choose(many, 99)


def test_before_the_first_there_is_none():
    with pytest.raises(NoPolicy, match="found none yet"):
        choose([], None)
