"""Riccati equations against SciPy and differences."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from nested import check_nested

from difflinalg.scipy import linalg

NAMES = ("solve_continuous_are", "solve_discrete_are")


def gaussian(rng, *shape, dtype=complex):
    x = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return (x if np.issubdtype(dtype, np.complexfloating) else x.real).astype(dtype)


def problem(rng, m, n, dtype):
    a, b, q, r, e, s = (
        gaussian(rng, *shape, dtype=dtype)
        for shape in ((m, m), (m, n), (m, m), (n, n), (m, m), (m, n))
    )
    q, r = (x @ x.conj().T + np.eye(len(x), dtype=dtype) for x in (q, r))
    return a, b, q, r, e + 4 * np.eye(m, dtype=dtype), dtype(0.1) * s


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_solutions_are_those_of_scipy(name, dtype, rng):
    args = problem(rng, 4, 2, dtype)
    rtol = 2e-3 if dtype is np.float32 else 1e-11
    for given in (args[:4], args):
        x = getattr(linalg, name)(*given)
        # SciPy's balancing fails with complex pencils.
        want = getattr(scipy.linalg, name)(*given, balanced=False)
        assert x.dtype == dtype
        assert np.max(np.abs(x - want)) <= rtol * np.max(np.abs(want))
    batch = getattr(linalg, name)(np.stack([args[0]] * 2), *args[1:4])
    assert batch.shape == (2, 4, 4)


@pytest.mark.parametrize("name", NAMES)
def test_all_derivatives_are_those_of_differences(name, rng):
    args = problem(rng, 2, 1, np.complex128)
    check_nested(getattr(linalg, name), args[:4], nestings=("fwd-rev", "rev-rev"))
    check_nested(lambda e, s: getattr(linalg, name)(*args[:4], e, s), args[4:], order=1)


def test_scalar_equation_has_the_derivative_of_its_closed_form():
    # 2 a x - x^2 + q = 0 has the stabilising root a + sqrt(a^2 + q).
    one = jnp.eye(1)
    x = linalg.solve_continuous_are(0.6 * one, one, 0.28 * one, one)
    np.testing.assert_allclose(x, 0.6 + np.sqrt(0.64), rtol=1e-12)
    # x = a^2 x / (1 + x) + q with a = 0 is q.
    x = linalg.solve_discrete_are(0.0 * one, one, 0.28 * one, one)
    np.testing.assert_allclose(x, 0.28, rtol=1e-12)


def test_equation_without_a_stabilising_solution_is_nan():
    zero, one = jnp.zeros((1, 1)), jnp.eye(1)
    assert not np.all(np.isfinite(linalg.solve_continuous_are(one, zero, -one, one)))
    assert not np.all(np.isfinite(linalg.solve_discrete_are(2 * one, zero, one, one)))


def test_wrong_shapes_are_refused_by_name():
    for name in NAMES:
        with pytest.raises(ValueError, match=f"{name} got shapes"):
            getattr(linalg, name)(jnp.eye(2), jnp.ones((3, 1)), jnp.eye(2), jnp.eye(1))
