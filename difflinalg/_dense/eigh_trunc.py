"""Truncated Hermitian eigendecomposition with the exact truncation term.

Rule. `A V = V diag(w) + 0`, `V^H V = I` for the kept pairs, `Q = I - V V^H`. With
`K = V^H A_dot V`,

    w_dot = Re diag(K)
    V_dot = V (F * K) + X,    F[i, j] = 1 / (w[j] - w[i]),    F[i, j] = 0 in a cluster
    (w[j] - Q A Q) x_j = Q A_dot v_j,    x_j in the range of Q

where `X diag(w)` stands for `X V^H A V`: inside of a cluster the tangent of that is not diagonal,
and a second derivative sees it.

The often used `x_j = Q A_dot v_j / w[j]` drops the discarded part of `A`, an error of order
`w[k+1] / w[k]`. Times the sign that makes it positive (that of `w[j]` if the largest magnitudes
are kept, +1 for the largest and -1 for the smallest values), the operator is definite, and
conjugate gradients solve it inside of the JVP, deflated by the leading discarded pairs. On the
range of `V` it is completed by the identity, which makes it regular without moving the solution.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from difflinalg._core import checks, dense_checks, lapack, tolerances
from difflinalg._core.algebra import adjoint, diagonal_matrix, herm, inv0, mm, real_diagonal
from difflinalg._core.operation import operation
from difflinalg._core.solve import hermitian_solve
from difflinalg._dense import subspace
from difflinalg._dense.truncation import (
    Deflation,
    Truncation,
    TruncationInfo,
    truncate,
    truncation,
    truncation_info,
)

ENDS = ("LM", "LA", "SA")


class EighTruncResult(NamedTuple):
    """`A ~ V diag(w) V^H` with what the truncation dropped."""

    eigenvalues: Array
    eigenvectors: Array
    info: TruncationInfo


class Kept(NamedTuple):
    """Differentiated part of the decomposition; columns that are not kept are zero."""

    w: Array  # (k,)
    v: Array  # (n, k)


def eigh_trunc(
    a: ArrayLike,
    rank: int,
    *,
    which: str = "LM",
    keep_multiplets: bool = False,
    multiplet_rtol: float | None = None,
    cluster_rtol: float | None = None,
    full: bool | None = None,
) -> EighTruncResult:
    """The `rank` leading eigenpairs of Hermitian matrices, `A ~ V diag(w) V^H`.

    Args:
        a: shape `(..., n, n)`, real or complex; its Hermitian part is decomposed.
        rank: how many pairs to keep, a Python integer from 1 to `n`.
        which: `'LM'` for the largest magnitudes (the best approximation of this rank), `'LA'`
            for the largest, `'SA'` for the smallest values. Sorted in that order.
        keep_multiplets: where the rank cuts through equal values, drop the members inside of it
            too; their values and columns are zero, `info.kept` counts the others.
        multiplet_rtol: two values are equal when they differ by less than this times the
            largest magnitude (for `'LA'` and `'SA'` the width of the spectrum); `eps^(2/3)` by
            default.
        cluster_rtol: as in `svd_trunc`; with `jnp.inf` the frame does not turn inside of its
            space, as that of `leading_space`.
        full: whether to decompose fully (true) or by block subspace iteration (false, `'LM'`
            only), which falls back to the full decomposition where it does not converge. By
            default the iteration runs where it is clearly cheaper: `9 rank <= n`, `n >= 64`.

    Returns:
        `EighTruncResult(eigenvalues, eigenvectors, info)`, shapes `(..., rank)`,
        `(..., n, rank)`, and `info`, a `TruncationInfo`.

    Raises:
        TypeError: if `a` is not an array of numbers, in half precision, `rank` not a static
            integer, or a flag not static.
        ValueError: if `a` is not square, `rank` is out of range, `which` is unknown,
            `full=False` goes with another end than `'LM'`, or (outside jit and other
            transformations) `a` contains NaN or inf; under jit the result is NaN.

    Derivatives:
        Forward and reverse mode in any nesting, with the exact truncation term. Right for every
        loss where the kept values are distinct; where they coincide, for losses that depend on
        a cluster through its projector. If the rank cuts a multiplet (with `'LM'` also `+w` and
        `-w`), no derivative of the vectors exists: it is NaN and `info.cut` is set; use
        `keep_multiplets=True` or another rank.

    Cost:
        O(n^2 rank) for the iteration, about 30 products of `A` with a vector for each kept one;
        O(n^3) in full. A tangent costs about a dozen products with `rank` vectors. Reverse mode
        keeps `A` and the factors only.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg import linalg
        >>> w, v, info = linalg.eigh_trunc(jnp.diag(jnp.array([1.0, -3.0, 2.0])), 2)
        >>> print(w, info.error)
        [-3.  2.] 1.0

    References:
        Francuz, Schuch and Vanhecke, "Stable and efficient differentiation of tensor network
        algorithms" (2025), arXiv:2311.11894, section III (the truncation term).
        Xie, Liu and Wang, "Automatic differentiation of dominant eigensolver" (2020),
        arXiv:2001.04121, equation 8 (one pair).
    """
    matrix = checks.as_square("eigh_trunc", a)
    checks.check_choice("eigh_trunc", "which", which, ENDS)
    full = None if full is None else checks.check_flag("eigh_trunc", "full", full)
    keep_multiplets = checks.check_flag("eigh_trunc", "keep_multiplets", keep_multiplets)
    if which != "LM" and full is False:
        dense_checks.refuse_iteration("eigh_trunc", which)
    n = matrix.shape[-1]
    full = full if which == "LM" else True
    spec = truncation("eigh_trunc", rank, n, full, keep_multiplets, multiplet_rtol, cluster_rtol)
    checks.refuse_nonfinite("eigh_trunc", matrix)
    return _eigh_trunc(matrix, spec, which)


@partial(jax.jit, static_argnums=(1, 2))
def _eigh_trunc(a: Array, spec: Truncation, which: str) -> EighTruncResult:
    one = partial(_eigh_trunc_one, spec=spec, which=which)
    for _ in range(a.ndim - 2):
        one = jax.vmap(one)
    return one(herm(a))


def _eigh_trunc_one(a: Array, spec: Truncation, which: str) -> EighTruncResult:
    kept, deflation, _ = eigh_trunc_core(a, spec, which, 0)
    rest = a - mm(kept.v * kept.w, adjoint(kept.v))
    info = truncation_info(rest, kept.w, lax.stop_gradient(deflation))
    return EighTruncResult(kept.w, kept.v, info)


@operation(statics=3)
def eigh_trunc_core(
    a: Array, spec: Truncation, which: str, level: int
) -> tuple[Kept, Deflation, Array]:
    """Kept pairs, deflation (with values relative to the origin), and that origin.

    The origin is 0 for the largest magnitudes; for one end of the spectrum it is the other end,
    so that the magnitudes of `w - origin` decrease in the order of the pairs. `level` is the
    number of rules above this one.
    """

    def in_full(origin: Array | float) -> subspace.Block:
        w, v = lapack.eigh(a)
        order = jnp.argsort(-jnp.abs(w - origin))[: spec.width]
        w, vh = (w - origin)[order], adjoint(v[:, order])
        zero = jnp.zeros_like(w, shape=())
        return subspace.Block(vh, w, vh, vh, zero, zero, jnp.zeros((), jnp.int32))

    origin = jnp.zeros((), a.real.dtype)
    if which != "LM":
        w = jnp.linalg.eigvalsh(a, symmetrize_input=False)
        origin = w[0] if which == "LA" else w[-1]
    if spec.max_products == 0:
        block = in_full(origin)
    else:
        block, converged = subspace.subspace_eigh(a, spec.rank, spec.width, spec.max_products)
        block = subspace.or_else(block, converged, lambda: in_full(0.0))
    deflation = truncate(block, spec, level, a.shape[0], a.shape[0])
    w, v = block.s[: spec.rank], adjoint(block.vh[: spec.rank])
    defined = jnp.where(jnp.all(jnp.isfinite(a)), 1.0, jnp.nan).astype(w.dtype)
    kept = deflation.kept * defined  # LAPACK may answer a NaN with numbers
    return Kept((w + origin) * kept, v * kept), deflation, origin


@eigh_trunc_core.defjvp
def _eigh_trunc_core_jvp(spec, which, level, primals, tangents):
    (a,), (a_dot,) = primals, tangents
    kept, deflation, origin = eigh_trunc_core(a, spec, which, level + 1)
    deflation, origin = lax.stop_gradient((deflation, origin))
    kept_dot = jax.checkpoint(eigh_trunc_tangents)(a, kept, deflation, origin, a_dot)
    constants = jax.tree.map(jnp.zeros_like, (deflation, origin))
    return (kept, deflation, origin), (kept_dot, *constants)


def eigh_trunc_tangents(
    a: Array, kept: Kept, deflation: Deflation, origin: Array, a_dot: Array
) -> Kept:
    """Tangents of the kept pairs from a Hermitian tangent of `A`."""
    w, v = kept
    a_dot_v = mm(a_dot, v)
    k = mm(adjoint(v), a_dot_v)
    inside = inv0(w[None, :] - w[:, None], deflation.cluster) * k
    x = outside(a, kept, deflation, origin, a_dot_v - mm(v, k))
    mask = deflation.kept * deflation.guard
    return Kept(real_diagonal(k) * deflation.kept, (mm(v, inside) + x) * mask)


def outside(a: Array, kept: Kept, deflation: Deflation, origin: Array, g: Array) -> Array:
    """`X` of the module docstring, from the operator `(w[j] - Q A Q) / (w[j] - origin)`."""
    w, v = kept
    shifted = lax.stop_gradient(w - origin) * deflation.kept
    inv_shifted = inv0(shifted, deflation.floor)
    live = jnp.abs(inv_shifted) > 0.0
    core = herm(mm(adjoint(v), mm(a, v)))  # diag(w), but inside of a cluster with any tangent
    core = diagonal_matrix(lax.stop_gradient(w)) + core - lax.stop_gradient(core)

    def inside(x: Array) -> Array:
        return mm(v, mm(adjoint(v), x))

    def operator(x: Array) -> Array:
        outside = x - inside(x)
        image = mm(a, outside)
        moved = (mm(outside, core) - (image - inside(image))) * inv_shifted
        return jnp.where(live, moved + inside(x), x)

    ratio = deflation.s[:, None] * inv_shifted * deflation.dropped[:, None]
    gain = ratio * inv0(1.0 - ratio, tolerances.epsilon(w.dtype))

    def preconditioner(r: Array) -> Array:
        return r + mm(adjoint(deflation.vh), gain * mm(deflation.vh, r))

    return hermitian_solve(operator, g * inv_shifted, preconditioner, max_steps=20 * a.shape[0])
