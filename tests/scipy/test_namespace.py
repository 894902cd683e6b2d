"""The namespace and the signatures of `jax.scipy.linalg`, and what is taken from it unchanged."""

import inspect

import jax
import pytest

from difflinalg.scipy import linalg

NAMES = [name for name in dir(jax.scipy.linalg) if not name.startswith("_")]
OF_SCIPY = ["logm", "fractional_matrix_power", "signm", "cosm", "sinm", "tanm", "coshm", "sinhm", "tanhm", "solve_lyapunov", "solve_continuous_lyapunov", "solve_discrete_lyapunov", "solve_continuous_are", "solve_discrete_are", "null_space", "orth", "subspace_angles", "svdvals"]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_jax_exists_with_its_signature(name):
    theirs, mine = getattr(jax.scipy.linalg, name), getattr(linalg, name)
    expected = inspect.signature(theirs).parameters
    given = inspect.signature(mine).parameters
    for parameter in expected.values():
        assert parameter.name in given
        assert given[parameter.name].kind == parameter.kind
        assert given[parameter.name].default == parameter.default
    extra = [p for key, p in given.items() if key not in expected]
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in extra)
    kept = [key for key in given if key in expected]
    assert kept == list(expected)


def test_names_that_jax_lacks_exist_and_are_documented():
    for name in OF_SCIPY:
        assert "Derivatives:" in getattr(linalg, name).__doc__, name


def test_functions_of_this_library_say_what_their_derivatives_are():
    for name in NAMES:
        f = getattr(linalg, name)
        if f.__module__.startswith("difflinalg"):
            assert "Derivatives:" in f.__doc__, name
