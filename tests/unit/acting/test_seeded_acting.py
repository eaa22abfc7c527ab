"""The same seed and incarnation give the same records, bit for bit."""

import numpy as np
import pytest

from producers.packing import Packing
from producers.rollout import Rollout
from producers.seeding import StreamSeeds
from producers.unrolls import encode_unrolls
from tests.unit.acting.scripted import ScriptedEnvironments, write_script
from tests.unit.acting.test_recurrent_acting import HEADS, actor_of, lstm_like
from tests.unit.test_rollout import TEMPLATE


def records_of(head, seeds, lengths=(7, 5, 7)):
    environments = ScriptedEnvironments(write_script(5, 19, 4), HEADS[head][0])
    rollout, actor = Rollout(environments, seeds), actor_of(lstm_like(head, 1), 4)
    records = []
    for length in lengths:
        arrays = rollout.collect(actor, length)
        records += [p.value for p in encode_unrolls(arrays, TEMPLATE, Packing())]
    return records, np.stack(environments.received)


@pytest.mark.parametrize("head", sorted(HEADS))
def test_the_same_stream_acts_the_same_again(head):
    seeds = [StreamSeeds(1, 0, 0), StreamSeeds(1, 0, 0)]
    (first, acted), (again, acted_again) = (records_of(head, each) for each in seeds)
    assert first == again
    assert acted.tobytes() == acted_again.tobytes()


@pytest.mark.parametrize("head", sorted(HEADS))
@pytest.mark.parametrize(
    "other", [StreamSeeds(2, 0, 0), StreamSeeds(1, 1, 0), StreamSeeds(1, 0, 1)]
)
def test_another_stream_acts_otherwise(head, other):
    _, ours = records_of(head, StreamSeeds(1, 0, 0))
    _, theirs = records_of(head, other)
    assert (ours != theirs).any()
