"""Degenerate values are moved apart, not broadened: the treatment of repeated spectra.

A rule that divides by the gap of two equal values is NaN; one that zeroes the pair loses the
limit `(f(x) - f(y)) / (x - y) -> f'(x)` that a smooth function of the matrix needs. Instead the
members of a numerically degenerate cluster are moved apart until consecutive gaps are `delta`,
and both the value and the derivative that a rule returns belong to that matrix, which lies within
a few `delta` of the given one. In a cluster of k the last member moves by about `k delta`, and the
error of a smooth loss differentiated `l + 1` times, `k delta + eps / delta^(l + 1)`, is least at
`delta = (eps / k)^(1/(l + 2))`, where it is of order `(k^(l + 1) eps)^(1/(l + 2))`.
"""

import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import tolerances


def spread(
    values: Array,
    scale: Array,
    level: int,
    cluster_rtol: float | None = None,
    *,
    from_zero: bool = False,
) -> Array:
    """Move the members of every cluster of ascending `values` apart.

    Args:
        values: shape `(..., n)`, real, ascending.
        scale: shape `(..., 1)`, the width on which gaps are measured.
        level: how many rules lie below this one; each differentiation of a rule adds one, and
            the distances grow as `tolerances.cluster_rtol` and `spread_rtol` say.
        cluster_rtol: the gap, relative to `scale`, up to which values are one cluster; by default
            `tolerances.cluster_rtol`.
        from_zero: the values are singular values, and the rule divides by their sums too. Those
            at zero become positive: with their mirror images, `+s` and `-s` are the eigenvalues
            of `[[0, A], [A^H, 0]]`, they are one cluster around zero, which does not move. So the
            first is moved to `delta / 2`, as close as its distance from its image allows.

    Returns:
        The values, shape `(..., n)`, ascending. Gaps that exceed the tolerance do not shrink,
        except where a cluster has room to be centred on its old place.
    """
    if values.shape[-1] == 0:
        return values
    dtype = values.dtype
    anchored = jnp.concatenate([jnp.zeros_like(values[..., :1]), values], axis=-1)
    x = lax.stop_gradient(anchored if from_zero else values)
    scale = lax.stop_gradient(scale)
    gaps = jnp.diff(x, axis=-1)
    if cluster_rtol is None:
        cluster_rtol = tolerances.cluster_rtol(dtype, level)
    close = gaps <= cluster_rtol * scale

    def shift() -> Array:
        size = _cluster_size(close)
        if from_zero:
            at_zero = jnp.cumsum(~close, axis=-1) == 0
            size = jnp.where(at_zero, 2 * (size - 1), size)
        delta = tolerances.spread_rtol(dtype, level, size.astype(dtype)) * scale
        if from_zero:
            delta = jnp.concatenate([0.5 * delta[..., :1], delta[..., 1:]], axis=-1)
        moved = jnp.cumsum(jnp.where(close, jnp.maximum(delta - gaps, 0.0), 0.0), axis=-1)
        moved = jnp.concatenate([jnp.zeros_like(x[..., :1]), moved], axis=-1)
        reach = 2 * x.shape[-1] * tolerances.spread_rtol(dtype, level) * scale
        shift = moved - _middle_of_group(moved, gaps > reach, from_zero)
        return shift[..., 1:] if from_zero else shift

    # Scans of a short vector are dozens of small loops, and most spectra have no cluster.
    return values + lax.cond(jnp.any(close), shift, lambda: jnp.zeros_like(values))


def _cluster_size(close: Array) -> Array:
    """For each gap the number of values in its run of `close` gaps; 2 where it is not close."""
    axis, size = close.ndim - 1, close.shape[-1]
    index = jnp.arange(size)
    before = lax.cummax(jnp.where(close, -1, index), axis=axis)
    after = lax.cummin(jnp.where(close, size, index), axis=axis, reverse=True)
    return jnp.where(close, after - before, 2)


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
