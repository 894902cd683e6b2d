"""Series of singular value decompositions, at any rank, and their truncations."""

from functools import partial, reduce

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import adjoint, close, diagonal, function_series, herm, identity, random_series, times

from difflinalg import linalg, taylor
from difflinalg._dense.truncation import truncation
from difflinalg._taylor.singular import svd_series
from difflinalg._taylor.truncated import eigh_trunc_series, svd_trunc_series

K = 4
SPECTRA = {
    "distinct": [2.5, 1.6, 1.0, 0.4],
    "double": [2.0, 2.0, 1.0, 0.4],
    "double zero": [2.0, 1.0, 0.0, 0.0],
    "double and zero": [2.0, 1.0, 1.0, 0.0],
}

svd = jax.jit(lambda a, full: svd_series(a, full, 0, None), static_argnums=1)


def matrix(seed, shape, s, dtype):
    """A random series that starts with the singular values `s`."""
    a = random_series(seed, K, shape, dtype)
    u, _, vh = np.linalg.svd(a[0], full_matrices=False)
    a[0] = (u * np.asarray(s[: min(shape)])) @ vh
    return a


def check(a, full, rtol=1e-10):
    u, s, vh = (np.asarray(x) for x in svd(a, full))
    rank = s.shape[-1]
    size = max(np.max(np.abs(x)) for x in (u, s, vh)) ** 2
    close(times(u[..., :rank], diagonal(s), vh[:, :rank]), a, rtol * max(size, 1.0))
    for q in (u, adjoint(vh)):
        close(times(adjoint(q), q), identity(K, q.shape[-1]), rtol * max(size, 1.0))
    return u, s, vh


@pytest.mark.parametrize(("shape", "full"), [((4, 4), True), ((5, 3), True), ((3, 5), False)])
def test_factors_are_unitary_and_rebuild_the_series_at_any_spectrum(shape, full):
    for dtype in (float, complex):
        for seed, s in enumerate(SPECTRA.values()):
            check(matrix(seed, shape, s, dtype), full)


def test_singular_values_that_stay_zero():
    for shape in ((4, 4), (5, 3)):
        left, right = (
            random_series(seed, K, size, complex)
            for seed, size in enumerate([(shape[0], 1), (1, shape[1])])
        )
        _, s, _ = check(times(left, right), True)
        np.testing.assert_array_equal(s[:, 1:], 0.0)
        left[0] = 0.0
        _, s, _ = check(times(left, right), True)
        np.testing.assert_array_equal(s[:, 1:], 0.0)
        np.testing.assert_allclose(s[1, 0], np.linalg.norm(left[1]) * np.linalg.norm(right[0]))


def test_the_polar_factor_agrees_with_the_block_toeplitz_sign_function():
    """`U V^H` of a regular matrix, from `A (A^H A)^(-1/2)` of the block Toeplitz matrix."""
    a = matrix(3, (4, 4), SPECTRA["double"], complex)
    u, _, vh = svd(a, False)
    gram = times(adjoint(a), a)

    def inverse_root(x):
        y, z = x, np.eye(len(x))  # Denman and Beavers
        for _ in range(40):
            y, z = (y + np.linalg.inv(z)) / 2, (z + np.linalg.inv(y)) / 2
        return z

    close(times(np.asarray(u), np.asarray(vh)), times(a, function_series(gram, inverse_root)), 1e-9)


def test_first_order_is_the_rule_of_svd():
    a = random_series(5, 1, (5, 3), complex)
    primals, tangents = jax.jvp(lambda x: tuple(linalg.svd(x)), (a[0],), (a[1],))
    for x, x_dot, series in zip(primals, tangents, svd(jnp.asarray(a), True), strict=True):
        np.testing.assert_allclose(series[0], x, atol=1e-13)
        np.testing.assert_allclose(series[1], x_dot, atol=1e-12)


# Truncations.

RANK, M, N = 3, 14, 12


def decaying(seed, s, dtype):
    """A series whose first coefficient dominates, with the leading values `s`."""
    a = 0.1 * random_series(seed, K, (M, N), dtype)
    u, _, vh = np.linalg.svd(a[0], full_matrices=False)
    a[0] = (u * np.concatenate([s, 0.5 * 0.8 ** np.arange(N - len(s))])) @ vh
    return a


@partial(jax.jit, static_argnums=1)
def svd_trunc(factors, full):
    spec = truncation("svd_trunc", RANK, N, full, False, None)
    product = reduce(jnp.matmul, [factor[0] for factor in factors])
    return svd_trunc_series(factors, product if len(factors) > 1 else None, spec, 0)[0]


