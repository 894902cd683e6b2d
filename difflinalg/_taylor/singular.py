"""Series of singular value decompositions, full and of a few leading triplets.

Recurrence. `A V = U D`, `A^H U = V D^H` for r kept triplets, `D(t)` block diagonal on clusters of
singular values, `U[k] = U[0] P + X`, `V[k] = V[0] Q + Y` with X and Y outside of the kept spaces.
With the convolutions

    R  = sum over j >= 1 of A[j] V[k - j]    -  sum over 1 <= j < k of U[j] D[k - j]
    R' = sum over j >= 1 of A[j]^H U[k - j]  -  sum over 1 <= j < k of V[j] D[k - j]^H
    T  = U[0]^H R,  T' = V[0]^H R',  S_u = -1/2 sum over 1 <= j < k of U[j]^H U[k - j]  (S_v too)

order k is solved by

    (P - Q)[i, j] = (T - T')[i, j] / (s[i] + s[j])                          (D is Hermitian)
    (P + Q)[i, j] = (T + T')[i, j] / (s[j] - s[i])                          (different clusters)
    (P + Q)[i, j] = (S_u + S_v)[i, j]                                       (the same)
    D[k] = (T + T') / 2 + (s[i] - s[j]) (P + Q)[i, j] / 2                   (the same)
    X diag(s) - B Y = R - U[0] T,   Y diag(s) - B^H X = R' - V[0] T'

with what is dropped, B. For K = 1 this is the rule of `svd`, respectively `svd_trunc`. Vectors are
kept as rows, `U^H` and `V^H`: then a product with `A` or with `A^H` transposes nothing.

Degenerate and zero singular values of a full decomposition are those of eigenvalues of the
Hermitian matrix `[[0, A], [A^H, 0]]`, whose eigenvectors are `(u, v)` and `(u, -v)` over sqrt(2).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core.algebra import (
    adjoint,
    adjoint_mm,
    herm,
    inv0,
    mm,
    mm_adjoint,
    real_diagonal,
    skew,
)
from difflinalg._dense.svd import gap_scale, svd_core
from difflinalg._taylor.clusters import boundaries
from difflinalg._taylor.convolution import (
    Chain,
    each_order,
    inner_sum,
    known_sum,
    overlap,
    set_order,
    start,
)
from difflinalg._taylor.hermitian import frame_series

Outside = Callable[[Array, Array], tuple[Array, Array]]


class Triplets(NamedTuple):
    """Series of `A V = U D`, vectors as rows."""

    uh: Array  # (K + 1, ..., r, m)
    d: Array  # (K + 1, ..., r, r)
    vh: Array  # (K + 1, ..., r, n)


def triplet_series(
    factors: tuple[Array, ...],
    first: tuple[Array, Array, Array],
    same: Array,
    floor: Array | float,
    outside: Outside,
) -> Triplets:
    """The recurrence of the module docstring.

    Args:
        factors: series whose product is `A(t)`.
        first: `U[0]^H`, `s` and `V[0]^H`.
        same: shape `(..., r, r)`, the pairs of one cluster.
        floor: magnitude at which a singular value counts as zero.
        outside: solves for `X^H` and `Y^H` from the adjoints of their right-hand sides.
    """
    uh_0, s, vh_0 = first
    order = factors[0].shape[0] - 1
    to_u, to_v = Chain(factors[::-1], mm_adjoint), Chain(factors, mm)
    rows, columns = s[..., None, :], s[..., :, None]
    inv_gap = jnp.where(same, 0.0, inv0(rows - columns, 0.0))
    inv_sum = inv0(rows + columns, floor)

    def one_order(state, k):
        known_v, known_u, d = state
        uh, vh = known_u[0], known_v[0]
        image_u, parts_v = to_u.without(known_v, k)
        image_v, parts_u = to_v.without(known_u, k)
        r_u = image_u - inner_sum(mm, d, uh, k)
        r_v = image_v - inner_sum(mm, d, vh, k)
        t, t_h = mm_adjoint(uh_0, r_u), mm_adjoint(vh_0, r_v)
        s_u, s_v = overlap(uh, k), overlap(vh, k)
        # The Hermitian parts are those of unitary series, also where the rest is noise.
        both = s_u + s_v + skew(inv_gap * (t + t_h))
        difference = s_u - s_v + skew(inv_sum * (t - t_h))
        d_k = 0.5 * (t + t_h - (rows - columns) * both)
        d_k = herm(jnp.where(same, d_k, jnp.zeros((), d.dtype)))
        xh, yh = outside(r_u - mm(adjoint(t), uh_0), r_v - mm(adjoint(t_h), vh_0))
        uh_k = mm(adjoint(0.5 * (both + difference)), uh_0) + xh
        vh_k = mm(adjoint(0.5 * (both - difference)), vh_0) + yh
        known_v = to_u.complete(known_v, parts_v, k, vh_k)
        known_u = to_v.complete(known_u, parts_u, k, uh_k)
        return known_v, known_u, set_order(d, k, d_k)

    d_0 = (jnp.eye(s.shape[-1], dtype=s.dtype) * rows).astype(uh_0.dtype)
    state = to_u.start(vh_0, order), to_v.start(uh_0, order), start(d_0, order)
    known_v, known_u, d = each_order(one_order, state, order)
    return Triplets(known_u[0], d, known_v[0])


def svd_series(
    a: Array, full_matrices: bool, level: int, cluster_rtol: float | None
) -> tuple[Array, Array, Array]:
    """Series of `U`, `s` and `V^H`, as `svd_core` returns them.

    Args:
        a: a series, shape `(K + 1, ..., m, n)`.
        full_matrices: as in `svd_core`.
        level: as in `svd_core`.
        cluster_rtol: the gap, relative to the largest singular value, up to which they are one
            cluster (and, to zero, one with it); by default the rule of the module `clusters`.

    For small t > 0 the singular values descend and are not negative.
    """
    u, s, vh = svd_core(a[0], full_matrices, level, cluster_rtol)
    order, rank = a.shape[0] - 1, s.shape[-1]
    if rank == 0 or order == 0:
        return start(u, order), start(s, order), start(vh, order)
    v = adjoint(vh)
    u_1, v_1 = u[..., :rank], v[..., :rank]

    def distinct(_: None) -> tuple[Array, Array, Array]:
        inv_s = inv0(s, 0.0)[..., :, None]
        same = jnp.eye(rank, dtype=bool)
        found = triplet_series(
            (a,),
            (adjoint(u_1), s, adjoint(v_1)),
            same,
            0.0,
            lambda g_u, g_v: (g_u * inv_s, g_v * inv_s),
        )
        u_full = _completed(adjoint(found.uh), u[..., rank:])
        v_full = _completed(adjoint(found.vh), v[..., rank:])
        return u_full, real_diagonal(found.d), adjoint(v_full)

    def degenerate(_: None) -> tuple[Array, Array, Array]:
        return _by_dilation(a, u, v, s, full_matrices, cluster_rtol)

    return lax.cond(_is_distinct(a, u_1, s, v_1, cluster_rtol), distinct, degenerate, None)


def _is_distinct(a: Array, u: Array, s: Array, v: Array, cluster_rtol: float | None) -> Array:
    """Whether all singular values are apart from each other and from zero."""
    couplings = mm(adjoint(u), a, v)
    couplings = jnp.abs(couplings) + jnp.abs(adjoint(couplings))
    zero = jnp.zeros_like(couplings[..., :1, :1])
    to_zero = jnp.max(couplings, axis=-1, keepdims=True)
    b = jnp.concatenate([couplings, to_zero], axis=-1)
    b = jnp.concatenate([b, jnp.concatenate([adjoint(to_zero), zero], axis=-1)], axis=-2)
    values = jnp.concatenate([s, jnp.zeros_like(s[..., :1])], axis=-1)
    scale = gap_scale(s)[..., 0]
    return jnp.all(boundaries(b, values, scale, a.shape[0] - 1, cluster_rtol))


def _completed(x: Array, rest: Array) -> Array:
    """`[x, y]` unitary: y starts with `rest` and does not turn within its own space."""
    if rest.shape[-1] == 0:
        return x

    def one_order(y: Array, k: Array | int) -> Array:
        into = -known_sum(adjoint_mm, x, y, k)
        return set_order(y, k, mm(x[0], into) + mm(rest, overlap(adjoint(y), k)))

    order = x.shape[0] - 1
    y = each_order(one_order, start(rest, order), order)
    return jnp.concatenate([x, y], axis=-1)


def _by_dilation(
    a: Array, u: Array, v: Array, s: Array, full_matrices: bool, cluster_rtol: float | None
) -> tuple[Array, Array, Array]:
    """The series from those of `[[0, A], [A^H, 0]]`, for any spectrum."""
    m, n = a.shape[-2:]
    rank = s.shape[-1]
    u, v = (_square(x) for x in (u, v))
    zeros = [jnp.zeros((*a.shape[:-2], k, k), a.dtype) for k in (m, n)]
    upper = jnp.concatenate([zeros[0], a], axis=-1)
    lower = jnp.concatenate([adjoint(a), zeros[1]], axis=-1)
    dilation = jnp.concatenate([upper, lower], axis=-2)
    w, labels, x = frame_series(dilation, *_dilated(u, s, v), gap_scale(s)[..., 0], cluster_rtol)
    x = _pure_null_space(x, labels, m)
    # Zeros come in the middle: those of U alone, then those of V alone.
    mirrored = labels == labels[..., ::-1]
    positive = (m + n - jnp.sum(mirrored, axis=-1, keepdims=True)) // 2
    index = jnp.arange(m + n)
    of_u = jnp.where(index < positive, m + n - 1 - index, index)[..., :m]
    of_v = jnp.where(index < positive, m + n - 1 - index, m + index - positive)[..., :n]
    is_null_u = (index >= positive)[..., :m]
    is_null_v = (index >= positive)[..., :n]
    root = jnp.sqrt(jnp.asarray(2.0, s.dtype))
    u_t = _take(x[..., :m, :], of_u) * jnp.where(is_null_u, 1.0, root)[..., None, :]
    v_t = _take(x[..., m:, :], of_v) * jnp.where(is_null_v, 1.0, root)[..., None, :]
    s_t = _take(w[..., None, :], of_u[..., :rank])[..., 0, :]
    s_t = jnp.where(is_null_u[..., :rank], 0.0, s_t)
    if not full_matrices:
        u_t, v_t = u_t[..., :rank], v_t[..., :rank]
    return u_t, s_t, adjoint(v_t)


def _square(q: Array) -> Array:
    """Orthonormal columns completed to a unitary matrix."""
    m, r = q.shape[-2:]
    if m == r:
        return q
    rest = jnp.linalg.qr(q, mode="complete")[0][..., r:]
    return jnp.concatenate([q, rest], axis=-1)


def _dilated(u: Array, s: Array, v: Array) -> tuple[Array, Array]:
    """Ascending eigenvalues and eigenvectors of the dilation, from full factors of `A`."""
    m, n, rank = u.shape[-1], v.shape[-1], s.shape[-1]
    half = jnp.sqrt(jnp.asarray(0.5, s.dtype))
    u_1, v_1 = half * u[..., :rank], half * v[..., :rank]
    no_u = jnp.zeros((*u.shape[:-1], n - rank), u.dtype)
    no_v = jnp.zeros((*v.shape[:-1], m - rank), v.dtype)
    parts = [
        jnp.concatenate([u_1, -v_1], axis=-2),
        jnp.concatenate([u[..., rank:], no_v], axis=-2),
        jnp.concatenate([no_u, v[..., rank:]], axis=-2),
        jnp.concatenate([u_1, v_1], axis=-2)[..., ::-1],
    ]
    zeros = jnp.zeros((*s.shape[:-1], m + n - 2 * rank), s.dtype)
    return jnp.concatenate([-s, zeros, s[..., ::-1]], axis=-1), jnp.concatenate(parts, axis=-1)


def _pure_null_space(x: Array, labels: Array, m: int) -> Array:
    """Vectors of the null space rotated such that each is one of U or one of V, those of U first.

    The null space of a dilation at all t is a sum of two, and its frame does not turn: a constant
    rotation, the eigenvectors of the sign `diag(1, -1)` in the frame, is enough.
    """
    null = labels == labels[..., ::-1]
    lower = jnp.where(null[..., None, :], x[0][..., m:, :], jnp.zeros((), x.dtype))
    sign = herm(mm(adjoint(lower), lower))  # 0 for a vector of U, 1 for one of V
    # The others keep their places: they come before and after.
    size = null.shape[-1]
    index = jnp.arange(size, dtype=sign.real.dtype)
    place = jnp.where(null, 0.0, jnp.where(index < size / 2, index - 2 * size, index + 2.0))
    _, w = jnp.linalg.eigh(lax.stop_gradient(sign) + jnp.eye(size) * place[..., None, :])
    both = null[..., :, None] & null[..., None, :]
    w = jnp.where(both, w, jnp.where(null[..., None, :], 0.0, jnp.eye(size, dtype=x.dtype)))
    return mm(x, w.astype(x.dtype))


def _take(x: Array, index: Array) -> Array:
    """Columns of a series of matrices."""
    return jnp.take_along_axis(x, index[None, ..., None, :], axis=-1)
