"""Series of truncated decompositions: one deflated solve for each order.

`A V = V D` for the kept pairs, `D(t)` block diagonal on clusters of eigenvalues,
`V[k] = V[0] P + X` with X outside of the kept space. With R and S as in `hermitian`, and
`T = V[0]^H R`,

    P[i, j] = T[i, j] / (w[j] - w[i]),                                     (different clusters)
    P[i, j] = S[i, j],   D[k][i, j] = T[i, j] + (w[i] - w[j]) S[i, j]      (the same)
    (w[j] - Q A[0] Q) x_j = Q r_j,    Q = I - V[0] V[0]^H

The truncated singular value decomposition is `singular.triplet_series`. Frames follow a cluster
without turning inside of it, as in the rules of `eigh_trunc` and `svd_trunc`: values whose
differences matter are those of `V^H A V`.
"""

from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core.algebra import adjoint, herm, inv0, mm, real_diagonal
from difflinalg._dense import eigh_trunc, svd_trunc
from difflinalg._dense.truncation import Deflation, Truncation
from difflinalg._taylor.convolution import Chain, set_order, start
from difflinalg._taylor.singular import inner, overlap, triplet_series


def eigh_trunc_series(
    a: Array, spec: Truncation, which: str, level: int
) -> tuple[eigh_trunc.Kept, Deflation, Array]:
    """Series of the kept pairs; deflation and origin are constants.

    Args:
        a: a Hermitian series, shape `(K + 1, n, n)`.
        spec: as in `eigh_trunc_core`.
        which: as in `eigh_trunc_core`.
        level: as in `eigh_trunc_core`.
    """
    order = a.shape[0] - 1
    found = eigh_trunc.eigh_trunc_core(a[0], spec, which, level + order)
    kept, deflation, origin = found
    deflation, origin = lax.stop_gradient((deflation, origin))
    w = kept.w
    outside = partial(eigh_trunc.outside, a[0], kept, deflation, origin)
    same = jnp.abs(w[:, None] - w[None, :]) <= deflation.cluster
    d, v = pair_series(Chain((a,)), w, kept.v, same, outside, order)
    guard = deflation.guard * deflation.kept
    v = v.at[1:].multiply(guard) if order else v
    return eigh_trunc.Kept(real_diagonal(d) * deflation.kept, v), deflation, origin


def pair_series(
    operator: Chain,
    w: Array,
    v_0: Array,
    same: Array,
    outside: Callable[[Array], Array],
    order: int,
) -> tuple[Array, Array]:
    """Series of `D`, shape `(K + 1, k, k)`, and of `V`, by the recurrence of the module.

    Args:
        operator: `A(t)`, applied order by order.
        w: the kept eigenvalues.
        v_0: their vectors, shape `(n, k)`.
        same: shape `(k, k)`, the pairs of one cluster.
        outside: solves for X from the right-hand side, shape `(n, k)`.
        order: K.
    """
    gap = w[None, :] - w[:, None]
    inverse = jnp.where(same, 0.0, inv0(gap, 0.0))

    def one_order(state, k):
        known, d = state
        v = known[0]
        image, parts = operator.without(known, k)
        r = image - inner(v, d, k)
        t = mm(adjoint(v_0), r)
        s = overlap(v, k)
        p = jnp.where(same, s, inverse * t)
        d_k = herm(jnp.where(same, t - gap * s, jnp.zeros((), d.dtype)))
        v_k = mm(v_0, p) + outside(r - mm(v_0, t))
        return (operator.complete(known, parts, k, v_k), set_order(d, k, d_k)), None

    d_0 = (jnp.eye(w.shape[0], dtype=w.dtype) * w).astype(v_0.dtype)
    first = operator.start(v_0, order), start(d_0, order)
    (known, d), _ = lax.scan(one_order, first, jnp.arange(1, order + 1))
    return d, known[0]


def svd_trunc_series(
    factors: tuple[Array, ...], spec: Truncation, level: int
) -> tuple[svd_trunc.Kept, Deflation, Array | None]:
    """Series of the kept triplets; the deflation and the product of the factors are constants.

    Args:
        factors: series of matrices, each of shape `(K + 1, m, n)`, whose product is decomposed.
        spec: as in `svd_trunc_core`.
        level: as in `svd_trunc_core`.
    """
    order = factors[0].shape[0] - 1
    first = tuple(factor[0] for factor in factors)
    kept, *constants = svd_trunc.svd_trunc_core(first, spec, level + order)
    deflation, product = lax.stop_gradient(constants)

    def outside(g_u: Array, g_v: Array) -> tuple[Array, Array]:
        rows = adjoint(g_u), adjoint(g_v)
        xh, yh = svd_trunc.outside(first, kept, deflation, product, *rows)
        return adjoint(xh), adjoint(yh)

    s = kept.s
    same = jnp.abs(s[:, None] - s[None, :]) <= deflation.cluster
    frames = adjoint(kept.uh), s, adjoint(kept.vh)
    found = triplet_series(factors, frames, same, deflation.floor, outside)
    uh, core, vh = adjoint(found.u), found.d, adjoint(found.v)
    if order:
        guard = deflation.guard * deflation.kept
        uh, vh = (x.at[1:].multiply(guard[:, None]) for x in (uh, vh))
        core = core.at[1:].multiply(guard * guard[:, None])
    s = real_diagonal(found.d) * deflation.kept
    return svd_trunc.Kept(uh, s, vh, core), deflation, product
