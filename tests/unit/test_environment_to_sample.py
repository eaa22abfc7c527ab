"""From environment to sample: worker, wire, processor, wire, buffer; row by row."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from infra.settings import Settings
from learner.algorithms import build
from learner.networks import Encoder
from learner.replay_buffer import BatchMismatch, ReplayBuffer
from producers.acting import RandomActor
from producers.environments import describe_environments, make_environments
from producers.packing import Packing
from producers.rollout import Rollout
from producers.seeding import StreamSeeds
from producers.unrolls import encode_unrolls
from producers.watchdog import Watchdog
from schemas.codec import decode, encode
from schemas.experiment import EnvSpec
from schemas.records import TransitionBatch, Unroll
from schemas.tensors import pack
from stream_processors.tails import Emit, ReturnOptions, Tails
from tests.unit.learner_specs import spec
from tests.unit.replay_batches import replay
from tests.unit.test_processor_oracle import make_end
from tests.unit.test_rollout import TEMPLATE

MACHINE = Settings(env_modules=("tests.unit.envs",))
FORMS = ["sync", "async", "vector_entry_point"]
N, GAMMA = 3, 0.5


class Line:
    """A worker's environments, and what becomes of their rows."""

    def __init__(self, env_id, num_envs=1, form="sync", **kwargs):
        env_spec = EnvSpec(id=env_id, vectorization=form, kwargs=kwargs)
        self.watchdog = Watchdog(20.0)
        self.environments = make_environments(
            env_spec, num_envs, MACHINE, self.watchdog
        )
        self.env = describe_environments(env_spec, self.environments, MACHINE)
        self.num_envs, self.valid_steps = num_envs, 0

    def close(self):
        self.environments.close()
        self.watchdog.close()

    def unrolls(self, *lengths):
        """Unrolls of these lengths, each as it was read from the log."""
        rollout = Rollout(self.environments, StreamSeeds(1, 0, 0))
        actor = RandomActor(self.environments.action.fields, self.num_envs)
        for sequence, length in enumerate(lengths):
            arrays = rollout.collect(actor, length)
            template = replace(TEMPLATE, sequence=sequence)
            (part,) = encode_unrolls(arrays, template, Packing())
            self.valid_steps += part.valid_steps
            yield decode(part.value, Unroll)

    def batches(self, *lengths):
        """The batches made of them, each as it was read from the log."""
        tails = Tails("t", 0, ReturnOptions(N, GAMMA))
        log = [*self.unrolls(*lengths), make_end("w0", TEMPLATE.incarnation)]
        actions = [a for i, record in enumerate(log) for a in tails.feed(i, record)]
        return [
            decode(encode(a.batch), TransitionBatch)
            for a in actions
            if isinstance(a, Emit)
        ]

    def sample(self, *lengths):
        """Every row that can be learnt from, many times over."""
        buffer = ReplayBuffer(self.env, replay(1000), unroll_length=min(lengths))
        for offset, batch in enumerate(self.batches(*lengths)):
            buffer.insert(batch, 0, offset)
        self.rows = buffer.samplable_rows
        return buffer.sample(4 * self.rows, 0.4, np.random.default_rng(0))


@pytest.fixture
def line():
    made = []

    def make(*args, **kwargs):
        made.append(Line(*args, **kwargs))
        return made[-1]

    yield make
    for each in reversed(made):
        each.close()


def rows_of(sample):
    """{observation: (return, discount, observation to bootstrap from)}, in all envs."""
    columns = zip(
        sample.observations[""][:, 0].tolist(),
        sample.returns.tolist(),
        sample.discounts.tolist(),
        sample.bootstrap_observations[""][:, 0].tolist(),
        strict=True,
    )
    rows = {}
    for observed, *rest in columns:
        assert rows.setdefault(observed, tuple(rest)) == tuple(rest)
    return rows


