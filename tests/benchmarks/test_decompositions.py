"""Gradients of decompositions against the decompositions themselves, in one run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from paired import compare

from difflinalg import linalg

SIZE, RANK = 256, 16


def matrix(dtype):
    rng = np.random.default_rng(1)
    a = rng.standard_normal((SIZE, SIZE))
    if np.issubdtype(dtype, np.complexfloating):
        a = a + 1j * rng.standard_normal((SIZE, SIZE))
    return jnp.asarray(a, dtype)


WEIGHTS = np.linspace(-1.0, 1.0, SIZE * SIZE).reshape(SIZE, SIZE)


def squares(x):
    return jnp.square(jnp.real(x)) + jnp.square(jnp.imag(x))


def loss(a):
    """Invariant under phases: weights on `|U|^2`, `|Vh|^2` and the singular values."""
    u, s, vh = linalg.svd(a, full_matrices=False)
    return jnp.sum(WEIGHTS * (squares(u) + squares(vh))) + jnp.sum(s**2)


def decaying(dtype):
    u, _, vh = np.linalg.svd(np.asarray(matrix(dtype)))
    return jnp.asarray((u * 0.85 ** np.arange(SIZE)) @ vh)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_value_and_gradient_of_svd_against_the_decomposition(benchmark, dtype):
    title = f"svd, n = {SIZE}, {np.dtype(dtype).name}"
    decomposition = lambda a: linalg.svd(a, full_matrices=False)  # noqa: E731
    compare(benchmark, title, jax.value_and_grad(loss), decomposition, matrix(dtype), seconds=6.0)


TRUNCATED = {
    "svd": lambda a: jnp.linalg.svd(a, full_matrices=False),
    "svd_trunc": lambda a: linalg.svd_trunc(a, RANK)[:3],
    "eigh": lambda a: jnp.linalg.eigh(a @ a.T),
    "eigh_trunc": lambda a: linalg.eigh_trunc(a @ a.T, RANK)[:2],
}


@pytest.mark.parametrize("name", TRUNCATED)
def test_truncated_against_full(benchmark, name):
    benchmark.group = f"truncated, n = {SIZE}, rank {RANK}"
    run, a = jax.jit(TRUNCATED[name]), decaying(np.float64)
    jax.block_until_ready(run(a))
    benchmark(lambda: jax.block_until_ready(run(a)))
