"""eigsh on the N = 16 Ising chain against SciPy's ARPACK on the same operator in NumPy, one run."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse.linalg

from difflinalg.scipy.sparse.linalg import eigsh

sys.path.insert(0, str(Path(__file__).parents[1] / "krylov"))
import chain

SITES = 16
SIZE = 2**SITES


def numpy_operator():
    spins = 1 - 2 * ((np.arange(SIZE)[:, None] >> np.arange(SITES)) & 1)
    bonds = -np.sum(spins * np.roll(spins, 1, axis=1), axis=1).astype(float)

    def apply(x):
        y = bonds * x.ravel()
        for i in range(SITES):
            y -= x.reshape(2**i, 2, -1)[:, ::-1].reshape(-1)
        return y

    return scipy.sparse.linalg.LinearOperator((SIZE, SIZE), apply, dtype=float)


def values(g, k):
    apply = chain.hamiltonian(SITES, g)
    like = chain.example(SITES)
    return eigsh(apply, k, which="SA", v0=like, return_eigenvectors=False)


@pytest.mark.parametrize("k", [1, 6])
@pytest.mark.benchmark(group="Ising chain, N = 16, tol = 0")
def test_scipy(benchmark, k):
    operator = numpy_operator()

    def run():
        return scipy.sparse.linalg.eigsh(operator, k, which="SA", return_eigenvectors=False)

    assert abs(min(benchmark(run)) - chain.exact(SITES)[0]) < 1e-10


@pytest.mark.parametrize("k", [1, 6])
@pytest.mark.benchmark(group="Ising chain, N = 16, tol = 0")
def test_value(benchmark, k):
    compiled = jax.jit(values, static_argnums=1)
    found = compiled(1.0, k)
    np.testing.assert_allclose(found, chain.exact_levels(SITES, k), atol=1e-10)
    benchmark(lambda: jax.block_until_ready(compiled(1.0, k)))


@pytest.mark.benchmark(group="Ising chain, N = 16, tol = 0")
def test_value_and_gradient_of_the_energy(benchmark):
    compiled = jax.jit(jax.value_and_grad(lambda g: values(g, 1)[0]))
    np.testing.assert_allclose(compiled(1.0), chain.exact(SITES)[:2], rtol=1e-11)
    benchmark(lambda: jax.block_until_ready(compiled(1.0)))


@pytest.mark.benchmark(group="Ising chain, N = 16, tol = 0")
def test_value_and_gradient_of_a_function_of_the_ground_state(benchmark):
    weights = jnp.asarray(np.random.default_rng(0).standard_normal(SIZE))

    def loss(g):
        apply = chain.hamiltonian(SITES, g)
        w, v = eigsh(apply, 1, which="SA", v0=chain.example(SITES))
        return w[0] + (weights @ v[:, 0]) ** 2

    compiled = jax.jit(jax.value_and_grad(loss))
    assert np.all(np.isfinite(compiled(1.0)))
    benchmark(lambda: jax.block_until_ready(compiled(1.0)))
