"""Series of eigendecompositions: block Toeplitz matrices, contour integrals, known families."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import (
    adjoint,
    close,
    diagonal,
    exp_scalar,
    function_series,
    herm,
    identity,
    random_series,
    times,
    with_spectrum,
)

from difflinalg import linalg
from difflinalg._taylor.hermitian import eigh_series

N, K = 6, 5


@partial(jax.jit, static_argnums=1)
def eigh(a, cluster_rtol=None):
    """As `linalg.eigh` does it: of the matrix without its trace."""
    mean = jnp.trace(a, axis1=-2, axis2=-1)[..., None].real / a.shape[-1]
    w, v = eigh_series(
        a - mean[..., None] * jnp.eye(a.shape[-1]).astype(a.dtype),
        jnp.abs(mean[0]),
        0,
        cluster_rtol,
    )
    return w + mean, v


def hermitian(seed, w=None, dtype=float, order=K):
    a = herm(random_series(seed, order, (N, N), dtype))
    if w is not None:
        a[0] = with_spectrum(seed + 1, w, dtype)
    return a


def check(a, rtol=1e-10):
    """The factors diagonalise the series, and a function of the matrix has the oracle's series."""
    w, v = (np.asarray(x) for x in eigh(a))
    assert (w.dtype, v.dtype) == (a.real.dtype, a.dtype)
    close(times(v, diagonal(w), adjoint(v)), a, rtol)
    close(times(adjoint(v), v), identity(len(a) - 1, len(a[0])), rtol * np.max(np.abs(v)) ** 2)
    exp = times(v, diagonal(exp_scalar(w)), adjoint(v))
    close(exp, function_series(a), rtol)
    return w, v


SPECTRA = {
    "distinct": [0.0, 0.7, 1.5, 2.0, 3.1, 4.0],
    "double": [0.0, 1.0, 1.0, 2.0, 3.0, 4.0],
    "three and two": [0.0, 0.0, 0.0, 2.0, 3.0, 3.0],
    "a multiple of the identity": [1.0] * 6,
    "zero": [0.0] * 6,
}


@pytest.mark.parametrize("dtype", [float, complex])
def test_functions_of_the_matrix_agree_with_the_block_toeplitz_matrix(dtype):
    for seed, w in enumerate(SPECTRA.values()):
        check(hermitian(seed, w, dtype))


def test_clusters_that_split_at_second_order_or_never():
    """`A(t) = Q(t) diag(w(t)) Q(t)^H` with known eigenvalues, which coincide at t = 0."""
    w = np.zeros((K + 1, N))
    w[0] = [0.0, 1.0, 1.0, 1.0, 1.0, 2.0]
    w[1] = [0.3, 0.5, 0.5, 0.5, 1.0, 0.1]
    w[2] = [0.2, -1.0, 2.0, 2.0, 0.3, 0.4]
    for dtype in (float, complex):
        q = unitary_series(3, dtype)
        a = times(q, diagonal(w), adjoint(q))
        found, v = check(a)
        close(found, w, 1e-11)
        # The projector on the eigenvalue that splits at order 2 is known to order K - 2.
        p = times(v[:, :, 1:2], adjoint(v[:, :, 1:2]))
        exact = times(q[:, :, 1:2], adjoint(q[:, :, 1:2]))
        close(p[: K - 1], exact[: K - 1], 1e-10)


def unitary_series(seed, dtype):
    """The series of `exp(t X)` with an anti-Hermitian X."""
    x = random_series(seed, 0, (N, N), dtype)[0]
    x = (x - adjoint(x)) / 2
    q = [np.eye(N, dtype=dtype)]
    for k in range(1, K + 1):
        q.append(q[-1] @ x / k)
    return np.stack(q)


def orthogonal_family(delta):
    """The 4 x 4 family of Walter (2011) at x = 1 + t, and its eigenvalues."""
    c, s, one = np.zeros((3, K + 1))
    factorial = np.cumprod([1.0, *range(1, K + 1)])
    c[:] = [np.cos(1.0 + k * np.pi / 2) / factorial[k] for k in range(K + 1)]
    s[:] = [np.sin(1.0 + k * np.pi / 2) / factorial[k] for k in range(K + 1)]
    one[0] = 1.0
    rows = [[c, one, s, -one], [-s, -one, c, -one], [one, -s, one, c], [-one, c, one, s]]
    q = np.moveaxis(np.array(rows), -1, 0) / np.sqrt(3.0)
    w = np.zeros((K + 1, 4))
    w[:3] = [[0.5, 1.0, 1.0 + delta, 2.0], [1.0, 5.0, 5.0, 3.0], [1.0, 4.0, 4.0, 0.0]]
    return times(q, diagonal(w), adjoint(q)), w, q


