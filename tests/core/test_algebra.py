"""Matrix algebra that every rule shares."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg._core.algebra import lower_triangular_inverse


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
