"""One Runge-Kutta step: its stages, its error, its interpolant, and its transpose.

Transpose of a step (explicit: `a[i, i] = 0`). With `Y_i` the stage values, `g` the cotangents
that the slopes get from outside with weights `w`, and the last stage first,

    k_bar_i = h (sum_j w[i, j] g_j + sum_{j > i} a[j, i] s_bar_j)
    s_bar_i = (I - h a[i, i] J_i^T)^-1 J_i^T k_bar_i,    J_i = df/dy at Y_i
    y_bar = sum_i s_bar_i,   p_bar += f_p^T (k_bar_i + h a[i, i] s_bar_i)

`g` and `s_bar` are rows of one buffer, and `k_bar_i` is one product with it.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from difflinalg._ode import newton
from difflinalg._ode.packing import Packing
from difflinalg._ode.system import Leaves, System
from difflinalg._ode.tableaus import Tableau


def real_dtype(x: Array) -> Any:
    """The real dtype in which a leaf is scaled and its errors are measured."""
    return jnp.finfo(x.dtype).dtype


def combine(row: Array, k: Array) -> Array:
    """`sum_j row[j] k[j]` over the stages of one leaf."""
    # as a product with a matrix, which XLA does in half of the time of a sum over stages
    flat = k.reshape(k.shape[0], -1)
    product = jnp.matmul(row.astype(k.dtype), flat, precision=lax.Precision.HIGHEST)
    return product.reshape(k.shape[1:])


def axpy(y: Leaves, h: Array, row: Any, k: Leaves) -> Leaves:
    """`y + h sum_j row[j] k[j]` for every leaf."""
    return [
        x + h.astype(real_dtype(x)) * combine(jnp.asarray(row, real_dtype(x)), kx)
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
    k, _, good = evaluate(system, tableau, count, y, t, h, p, q, first, keep=False)
    return k, good


def evaluate(
    system: System,
    tableau: Tableau,
    count: int,
    y: Leaves,
    t: Array,
    h: Array,
    p: Leaves,
    q: Leaves,
    first: Leaves | None,
    keep: bool,
) -> tuple[Leaves, Leaves, Array]:
    """The slopes, the stage values if they are to be kept, and whether they exist."""
    a, c = tableau.array("a", t.dtype, count), tableau.array("c", t.dtype, count)
    first = system.field(y, t, p, q) if first is None else first
    k = [jnp.zeros((count, *x.shape), x.dtype).at[0].set(x) for x in first]

    def body(carry: tuple[Leaves, Array], stage: tuple) -> tuple[tuple[Leaves, Array], Leaves]:
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
        return (k, good), value if keep else []

    xs = (jnp.arange(1, count), jnp.asarray(a[1:]), jnp.asarray(c[1:]))
    (k, good), later = lax.scan(body, (k, jnp.array(True)), xs)
    values = [jnp.concatenate([x[None], v]) for x, v in zip(y, later, strict=True)] if keep else []
    return k, values, good


def weights(tableau: Tableau, theta: Array, count: int) -> Array:
    """The polynomials `b_i(theta)` of the interpolant."""
    dense = jnp.asarray(tableau.array("dense", theta.dtype, count))
    return theta * sum(dense[:, p] * theta**p for p in range(dense.shape[1]))


def transpose(
    system: System,
    tableau: Tableau,
    stage_values: Leaves,
    w: Any,
    g: Leaves,
    t: Array,
    h: Array,
    p: Leaves,
    q: Leaves,
    p_bar: Leaves,
    active: tuple[bool, ...],
    packing: Packing,
) -> tuple[Leaves, Leaves]:
    """What one step adds to the cotangents of `y`, and the sums of those of `p`, packed.

    The slopes have the cotangents `h sum_j w[i, j] g[j]`.
    """
    count, outside = w.shape
    a, c = tableau.array("a", t.dtype, count), tableau.array("c", t.dtype, count)

    def body(turn: Array, carry: tuple) -> tuple:
        buffers, p_bar = carry
        i = count - 1 - turn
        row, node, diagonal = (lax.dynamic_index_in_dim(x, i, 0, keepdims=False) for x in tables)
        at = [lax.dynamic_index_in_dim(x, i, 0, keepdims=False) for x in stage_values]
        seed = [h.astype(real_dtype(x)) * combine(row.astype(real_dtype(x)), x) for x in buffers]
        time = t + node * h
        pull = transposed_field(system, at, time, p, q, active)[1]
        if tableau.implicit:
            seed = newton.transposed_seed(system, at, time, diagonal * h, p, q, seed)
        s_bar, p_part = pull(seed)
        buffers = [
            lax.dynamic_update_index_in_dim(x, s, outside + i, 0)
            for x, s in zip(buffers, s_bar, strict=True)
        ]
        return buffers, add(p_bar, packing.pack(p_part))

    buffers = [jnp.concatenate([x, jnp.zeros((count, *x.shape[1:]), x.dtype)]) for x in g]
    rows = np.concatenate([np.asarray(w, a.dtype), a.T], axis=1)
    tables = (jnp.asarray(rows), jnp.asarray(c), jnp.asarray(np.diagonal(a)))
    # the counter of the loop is the index: an array of indices is one more operation a step
    buffers, p_bar = lax.fori_loop(0, count, body, (buffers, p_bar))
    return [jnp.sum(x[outside:], axis=0) for x in buffers], p_bar


def transposed_field(
    system: System, y: Leaves, t: Array, p: Leaves, q: Leaves, active: tuple[bool, ...]
) -> tuple[Leaves, Callable[[Leaves], tuple[Leaves, Leaves]]]:
    """The right-hand side, and the map from its cotangents to those of `y` and the active `p`."""

    def function(y: Leaves, moving: Leaves) -> Leaves:
        rest = iter(moving)
        return system.field(
            y, t, [next(rest) if a else x for x, a in zip(p, active, strict=True)], q
        )

    return jax.vjp(function, y, [x for x, a in zip(p, active, strict=True) if a])


def add(x: Leaves, y: Leaves) -> Leaves:
    """The sum, leaf by leaf."""
    return [u + v for u, v in zip(x, y, strict=True)]
