"""Does a memory help? The sample experiment, its algorithm and buffer, no broker."""

from pathlib import Path

import pytest

from schemas.experiment import load_file
from tests.unit.sequences.recall_learning import learn

EXPERIMENT = Path(__file__).parents[3] / "infra/experiments/memory-r2d2.yaml"


@pytest.mark.slow
def test_r2d2_remembers_the_cue():
    spec = load_file(EXPERIMENT).spec
    found, batches = learn(spec, target=0.9, max_batches=1500)
    assert found >= 0.9, f"best greedy mean return after {batches} batches"


@pytest.mark.slow
def test_dqn_without_a_memory_stays_at_chance():
    spec = load_file(EXPERIMENT).spec
    network = spec.learner.network.model_copy(update={"lstm": 0})
    changes = {"algorithm": "dqn", "network": network, "batch_size": 128}
    learner = spec.learner.model_copy(update=changes)
    spec = spec.model_copy(update={"learner": learner})
    best, _ = learn(spec, target=0.9, max_batches=400, look_every=200)
    # A quarter; the best of some forty means of 200 episodes is a little above.
    assert 0.15 < best < 0.45
