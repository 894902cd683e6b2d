"""Truncated singular value decomposition with the exact truncation term.

Rule. `A = U diag(s) V^H + B`, where `B` is what the truncation drops. With `T = U^H A_dot V`,
the parts of the tangents inside of the kept spaces are those of `svd`. The parts outside,
`X = (I - U U^H) U_dot` and `Y = (I - V V^H) V_dot`, solve

    X diag(s) - B Y   = G_u = A_dot V - U T
    Y diag(s) - B^H X = G_v = A_dot^H U - V T^H

where `diag(s)` stands for `U^H A V`: inside of a cluster its tangent is not diagonal, and a second
derivative sees that. The often used `X = G_u / s` drops `B`, an error of order `s[k+1] / s[k]`.
Eliminating `Y` leaves one Hermitian positive definite system for each column,

    (I - B B^H / s[j]^2) x = g_u / s[j] + B g_v / s[j]^2,    y = (g_v + B^H x) / s[j]

which conjugate gradients solve inside of the JVP. The leading dropped triplets, which the
iteration for the kept ones leaves behind, deflate it: a dozen steps reach rounding.

Between kept values that coincide the in-space part is zero: the frames `U` and `V` then follow
the cluster without rotating inside of it, and a loss that depends on the cluster through its
projectors is exact to every order. Values whose difference matters use `U^H A V`, not `diag(s)`:
with the anti-Hermitian `P = U^H U_dot` and `Q = V^H V_dot` its tangent is `T - P core + core Q`.

Vectors are kept as rows: then a product with `A` or with `A^H` transposes nothing.
"""

from functools import partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from difflinalg._core import checks, dense_checks, lapack, tolerances
from difflinalg._core.algebra import (
    adjoint,
    diagonal_matrix,
    inv0,
    mm,
    real_diagonal,
    skew,
)
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


class SVDTruncResult(NamedTuple):
    """`A ~ U diag(S) Vh` with what the truncation dropped."""

    U: Array
    S: Array
    Vh: Array
    info: TruncationInfo


Factors = tuple[Array, ...]  # of the matrix that is decomposed, itself if there is one


class Kept(NamedTuple):
    """Differentiated part of the decomposition, vectors as rows; what is not kept is zero."""

    uh: Array  # (k, m)
    s: Array  # (k,)
    vh: Array  # (k, n)
    core: Array  # (k, k), the product U^H A V


def svd_trunc(
    a: ArrayLike | tuple[ArrayLike, ...],
    rank: int,
    *,
    keep_multiplets: bool = False,
    multiplet_rtol: float | None = None,
    cluster_rtol: float | None = None,
    full: bool | None = None,
    core: bool = False,
    product: ArrayLike | None = None,
) -> SVDTruncResult:
    """The `rank` largest singular triplets, `A ~ U diag(S) Vh`.

    Args:
        a: shape `(..., m, n)`, real or complex; or a tuple of matrices whose product is
            decomposed. The factors are multiplied once for the value; products of tangents are
            not formed.
        rank: how many triplets to keep, a Python integer from 1 to `min(m, n)`.
        keep_multiplets: where the rank cuts through equal singular values, drop the members
            inside of it too; the columns of `U`, the rows of `Vh` and the values dropped this
            way are zero, `info.kept` counts the others.
        multiplet_rtol: two values are equal when they differ by less than this times the
            largest; `eps^(2/3)` by default.
        cluster_rtol: kept values closer than this, times the largest, are one cluster, inside of
            which the frames do not turn; `eps^(3/4)` by default for the first derivative. With
            `jnp.inf` no gap between kept values matters, for losses that depend on `U`, `Vh` and
            `U^H A V` in a covariant way, as a contracted tensor network does.
        full: whether to decompose fully (true) or by block subspace iteration (false), which
            falls back to the full decomposition where it does not converge. By default the
            iteration runs where it is clearly cheaper: `9 rank <= min(m, n)` and
            `min(m, n) >= 64`.
        core: return in the place of `S` the matrix `U^H A V`, shape `(..., rank, rank)`. Its value
            is `diag(S)`; its derivative is right inside of a cluster too, where the frames do
            not rotate to keep it diagonal.
        product: the product of the matrices of a tuple, shape `(..., m, n)`, where it is at hand;
            else they are multiplied. Derivatives are those of the factors. That it is their
            product is not checked.

    Returns:
        `SVDTruncResult(U, S, Vh, info)`, shapes `(..., m, rank)`, `(..., rank)`,
        `(..., rank, n)`, and `info`, a `TruncationInfo`.

    Raises:
        TypeError: if `a` is not an array of numbers, in half precision, `rank` not a static
            integer, a flag not static, or `product` complex and `a` real.
        ValueError: if `a` is not a matrix, `rank` is out of range, a tolerance is negative,
            `product` has another shape than the product of the matrices of a tuple, or (outside
            jit and other transformations) `a` contains NaN or inf; under jit the result is NaN.

    Derivatives:
        Forward and reverse mode in any nesting, with the exact truncation term. Right for every
        loss where the kept values are distinct; where they coincide, for losses that depend on
        a cluster through its projectors (with `core=True` where its values matter). If the
        rank cuts a multiplet, no derivative of the factors exists: it is NaN and `info.cut` is
        set; use `keep_multiplets=True` or another rank. Zero values that are kept move only
        with the others.

    Cost:
        O(m n rank) for the iteration, about 30 products of `A` with a vector for each kept one;
        O(m n min(m, n)) in full. A tangent costs about a dozen products with `rank` vectors.
        Reverse mode keeps `A` and the factors only.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg import linalg
        >>> u, s, vh, info = linalg.svd_trunc(jnp.diag(jnp.array([3.0, 2.0, 1.0])), 2)
        >>> print(s, info.error)
        [3. 2.] 1.0

    References:
        Francuz, Schuch and Vanhecke, "Stable and efficient differentiation of tensor network
        algorithms" (2025), arXiv:2311.11894, section III (the truncation term).
        Halko, Martinsson and Tropp, "Finding structure with randomness" (2011), section 4.5.
    """
    factors = dense_checks.as_factors("svd_trunc", a)
    limit = min(factors[0].shape[-2], factors[-1].shape[-1])
    full = None if full is None else checks.check_flag("svd_trunc", "full", full)
    keep_multiplets = checks.check_flag("svd_trunc", "keep_multiplets", keep_multiplets)
    core = checks.check_flag("svd_trunc", "core", core)
    spec = truncation("svd_trunc", rank, limit, full, keep_multiplets, multiplet_rtol, cluster_rtol)
    for factor in factors:
        checks.refuse_nonfinite("svd_trunc", factor)
    known = None if product is None else dense_checks.as_product("svd_trunc", product, factors)
    return _svd_trunc(factors, known, spec, core)


