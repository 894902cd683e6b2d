"""Which eigenvalues a series treats as one cluster.

A pair with the gap g, coupled by the coefficients `B[p]` of the matrix, makes coefficients of
eigenvectors grow like `rho^k`, `rho = max_p |B[p, i, j] / g|^(1/p)`. Where a smooth function of the
matrix grows like `s^k`, that costs it a relative error of `eps (rho / s)^K` at order K. Dropping
the gap costs `g` itself. A pair is a cluster where dropping is cheaper, or where the gap is below
the tolerance of a first derivative (`tolerances.cluster_rtol`). For couplings of the size of the
spectrum both errors meet at `g = eps^(1/(K + 1))`, the tolerance of nested derivatives of order
K; a pair that the matrix hardly couples is kept at smaller gaps.
"""

import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import tolerances
from difflinalg._taylor.convolution import norms, scalar_product


def labels_of(boundary: Array) -> Array:
    """Labels `0, 1, ..` of runs, shape `(..., n)`, from the boundaries between neighbours."""
    zero = jnp.zeros_like(boundary[..., :1], dtype=jnp.int32)
    return jnp.concatenate([zero, jnp.cumsum(boundary.astype(jnp.int32), axis=-1)], axis=-1)


def same_label(labels: Array) -> Array:
    """Which pairs have one label, shape `(..., n, n)`."""
    return labels[..., :, None] == labels[..., None, :]


def gaps(values: Array) -> Array:
    """The distances of all pairs, shape `(..., n, n)`."""
    return jnp.abs(values[..., :, None] - values[..., None, :])


def noise(b: Array, gap: Array, scale: Array, orders: Array | int) -> Array:
    """The relative error at order `orders` if a pair is kept apart, shape `(..., n, n)`.

    Args:
        b: the series in the frame of the values, shape `(K + 1, ..., n, n)`.
        gap: the distances of pairs.
        scale: shape `(...)`, the magnitude on which values are exact to rounding.
        orders: how many coefficients beyond the first are used of the result.
    """
    growth = _growth(jnp.abs(b), jnp.where(gap > 0.0, gap, 1.0))
    rate = _growth(norms(b)[..., None, None], scale[..., None, None])
    ratio = growth / jnp.where(rate > 0.0, rate, 1.0)
    return tolerances.epsilon(gap.dtype) * ratio ** jnp.asarray(orders, gap.dtype)


def ends_of(close: Array) -> Array:
    """Where a cluster ends, shape `(..., n - 1)`, from the pairs of ascending values in one."""
    index = jnp.arange(close.shape[-1])
    reach = jnp.max(jnp.where(close, index, 0), axis=-1)
    return lax.cummax(reach, axis=reach.ndim - 1)[..., :-1] <= index[:-1]


def boundaries(
    b: Array,
    values: Array,
    scale: Array,
    orders: Array | int,
    cluster_rtol: float | None,
    within: Array | bool = True,
) -> Array:
    """Where a cluster of `values` ends, by the rule of the module, shape `(..., n - 1)`.

    Args:
        b: as in `noise`.
        values: shape `(..., n)`, its coefficient of order 0; those of pairs in `within` ascend.
        scale: as in `noise`.
        orders: as in `noise`.
        cluster_rtol: a gap, relative to `scale`, to use instead of the rule of the module.
        within: shape `(..., n, n)`, the pairs that may be one cluster.
    """
    gap = gaps(values)
    scale = jnp.where(scale > 0.0, scale, 1.0)
    relative = gap / scale[..., None, None]
    if cluster_rtol is not None:
        close = relative <= cluster_rtol
    else:
        close = relative <= tolerances.cluster_rtol(values.dtype)
        close = close | (relative < noise(b, gap, scale, orders))
    return ends_of(close & within)


def _growth(size: Array, gap: Array) -> Array:
    """`max_p (size[p] / gap)^(1/p)` over the orders `p >= 1`."""
    powers = 1.0 / jnp.arange(1, size.shape[0], dtype=size.dtype)
    powers = powers.reshape(-1, *[1] * (size.ndim - 1))
    return jnp.max((size[1:] / gap) ** powers, axis=0, initial=0.0)


def rounding_scale(frame: Array, a: Array) -> Array:
    """Magnitudes of the terms of `V(t)^H A(t) V(t)`, shape `(K + 1, ...)`."""
    v = norms(frame) / frame.shape[-1] ** 0.5
    return scalar_product(scalar_product(v, norms(a)), v)
