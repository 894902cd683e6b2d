"""The namespace and the signatures of `jax.scipy.linalg`, and what is taken from it unchanged."""

import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg.scipy import linalg
from difflinalg.testing import check_derivatives

NAMES = [name for name in dir(jax.scipy.linalg) if not name.startswith("_")]
OF_SCIPY = """
    logm fractional_matrix_power signm cosm sinm tanm coshm sinhm tanhm solve_lyapunov
    solve_continuous_lyapunov solve_discrete_lyapunov solve_continuous_are solve_discrete_are
    null_space orth subspace_angles svdvals
"""


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_jax_exists_with_its_signature(name):
    expected = inspect.signature(getattr(jax.scipy.linalg, name)).parameters
    given = inspect.signature(getattr(linalg, name)).parameters
    for key, parameter in expected.items():
        assert key in given
        assert given[key].kind == parameter.kind
        assert given[key].default == parameter.default
    assert [key for key in given if key in expected] == list(expected)
    extra = [parameter for key, parameter in given.items() if key not in expected]
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in extra)


def test_every_function_of_this_library_says_what_its_derivatives_are():
    own = {name for name in NAMES if getattr(linalg, name).__module__.startswith("difflinalg")}
    assert {"svd", "schur", "expm"} <= own
    for name in own | set(OF_SCIPY.split()):
        assert re.search(r"^ +Derivatives:$", getattr(linalg, name).__doc__, re.MULTILINE), name


def test_solvers_taken_from_jax_have_right_derivatives_of_second_order():
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(2, k)) + 1j * rng.normal(size=(2, k)) for k in (2, 3))

    def solutions(a, b):
        return (
            linalg.solve(a, b),
            linalg.solve_triangular(a + 2 * jnp.eye(2), b, trans=2, lower=True),
            linalg.cho_solve((a + 2 * jnp.eye(2), True), b),
        )

    check_derivatives(solutions, (a, b), order=2)


def test_singular_values_alone_are_those_of_the_decomposition():
    a = np.random.default_rng(1).normal(size=(3, 2))
    u, s, vh = linalg.svd(a, False)
    assert type(linalg.svd(a)) is tuple
    np.testing.assert_allclose((u * s) @ vh, a, atol=1e-13)
    np.testing.assert_allclose(linalg.svd(a, compute_uv=False), s, atol=1e-14)
    np.testing.assert_allclose(linalg.svdvals(a), s, atol=1e-14)
