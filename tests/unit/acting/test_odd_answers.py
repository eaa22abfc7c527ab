"""A policy whose answers are no numbers: counted, told of, and no end of anything."""

import numpy as np
import pytest
from gymnasium import spaces

from producers.categorical_actor import CategoricalActor
from producers.env_troubles import EnvTroubles
from producers.gaussian_actor import GaussianActor
from producers.q_actor import QActor
from producers.rollout import Rollout
from producers.seeding import StreamSeeds
from producers.tally import Tally
from tests.unit.acting.policies import echoing
from tests.unit.acting.scripted import ScriptedEnvironments, write_script

HEADS = {
    "q": (spaces.Discrete(2), "epsilon_ladder", {"q": [0, 1]}),
    "categorical": (spaces.Discrete(2), "sample", {"logits": [0, 1], "value": 2}),
    "gaussian": (spaces.Box(-1, 1, (1,)), "sample", {"mean": [0], "log_std": [1]}),
}


def played(head, steps=6, odd=()):
    """Observations are the answers; those at (t, env) are not finite."""
    action, exploration, outputs = HEADS[head]
    policy = echoing(head, outputs, action, exploration=exploration)
    wide = policy.session.graph.observation[0].shape[0]
    script = write_script(0, 2 * steps, 3, wide, luck=1.0)
    for place in odd:
        script.observations[place] = np.inf
    environments = ScriptedEnvironments(script, action)
    rollout = Rollout(environments, StreamSeeds(0, 0, 0))
    if head == "q":
        actor = QActor(policy, 3, np.zeros(3))
    else:
        make = {"categorical": CategoricalActor, "gaussian": GaussianActor}[head]
        actor = make(policy, 3)
    return rollout, actor, environments


@pytest.mark.parametrize("head", sorted(HEADS))
def test_odd_answers_are_counted_and_only_actions_of_the_space_come_of_them(head):
    rollout, actor, environments = played(head, odd=[(1, 2), (4, 0)])
    rollout.collect(actor, 6)
    found = rollout.look()
    assert found.odd_answers == 2
    assert found.odd_answer.startswith(
        "version 1 of epoch 0: 2 of 18 answers of an unroll are not finite numbers, "
        "the first in its step 1 in environment 2"
    )
    again = rollout.look()
    assert (again.odd_answers, again.odd_answer) == (2, ""), "it is told once"
    space = HEADS[head][0]
    assert all(space.contains(a) for row in environments.received for a in row)


@pytest.mark.parametrize("head", sorted(HEADS))
def test_what_is_seen_last_is_no_step_yet(head):
    """The next unroll begins with it, and counts it."""
    rollout, actor, _ = played(head, odd=[(6, 1)])
    rollout.collect(actor, 6)
    assert rollout.look().odd_answers == 0
    rollout.collect(actor, 6)
    assert rollout.look().odd_answers == 1


def test_they_are_told_of_and_not_each_time():
    told = []
    troubles = EnvTroubles(lambda *event: told.append(event))
    troubles.tell(Tally(5, 0))
    for count in (2, 3):
        troubles.tell(Tally(5, 0, odd_answers=count, odd_answer="version 1: odd"))
    assert told == [("policy-nonfinite", "warning", "version 1: odd; 2 so far")]
