"""Determinants: exact differences of a polynomial, closed forms, both modes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg import linalg
from difflinalg._core import tolerances
from difflinalg._dense.det import cofactors_by_svd, det_cofactors_in_blocks, lifted

DTYPES = [jnp.float32, jnp.float64, jnp.complex64, jnp.complex128]
N = 6
RANKS = [N, N - 1, N - 2, N - 3, 1, 0]


def random_array(seed, shape, dtype=np.float64):
    return np.asarray(jax.random.normal(jax.random.key(seed), shape, dtype))


def with_ranks(n, ranks, dtype):
    """One matrix of each rank, with exactly representable zeros only where the rank is 0."""
    u, s, vh = np.linalg.svd(random_array(1, (len(ranks), n, n), dtype))
    s = np.where(np.arange(n) < np.array(ranks)[:, None], s, 0.0)
    return ((u * s[:, None]) @ vh).astype(dtype)


def double(x):
    return np.asarray(x, np.complex128 if np.iscomplexobj(x) else np.float64)


def cofactors(a):
    """The gradient: det is affine in each entry, so that differences of any step are exact."""
    gradient = np.zeros_like(a)
    for index in np.ndindex(*a.shape):
        step = np.zeros_like(a)
        step[index] = 1.0
        gradient[index] = (np.linalg.det(a + step) - np.linalg.det(a - step)) / 2
    return gradient


def taylor(a, d, orders):
    """Derivatives of `det(a + t d)` at 0: it is a polynomial of t, known from n + 1 values."""
    n = a.shape[-1]
    t = np.exp(2j * np.pi * np.arange(n + 1) / (n + 1))
    values = np.linalg.det(a + t[:, None, None] * d)
    coefficients = np.fft.fft(values) / (n + 1)
    return [coefficients[k] * np.prod(np.arange(1.0, k + 1)) for k in range(orders + 1)]


def along(f, a, d, order):
    g = lambda t: f(a + t * d)  # noqa: E731
    for _ in range(order):
        g = (lambda inner: lambda t: jax.jvp(inner, (t,), (jnp.ones_like(t),))[1])(g)
    return g(jnp.zeros((), a.real.dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [3, 4, N])
def test_gradient_is_the_matrix_of_cofactors_at_every_rank(n, dtype):
    a = with_ranks(n, [max(n - k, 0) for k in range(4)], dtype)
    gradient = jax.jit(jax.vmap(jax.grad(linalg.det, holomorphic=np.iscomplexobj(a))))(a)
    expected = np.stack([cofactors(double(x)) for x in a])
    rtol = 1e-4 if jnp.finfo(dtype).bits == 32 else 1e-12
    assert gradient.dtype == dtype
    np.testing.assert_allclose(gradient, expected, atol=rtol * np.max(np.abs(expected)))


@pytest.mark.parametrize(("dtype", "orders"), [(np.float64, 4), (np.complex128, 3)])
def test_derivatives_along_a_line_are_those_of_the_polynomial_at_every_rank(dtype, orders):
    a, d = with_ranks(N, RANKS, dtype), random_array(2, (N, N), dtype)

    @jax.jit
    @jax.vmap
    def got(x):
        return [along(linalg.det, x, d, order) for order in range(orders)]

    expected = np.array([taylor(x, d, orders) for x in a]).T
    for order in range(orders):
        np.testing.assert_allclose(got(a)[order], expected[order], atol=1e-10)


def test_fifth_derivative_is_that_of_the_polynomial_where_all_or_all_but_one_values_vanish():
    """The first order that sees more than four vanishing singular values."""
    a, d = with_ranks(N, [1, 0], np.float64), random_array(2, (N, N))
    got = jax.jit(jax.vmap(lambda x: along(linalg.det, x, d, 5)))(a)
    expected = [taylor(x, d, 5)[5].real for x in a]
    assert abs(expected[0]) > 100.0
    np.testing.assert_allclose(got, expected, atol=1e-12 * abs(expected[0]))


def test_zeros_are_lifted_further_for_every_order_above_the_fifth():
    values = jnp.array([2.0, 0.0])
    lift = lambda a: lifted(values * a / a, a, 0)  # noqa: E731
    first, fifth = (along(lift, jnp.float64(1.0), 1.0, k) for k in (0, 5))
    np.testing.assert_allclose(first, [2.0, 2.0 * np.finfo(float).eps])
    np.testing.assert_array_equal(fifth, 0.0)
    eps = np.finfo(float).eps
    lifts = [tolerances.lift_rtol(np.float64, k) for k in (-1, 0, 1, 2)]
    assert lifts == [eps, eps, eps**0.5, eps ** (1 / 3)]


def test_hessian_is_exact_in_all_nestings():
    @jax.jit
    def nestings(x):
        outer_inner = [(jax.jacfwd, jax.grad), (jax.jacrev, jax.jacfwd), (jax.jacrev, jax.grad)]
        return [outer(inner(linalg.det))(x) for outer, inner in outer_inner]

    for values in ([1.0, 2.0, 3.0, 4.0, 5.0], [0.0, 0.0, 1.0, 1.0, 2.0], [0.0, 2.0, 2.0, 2.0, 3.0]):
        # d2 det / da_ii da_jj = - d2 det / da_ij da_ji = the product of the others.
        expected = np.zeros((5, 5, 5, 5))
        for i, j in np.ndindex(5, 5):
            if i != j:
                others = np.prod(np.delete(values, [i, j]))
                expected[i, i, j, j], expected[i, j, j, i] = others, -others
        for hessian in nestings(np.diag(values)):
            np.testing.assert_allclose(hessian, expected, atol=1e-12 * np.max(values) ** 3)


def test_cofactors_from_blocks_and_from_the_svd_agree():
    a = with_ranks(N, RANKS, np.complex128)
    value, adjugate = jax.jit(det_cofactors_in_blocks)(a)
    np.testing.assert_allclose(value, np.linalg.det(a), atol=1e-12)
    np.testing.assert_allclose(adjugate, cofactors_by_svd(a), atol=1e-12)


def test_singular_matrix_hides_in_a_stack_and_under_vmap():
    a = np.stack([np.eye(5), np.diag([0.0, 1.0, 2.0, 3.0, 4.0])])
    expected = np.stack([np.eye(5), np.diag([24.0, 0.0, 0.0, 0.0, 0.0])])
    by_stack = jax.grad(lambda x: jnp.sum(linalg.det(x)))(a)
    np.testing.assert_allclose(by_stack, expected, atol=1e-13)
    nested = jax.vmap(jax.vmap(jax.grad(linalg.det)), 1)(a[:, None])
    np.testing.assert_allclose(nested[0], expected, atol=1e-13)


def test_gradient_does_not_underflow_where_the_determinant_does():
    a = jnp.diag(jnp.array([1e-30, 1e-20, 1e-2, 1e2, 1.0], jnp.float32))
    gradient = jax.grad(linalg.det)(a)
    np.testing.assert_allclose(gradient[0, 0], 1e-20, rtol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_slogdet_agrees_with_numpy_and_its_gradient_with_the_inverse(n, dtype):
    a = random_array(3, (2, n, n), dtype)
    sign, log = linalg.slogdet(a)
    expected = np.linalg.slogdet(double(a))
    rtol = 2e-4 if jnp.finfo(dtype).bits == 32 else 1e-12
    assert sign.dtype == dtype
    assert log.dtype == a.real.dtype
    np.testing.assert_allclose(sign, expected.sign, atol=rtol)
    np.testing.assert_allclose(log, expected.logabsdet, atol=rtol)
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(linalg.slogdet(x)[1])))(a)
    inverse = np.swapaxes(np.linalg.inv(double(a)), -1, -2)
    np.testing.assert_allclose(gradient, inverse, atol=rtol * np.max(np.abs(inverse)))


def test_hessian_and_phase_of_slogdet_are_those_of_the_inverse():
    a, d = random_array(4, (4, 4), np.complex128), random_array(5, (4, 4), np.complex128)
    t = lambda x: np.linalg.solve(x, d)  # noqa: E731
    slope = np.trace(t(a))
    curvature = -np.trace(t(a) @ t(a))

    @jax.jit
    def got(x):
        slope = jax.grad(lambda y: linalg.slogdet(y)[1])
        second = jax.jvp(lambda y: jnp.sum(slope(y) * d), (x,), (d,))[1]
        return jax.jvp(linalg.slogdet, (x,), (d,))[1], second

    (turn, log_dot), second = got(a)
    np.testing.assert_allclose(log_dot, slope.real, rtol=1e-12)
    np.testing.assert_allclose(turn, 1j * slope.imag * np.linalg.slogdet(a).sign, rtol=1e-12)
    np.testing.assert_allclose(second.real, curvature.real, rtol=1e-12)


def test_slogdet_of_singular_and_tiny_matrices():
    for method in ("lu", "qr"):
        sign, log = linalg.slogdet(jnp.zeros((3, 3)), method=method)
        assert (float(sign), float(log)) == (0.0, -np.inf)
    assert not np.any(np.isfinite(jax.grad(lambda x: linalg.slogdet(x)[1])(jnp.zeros((3, 3)))))
    tiny = linalg.slogdet(1e-30 * jnp.eye(2, dtype=jnp.float32))
    np.testing.assert_allclose(tiny.logabsdet, 2 * np.log(1e-30), rtol=1e-6)


@pytest.mark.parametrize("f", [linalg.det, linalg.slogdet])
def test_empty_and_wrong_arguments(f):
    value = jax.tree.leaves(f(jnp.zeros((2, 0, 0))))
    np.testing.assert_array_equal(value[0], [1.0, 1.0])
    assert jax.tree.leaves(f(jnp.array([[2]])))[0].dtype == jnp.float64
    for wrong in (jnp.zeros(3), jnp.zeros((2, 3))):
        with pytest.raises(ValueError, match=r"shape \("):
            f(wrong)
    with pytest.raises(ValueError, match="method"):
        linalg.slogdet(jnp.eye(2), method="svd")