@partial(jax.jit, static_argnums=(2, 3))
def _svd_trunc(a: Factors, product: Array | None, spec: Truncation, core: bool) -> SVDTruncResult:
    one = partial(_svd_trunc_one, spec=spec, core=core)
    for _ in range(a[0].ndim - 2):
        one = jax.vmap(one)
    return one(a, product)


def _svd_trunc_one(
    a: Factors, product: Array | None, spec: Truncation, core: bool
) -> SVDTruncResult:
    first, *others = a
    if others:
        product = mm(*lax.stop_gradient(a)) if product is None else lax.stop_gradient(product)
    kept, deflation = svd_trunc_core(a, product, spec, 0)
    u = adjoint(kept.uh)
    rest = lax.stop_gradient(first if product is None else product)
    rest = rest - mm(*lax.stop_gradient((u * kept.s, kept.vh)))
    info = truncation_info(rest, kept.s, lax.stop_gradient(deflation))
    return SVDTruncResult(u, kept.core if core else kept.s, kept.vh, info)


@operation(statics=2)
def svd_trunc_core(
    factors: Factors, product: Array | None, spec: Truncation, level: int
) -> tuple[Kept, Deflation]:
    """Kept triplets and, constant, the deflation.

    `product` is that of several factors, and a constant. `level` is the number of rules above
    this one.
    """
    a = factors[0] if product is None else product

    def in_full() -> subspace.Block:
        # Of the transposed matrix, which is stored by columns as LAPACK wants it: `a` itself would
        # be copied in front of the loop that holds this, also where the loop does not turn.
        v_conj, s, u_t = lapack.svd(jnp.swapaxes(a, -1, -2))
        uh, s, vh = (x[: spec.width] for x in (jnp.conj(u_t), s, jnp.swapaxes(v_conj, -1, -2)))
        zero = jnp.zeros_like(s, shape=())
        return subspace.Block(uh, s, vh, vh, zero, zero, jnp.zeros((), jnp.int32))

    if spec.max_products == 0:
        block = in_full()
    else:
        block, converged = subspace.subspace_svd(a, spec.rank, spec.width, spec.max_products)
        block = subspace.or_else(block, converged, in_full)
    deflation = truncate(block, spec, level, max(a.shape), min(a.shape))
    defined = jnp.where(jnp.all(jnp.isfinite(a)), 1.0, jnp.nan).astype(block.s.dtype)
    mask = deflation.kept * defined  # LAPACK may answer a NaN with numbers
    uh, vh = (x[: spec.rank] * mask[:, None] for x in (block.uh, block.vh))
    s = block.s[: spec.rank] * mask
    kept = Kept(uh, s, vh, diagonal_matrix(s).astype(a.dtype))
    return kept, deflation


