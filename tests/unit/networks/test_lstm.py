"""The recurrent core: its steps, its resets, and the way back through both."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from learner.networks import Lstm, Torso
from learner.networks import lstm as lstm_module
from tests.unit.learner_specs import box, discrete
from tests.unit.networks import oracles
from tests.unit.networks.specs import network_spec

INPUTS, UNITS = 3, 4


def make(steps, rows, seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    core = Lstm(INPUTS, UNITS).to(dtype)
    states = {name: torch.randn(rows, UNITS, dtype=dtype) for name in "hc"}
    return core, torch.randn(steps, rows, INPUTS, dtype=dtype), states


def step_by_step(core, inputs, states, valid):
    outputs = []
    for t in range(len(inputs)):
        if t:
            states = {
                n: torch.where(valid[t - 1, :, None], s, 0) for n, s in states.items()
            }
        output, states = core(inputs[t], states)
        outputs.append(output)
    return torch.stack(outputs), states


def test_a_step_is_that_of_torchs_own_lstm():
    core, inputs, states = make(1, 5)
    theirs = nn.LSTM(INPUTS, UNITS)
    with torch.no_grad():
        for name, parameter in core.named_parameters():
            getattr(theirs, f"{name}_l0").copy_(parameter)
    expected, (h, c) = theirs(inputs, (states["h"][None], states["c"][None]))
    output, after = core(inputs[0], states)
    for found, wanted in (
        (output, expected[0]),
        (after["h"], h[0]),
        (after["c"], c[0]),
    ):
        assert torch.allclose(found, wanted, rtol=0, atol=1e-6)


def test_weights_begin_as_those_of_torchs_own_lstm():
    core, theirs = Lstm(64, 100), nn.LSTM(64, 100)
    for name, parameter in core.named_parameters():
        other = getattr(theirs, f"{name}_l0")
        assert parameter.shape == other.shape
        assert parameter.abs().max() <= 0.1 and other.abs().max() <= 0.1
        assert float(parameter.detach().std()) == pytest.approx(0.1 / 3**0.5, rel=0.15)


masks = st.integers(1, 12).flatmap(
    lambda steps: st.integers(1, 4).flatmap(
        lambda rows: st.lists(
            st.lists(st.booleans(), min_size=rows, max_size=rows),
            min_size=steps,
            max_size=steps,
        )
    )
)


@pytest.mark.parametrize("least_run", [0, 4, 1000], ids=["runs", "as it is", "loop"])
@settings(max_examples=60, deadline=None)
@given(valid=masks, seed=st.integers(0, 99))
def test_an_unroll_is_its_steps_with_the_state_zero_after_rows_not_valid(
    least_run, valid, seed
):
    valid = torch.tensor(valid)
    core, inputs, states = make(*valid.shape, seed)
    usual, lstm_module._LEAST_RUN = lstm_module._LEAST_RUN, least_run
    try:
        outputs, after = core.unroll(inputs, states, valid)
    finally:
        lstm_module._LEAST_RUN = usual
    slow = oracles.lstm(
        oracles.weights(core), inputs.numpy(), states["h"].numpy(),
        states["c"].numpy(), valid.numpy(),
    )  # fmt: skip
    stepped, last = step_by_step(core, inputs, states, valid)
    for expected, other, found in zip(
        slow,
        (stepped, last["h"], last["c"]),
        (outputs, after["h"], after["c"]),
        strict=True,
    ):
        assert np.abs(found.detach().numpy() - expected).max() < 1e-6
        assert float((found - other).detach().abs().max()) < 1e-6


@pytest.mark.parametrize("least_run", [0, 1000], ids=["runs", "loop"])
def test_gradients_are_those_of_numbers_close_by(monkeypatch, least_run):
    monkeypatch.setattr(lstm_module, "_LEAST_RUN", least_run)
    core, inputs, states = make(6, 3, dtype=torch.float64)
    valid = torch.tensor([[1, 1, 1], [1, 0, 1], [1, 1, 1], [0, 1, 1], [1, 1, 0]]) > 0
    given_in = [inputs, *states.values(), *core.parameters()]

    def run(inputs, h, c, *_):
        outputs, after = core.unroll(inputs, {"h": h, "c": c}, valid)
        return outputs, after["h"], after["c"]

    leaves = [tensor.detach().requires_grad_() for tensor in given_in[:3]]
    assert torch.autograd.gradcheck(run, (*leaves, *core.parameters()))


@pytest.mark.parametrize("least_run", [0, 1000], ids=["runs", "loop"])
def test_no_gradient_goes_back_over_a_reset(monkeypatch, least_run):
    monkeypatch.setattr(lstm_module, "_LEAST_RUN", least_run)
    core, inputs, states = make(8, 2)
    inputs.requires_grad_()
    valid = torch.ones(8, 2, dtype=torch.bool)
    valid[3, 0] = False
    outputs, _ = core.unroll(inputs, states, valid)
    outputs[7].sum().backward()
    reached = (inputs.grad.abs().sum(2) > 0).tolist()
    assert [row[0] for row in reached] == [False] * 4 + [True] * 4
    assert [row[1] for row in reached] == [True] * 8


def test_what_is_after_the_last_row_is_not_zeroed():
    core, inputs, states = make(2, 1)
    valid = torch.tensor([[True], [False]])
    outputs, after = core.unroll(inputs, states, valid)
    assert torch.equal(after["h"], outputs[-1])
    assert torch.equal(core.unroll(inputs, states, valid[:1])[0], outputs)


# --- as a part of a torso ------------------------------------------------------------

FIELDS = (box((2,), name="x"), discrete(3, name="d"))


def observe(steps, rows, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {
        "x": torch.randn(steps, rows, 2, generator=generator),
        "d": torch.randint(0, 3, (steps, rows), generator=generator),
    }


@pytest.mark.parametrize("units", [0, 5])
def test_a_torso_unrolled_is_a_torso_stepped(units):
    torso = Torso(FIELDS, network_spec(lstm=units))
    assert [(f.name, f.shape) for f in torso.states] == (
        [("h", (5,)), ("c", (5,))] if units else []
    )
    assert torso.features == (units or 8)
    observations = observe(6, 4)
    valid = torch.ones(5, 4, dtype=torch.bool)
    valid[2, 1] = valid[4, 3] = False
    first = states = {f.name: torch.randn(4, *f.shape) for f in torso.states}
    features, after = torso.unroll(observations, first, valid)
    assert features.shape == (6, 4, torso.features)
    for t in range(6):
        if t:
            states = {n: s * valid[t - 1, :, None] for n, s in states.items()}
        now = {name: values[t] for name, values in observations.items()}
        expected, states = torso(now, states)
        assert torch.allclose(features[t], expected, rtol=0, atol=1e-6)
    assert after.keys() == states.keys()
    assert all(torch.allclose(after[n], states[n], rtol=0, atol=1e-6) for n in after)
