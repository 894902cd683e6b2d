"""Functions given by a function of numbers, against SciPy, other routes, and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from nested import check_nested

from difflinalg.scipy import linalg


def gaussian(rng, *shape):
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def test_value_and_error_estimate_are_those_of_jax(rng):
    a = rng.normal(size=(4, 4)) + 3 * np.eye(4)
    f = lambda x: jnp.sin(x) + 2 * jnp.sqrt(x)  # noqa: E731
    want, estimate = jax.scipy.linalg.funm(a, f, disp=False)
    value, error = linalg.funm(a, f, disp=False)
    assert value.dtype == want.dtype
    np.testing.assert_allclose(value, want, rtol=1e-11)
    np.testing.assert_allclose(error, estimate, rtol=1e-3)
    batch = linalg.funm(np.stack([a, 2 * a]), jnp.exp)
    for x, matrix in zip(batch, (a, 2 * a), strict=True):
        np.testing.assert_allclose(x, scipy.linalg.expm(matrix), rtol=1e-10, atol=1e-9)


def test_all_derivatives_are_those_of_differences_also_for_what_the_function_closes_over(rng):
    f = lambda a, s: linalg.funm(a, lambda x: jnp.exp(s * x))  # noqa: E731
    check_nested(f, (gaussian(rng, 3, 3), 0.7 + 0.1j), nestings=("fwd-rev",))


def test_gradient_is_that_of_the_exponential_where_eigenvalues_coincide(rng):
    weight = rng.normal(size=(4, 4))
    q = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    loss = lambda a: jnp.sum(weight * linalg.funm(a, jnp.exp).real)  # noqa: E731
    gradient = jax.jit(jax.grad(loss))
    for a in (
        np.diag([1.0, 1.0, 1.0, 2.0]),
        np.eye(4),
        np.diag([1.0, 2.0, 2.0, 3.0]) + np.diag([1.0, 0.0, 1.0], 1),
        q @ np.diag([1.0, 1.0, 2.0, 2.0]) @ q.T,
    ):
        want = scipy.linalg.expm_frechet(a.T, weight, compute_expm=False)
        np.testing.assert_allclose(gradient(a), want, atol=2e-6)


def test_coupled_eigenvalues_have_a_value_in_pairs_and_are_nan_beyond():
    pair = jnp.array([[1.0, 1.0], [0.0, 1.0]])
    np.testing.assert_allclose(linalg.funm(pair, jnp.exp), np.e * pair, rtol=2e-7, atol=1e-12)
    assert np.all(np.isnan(jax.grad(lambda a: linalg.funm(a, jnp.exp)[0, 1].real)(pair)))
    triple = jnp.eye(3) + jnp.diag(jnp.ones(2), 1)
    assert np.all(np.isnan(linalg.funm(triple, jnp.exp)))


def test_empty_and_wrong_arguments():
    assert linalg.funm(jnp.zeros((0, 0)), jnp.exp).shape == (0, 0)
    np.testing.assert_allclose(linalg.funm(jnp.zeros((1, 1)), jnp.exp), 1.0)
    with pytest.raises(ValueError, match="funm needs square matrices"):
        linalg.funm(jnp.ones((2, 3)), jnp.exp)