@svd_trunc_core.defjvp
def _svd_trunc_core_jvp(spec, level, primals, tangents):
    (a, product), (a_dot, _) = primals, tangents
    kept, deflation = svd_trunc_core(a, product, spec, level + 1)
    deflation = lax.stop_gradient(deflation)
    kept_dot = jax.checkpoint(svd_trunc_tangents)(a, kept, deflation, product, a_dot)
    return (kept, deflation), (kept_dot, jax.tree.map(jnp.zeros_like, deflation))


def _times(a: Factors, xh: Array) -> Array:
    """`(A X)^H` from `X^H`."""
    return reduce(lambda yh, factor: mm(yh, adjoint(factor)), a[::-1], xh)


def _adjoint_times(a: Factors, xh: Array) -> Array:
    """`(A^H X)^H` from `X^H`."""
    return reduce(mm, a, xh)


def svd_trunc_tangents(
    a: Factors, kept: Kept, deflation: Deflation, product: Array | None, a_dot: Factors
) -> Kept:
    """Tangents of the kept triplets from the tangent of `A`, both as products of factors."""
    uh, s, vh, core = kept
    a_dot_v = jax.jvp(lambda a: _times(a, vh), (a,), (a_dot,))[1]  # (A_dot V)^H
    a_dot_h_u = jax.jvp(lambda a: _adjoint_times(a, uh), (a,), (a_dot,))[1]
    t = mm(a_dot_h_u, adjoint(vh))
    s_row, s_column = s[None, :], s[:, None]
    even = skew(inv0(s_row - s_column, deflation.cluster) * t)  # scaled first, as in `svd`
    odd = skew(inv0(s_row + s_column, deflation.floor) * t)
    p, q = even + odd, even - odd  # U^H U_dot and V^H V_dot, anti-Hermitian
    xh, yh = outside(
        a, kept, deflation, product, a_dot_v - mm(adjoint(t), uh), a_dot_h_u - mm(t, vh)
    )
    mask = deflation.kept * deflation.guard
    return Kept(
        (xh - mm(p, uh)) * mask[:, None],
        real_diagonal(t) * deflation.kept,
        (yh - mm(q, vh)) * mask[:, None],
        (t - mm(p, core) + mm(core, q)) * mask * mask[:, None],
    )


def outside(
    a: Factors,
    kept: Kept,
    deflation: Deflation,
    product: Array | None,
    g_u: Array,
    g_v: Array,
) -> tuple[Array, Array]:
    """`X^H` and `Y^H` of the module docstring, from `G_u^H` and `G_v^H`."""
    uh, s, vh, core = kept
    inverse = _core_inverse(core, s, deflation.floor)
    u_core, v_core = mm(adjoint(core), uh), mm(core, vh)

    def b(a: Factors, yh: Array) -> Array:
        return _times(a, yh) - mm(mm(yh, adjoint(vh)), u_core)

    def b_adjoint(a: Factors, xh: Array) -> Array:
        return _adjoint_times(a, xh) - mm(mm(xh, adjoint(uh)), v_core)

    def operator(a: Factors, xh: Array) -> Array:
        yh = mm(inverse, b_adjoint(a, xh))
        return xh - mm(adjoint(inverse), b(a, yh))

    inv_s = inv0(lax.stop_gradient(s), deflation.floor)
    ratio = jnp.abs(deflation.s) * inv_s[:, None] * deflation.dropped
    gain = jnp.square(ratio) * inv0((1.0 - ratio) * (1.0 + ratio), tolerances.epsilon(inv_s.dtype))

    def preconditioner(r: Array) -> Array:
        return r + mm(gain * mm(r, adjoint(deflation.uh)), deflation.uh)

    xh = hermitian_solve(
        partial(operator, a),
        mm(adjoint(inverse), g_u + b(a, mm(inverse, g_v))),
        preconditioner,
        max_steps=10 * sum(g.shape[1] for g in (g_u, g_v)),
        constant=partial(operator, a if product is None else (product,)),
        axis=-1,
    )
    return xh, mm(inverse, g_v + b_adjoint(a, xh))


def _core_inverse(core: Array, s: Array, floor: Array) -> Array:
    """The inverse of `U^H A V`, which is `diag(s)` but, inside of a cluster, has any tangent.

    Rows and columns of zero values are zero.
    """
    values = lax.stop_gradient(s)
    live = jnp.where(values > floor, 1.0, 0.0).astype(s.dtype)
    diagonal = jnp.where(live > 0.0, values, 1.0)[:, None]
    regular = core * live * live[:, None] + diagonal_matrix(1.0 - live)
    inverse = lax.custom_linear_solve(
        partial(mm, regular),
        jnp.eye(s.shape[0], dtype=core.dtype),
        lambda _, b: b / diagonal,
        lambda _, b: b / diagonal,
    )
    return inverse * live * live[:, None]
