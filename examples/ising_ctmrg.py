"""Thermodynamics of the two-dimensional Ising model by differentiating a corner transfer matrix.

The environment of a site of the infinite square lattice is a fixed point. Its first and second
derivative with respect to the coupling K = beta J give energy and specific heat, exact for the
approximation at hand; the magnetisation is an expectation value.

    python examples/ising_ctmrg.py --chi 16 --couplings 0.40:0.50:6
"""

import argparse
import sys
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from ctmrg_c4v import DEFAULTS, Options, environment, log_partition, site, start
from ising_trg import onsager, parse_couplings, parse_output
from jax import Array

CRITICAL = np.log(1.0 + np.sqrt(2.0)) / 2.0


def bond_factor(coupling: Array) -> Array:
    """`w[s, leg]` with `w w^T = exp(K s s')`, for the spins +1 and -1."""
    even, odd = jnp.sqrt(jnp.cosh(coupling)), jnp.sqrt(jnp.sinh(coupling))
    return jnp.stack([jnp.stack([even, odd]), jnp.stack([even, -odd])])


def tensors(coupling: Array) -> tuple[Array, Array]:
    """The Boltzmann weight of a site, and the same times its spin."""
    w = bond_factor(coupling)
    spin = jnp.array([1.0, -1.0], w.dtype)
    weight = partial(jnp.einsum, "su,sl,sd,sr,s->uldr", w, w, w, w)
    return weight(jnp.ones_like(spin)), weight(spin)


@partial(jax.jit, static_argnames=("chi", "options"))
def thermodynamics(coupling: Array, chi: int, options: Options = DEFAULTS):
    """`lnZ / N`, `E / N`, `C / N`, `m`, and the info of the environment.

    Spins are fixed to +1 far away, so that one of the two ordered states is chosen.
    """

    def value(coupling):
        a, impurity = tensors(coupling)
        boundary = jax.lax.stop_gradient(bond_factor(coupling)[0])
        env, info = environment(a, start(boundary, chi), options)
        return log_partition(env, a), (site(env, impurity) / site(env, a), info)

    def slope(coupling):
        log_z, first, rest = jax.jvp(value, (coupling,), (jnp.ones_like(coupling),), has_aux=True)
        return first, (log_z, rest)

    one = (jnp.ones_like(coupling),)
    first, second, (log_z, (spin, info)) = jax.jvp(slope, (coupling,), one, has_aux=True)
    return log_z, -first, coupling**2 * second, spin, info


def exact(coupling: float) -> tuple[float, float, float, float]:
    """The same four numbers of the infinite lattice (Onsager 1944, Yang 1952)."""
    ordered = coupling > CRITICAL
    spin = (1.0 - np.sinh(2.0 * coupling) ** -4.0) ** 0.125 if ordered else 0.0
    return (*onsager(coupling), spin)


def picture(path: str, couplings: np.ndarray, found: np.ndarray, known: np.ndarray) -> None:
    """Write energy, specific heat and magnetisation next to the exact curves."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12.0, 3.6), layout="constrained")
    labels = ("E / N [J]", "C / N [k_B]", "magnetisation per spin")
    for axis, column, label in zip(axes, (1, 2, 3), labels, strict=True):
        axis.plot(couplings, known[:, column], "-", color="0.6", label="exact")
        axis.plot(couplings, found[:, column], "o", ms=4, label="CTMRG, differentiated")
        axis.set_xlabel("coupling K = beta J")
        axis.set_ylabel(label)
        axis.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> int:
    """Print the table; write it and a picture if asked. 1 if an environment did not converge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chi", type=int, default=16, help="dimension of the environment")
    parser.add_argument(
        "--couplings",
        type=parse_couplings,
        default="0.40:0.50:6",
        help="start:stop:count (default %(default)s)",
    )
    parser.add_argument("--max-steps", type=int, default=DEFAULTS.max_steps)
    parser.add_argument(
        "--output",
        type=parse_output,
        help="a .csv file for the table or an image file for a picture",
    )
    parser.add_argument("--smoke", action="store_true", help="under a minute: chi 6, one coupling")
    options = parser.parse_args()
    if options.chi < 1 or options.max_steps < 1:
        parser.error("--chi and --max-steps are at least 1")
    jax.config.update("jax_enable_x64", True)
    chi, couplings = options.chi, options.couplings
    if options.smoke:
        chi, couplings = 6, np.array([0.35])
    settings = DEFAULTS._replace(max_steps=options.max_steps)
    print(f"2D Ising model, CTMRG with chi = {chi}; errors against the exact solution")
    print("      K           lnZ/N  error         E/N  error         C/N  error           m  error")
    found, failed = [], 0
    for coupling in couplings:
        begin = time.perf_counter()
        *values, info = thermodynamics(jnp.asarray(coupling), chi, settings)
        known = exact(float(coupling))
        row = [float(value) for value in values]
        found.append(row)
        errors = [abs(x - y) for x, y in zip(row, known, strict=True)]
        pairs = zip(("15.12f", "11.8f", "11.8f", "11.8f"), row, errors, strict=True)
        print(f"{coupling:7.4f} " + " ".join(f"{x:{form}} {e:6.0e}" for form, x, e in pairs))
        print(
            f"{int(info.kept)} states, {int(info.steps)} steps, residual "
            f"{float(info.residual):.0e}, {time.perf_counter() - begin:.1f} s",
            file=sys.stderr,
        )
        if not info.converged:
            failed += 1
            print(
                f"K = {coupling}: not converged, spectrum still changes by "
                f"{float(info.change):.1e}; give more --max-steps",
                file=sys.stderr,
            )
    table = np.array(found)
    known = np.array([exact(float(coupling)) for coupling in couplings])
    if options.output and Path(options.output).suffix.lower() == ".csv":
        header = "K,lnZ,E,C,m,lnZ_exact,E_exact,C_exact,m_exact"
        columns = np.column_stack([couplings, table, known])
        np.savetxt(options.output, columns, delimiter=",", header=header, comments="")
    elif options.output:
        picture(options.output, couplings, table, known)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
