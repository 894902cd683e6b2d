"""Degenerate values are moved apart, not broadened: the treatment of repeated spectra.

A rule that divides by the gap of two equal values is NaN; one that zeroes the pair loses the
limit `(f(x) - f(y)) / (x - y) -> f'(x)` that a smooth function of the matrix needs. Instead the
members of a numerically degenerate cluster are moved apart until consecutive gaps are `delta`,
and both the value and the derivative that a rule returns belong to that matrix, which lies within
`delta` of the given one. The derivative of any smooth loss is then right to `delta + eps / delta`.
"""

import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import tolerances


def spread(values: Array, scale: Array, level: int, *, from_zero: bool = False) -> Array:
    """Move the members of every cluster of ascending `values` apart.

    Args:
        values: shape `(..., n)`, real, ascending.
        scale: shape `(..., 1)`, the width on which gaps are measured.
        level: how many rules lie below this one; each differentiation of a rule adds one, and
            the distance grows as `tolerances.spread_rtol` says.
        from_zero: the values are singular values; 0 counts as a member that does not move, so
            that zero singular values become positive.

    Returns:
        The values, shape `(..., n)`, ascending. Gaps that exceed `tolerances.cluster_rtol` do
        not shrink, except where a cluster has room to be centred on its old place.
    """
    if values.shape[-1] == 0:
        return values
    dtype = values.dtype
    delta = tolerances.spread_rtol(dtype, level) * scale
    anchored = jnp.concatenate([jnp.zeros_like(values[..., :1]), values], axis=-1)
    x = lax.stop_gradient(anchored if from_zero else values)
    gaps = jnp.diff(x, axis=-1)
    close = gaps <= tolerances.cluster_rtol(dtype) * scale
    moved = jnp.cumsum(jnp.where(close, delta - gaps, 0.0), axis=-1)
    moved = jnp.concatenate([jnp.zeros_like(x[..., :1]), moved], axis=-1)
    shift = moved - _middle_of_group(moved, gaps > 2 * x.shape[-1] * delta, from_zero)
    if from_zero:
        shift = shift[..., 1:]
    return values + lax.stop_gradient(shift)


def _middle_of_group(moved: Array, wide: Array, from_zero: bool) -> Array:
    """By how much each group, bounded by `wide` gaps, is moved back to stay in its place."""
    edge = jnp.ones_like(wide[..., :1], shape=(*moved.shape[:-1], 1))
    starts = jnp.concatenate([edge, wide], axis=-1)
    ends = jnp.concatenate([wide, edge], axis=-1)
    axis = moved.ndim - 1
    first = lax.cummax(jnp.where(starts, moved, 0.0), axis=axis)
    last = lax.cummin(jnp.where(ends, moved, jnp.inf), axis=axis, reverse=True)
    middle = 0.5 * (first + last)
    return jnp.where(first == 0.0, 0.0, middle) if from_zero else middle
