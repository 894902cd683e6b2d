"""Inputs from public bug reports on the names of `jax.numpy.linalg` besides `svd` and `eigh`.

As in `test_issues.py`: each report with its right value, and its neighbours.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from difflinalg import linalg


def random(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def differences(f, x, h=1e-3):
    """The gradient of a real function of a real array, by differences of fourth order."""
    gradient = np.zeros_like(x)
    for index in np.ndindex(*x.shape):
        step = np.zeros_like(x)
        step[index] = h
        near, far = f(x + step) - f(x - step), f(x + 2 * step) - f(x - 2 * step)
        gradient[index] = (8 * near - far) / (12 * h)
    return gradient


# General eigendecomposition.

GENERAL = np.array([[1.0, 2.0, 0.0], [0.5, -1.0, 1.0], [0.0, 0.3, 2.0]])


def test_matrix_function_from_general_eigenvectors_has_the_frechet_derivative():
    """jax-ml/jax#2748, pytorch/pytorch#10503: eigenvectors had no rule."""
    weight = random(3, 3, 3)

    def loss(a):
        w, v = linalg.eig(a)
        return jnp.sum(weight * jnp.real((v * jnp.exp(w)) @ jnp.linalg.inv(v)))

    expected = scipy.linalg.expm_frechet(GENERAL.T, weight, compute_expm=False)
    np.testing.assert_allclose(jax.grad(loss)(GENERAL), expected, rtol=1e-10)
    np.testing.assert_allclose(jax.jvp(loss, (GENERAL,), (weight,))[1], np.sum(expected * weight))


def test_hessian_of_a_power_sum_of_eigenvalues_is_that_of_the_trace():
    """jax-ml/jax#24308: the Hessian of `sum(eigvals ** 3)`, which is `tr A^3`."""
    e = np.eye(9).reshape(9, 3, 3)
    products = np.einsum("iab,jbc->ijac", e, e)
    products = products + np.swapaxes(products, 0, 1)
    expected = 3 * np.einsum("ca,ijac->ij", GENERAL, products)
    hessian = jax.hessian(lambda a: jnp.sum(linalg.eigvals(a) ** 3).real)(GENERAL)
    np.testing.assert_allclose(hessian.reshape(9, 9), expected, atol=1e-10)


# QR.


def test_wide_qr_has_the_derivative_of_its_differences():
    """jax-ml/jax#23533, elixir-nx/nx#1810: no rule for wide matrices."""

    def loss(x, np_or_jnp, qr):
        q, r = qr(x)
        sign = np_or_jnp.sign(np_or_jnp.diagonal(r))
        y = np_or_jnp.ones(2) @ (q * sign) + (r.T * sign).T @ np_or_jnp.ones(4)
        return np_or_jnp.mean(y**2)

    wide = random(80, 2, 4)
    expected = differences(lambda x: loss(x, np, np.linalg.qr), wide)
    np.testing.assert_allclose(jax.grad(loss)(wide, jnp, linalg.qr), expected, atol=1e-9)
    stack = np.stack([wide, wide])
    mapped = jax.vmap(jax.grad(lambda x: loss(x, jnp, linalg.qr)))(stack)
    np.testing.assert_allclose(mapped[1], expected, atol=1e-9)


@pytest.mark.parametrize("a", [np.eye(4)[:, :2], random(81, 4, 2)])
def test_projector_on_the_complement_from_a_complete_qr_has_its_closed_form(a):
    """jax-ml/jax#22264, jax-ml/jax#11894: at the identity the rule divided by zero."""
    weight = random(4, 4, 4)

    def overlap(x):
        q = linalg.qr(x, mode="complete")[0]
        return jnp.sum(weight * (q[:, 2:] @ q[:, 2:].T))

    inverse = np.linalg.pinv(a)
    expected = -(np.eye(4) - a @ inverse) @ (weight + weight.T) @ inverse.T
    np.testing.assert_allclose(jax.grad(overlap)(a), expected, atol=1e-12)


