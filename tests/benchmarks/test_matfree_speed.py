"""The gradient of a ground-state energy: `eigsh` against the derivative of matfree's Lanczos.

N = 16 Ising chain. matfree differentiates the algorithm, 80 steps with full reorthogonalisation, by
the adjoint recursion of Kraemer et al. (2024, arXiv:2405.17277); `eigsh` runs to machine precision
and differentiates the equation that the pair fulfils.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg.scipy.sparse.linalg import eigsh

sys.path.insert(0, str(Path(__file__).parents[1] / "krylov"))
import chain

SITES, STEPS = 16, 80
GROUP = "value and gradient of the energy of the Ising chain, N = 16"


def run(benchmark, energy, rtol):
    start = jnp.asarray(np.random.default_rng(0).standard_normal(2**SITES))
    compiled = jax.jit(jax.value_and_grad(energy))
    np.testing.assert_allclose(compiled(1.0, start), chain.exact(SITES)[:2], rtol=rtol)
    benchmark(lambda: jax.block_until_ready(compiled(1.0, start)))


@pytest.mark.benchmark(group=GROUP)
def test_matfree(benchmark):
    decomp = pytest.importorskip("matfree.decomp")
    lanczos = decomp.tridiag_sym(STEPS, reortho="full")

    def energy(g, start):
        found = lanczos(lambda x, g: chain.hamiltonian(SITES, g)(x), start, g)
        return jnp.linalg.eigvalsh(found.J_small)[0]

    run(benchmark, energy, 1e-8)


@pytest.mark.benchmark(group=GROUP)
def test_eigsh(benchmark):
    def energy(g, start):
        apply = chain.hamiltonian(SITES, g)
        return eigsh(apply, 1, which="SA", v0=start, return_eigenvectors=False)[0]

    run(benchmark, energy, 1e-11)
