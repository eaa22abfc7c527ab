import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollstream.sweeps import MAX_EXPERIMENTS, expand
from schemas.experiment import SpecError, from_values, load_values
from schemas.topics import check_name
from tests.unit.test_experiment import SAMPLE

VALUES = load_values(SAMPLE)


def names(*sweeps, seeds=None, values=VALUES):
    return [e.name for e in expand(values, sweeps, seeds)]


def test_a_grid_has_an_experiment_for_each_combination_and_seed():
    sweeps = ["spec.learner.learningRate=1e-3,3e-4", "spec.processor.nStep=1,3"]
    found = expand(VALUES | {"spec": VALUES["spec"] | {"seed": 7}}, sweeps, 2)
    assert [
        (e.spec.learner.learning_rate, e.spec.processor.n_step, e.spec.seed, e.name)
        for e in found
    ] == [
        (rate, n, seed, f"cartpole-dqn-learningrate{text}-nstep{n}-s{seed}")
        for rate, text in ((1e-3, "1e-3"), (3e-4, "3e-4"))
        for n in (1, 3)
        for seed in (7, 8)
    ]
    plain = from_values(VALUES).spec
    for experiment in found:  # and nothing else differs
        spec = experiment.spec
        learner = spec.learner.model_copy(update={"learning_rate": 1e-3})
        processor = spec.processor.model_copy(update={"n_step": 16})
        update = {"learner": learner, "processor": processor, "seed": 1}
        assert spec.model_copy(update=update) == plain


@pytest.mark.parametrize(
    ("sweep", "tails"),
    [
        ("spec.processor.gamma=0.99,1", ["gamma0p99", "gamma1"]),
        ("spec.stop.meanReturn=-5,5,1e20", ["meanreturnm5", "meanreturn5",
         "meanreturn1e20"]),
        ("spec.learner.network.hidden=[64,64],[128]", ["hidden64x64", "hidden128"]),
        ("spec.learner.double=true,false", ["doubletrue", "doublefalse"]),
        ("spec.env.id=CartPole-v1,phys2d/CartPole-v1", ["envcartpole-v1",
         "envphys2d-cartpole-v1"]),
        ("spec.topics.diskBudget=1GB,1.5GB", ["diskbudget1gb", "diskbudget1-5gb"]),
        ("spec.learner.device=cuda:0,cpu", ["devicecuda-0", "devicecpu"]),
        ("spec.seed=3", ["seed3"]),
        ("spec.env.kwargs.x=a", ["xa"]),
    ],
)  # fmt: skip
def test_a_name_says_what_differs(sweep, tails):
    assert names(sweep) == [f"cartpole-dqn-{tail}" for tail in tails]


def test_keys_of_the_same_name_are_told_apart():
    values = VALUES | {"metadata": {"name": "x"}}
    ends = ["learner.resources.cpu=1", "workers.resources.cpu=2"]
    found = names(*(f"spec.{end}" for end in ends), values=values)
    assert found == ["x-learner-resources-cpu1-workers-resources-cpu2"]


def test_long_names_end_in_a_hash_and_stay_as_they_are():
    values = VALUES | {"metadata": {"name": "n" * 63}}
    found = names("spec.seed=1,2", values=values)
    assert found == names("spec.seed=1,2", values=values) and len(set(found)) == 2
    assert all(re.fullmatch(r"n{54}-[0-9a-f]{8}", name) for name in found)
    # A value's name does not hang on which others are tried with it.
    assert names("spec.seed=2", values=values) == found[1:]


def test_values_that_would_read_the_same_are_told_apart():
    found = names("spec.env.kwargs.a=a_b,a b,A-B")
    assert len(set(found)) == 3
    assert all(re.fullmatch(r"cartpole-dqn-aa-b-[0-9a-f]{8}", name) for name in found)


@pytest.mark.parametrize(
    ("sweeps", "seeds", "says"),
    [
        (["spec.learner.learningrate=1"], None, r"learner\.learningrate: expected a "
         r"known key \(did you mean learningRate\?\)"),
        (["spec.lerner.batchSize=1"], None, r"spec\.lerner: .*did you mean learner\?"),
        (["spec.env.id.x=1"], None, "expected a mapping at id, found 'CartPole-v1'"),
        (["metadata.name=a,b"], None, "expected a path within spec"),
        (["spec.kafka.acks=0"], None, r"spec\.kafka: .*the machine's"),
        (["spec.workers.replicas=1,x"], None, "-replicasx: .*expected a whole number"),
        (["spec.workers.replicas"], None, "expected path=value"),
        (["=1,2"], None, "expected path=value"),
        (["spec.seed="], None, "expected values"),
        (["spec.seed=1,,2"], None, "expected YAML"),
        (["spec.seed=1],[2"], None, "expected YAML"),
        (["spec.seed=1,1"], None, "expected experiments that differ"),
        (["spec.processor.gamma=1,1.0"], None, "expected experiments that differ"),
        (["spec.seed=1", "spec.seed=2"], None, "expected it once"),
        (["spec.seed=1,2"], 2, "expected it once"),
        (["spec.env={id: A-v0}", "spec.env.id=B-v0"], None, "expected it once"),
        ([], 0, "expected 1 to 1,000 experiments, found 0"),
        ([], 10**30, "expected 1 to 1,000 experiments, found 1,001"),
        (["spec.seed=[" + "[" * 5000], None, "levels|nesting"),
    ],
)  # fmt: skip
def test_what_is_no_sweep_is_refused(sweeps, seeds, says):
    with pytest.raises(SpecError, match=says):
        expand(VALUES, sweeps, seeds)


def test_a_grid_is_not_larger_than_anybody_could_mean():
    axis = ",".join(map(str, range(1, 102)))
    with pytest.raises(SpecError, match=f"found {101 * 101:,}"):
        expand(VALUES, [f"spec.processor.nStep={axis}", f"spec.seed={axis}"])
    assert MAX_EXPERIMENTS == len(names(seeds=MAX_EXPERIMENTS))


VALUE = st.one_of(
    st.integers(-(10**9), 10**9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.text(string.ascii_letters + "._- :é", max_size=80).filter(str.strip),
    st.lists(st.integers(0, 9), max_size=3),
)


@given(st.lists(VALUE, min_size=1, max_size=8), st.integers(1, 3))
@settings(deadline=None, max_examples=50)
def test_every_name_is_a_topic_part_and_no_two_are_equal(values, seeds):
    listed = ",".join(
        f'"{value}"' if isinstance(value, str) else repr(value).lower()
        for value in values
    )
    try:
        found = expand(VALUES, [f"spec.env.kwargs.anything={listed}"], seeds)
    except SpecError as exc:
        assert "expected experiments that differ" in str(exc)
        return
    taken = [experiment.name for experiment in found]
    assert [*map(check_name, taken)] == taken
    assert len(set(taken)) == len(taken) == len(values) * seeds
