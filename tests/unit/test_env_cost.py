"""An environment that is stepped for a while: what it costs, and its bytes."""

import pytest

from infra.settings import Settings
from producers.env_cost import measure_environment
from producers.env_recipe import EnvRefused
from producers.sample_envs import RECALL
from schemas.encoding_spec import EncodingSpec
from schemas.experiment import EnvSpec

RECALL_SETTINGS = Settings(env_modules=("producers.sample_envs",))


def measured(settings=RECALL_SETTINGS, num_envs=4, encoding=None, **spec):
    return measure_environment(
        EnvSpec(**{"id": RECALL, **spec}), num_envs, settings, 0.05, encoding
    )


@pytest.mark.parametrize("vectorization", ["sync", "async", "auto"])
def test_of_an_episode_of_ten_steps_each_eleventh_row_is_a_reset(vectorization):
    found = measured(vectorization=vectorization)
    # At most an episode is cut at the end.
    assert found.valid_share == pytest.approx(10 / 11, abs=0.06)
    assert found.us_per_step > 0 and found.pack_us > 0


def test_what_pays_is_packed():
    """One of 513 numbers is 1: next to nothing; raw where the spec says so."""
    many = {"kwargs": {"cues": 256}}
    assert measured(**many).packed_share < 0.2
    raw = EncodingSpec.model_validate({"default": "raw"})
    assert measured(encoding=raw, **many).packed_share == 1


def test_numbers_that_do_not_repeat_travel_as_they_are():
    assert measured(Settings(), id="CartPole-v1").packed_share == 1


def test_what_is_not_registered_is_refused():
    with pytest.raises(EnvRefused, match="expected a registered environment"):
        measured(Settings(), id="nobody/Has-v1")
