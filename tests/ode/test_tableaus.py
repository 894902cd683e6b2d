"""Order conditions of every tableau, by rooted trees, in exact arithmetic or to rounding."""

from fractions import Fraction
from functools import lru_cache

import pytest

from difflinalg._ode.methods import METHODS

EXACT = ("Dopri5", "RK4", "Esdirk43")
TREES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 9, 6: 20, 7: 48, 8: 115}  # the number of rooted trees


@lru_cache
def trees(order):
    """All rooted trees with `order` nodes, each as the sorted tuple of its branches."""
    if order == 1:
        return ((),)
    return tuple(sorted(set(forests(order - 1, order - 1))))


def forests(nodes, largest):
    """All multisets of trees with `nodes` nodes, none larger than `largest`."""
    if nodes == 0:
        yield ()
        return
    for size in range(min(nodes, largest), 0, -1):
        for tree in trees(size):
            for rest in forests(nodes - size, size):
                yield tuple(sorted((tree, *rest)))


def size(tree):
    return 1 + sum(map(size, tree))


def density(tree):
    """Butcher's gamma(tree), by which the elementary weight of an exact method is divided."""
    value = size(tree)
    for branch in tree:
        value *= density(branch)
    return value


def stage_weights(tree, a, cache):
    """The elementary weight of a tree at every stage, without the last sum."""
    if tree not in cache:
        value = [Fraction(1)] * len(a)
        for branch in tree:
            inner = stage_weights(branch, a, cache)
            value = [v * sum(x * y for x, y in zip(row, inner, strict=True) if x)
                     for v, row in zip(value, a, strict=True)]  # fmt: skip
        cache[tree] = value
    return cache[tree]


def defects(b, a, order):
    """`sum_i b_i Phi_i(tree) - 1 / gamma(tree)` for all trees of one order."""
    cache = {}
    for tree in trees(order):
        weights = stage_weights(tree, a, cache)
        yield sum(x * y for x, y in zip(b, weights, strict=True)) - Fraction(1, density(tree))


def worst(b, a, orders):
    return max(abs(defect) for order in orders for defect in defects(b, a, order))


def padded(row, count):
    return tuple(row) + (Fraction(0),) * (count - len(row))


def test_trees_are_counted_right():
    assert {order: len(trees(order)) for order in TREES} == TREES


@pytest.mark.parametrize("name", METHODS)
def test_method_has_its_order_and_no_higher_one(name):
    method = METHODS[name]
    b = padded(method.b, len(method.c))
    tolerance = 0 if name in EXACT else 1e-14
    assert worst(b, method.a, range(1, method.order + 1)) <= tolerance
    assert worst(b, method.a, [method.order + 1]) > 1e-6
    for row, node in zip(method.a, method.c, strict=True):
        assert abs(sum(row) - node) <= tolerance


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if m.errors])
def test_error_estimates_vanish_to_the_order_of_the_embedded_method(name):
    method = METHODS[name]
    b = padded(method.b, len(method.c))
    orders = {"Dopri8": (5, 3)}.get(name, (method.error_order,))
    for row, order in zip(method.errors, orders, strict=True):
        lower = [x - y for x, y in zip(b, padded(row, len(b)), strict=True)]
        assert worst(lower, method.a, range(1, order + 1)) <= (0 if name in EXACT else 1e-13)
        assert worst(lower, method.a, [order + 1]) > 1e-7


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if m.dense])
def test_interpolant_has_its_order_everywhere_and_ends_at_the_step(name):
    """At theta the weights must give `theta^size / gamma`."""
    method = METHODS[name]
    order = {"Dopri8": 7}.get(name, 4)
    for theta in (Fraction(1, 3), Fraction(4, 5), Fraction(1)):
        powers = [theta ** (p + 1) for p in range(len(method.dense[0]))]
        b = [sum(x * y for x, y in zip(row, powers, strict=True)) for row in method.dense]
        for n in range(1, order + 1):
            scaled = [x / theta**n for x in b]
            assert worst(scaled, method.a, [n]) <= 1e-11
        if theta == 1:
            assert max(abs(x - y) for x, y in zip(b, method.b, strict=False)) <= 1e-12


def test_stiff_method_is_stiffly_accurate_with_one_diagonal():
    method = METHODS["Esdirk43"]
    assert method.b == method.a[-1]
    assert [row[i] for i, row in enumerate(method.a)] == [0] + [Fraction(1, 4)] * 5
