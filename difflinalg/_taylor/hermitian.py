"""Series of Hermitian eigendecompositions, by degenerate perturbation theory.

One level. Let `B(t) = B[0] + B[1] t + ..` be Hermitian, `B[0] = diag(mu)`, and its index set be
divided into clusters. There is a unitary series `Z(t)`, `Z[0] = I`, and a block diagonal `D(t)`
with `B Z = Z D`. With the convolutions

    R = sum over j >= 1 of B[j] Z[k - j]  -  sum over 1 <= j < k of Z[j] D[k - j]
    S = -1/2 sum over 1 <= j < k of Z[j]^H Z[k - j]

order k is solved, outside and inside of the clusters, by

    Z[k][i, j] = R[i, j] / (mu[j] - mu[i])                          (i, j in different clusters)
    Z[k][i, j] = S[i, j],   D[k][i, j] = R[i, j] + (mu[i] - mu[j]) S[i, j]         (in the same)

The diagonal blocks of `Z` are Hermitian: this is the gauge, and for single eigenvectors it is that
of the rule of `eigh`. Levels. Where all members of a cluster have the same `mu`, `(D(t) - mu) / t`
is again a Hermitian series, and the first coefficient, diagonalised within the clusters, splits
them further. After K levels every eigenvalue is known to order K, whichever order splits it.

A cluster that splits at order l determines its vectors to order K - l only; the rest of their
coefficients completes the frame to a unitary one, which functions of the matrix do not notice.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import tolerances
from difflinalg._core.algebra import adjoint, herm, inv0, mm, real_diagonal, skew
from difflinalg._dense.eigh import eigh_core, gap_scale
from difflinalg._taylor.clusters import (
    boundaries,
    labels_of,
    rounding_scale,
    same_label,
)
from difflinalg._taylor.convolution import (
    each_order,
    inner_sum,
    known_sum,
    overlap,
    product,
    set_order,
    start,
)


class Blocks(NamedTuple):
    """`B Z = Z D`, series of shape `(K + 1, ..., n, n)`."""

    z: Array
    d: Array


def block_series(b: Array, mu: Array, same: Array) -> Blocks:
    """Block diagonalise a Hermitian series whose coefficient of order 0 is `diag(mu)`.

    Args:
        b: shape `(K + 1, ..., n, n)`; the coefficient of order 0 is not used.
        mu: shape `(..., n)`.
        same: shape `(..., n, n)`, which pairs belong to one cluster.
    """
    n, order = b.shape[-1], b.shape[0] - 1
    gap = mu[..., None, :] - mu[..., :, None]
    inverse = jnp.where(same, 0.0, inv0(gap, 0.0))
    identity = jnp.broadcast_to(jnp.eye(n, dtype=b.dtype), b.shape[1:])

    def one_order(known: Blocks, k: Array | int) -> Blocks:
        z, d = known
        r = known_sum(mm, b, z, k) - inner_sum(mm, z, d, k)
        s = overlap(adjoint(z), k)
        # The Hermitian part is S for all pairs; so taken, Z is unitary also where r over a small
        # gap is noise.
        z_k = s + skew(inverse * r)
        d_k = herm(jnp.where(same, r - gap * s, jnp.zeros((), b.dtype)))
        return Blocks(set_order(z, k, z_k), set_order(d, k, d_k))

    first = Blocks(start(identity, order), start(identity * mu[..., None, :], order))
    return each_order(one_order, first, order)


def eigh_series(
    a: Array, anchor: Array, level: int, cluster_rtol: float | None
) -> tuple[Array, Array]:
    """Series of eigenvalues, shape `(K + 1, ..., n)`, and of eigenvectors, `(K + 1, ..., n, n)`.

    Args:
        a: a Hermitian series, shape `(K + 1, ..., n, n)`, centred as `eigh_core` wants it.
        anchor: as in `eigh_core`.
        level: as in `eigh_core`.
        cluster_rtol: the gap, relative to the width of the spectrum, up to which eigenvalues are
            one cluster; by default the rule of the module `clusters`.

    Near eigenvalues that are one cluster are replaced by their mean. For small t > 0 the
    eigenvalues ascend.
    """
    w, v = eigh_core(a[0], anchor, level, cluster_rtol)
    order, n = a.shape[0] - 1, a.shape[-1]
    if n == 0 or order == 0:
        return start(w, order), start(v, order)
    scale = gap_scale(w, a[0], anchor, 0, cluster_rtol)[..., 0]
    values, _, frame = frame_series(a, w, v, scale, cluster_rtol)
    return values, frame


def frame_series(
    a: Array, w: Array, v: Array, scale: Array, cluster_rtol: float | None
) -> tuple[Array, Array, Array]:
    """Eigenvalues, the labels of their last clusters and eigenvectors, from those at t = 0.

    Args:
        a: a Hermitian series, shape `(K + 1, ..., n, n)`.
        w: eigenvalues of `a[0]`, ascending.
        v: its eigenvectors.
        scale: shape `(...)`, the scale of gaps.
        cluster_rtol: as in `eigh_series`.
    """
    b = _rotate(herm(a), v)
    order = a.shape[0] - 1
    # What couples a pair by way of other states does not count: it is taken out first.
    at_most = labels_of(boundaries(b, w, scale, order, cluster_rtol))
    mean = mean_in_cluster(w, at_most)
    equal = jnp.abs(w - mean) <= tolerances.cluster_rtol(w.dtype) * scale[..., None]
    mu = jnp.where(equal, mean, w)
    blocks = block_series(b, mu, same_label(at_most))
    ends = boundaries(blocks.d, w, scale, order, cluster_rtol, same_label(at_most))
    labels = labels_of(ends)

    def again() -> tuple[Array, Blocks]:
        mu = mean_in_cluster(w, labels)
        return mu, block_series(b, mu, same_label(labels))

    # A second time only if a near pair that is not equal is in a cluster, or has left one.
    is_final = jnp.all((labels == at_most) & (mu == mean))
    mu, blocks = lax.cond(is_final, lambda: (mu, blocks), again)
    frame = mm(v, blocks.z)

    def distinct(_: None) -> tuple[Array, Array, Array]:
        return real_diagonal(blocks.d), labels, frame

    def degenerate(_: None) -> tuple[Array, Array, Array]:
        return _split_further(a, Level(blocks.d, labels, frame), mu, cluster_rtol)

    return lax.cond(jnp.all(ends), distinct, degenerate, None)


class Level(NamedTuple):
    """Where the splitting of clusters stands."""

    d: Array  # block diagonal series (K + 1, ..., n, n)
    labels: Array  # (..., n), ascending
    frame: Array  # (K + 1, ..., n, n), A(t) V(t) = V(t) t^level D(t) + the levels above


def _split_further(
    a: Array, first: Level, mu: Array, cluster_rtol: float | None
) -> tuple[Array, Array, Array]:
    """Levels 1 to K: eigenvalues, labels and frame of a spectrum with clusters."""
    order = a.shape[0] - 1

    def split(state: Level, b: Array, level: Array) -> tuple[Level, Array]:
        values, w = _eigh_in_blocks(b[0], state.labels)
        b = _rotate(b, w)
        scale = rounding_scale(state.frame, a)[level]
        within = same_label(state.labels)
        ends = boundaries(b, values, scale, order - level, cluster_rtol, within)
        labels = labels_of(ends | (jnp.diff(state.labels, axis=-1) > 0))
        mu = mean_in_cluster(values, labels)
        # Pairs in different clusters of a level above are uncoupled, whatever their values.
        blocks = _block_series_within(b, mu, labels, state.labels)
        frame = product(mm(state.frame, w), blocks.z)
        return Level(blocks.d, labels, frame), mu

    def settled(state: Level, b: Array, _: Array) -> tuple[Level, Array]:
        return state._replace(d=b), real_diagonal(b[0])

    def one_level(state: Level, level: Array) -> tuple[Level, Array]:
        b = jnp.concatenate([state.d[1:], jnp.zeros_like(state.d[:1])])
        all_apart = jnp.all(jnp.diff(state.labels, axis=-1) > 0)
        return lax.cond(all_apart, settled, split, state, b, level)

    last, values = lax.scan(one_level, first, jnp.arange(1, order + 1))
    return jnp.concatenate([mu[None], values]), last.labels, last.frame


def _block_series_within(b: Array, mu: Array, labels: Array, above: Array) -> Blocks:
    """`block_series` inside of the clusters `above`, which `b` does not couple."""
    coupled = same_label(above)
    blocks = block_series(b, mu, same_label(labels) | ~coupled)
    zero = jnp.zeros((), b.dtype)
    return Blocks(jnp.where(coupled, blocks.z, zero), jnp.where(coupled, blocks.d, zero))


def _rotate(b: Array, w: Array) -> Array:
    """`W^H B(t) W`, Hermitian."""
    return herm(mm(adjoint(w), b, w))


def mean_in_cluster(values: Array, labels: Array) -> Array:
    """Each value replaced by the mean of its cluster."""
    same = same_label(labels).astype(values.dtype)
    return jnp.sum(same * values[..., None, :], axis=-1) / jnp.sum(same, axis=-1)


def _eigh_in_blocks(b: Array, labels: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of a block diagonal matrix, ascending within each block.

    One decomposition of the whole matrix; the spectra of the blocks are moved apart before, no
    further than they are wide. Blocks of one stay where they are.
    """
    same = same_label(labels)
    single = (jnp.sum(same, axis=-1) == 1)[..., None]
    eye = jnp.eye(b.shape[-1], dtype=b.dtype)
    zero = jnp.zeros((), b.dtype)
    centre = mean_in_cluster(real_diagonal(b), labels)[..., None]
    inside = herm(jnp.where(same & ~single, b - centre * eye, zero))
    moved = inside + eye * lax.stop_gradient(_separation(inside, labels, single))[..., None]
    _, w = eigh_core(moved, jnp.zeros_like(centre[..., :1, 0]), 0, None)
    w = jnp.where(single, eye, jnp.where(same & ~single, w, zero))
    return real_diagonal(mm(adjoint(w), b, w)), w


def _separation(inside: Array, labels: Array, single: Array) -> Array:
    """By how much each index is shifted, shape `(..., n)`, ascending with the labels."""
    rows = jnp.sum(jnp.abs(inside), axis=-1)
    bound = jnp.max(jnp.where(same_label(labels), rows[..., None, :], 0.0), axis=-1)
    # A block of zeros needs room of its own, too.
    least = 0.01 * jnp.max(bound, axis=-1, keepdims=True)
    bound = jnp.where(single[..., 0], 0.0, jnp.maximum(bound, least))
    step = jnp.diff(labels, axis=-1) * 1.5 * (bound[..., 1:] + bound[..., :-1])
    return jnp.concatenate([jnp.zeros_like(bound[..., :1]), jnp.cumsum(step, axis=-1)], axis=-1)
