from rollstream.overrides import apply_overrides
from schemas.experiment import from_values, load_values
from schemas.spec_diff import Change, SpecDiff, compare
from tests.unit.test_experiment import SAMPLE

VALUES = load_values(SAMPLE)
BEFORE = from_values(VALUES)


def diff(*overrides):
    return compare(BEFORE, from_values(apply_overrides(VALUES, overrides)))


def test_the_same_spec_changes_nothing():
    # However it is written: 0.001 is 1e-3, and a default may be spelt out.
    same = diff("spec.learner.learningRate=1e-3", "spec.learner.double=true")
    assert same == SpecDiff((), (), ())


def test_a_change_is_named_with_what_it_restarts():
    found = diff("spec.learner.learningRate=3e-4", "spec.workers.replicas=5")
    assert found.changes == (
        Change("spec.workers.replicas", 2, 5),
        Change("spec.learner.learningRate", 0.001, 0.0003),
    )
    assert str(found.changes[0]) == "spec.workers.replicas: 2 -> 5"
    assert found.restarts == ("learner",)
    assert found.refused == ()


def test_what_a_run_cannot_take_says_why():
    found = diff("spec.env.kwargs={gravity: 1}", "spec.topics.partitions=9")
    assert found.changes[0] == Change("spec.env.kwargs", {}, {"gravity": 1})
    assert found.restarts == ("worker", "processor", "learner", "evaluator")
    assert [line.partition(":")[0] for line in found.refused] == [
        "spec.env.kwargs",
        "spec.topics.partitions",
    ]


def test_a_part_that_was_not_set_before_is_a_change():
    found = diff("spec.stop={envSteps: 5, meanReturn: 475, wallS: 60}")
    assert found.changes == (
        Change("spec.stop.envSteps", 3_000_000, 5),
        Change("spec.stop.wallS", None, 60.0),
    )
