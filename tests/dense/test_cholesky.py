"""Cholesky: both triangles, the triangle that is read, and its gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg import linalg
from difflinalg.testing import check_derivatives

DTYPES = [jnp.float32, jnp.float64, jnp.complex64, jnp.complex128]


def positive(dtype, n=3):
    x = np.asarray(jax.random.normal(jax.random.key(0), (n, n), dtype))
    return x @ np.conj(x.T) + n * np.eye(n, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_are_those_of_numpy_and_tangents_satisfy_the_identity(dtype):
    a = positive(dtype)
    d = np.asarray(jax.random.normal(jax.random.key(1), (3, 3), dtype))
    d = d + np.conj(d.T)
    rtol = 1e-5 if jnp.finfo(dtype).bits == 32 else 1e-13
    for upper in (False, True):
        factor, tangent = jax.jvp(lambda x, u=upper: linalg.cholesky(x, upper=u), (a,), (d,))
        expected = np.linalg.cholesky(a)
        np.testing.assert_allclose(factor, np.conj(expected.T) if upper else expected, rtol=rtol)
        lower, lower_dot = (np.conj(x.T) if upper else x for x in (factor, tangent))
        half = lower_dot @ np.conj(lower.T)
        np.testing.assert_allclose(half + np.conj(half.T), d, atol=20 * rtol)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("upper", [False, True])
def test_one_triangle_is_read_and_has_the_gradient(dtype, upper):
    a = positive(dtype)
    garbage = np.full_like(a, 7.0)
    read = np.triu(a) + np.tril(garbage, -1) if upper else np.tril(a) + np.triu(garbage, 1)

    def f(x):
        return linalg.cholesky(x, upper=upper, symmetrize_input=False)

    expected = np.linalg.cholesky(a)
    np.testing.assert_allclose(f(read), np.conj(expected.T) if upper else expected, rtol=1e-13)
    gradient = jax.grad(lambda x: jnp.sum(f(x)).real)(read)
    ghost = np.tril(gradient, -1) if upper else np.triu(gradient, 1)
    np.testing.assert_array_equal(ghost, 0.0)
    check_derivatives(f, (read,), order=2)


def test_symmetrised_input_stacks_and_matrices_that_are_not_positive():
    a = np.stack([positive(np.float64), 2 * positive(np.float64)])
    skewed = a + np.array([[0.0, 1, 2], [-1, 0, 3], [-2, -3, 0]])
    np.testing.assert_allclose(linalg.cholesky(skewed), np.linalg.cholesky(a), rtol=1e-12)
    gradient = jax.grad(lambda x: jnp.sum(linalg.cholesky(x)))(skewed)
    np.testing.assert_allclose(gradient, np.swapaxes(gradient, 1, 2), atol=1e-14)
    assert np.all(np.isnan(np.diagonal(linalg.cholesky(-jnp.eye(2)))))
    assert linalg.cholesky(jnp.array([[4]])).dtype == jnp.float64
    with pytest.raises(ValueError, match="square"):
        linalg.cholesky(jnp.ones((2, 3)))
