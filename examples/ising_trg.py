"""Free energy, energy and specific heat of the square-lattice Ising model by TRG.

The tensor renormalisation group (Levin and Nave 2007, Phys. Rev. Lett. 99, 120601) contracts a
network of identical four-leg tensors by splitting each with a truncated SVD and joining the
halves around plaquettes. One function of the coupling K = beta J, differentiated twice, gives

    lnZ / N,    E / N = -d(lnZ / N) / dK,    C / N = K^2 d^2(lnZ / N) / dK^2

next to the exact solution (Onsager 1944, Phys. Rev. 65, 117, equations 116 and 117).

    python examples/ising_trg.py --chi 16 --couplings 0.40:0.50:11
"""

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from scipy.special import ellipe, ellipk

from difflinalg import implicit, linalg, taylor

WEIGHT_FLOOR = 1e-16  # of a bond state, relative to the largest: keeps the root differentiable
einsum = partial(jnp.einsum, precision=lax.Precision.HIGHEST)

Corners = tuple[Array, Array, Array, Array]
Split = tuple[Corners, Array]  # and the logarithm of what was divided out


class Diagonal(NamedTuple):
    """The matrix of a tensor along one diagonal."""

    factors: tuple[Array, ...]
    product: Array | None = None  # its value, if there are several factors


