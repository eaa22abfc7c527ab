"""Which versions are evaluated, and which of their episodes count."""

from dataclasses import replace

import numpy as np
import pytest

from producers.acting import RandomActor
from producers.env_recipe import EnvRecipe
from producers.env_slots import InProcess
from producers.evaluation import evaluate, play_episodes
from producers.guarded_env import SlotEnvironments
from producers.policy import open_graph
from producers.policy_feed import PolicyFeed
from producers.seeding import StreamSeeds
from producers.watchdog import Watchdog
from schemas.experiment import EnvSpec
from schemas.records import NO_POLICY, PolicyRef
from tests.unit.envs.graphs import RUN_ID
from tests.unit.policies.records import ENV, GRAPH, in_chunks, version

MODULES = ("tests.unit.envs",)


def feed(every, clock=lambda: 0.0):
    made = PolicyFeed(RUN_ID, lambda graph: open_graph(graph, ENV), clock)
    made.every = every
    assert made.take_graph(GRAPH) is None
    return made


@pytest.mark.parametrize(
    ("every", "published", "found"),
    [
        (1, [0, 1, 2], 2),
        (3, [0, 1, 2], 0),
        (3, [0, 1, 2, 3, 4], 3),
        (3, [*range(12)], 9),
        (25, [0], 0),
        (25, [1, 2, 24], None),
        (25, [24, 26, 49, 51], None),
    ],
)
def test_it_is_the_newest_whose_number_is_divided(every, published, found):
    policies = feed(every)
    for number in published:
        policies.take_version(version(number))
    assert policies.load() is None
    assert policies.ref.version == (-1 if found is None else found)


def test_versions_in_between_do_not_wake_anybody():
    policies = feed(3)
    for number in (3, 4, 5):
        policies.take_version(version(number))
        policies.load()
        assert policies.ref == PolicyRef(0, 3)
    policies.take_version(version(6))
    policies.load()
    assert policies.ref == PolicyRef(0, 6)


def take(policies, *numbers, chunked=False):
    for number in numbers:
        record = version(number)
        if chunked:
            record, chunks = in_chunks(record, slot=number % 2)
            for chunk in chunks:
                policies.take_chunk(chunk)
        policies.take_version(record)


def chunked_versions(policies):
    return {number for _, number, _, _ in policies._chunks}


def test_of_chunks_in_between_only_the_newest_are_kept():
    policies = feed(3)
    for number in range(9):
        take(policies, number, chunked=True)
        assert policies.load() is None
        assert policies.ref.version == number - number % 3
        assert chunked_versions(policies) == ({number} if number % 3 else set())


@pytest.mark.parametrize("chunked", [False, True])
def test_when_nothing_newer_comes_the_last_is_taken_whatever_its_number(chunked):
    now_s = [100.0]
    policies = feed(10, lambda: now_s[0])
    policies.patience_s = 30.0
    # What an evaluator that began again finds: 130 has been compacted away.
    take(policies, 136, chunked=chunked)
    policies.load()
    assert policies.ref == NO_POLICY
    now_s[0] += 29
    take(policies, 137, chunked=chunked)
    policies.load()
    assert policies.ref == NO_POLICY, "a newer one has come"
    now_s[0] += 29
    policies.load()
    assert policies.ref == NO_POLICY
    now_s[0] += 1
    assert policies.load() is None
    assert policies.ref.version == 137 and not policies._chunks
    take(policies, 138, 139, 140, chunked=chunked)
    policies.load()
    assert policies.ref.version == 140, "again the newest that is divided"
    now_s[0] += 99
    policies.load()
    assert policies.ref.version == 140 and not policies._chunks


def test_one_that_was_refused_or_never_whole_is_not_waited_for():
    now_s = [0.0]
    for broken in ("refused", "a chunk is gone"):
        policies = feed(10, lambda: now_s[0])
        bad = version(130, arrays={"w": np.ones((2, 3), np.float32)})
        if broken != "refused":
            bad, chunks = in_chunks(version(130))
            policies.take_chunk(chunks[0])
        policies.take_version(bad)
        assert (policies.load() is not None) is (broken == "refused")
        take(policies, 131, 133)
        policies.load()
        assert policies.ref == NO_POLICY
        now_s[0] += policies.patience_s
        assert policies.load() is None
        assert policies.ref.version == 133


def test_a_version_of_more_chunks_than_there_are_is_not_looked_for():
    policies = feed(1)
    policies.take_version(replace(version(1), tensors=b"", num_chunks=2**31 - 1))
    assert policies.load() is None and policies.ref == NO_POLICY


@pytest.fixture
def watchdog():
    made = Watchdog(20.0)
    yield made
    made.close()


def environments(watchdog, num_envs, **spec):
    recipe = EnvRecipe(EnvSpec(**spec), MODULES)
    slots = [InProcess(recipe, i, watchdog) for i in range(num_envs)]
    return SlotEnvironments(slots, "sync")


def actor_of(made):
    return RandomActor(made.action.fields, made.num_envs)


def test_each_environment_has_a_quota_and_no_episode_more(watchdog):
    made = environments(watchdog, 2, id="E3-v0")
    found = evaluate(made, actor_of(made), StreamSeeds(1, 0, 0), 5)
    assert found.returns.tolist() == [3.0] * 6, "⌈5 / 2⌉ of each"
    assert found.lengths.tolist() == [3] * 6 and found.lengths.dtype == np.int32


def test_told_to_stop_in_the_middle_there_is_no_result(watchdog):
    made, steps = environments(watchdog, 2, id="E3-v0"), []

    def must_stop():
        steps.append(1)
        return len(steps) > 7

    found = evaluate(made, actor_of(made), StreamSeeds(1, 0, 0), 40, must_stop)
    assert found is None


def test_episodes_come_one_by_one_with_their_numbers(watchdog):
    made = environments(watchdog, 1, id="E3-v0")
    played = play_episodes(made, actor_of(made), StreamSeeds(1, 0, 0))
    first = [next(played) for _ in range(3)]
    assert [(e.env, e.number, e.return_, e.length) for e in first] == [
        (0, 0, 3.0, 3), (0, 1, 3.0, 3), (0, 2, 3.0, 3),
    ]  # fmt: skip
