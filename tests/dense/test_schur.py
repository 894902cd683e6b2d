"""Schur and Hessenberg forms against SciPy, their definition, and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from nested import check_nested

from difflinalg._dense.hessenberg import hessenberg_tangents
from difflinalg._dense.schur import schur_tangents
from difflinalg.scipy import linalg


def gaussian(rng, *shape, dtype=complex):
    x = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return (x if np.issubdtype(dtype, np.complexfloating) else x.real).astype(dtype)


def with_pairs(rng, n=4):
    """A real matrix with two pairs of complex eigenvalues, or one and n - 2 real ones."""
    for _ in range(1000):
        a = gaussian(rng, n, n, dtype=float)
        if np.sum(np.abs(np.linalg.eigvals(a).imag) > 0.2) == (4 if n == 4 else 2):
            return a
    raise AssertionError


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_values_are_those_of_jax(dtype, rng):
    a = gaussian(rng, 2, 5, 5, dtype=dtype)
    for output in ("real", "complex"):
        for x, y in zip(
            linalg.schur(a, output), jax.scipy.linalg.schur(jnp.asarray(a), output), strict=True
        ):
            np.testing.assert_array_equal(x, y)
    for x, y in zip(
        linalg.hessenberg(a, calc_q=True),
        jax.scipy.linalg.hessenberg(a, calc_q=True),
        strict=True,
    ):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(linalg.hessenberg(a), jax.scipy.linalg.hessenberg(a))
    t, z = linalg.schur(a)
    tolerance = 200 * np.finfo(dtype).eps
    for x, y in zip(linalg.rsf2csf(t, z), jax.scipy.linalg.rsf2csf(t, z), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, atol=tolerance)


def check_identities(a, d, t, z, t_dot, z_dot, zero):
    """The product and the unitarity, differentiated; the zeros of T stay."""
    product = z_dot @ t @ z.conj().T + z @ t_dot @ z.conj().T + z @ t @ z_dot.conj().T
    np.testing.assert_allclose(product, d, atol=1e-11)
    k = z.conj().T @ z_dot
    np.testing.assert_allclose(k, -k.conj().T, atol=1e-11)
    assert np.all(t_dot[zero] == 0.0)
    np.testing.assert_allclose(z @ t @ z.conj().T, a, atol=1e-12)


@pytest.mark.parametrize("dtype", [float, complex])
def test_tangents_satisfy_the_differentiated_definitions(dtype, rng):
    a = with_pairs(rng, 5) if dtype is float else gaussian(rng, 5, 5)
    d = gaussian(rng, 5, 5, dtype=dtype)
    t, z = (np.asarray(x) for x in linalg.schur(a))
    t_dot, z_dot = (np.asarray(x) for x in schur_tangents(*map(jnp.asarray, (t, z, d))))
    check_identities(a, d, t, z, t_dot, z_dot, np.tril(t == 0.0, -1))
    for p in np.flatnonzero(np.diag(t, -1)):
        np.testing.assert_allclose(t_dot[p, p], t_dot[p + 1, p + 1], atol=1e-12)
    h, q = (np.asarray(x) for x in linalg.hessenberg(a, calc_q=True))
    h_dot, q_dot = (np.asarray(x) for x in hessenberg_tangents(*map(jnp.asarray, (h, q, d))))
    check_identities(a, d, h, q, h_dot, q_dot, np.tril(np.ones((5, 5), bool), -2))
    np.testing.assert_array_equal(q_dot[:, 0], 0.0)
    np.testing.assert_array_equal(np.diag(h_dot, -1).imag, 0.0)


def test_derivatives_of_the_real_schur_form_are_those_of_differences(rng):
    check_nested(linalg.schur, (with_pairs(rng, 3),))
    check_nested(linalg.schur, (with_pairs(rng, 4),), order=1)


def test_gauge_invariant_functions_of_the_complex_schur_form_have_all_derivatives(rng):
    def moduli(a):
        t, z = linalg.schur(a, "complex")
        return jnp.abs(t) ** 2, jnp.abs(z) ** 2, jnp.diagonal(t)

    check_nested(moduli, (gaussian(rng, 3, 3),))
    check_nested(moduli, (with_pairs(rng, 3),), order=1)


def test_departure_from_normality_has_the_gradient_of_its_closed_form(rng):
    a = gaussian(rng, 4, 4, dtype=float)

    def departure(x):
        return jnp.sum(jnp.abs(jnp.triu(linalg.schur(x, "complex")[0], 1)) ** 2)

    w, left, right = scipy.linalg.eig(a, left=True)
    overlap = np.sum(left.conj() * right, axis=0)
    # |A|^2 - sum |w|^2, with dw_i = l_i^H dA r_i / (l_i^H r_i)
    gradient = 2 * a - 2 * np.real((left.conj() * (w.conj() / overlap)) @ right.T)
    np.testing.assert_allclose(jax.grad(departure)(a), gradient, atol=1e-11)
    batch = np.stack([a, 2 * a])
    got = jax.vmap(jax.grad(departure))(batch)
    np.testing.assert_allclose(got, np.stack([gradient, 2 * gradient]), atol=1e-10)


@pytest.mark.parametrize("dtype", [float, complex])
def test_derivatives_of_the_hessenberg_form_are_those_of_differences(dtype, rng):
    f = lambda a: linalg.hessenberg(a, calc_q=True)  # noqa: E731
    check_nested(f, (gaussian(rng, 4, 4, dtype=dtype),), order=1 if dtype is float else 2)


def test_derivatives_of_the_conversion_are_those_of_differences(rng):
    t, z = linalg.schur(with_pairs(rng, 5))
    blocks = np.tril(np.asarray(t) == 0.0, -1)

    def f(t, z):
        return linalg.rsf2csf(jnp.where(blocks, 0.0, t), z)

    check_nested(f, (t, z))


def test_invariants_of_a_rotation_survive_its_arbitrary_basis():
    c, s = np.cos(0.3), np.sin(0.3)
    rotation = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 2.0]])

    def f(a):
        t, z = linalg.schur(a)
        return jnp.trace(t @ t @ t) + jnp.sum(jnp.sin(z @ t @ z.T))

    want = jax.grad(lambda a: jnp.trace(a @ a @ a) + jnp.sum(jnp.sin(a)))(rotation)
    np.testing.assert_allclose(jax.grad(f)(rotation), want, atol=1e-12)


def test_repeated_eigenvalue_is_not_finite_rather_than_wrong():
    a = jnp.array([[1.0, 1.0], [0.0, 1.0]])
    assert not np.all(np.isfinite(jax.grad(lambda a: linalg.schur(a)[0][0, 0])(a)))
    diagonal = jnp.diag(jnp.array([1.0, 2.0, 3.0]))
    f = lambda a: linalg.hessenberg(a)[2, 2]  # noqa: E731
    assert not np.all(np.isfinite(jax.grad(f)(diagonal)))


def test_empty_and_one_by_one_matrices_have_values_and_gradients():
    for n in (0, 1):
        a = jnp.full((n, n), 3.0)
        for f in (lambda a: linalg.schur(a)[0], linalg.hessenberg):
            assert jax.grad(lambda a, f=f: jnp.sum(f(a)))(a).shape == (n, n)
        assert linalg.rsf2csf(a, a)[0].shape == (n, n)
        assert linalg.hessenberg(a, calc_q=True)[1].shape == (n, n)


def test_wrong_arguments_are_refused_by_name():
    for f in (linalg.schur, linalg.hessenberg):
        with pytest.raises(ValueError, match="needs square matrices"):
            f(jnp.ones((2, 3)))
    with pytest.raises(ValueError, match="output as one of"):
        linalg.schur(jnp.eye(2), "triangular")
    with pytest.raises(ValueError, match="rsf2csf got shapes"):
        linalg.rsf2csf(jnp.eye(2), jnp.eye(3))
