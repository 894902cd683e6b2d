"""polar against SciPy, high precision, closed forms, finite differences and its own transpose."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.linalg
from jax import lax

from difflinalg._dense.polar import polar, polar_tangents

SINGULAR_VALUES = {
    "identity": [1.0, 1.0, 1.0],
    "pair": [1.0, 1.0, 2.0],
    "close": [1.0, 1.0 + 1e-6, 1.0 + 1e-13],
    "generic": [0.3, 1.0, 2.0],
}


def gaussian(rng, *shape, dtype=complex):
    x = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return (x if np.issubdtype(dtype, np.complexfloating) else x.real).astype(dtype)


def with_singular_values(rng, rows, values, dtype=complex):
    u = np.linalg.qr(gaussian(rng, rows, len(values), dtype=dtype))[0]
    v = np.linalg.qr(gaussian(rng, len(values), len(values), dtype=dtype))[0]
    return ((u * np.asarray(values)) @ v.conj().T).astype(dtype)


def relative(x, y):
    return np.max(np.abs(np.asarray(x) - y)) / np.max(np.abs(y))


def along(g, e):
    return lambda a: jax.jvp(g, (a,), (e,))[1]


# Values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["qdwh", "svd"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_every_shape_and_side_gives_the_factors_that_scipy_gives(side, method, rng):
    for shape, dtype in itertools.product([(4, 2), (3, 3), (2, 4)], [float, complex]):
        a = gaussian(rng, *shape, dtype=dtype)
        computed = polar(a, side, method=method)
        for x, y in zip(computed, scipy.linalg.polar(a, side), strict=True):
            assert x.dtype == dtype
            np.testing.assert_allclose(x, y, atol=1e-13)


def test_results_are_those_of_jax_where_jax_has_them(rng):
    a = gaussian(rng, 2, 4, 3, dtype=np.float32)
    for method in ("qdwh", "svd"):
        expected = jax.scipy.linalg.polar(a, method=method)
        for x, y in zip(polar(a, method=method), expected, strict=True):
            np.testing.assert_array_equal(x, y)
    assert polar(np.arange(4).reshape(2, 2))[0].dtype == np.float64


@pytest.mark.parametrize("shape", [(0, 0), (0, 2), (2, 0), (1, 1), (0, 2, 2)])
def test_empty_and_one_by_one_matrices_have_values_and_gradients(shape):
    for side in ("right", "left"):
        unitary, posdef = polar(jnp.full(shape, -3.0), side)
        size = shape[-1] if side == "right" else shape[-2]
        assert unitary.shape == shape
        assert posdef.shape == (*shape[:-2], size, size)
        loss = lambda a, side=side: jnp.sum(polar(a, side)[1])  # noqa: E731
        assert jax.grad(loss)(jnp.full(shape, -3.0)).shape == shape
    if shape == (1, 1):
        np.testing.assert_allclose(unitary, [[-1.0]])
        np.testing.assert_allclose(jax.grad(loss)(jnp.full(shape, -3.0)), [[-1.0]])


def test_bad_arguments_are_refused_with_a_remedy():
    with pytest.raises(ValueError, match="needs a matrix"):
        polar(np.ones(3))
    with pytest.raises(ValueError, match="'right', 'left'"):
        polar(np.eye(2), "middle")
    with pytest.raises(ValueError, match="'qdwh', 'svd'"):
        polar(np.eye(2), method="newton")
    for eps in ("a", ["a"], True, 1j, np.ones(2), [None], {}):
        with pytest.raises(TypeError, match=r"^polar needs eps as a Python number"):
            polar(np.eye(2), eps=eps)
    with pytest.raises(TypeError, match=r"^polar needs eps.*static"):
        jax.jit(lambda eps: polar(np.eye(2), eps=eps))(1e-6)
    for eps in (-1e-6, 0.0, 1.0, np.nan):
        with pytest.raises(ValueError, match=r"^polar needs 0 < eps < 1"):
            polar(np.eye(2), eps=eps)
    for steps in (1.5, "a", True):
        with pytest.raises(TypeError, match=r"^polar needs max_iterations as a Python integer"):
            polar(np.eye(2), max_iterations=steps)
    for steps in (-1, 0):
        with pytest.raises(ValueError, match=r"^polar needs max_iterations >= 1"):
            polar(np.eye(2), max_iterations=steps)


def test_eps_and_most_iterations_bound_the_work_and_the_error(rng):
    # jax.scipy.linalg.polar fails at any eps and drops max_iterations.
    a = with_singular_values(rng, 4, [2.0, 1.0, 1e-3], float)
    unitary = scipy.linalg.polar(a)[0]
    for eps in (1e-6, np.float32(1e-6), np.array([1e-6]), jnp.asarray(1e-6)):
        assert relative(jax.jit(lambda a, eps=eps: polar(a, eps=eps))(a)[0], unitary) < 1e-5
    coarse, few = polar(a, eps=0.9)[0], polar(a, max_iterations=1)[0]
    assert min(relative(coarse, unitary), relative(few, unitary)) > 1e-4
    stack = np.stack([a, 2 * a])
    for x, y in zip(polar(stack, eps=1e-6), polar(2 * a, eps=1e-6), strict=True):
        np.testing.assert_allclose(x[1], y, atol=1e-13)
    gradient = jax.grad(lambda a: jnp.trace(polar(a, eps=1e-6)[1]))(a)
    np.testing.assert_allclose(gradient, unitary, atol=1e-5)


# Derivatives --------------------------------------------------------------------------------------


def precise_polar(x):
    """The right factors of a tall mpmath matrix, by the eigenvalues of its Gram matrix."""
    values, v = mpmath.eighe(x.H * x)
    root = [mpmath.sqrt(value) for value in values]
    return x * v * mpmath.diag([1 / r for r in root]) * v.H, v * mpmath.diag(root) * v.H


def precise_differences(g, a, directions):
    """The mixed derivative of `g` in all directions, by central differences in 150 digits."""
    with mpmath.workdps(150):
        h = mpmath.mpf(10) ** -30
        a, *directions = (mpmath.matrix(x.tolist()) for x in (a, *directions))
        totals = None
        for signs in itertools.product((1, -1), repeat=len(directions)):
            x = a + sum((s * h * d for s, d in zip(signs, directions, strict=True)), 0 * a)
            terms = [math.prod(signs) * y for y in g(x)]
            totals = (
                terms if totals is None else [y + t for y, t in zip(totals, terms, strict=True)]
            )
        scale = (2 * h) ** len(directions)
        return [np.array((y / scale).tolist(), dtype=complex) for y in totals]


@jax.jit
def derivatives(a, e):
    g, result = polar, []
    for _ in range(3):
        g = along(g, e)
        result.append(g(a))
    return result


@pytest.mark.parametrize("rows", [3, 4])
def test_three_derivatives_are_exact_at_repeated_singular_values(rows, rng):
    for name, values in SINGULAR_VALUES.items():
        a, e = with_singular_values(rng, rows, values), gaussian(rng, rows, 3)
        for order, factors in enumerate(derivatives(a, e), 1):
            for x, expected in zip(
                factors, precise_differences(precise_polar, a, [e] * order), strict=True
            ):
                assert relative(x, expected) < 1e-12, (name, order)


def test_tangents_at_a_unitary_matrix_split_into_hermitian_and_antihermitian_part(rng):
    q = np.linalg.qr(gaussian(rng, 3, 3))[0]
    a_dot = gaussian(rng, 3, 3)
    w_dot, p_dot = polar_tangents(jnp.asarray(q), jnp.eye(3, dtype=complex), jnp.asarray(a_dot))
    t = q.conj().T @ a_dot
    np.testing.assert_allclose(w_dot, q @ (t - t.conj().T) / 2, atol=1e-14)
    np.testing.assert_allclose(p_dot, (t + t.conj().T) / 2, atol=1e-14)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("shape", [(4, 2), (2, 4), (3, 3)])
def test_gradient_agrees_with_finite_differences_and_tangents_with_cotangents(shape, side, rng):
    a, e = gaussian(rng, *shape), gaussian(rng, *shape)
    size = shape[1] if side == "right" else shape[0]
    weights = (gaussian(rng, *shape), gaussian(rng, size, size))
    g = functools.partial(polar, side=side)

    @jax.jit
    def both_maps(a):
        value, pullback = jax.vjp(g, a)
        return value, along(g, e)(a), pullback(weights)[0]

    _, tangents, a_bar = both_maps(a)
    pairing = sum(np.sum(c * t) for c, t in zip(weights, tangents, strict=True))
    assert abs(np.sum(a_bar * e).real - pairing.real) < 1e-12 * abs(pairing)

    h = 1e-5
    ahead, behind = scipy.linalg.polar(a + h * e, side), scipy.linalg.polar(a - h * e, side)
    for t, x, y in zip(tangents, ahead, behind, strict=True):
        np.testing.assert_allclose(t, (x - y) / (2 * h), atol=1e-8)


def forward(g, d):
    return lambda x: jax.jvp(g, (x,), (d,))[1]


def reverse(g, d):
    return lambda x: jnp.sum(jax.grad(g)(x) * d)


ROTATION = np.array([[0.8, -0.6], [0.6, 0.8]])
WEIGHT = np.array([[0.3, -1.2], [0.7, 0.4]])
DIRECTIONS = [np.array([[1.0, 0.5], [-0.2, 0.3]]), WEIGHT.T, np.array([[0.1, -1.0], [0.4, 0.9]])]


def both_factors(a):
    unitary, posdef = polar(a)
    return jnp.sum(WEIGHT * unitary) + jnp.sum(WEIGHT * (posdef @ unitary))


@functools.cache
def expected_third_derivative():
    def left_and_unitary(x):
        w, p = precise_polar(x)
        return w, p * w

    return sum(
        np.sum(WEIGHT * y).real for y in precise_differences(left_and_unitary, ROTATION, DIRECTIONS)
    )


@pytest.mark.parametrize("modes", list(itertools.product((forward, reverse), repeat=3)))
def test_every_nesting_of_modes_to_third_order_is_exact_at_a_rotation(modes):
    g = both_factors
    for mode, d in zip(modes, DIRECTIONS, strict=True):
        g = mode(g, d)
    assert abs(jax.jit(g)(ROTATION) / expected_third_derivative() - 1) < 1e-12


def test_second_derivatives_through_a_scan_are_those_of_the_unrolled_loop():
    step = lambda x: polar(x)[1] + x @ x  # noqa: E731

    def scanned(x):
        return jnp.sum(WEIGHT * lax.scan(lambda c, _: (step(c), None), x, length=2)[0])

    def unrolled(x):
        return jnp.sum(WEIGHT * step(step(x)))

    a, e = np.array([[0.5, 0.1], [-0.3, 0.4]]), DIRECTIONS[0]
    expected = jax.jit(forward(forward(unrolled, e), e))(a)
    for mode in (forward, reverse):
        assert abs(jax.jit(mode(reverse(scanned, e), e))(a) / expected - 1) < 1e-12


def test_vmap_and_batches_agree_with_single_matrices(rng):
    stack = gaussian(rng, 3, 2, 4)

    def loss(a):
        unitary, posdef = polar(a)
        return jnp.sum(jnp.abs(unitary + 1) ** 2) + jnp.sum(jnp.abs(posdef) ** 4)

    gradient = jax.jit(jax.grad(loss))
    singles = np.stack([gradient(a) for a in stack])
    np.testing.assert_allclose(gradient(stack), singles, rtol=1e-11)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(loss)))(stack), singles, rtol=1e-11)


def test_rotation_that_aligns_two_point_sets_has_the_right_gradient(rng):
    # Kabsch: W = argmax tr(W^T A); its value tr(P) has the gradient W, by the envelope theorem.
    a = gaussian(rng, 3, 3, dtype=float)
    gradient = jax.jit(jax.grad(lambda x: jnp.trace(polar(x)[1])))(a)
    np.testing.assert_allclose(gradient, scipy.linalg.polar(a)[0], atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_single_precision_keeps_its_digits_at_repeated_singular_values(dtype, rng):
    a, e = with_singular_values(rng, 3, [1.0, 1.0, 2.0], dtype), gaussian(rng, 3, 3, dtype=dtype)
    both = jax.jit(lambda a, e: jax.jvp(polar, (a,), (e,)))
    wide = np.complex128 if np.issubdtype(dtype, np.complexfloating) else np.float64
    computed, exact = both(a, e), both(a.astype(wide), e.astype(wide))
    for x, y in zip(jax.tree.leaves(computed), jax.tree.leaves(exact), strict=True):
        assert x.dtype == dtype
        assert relative(x, y) < 5e-6


def test_ill_conditioned_matrix_keeps_the_digits_of_its_tangents(rng):
    a = with_singular_values(rng, 3, [1.0, 0.5, 1e-9], float)
    e = gaussian(rng, 3, 3, dtype=float)
    expected = precise_differences(precise_polar, a, [e])
    for x, y in zip(jax.jit(along(polar, e))(a), expected, strict=True):
        assert relative(x, y.real) < 1e-12


# Rank-deficient matrices --------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["qdwh", "svd"])
@pytest.mark.parametrize("rows", [3, 4])
def test_unitary_factor_of_a_singular_matrix_refuses_a_derivative(rows, method, rng):
    a, e = with_singular_values(rng, rows, [2.0, 1.0, 0.0], float), gaussian(rng, rows, 3)
    factors = functools.partial(polar, method=method)
    assert np.all(np.isnan(jax.jvp(factors, (a,), (e.real,))[1][0]))
    assert np.all(np.isnan(jax.grad(lambda x: jnp.sum(factors(x)[0]))(a)))


@pytest.mark.parametrize("method", ["qdwh", "svd"])
@pytest.mark.parametrize("rows", [3, 4])
def test_positive_factor_of_a_singular_matrix_has_the_derivatives_that_exist(rows, method, rng):
    a = with_singular_values(rng, rows, [2.0, 1.0, 0.0], float)
    weight = gaussian(rng, 3, 3, dtype=float)

    def through_square(x):  # P^2 = A^T A is smooth, P is not
        posdef = polar(x, method=method)[1]
        return jnp.sum(weight * (posdef @ posdef))

    expected = jax.grad(lambda x: jnp.sum(weight * (x.T @ x)))(a)
    np.testing.assert_allclose(jax.jit(jax.grad(through_square))(a), expected, atol=1e-13)
    assert np.any(np.isnan(jax.jit(jax.hessian(through_square))(a)))


def test_nuclear_norm_of_a_singular_matrix_has_a_subgradient(rng):
    a = with_singular_values(rng, 3, [2.0, 1.0, 0.0], float)
    for method in ("qdwh", "svd"):
        slope = jax.grad(lambda x, m=method: jnp.trace(polar(x, method=m)[1]))(a)
        for _ in range(20):
            b = a + gaussian(rng, 3, 3, dtype=float)
            rise = np.linalg.norm(b, "nuc") - np.linalg.norm(a, "nuc")
            assert rise >= np.sum(slope * (b - a)) - 1e-12


def test_tangent_comes_from_the_rule_and_not_from_the_method():
    # JAX differentiates the singular vectors of method="svd" to NaN at equal singular values.
    through_jax = jax.grad(lambda a: jnp.sum(WEIGHT * jax.scipy.linalg.polar(a, method="svd")[0]))
    assert not np.all(np.isfinite(through_jax(jnp.eye(2))))
    gradient = jax.grad(lambda a: jnp.sum(WEIGHT * polar(a, method="svd")[0]))
    np.testing.assert_allclose(gradient(jnp.eye(2)), (WEIGHT - WEIGHT.T) / 2, atol=1e-15)
