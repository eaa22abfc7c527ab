import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.algorithms.traces import gae, v_trace
from tests.unit.policy_gradient.trace_oracles import slow_gae, slow_v_trace

NAN = float("nan")


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def all_valid(count):
    return torch.ones(count, 1, dtype=torch.bool)


def on_policy(returns, discounts, values, trace=1.0):
    return v_trace(
        returns, discounts, values, all_valid(len(returns)),
        torch.ones_like(returns), trace=trace, rho_clip=1.0, c_clip=1.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (1.0, [-1.45118, -4.4557, 2.5396, 0.5249, -0.49]),
        (0.7, [-0.676979, -5.248167, 2.4846, 0.6704, -0.49]),
    ],
)
def test_gae_has_the_published_values(trace, expected):
    returns, discounts = column(0, 0, 1, 0, -0.5), column(*[0.99] * 5)
    values = column(1, 4, -3, -2, -1, -1)
    found = gae(returns, discounts, values, all_valid(5), trace)
    assert found.advantages[:, 0].tolist() == pytest.approx(expected, abs=6e-5)
    assert found.targets[0, 0] == pytest.approx(1 + expected[0], abs=6e-5)
    v_traced = on_policy(returns, discounts, values, trace)
    assert v_traced.advantages[:, 0].tolist() == pytest.approx(expected, abs=6e-5)


def test_targets_are_the_published_lambda_returns():
    returns, discounts = column(1, 0, -1, 0, 1), column(0.5, 0.9, 1, 0.5, 0.8)
    values = column(100, 3, 1, 5, -5, 3)  # those of the observations 0 to 5
    expected = [1.6460547, 0.72281253, 0.7375, 0.65, 3.4]
    found = gae(returns, discounts, values, all_valid(5), 0.75)
    assert found.targets[:, 0].tolist() == pytest.approx(expected, rel=1e-7)
    found = on_policy(returns, discounts, values, 0.75)
    assert found.targets[:, 0].tolist() == pytest.approx(expected, rel=1e-7)


def test_on_policy_with_lambda_1_targets_are_n_step_returns():
    returns, discounts = column(1, 0, -1, 0, 1), column(0.5, 0.9, 1, 0.5, 0.8)
    found = on_policy(returns, discounts, column(7, 3, 1, 5, -5, 3))
    expected = [1.315, 0.63, 0.7, 1.7, 3.4]  # n >= 5
    assert found.targets[:, 0].tolist() == pytest.approx(expected, rel=1e-12)


def test_v_trace_by_hand():
    # delta = [1 + .5*3 - 2, 2 + .5*1 - 3] = [.5, -.5]; pi/mu = [4, .5]
    # rho = [2, .5], c = .8 * [1, .5]
    # v_1 - V_1 = .5 * -.5 = -.25;  v_0 - V_0 = 2 * .5 + .5 * .8 * -.25 = .9
    # A_0 = 2 * (.5 + .5 * .8 * -.25) = .8;  A_1 = .5 * -.5
    found = v_trace(
        column(1, 2), column(0.5, 0.5), column(2, 3, 1), all_valid(2),
        column(4, 0.5), trace=0.8, rho_clip=2.0, c_clip=1.0,
    )  # fmt: skip
    assert found.targets[:, 0].tolist() == pytest.approx([2.9, 2.75])
    assert found.advantages[:, 0].tolist() == pytest.approx([0.8, -0.25])


def test_a_truncation_bootstraps_from_its_own_last_observation():
    # Episode 1: r = 0, 0, V = 1, 1, truncated, V of the last observation 10; a reset
    # row; then episode 2 with V = 50. gamma = lambda = 1: both advantages are 9.
    valid = torch.tensor([[True], [True], [False], [True]])
    returns, discounts = column(0, 0, 0, 0), column(1, 1, 1, 1)
    found = gae(returns, discounts, column(1, 1, 10, 50, 50), valid, 1.0)
    assert found.advantages[:, 0].tolist() == [9, 9, 0, 0]
    assert found.targets[:, 0].tolist() == [10, 10, 0, 50]


