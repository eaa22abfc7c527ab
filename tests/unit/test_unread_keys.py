"""Keys that an algorithm never looks at are refused, and nothing else is."""

import json

import pytest

from rollstream.overrides import apply_overrides
from schemas.algorithms import BUILT_IN, unread_keys
from schemas.experiment import SpecError, from_values, load_values, parse_json
from schemas.spec_paths import at, values_of
from tests.unit.learner_specs import spec
from tests.unit.test_experiment import SAMPLE

PROCESSORS = {"ppo": {"nStep": 1}, "impala": {"nStep": 1}}


def learner_of(algorithm, **learner):
    if algorithm == "r2d2":
        learner["network"] = {"lstm": 8} | learner.get("network", {})
    return spec(PROCESSORS.get(algorithm), algorithm=algorithm, **learner).learner


def nested(path, value):
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


# Each key that only some read, with a value that it does not have unasked.
READERS = {
    ("distribution.kind", '"quantile"'): {"dqn"},
    ("distribution.vMax", "20.0"): {"dqn"},
    ("network.dueling", "true"): {"dqn", "r2d2"},
    ("double", "false"): {"dqn", "r2d2"},
    ("targetUpdatePeriod", "9"): {"dqn", "r2d2"},
    ("replay.alpha", "0.5"): {"dqn", "r2d2", "sac"},
    ("replay.capacity", "40000"): {"dqn", "r2d2", "sac"},
    ("network.lstm", "16"): {"r2d2", "ppo", "impala"},
    ("network.separateValue", "false"): {"ppo", "impala"},
    ("policyGradient.entropyCost", "0.5"): {"ppo", "impala"},
    ("policyGradient.traceLambda", "0.5"): {"ppo", "impala"},
    ("policyGradient.normaliseAdvantages", "false"): {"ppo"},
    ("ppo.clip", "0.1"): {"ppo"},
    ("impala.rhoClip", "2.0"): {"impala"},
    ("r2d2.burnIn", "5"): {"r2d2"},
    ("sac.tau", "0.1"): {"sac"},
    ("learningRate", "0.5"): set(BUILT_IN),
    ("network.hidden", "[3]"): set(BUILT_IN),
    ("maxGradNorm", "0.5"): set(BUILT_IN),
    ("maxPolicyLag", "7"): set(BUILT_IN),
    ("learningRateDecayUpdates", "7"): set(BUILT_IN),
}


@pytest.mark.parametrize("algorithm", [*BUILT_IN, "a-module-s"])
@pytest.mark.parametrize(
    ("key", "readers"),
    [pytest.param(*item, id="=".join(item[0])) for item in READERS.items()],
)
def test_a_key_is_for_the_algorithms_that_read_it(key, readers, algorithm):
    path, text = key
    set_to = nested(path, json.loads(text))
    if algorithm in readers or algorithm not in BUILT_IN:
        assert json.dumps(at(values_of(learner_of(algorithm, **set_to)), path)) == text
        return
    usual = json.dumps(at(values_of(learner_of(algorithm)), path))
    with pytest.raises(SpecError) as refusal:
        learner_of(algorithm, **set_to)
    assert refusal.value.problems == [
        f"spec.learner.{path}: expected {usual} for {algorithm}, which does not read "
        f"it, found {text}: leave it out"
    ]


@pytest.mark.parametrize("algorithm", [*BUILT_IN, "a-module-s"])
def test_a_stored_spec_spells_out_all_defaults_and_is_accepted(algorithm):
    values = load_values(SAMPLE)
    values["spec"]["processor"] = PROCESSORS.get(algorithm, {})
    network = {"lstm": 8} if algorithm == "r2d2" else {}
    values["spec"]["learner"] = {"algorithm": algorithm, "network": network}
    stored = from_values(values).to_json()
    assert parse_json(stored).to_json() == stored
    for path in unread_keys(algorithm):
        at(json.loads(stored)["spec"]["learner"], path)


def test_what_was_accepted_before_there_were_other_algorithms_still_is():
    """Every key that the learner had then, and none as it is unasked."""
    learner = {
        "replicas": 1,
        "algorithm": "dqn",
        "network": {
            "hidden": [64], "activation": "tanh", "dueling": True,
            "observationScale": [2.0],
        },
        "replay": {
            "capacity": 9_000, "minSize": 1_000, "alpha": 0.5, "beta": 0.5,
            "weightsNormalisedBy": "batch", "priorityEpsilon": 0.01,
        },
        "sources": [
            {"experiment": None, "weight": 2.0}, {"experiment": "other", "weight": 1.0},
        ],
        "samplesPerInsert": 2.0, "batchSize": 64, "learningRate": 0.01,
        "adamEpsilon": 0.1, "maxGradNorm": 1.0, "double": False,
        "targetUpdatePeriod": 7, "publishEveryUpdates": 3, "publishIntervalMs": 100,
        "checkpointIntervalS": 5.0, "device": "cpu", "onExpired": "fail",
        "nodeSelector": {"zone": "a"}, "resources": {"cpu": 1.0},
    }  # fmt: skip
    values = load_values(SAMPLE)
    values["spec"]["learner"] = learner
    found = json.loads(from_values(values).to_json())["spec"]["learner"]
    for key, value in learner.items():
        assert found[key] == (found[key] | value if isinstance(value, dict) else value)


def test_a_recorded_experiment_takes_another_algorithm_once_the_rest_is_told():
    """As ``rollstream replay --set`` does: the source's spec, every default in it."""
    recorded = load_values(SAMPLE.parent / "memory-r2d2.yaml")
    recorded = json.loads(from_values(recorded).to_json())
    changes = ["spec.learner.algorithm=dqn", "spec.learner.network.lstm=0"]
    with pytest.raises(SpecError, match=r"^spec.learner.r2d2.burnIn: expected 0 for"):
        from_values(apply_overrides(recorded, changes))
    changes.append("spec.learner.r2d2={}")
    found = from_values(apply_overrides(recorded, changes))
    assert found.spec.learner.algorithm == "dqn"
