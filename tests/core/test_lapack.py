"""Decompositions by the library under JAX: NaN for what is not finite, and no endless loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg import linalg, scipy
from difflinalg._core import lapack

FUNCTIONS = {
    "svd": linalg.svd,
    "thin svd": lambda a: linalg.svd(a, full_matrices=False),
    "svdvals": linalg.svdvals,
    "svd_trunc": lambda a: linalg.svd_trunc(a, 2)[:3],
    "pinv": linalg.pinv,
    "norm": lambda a: (linalg.norm(a, 2), linalg.norm(a, "nuc")),
    "polar": scipy.linalg.polar,
    "lstsq": lambda a: linalg.lstsq(a, jnp.ones(a.shape[0]))[0],
    "eigh": lambda a: linalg.eigh(a @ a.T),
    "svd of a Hermitian matrix": lambda a: linalg.svd(a @ a.T, hermitian=True),
    "eigh_trunc": lambda a: linalg.eigh_trunc(a @ a.T, 2)[:2],
    "iterations": lambda a: (
        linalg.svd_trunc(a, 2, full=False)[:3],
        linalg.eigh_trunc(a @ a.T, 2, full=False, keep_multiplets=True)[:2],
    ),
    "leading_space": lambda a: linalg.leading_space(a @ a.T, 2)[:2],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_entry_that_is_not_finite_gives_nan_throughout_under_jit(name):
    run = jax.jit(FUNCTIONS[name])
    for shape in ((3, 3), (5, 3), (3, 5)):
        for value in (np.inf, -np.inf, np.nan):
            for index in ((0, 1), (1, 0)):  # LAPACK's loop for one of the two does not end
                a = jnp.eye(*shape).at[index].set(value)
                assert all(bool(jnp.all(jnp.isnan(x))) for x in jax.tree.leaves(run(a)))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.complex64, jnp.float64, jnp.complex128])
def test_only_the_bad_members_of_a_stack_are_nan(dtype):
    stack = jnp.stack([jnp.eye(3), jnp.eye(3).at[0, 1].set(jnp.inf), 2.0 * jnp.eye(3)])
    for results in (lapack.svd(stack.astype(dtype)), lapack.eigh(stack.astype(dtype))):
        for x in results:
            assert jnp.all(jnp.isnan(x), axis=tuple(range(1, x.ndim))).tolist() == [0, 1, 0]
            assert not bool(jnp.any(jnp.isnan(x[::2])))


@pytest.mark.parametrize("full_matrices", [False, True])
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.complex128])
def test_factors_are_those_of_jax(full_matrices, dtype):
    for shape in ((3, 5), (5, 3), (2, 4, 4), (0, 3), (3, 0)):
        a = jax.random.normal(jax.random.key(0), shape, dtype)
        for got, expected in zip(
            lapack.svd(a, full_matrices), jnp.linalg.svd(a, full_matrices), strict=True
        ):
            np.testing.assert_array_equal(got, expected)
