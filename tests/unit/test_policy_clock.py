"""How many versions a policy is behind, though a restart's numbers jumped ahead."""

from learner.policy_clock import PolicyClock
from schemas.records import NO_POLICY, PolicyRef
from tests.unit.learner_specs import spec
from tests.unit.unroll_batches import policy_stream, unroll

FIRST, SECOND = 10, 25  # epochs


def on_policy():
    return PolicyClock.of(spec({"nStep": 1}, algorithm="ppo").learner)


def placed(clock, epoch, version):
    batch = unroll(policy_stream("w0", 4), 0, 4, version=version, epoch=epoch)
    return clock.placed(batch).policy


def test_without_restarts_versions_are_their_numbers():
    clock = on_policy()
    assert not clock.published(FIRST, 0)
    for updates in range(1, 6):
        assert clock.is_over(updates)
        clock.updated(updates)
        clock.published(FIRST, updates)
        assert clock.now == updates and not clock.is_over(updates)
    assert placed(clock, FIRST, 3) == PolicyRef(FIRST, 3)


def test_what_the_learner_before_published_behind_its_checkpoint_is_not_old():
    """Saved at version 3; 4, 5 and 6 were published; the next learner begins with 7."""
    before = on_policy()
    before.published(FIRST, 0)
    for updates in range(1, 4):
        before.updated(updates)
        before.published(FIRST, updates)
    clock = on_policy()
    clock.restore(before.state(), 3)
    assert clock.now == 3
    clock.updated(4)  # it learns before it has exported its graph ...
    clock.published(SECOND, 7)  # ... and publishes what follows update 4
    assert clock.now == 4
    # Rows of both learners' policies after update 4 are as old as each other.
    assert placed(clock, FIRST, 4).version == placed(clock, SECOND, 7).version == 4
    assert placed(clock, SECOND, 9) == PolicyRef(SECOND, 6)
    assert placed(clock, FIRST, 6).version == 6
    again = on_policy()
    again.restore(clock.state(), 7)
    assert again == clock


def test_rows_of_random_actions_stay_what_they_are():
    clock = on_policy()
    clock.ahead[-1] = 5
    batch = unroll(policy_stream("w0", 4), 0, 4, version=None)
    assert clock.placed(batch).policy == NO_POLICY


def test_off_policy_a_version_is_one_that_was_published():
    clock = PolicyClock.of(spec().learner)
    assert clock.now == -1
    for version in range(3):
        assert not clock.is_over(1000)
        assert clock.published(FIRST, version)
        assert clock.now == version


def test_a_checkpoint_without_a_clock_is_at_its_version():
    clock = PolicyClock.of(spec().learner)
    clock.restore({}, 41)
    assert clock.now == 41 and clock.published(SECOND, 50) and clock.now == 42
    assert placed(clock, SECOND, 50) == PolicyRef(SECOND, 42)