def test_triangular_factor_of_a_square_matrix_has_the_derivative_of_its_differences():
    """jax-ml/jax#2863."""
    a, weight = random(82, 3, 3), random(3, 3, 3)

    def loss(x):
        r = np.linalg.qr(x)[1]
        return np.sum(weight * (r.T * np.sign(np.diag(r))).T)

    def ours(x):
        r = linalg.qr(x)[1]
        return jnp.sum(weight * (r.T * jnp.sign(jnp.diagonal(r))).T)

    np.testing.assert_allclose(jax.grad(ours)(a), differences(loss, a), atol=1e-9)


# Determinant.


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64, jnp.complex64, jnp.complex128])
@pytest.mark.parametrize("tail", [[], [5.0, 7.0]])
def test_determinant_is_smooth_at_zero_and_at_a_zero_pivot_anywhere(dtype, tail):
    """jax-ml/jax#2380, tensorflow/tensorflow#119477: cofactors of a singular matrix."""
    holomorphic = jnp.issubdtype(dtype, jnp.complexfloating)
    gradient = jax.jit(jax.grad(linalg.det, holomorphic=holomorphic))
    n = 4 + len(tail)
    np.testing.assert_array_equal(gradient(jnp.zeros((n, n), dtype)), np.zeros((n, n)))
    a = jnp.diag(jnp.array([0.0, 1.0, 2.0, 3.0, *tail])).astype(dtype)
    expected = np.zeros((n, n))
    expected[0, 0] = np.prod([1.0, 2.0, 3.0, *tail])
    np.testing.assert_allclose(gradient(a), expected, rtol=1e-5)
    # A shift: all pivots vanish but the cofactor of the corner does not.
    shift = jnp.diag(jnp.ones(n - 1, dtype), 1)
    corner = np.zeros((n, n))
    corner[n - 1, 0] = (-1.0) ** (n - 1)
    np.testing.assert_allclose(gradient(shift), corner, atol=1e-5)


@pytest.mark.parametrize("values", [[0.0, 0, 1, 1], [0.0, 0, 1, 1, 2], [3.0, 2, 1, 0, 1]])
def test_hessian_of_the_determinant_is_exact_two_ranks_below(values):
    """jax-ml/jax#2821."""
    n = len(values)
    expected = np.zeros((n, n, n, n))
    for i, j in np.ndindex(n, n):
        if i != j:
            others = np.prod(np.delete(values, [i, j]))
            expected[i, i, j, j], expected[i, j, j, i] = others, -others
    np.testing.assert_allclose(jax.hessian(linalg.det)(np.diag(values)), expected, atol=1e-13)


# Pseudo-inverse and least squares.


def test_pseudo_inverse_of_a_large_matrix_of_rank_one_has_its_closed_form():
    """pytorch/pytorch#65911: pinv(a b^T) = b a^T / (|a|^2 |b|^2)."""
    a, b, weight = random(90, 30, 1), random(91, 30, 1), random(92, 30, 30)
    norm_a, norm_b = np.sum(a**2), np.sum(b**2)
    value = (b.T @ weight @ a).item()
    expected = weight.T @ b / norm_a / norm_b - 2 * a * value / norm_a**2 / norm_b
    gradient = jax.grad(lambda x: jnp.sum(weight * linalg.pinv(x @ b.T)))(a)
    np.testing.assert_allclose(gradient, expected, atol=1e-12 * np.max(np.abs(expected)))


def test_pseudo_inverse_of_the_identity_and_with_a_cutoff():
    """jax-ml/jax#2792, and truncation above nonzero singular values."""
    weight = random(3, 3, 3)
    loss = lambda a, rtol=None: jnp.sum(weight * linalg.pinv(a, rtol))  # noqa: E731
    np.testing.assert_allclose(jax.grad(loss)(np.eye(3)), -weight, atol=1e-14)
    u, v = (np.linalg.qr(random(seed, 3, 3))[0] for seed in (102, 103))
    a = u @ np.diag([4.0, 2.0, 0.5]) @ v
    expected = differences(lambda x: np.sum(weight * np.linalg.pinv(x, rcond=0.3)), a)
    np.testing.assert_allclose(jax.grad(loss)(a, 0.3), expected, atol=1e-9)


