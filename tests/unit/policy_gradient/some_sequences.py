"""Random sequences, as the queue of unrolls would give them."""

import numpy as np

from learner.sample import Sequences
from tests.unit.learner_specs import box, discrete

DISCRETE = discrete(2)
STATES = ("h", "c", "value_h", "value_c")


def sequences(
    seed=0, length=8, envs=6, action=DISCRETE, observation=None, valid=0.8, lstm=0
):
    rng = np.random.default_rng(seed)
    shape = (length, envs)

    def some(*trailing):
        return rng.standard_normal(trailing).astype(np.float32)

    fields = observation or (box((4,)),)
    behaviour = {"log_prob": -np.abs(some(*shape)), "value": some(length + 1, envs)}
    if action.kind == "box":
        sample = some(*shape, *action.shape)
        actions, behaviour["sample"] = sample.clip(-0.5, 0.5), sample
    else:
        actions = rng.integers(0, action.n[0], shape) + action.start[0]
    return Sequences(
        indices=np.arange(envs),
        weights=np.ones(envs, np.float32),
        observations={f.name: some(length + 1, envs, *f.shape) for f in fields},
        actions={action.name: actions},
        returns=some(*shape),
        discounts=np.where(rng.random(shape) < 0.1, 0, 0.9).astype(np.float32),
        bootstrap_steps=np.ones(shape, np.int32),
        valid=rng.random(shape) < valid,
        states={name: some(envs, lstm) for name in STATES} if lstm else {},
        behaviour=behaviour,
    )
