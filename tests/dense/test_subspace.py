"""The block iteration behind truncated decompositions, where its block is all but dependent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg import linalg
from difflinalg._dense.subspace import orthonormal

N, RANK = 200, 20
SPECTRA = {
    "slow": np.exp(-0.1 * np.arange(N)),
    "fast": np.exp(-0.5 * np.arange(N)),  # the rank reaches the rounding of float32
    "faster": np.exp(-2.0 * np.arange(N)),  # and that of float64
    "algebraic": 1.0 / (1.0 + np.arange(N)) ** 4,
    "low rank": np.where(np.arange(N) < RANK // 2, np.linspace(1.0, 0.5, N), 0.0),
}
DTYPES = [jnp.float32, jnp.complex64, jnp.float64, jnp.complex128]


def unitary(seed, dtype):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((N, N))
    if jnp.issubdtype(dtype, jnp.complexfloating):
        x = x + 1j * rng.standard_normal((N, N))
    return np.linalg.qr(x)[0]


def distance(x, y):
    """In units of rounding; both sides are products of at most `N` terms of size 1."""
    return float(jnp.max(jnp.abs(x - y))) / float(jnp.finfo(x.dtype).eps)


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("dtype", DTYPES)
def test_singular_vectors_are_orthonormal_and_exact_down_to_rounding(dtype, spectrum):
    s = SPECTRA[spectrum]
    a = jnp.asarray((unitary(0, dtype) * s) @ unitary(1, dtype), dtype)
    u, found, vh, _ = linalg.svd_trunc(a, RANK, keep_multiplets=True, full=False)
    assert distance(u.conj().T @ u, jnp.eye(RANK, dtype=dtype)) < 50
    assert distance(vh @ vh.conj().T, jnp.eye(RANK, dtype=dtype)) < 50
    assert distance(found, s[:RANK]) < 50
    assert distance(a @ vh.conj().T, u * found) < 50
    assert distance(u.conj().T @ a, found[:, None] * vh) < 50


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenvectors_are_orthonormal_and_exact_down_to_rounding(dtype, spectrum):
    w, q = SPECTRA[spectrum] * (-1.0) ** np.arange(N), unitary(0, dtype)
    a = jnp.asarray((q * w) @ q.conj().T, dtype)
    found, v, _ = linalg.eigh_trunc(a, RANK, keep_multiplets=True, full=False)
    assert distance(v.conj().T @ v, jnp.eye(RANK, dtype=dtype)) < 50
    assert distance(jnp.abs(found), jnp.abs(w[:RANK])) < 50
    assert distance(a @ v, v * found) < 50


@pytest.mark.parametrize("dtype", DTYPES)
def test_dependent_rows_are_completed_to_orthonormal_ones(dtype):
    q = jnp.asarray(unitary(2, dtype)[:8], dtype)
    signs = jax.random.rademacher(jax.random.key(0), (8, N), q.real.dtype)
    eps = jnp.finfo(dtype).eps
    blocks = {
        "orthonormal": q,
        "zero": 0.0 * q,
        "one direction": 0.0 * q + q[0],
        "two directions, and rounding": (q.at[2:].set(q[:1]) + eps * q) * 1e10,
        "graded": q * (10.0 ** -jnp.arange(8))[:, None] + q[0],
    }
    stack = jnp.stack([y.astype(dtype) for y in blocks.values()])
    for y, rows in zip(stack, jax.vmap(orthonormal, (0, None))(stack, signs), strict=True):
        assert distance(rows @ rows.conj().T, jnp.eye(8, dtype=dtype)) < 50
        outside = y - (y @ rows.conj().T) @ rows
        assert float(jnp.max(jnp.abs(outside))) <= 50 * eps * float(jnp.max(jnp.abs(y))) * N**0.5


@pytest.mark.parametrize(
    ("dtype", "scales"),
    [
        (jnp.float64, [1e-250, 1e-160, 1e160, 1e300]),
        (jnp.complex64, [1e-30, 1e-20, 1e20, 1e30]),
    ],
)
def test_the_scale_of_a_matrix_does_not_matter(dtype, scales):
    n, rank = 80, 6
    q, s = unitary(0, dtype)[:, :n], SPECTRA["fast"][:n]
    square = np.linalg.qr(q[:n])[0]
    a = (square * s) @ square.conj().T
    weight = np.random.default_rng(1).standard_normal((n, n))

    def projected(u):
        return jnp.real(jnp.sum(weight * (u[:, :3] @ u[:, :3].conj().T)))

    @jax.jit
    def run(a):
        by_svd = lambda a: projected(linalg.svd_trunc(a, rank, full=False).U)  # noqa: E731
        by_eigh = lambda a: projected(linalg.eigh_trunc(a, rank, full=False)[1])  # noqa: E731
        gradients = jax.grad(by_svd)(a), jax.grad(by_eigh)(a)
        return linalg.svd_trunc(a, rank, full=False), gradients

    (_, _, _, reference), expected = run(jnp.asarray(a, dtype))
    for scale in scales:
        (_, found, _, info), gradients = run(jnp.asarray(a * scale, dtype))
        assert distance(found / scale, s[:rank]) < 50
        assert info.rounds == reference.rounds > 0
        assert abs(float(info.error) / scale / float(reference.error) - 1.0) < 1e-5
        for got, gradient in zip(gradients, expected, strict=True):
            assert distance(got * scale, gradient) < 200 * float(jnp.max(jnp.abs(gradient)))


def test_a_large_block_in_single_precision_comes_to_an_end():
    """The shifts of all its rows add up to more than a short direction is worth."""
    shape = (64, 70_000)
    y, signs = (jax.random.rademacher(jax.random.key(i), shape, jnp.float32) for i in range(2))
    rows = jax.jit(orthonormal)(y, signs)
    assert distance(rows @ rows.T, jnp.eye(64, dtype=jnp.float32)) < 50
