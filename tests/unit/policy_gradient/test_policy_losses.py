import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from learner.algorithms.policy_losses import (
    Rows,
    actor_critic_loss,
    divergence,
    explained_variance,
    normalised,
    ppo_loss,
)
from learner.policy_heads import policy_head
from schemas.algorithm_specs import PolicyGradientSpec, PpoSpec
from tests.unit.learner_specs import discrete

HEAD = policy_head(discrete(2))
PLAIN = PolicyGradientSpec(entropy_cost=0.1, value_cost=0.5, normalise_advantages=False)
HALF = math.log(0.5)


def column(*values):
    return torch.tensor(values, dtype=torch.float64)


def rows(ratios, advantages, *, targets=None, before=None):
    """Rows of action 0 by a policy that now has it at 1/2; and the network's outputs.

    Values are now 0.
    """
    count = len(ratios)
    outputs = {
        "logits": torch.zeros(count, 2, dtype=torch.float64, requires_grad=True),
        "value": torch.zeros(count, dtype=torch.float64, requires_grad=True),
    }
    made = Rows(
        taken=torch.zeros(count),
        log_probs=HALF - column(*ratios).log(),
        values=column(*(before or [0.0] * count)),
        targets=column(*(targets or [0.0] * count)),
        advantages=column(*advantages),
    )
    return outputs, made


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "slope", "why"),
    [
        (1.0, 2.0, -2.0, -2.0, "at 1 nothing is cut"),
        (1.5, 2.0, -2.4, 0.0, "better and more probable: no further"),
        (1.5, -2.0, 3.0, 3.0, "worse and more probable: back, however far"),
        (0.5, 2.0, -1.0, -1.0, "better and less probable: back"),
        (0.5, -2.0, 1.6, 0.0, "worse and less probable: no further"),
    ],
)
def test_clip_by_hand(ratio, advantage, expected, slope, why):
    outputs, made = rows([ratio], [advantage])
    loss = ppo_loss(HEAD, outputs, made, PpoSpec(clip=0.2), PLAIN)
    assert loss.figures["policy_loss"] == pytest.approx(expected), why
    assert loss.figures["clip_fraction"] == float(ratio != 1)
    loss.total.backward()
    # d log pi(0) / d logit 0 = 1 - pi(0) = 1/2; the entropy is stationary at 1/2.
    assert outputs["logits"].grad[0, 0].item() == pytest.approx(slope / 2), why


def test_terms_are_added_with_their_costs():
    outputs, made = rows([1.0, 1.0], [1.0, 3.0], targets=[2.0, -1.0])
    loss = ppo_loss(HEAD, outputs, made, PpoSpec(), PLAIN)
    # -(1 + 3) / 2 + .5 * (4 + 1) / 2 - .1 * log 2
    assert loss.total.item() == pytest.approx(-2 + 1.25 - 0.1 * math.log(2))
    assert loss.figures["value_loss"] == pytest.approx(2.5)
    assert loss.figures["entropy"] == pytest.approx(math.log(2))


def test_values_clipped_count_where_they_are_worse():
    # Before -1, now 0, clip .25: cut to -.75. Target 1: (1.75)^2; target -2: 4 > 1.5625
    outputs, made = rows([1, 1], [0, 0], targets=[1.0, -2.0], before=[-1.0, -1.0])
    loss = ppo_loss(HEAD, outputs, made, PpoSpec(value_clip=0.25), PLAIN)
    assert loss.figures["value_loss"] == pytest.approx((1.75**2 + 4) / 2)


def test_advantages_are_normalised_over_the_rows():
    outputs, made = rows([1.0, 1.0, 1.0, 1.0], [1, 1, 5, 5])
    costs = PLAIN.model_copy(update={"normalise_advantages": True})
    loss = ppo_loss(HEAD, outputs, made, PpoSpec(), costs)
    assert loss.figures["policy_loss"] == pytest.approx(0, abs=1e-9)
    assert normalised(made.advantages).tolist() == pytest.approx([-1, -1, 1, 1])
    assert normalised(column(3.0)).tolist() == [0]


def test_v_trace_loss_by_hand():
    outputs, made = rows([4.0, 0.5], [1.0, -2.0], targets=[3.0, 0.0])
    loss = actor_critic_loss(HEAD, outputs, made, 2.0, PLAIN)
    assert loss.figures["policy_loss"] == pytest.approx(HALF / 2)  # -(1 - 2) / 2 log pi
    expected = HALF / 2 + 0.5 * 4.5 - 0.1 * math.log(2)
    assert loss.total.item() == pytest.approx(expected)
    assert loss.figures["clip_fraction"] == 0.5
    loss.total.backward()
    assert outputs["logits"].grad[:, 0].tolist() == pytest.approx([-0.25, 0.5])
    assert outputs["value"].grad.tolist() == pytest.approx([-1.5, 0])


def test_divergence_and_explained_variance_by_hand():
    # r = 2 and 1/2: ((2 - 1 - log 2) + (.5 - 1 + log 2)) / 2
    assert divergence(column(2, 0.5).log()).item() == pytest.approx(0.25)
    values, targets = column(0, 1, 2, 3), column(0, 2, 4, 6)
    assert explained_variance(values, targets).item() == pytest.approx(0.75)
    assert explained_variance(values, column(1, 1, 1, 1)).item() == 0


@given(st.lists(st.floats(-20, 20), min_size=1, max_size=20))
def test_divergence_is_never_below_0(log_ratios):
    assert divergence(column(*log_ratios)).item() >= -1e-12
