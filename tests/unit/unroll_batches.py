"""Batches of streams that say of each row who acted, and what it thought."""

from dataclasses import replace

import numpy as np

from learner.unroll_columns import Columns
from schemas.records import NO_POLICY, PolicyRef
from schemas.tensors import pack
from tests.unit.replay_batches import ENV, Stream

__all__ = [
    "COLUMNS", "ENV", "STATELESS", "log_prob", "policy_stream", "unroll", "value",
]  # fmt: skip

COLUMNS = Columns({"log_prob": (), "value": ()}, {"h": (2,)})
STATELESS = replace(COLUMNS, states={})


def log_prob(worker, step, env):
    return -1.0 - int(worker[1:]) - step / 100 - env / 10


def value(worker, step, env):
    return int(worker[1:]) + step / 10 + env


def policy_stream(worker, steps, envs=2, lengths=(4, 7), incarnation=1):
    """Rewards of one step, as on-policy algorithms want them."""
    return Stream(worker, steps, envs, lengths, 1, incarnation)


def unroll(stream, first, last, *, version=0, epoch=0, sequence=None, **changes):
    """The batch of rows first to last - 1; ``version`` None: actions were random."""
    envs = range(stream.envs)
    probabilities = [
        [log_prob(stream.worker, s, e) for e in envs] for s in range(first, last)
    ]
    values = [
        [value(stream.worker, s, e) for e in envs] for s in range(first, last + 1)
    ]
    behaviour = {
        "log_prob": pack(np.array(probabilities, "<f4")),
        "value": pack(np.array(values, "<f4")),
    }
    states = {"h": pack(np.full((stream.envs, 2), first, "<f4"))}
    policy = NO_POLICY if version is None else PolicyRef(epoch, version)
    batch = stream.batch(
        first,
        last,
        policy=policy,
        behaviour={} if version is None else behaviour,
        states={} if version is None else states,
    )
    number = first if sequence is None else sequence
    return replace(batch, sequence=number, **changes)
