"""Krylov methods against SciPy's with the same operators in NumPy, one run.

eigsh on the N = 16 Ising chain, eigs on the transfer matrix of a matrix-product state, lobpcg on a
Schroedinger operator with a preconditioner; expm_multiply, funm_multiply, lsmr and svds.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse.linalg
from jax.experimental.sparse import BCOO

from difflinalg.scipy.sparse.linalg import (
    eigs,
    eigsh,
    expm_multiply,
    funm_multiply,
    lobpcg,
    lsmr,
    svds,
)

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


BOND, GRID = 64, 64


def transfer_matrix(numpy):
    """`x -> sum_s A_s x A_s^T` of a matrix-product state, on flat vectors."""
    a = np.random.default_rng(0).standard_normal((2, BOND, BOND)) / (2 * BOND) ** 0.5
    b = numpy.asarray(a)

    def apply(x):
        x = x.reshape(BOND, BOND)
        return (b[0] @ x @ b[0].T + b[1] @ x @ b[1].T).reshape(-1)

    return apply


TRANSFER = "transfer matrix of size 4096, k = 4, tol = 0"


@pytest.mark.benchmark(group=TRANSFER)
def test_scipy_eigs(benchmark):
    operator = scipy.sparse.linalg.LinearOperator(
        (BOND**2, BOND**2), transfer_matrix(np), dtype=float
    )
    benchmark(lambda: scipy.sparse.linalg.eigs(operator, 4))


@pytest.mark.benchmark(group=TRANSFER)
def test_eigs(benchmark):
    apply = transfer_matrix(jnp)
    compiled = jax.jit(lambda: eigs(apply, 4, v0=jax.ShapeDtypeStruct((BOND**2,), jnp.float64)))
    operator = scipy.sparse.linalg.LinearOperator(
        (BOND**2, BOND**2), transfer_matrix(np), dtype=float
    )
    want = scipy.sparse.linalg.eigs(operator, 4, return_eigenvectors=False)
    np.testing.assert_allclose(np.sort(np.abs(compiled()[0])), np.sort(np.abs(want)), rtol=1e-10)
    benchmark(lambda: jax.block_until_ready(compiled()))


def schroedinger(numpy):
    """An anharmonic oscillator on a periodic grid and an approximate inverse, on columns."""
    x = np.linspace(-6.0, 6.0, GRID, endpoint=False)
    k2 = (2.0 * np.pi * np.fft.fftfreq(GRID, x[1] - x[0])) ** 2
    kinetic = 0.5 * (k2[:, None] + k2[None, :])
    potential = 0.5 * (x[:, None] ** 2 + 1.3 * x[None, :] ** 2) + 0.1 * x[:, None] * x[None, :] ** 2
    potential = np.where(potential > 20.0, 20.0, np.maximum(potential, 0.0))

    def multiply(v, symbol):
        grids = v.T.reshape(-1, GRID, GRID)
        image = numpy.fft.ifft2(symbol * numpy.fft.fft2(grids)).real
        return image.reshape(v.shape[1], -1).T

    def apply(v):
        return multiply(v, kinetic) + potential.reshape(-1, 1) * v

    return apply, lambda v: multiply(v, 1.0 / (kinetic + 4.0))


OSCILLATOR = "oscillator on a 64 x 64 grid, lobpcg, k = 4, tol = 1e-8"


@pytest.mark.benchmark(group=OSCILLATOR)
def test_scipy_lobpcg(benchmark):
    apply, inverse = schroedinger(np)
    x = np.random.default_rng(0).standard_normal((GRID**2, 4))
    benchmark(
        lambda: scipy.sparse.linalg.lobpcg(
            apply, x, M=inverse, largest=False, tol=1e-8, maxiter=200
        )
    )


@pytest.mark.benchmark(group=OSCILLATOR)
def test_lobpcg(benchmark):
    apply, inverse = schroedinger(jnp)
    x = np.random.default_rng(0).standard_normal((GRID**2, 4))
    compiled = jax.jit(lambda x: lobpcg(apply, x, M=inverse, largest=False, tol=1e-8, maxiter=200))
    w, _ = scipy.sparse.linalg.lobpcg(
        schroedinger(np)[0], x, M=schroedinger(np)[1], largest=False, tol=1e-8, maxiter=200
    )
    np.testing.assert_allclose(compiled(x)[0], w, rtol=1e-10)
    benchmark(lambda: jax.block_until_ready(compiled(x)))


LENGTH = 40_000


def laplacian():
    """The second difference, as a function on arrays of NumPy or JAX, and as a CSR matrix."""

    def apply(x):
        y = -2.0 * x
        if isinstance(x, np.ndarray):
            y[1:] += x[:-1]
            y[:-1] += x[1:]
            return y
        return y.at[1:].add(x[:-1]).at[:-1].add(x[1:])

    near = np.ones(LENGTH - 1)
    matrix = scipy.sparse.diags_array([near, -2.0 * np.ones(LENGTH), near], offsets=[-1, 0, 1])
    return apply, matrix.tocsr()


def smooth_vector():
    return np.random.default_rng(0).standard_normal(LENGTH)


@pytest.mark.benchmark(group="exp(5 i laplacian) v, n = 40000")
def test_scipy_expm_multiply(benchmark):
    matrix, v = 5j * laplacian()[1], smooth_vector()
    benchmark(lambda: scipy.sparse.linalg.expm_multiply(matrix, v))


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.benchmark(group="exp(5 i laplacian) v, n = 40000")
def test_expm_multiply(benchmark, gradient):
    apply, v = laplacian()[0], jnp.asarray(smooth_vector() + 0j)

    def value(t):
        return expm_multiply(lambda x: 1j * t * apply(x), v, traceA=-10j * LENGTH)

    found = jax.jit(value)(5.0)
    want = scipy.sparse.linalg.expm_multiply(5j * laplacian()[1], np.asarray(v))
    np.testing.assert_allclose(found, want, atol=1e-9)
    loss = jax.grad(lambda t: jnp.real(value(t)[0])) if gradient else value
    compiled = jax.jit(loss)
    jax.block_until_ready(compiled(5.0))
    benchmark(lambda: jax.block_until_ready(compiled(5.0)))


@pytest.mark.benchmark(group="exp(laplacian) v by a Krylov space, n = 40000")
def test_scipy_funm_multiply(benchmark):
    matrix, v = laplacian()[1], smooth_vector()
    function = getattr(scipy.sparse.linalg, "funm_multiply_krylov", None)
    if function is None:
        pytest.skip("this SciPy has no funm_multiply_krylov")
    benchmark(lambda: function(scipy.linalg.expm, matrix, v, assume_a="her", rtol=1e-10))


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.benchmark(group="exp(laplacian) v by a Krylov space, n = 40000")
def test_funm_multiply(benchmark, gradient):
    apply, v = laplacian()[0], jnp.asarray(smooth_vector())

    def value(t):
        f = jax.scipy.linalg.expm
        return funm_multiply(f, apply, v, t=t, assume_a="her", rtol=1e-10, ncv=40)

    compiled = jax.jit(jax.grad(lambda t: value(t)[0]) if gradient else value)
    assert np.all(np.isfinite(compiled(1.0)))
    benchmark(lambda: jax.block_until_ready(compiled(1.0)))


def least_squares_problem():
    matrix = scipy.sparse.random_array((LENGTH, 4000), density=1e-3, rng=np.random.default_rng(1))
    return matrix.tocsr(), smooth_vector()


@pytest.mark.benchmark(group="lsmr, 40000 x 4000, 160000 entries")
def test_scipy_lsmr(benchmark):
    matrix, b = least_squares_problem()
    benchmark(lambda: scipy.sparse.linalg.lsmr(matrix, b, atol=1e-10, btol=1e-10))


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.benchmark(group="lsmr, 40000 x 4000, 160000 entries")
def test_lsmr(benchmark, gradient):
    matrix, b = least_squares_problem()
    sparse = BCOO.from_scipy_sparse(matrix)

    def value(data):
        a = BCOO((data, sparse.indices), shape=sparse.shape)
        return lsmr(a, jnp.asarray(b), atol=1e-10, btol=1e-10).x

    want = scipy.sparse.linalg.lsmr(matrix, b, atol=1e-12, btol=1e-12)[0]
    np.testing.assert_allclose(jax.jit(value)(sparse.data), want, atol=1e-7)
    compiled = jax.jit(jax.grad(lambda data: jnp.sum(value(data) ** 2)) if gradient else value)
    jax.block_until_ready(compiled(sparse.data))
    benchmark(lambda: jax.block_until_ready(compiled(sparse.data)))


@pytest.mark.benchmark(group="svds, k = 6, 40000 x 4000, 160000 entries")
def test_scipy_svds(benchmark):
    matrix = least_squares_problem()[0]
    benchmark(lambda: scipy.sparse.linalg.svds(matrix, 6, return_singular_vectors=False))


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.benchmark(group="svds, k = 6, 40000 x 4000, 160000 entries")
def test_svds(benchmark, gradient):
    matrix = least_squares_problem()[0]
    sparse = BCOO.from_scipy_sparse(matrix)

    def values(data):
        a = BCOO((data, sparse.indices), shape=sparse.shape)
        return svds(a, 6, return_singular_vectors=False)

    want = np.sort(scipy.sparse.linalg.svds(matrix, 6, return_singular_vectors=False))
    np.testing.assert_allclose(jax.jit(values)(sparse.data), want, rtol=1e-10)
    compiled = jax.jit(jax.grad(lambda data: jnp.sum(values(data))) if gradient else values)
    jax.block_until_ready(compiled(sparse.data))
    benchmark(lambda: jax.block_until_ready(compiled(sparse.data)))
