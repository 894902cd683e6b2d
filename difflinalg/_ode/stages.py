"""One Runge-Kutta step: its stages, its error, its interpolant, and its transpose.

Transpose of a step (explicit: `a[i, i] = 0`). With `Y_i` the stage values, `k_bar` the
cotangents of the slopes and the last stage first,

    s_bar_i = (I - h a[i, i] J_i^T)^-1 J_i^T k_bar_i,    J_i = df/dy at Y_i
    k_bar_j += h a[i, j] s_bar_i  for j < i,   y_bar += s_bar_i,
    p_bar += f_p^T (k_bar_i + h a[i, i] s_bar_i)
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._ode import newton
from difflinalg._ode.system import Leaves, System
from difflinalg._ode.tableaus import Tableau

UNROLL = 1


def real_dtype(x: Array) -> Any:
    """The real dtype in which a leaf is scaled and its errors are measured."""
    return jnp.finfo(x.dtype).dtype


def combine(row: Array, k: Array) -> Array:
    """`sum_j row[j] k[j]` over the stages of one leaf."""
    return jnp.sum(row.astype(k.dtype).reshape((-1,) + (1,) * (k.ndim - 1)) * k, axis=0)


def axpy(y: Leaves, h: Array, row: Any, k: Leaves) -> Leaves:
    """`y + h sum_j row[j] k[j]` for every leaf."""
    return [
        x + combine(h.astype(real_dtype(x)) * jnp.asarray(row, real_dtype(x)), kx)
        for x, kx in zip(y, k, strict=True)
    ]


def slopes(
    system: System,
    tableau: Tableau,
    count: int,
    y: Leaves,
    t: Array,
    h: Array,
    p: Leaves,
    q: Leaves,
    first: Leaves | None,
) -> tuple[Leaves, Array]:
    """The slopes `k` of the first `count` stages, shape `(count, ...)`, and whether they exist."""
    a, c = tableau.array("a", t.dtype, count), tableau.array("c", t.dtype, count)
    first = system.field(y, t, p, q) if first is None else first
    k = [jnp.zeros((count, *x.shape), x.dtype).at[0].set(x) for x in first]

    def body(carry: tuple[Leaves, Array], stage: tuple) -> tuple[tuple[Leaves, Array], None]:
        k, good = carry
        i, row, node = stage
        time = t + node * h
        start = axpy(y, h, row, k)
        if tableau.implicit:
            value, converged = newton.stage(system, start, time, tableau.gamma * h, p, q, y)
            good &= converged
        else:
            value = start
        slope = system.field(value, time, p, q)
        k = [lax.dynamic_update_index_in_dim(kx, x, i, 0) for kx, x in zip(k, slope, strict=True)]
        return (k, good), None

    xs = (jnp.arange(1, count), jnp.asarray(a[1:]), jnp.asarray(c[1:]))
    (k, good), _ = lax.scan(body, (k, jnp.array(True)), xs, unroll=UNROLL)
    return k, good


def values(tableau: Tableau, y: Leaves, h: Array, k: Leaves) -> Leaves:
    """The stage values `Y`, shape `(count, ...)`, from the slopes."""
    out = []
    for x, kx in zip(y, k, strict=True):
        count, dtype = kx.shape[0], real_dtype(x)
        matrix = h.astype(dtype) * jnp.asarray(tableau.array("a", dtype, count))
        flat = kx.reshape(count, -1)
        rise = jnp.sum(matrix.astype(x.dtype)[:, :, None] * flat[None], axis=1)
        out.append(x + rise.reshape(kx.shape))
    return out


def weights(tableau: Tableau, theta: Array, count: int) -> Array:
    """The polynomials `b_i(theta)` of the interpolant."""
    dense = jnp.asarray(tableau.array("dense", theta.dtype, count))
    return theta * sum(dense[:, p] * theta**p for p in range(dense.shape[1]))


def transpose(
    system: System,
    tableau: Tableau,
    stage_values: Leaves,
    k_bar: Leaves,
    t: Array,
    h: Array,
    p: Leaves,
    q: Leaves,
    p_bar: Leaves,
    active: tuple[bool, ...],
) -> tuple[Leaves, Leaves]:
    """What the cotangents of the slopes of one step add to those of `y` and the active `p`."""
    count = k_bar[0].shape[0]
    a, c = tableau.array("a", t.dtype, count), tableau.array("c", t.dtype, count)

    def body(carry: tuple, stage: tuple) -> tuple[tuple, None]:
        k_bar, y_bar, p_bar = carry
        i, row, node = stage
        at = [lax.dynamic_index_in_dim(x, i, 0, keepdims=False) for x in stage_values]
        seed = [lax.dynamic_index_in_dim(x, i, 0, keepdims=False) for x in k_bar]
        time = t + node * h
        pull = transposed_field(system, at, time, p, q, active)
        if tableau.implicit:
            seed = newton.transposed_seed(system, at, time, row[i] * h, p, q, seed)
        s_bar, p_part = pull(seed)
        k_bar = [
            kx + (h * row).astype(real_dtype(x)).reshape((-1,) + (1,) * x.ndim) * x[None]
            for kx, x in zip(k_bar, s_bar, strict=True)
        ]
        return (k_bar, add(y_bar, s_bar), add(p_bar, p_part)), None

    zeros = [jnp.zeros(x.shape[1:], x.dtype) for x in k_bar]
    xs = (jnp.arange(count), jnp.asarray(a), jnp.asarray(c))
    (_, y_bar, p_bar), _ = lax.scan(body, (k_bar, zeros, p_bar), xs, reverse=True, unroll=UNROLL)
    return y_bar, p_bar


def transposed_field(
    system: System, y: Leaves, t: Array, p: Leaves, q: Leaves, active: tuple[bool, ...]
) -> Callable[[Leaves], tuple[Leaves, Leaves]]:
    """The map from cotangents of the right-hand side to those of `y` and the active `p`."""

    def function(y: Leaves, moving: Leaves) -> Leaves:
        rest = iter(moving)
        return system.field(
            y, t, [next(rest) if a else x for x, a in zip(p, active, strict=True)], q
        )

    return jax.vjp(function, y, [x for x, a in zip(p, active, strict=True) if a])[1]


def add(x: Leaves, y: Leaves) -> Leaves:
    """The sum, leaf by leaf."""
    return [u + v for u, v in zip(x, y, strict=True)]