def test_the_orthogonal_family_with_equal_and_nearly_equal_eigenvalues():
    for delta, rtol in ((0.0, 1e-12), (1e-13, 1e-12), (1e-9, 1e-8), (1e-6, 1e-10), (1e-3, 1e-11)):
        a, w, q = orthogonal_family(delta)
        close(times(adjoint(q), q), identity(K, 4), 1e-13)
        found, v = (np.asarray(x) for x in eigh(a))
        close(found, w, rtol)
        # The two vectors are noise where their gap is small, but the frame stays unitary.
        pair = times(v[:, :, 1:3], adjoint(v[:, :, 1:3]))
        exact = times(q[:, :, 1:3], adjoint(q[:, :, 1:3]))
        np.testing.assert_allclose(pair, exact, rtol=0, atol=1e-10)


@pytest.mark.parametrize("gap", [1e-13, 1e-9, 1e-5, 1e-3, 0.03])
def test_near_degeneracy_costs_a_smooth_function_no_more_than_dropping_the_gap(gap):
    a = hermitian(7, [0.0, 1.0, 1.0 + gap, 2.0, 3.0, 4.0])
    w, v = (np.asarray(x) for x in eigh(a))
    exp = times(v, diagonal(exp_scalar(w)), adjoint(v))
    close(exp, function_series(a), max(10.0 * min(gap, 1e-16 / gap**5), 1e-12))


def test_first_order_is_the_rule_and_order_three_nested_derivatives():
    a = hermitian(11, SPECTRA["distinct"], order=3)

    def curve(t):
        return linalg.eigh(sum(a[k] * t**k for k in range(4)))

    def derivative(f):
        return lambda t: jax.jvp(f, (t,), (jnp.ones_like(t),))[1]

    @jax.jit
    def nested(t):
        first = derivative(curve)
        return curve(t), first(t), derivative(first)(t), derivative(derivative(first))(t)

    w, v = eigh(a)
    found = nested(0.0)
    sign = np.sign(np.sum(np.asarray(found[0].eigenvectors * v[0]), axis=0))
    for k, (expected, factorial) in enumerate(zip(found, (1.0, 1.0, 2.0, 6.0), strict=True)):
        np.testing.assert_allclose(expected.eigenvalues / factorial, w[k], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(expected.eigenvectors / factorial, v[k] * sign, atol=1e-8)


def test_projectors_agree_with_contour_integrals():
    """The projector on a pair of eigenvalues, and its coefficients by Cauchy's formula."""
    a = hermitian(13, [-1.0, 1.0, 1.0, 3.0, 4.0, 5.0], complex)
    _, v = (np.asarray(x) for x in eigh(a))
    projector = times(v[:, :, 1:3], adjoint(v[:, :, 1:3]))
    z = 1.0 + np.exp(2j * np.pi * (np.arange(64) + 0.5) / 64)  # around the pair
    expected = np.zeros_like(a)
    for node in z:
        resolvent = [np.linalg.inv(node * np.eye(N) - a[0])]
        for k in range(1, K + 1):
            past = sum(a[j] @ resolvent[k - j] for j in range(1, k + 1))
            resolvent.append(resolvent[0] @ past)
        expected += np.stack(resolvent) * (node - 1.0) / 64
    close(projector, expected, 1e-10)


def test_stacks_single_precision_and_derivatives_of_a_series():
    stack = np.stack([hermitian(1, SPECTRA["distinct"]), hermitian(2, SPECTRA["double"])], axis=1)
    w, v = eigh(stack)
    for i in range(2):
        alone = eigh(stack[:, i])
        np.testing.assert_allclose(w[:, i], alone[0], atol=1e-10 * np.max(np.abs(w)))
        rebuilt = times(v[:, i], diagonal(w[:, i]), adjoint(np.asarray(v[:, i])))
        close(rebuilt, stack[:, i], 1e-9)
    single = hermitian(1, SPECTRA["double"], order=2).astype(np.float32)
    w, v = eigh(single)
    assert w.dtype == v.dtype == jnp.float32
    close(times(v, diagonal(w), adjoint(np.asarray(v))), single, 1e-4)

    a = jnp.asarray(hermitian(5, SPECTRA["distinct"]))
    d = jnp.asarray(hermitian(6))

    def value(x):
        w, v = eigh(x)
        return jnp.sum(w[3] * jnp.arange(6.0)) + jnp.sum(v[2] ** 2)

    forward = jax.jit(lambda a: jax.jvp(value, (a,), (d,))[1])(a)
    reverse = jnp.sum(jax.jit(jax.grad(value))(a) * d)
    h = 1e-5
    np.testing.assert_allclose(forward, (value(a + h * d) - value(a - h * d)) / (2 * h), rtol=1e-6)
    np.testing.assert_allclose(reverse, forward, rtol=1e-10)