def test_behind_a_termination_nothing_counts():
    valid = torch.tensor([[True], [True], [False], [True]])
    returns, discounts = column(1, 1, NAN, 1), column(1, 0, NAN, 0)
    found = gae(returns, discounts, column(1, 1, NAN, 50, NAN), valid, 1.0)
    assert found.advantages[:, 0].tolist() == [1, 0, 0, -49]


def test_a_reward_in_the_last_row_moves_all_targets():
    returns = [column(0, 0, 0, 0), column(0, 0, 0, 1)]
    found = [on_policy(r, column(*[1.0] * 4), column(*[0.0] * 5)) for r in returns]
    assert (found[1].targets - found[0].targets)[:, 0].tolist() == [1, 1, 1, 1]


@st.composite
def unrolls(draw):
    """Random columns of rows: (returns, discounts, values, valid, ratios)."""
    length, envs = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = (length, envs)
    return [
        torch.from_numpy(array)
        for array in (
            rng.normal(size=shape),
            np.where(rng.random(shape) < 0.2, 0.0, 0.9),
            rng.normal(size=(length + 1, envs)),
            rng.random(shape) < 0.7,
            np.exp(rng.normal(size=shape)),
        )
    ]


SETTINGS = st.fixed_dictionaries(
    {
        "trace": st.sampled_from([0.0, 0.5, 1.0]),
        "rho_clip": st.sampled_from([0.5, 1.0, 3.0]),
        "c_clip": st.sampled_from([0.5, 1.0, 3.0]),
    }
)


def both(columns, how):
    """(targets, advantages) of GAE, and of V-trace."""
    ours = gae(*columns[:4], how["trace"]), v_trace(*columns, **how)
    return [(e.targets, e.advantages) for e in ours]


@given(unrolls(), SETTINGS)
def test_all_rows_are_those_of_the_oracles(columns, how):
    (_, advantages), v_traced = both(columns, how)
    for n in range(columns[0].shape[1]):
        mine = [c[:, n].tolist() for c in columns]
        expected = slow_gae(*mine[:4], how["trace"])
        assert advantages[:, n].tolist() == pytest.approx(expected, abs=1e-9)
        slow = slow_v_trace(*mine, how["trace"], how["rho_clip"], how["c_clip"])
        for found, wanted in zip(v_traced, slow, strict=True):
            assert found[:, n].tolist() == pytest.approx(wanted, abs=1e-9)


@given(unrolls(), SETTINGS, st.integers(1, 3))
def test_padding_changes_nothing(columns, how, rows):
    def padded(tensor, value):
        filling = torch.full((rows, tensor.shape[1]), value, dtype=tensor.dtype)
        return torch.cat([tensor, filling])

    longer = [padded(c, NAN) for c in columns]
    longer[3] = padded(columns[3], False)
    for found, expected in zip(both(longer, how), both(columns, how), strict=True):
        for f, e in zip(found, expected, strict=True):
            assert torch.equal(f[:-rows], e) and not f[-rows:].any()


@given(unrolls(), SETTINGS, st.randoms(use_true_random=False))
def test_environments_are_on_their_own(columns, how, random):
    order = list(range(columns[0].shape[1]))
    random.shuffle(order)
    for permuted, expected in zip(
        both([c[:, order] for c in columns], how), both(columns, how), strict=True
    ):
        for p, e in zip(permuted, expected, strict=True):
            assert torch.equal(p, e[:, order])
    alone = both([c[:, :1] for c in columns], how)
    for found, expected in zip(alone, both(columns, how), strict=True):
        assert torch.equal(found[0], expected[0][:, :1])


@given(unrolls(), st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=50)
def test_on_policy_v_trace_is_gae(columns, trace):
    columns[4] = torch.ones_like(columns[4])
    ours, theirs = both(columns, {"trace": trace, "rho_clip": 1.0, "c_clip": 1.0})
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.allclose(mine, other, atol=1e-12)
