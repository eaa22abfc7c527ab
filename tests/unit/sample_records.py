"""One of every record, with small real tensors."""

import numpy as np

from schemas import records as r
from schemas.tensors import pack

STEPS, ENVS = 3, 2


def rows(dtype="<f4", *more):
    return pack(np.ones((STEPS, ENVS, *more), dtype))


def columns():
    return {
        "observations": {"": pack(np.ones((STEPS + 1, ENVS, 4), "<f4"))},
        "actions": {"": rows("<i8")},
        "rewards": rows(),
        "terminated": rows("|b1"),
        "truncated": rows("|b1"),
        "valid": rows("|b1"),
        "episodes": pack(np.zeros(ENVS, "<i8")),
        "states": {},
        "behaviour": {"q_max": pack(np.ones((STEPS + 1, ENVS), "<f4"))},
        "infos": {},
    }


def identity():
    return {
        "experiment": "e",
        "run_id": "run",
        "worker": "w3",
        "incarnation": 7,
        "sequence": 5,
        "first_step": 15,
        "num_steps": STEPS,
        "num_envs": ENVS,
        "policy": r.PolicyRef(2, 9),
        "produced_at_ms": 1_700_000_000_000,
        "end_of_stream": False,
    }


def unroll(**changes):
    return r.Unroll(**{**identity(), **columns(), **changes})


def batch(**changes):
    values = {
        **identity(),
        **columns(),
        "source": r.SourceRef("t", 3, 99),
        "n_step": 3,
        "gamma": 0.99,
        "reward_scale": 0.1,
        "returns": rows(),
        "discounts": rows(),
        "bootstrap_steps": rows("<i4"),
        "priorities": rows(),
    }
    return r.TransitionBatch(**{**values, **changes})


FIELD = r.SpaceField(
    "camera/left", "box", "|u1", (2, 2), pack(np.zeros(2)), pack(np.ones(2)), (), ()
)
DESCRIPTION = r.EnvDescription(
    "CartPole-v1", (FIELD,), (FIELD,), 500, "sync", {"gymnasium": "1"}
)
SAMPLES = [
    unroll(),
    batch(),
    r.StreamEnd("e", "run", "w3", 8, "stopped", 1),
    r.Member("e", "run", "worker", 3, "host", 42, 1, DESCRIPTION),
    r.Member("e", "run", "learner", 0, "host", 42, 1),
    r.PolicyGraph(
        "e", "run", 1, "ab", b"onnx", "q", "epsilon_ladder", {"epsilon": 0.4},
        (FIELD,), (FIELD,), (), 1,
    ),
    r.PolicyVersion("e", "run", 1, 2, 3, "ab", 4, b"", "cd", 2, 1, 5, (7, 9), 8, 2),
    r.PolicyChunk("e", "run", 1, 2, 0, 1, b"part"),
    r.Credit(
        "e", "run", "learner/0", 1, r.NO_POLICY, {"w3": r.WorkerCredit(7, 64)}, 1
    ),
    r.MetricsPoint(
        "e", "run", "learner", 0, 1, 2, {"updates": 3.0},
        (r.Position("t", 0, 5, -1, 2),),
    ),
    r.EpisodesFinished(
        "e", "run", "w3", 7, 1, pack(np.zeros(1, "<i4")), pack(np.zeros(1, "<i8")),
        pack(np.zeros(1)), pack(np.ones(1, "<i4")), pack(np.zeros(1, "<i1")),
        pack(np.zeros(1, "<i8")),
    ),
    r.Evaluation(
        "e", "run", r.PolicyRef(1, 2), 3, pack(np.ones(2)), pack(np.ones(2, "<i4")),
        True, 1,
    ),
    r.Event("e", "run", "worker", 3, "kind", "info", "because", 1),
    r.DeadLetter("e", r.SourceRef("t", 0, 1), "processor/0", "bad", b"k", b"v", 1, 1),
    r.ExperimentSpec("e", "run", "{}", -1, 1, "agents"),
    r.RoleStatus("e", "run", "experiment", 0, "finished", "h", 1, 0, "", 1, "{}"),
    r.RoleStatus("e", "run", "worker", 0, "running", "h", 1, 2, "why", 1),
    r.ReplayProgress(
        "e", "run", "past/r1@ab", "past", "r1", "{}",
        (r.DataRange("t", 0, 1, 9, 256, r.NO_POLICY, r.PolicyRef(1, 4)),), 64, False, 1,
    ),
    r.TrainedOn(
        "e", "run", r.PolicyRef(1, 5), 3,
        (r.DataRange("t", 1, 0, 7, 128, r.NO_POLICY, r.PolicyRef(1, 4)),), 1,
    ),
]  # fmt: skip
