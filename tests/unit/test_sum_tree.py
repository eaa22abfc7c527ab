import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.sum_tree import SumTree


def tree_of(values):
    tree = SumTree(len(values))
    tree.set(np.arange(len(values)), np.array(values, float))
    return tree


def find(tree, prefix):
    return int(tree.find(np.array([prefix]))[0])


def test_total_and_find_match_the_golden_values():
    tree = tree_of([0.5, 1, 0.5, 0.5])
    assert tree.total == 2.5
    assert find(tree, 1.5) == 2
    assert find(tree, 1.0) == 1


def test_equal_leaves_are_found_by_their_number():
    tree = tree_of([1.0] * 8)
    assert tree.find(np.arange(8.0)).tolist() == list(range(8))


def test_same_index_twice_keeps_the_last_value_and_counts_once():
    tree = tree_of([1.0, 1.0])
    tree.set(np.array([1, 0, 1]), np.array([5.0, 2.0, 3.0]))
    assert (find(tree, 1.9), find(tree, 2.1), find(tree, 4.9)) == (0, 1, 1)
    assert tree.total == 5.0


@pytest.mark.parametrize("capacity", [1, 7, 8, 9, 64, 65, 600])
def test_least_and_total_are_right_in_any_order_of_indices(capacity):
    rng = np.random.default_rng(capacity)
    tree, values = SumTree(capacity), np.zeros(capacity)
    for _ in range(20):
        indices = rng.permutation(capacity)[: rng.integers(1, capacity + 1)]
        values[indices] = rng.random(len(indices)) * (rng.random(len(indices)) > 0.3)
        tree.set(indices, values[indices])
        assert tree.total == pytest.approx(values.sum())
        assert tree.min_positive() == values[values > 0].min(initial=np.inf)


def test_arrays_that_cannot_be_written_are_taken_too():
    tree, indices, values = SumTree(4), np.arange(4)[::2], np.ones(2)
    values.setflags(write=False)
    tree.set(indices, values)
    assert tree.total == 2.0


def test_zero_is_never_found_even_at_the_very_end():
    tree = tree_of([0.0, 0.1, 0.2, 0.0, 0.3, 0.0, 0.0, 0.0, 0.0, 0.0])
    edges = [0.0, 0.1, 0.1 + 0.2, np.nextafter(tree.total, 0), tree.total, 9.0, -1.0]
    assert set(tree.find(np.array(edges)).tolist()) <= {1, 2, 4}


def test_min_positive_ignores_zeros_and_follows_changes():
    tree = tree_of([0.0, 3.0, 0.5])
    assert tree.min_positive() == 0.5
    tree.set(np.array([2]), np.array([0.0]))
    assert tree.min_positive() == 3.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_bad_values_are_refused_and_nothing_is_set(bad):
    tree = tree_of([1.0, 1.0])
    with pytest.raises(ValueError, match="finite"):
        tree.set(np.array([0, 1]), np.array([7.0, bad]))
    assert tree.total == 2.0


@pytest.mark.parametrize("bad", [-1, 2])
def test_indices_outside_are_refused(bad):
    with pytest.raises(IndexError, match=str(bad)):
        tree_of([1.0, 1.0]).set(np.array([bad]), np.array([1.0]))


def test_finding_in_an_empty_tree_raises():
    with pytest.raises(ValueError, match="above zero"):
        SumTree(3).sample(1, np.random.default_rng(0))


def test_sampling_is_stratified():
    indices, probabilities = tree_of([1.0] * 64).sample(64, np.random.default_rng(0))
    assert indices.tolist() == list(range(64))
    assert probabilities.tolist() == [1 / 64] * 64


def test_a_million_updates_do_not_drift():
    rng = np.random.default_rng(0)
    tree, values = SumTree(100), np.zeros(100)
    for _ in range(10_000):
        indices = rng.integers(0, 100, 100)
        new = rng.random(100) * 10.0 ** rng.integers(-8, 8, 100)
        tree.set(indices, new)
        values[indices] = new
    assert tree.total == pytest.approx(values.sum(), rel=1e-14)


leaf = st.sampled_from([0.0, 1e-9, 0.25, 0.5, 1.0, 3.0, 1e6])


@settings(max_examples=60, deadline=None)
@given(st.lists(leaf, min_size=1, max_size=80), st.data())
def test_find_agrees_with_a_running_sum(values, data):
    tree = tree_of(values)
    changes = data.draw(st.dictionaries(st.integers(0, len(values) - 1), leaf))
    if changes:
        tree.set(np.array(list(changes)), np.array(list(changes.values())))
    values = [changes.get(i, v) for i, v in enumerate(values)]
    assert tree.total == pytest.approx(sum(values))
    if not sum(values):
        return
    share = data.draw(st.floats(0, 1, exclude_max=True))
    found = find(tree, share * tree.total)
    before = sum(values[:found])
    slack = 1e-9 * tree.total
    assert values[found] > 0
    assert before - slack <= share * tree.total <= before + values[found] + slack
