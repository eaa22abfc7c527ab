from pathlib import Path

import pytest

from schemas.experiment import SpecError, from_values, load_file, load_values
from schemas.fit import check_fit
from tests.unit.sequences.recall_learning import description

EXPERIMENT = Path(__file__).parents[3] / "infra/experiments/memory-r2d2.yaml"


def test_it_fits_its_environment():
    spec = load_file(EXPERIMENT).spec
    check_fit(spec, description(spec.env.kwargs["cues"]))
    parts, unroll = spec.learner.r2d2, spec.workers.unroll_length
    assert parts.burn_in + parts.sequence_length == 2 * unroll  # overlap by half


@pytest.mark.parametrize(
    ("part", "key", "value", "found"),
    [
        ("workers", "unrollLength", 21, "unrollLength: expected at most 20.*found 21"),
        ("processor", "nStep", 16, "sequenceLength: expected at least .*16, found 15"),
    ],
)
def test_sequences_shorter_than_unrolls_or_targets_are_refused(part, key, value, found):
    values = load_values(EXPERIMENT)
    values["spec"][part][key] = value
    with pytest.raises(SpecError, match=found):
        check_fit(from_values(values).spec, description(4))