def test_least_squares_is_smooth_at_equal_singular_values():
    """jax-ml/jax#10805, jax-ml/jax#2744: orthonormal columns, and an underdetermined system."""
    b, weight = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0])
    a = np.linalg.qr(random(110, 4, 2))[0]
    x, p = a.T @ b, np.linalg.pinv(a)
    expected = -np.outer(p.T @ weight, x) + np.outer(b - a @ x, p @ p.T @ weight)
    gradient = jax.grad(lambda y: jnp.sum(linalg.lstsq(y, b)[0] * weight))(a)
    np.testing.assert_allclose(gradient, expected, atol=1e-12)
    wide, c, d = np.eye(2, 3), np.array([1.0, 2.0]), np.array([3.0, 4.0, 5.0])
    expected = differences(lambda y: np.sum(np.linalg.pinv(y) @ c * d), wide)
    gradient = jax.grad(lambda y: jnp.sum(linalg.lstsq(y, c)[0] * d))(wide)
    np.testing.assert_allclose(gradient, expected, atol=1e-9)


def test_residual_of_least_squares_has_the_gradient_of_danskin():
    """pytorch/pytorch#147543."""
    a, b = random(112, 4, 2), np.array([1.0, 2.0, 3.0, 4.0])
    x = np.linalg.lstsq(a, b, rcond=None)[0]
    gradient = jax.grad(lambda y: jnp.sum(linalg.lstsq(y, b)[1]))(a)
    np.testing.assert_allclose(gradient, -2 * np.outer(b - a @ x, x), atol=1e-12)


def test_least_squares_follows_a_line_that_keeps_the_rank():
    """tensorflow/tensorflow#115505, jax-ml/jax#2744: NaN at rank one."""
    u, du = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.3, -0.2, 0.5, 0.1])
    b, weight = np.array([1.0, 0.0, 2.0, 1.0]), np.array([1.0, 2.0, 3.0])

    def loss(t):
        a = jnp.outer(u + t * du, np.ones(3))
        return jnp.sum(linalg.lstsq(a, b, rcond=1e-10)[0] * weight)

    # x = 1 (u . b) / (3 |u|^2)
    slope = (du @ b) / (u @ u) - 2 * (u @ b) * (u @ du) / (u @ u) ** 2
    np.testing.assert_allclose(jax.grad(loss)(0.0), slope * np.sum(weight) / 3, rtol=1e-10)
    np.testing.assert_allclose(jax.jvp(loss, (0.0,), (1.0,))[1], slope * np.sum(weight) / 3)


# Norms.


def test_norm_at_zero_has_the_least_subgradient_and_a_smooth_square():
    """jax-ml/jax#4177, jax-ml/jax#21723, HIPS/autograd#183, jax-ml/jax#26248, jax-ml/jax#3058."""
    square = lambda x: linalg.norm(x) ** 2  # noqa: E731
    np.testing.assert_array_equal(jax.grad(square)(jnp.zeros(2)), np.zeros(2))
    np.testing.assert_allclose(jax.hessian(square)(jnp.zeros(2)), 2 * np.eye(2), rtol=1e-12)
    assert jax.grad(lambda a: linalg.norm(a * jnp.zeros(2)))(1.3) == 0.0


def test_nuclear_norm_of_a_rectangular_matrix_has_the_gradient_of_its_factors():
    """patrick-kidger/equinox#904, cvxpy/cvxpy#2364, jax-ml/jax#2076."""
    wide = random(80, 2, 4)
    u, _, vh = np.linalg.svd(wide, full_matrices=False)
    for a, expected in ((wide, u @ vh), (wide.T, vh.T @ u.T)):
        gradient = jax.grad(lambda x: linalg.norm(x, "nuc"))(a)
        np.testing.assert_allclose(gradient, expected, atol=1e-13)


def test_hessian_of_the_spectral_norm_is_right_beside_repeated_lower_values():
    """Of diag(3, 1, 1): only the gap from the largest value enters."""
    a, d = np.diag([3.0, 1.0, 1.0]), random(5, 3, 3)
    curvature = jax.jvp(jax.grad(lambda x: linalg.norm(x, 2)), (a,), (d,))[1]
    h = 1e-4
    values = [np.linalg.norm(a + t * d, 2) for t in (-2 * h, -h, 0.0, h, 2 * h)]
    expected = np.dot([-1, 16, -30, 16, -1], values) / (12 * h * h)
    np.testing.assert_allclose(np.sum(curvature * d), expected, rtol=1e-6)
