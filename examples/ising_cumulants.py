"""The first eight cumulants of the Ising energy, from one pass through TRG.

The k-th derivative of lnZ / N with respect to the coupling K is the k-th cumulant of the sum of
`s_i s_j` over the bonds, per site. Nested differentiation to order 8 would double the program eight
times; Taylor mode carries a power series in K through the renormalisation group of `ising_trg.py`
once. The exact derivatives are those of Onsager's energy (1944, Phys. Rev. 65, 117, equation 116),
by mpmath with 40 digits.

    python examples/ising_cumulants.py --chi 16 --couplings 0.20:0.36:5 --output cumulants.png

Needs mpmath, and matplotlib for the picture (extra `figures`).
"""

import argparse
import math
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from ising_trg import ising_tensor, log_partition_per_site, parse_couplings
from jax import Array, lax

from difflinalg import taylor

MULTIPLET_RTOL = 3e-4  # an eighth derivative at a smaller gap would be noise


@partial(jax.jit, static_argnums=(1, 2, 3))
def cumulants(couplings: Array, chi: int, steps: int, order: int) -> Array:
    """`d^k (lnZ / N) / dK^k` for k = 0 .. order, a row for each coupling."""

    def log_z(coupling: Array) -> Array:
        return log_partition_per_site(ising_tensor(coupling), chi, steps, MULTIPLET_RTOL)

    return lax.map(lambda coupling: taylor.derivatives(log_z, coupling, order), couplings)


@lru_cache(maxsize=256)
def onsager(coupling: float, order: int) -> tuple[float, ...]:
    """The same derivatives of the exact free energy of the infinite lattice, K > 0, off K_c."""
    import mpmath as mp

    with mp.workdps(40):

        def modulus(k):
            return 2 * mp.sinh(2 * k) / mp.cosh(2 * k) ** 2

        def log_z(k):
            def inner(angle):
                return mp.log((1 + mp.sqrt(1 - (modulus(k) * mp.sin(angle)) ** 2)) / 2)

            return mp.log(2 * mp.cosh(2 * k)) + mp.quad(inner, [0, mp.pi / 2]) / mp.pi

        def slope(k):  # -E / N
            factor = 2 * (2 * mp.tanh(2 * k) ** 2 - 1) / mp.pi
            return mp.coth(2 * k) * (1 + factor * mp.ellipk(modulus(k) ** 2))

        k = mp.mpf(coupling)
        terms = mp.taylor(slope, k, order - 1) if order else []
        exact = [log_z(k)] + [term * math.factorial(i) for i, term in enumerate(terms)]
        return tuple(float(x) for x in exact)


def picture(path: str, couplings: np.ndarray, found: np.ndarray) -> None:
    """Write one panel for each derivative: TRG next to the exact curve."""
    import matplotlib.pyplot as plt

    order = found.shape[1] - 1
    fine = np.linspace(couplings.min(), couplings.max(), 25)
    exact = np.array([onsager(float(k), order) for k in fine])
    rows = math.ceil(order / 4)
    figure, axes = plt.subplots(
        rows, min(order, 4), figsize=(11.0, 2.6 * rows), layout="constrained", squeeze=False
    )
    for k, axis in zip(range(1, order + 1), axes.flat, strict=False):
        axis.plot(fine, exact[:, k], "-", color="0.6", label="exact (Onsager)")
        axis.plot(couplings, found[:, k], "o", ms=4, label="TRG, one Taylor pass")
        axis.set_title(f"cumulant {k}, per site")
        axis.set_xlabel("coupling K = beta J")
    axes[0, 0].legend()
    for axis in axes.flat[order:]:
        axis.set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> int:
    """Print the table; draw it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chi", type=int, default=16, help="largest bond dimension")
    parser.add_argument("--steps", type=int, default=20, help="renormalisation steps")
    parser.add_argument("--order", type=int, default=8, help="highest derivative")
    parser.add_argument(
        "--couplings",
        type=parse_couplings,
        default="0.20:0.36:5",
        help="start:stop:count (default %(default)s)",
    )
    parser.add_argument("--output", help="an image file for a picture")
    parser.add_argument("--smoke", action="store_true", help="a short run: chi 4, 6 steps, order 4")
    options = parser.parse_args(arguments)
    if options.chi < 1 or options.steps < 1 or options.order < 1:
        parser.error("--chi, --steps and --order are at least 1")
    jax.config.update("jax_enable_x64", True)
    couplings, chi, steps, order = options.couplings, options.chi, options.steps, options.order
    if options.smoke:
        couplings, chi, steps, order = np.array([0.10, 0.20]), 4, 6, 4
    found = np.asarray(cumulants(jnp.asarray(couplings), chi, steps, order))
    print(f"2D Ising model, TRG with chi = {chi}, 2^{steps} sites; exact: infinite lattice")
    print("      K    k   d^k lnZ / dK^k / N              exact   rel.err.")
    for coupling, row in zip(couplings, found, strict=True):
        for k, (value, exact) in enumerate(zip(row, onsager(float(coupling), order), strict=True)):
            error = abs(value / exact - 1)
            print(f"{coupling:7.4f} {k:4d} {value:20.10f} {exact:18.10f} {error:10.1e}")
    if options.output:
        picture(options.output, couplings, found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
