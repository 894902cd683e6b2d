"""Divided differences against closed forms, at coincident, close and far nodes."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from difflinalg._dense.divided_differences import divided_difference, simplex_rule


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_simplex_rule_integrates_polynomials_of_degree_eleven(dimension):
    points, weights = simplex_rule(dimension, 6)
    assert np.sum(weights) == pytest.approx(1 / scipy.special.factorial(dimension), rel=1e-14)
    # x_0^11 has the integral 11! / (11 + dimension)!.
    exact = scipy.special.factorial(11) / scipy.special.factorial(11 + dimension)
    assert np.sum(weights * points[:, 0] ** 11) == pytest.approx(exact, rel=1e-13)


def test_divided_difference_sees_a_smoothed_step_between_the_points_of_its_rule():
    nodes = np.array([-1.0, -0.5, 1.0])
    computed = divided_difference(lambda x: x**2 + jnp.sqrt(x**2 + 1e-12), nodes)
    assert abs(computed - (1 + (1 / 3 + 1) / 2)) < 1e-9


@pytest.mark.parametrize("gap", [0.0, 1e-14, 1e-9, 1e-6, 1e-3, 0.1, 1.0, 30.0])
def test_divided_differences_of_one_over_x_are_right_at_every_gap(gap):
    nodes = np.array([0.7, 0.7 + gap, 0.7 + 2 * gap])
    computed = divided_difference(lambda x: 1 / x, nodes)
    assert abs(computed * np.prod(nodes) - 1) < 1e-13


def test_divided_differences_survive_a_function_that_cancels():
    nodes = np.array([[1e-9, 2e-9], [1e-9, 1.0]])
    computed = divided_difference(lambda x: jnp.log(1 + x), nodes)
    exact = np.array([1 - 1.5e-9, (np.log(2.0) - 1e-9) / (1 - 1e-9)])
    np.testing.assert_allclose(computed, exact, rtol=1e-14)


def test_a_guide_decides_for_a_function_that_it_resembles():
    nodes = np.array([[1e-10, 1.1e-10], [1e-10, 1.0], [0.5, 0.5]])
    computed = divided_difference(lambda x: 0 * x, nodes, guide=jnp.sqrt)
    np.testing.assert_array_equal(computed, np.zeros(3))
    computed = divided_difference(jnp.sqrt, nodes, guide=lambda x: 2 * jnp.sqrt(x))
    np.testing.assert_allclose(computed, 1 / np.sum(np.sqrt(nodes), axis=1), rtol=1e-15)
