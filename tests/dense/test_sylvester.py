"""Sylvester and Lyapunov equations against SciPy, their definition, and differences."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from nested import check_nested

from difflinalg.scipy import linalg


def gaussian(rng, *shape, dtype=complex):
    x = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return (x if np.issubdtype(dtype, np.complexfloating) else x.real).astype(dtype)


def stable(rng, n, dtype=complex):
    """A matrix whose eigenvalues are well inside of the unit disc."""
    a = gaussian(rng, n, n, dtype=dtype)
    return (0.6 * a / np.max(np.abs(np.linalg.eigvals(a)))).astype(dtype)


def tolerance(dtype):
    return 2e-4 if np.finfo(dtype).bits == 32 else 1e-11


@pytest.mark.parametrize("method", ["schur", "eigen"])
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_sylvester_solution_is_that_of_scipy_with_batches_broadcast(dtype, method, rng):
    a, b = gaussian(rng, 2, 1, 3, 3, dtype=dtype), gaussian(rng, 4, 4, dtype=dtype)
    c = gaussian(rng, 3, 3, 4, dtype=dtype)
    x = linalg.solve_sylvester(a, b, c, method=method)
    assert x.dtype == dtype
    assert x.shape == (2, 3, 3, 4)
    for i, j in np.ndindex(2, 3):
        want = scipy.linalg.solve_sylvester(a[i, 0], b, c[j])
        np.testing.assert_allclose(x[i, j], want, atol=10 * tolerance(dtype) * np.abs(want).max())


@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
def test_lyapunov_solutions_are_those_of_scipy(dtype, rng):
    a, q = stable(rng, 4, dtype), gaussian(rng, 2, 4, 4, dtype=dtype)
    for name in ("solve_continuous_lyapunov", "solve_discrete_lyapunov"):
        x = getattr(linalg, name)(a, q)
        want = np.stack([getattr(scipy.linalg, name)(a, part) for part in q])
        assert x.dtype == dtype
        np.testing.assert_allclose(x, want, atol=10 * tolerance(dtype) * np.abs(want).max())
    assert linalg.solve_lyapunov is linalg.solve_continuous_lyapunov


def test_all_derivatives_of_sylvester_are_those_of_differences(rng):
    a, b = gaussian(rng, 3, 3), gaussian(rng, 2, 2)
    args = (a + 4 * np.eye(3), b, gaussian(rng, 3, 2))
    check_nested(linalg.solve_sylvester, args)


@pytest.mark.parametrize("name", ["solve_continuous_lyapunov", "solve_discrete_lyapunov"])
def test_all_derivatives_of_lyapunov_are_those_of_differences(name, rng):
    a, q = stable(rng, 3) + 0.3 * np.eye(3), gaussian(rng, 3, 3)
    check_nested(getattr(linalg, name), (a, q))
    check_nested(getattr(linalg, name), (a.real, q.real), order=1)


@functools.cache
def weighted_gradient(method):
    def loss(a, b, c, w):
        return jnp.sum(w * linalg.solve_sylvester(a, b, c, method=method))

    return jax.jit(jax.grad(loss, argnums=(0, 1, 2)))


@pytest.mark.parametrize("method", ["schur", "eigen"])
def test_gradient_is_the_closed_form_also_where_eigenvalues_repeat(method, rng):
    """jax-ml/jax#6089, jax-ml/jax#28810: with `A^T Y + Y B^T = W` it is `-Y X^T`, `-X^T Y`, `Y`."""
    b, c, w = gaussian(rng, 3, 3, dtype=float), *gaussian(rng, 2, 3, 3, dtype=float)
    for a in (gaussian(rng, 3, 3, dtype=float) + 4 * np.eye(3), np.diag([5.0, 5.0, 6.0])):
        x = scipy.linalg.solve_sylvester(a, b + 4 * np.eye(3), c)
        y = scipy.linalg.solve_sylvester(a.T, b.T + 4 * np.eye(3), w)
        got = weighted_gradient(method)(a, b + 4 * np.eye(3), c, w)
        for x_bar, want in zip(got, (-y @ x.T, -x.T @ y, y), strict=True):
            np.testing.assert_allclose(x_bar, want, atol=1e-12)


def test_defective_coefficients_are_no_obstacle(rng):
    jordan, c = np.array([[2.0, 1.0], [0.0, 2.0]]), gaussian(rng, 2, 2, dtype=float)
    check_nested(lambda a: linalg.solve_sylvester(a, a, c), (jordan,), order=1)


def test_singular_equation_is_nan_with_a_nan_gradient():
    a, c = jnp.diag(jnp.array([1.0, 2.0])), jnp.ones((2, 2))
    assert np.all(np.isnan(linalg.solve_sylvester(a, -a, c)))
    for gradient in jax.grad(lambda a, c: jnp.sum(linalg.solve_sylvester(a, -a, c)), (0, 1))(a, c):
        assert np.any(np.isnan(gradient))


def test_second_derivative_survives_reverse_mode_through_a_scan(rng):
    a, d = stable(rng, 2, float), gaussian(rng, 2, 2, dtype=float)

    def loss(a):
        def step(x, _):
            return linalg.solve_discrete_lyapunov(0.5 * a, x), None

        return jnp.sum(jax.lax.scan(step, a, length=2)[0])

    slope = lambda a: jax.jvp(loss, (a,), (d,))[1]  # noqa: E731
    reverse = jnp.sum(jax.jvp(jax.grad(loss), (a,), (d,))[1] * d)
    np.testing.assert_allclose(reverse, jax.jvp(slope, (a,), (d,))[1], rtol=1e-10)


def test_empty_and_one_by_one_equations_have_solutions():
    one = jnp.full((1, 1), 0.5)
    np.testing.assert_allclose(linalg.solve_sylvester(one, one, one), 0.5)
    np.testing.assert_allclose(linalg.solve_discrete_lyapunov(one, one), 0.5 / 0.75)
    empty = jnp.zeros((0, 0))
    assert linalg.solve_sylvester(empty, one, jnp.zeros((0, 1))).shape == (0, 1)
    assert linalg.solve_continuous_lyapunov(empty, empty).shape == (0, 0)


def test_wrong_arguments_are_refused_by_name():
    a = jnp.eye(2)
    with pytest.raises(ValueError, match="solve_sylvester got shapes"):
        linalg.solve_sylvester(a, a, jnp.ones((3, 2)))
    with pytest.raises(ValueError, match="method as one of"):
        linalg.solve_sylvester(a, a, a, method="direct")
    with pytest.raises(ValueError, match="method as one of"):
        linalg.solve_discrete_lyapunov(a, a, method="schur")
    with pytest.raises(ValueError, match="solve_continuous_lyapunov got shapes"):
        linalg.solve_continuous_lyapunov(a, jnp.eye(3))