@pytest.mark.parametrize("form", FORMS)
def test_every_last_row_bootstraps_from_its_own_final_observation(line, form):
    """Episodes of 3 steps: 10 to 13, 20 to 23, ...; cut into unrolls anywhere."""
    made = line("E3-v0", 2, form)
    sample = made.sample(5, 1, 2, 8)
    expected = {}
    for episode in (10, 20, 30, 40):
        expected[episode] = (1.75, 0.125, episode + 3)
        expected[episode + 1] = (1.5, 0.25, episode + 3)
        expected[episode + 2] = (1.0, 0.5, episode + 3)
    assert rows_of(sample) == expected
    # 16 steps of each: 4 times 3 and the reset after them.
    assert made.rows == made.valid_steps == 2 * 12
    assert sample.observations[""].dtype == np.float32, "cast once, here"


def test_a_reward_on_the_last_step_of_an_unroll_is_not_lost(line):
    quiet = rows_of(line("StepCount-v0", at=20, reward=0.0).sample(20, 20))
    loud = rows_of(line("StepCount-v0", at=20, reward=1.0).sample(20, 20))
    more = {at: loud[at][0] - quiet[at][0] for at in loud}
    assert {at: by for at, by in more.items() if by} == {17: 0.25, 18: 0.5, 19: 1.0}
    # The last row's target looks into the next unroll, for rewards and for the value.
    assert loud[19] == (1.0 + 0.5 * 21 + 0.25 * 22, 0.125, 22.0)


@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
def test_a_reward_that_is_not_finite_costs_its_own_step_alone(line, bad):
    good = rows_of(line("StepCount-v0").sample(20))
    made = line("StepCount-v0", at=5, reward=bad)
    sample = made.sample(20)
    found = rows_of(sample)
    # Step 5 leads from observation 4, and is no transition; two returns end before it.
    assert good.keys() - found.keys() == {4.0}
    changed = {at: found[at] for at in found if found[at] != good[at]}
    assert changed == {2.0: (3 + 0.5 * 4, 0.25, 4.0), 3.0: (4.0, 0.5, 4.0)}
    assert_parameters_stay_finite(made.env, sample)


def test_an_observation_that_is_not_finite_costs_what_begins_or_bootstraps_there(line):
    good = rows_of(line("StepCount-v0").sample(20))
    made = line("StepCount-v0", at=5, blind=True)
    sample = made.sample(20)
    found = rows_of(sample)
    assert good.keys() - found.keys() == {5.0}
    returns, discount, after = found[2.0]
    assert (returns, discount, np.isfinite(after)) == (good[2.0][0], 0.0, True)
    assert all(found[at] == good[at] for at in found if at != 2.0)
    assert_parameters_stay_finite(made.env, sample)


def assert_parameters_stay_finite(env, sample):
    algorithm = build(env, spec(network={"hidden": [4]}))
    assert algorithm.update(sample).finite
    tensors = algorithm.policy_tensors().values()
    assert all(np.isfinite(tensor).all() for tensor in tensors)


@pytest.mark.parametrize("shape", [(3, 64, 64), (64, 64, 3)])
def test_pictures_stay_bytes_and_keep_their_layout(line, shape):
    made = line("Picture-v0", shape=list(shape))
    (field,) = made.env.observation
    assert (field.dtype, field.shape) == ("|u1", shape)
    (unroll,) = made.unrolls(4)
    shown = unroll.observations[""].array()
    assert shown.dtype == np.uint8 and shown.shape == (5, 1, *shape)
    assert shown.nbytes == 5 * 64 * 64 * 3, "a byte a value"
    sample = made.sample(4)
    found = {picture.tobytes() for picture in sample.observations[""]}
    assert found == {picture.tobytes() for picture in shown[:4]}
    encoder = Encoder(made.env.observation, ())
    features = encoder({"": torch.from_numpy(sample.observations[""])})
    assert (features.min().item(), features.max().item()) == (0.0, 1.0)
    flat = sample.observations[""].reshape(len(features), -1)
    assert np.array_equal(features.numpy(), flat / np.float32(255))


def test_a_picture_of_another_layout_is_refused_though_it_has_as_many_bytes(line):
    made = line("Picture-v0", shape=[3, 64, 64])
    (batch,) = made.batches(4)
    turned = np.moveaxis(batch.observations[""].array(), 2, -1).copy()
    other = replace(batch, observations={"": pack(turned)})
    buffer = ReplayBuffer(made.env, replay(100), unroll_length=4)
    with pytest.raises(BatchMismatch, match=r"\[3, 64, 64\]\], found .*64, 64, 3\]"):
        buffer.insert(other, 0, 0)
