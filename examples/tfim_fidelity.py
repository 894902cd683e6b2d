"""Quantum phase transition of the transverse-field Ising chain, by differentiating `eigsh`.

H = -sum_i (g X_i + Z_i Z_(i+1)), N sites, periodic, matrix-free. For each field g: the energy of
the ground state, its first two derivatives, and the fidelity susceptibility

    chi_F = <psi_dot|psi_dot> - |<psi|psi_dot>|^2,    psi_dot = d psi / dg,

which needs one JVP of the ground state (Xie, Liu and Wang 2020, arXiv:2001.04121, section IV).
Beside them the exact results for this N (free fermions; Pfeuty 1970, Ann. Phys. 57, 79).

    python examples/tfim_fidelity.py --sites 16 --fields 0.6:1.4:9
"""

import argparse
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from difflinalg.scipy.sparse.linalg import eigsh

COLUMNS = ("E0", "dE0/dg", "d2E0/dg2", "chi_F")


def bond_energies(sites: int) -> Array:
    """The diagonal of `-sum_i Z_i Z_(i+1)`, shape `(2^N,)`."""
    state = jnp.arange(2**sites, dtype=jnp.uint32)
    turned = (state >> 1) | ((state & 1) << (sites - 1))
    return 2.0 * jax.lax.population_count(state ^ turned).astype(float) - sites


def apply_hamiltonian(g, bonds: Array, x: Array) -> Array:
    """`H x` for a state `x` of shape `(2^N,)`."""
    sites = x.size.bit_length() - 1
    flips = sum(x.reshape(2**i, 2, -1)[:, ::-1].reshape(-1) for i in range(sites))
    return bonds * x - g * flips


def observables(g, sites: int) -> Array:
    """`E0`, its first two derivatives with respect to the field, and `chi_F`, shape `(4,)`."""
    bonds = bond_energies(sites)
    like = jax.ShapeDtypeStruct(bonds.shape, bonds.dtype)

    def ground_state(g):
        w, v = eigsh(lambda x: apply_hamiltonian(g, bonds, x), 1, which="SA", v0=like)
        return w[0], v[:, 0]

    def energy_and_state(g):
        (energy, psi), (slope, psi_dot) = jax.jvp(ground_state, (g,), (jnp.ones_like(g),))
        # The second derivative is that of <psi| dH/dg |psi>; it needs the same psi_dot.
        return energy, slope, psi, psi_dot

    energy, slope, psi, psi_dot = energy_and_state(g)
    force = jax.jvp(lambda g: apply_hamiltonian(g, bonds, psi), (g,), (jnp.ones_like(g),))[1]
    curvature = 2.0 * (psi_dot @ force)  # H is linear in g
    chi = psi_dot @ psi_dot - (psi @ psi_dot) ** 2
    return jnp.stack([energy, slope, curvature, chi])


def exact(g, sites: int) -> np.ndarray:
    """The same from free fermions, `s_k = sqrt(1 + g^2 - 2 g cos k)`, `k = 2 pi (n + 1/2) / N`."""
    k = 2.0 * np.pi * (np.arange(sites) + 0.5) / sites
    s = np.sqrt(1.0 + g * g - 2.0 * g * np.cos(k))
    slope, curvature = -np.sum((g - np.cos(k)) / s), -np.sum(np.sin(k) ** 2 / s**3)
    return np.array([-s.sum(), slope, curvature, np.sum(np.sin(k) ** 2 / s**4) / 8.0])


def draw(path: str, fields, got: np.ndarray, sites: int) -> None:
    """Curves of the exact results, points of the computed ones."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fine = np.linspace(min(fields), max(fields), 200)
    curves = np.array([exact(g, sites) for g in fine])
    figure, axes = plt.subplots(2, 2, figsize=(8, 6), sharex=True, layout="constrained")
    for i, axis in enumerate(axes.flat):
        axis.plot(fine, curves[:, i] / sites, color="0.5", label="free fermions")
        axis.plot(fields, got[:, i] / sites, "o", color="C3", ms=4, label="eigsh")
        axis.set_ylabel(f"{COLUMNS[i]} per site")
        axis.axvline(1.0, color="0.8", lw=0.8)
    for axis in axes[1]:
        axis.set_xlabel("field g")
    axes[0, 0].legend(frameon=False)
    figure.suptitle(f"Transverse-field Ising chain, N = {sites}")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def parse_fields(text: str) -> list[float]:
    """`first:last:number`, or one value."""
    parts = text.split(":")
    if len(parts) == 1:
        return [float(text)]
    first, last, number = parts
    return list(np.linspace(float(first), float(last), int(number)))


def main(arguments: list[str] | None = None) -> int:
    """Print the table, draw the picture, and fail if a number is off."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sites", type=int, default=16)
    parser.add_argument("--fields", type=parse_fields, default=[1.0], help="first:last:number")
    parser.add_argument("--output", help="picture to write, needs matplotlib")
    parser.add_argument("--smoke", action="store_true", help="a small chain, for a quick check")
    options = parser.parse_args(arguments)
    if options.sites < 3:
        parser.error("a periodic chain has at least 3 sites")
    if options.smoke:
        options.sites, options.fields = 8, [0.8, 1.0, 1.2]
    jax.config.update("jax_enable_x64", True)
    compute = jax.jit(observables, static_argnums=1)
    begin, rows, worst = time.perf_counter(), [], 0.0
    print(f"{'g':>6}" + "".join(f"{name:>20}" for name in COLUMNS) + "   largest rel. error")
    for g in options.fields:
        rows.append(np.asarray(compute(g, options.sites)))
        error = np.max(np.abs(rows[-1] / exact(g, options.sites) - 1.0))
        worst = max(worst, float(error))
        numbers = "".join(f"{x:20.12f}" for x in rows[-1])
        print(f"{g:6.3f}{numbers}   {error:.1e}", flush=True)
    print(f"{len(rows)} fields in {time.perf_counter() - begin:.1f} s, compilation included")
    if options.output:
        draw(options.output, options.fields, np.array(rows), options.sites)
    if not worst < 1e-8:
        print(f"a value is off by {worst:.1e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
