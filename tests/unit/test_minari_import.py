"""What is learnt from a dataset is what is in it; what a dataset says of itself."""

from __future__ import annotations

import numpy as np
import pytest

from archive.minari_dataset import MinariDataset
from archive.minari_import import SOURCE, MinariSource
from infra.settings import Settings
from producers.spaces import describe
from rollstream import import_command
from rollstream.errors import BadInput
from rollstream.import_command import (
    NoEnvironment,
    OtherSpaces,
    _check_spaces,
    experiment_of,
    import_dataset,
)
from schemas.experiment import SpecError
from schemas.records import TransitionBatch
from stream_processors.tails import Emit, ReturnOptions, Tails
from tests.unit.minari_datasets import (
    CARTPOLE,
    ID,
    PLAIN,
    change,
    described,
    episode,
    export,
)
from tests.unit.recorded_worlds import experiment_named


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    return tmp_path / "datasets"


def batches_of(source, options):
    """What a processor makes of a source, by the production code."""
    found = []
    for partition, (first, end) in source.bounds().items():
        tails = Tails(source.info.topic, partition, options)
        for each in source.read(partition, first, end):
            found += [
                action.batch
                for action in tails.feed(each.address.offset, each.record)
                if isinstance(action, Emit)
            ]
    return found


def transitions(batches: list[TransitionBatch]):
    """(observation, action, return, discount, observation to bootstrap from), valid."""
    streams = {}
    for batch in batches:
        streams.setdefault(batch.worker, []).append(batch)
    for worker in streams.values():
        assert [batch.sequence for batch in worker] == list(range(len(worker)))
        observations = np.concatenate(
            [
                *(batch.observations[""].array()[:-1, 0] for batch in worker),
                worker[-1].observations[""].array()[-1:, 0],
            ]
        )
        columns = [
            np.concatenate([get(batch).array()[:, 0] for batch in worker])
            for get in (
                lambda b: b.valid, lambda b: b.actions[""], lambda b: b.returns,
                lambda b: b.discounts, lambda b: b.bootstrap_steps,
            )
        ]  # fmt: skip
        for row, (valid, action, total, discount, m) in enumerate(
            zip(*columns, strict=True)
        ):
            if valid:
                behind = observations[row + m].tolist() if discount else None
                yield (
                    observations[row].tolist(), int(action), round(float(total), 4),
                    round(float(discount), 6), behind,
                )  # fmt: skip


@pytest.mark.parametrize("n", [1, 3, 7])
def test_processors_make_of_a_dataset_the_transitions_that_are_in_it(root, n):
    gamma, rng = 0.9, np.random.default_rng(3)
    episodes = [
        episode(*PLAIN, int(length), number, ending=str(rng.choice(["T", "C", ""])))
        for number, length in enumerate(rng.integers(1, 600, 25))
    ]
    export(root, episodes, described(*PLAIN))
    source = MinariSource(MinariDataset(root, ID, describe), experiment_named(SOURCE))
    expected = []
    for each in episodes:
        length, terminates = len(each), bool(each.terminations[-1])
        for t in range(length):
            total, m = 0.0, 0
            while m < n and t + m < length:
                total += gamma**m * each.rewards[t + m]
                m += 1
            ends = t + m == length and terminates
            expected.append(
                (
                    each.observations[""][t].tolist(),
                    int(each.actions[""][t]),
                    round(float(np.float32(total)), 4),
                    0.0 if ends else round(float(np.float32(gamma**m)), 6),
                    None if ends else each.observations[""][t + m].tolist(),
                )
            )
    found = list(transitions(batches_of(source, ReturnOptions(n, gamma))))
    assert len(found) == len(expected) == sum(map(len, episodes))
    for one, other in zip(sorted(found), sorted(expected), strict=True):
        assert one[:2] == other[:2] and one[3:] == other[3:]
        assert one[2] == pytest.approx(other[2], abs=2e-4)


def opened(root, env_spec=None):
    export(root, [episode(*CARTPOLE, 3)], described(*CARTPOLE))
    if env_spec is not None:
        change(root, env_spec=env_spec)
    return MinariDataset(root, ID, describe)


def test_the_environment_is_the_datasets_or_told(root):
    text = (
        '{"id": "CartPole-v1", "entry_point": "os:abort", "kwargs": {"a": 1}, '
        '"additional_wrappers": [{"name": "TimeLimit", "entry_point": "os:abort", '
        '"kwargs": {"max_episode_steps": 9}}], "max_episode_steps": 500}'
    )
    dataset = opened(root, text)
    assert dataset.max_episode_steps == 500
    env = experiment_of(dataset, ["spec.learner.batchSize=7"]).spec.env
    assert (env.id, env.kwargs) == ("CartPole-v1", {"a": 1})
    assert [(w.name, w.kwargs) for w in env.wrappers] == [
        ("TimeLimit", {"max_episode_steps": 9})
    ]
    other = experiment_of(dataset, ["spec.env.id=X-v2", "spec.env.wrappers=[]"])
    assert (other.spec.env.id, other.spec.env.wrappers) == ("X-v2", ())
    assert (other.name, other.spec.workers.replicas) == (SOURCE, 0)


def test_a_dataset_that_names_a_module_is_refused(root):
    with pytest.raises(SpecError, match="no module is imported because a spec says so"):
        experiment_of(opened(root, '{"id": "os:X-v0"}'), [])


def test_a_dataset_without_an_environment_needs_to_be_told(root):
    dataset = opened(root)
    with pytest.raises(NoEnvironment, match="--set spec.env.id=ID"):
        experiment_of(dataset, [])
    assert experiment_of(dataset, ["spec.env.id=CartPole-v1"]).spec.env.id


class Said:
    def __init__(self):
        self.lines = []

    def say(self, line, style):
        self.lines.append(line)


def test_spaces_are_compared_with_the_environments_where_it_can_be_made(root):
    dataset, said = opened(root), Said()
    for env_id, wrappers in [("CartPole-v1", "[]"), ("Nowhere-v0", "[]")]:
        words = [f"spec.env.id={env_id}", f"spec.env.wrappers={wrappers}"]
        _check_spaces(Settings(), dataset, experiment_of(dataset, words), said)
    (line,) = said.lines
    assert "Nowhere-v0 cannot be made here" in line
    words = ["spec.env.id=Acrobot-v1"]
    with pytest.raises(OtherSpaces, match=r"observation space .* <f4\[6\], found box"):
        _check_spaces(Settings(), dataset, experiment_of(dataset, words), said)


@pytest.mark.parametrize(
    ("dataset", "into", "rate"),
    [
        ("rollstream/past-v0", "new", "max"),
        ("minari:../past-v0", "new", "max"),
        ("minari:/etc/passwd", "new", "max"),
        ("http://x/y-v0", "new", "max"),
        ("minari:x-v0", "new", "quickly"),
    ],
)
def test_odd_words_are_refused_before_anything_is_opened(
    dataset, into, rate, monkeypatch
):
    monkeypatch.setattr(import_command, "_bring_in", lambda *_: pytest.fail("opened"))
    with pytest.raises(BadInput, match="expected"):
        import_dataset(dataset, into, rate)
