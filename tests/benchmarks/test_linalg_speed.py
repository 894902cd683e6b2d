"""Value and gradient against `jax.numpy.linalg` and `jax.scipy.linalg`, in one run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from paired import compare

from difflinalg import linalg
from difflinalg.scipy import linalg as scipy_linalg

SIZES = [16, 128, 512]


def matrix(rows, columns, seed=0):
    """Entries of size `1 / sqrt(rows)`, so that no determinant overflows."""
    return np.random.default_rng(seed).standard_normal((rows, columns)) / np.sqrt(rows)


WEIGHT = {n: jnp.asarray(matrix(n, n, 1)) for n in SIZES}


def weighted(*factors):
    n = factors[0].shape[0]
    return sum(jnp.sum(WEIGHT[n] * x if x.ndim == 2 else x) for x in factors)


def squared(v):
    """Free of the signs of columns."""
    return v**2


LOSSES = {
    "eigh": lambda la, a: (lambda w, v: weighted(w, squared(v)))(*la.eigh(a)),
    "svd": lambda la, a: (lambda u, s, vh: weighted(s, squared(u), squared(vh)))(*la.svd(a)),
    "qr": lambda la, a: weighted(*la.qr(a)),
    "cholesky": lambda la, a: weighted(la.cholesky(a @ a.T + jnp.eye(a.shape[0]))),
    "solve": lambda la, a: weighted(la.solve(a, WEIGHT[a.shape[0]])),
    "det": lambda la, a: la.det(jnp.eye(a.shape[0]) + a / np.sqrt(a.shape[0])),
    "expm": lambda la, a: weighted(la.expm(a)),
}


NAMESPACES = {"expm": (scipy_linalg, jax.scipy.linalg)}


def with_gradient(la, name):
    return jax.value_and_grad(lambda a: LOSSES[name](la, a))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", LOSSES)
def test_value_and_gradient_against_jax(benchmark, name, n):
    ours, peer = NAMESPACES.get(name, (linalg, jnp.linalg))
    runs = with_gradient(ours, name), with_gradient(peer, name)
    compare(benchmark, f"{name}, n = {n}", *runs, jnp.asarray(matrix(n, n)))


def test_gradient_of_the_spectral_norm_against_jax(benchmark):
    runs = (jax.grad(lambda a, la=la: la.norm(a, 2)) for la in (linalg, jnp.linalg))
    compare(benchmark, "norm(a, 2), 200 x 400, gradient", *runs, jnp.asarray(matrix(200, 400)))
