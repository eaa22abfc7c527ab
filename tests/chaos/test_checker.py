"""The checker finds what is planted, by the right check; a clean run has nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from schemas.records import PolicyRef, TransitionBatch, Unroll
from schemas.tensors import pack
from tests.chaos.checks import CHECKS, check_all
from tests.chaos.evidence import (
    Committed,
    Ended,
    Evidence,
    Healed,
    Logged,
    Published,
    follow_training,
)
from tests.chaos.planted import (
    clean_run,
    learner_lives,
    logged,
    process,
    remember_digests,
)

Plant = Callable[[Evidence], None]


def test_a_clean_run_has_no_findings() -> None:
    evidence = clean_run()
    assert [str(finding) for finding in check_all(evidence)] == []
    assert evidence.steps_acknowledged == follow_training(evidence.lives).steps > 100
    assert follow_training(evidence.lives).undone == 3


def relog(evidence: Evidence, partition: int, records: list[Unroll]) -> None:
    """Let a partition hold other records, and all that follows from it be as it was."""
    others = [e for e in evidence.trajectories if e.partition != partition]
    evidence.trajectories = others + logged(partition, records, 100.0)
    remember_digests(evidence)


def records_of(evidence: Evidence, partition: int) -> list[Unroll]:
    log = [e for e in evidence.trajectories if e.partition == partition]
    return [e.record for e in log]  # type: ignore[misc]


def lose_a_record(evidence: Evidence) -> None:
    evidence.trajectories = [e for e in evidence.trajectories if e.address != (0, 2)]


def lose_an_episode_s_middle(evidence: Evidence) -> None:
    records = records_of(evidence, 1)
    records[1:3] = [replace(records[2], sequence=1, first_step=6)]
    relog(evidence, 1, records)


def repeat_a_record(evidence: Evidence) -> None:
    records = records_of(evidence, 0)
    relog(evidence, 0, [*records, records[-1]])


def repeat_it_under_another_number(evidence: Evidence) -> None:
    """What deduplication by sequence would not notice."""
    records = records_of(evidence, 1)
    again = replace(records[1], sequence=2, first_step=12)
    relog(evidence, 1, [*records[:2], again, *records[2:]])


def swap_two_records(evidence: Evidence) -> None:
    records = records_of(evidence, 1)
    records[1], records[2] = records[2], records[1]
    relog(evidence, 1, records)


def change(evidence: Evidence, offset: int, **values: object) -> None:
    records = records_of(evidence, 1)
    records[offset] = replace(records[offset], **values)  # type: ignore[arg-type]
    relog(evidence, 1, records)


def end_an_episode_early(evidence: Evidence) -> None:
    flags = np.zeros((6, 2), np.bool_)
    flags[1, 0] = True
    change(evidence, 0, truncated=pack(flags))


def garble_a_reward(evidence: Evidence) -> None:
    rewards = records_of(evidence, 1)[0].rewards.array().copy()
    rewards[2, 1] += 0.5
    change(evidence, 0, rewards=pack(rewards))


def leave_a_stream_open(evidence: Evidence) -> None:
    records = records_of(evidence, 0)
    records[-1] = replace(records[-1], end_of_stream=False)
    relog(evidence, 0, records)


def act_in_another_s_environment(evidence: Evidence) -> None:
    records = records_of(evidence, 0)
    records[4] = replace(records[4], observations=records[0].observations)
    relog(evidence, 0, records)


def go_back_to_an_older_policy(evidence: Evidence) -> None:
    change(evidence, 3, policy=PolicyRef(5, 1))


def batches_of(evidence: Evidence) -> list[TransitionBatch]:
    return [batch for _, batch in evidence.batches]


def rebatch(evidence: Evidence, index: int, **values: object) -> None:
    each = evidence.replay[index]
    batch = replace(batches_of(evidence)[index], **values)  # type: ignore[arg-type]
    evidence.replay[index] = replace(each, record=batch)


def garble_a_return(evidence: Evidence) -> None:
    returns = batches_of(evidence)[3].returns.array().copy()
    returns[2, 1] *= 1.0001
    rebatch(evidence, 3, returns=pack(returns))


def bootstrap_too_early(evidence: Evidence) -> None:
    steps = batches_of(evidence)[0].bootstrap_steps.array().copy()
    steps[0, 0] -= 1
    rebatch(evidence, 0, bootstrap_steps=pack(steps))


def end_a_tail_too_early(evidence: Evidence) -> None:
    """As if the stream had been closed by a timeout: shorter returns than owed."""
    log = [e for e in evidence.trajectories if e.partition == 1][:2]
    closed = replace(log[1].record, end_of_stream=True)  # type: ignore[type-var]
    short = process(1, [log[0], replace(log[1], record=closed)])[1]
    index = next(i for i, e in enumerate(evidence.replay) if e.address == (1, 1))
    rebatch(evidence, index, returns=short.returns, discounts=short.discounts,
            bootstrap_steps=short.bootstrap_steps)  # fmt: skip


def lose_a_batch(evidence: Evidence) -> None:
    del evidence.replay[4]


def invent_a_batch(evidence: Evidence) -> None:
    rebatch(evidence, 2, worker="w7")


def use_what_was_aborted(evidence: Evidence) -> None:
    evidence.uncommitted = {(0, 3)}


def say_something_else(evidence: Evidence) -> None:
    evidence.second_digests["replay"][1, 2] = "other"


def give_an_offset_twice(evidence: Evidence) -> None:
    again = evidence.replay[1]
    evidence.replay.append(Logged(again.partition, again.offset, 0.0, None, "other"))


def commit_backwards(evidence: Evidence) -> None:
    evidence.committed.append(Committed(120.0, "processor", 0, 6))


def commit_too_early(evidence: Evidence) -> None:
    evidence.committed.insert(0, Committed(100.9, "processor", 0, 1))


def commit_before_the_checkpoint(evidence: Evidence) -> None:
    evidence.committed.insert(0, Committed(104.9, "learner", 0, 3))


def train_on_a_row_twice(evidence: Evidence) -> None:
    life = evidence.lives[-1]
    life.lines.append(next(life.of("insert")))


def never_train_on_a_row(evidence: Evidence) -> None:
    lines = evidence.lives[-1].lines
    lines.remove(next(evidence.lives[-1].of("insert")))


def train_on_what_was_undone_too(evidence: Evidence) -> None:
    """A successor that goes on after the checkpoint's rows, with the dead one's."""
    del evidence.lives[-1].lines[1:3]


def restore_other_counters(evidence: Evidence) -> None:
    next(evidence.lives[-1].of("restored"))["env_steps"] += 1


def save_rows_past_the_position(evidence: Evidence) -> None:
    next(evidence.lives[1].of("mark"))["positions"][0] = 4


def stay_behind(evidence: Evidence) -> None:
    evidence.healed = Healed(90.0, False, {"processor": 0, "learner": 4})


def publish_an_older_version(evidence: Evidence) -> None:
    evidence.policies.append(Published(9, (20, 3)))


def lose_the_newest_policy(evidence: Evidence) -> None:
    evidence.policies.pop()


def crash(evidence: Evidence) -> None:
    evidence.ended.append(Ended("processor", 1, 4, 70, 111.0))


def die_when_told_to_stop(evidence: Evidence) -> None:
    evidence.ended.append(Ended("worker", 1, 5, 4, 111.0, asked=True))


def complain(evidence: Evidence) -> None:
    evidence.logs["worker/1"] = "x\nTraceback (most recent call last):\n  ..."


def stay_alive(evidence: Evidence) -> None:
    evidence.left_running = ["77: python -m producers.worker"]


def count_losses(evidence: Evidence) -> None:
    evidence.summary["lost_steps"] = 8


PLANTED: list[tuple[Plant, set[str]]] = [
    (lose_a_record, {"C1", "C3"}),
    (lose_an_episode_s_middle, {"C1", "C3"}),
    (repeat_a_record, {"C2", "C3"}),
    (repeat_it_under_another_number, {"C2", "C3"}),
    (swap_two_records, {"C1", "C3"}),
    (end_an_episode_early, {"C3", "C7"}),
    (garble_a_reward, {"C3", "C7"}),
    (leave_a_stream_open, {"C3"}),
    (act_in_another_s_environment, {"C2", "C3"}),
    (go_back_to_an_older_policy, {"C10"}),
    (garble_a_return, {"C7"}),
    (bootstrap_too_early, {"C7"}),
    (end_a_tail_too_early, {"C7"}),
    (lose_a_batch, {"C7"}),
    (invent_a_batch, {"C7"}),
    (use_what_was_aborted, {"C4"}),
    (say_something_else, {"C5"}),
    (give_an_offset_twice, {"C5"}),
    (commit_backwards, {"C6"}),
    (commit_too_early, {"C6"}),
    (commit_before_the_checkpoint, {"C6"}),
    (train_on_a_row_twice, {"C2"}),
    (never_train_on_a_row, {"C2"}),
    (train_on_what_was_undone_too, {"C2"}),
    (restore_other_counters, {"C2"}),
    (save_rows_past_the_position, {"C2"}),
    (stay_behind, {"C8"}),
    (publish_an_older_version, {"C10"}),
    (lose_the_newest_policy, {"C10"}),
    (crash, {"C9"}),
    (die_when_told_to_stop, {"C9"}),
    (complain, {"C9"}),
    (stay_alive, {"C9"}),
    (count_losses, {"C7"}),
]


@pytest.mark.parametrize(
    ("plant", "expected"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED]
)
def test_what_is_planted_is_found(plant: Plant, expected: set[str]) -> None:
    evidence = clean_run()
    plant(evidence)
    assert expected <= {finding.check for finding in check_all(evidence)}


def test_something_is_planted_for_every_check() -> None:
    assert set().union(*(expected for _, expected in PLANTED)) == set(CHECKS)


def test_what_a_killed_learner_had_taken_in_after_its_checkpoint_does_not_count() -> (
    None
):
    evidence = clean_run()
    training = follow_training(evidence.lives)
    numbers = [(line["partition"], line["offset"]) for line in training.inserts]
    assert len(numbers) == len(set(numbers)) == len(evidence.replay)
    assert training.odd == []
    # Without the restart the same lines are repetitions.
    lives = learner_lives(evidence)
    lives[0].lines += lives.pop().lines[1:]
    evidence.lives[1:] = lives
    assert "C2" in {finding.check for finding in check_all(evidence)}
