"""Matrix algebra that every rule shares."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg._core.algebra import adjoint_mm, lower_triangular_inverse, mm, mm_adjoint


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64, jnp.complex128])
@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 16, 17, 40, 64, 100])
def test_inverse_of_a_lower_triangle(n, dtype):
    gram = jax.random.normal(jax.random.key(n), (n, n + 5), dtype)
    lower = np.linalg.cholesky(gram @ gram.conj().T)
    inverse = lower_triangular_inverse(jnp.asarray(lower))
    assert inverse.dtype == dtype
    bound = 50 * jnp.finfo(dtype).eps * np.linalg.cond(lower) if n else 0.0
    np.testing.assert_allclose(inverse @ lower, np.eye(n), rtol=0, atol=bound)
    np.testing.assert_array_equal(np.triu(inverse, 1), np.zeros((n, n)))


@pytest.mark.parametrize("left", [jnp.float64, jnp.complex128])
@pytest.mark.parametrize("right", [jnp.float64, jnp.complex128])
def test_products_with_adjoints(left, right):
    x = jax.random.normal(jax.random.key(1), (2, 4, 3), left)
    y = jax.random.normal(jax.random.key(2), (3, 5), right)
    expected = np.asarray(x) @ np.asarray(y)
    for found in (
        mm(x, y),
        mm_adjoint(x, y.conj().T),
        adjoint_mm(jnp.conj(jnp.swapaxes(x, -1, -2)), y),
    ):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)
