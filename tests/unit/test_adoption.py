"""How soon a worker acts with what is published: worked out by hand."""

from producers.adoption import Adoption
from schemas.records import PolicyVersion

BEGAN_MS = 50_000


def version(number, created_at_ms, epoch=0):
    return PolicyVersion(
        "exp", "run", epoch, number, 0, "", 0, b"", "", 0, 0, created_at_ms
    )


def test_there_is_no_time_before_the_first():
    assert Adoption(BEGAN_MS).take() == {"policies_adopted": 0}


def test_each_version_is_adopted_once_however_long_it_acts():
    adoption = Adoption(BEGAN_MS)
    adoption.acts(version(0, 60_000), 60_250)
    adoption.acts(version(0, 60_000), 61_000)
    adoption.acts(version(4, 62_000), 65_500)  # 1 to 3 never acted
    adoption.acts(version(5, 66_000), 67_000)
    expected = {"policies_adopted": 3, "policy_adoption_s": 1.0}
    assert adoption.take() == expected | {"policy_adoption_s_max": 3.5}
    # Nothing was adopted since: the last, and no longer the longest before it.
    adoption.acts(version(5, 66_000), 90_000)
    assert adoption.take() == expected | {"policy_adoption_s_max": 1.0}


def test_the_version_of_another_learner_is_another():
    adoption = Adoption(BEGAN_MS)
    adoption.acts(version(3, 60_000), 61_000)
    adoption.acts(version(3, 70_000, epoch=1), 72_000)
    values = adoption.take()
    assert (values["policies_adopted"], values["policy_adoption_s"]) == (2, 2.0)


def test_a_worker_that_comes_late_does_not_count_the_time_before_it():
    adoption = Adoption(BEGAN_MS)
    adoption.acts(version(9, 1_000), BEGAN_MS + 300)
    assert adoption.take()["policy_adoption_s"] == 0.3


def test_a_clock_that_is_ahead_makes_no_time_below_0():
    adoption = Adoption(BEGAN_MS)
    adoption.acts(version(0, 99_000), 60_000)
    assert adoption.take()["policy_adoption_s"] == 0.0


def test_an_incarnation_counts_anew_and_what_acts_stays_known():
    adoption = Adoption(BEGAN_MS)
    adoption.acts(version(0, 60_000), 60_500)
    adoption.take()
    adoption.begin()
    adoption.acts(version(0, 60_000), 80_000)
    assert adoption.take() == {
        "policies_adopted": 0,
        "policy_adoption_s": 0.5,
        "policy_adoption_s_max": 0.5,
    }
