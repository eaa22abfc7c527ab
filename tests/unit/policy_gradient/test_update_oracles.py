"""Whole updates against losses made row by row, without the code under test."""

import math

import numpy as np
import pytest
import torch

from tests.unit.learner_specs import box, discrete
from tests.unit.policy_gradient.some_sequences import sequences
from tests.unit.policy_gradient.test_actor_critics import make
from tests.unit.policy_gradient.trace_oracles import slow_gae, slow_v_trace

LAMBDA, CLIP = 0.8, 0.2
COSTS = {"entropyCost": 0.1, "valueCost": 0.25, "traceLambda": LAMBDA}
each_action = pytest.mark.parametrize("action", [discrete(3, start=2), box((2,))])
each_core = pytest.mark.parametrize("lstm", [0, 8])


def outputs_step_by_step(module, found):
    """What the actor would say, a step at a time, with its state zeroed by hand."""
    states = {n: torch.from_numpy(s) for n, s in found.states.items()}
    all_outputs = []
    for t in range(len(found.valid) + 1):
        observations = {"": torch.from_numpy(found.observations[""][t])}
        with torch.no_grad():
            outputs = module(observations, states)
        all_outputs.append({n: o.detach().double().numpy() for n, o in outputs.items()})
        if t < len(found.valid):
            kept = torch.from_numpy(found.valid[t])[:, None]
            states = {n: outputs[f"next_state/{n}"] * kept for n in states}
    return all_outputs


def log_prob_and_entropy(outputs, found, t, n):
    if "logits" in outputs:
        log_probs = outputs["logits"][n] - np.log(np.exp(outputs["logits"][n]).sum())
        action = found.actions[""][t, n] - 2
        return log_probs[action], -(np.exp(log_probs) * log_probs).sum()
    std, sample = np.exp(outputs["log_std"][n]), found.behaviour["sample"][t, n]
    z = (sample - outputs["mean"][n]) / std
    half = 0.5 * math.log(2 * math.pi)
    entropy = (np.log(std) + half + 0.5).sum()
    return (-z * z / 2 - np.log(std) - half).sum(), entropy


def table(algorithm, found):
    """(valid rows, values [L+1][N], log-probabilities and entropies by row)."""
    said = outputs_step_by_step(algorithm.actor().module, found)
    rows = [(t, n) for t, n in np.ndindex(found.valid.shape) if found.valid[t, n]]
    values = np.array([outputs["value"] for outputs in said])
    return rows, values, {
        row: log_prob_and_entropy(said[row[0]], found, *row) for row in rows
    }  # fmt: skip


def column(array, n):
    return array[:, n].astype(float).tolist()


@each_action
@each_core
def test_impala(action, lstm):
    algorithm = make(
        "impala", action, lstm, policyGradient=COSTS,
        impala={"rhoClip": 1.5, "cClip": 0.9},
    )  # fmt: skip
    found = sequences(5, action=action, lstm=lstm)
    rows, values, said = table(algorithm, found)
    ratios = np.zeros(found.valid.shape)
    for row in rows:
        ratios[row] = np.exp(said[row][0] - found.behaviour["log_prob"][row])
    slow = [
        slow_v_trace(
            column(found.returns, n), column(found.discounts, n), column(values, n),
            found.valid[:, n].tolist(), column(ratios, n), LAMBDA, 1.5, 0.9,
        )
        for n in range(found.valid.shape[1])
    ]  # fmt: skip
    policy = np.mean([-slow[n][1][t] * said[t, n][0] for t, n in rows])
    value = np.mean([(slow[n][0][t] - values[t, n]) ** 2 for t, n in rows])
    entropy = np.mean([said[row][1] for row in rows])
    result = algorithm.update(found)
    assert result.loss == pytest.approx(policy + 0.25 * value - 0.1 * entropy, rel=1e-4)
    assert result.figures["policy_loss"] == pytest.approx(policy, rel=1e-4)
    assert result.figures["value_loss"] == pytest.approx(value, rel=1e-4)
    assert result.figures["entropy"] == pytest.approx(entropy, rel=1e-4)


@each_action
@each_core
def test_ppo(action, lstm):
    algorithm = make(
        "ppo", action, lstm, policyGradient=COSTS,
        ppo={"epochs": 1, "minibatchSize": 1000, "clip": CLIP},
    )  # fmt: skip
    found = sequences(6, action=action, lstm=lstm)
    rows, values, said = table(algorithm, found)
    slow = [
        slow_gae(
            column(found.returns, n), column(found.discounts, n), column(values, n),
            found.valid[:, n].tolist(), LAMBDA,
        )
        for n in range(found.valid.shape[1])
    ]  # fmt: skip
    raw = np.array([slow[n][t] for t, n in rows])
    advantages = (raw - raw.mean()) / raw.std()
    gains, divergences = [], []
    for row, advantage in zip(rows, advantages, strict=True):
        log_ratio = said[row][0] - found.behaviour["log_prob"][row]
        cut = min(max(math.exp(log_ratio), 1 - CLIP), 1 + CLIP)
        gains.append(min(math.exp(log_ratio) * advantage, cut * advantage))
        divergences.append(math.exp(log_ratio) - 1 - log_ratio)
    entropy = np.mean([said[row][1] for row in rows])
    # The values' targets are their own advantages further.
    expected = -np.mean(gains) + 0.25 * np.mean(raw**2) - 0.1 * entropy
    result = algorithm.update(found)
    assert result.loss == pytest.approx(expected, rel=1e-4)
    assert result.figures["kl"] == pytest.approx(np.mean(divergences), rel=1e-4)
    assert result.figures["entropy"] == pytest.approx(entropy, rel=1e-4)
