"""The transverse-field Ising chain: energies, derivatives and levels against free fermions."""

import chain
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg.scipy.sparse.linalg import eigsh

MODES = (jax.grad, jax.jacfwd)


def ground_state(sites, g):
    w, v = eigsh(chain.hamiltonian(sites, g), 1, which="SA", v0=chain.example(sites))
    return w[0], v[:, 0]


def susceptibility(sites, g):
    """Of the fidelity: |psi_dot|^2 - |<psi|psi_dot>|^2, by one JVP."""
    psi, psi_dot = jax.jvp(lambda g: ground_state(sites, g)[1], (g,), (1.0,))
    return psi_dot @ psi_dot - (psi @ psi_dot) ** 2


def close(got, want, rtol):
    np.testing.assert_allclose(got, want, rtol=rtol, atol=0.0)


@pytest.mark.parametrize("sites", [10, 14, 16])
def test_energy_its_derivatives_and_fidelity_susceptibility(sites):
    energy, slope, curvature, chi = chain.exact(sites)

    @jax.jit
    def compute(g):
        value_and_slope = jax.value_and_grad(lambda g: ground_state(sites, g)[0])
        (value, first), (_, second) = jax.jvp(value_and_slope, (g,), (1.0,))
        return value, first, second, susceptibility(sites, g)

    value, first, second, chi_f = compute(1.0)
    close(value, energy, 1e-13)
    close(first, slope, 1e-11)
    close(second, curvature, 1e-10)
    close(chi_f, chi, 1e-10)


def test_all_nestings_agree():
    _, _, curvature, _ = chain.exact(10, 0.8)

    @jax.jit
    def compute(g):
        def energy(g):
            return ground_state(10, g)[0]

        return [outer(inner(energy))(g) for outer in MODES for inner in MODES]

    for second in compute(0.8):
        close(second, curvature, 1e-10)


def test_gradient_of_the_fidelity_susceptibility():
    """A third derivative of the spectrum, in both modes."""
    step = 1e-4
    want = (chain.exact(10, 0.9 + step)[3] - chain.exact(10, 0.9 - step)[3]) / (2.0 * step)

    @jax.jit
    def compute(g):
        def chi(g):
            return susceptibility(10, g)

        return jax.grad(chi)(g), jax.jacfwd(chi)(g)

    for got in compute(0.9):
        close(got, want, 1e-6)


@pytest.mark.parametrize("sites", [10, 12, 14, 16])
def test_six_lowest_levels_are_complete(sites):
    @jax.jit
    def compute(g):
        apply = chain.hamiltonian(sites, g)
        w, v, info = eigsh(apply, 6, which="SA", v0=chain.example(sites), return_info=True)
        return w, jnp.max(jnp.abs(v.T @ v - jnp.eye(6))), info

    w, overlap, info = compute(1.0)
    np.testing.assert_allclose(w, chain.exact_levels(sites, 6), atol=1e-12 * sites)
    assert overlap < 1e-13
    assert info.converged
    # The sixth level is one of several.
    assert info.cut
    assert np.all(info.residual_norms < 1e-12)


def test_levels_do_not_depend_on_where_the_iteration_starts():
    """From the state with all spins along x the doublets cannot be reached by symmetry."""
    apply = chain.hamiltonian(10, 1.0)
    w = eigsh(apply, 6, which="SA", v0=jnp.ones(2**10), return_eigenvectors=False)
    np.testing.assert_allclose(w, chain.exact_levels(10, 6), atol=1e-11)
    # A start in the odd sector (one state minus its mirror image) still leads to the ground state.
    odd = jnp.zeros(2**10).at[0].set(1.0).at[-1].set(-1.0)
    w = eigsh(apply, 1, which="SA", v0=odd, return_eigenvectors=False)
    np.testing.assert_allclose(w[0], chain.exact_levels(10, 1)[0], atol=1e-11)
