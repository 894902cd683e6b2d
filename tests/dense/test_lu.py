"""LU decomposition against SciPy, the differentiated definition, and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nested import check_nested

from difflinalg.scipy import linalg


def gaussian(rng, *shape, dtype=complex):
    x = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return (x if np.issubdtype(dtype, np.complexfloating) else x.real).astype(dtype)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)])
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_values_are_those_of_jax(shape, dtype, rng):
    a = gaussian(rng, *shape, dtype=dtype)
    for got, want in (
        (linalg.lu(a), jax.scipy.linalg.lu(a)),
        (linalg.lu(a, permute_l=True), jax.scipy.linalg.lu(a, permute_l=True)),
        (linalg.lu_factor(a), jax.scipy.linalg.lu_factor(a)),
    ):
        for x, y in zip(got, want, strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x, y)
    batch = np.stack([a, a[::-1]])
    p, lower, upper = linalg.lu(batch)
    np.testing.assert_allclose(p @ lower @ upper, batch, atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 3)])
def test_all_derivatives_are_those_of_differences(shape, rng):
    a = gaussian(rng, *shape)
    check_nested(linalg.lu, (a,), nestings=("fwd-rev", "rev-rev"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_last_pivot_may_be_zero(dtype):
    """jax-ml/jax#1356: the Schur complement of [[2, 4], [1, 2]] is zero, and smooth."""
    a = jnp.array([[2.0, 4.0], [1.0, 2.0]], dtype)
    f = lambda a: jnp.real(linalg.lu(a)[2][1, 1])  # noqa: E731
    want = np.array([[1.0, -0.5], [-2.0, 1.0]])
    np.testing.assert_allclose(jax.grad(f)(a), want, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(jax.grad(f))(jnp.stack([a, a])), [want, want], rtol=1e-6)
    # d^2 (a11 - a10 a01 / a00) along the direction of ones
    ones = jnp.ones((2, 2), dtype)
    second = jax.jvp(lambda a: jax.jvp(f, (a,), (ones,))[1], (a,), (ones,))[1]
    want = -2 * (1 / 2 - 4 / 4 - 1 / 4 + 4 / 8)
    np.testing.assert_allclose(second, want, atol=1e-5)


def test_early_zero_pivot_is_nan_and_what_does_not_depend_on_it_is_right():
    a = jnp.array([[1.0, 2.0, 3.0], [0.0, 0.0, 1.0], [0.0, 0.0, 2.0]])
    assert np.any(np.isnan(jax.grad(lambda a: linalg.lu(a)[2][2, 2])(a)))
    np.testing.assert_array_equal(
        jax.grad(lambda a: linalg.lu(a)[2][0, 1])(a), [[0, 1, 0], [0, 0, 0], [0, 0, 0]]
    )
    tall = jnp.array([[2.0, 4.0], [1.0, 2.0], [0.5, 1.0]])
    gradient = jax.grad(lambda a: linalg.lu(a)[2][1, 1])(tall)
    np.testing.assert_allclose(gradient, [[1.0, -0.5], [-2.0, 1.0], [0.0, 0.0]])
    assert np.any(np.isnan(jax.grad(lambda a: linalg.lu(a)[1][2, 1])(tall)))


def test_solution_from_factors_has_the_derivatives_of_the_solution(rng):
    a, b = gaussian(rng, 3, 3), gaussian(rng, 3, 2)

    def solve(a, b):
        return tuple(linalg.lu_solve(linalg.lu_factor(a), b, trans) for trans in (0, 2))

    for x, matrix in zip(solve(a, b), (a, a.conj().T), strict=True):
        np.testing.assert_allclose(x, np.linalg.solve(matrix, b), atol=1e-12)
    check_nested(solve, (a, b), order=1)


def test_empty_and_one_by_one_matrices_have_values_and_gradients():
    for shape in ((0, 0), (0, 2), (2, 0), (1, 1)):
        a = jnp.full(shape, 3.0)
        gradient = jax.grad(lambda a: jnp.sum(linalg.lu_factor(a)[0]))(a)
        np.testing.assert_array_equal(gradient, np.ones(shape))
        assert [x.shape for x in linalg.lu(a)] == [x.shape for x in jax.scipy.linalg.lu(a)]
    with pytest.raises(ValueError, match="lu needs a matrix"):
        linalg.lu(jnp.ones(3))
