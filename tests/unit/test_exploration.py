from types import SimpleNamespace

import numpy as np
import pytest

from producers.actors import Actors
from producers.exploration import epsilon_ladder
from schemas.experiment import from_values
from tests.unit.learner_specs import environment
from tests.unit.test_experiment import values


def test_eight_environments_have_the_published_epsilons():
    # Ape-X: 0.4^(1 + 7 i/7) = 0.4^1 ... 0.4^8
    expected = [0.4, 0.16, 0.064, 0.0256, 0.01024, 0.004096, 0.0016384, 0.00065536]
    np.testing.assert_allclose(epsilon_ladder(0.4, 7, 8, 0, 8), expected, rtol=1e-12)


def test_the_ladder_spans_all_workers():
    whole = epsilon_ladder(0.4, 7, 8, 0, 8)
    halves = [epsilon_ladder(0.4, 7, 8, first, 4) for first in (0, 4)]
    np.testing.assert_array_equal(np.concatenate(halves), whole)


def test_one_environment_explores_with_epsilon():
    assert epsilon_ladder(0.4, 7, 1, 0, 1).tolist() == [0.4]


def test_no_exploration_stays_none():
    assert epsilon_ladder(0.0, 7, 3, 0, 3).tolist() == [0, 0, 0]


def test_environments_outside_the_ladder_are_refused():
    with pytest.raises(ValueError, match="within 0 to 7, found 6 to 9"):
        epsilon_ladder(0.4, 7, 8, 6, 4)


def test_the_ladder_of_elastic_workers_is_that_of_all_there_may_be():
    def epsilons(workers, index):
        spec = from_values(values(spec__workers=workers)).spec
        context = SimpleNamespace(spec=spec, index=index, run_id="run")
        graph = SimpleNamespace(exploration="epsilon_ladder", exploration_options={})
        return Actors(context, environment(), 2, greedy=False)._epsilons(graph)

    # Worker 0 and worker 3 of four, two environments each: 0.4^1, ^2, ^7, ^8.
    elastic = "{min: 1, max: 4, replicas: 2}"
    found = [*epsilons(elastic, 0), *epsilons(elastic, 3)]
    assert found == pytest.approx([0.4, 0.16, 0.0016384, 0.00065536])
    # Two workers: 0.4^(1 + 7 i/3).
    fixed = epsilons("{replicas: 2}", 1)
    assert fixed == pytest.approx([0.4 ** (1 + 14 / 3), 0.4**8])
