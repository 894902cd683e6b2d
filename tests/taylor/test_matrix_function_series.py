"""Series of functions of matrices, against the function of the block Toeplitz matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import (
    adjoint,
    close,
    function_series,
    herm,
    identity,
    random_series,
    times,
    with_spectrum,
)

from difflinalg import linalg
from difflinalg.scipy.linalg import expm, polar, sqrtm
from difflinalg.taylor import jet

N, K = 5, 6


def series_of(f):
    """The coefficients of `f(A(t))`, through `jet`."""

    @jax.jit
    def run(a):
        value, terms = jet(f, (a[0],), (list(a[1:]),), factorial_scaled=False)
        return jax.tree.map(lambda x, own: jnp.stack([x, *own]), value, terms)

    return run


def test_expm_at_regular_zero_defective_and_large_matrices():
    run = series_of(expm)
    a = random_series(1, K, (N, N))
    nilpotent = np.triu(np.ones((N, N)), 1)
    for first in (a[0], np.zeros((N, N)), nilpotent, 20.0 * a[0] / np.linalg.norm(a[0])):
        a[0] = first
        close(run(a), function_series(a), 1e-11)


def test_expm_of_complex_matrices_and_derivatives_of_its_series():
    a, d, weight = (random_series(seed, 3, (3, 3), complex) for seed in (1, 2, 3))
    run = series_of(expm)
    close(run(a), function_series(a), 1e-12)

    def loss(x):
        return jnp.sum(jnp.real(weight * run(x)))

    gradient = jax.jit(jax.grad(loss))(jnp.asarray(a))
    forward = jax.jit(lambda x: jax.jvp(loss, (x,), (jnp.asarray(d),))[1])(jnp.asarray(a))
    h = 1e-5
    np.testing.assert_allclose(forward, (loss(a + h * d) - loss(a - h * d)) / (2 * h), rtol=1e-8)
    np.testing.assert_allclose(jnp.real(jnp.sum(gradient * d)), forward, rtol=1e-11)


def test_sqrtm_by_the_block_toeplitz_matrix():
    a = random_series(2, 3, (3, 3))
    a[0] = a[0] @ a[0].T + np.eye(3)
    root = series_of(sqrtm)(a)
    close(times(root, root), a, 1e-11)


@pytest.mark.parametrize("dtype", [float, complex])
def test_funm_hermitian_at_any_gap(dtype):
    run = series_of(lambda x: linalg.funm_hermitian(x, jnp.exp))
    for gap in (0.0, 1e-15, 1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 0.1):
        a = herm(random_series(3, K, (N, N), dtype))
        a[0] = with_spectrum(4, [0.0, 1.0, 1.0 + gap, 2.0, 3.0], dtype)
        close(run(a), function_series(a), 1e-10)


def test_funm_hermitian_of_a_function_with_a_singularity_near_the_spectrum():
    run = series_of(lambda x: linalg.funm_hermitian(x, jnp.sqrt))
    for w in ([1e-6, 2e-6, 0.1, 0.5, 1.0], [0.2] * 5, [0.01, 0.0101, 0.011, 0.5, 0.5]):
        # Coefficients as small as the eigenvalue that is nearest to the singularity.
        a = herm(random_series(5, K, (N, N))) * w[0] ** np.arange(K + 1)[:, None, None]
        a[0] = with_spectrum(6, w)
        root = np.asarray(run(a))
        size = np.max(np.abs(root), axis=(1, 2))
        scale = np.convolve(size, size)[: K + 1]
        error = np.max(np.abs(times(root, root) - a), axis=(1, 2))
        # Of each order, but no better than the rounding of the value.
        assert np.all(error <= 1e-9 * scale + 1e-13 * scale[0]), (error, scale)


def test_funm_hermitian_with_a_series_in_what_the_function_closes_over():
    a = herm(random_series(7, 3, (3, 3)))
    beta = np.array([0.5, 1.0, -0.3, 0.2])

    @jax.jit
    def run(a, beta):
        def f(a, beta):
            return linalg.funm_hermitian(a, lambda x: jnp.exp(beta * x))

        value, terms = jet(
            f, (a[0], beta[0]), (list(a[1:]), list(beta[1:])), factorial_scaled=False
        )
        return jnp.stack([value, *terms])

    scaled = times(beta[:, None, None] * np.eye(3), a)
    close(run(a, beta), function_series(scaled), 1e-12)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
def test_polar_factors_are_unitary_and_positive_also_at_equal_singular_values(shape):
    for dtype in (float, complex):
        a = random_series(8, 4, shape, dtype)
        u, s, vh = np.linalg.svd(a[0], full_matrices=False)
        s[:2] = 2.0
        a[0] = (u * s) @ vh
        w, p = (np.asarray(x) for x in series_of(lambda x: polar(x, method="svd"))(a))
        close(times(w, p), a, 1e-11)
        close(p, adjoint(p), 1e-11)
        gram = times(adjoint(w), w) if shape[0] >= shape[1] else times(w, adjoint(w))
        close(gram, identity(4, min(shape)), 1e-11 * max(1.0, np.max(np.abs(w))) ** 2)


def test_first_order_is_the_rule():
    a = random_series(9, 1, (4, 4))
    for f in (expm, polar, lambda x: linalg.funm_hermitian(x, jnp.cos)):
        value, slope = jax.jvp(f, (a[0],), (a[1],))
        found = series_of(f)(a)
        for x, x_dot, y in zip(*map(jax.tree.leaves, (value, slope, found)), strict=True):
            np.testing.assert_allclose(y[0], x, atol=1e-12)
            np.testing.assert_allclose(y[1], x_dot, atol=1e-11)