@partial(jax.jit, static_argnums=(1, 2))
def eigh_trunc(a, full, which):
    spec = truncation("eigh_trunc", RANK, N, full, False, None)
    return eigh_trunc_series(a, spec, which, 0)[0]


def test_truncated_svd_keeps_what_the_full_series_has():
    for seed, s in enumerate(([3.0, 2.0, 1.0], [2.0, 2.0, 1.0], [1.0, 1.0, 1.0])):
        for dtype, full in ((float, False), (complex, True)):
            a = decaying(seed, s, dtype)
            u, w, vh = (np.asarray(x) for x in svd(a, False))
            u, w, vh = u[..., :RANK], w[..., :RANK], vh[:, :RANK]
            expected = times(u, diagonal(w), vh)
            kept = svd_trunc((jnp.asarray(a),), full)
            ku, kv = (adjoint(np.asarray(x)) for x in (kept.uh, kept.vh))
            # A V V^H is the truncation also where V is not turned inside of a cluster.
            close(times(a, kv, adjoint(kv)), expected, 1e-10)
            close(times(ku, adjoint(ku)), times(u, adjoint(u)), 1e-10)
            if seed == 0:
                close(kept.s, w, 1e-10)


def test_truncated_svd_of_a_product_of_factors():
    left, right = random_series(1, K, (M, N)), decaying(2, [3.0, 2.0, 1.0], float)[:, :N]
    whole = svd_trunc((jnp.asarray(times(left, right)),), True)
    factored = svd_trunc((jnp.asarray(left), jnp.asarray(right)), True)
    for x, y in zip(whole, factored, strict=True):
        close(np.abs(x), np.abs(y), 1e-8)


def test_a_series_of_a_product_of_factors_can_be_differentiated():
    left, right = random_series(3, 1, (M, N)), random_series(4, 1, (N, N))

    def second(decompose):
        def curvature(scale):
            def loss(t):
                x, y = left[0] + t * scale * left[1], right[0] + scale**2 * t * right[1]
                u, core, vh, _ = decompose(x, y)
                return jnp.sum(jnp.sin(u @ core @ vh))

            return taylor.derivatives(loss, jnp.zeros(()), 2)[2]

        return curvature

    of_product = second(lambda x, y: linalg.svd_trunc(x @ y, RANK, full=True, core=True))
    of_factors = second(lambda x, y: linalg.svd_trunc((x, y), RANK, full=True, core=True))
    for f in (jax.grad, lambda f: jax.jacfwd(jax.grad(f)), jax.jacfwd):
        want = f(of_product)(jnp.asarray(0.7))
        np.testing.assert_allclose(f(of_factors)(jnp.asarray(0.7)), want, rtol=1e-8)
    want = taylor.derivatives(of_product, jnp.asarray(0.7), 2)
    np.testing.assert_allclose(taylor.derivatives(of_factors, jnp.asarray(0.7), 2), want, rtol=1e-8)


def test_truncated_eigh_keeps_what_the_full_series_has():
    for dtype, full, which in ((float, False, "LM"), (complex, True, "LA")):
        for seed, s in enumerate(([3.0, -2.0, 1.0], [2.0, 2.0, 1.0])):
            a = 0.1 * herm(random_series(seed, K, (N, N), dtype))
            _, q = np.linalg.eigh(a[0])
            w = np.concatenate([s, 0.5 * (-0.8) ** np.arange(N - RANK)])
            a[0] = (q * w) @ adjoint(q)
            kept = eigh_trunc(jnp.asarray(a), full, which)
            v = np.asarray(kept.v)
            core = times(adjoint(v), a, v)
            close(times(a, v), times(v, core), 1e-9)
            close(times(adjoint(v), v), identity(K, RANK), 1e-10)
            close(kept.w, np.einsum("kii->ki", core).real, 1e-9)


def test_first_order_is_the_rule_of_the_truncations():
    a = decaying(4, [3.0, 2.0, 1.0], complex)[:2]

    def truncated(x):
        u, core, vh, _ = linalg.svd_trunc(x, RANK, full=True, core=True)
        return jnp.conj(u.T), jnp.real(jnp.diagonal(core)), vh, core

    _, tangents = jax.jvp(truncated, (a[0],), (a[1],))
    kept = svd_trunc((jnp.asarray(a),), True)
    for x_dot, series in zip(tangents, kept, strict=True):
        np.testing.assert_allclose(series[1], x_dot, atol=1e-12)


def test_a_cut_multiplet_has_no_series():
    a = decaying(5, [2.0, 1.0, 1.0, 1.0], float)
    kept = svd_trunc((jnp.asarray(a),), True)
    assert np.all(np.isnan(kept.uh[1:, 1:]))
