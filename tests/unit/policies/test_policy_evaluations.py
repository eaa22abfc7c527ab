"""How good versions are, from metrics that are made by hand."""

from dataclasses import replace

import numpy as np
import pytest

from infra.policies.evaluations import Evaluations, Judged
from schemas.records import PolicyRef
from schemas.tensors import pack
from tests.unit.envs.graphs import RUN_ID
from tests.unit.policies.records import Log, evaluation, learner_point

LOG = Log()


def told(*records):
    made = Evaluations(RUN_ID)
    for key, record in records:
        made.take(LOG.message("metrics", key, record))
    return made


def by_evaluator(*records):
    return told(*(("evaluator/0", record) for record in records))


def test_a_versions_episodes_are_summed_up():
    found = by_evaluator(evaluation(3, [1, 2, 6]), evaluation(4, [5, 5]))
    assert found.of(PolicyRef(0, 3)) == Judged(3, 3.0, 1.0, 6.0, False)
    assert found.of(PolicyRef(0, 4)) == Judged(2, 5.0, 5.0, 5.0, False)
    assert found.of(PolicyRef(1, 3)) is None, "of another epoch"


def test_a_second_round_counts_beside_the_first():
    found = by_evaluator(
        evaluation(3, [1, 3]), evaluation(3, [10, 2], confirmation=True)
    )
    assert found.of(PolicyRef(0, 3)) == Judged(4, 4.0, 1.0, 10.0, True)


def test_the_same_episodes_told_again_count_once():
    found = by_evaluator(evaluation(3, [1, 3]), evaluation(3, [1, 3]))
    assert found.of(PolicyRef(0, 3)) == Judged(2, 2.0, 1.0, 3.0, False)


def test_other_runs_and_what_cannot_be_reckoned_with_say_nothing():
    empty = evaluation(1, [1.0])
    object.__setattr__(empty, "returns", pack(np.zeros(0)))
    found = by_evaluator(evaluation(1, [9], run_id="another"), empty, b"garbage", None)
    assert found.of(PolicyRef(0, 1)) is None


def test_env_steps_lie_between_what_the_learner_told_before_and_after():
    found = told(
        ("learner/0", learner_point(0, 500)),
        ("learner/0", learner_point(0, 2_000)),
        ("learner/0", learner_point(10, 3_000)),
        ("learner/0", learner_point(30, 5_000)),
        ("learner/0", learner_point(99, 9_000, run_id="another")),
        ("worker/0", learner_point(50, 1)),
    )
    steps = {n: found.env_steps(n) for n in (0, 9, 10, 29, 30, 1_000)}
    assert steps == {0: 2_000, 9: 2_900, 10: 3_000, 29: 4_900, 30: 5_000, 1_000: 5_000}


def test_before_the_oldest_metrics_it_is_not_known():
    assert told(("learner/0", learner_point(10, 3_000))).env_steps(9) is None
    assert told().env_steps(0) is None


def test_what_a_learner_did_after_its_checkpoint_is_undone():
    found = told(
        ("learner/0", learner_point(10, 3_000)),
        ("learner/0", learner_point(40, 6_000)),
        ("learner/0", learner_point(20, 4_000)),
        ("learner/0", learner_point(30, 4_900)),
    )
    assert [found.env_steps(n) for n in (10, 20, 35, 40)] == [3000, 4000, 4900, 4900]


def test_all_is_forgotten_of_a_topic_that_was_made_anew():
    found = told(
        ("evaluator/0", evaluation(1, [1])), ("learner/0", learner_point(1, 2))
    )
    found.forget()
    assert found.of(PolicyRef(0, 1)) is None and found.env_steps(5) is None


@pytest.mark.parametrize("figure", [np.nan, np.inf])
def test_figures_that_are_no_counts_are_passed_over_whoever_wrote_them(figure):
    """Under a learner's key, of any role: only a learner's are known to be counts."""
    bad = [replace(learner_point(5, figure), role=r) for r in ("learner", "worker")]
    bad += [replace(learner_point(figure, 5), role=r) for r in ("learner", "worker")]
    records = [learner_point(4, 70), *bad]
    found = told(*(("learner/0", record) for record in records))
    assert found.env_steps(9) == 70
