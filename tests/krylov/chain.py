"""The transverse-field Ising chain, H = -sum_i (g X_i + Z_i Z_(i+1)), periodic, and its solution.

Free fermions (Pfeuty 1970, "The one-dimensional Ising model with a transverse field", equation
2.14): E_0 = -sum_k s_k, s_k = sqrt(1 + g^2 - 2 g cos k), k = 2 pi (n + 1/2) / N.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np


def example(sites, dtype=jnp.float64):
    return jax.ShapeDtypeStruct((2**sites,), dtype)


def hamiltonian(sites, g):
    """`x -> H x`, matrix-free; `g` may be traced."""
    spins = 1 - 2 * ((np.arange(2**sites)[:, None] >> np.arange(sites)) & 1)
    bonds = -np.sum(spins * np.roll(spins, 1, axis=1), axis=1).astype(float)

    def apply(x):
        flips = sum(x.reshape(2**i, 2, -1)[:, ::-1].reshape(-1) for i in range(sites))
        return bonds * x - g * flips

    return apply


def exact(sites, g=1.0):
    """Ground-state energy, its first two derivatives, and the fidelity susceptibility."""
    k = 2.0 * np.pi * (np.arange(sites) + 0.5) / sites
    s = np.sqrt(1.0 + g * g - 2.0 * g * np.cos(k))
    chi = 0.125 * np.sum(np.sin(k) ** 2 / s**4)
    return -s.sum(), -np.sum((g - np.cos(k)) / s), -np.sum(np.sin(k) ** 2 / s**3), chi


def exact_levels(sites, count):
    """The lowest levels at g = 1, with multiplicity.

    Momenta k = 2 pi (n + 1/2) / N carry an even, k = 2 pi n / N an odd number of fermions.
    """
    levels = []
    for shift, parity in ((0.5, 0), (0.0, 1)):
        s = 4.0 * np.abs(np.sin(np.pi * (np.arange(sites) + shift) / sites))
        for number in range(parity, 5, 2):
            modes = itertools.combinations(np.sort(s)[:8], number)
            levels.extend(sum(chosen) - 0.5 * s.sum() for chosen in modes)
    return np.sort(levels)[:count]
