"""Specs and environments for the tests of the learner's algorithms."""

from schemas.experiment import from_values
from schemas.records import EnvDescription, SpaceField


def spec(processor=None, env=None, **learner):
    return from_values(
        {
            "apiVersion": "rollstream/v1",
            "kind": "Experiment",
            "metadata": {"name": "test"},
            "spec": {
                "env": {"id": "CartPole-v1", **(env or {})},
                "processor": processor or {},
                "learner": learner,
            },
        }
    ).spec


def box(shape=(4,), dtype="<f4", name=""):
    return SpaceField(name, "box", dtype, shape)


def discrete(n, start=0, name=""):
    return SpaceField(name, "discrete", "<i8", (), n=(n,), start=(start,))


def environment(*observation, action=None):
    fields = (action or discrete(2),)
    return EnvDescription("Test-v0", observation or (box(),), fields, None, "sync", {})


DICT_OBSERVATION = (
    box((2, 3), "<f8", "b"),
    box((4, 4, 3), "|u1", "a/img"),
    discrete(5, start=2, name="d"),
    SpaceField("m", "multi_discrete", "<i8", (2,), n=(3, 4), start=(0, 1)),
    SpaceField("mb", "multi_binary", "|i1", (3,)),
)
