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

from difflinalg._core.algebra import adjoint, herm, inv0, mm, mm_adjoint, real_diagonal, skew
from difflinalg._core.known import known
from difflinalg._dense import eigh_trunc, svd_trunc
from difflinalg._dense.truncation import Deflation, Truncation
from difflinalg._taylor.convolution import Chain, each_order, inner_sum, overlap, set_order, start
from difflinalg._taylor.singular import triplet_series


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

    def outside(r: Array) -> Array:
        return adjoint(eigh_trunc.outside(a[0], kept, deflation, origin, adjoint(r)))

    same = jnp.abs(w[:, None] - w[None, :]) <= deflation.cluster
    d, vh = pair_series(a, w, adjoint(kept.v), same, outside)
    v = adjoint(vh)
    guard = deflation.guard * deflation.kept
    v = later_times(v, guard) if order else v
    return eigh_trunc.Kept(real_diagonal(d) * deflation.kept, v), deflation, origin


def pair_series(
    a: Array, w: Array, vh_0: Array, same: Array, outside: Callable[[Array], Array]
) -> tuple[Array, Array]:
    """Series of `D`, shape `(K + 1, k, k)`, and of `V^H`, by the recurrence of the module.

    Args:
        a: the Hermitian series.
        w: the kept eigenvalues.
        vh_0: their vectors as rows, shape `(k, n)`.
        same: shape `(k, k)`, the pairs of one cluster.
        outside: solves for `X^H` from the adjoint of the right-hand side, shape `(k, n)`.
    """
    order = a.shape[0] - 1
    operator = Chain((a,), mm)
    gap = w[None, :] - w[:, None]
    inverse = jnp.where(same, 0.0, inv0(gap, 0.0))

    def one_order(state, k):
        known, d = state
        vh = known[0]
        image, parts = operator.without(known, k)
        r = image - inner_sum(mm, d, vh, k)
        t = mm_adjoint(vh_0, r)
        s = overlap(vh, k)
        p = s + skew(inverse * t)  # unitary also where t over a small gap is noise
        d_k = herm(jnp.where(same, t - gap * s, jnp.zeros((), d.dtype)))
        vh_k = mm(adjoint(p), vh_0) + outside(r - mm(adjoint(t), vh_0))
        return operator.complete(known, parts, k, vh_k), set_order(d, k, d_k)

    d_0 = (jnp.eye(w.shape[0], dtype=w.dtype) * w).astype(vh_0.dtype)
    state = operator.start(vh_0, order), start(d_0, order)
    known, d = each_order(one_order, state, order)
    return d, known[0]


def svd_trunc_series(
    factors: tuple[Array, ...], product: Array | None, spec: Truncation, level: int
) -> tuple[svd_trunc.Kept, Deflation]:
    """Series of the kept triplets; the deflation is a constant.

    Args:
        factors: series of matrices, each of shape `(K + 1, m, n)`, whose product is decomposed.
        product: as in `svd_trunc_core`.
        spec: as in `svd_trunc_core`.
        level: as in `svd_trunc_core`.
    """
    order = factors[0].shape[0] - 1
    first = tuple(factor[0] for factor in factors)
    kept, deflation = svd_trunc.svd_trunc_core(first, product, spec, level + order)
    deflation = lax.stop_gradient(deflation)

    # One product with what is formed anyway costs less than one with each factor.
    once = first if product is None else (known(mm(*first), product),)
    outside = partial(svd_trunc.outside, once, kept, deflation, product)
    uh, s, vh, _ = kept
    same = jnp.abs(s[:, None] - s[None, :]) <= deflation.cluster
    uh, core, vh = triplet_series(factors, (uh, s, vh), same, deflation.floor, outside)
    s = real_diagonal(core) * deflation.kept
    if order:
        guard = deflation.guard * deflation.kept
        uh, vh = (later_times(x, guard[:, None]) for x in (uh, vh))
        core = later_times(core, guard * guard[:, None])
    return svd_trunc.Kept(uh, s, vh, core), deflation


def later_times(x: Array, factor: Array) -> Array:
    """The series with every coefficient but the first multiplied by a constant."""
    return jnp.concatenate([x[:1], x[1:] * factor])