def ising_tensor(coupling: ArrayLike) -> Array:
    """The tensor of one site, legs up, left, down, right, shape `(2, 2, 2, 2)`.

    An even number of odd legs `m` has the weight `2 cosh(K)^(2 - m/2) sinh(K)^(m/2)`, an odd
    number has none: analytic in K, also at zero and for antiferromagnets.
    """
    c, s = jnp.cosh(coupling), jnp.sinh(coupling)
    odd_legs = np.indices((2, 2, 2, 2)).sum(axis=0)
    weights = 2.0 * jnp.stack([c * c, c * s, s * s])
    return jnp.where(odd_legs % 2 == 0, weights[odd_legs // 2], 0.0)


def log_partition_per_site(
    tensor: Array, chi: int, steps: int, multiplet_rtol: float | None = None
) -> Array:
    """`lnZ / N` of a periodic lattice of `N = 2^steps` tensors, truncated to `chi` bond states.

    Args:
        tensor: shape `(a, b, a, b)`, legs up, left, down, right; real or complex.
        chi: largest bond dimension.
        steps: number of renormalisation steps, at least 1; each halves the number of tensors.
        multiplet_rtol: bond states whose weights differ by less than this times the largest are
            kept or dropped together. Where the last kept and the first dropped weight nearly
            agree, derivatives of order k have the rounding of `1 / gap^k`: high ones need a gap.

    Returns:
        A scalar of the dtype of `tensor`, differentiable to any order in both modes; NaN for a
        real tensor with a negative partition function.
    """
    if tensor.ndim != 4 or tensor.shape[:2] != tensor.shape[2:]:
        msg = f"tensor needs the shape (a, b, a, b), got {tensor.shape}"
        raise ValueError(msg)
    if chi < 1 or steps < 1:
        msg = f"chi and steps are at least 1, got chi={chi}, steps={steps}"
        raise ValueError(msg)
    corners, total = _split_tensor(tensor, chi, multiplet_rtol)
    step = 1
    while step < steps and _is_small_or_large(corners, chi):
        corners, log_scale = _renormalise(corners, chi, multiplet_rtol)
        total = total + log_scale / 2**step
        step += 1
    if step < steps:
        corners = tuple(_pad(corner, chi) for corner in corners)
        corners, log_scales = lax.scan(
            lambda corners, _: _renormalise(corners, chi, multiplet_rtol),
            corners,
            None,
            steps - step,
        )
        # Summed behind the loop: its derivatives then carry nothing but the corners.
        weights = 0.5 ** np.arange(step, steps)
        total = total + jnp.dot(weights.astype(log_scales.dtype), log_scales)
    return total + jnp.log(einsum("xsp,pqy,qrx,yrs->", *corners)) / 2**steps


def _is_small_or_large(corners: Corners, chi: int) -> bool:
    """Whether the bonds are still too few to fill `chi` states soon, or more than that."""
    bonds, first, second = corners[0].shape
    return bonds**2 <= chi or max(first, second) > chi


def _pad(corner: Array, chi: int) -> Array:
    """Bond states of zero weight up to `chi`, for a loop needs equal shapes."""
    return jnp.pad(corner, [(0, chi - size) for size in corner.shape])


def _split_tensor(tensor: Array, chi: int, multiplet_rtol: float | None) -> Split:
    """The corners of the first plaquette."""
    a, b = tensor.shape[:2]
    rows, columns = tensor, tensor.transpose(1, 2, 3, 0)
    diagonals = Diagonal((rows.reshape(a * b, -1),)), Diagonal((columns.reshape(a * b, -1),))
    return _split(diagonals, a, b, chi, multiplet_rtol)


def _renormalise(corners: Corners, chi: int, multiplet_rtol: float | None) -> Split:
    """One step: join the corners around a plaquette, split the result along both diagonals.

    Both matrices of the joined tensor are products of two halves. The tensor itself is needed for
    its value alone, and once, because it has the entries of both.
    """
    top_left, top_right, bottom_right, bottom_left = corners
    k, a, b = top_left.shape
    left = einsum("xsp,wrs->xwpr", top_left, bottom_left).reshape(-1, a * b)
    right = einsum("pqy,qrz->przy", top_right, bottom_right).reshape(a * b, -1)
    bottom = einsum("wrs,qrz->wzsq", bottom_left, bottom_right).reshape(-1, a * b)
    top = einsum("pqy,xsp->sqyx", top_right, top_left).reshape(-1, k * k)
    joined = einsum("ij,jk->ik", *lax.stop_gradient((left, right)))  # (x w, z y)
    turned = joined.reshape(k, k, k, k).transpose(1, 2, 3, 0).reshape(k * k, k * k)
    diagonals = Diagonal((left, right), joined), Diagonal((bottom, top), turned)
    return _split(diagonals, k, k, chi, multiplet_rtol)


def _split(
    diagonals: tuple[Diagonal, Diagonal], a: int, b: int, chi: int, multiplet_rtol: float | None
) -> Split:
    """The corners of the next plaquette, from the matrices of one tensor along both diagonals."""
    (left_up, right_down), log_scale = _halves(diagonals[0], chi, multiplet_rtol)
    (down_left, up_right), other_log_scale = _halves(diagonals[1], chi, multiplet_rtol)
    # The plaquette has the bonds p (top), q (right), r (bottom), s (left).
    top_left = right_down.reshape(-1, a, b)  # (x, s, p)
    top_right = down_left.reshape(b, a, -1)  # (p, q, y)
    bottom_right = left_up.reshape(a, b, -1)  # (q, r, z)
    bottom_left = up_right.reshape(-1, b, a)  # (w, r, s)
    corners = top_left, top_right, bottom_right, bottom_left
    return corners, 0.5 * (log_scale + other_log_scale)


def _halves(
    diagonal: Diagonal, chi: int, multiplet_rtol: float | None
) -> tuple[tuple[Array, Array], Array]:
    """`A / s[0] ~ (U W) (W V^H)` with `W = (U^H A V)^(1/2)`: `U sqrt(s)` and `sqrt(s) V^H`.

    Written with the projected matrix and not its eigenvalues, it needs no derivative inside of a
    multiplet, and is right where singular values coincide.
    """
    k = min(chi, *(size for factor in diagonal.factors for size in factor.shape))
    u, core, vh, _ = linalg.svd_trunc(
        diagonal.factors,
        k,
        keep_multiplets=True,
        multiplet_rtol=multiplet_rtol,
        core=True,
        product=diagonal.product,
    )
    scale = jnp.real(core[0, 0])  # not a constant: high derivatives would grow like 2^step
    root = square_root(core / scale)
    return (einsum("ij,jk->ik", u, root), einsum("ij,jk->ik", root, vh)), jnp.log(scale)


def square_root(core: Array) -> Array:
    """The square root of `core`, a diagonal matrix that may have any tangent.

    The value is known; its derivatives are those of the fixed point of Newton's method.
    """
    weights = jnp.real(jnp.diagonal(lax.stop_gradient(core)))
    root = jnp.sqrt(jnp.maximum(weights, WEIGHT_FLOOR))
    offset = jnp.diag(root * root - weights)

    def newton(w: Array, core: Array) -> Array:
        return w + (core + offset - einsum("ij,jk->ik", w, w)) / (root[:, None] + root)

    value = jnp.diag(root).astype(core.dtype)
    return implicit.fixed_point(newton, value, core, solver=implicit.Neumann()).x


@partial(jax.jit, static_argnums=(1, 2))
def thermodynamics(couplings: Array, chi: int, steps: int) -> tuple[Array, Array, Array]:
    """`lnZ / N`, `E / N` and `C / N` for each coupling, by one pass of Taylor mode.

    Nested forward mode, `jax.jvp` of `jax.jvp`, gives the same numbers in 1.5 times the time.
    """

    def log_z(coupling: Array) -> Array:
        return log_partition_per_site(ising_tensor(coupling), chi, steps)

    def one(coupling: Array) -> tuple[Array, Array, Array]:
        value, first, second = taylor.derivatives(log_z, coupling, 2)
        return value, -first, coupling**2 * second

    return lax.map(one, couplings)


def onsager(coupling: float) -> tuple[float, float, float]:
    """The exact `lnZ / N`, `E / N` and `C / N` of the infinite lattice at coupling K > 0."""
    k2 = min((2.0 * np.sinh(2.0 * coupling) / np.cosh(2.0 * coupling) ** 2) ** 2, 1.0)
    theta = (np.arange(4096) + 0.5) * np.pi / 4096  # periodic integrand: the midpoint rule
    log_z = np.log(2.0 * np.cosh(2.0 * coupling)) + 0.5 * np.mean(
        np.log(0.5 * (1.0 + np.sqrt(1.0 - k2 * np.sin(theta) ** 2)))
    )
    tanh2, coth = np.tanh(2.0 * coupling) ** 2, 1.0 / np.tanh(2.0 * coupling)
    first, second = ellipk(k2), ellipe(k2)
    # At the critical coupling the first factor vanishes faster than the elliptic integral grows.
    product = (2.0 * tanh2 - 1.0) * first if np.isfinite(first) else 0.0
    energy = -coth * (1.0 + 2.0 / np.pi * product)
    inner = np.pi / 2.0 + product
    heat = 4.0 / np.pi * (coupling * coth) ** 2 * (first - second - (1.0 - tanh2) * inner)
    return float(log_z), float(energy), float(heat)


def sweep(couplings: np.ndarray, chi: int, steps: int) -> np.ndarray:
    """Rows `lnZ / N, E / N, C / N`; compiled once, with the progress on standard error."""
    chunk = max(1, min(4, len(couplings)))
    rows, start = [], time.perf_counter()
    for begin in range(0, len(couplings), chunk):
        part = couplings[begin : begin + chunk]
        padded = np.concatenate([part, np.repeat(part[-1:], chunk - len(part))])
        rows.append(np.stack(thermodynamics(jnp.asarray(padded), chi, steps), axis=1)[: len(part)])
        seconds = time.perf_counter() - start
        print(
            f"\r{begin + len(part)}/{len(couplings)} couplings, {seconds:.1f} s",
            end="",
            file=sys.stderr,
            flush=True,
        )
    print(file=sys.stderr)
    return np.concatenate(rows)


def picture(path: str, couplings: np.ndarray, found: np.ndarray) -> None:
    """Write energy and specific heat next to the exact curves."""
    import matplotlib.pyplot as plt

    fine = np.linspace(np.min(couplings), np.max(couplings), 301)
    exact = np.array([onsager(coupling) for coupling in fine])
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    for axis, column, label in zip(axes, (1, 2), ("E / N", "C / N"), strict=True):
        axis.plot(fine, exact[:, column], "-", color="0.6", label="exact (Onsager)")
        axis.plot(couplings, found[:, column], "o", ms=4, label="TRG, differentiated")
        axis.set_xlabel("coupling K = beta J")
        axis.set_ylabel(label + (" [J]" if column == 1 else " [k_B]"))
        axis.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def parse_couplings(text: str) -> np.ndarray:
    """`start:stop:count`, both ends included, or a single value."""
    try:
        *ends, count = text.split(":") if text.count(":") == 2 else (text, text, "1")
        start, stop, count = float(ends[0]), float(ends[1]), int(count)
        if count < 0:
            raise ValueError
    except ValueError:
        msg = f"expected start:stop:count or one number, got {text!r}"
        raise argparse.ArgumentTypeError(msg) from None
    if count < 1 or not (0.0 < start < np.inf and 0.0 < stop < np.inf):
        msg = f"couplings must be positive, finite and at least one, got {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return np.linspace(start, stop, count)


def parse_output(text: str) -> str:
    """The path of a table or a picture that can be written: better known before the sweep."""
    path = Path(text)
    if not path.absolute().parent.is_dir():
        msg = f"no such directory: {path.parent}"
        raise argparse.ArgumentTypeError(msg)
    if path.suffix.lower() != ".csv":
        try:
            from matplotlib.backend_bases import FigureCanvasBase
        except ImportError:
            msg = f"{text} needs matplotlib: pip install '.[figures]', or give a .csv file"
            raise argparse.ArgumentTypeError(msg) from None
        known = sorted(FigureCanvasBase.get_supported_filetypes())
        if path.suffix[1:].lower() not in known:
            msg = f"{text} is neither .csv nor a picture ({', '.join(known)})"
            raise argparse.ArgumentTypeError(msg)
    target = Path(os.path.realpath(path))
    try:
        is_new = not target.exists()
        with target.open("ab"):
            pass
        if is_new:
            target.unlink()
    except OSError as error:
        msg = f"cannot write {text}: {error.strerror}"
        raise argparse.ArgumentTypeError(msg) from None
    return text


def main() -> None:
    """Print the table; write it and a picture if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chi", type=int, default=16, help="largest bond dimension")
    parser.add_argument("--steps", type=int, default=20, help="renormalisation steps")
    parser.add_argument(
        "--couplings",
        type=parse_couplings,
        default="0.40:0.50:11",
        help="start:stop:count (default %(default)s)",
    )
    parser.add_argument(
        "--output",
        type=parse_output,
        help="a .csv file for the table or an image file for a picture",
    )
    parser.add_argument("--smoke", action="store_true", help="a few seconds: chi 4, 6 steps")
    options = parser.parse_args()
    if options.chi < 1 or options.steps < 1:
        parser.error("--chi and --steps are at least 1")
    jax.config.update("jax_enable_x64", True)
    couplings, chi, steps = options.couplings, options.chi, options.steps
    if options.smoke:
        couplings, chi, steps = np.array([0.40, 0.44]), 4, 6
    found = sweep(couplings, chi, steps)
    exact = np.array([onsager(coupling) for coupling in couplings])
    print(f"2D Ising model, TRG with chi = {chi}, 2^{steps} sites; exact: infinite lattice")
    print(
        "      K          lnZ/N          exact   rel.err.        E/N      exact"
        "        C/N      exact"
    )
    for coupling, (z, e, c), (z0, e0, c0) in zip(couplings, found, exact, strict=True):
        print(
            f"{coupling:7.4f} {z:14.10f} {z0:14.10f} {abs(z / z0 - 1):10.1e} "
            f"{e:10.6f} {e0:10.6f} {c:10.6f} {c0:10.6f}"
        )
    if options.output and Path(options.output).suffix.lower() == ".csv":
        header = "K,lnZ,E,C,lnZ_exact,E_exact,C_exact"
        np.savetxt(
            options.output,
            np.column_stack([couplings, found, exact]),
            fmt="%.15g",
            delimiter=",",
            header=header,
            comments="",
        )
    elif options.output:
        picture(options.output, couplings, found)


if __name__ == "__main__":
    main()
