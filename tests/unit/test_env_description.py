"""Do two workers' environments speak the same records?"""

from dataclasses import replace

import pytest

from tests.unit.learner_specs import box, discrete, environment

ENV = environment(box((4,)))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        # A time limit, a mode and versions change no field of a record.
        ({"max_episode_steps": 77}, True),
        ({"vectorization": "async", "versions": {"gymnasium": "9"}}, True),
        ({"env_id": "Other-v0"}, False),
        ({"observation": (box((5,)),)}, False),
        ({"action": (discrete(3),)}, False),
    ],
)
def test_spaces_are_the_same_when_records_are(changes, expected):
    other = replace(ENV, **changes)
    assert ENV.has_same_spaces(other) is expected
    assert other.has_same_spaces(ENV) is expected
