"""Four primitives that are closed under differentiation, in every mode and to every order.

Let `Y(y0, p, ts)` be the outputs of an integration. The primitives are

    solve   Y
    push    dY (y0_dot, p_dot)                        linear in the tangents
    pull    dY^T g                                    linear in the cotangent, transpose of push
    bend    d(pull)(v, v_p) + pull(g_dot)             linear in v, v_p and g_dot

With F the tangent system, `push` of f is the second half of `solve` of F, and `bend` of f is the
first half of `pull` of F with the cotangents `(g_dot, g)`, because second derivatives commute.
Hence the derivative of `push` is a `push` of F, that of `bend` a `bend` of F, and the transpose
of `bend` consists of a `bend` and a `push`. No loop is ever differentiated.

Times. With `f_j` the right-hand side at output j and `f_0` at the start,

    Y_dot_j = dY (y0_dot - f_0 t0_dot, p_dot) + f_j t_dot_j
    d(dY^T g) = bend(v = y0_dot - f_0 t0_dot, p_dot, g_dot + f_y^T g t_dot)
                + (0, sum_j f_p^T g_j t_dot_j) - (f_y^T, f_p^T) y0_bar t0_dot

`ys`, the outputs, are passed along for these terms. A primitive is used instead of `custom_jvp`
because JAX drops the rule of the latter where it partially evaluates a loop.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from difflinalg._ode.adjoints import Adjoint, Problem
from difflinalg._ode.control import Control
from difflinalg._ode.forward import Record
from difflinalg._ode.lift import Level, Lift
from difflinalg._ode.solve import Solution, solve
from difflinalg._ode.system import Leaves, System


@dataclass(frozen=True)
class Meta:
    """What is static about an operation."""

    control: Control
    system: System
    adjoint: Adjoint
    recorded: bool = False
    levels: tuple[Level, ...] = ()
    active: tuple[bool, ...] = ()  # which of p have tangents and cotangents


class Outputs(NamedTuple):
    """States at `ts[1:-1]`, shape `(m - 2, ...)`, and at `ts[-1]`."""

    inner: Leaves
    final: Leaves


class Data(NamedTuple):
    """The operands in which an operation is not linear; tangents have the same shape."""

    y0: Leaves
    p: Leaves
    q: Leaves
    ts: Array
    ys: Any = None  # Outputs, where the derivative option needs them
    record: Any = None  # Record, where it keeps one


def _operation(name: str, implement: Callable, shapes: Callable) -> Primitive:
    """A primitive on flattened operands `(data, linear)`."""
    primitive = Primitive(f"ode_{name}")
    primitive.multiple_results = True

    def call(*leaves: Array, treedef: Any, meta: Meta) -> list[Array]:
        return jax.tree.leaves(implement(meta, *jax.tree.unflatten(treedef, leaves)))

    @lru_cache(maxsize=512)
    def compiled(treedef: Any, meta: Meta) -> Callable:
        return jax.jit(lambda *leaves: call(*leaves, treedef=treedef, meta=meta))

    def abstract(*avals: Any, treedef: Any, meta: Meta) -> list[ShapedArray]:
        out = shapes(meta, *jax.tree.unflatten(treedef, avals))
        return [ShapedArray(shape, dtype) for shape, dtype in out]

    def batch(leaves: Any, dims: Any, *, treedef: Any, meta: Meta) -> tuple[list[Array], list[int]]:
        meta, operands = _batch(meta, treedef, leaves, dims)
        out = bind(primitive, meta, *operands)
        return out, [0] * len(out)

    primitive.def_impl(lambda *leaves, treedef, meta: compiled(treedef, meta)(*leaves))
    primitive.def_abstract_eval(abstract)
    batching.primitive_batchers[primitive] = batch
    mlir.register_lowering(primitive, mlir.lower_fun(call, multiple_results=True))
    return primitive


def bind(primitive: Primitive, meta: Meta, data: Data, linear: Any) -> list[Array]:
    """Apply a primitive."""
    leaves, treedef = jax.tree.flatten((data, linear))
    return primitive.bind(*leaves, treedef=treedef, meta=meta)


def _batch(meta: Meta, treedef: Any, leaves: Any, dims: Any) -> tuple[Meta, tuple]:
    """Operands with one more batch axis in front; `p` and `q` only where they have it."""
    mapped = [d is not None for d in dims]
    moved = [
        jnp.moveaxis(x, d, 0) if d is not None else x for x, d in zip(leaves, dims, strict=True)
    ]
    size = next(x.shape[0] for x, m in zip(moved, mapped, strict=True) if m)

    def full(x: Array, m: bool) -> Array:
        return x if m else jnp.broadcast_to(x, (size, *jnp.shape(x)))

    (data, linear) = jax.tree.unflatten(treedef, moved)
    (where, where_linear) = jax.tree.unflatten(treedef, mapped)
    record = data.record
    if record is not None:
        times = full(record.times, where.record.times)
        index = full(record.index, where.record.index)
        count = jnp.max(record.count) if where.record.count else record.count
        record = Record(times, index, count)
    data = Data(
        jax.tree.map(full, data.y0, where.y0),
        data.p,
        data.q,
        full(data.ts, where.ts),
        jax.tree.map(full, data.ys, where.ys),
        record,
    )
    level = (tuple(where.p), tuple(where.q))
    linear = jax.tree.map(full, linear, where_linear)
    return replace(meta, levels=(level, *meta.levels)), (data, linear)


# What the primitives compute, and the shapes of it.


def _solve(meta: Meta, data: Data, _linear: None) -> Solution:
    capacity = meta.adjoint.max_steps if meta.recorded else 0
    lift = Lift(meta.levels, data.p, data.q)
    return solve(meta.control, meta.system, lift, data.y0, data.ts, capacity)


def _solve_shapes(meta: Meta, data: Data, _linear: None) -> list:
    sizes, m, dtype = data.ts.shape[:-1], data.ts.shape[-1], data.ts.dtype
    capacity = meta.adjoint.max_steps if meta.recorded else 0
    int32 = jnp.dtype("int32")
    return [
        *_output_shapes(data),
        ((*sizes, capacity + 1 if capacity else 0), dtype),
        (sizes, int32),
        ((*sizes, m - 2), int32),
        (sizes, int32),
        ((*sizes, 2), dtype),
        ((*sizes, 2), int32),
    ]


def _output_shapes(data: Data) -> list:
    batch, m = data.ts.ndim - 1, data.ts.shape[-1]
    inner = [((*x.shape[:batch], m - 2, *x.shape[batch:]), x.dtype) for x in data.y0]
    return (inner if m > 2 else []) + [(x.shape, x.dtype) for x in data.y0]


def _push(meta: Meta, data: Data, linear: tuple[Leaves, Leaves]) -> Outputs:
    y_dot, p_dot = linear
    n = len(y_dot)
    lift = Lift(meta.levels, data.p, data.q).tangent(p_dot)
    tangent = meta.system.tangent(meta.active)
    problem = Problem(meta.control, tangent, lift, [*data.y0, *y_dot], data.ts, data.record)
    inner, final = meta.adjoint.push(problem)
    return Outputs(inner[n:], final[n:])


def _push_shapes(_meta: Meta, data: Data, _linear: Any) -> list:
    return _output_shapes(data)


def _pull(meta: Meta, data: Data, cotangents: Outputs) -> tuple[Leaves, Leaves]:
    lift = Lift(meta.levels, data.p, data.q)
    problem = Problem(meta.control, meta.system, lift, data.y0, data.ts, data.record)
    return meta.adjoint.pull(problem, meta.active, data.ys, cotangents)


def _pull_shapes(meta: Meta, data: Data, _linear: Any) -> list:
    sizes = data.ts.shape[:-1]
    out = [(x.shape, x.dtype) for x in data.y0]
    for i, x in enumerate(data.p):
        if meta.active[i]:
            own = x.shape[sum(level[0][i] for level in meta.levels) :]
            out.append(((*sizes, *own), x.dtype))
    return out


@dataclass(frozen=True)
class Bend(Meta):
    """`active` says which of p have cotangents, `moving` which of them have tangents."""

    moving: tuple[bool, ...] = ()


class Direction(NamedTuple):
    """The operands in which `bend` is linear."""

    y: Leaves
    p: Leaves
    g: Outputs


def _bend(meta: Bend, data: Data, linear: tuple[Outputs, Direction]) -> tuple[Leaves, Leaves]:
    g, v = linear
    if meta.adjoint.needs_outputs:
        ys_dot = _push(replace(meta, active=meta.moving), data, (v.y, v.p))
    else:
        ys_dot = Outputs(*(jax.tree.map(jnp.zeros_like, x) for x in data.ys))
    y_bar, p_bar = _pull(*tangent_pull(meta, data, g, v, ys_dot))
    return y_bar[: len(v.y)], p_bar


def tangent_pull(
    meta: Bend, data: Data, g: Outputs, v: Direction, ys_dot: Outputs
) -> tuple[Meta, Data, Outputs]:
    """The operands of the `pull` of the tangent system whose first half is `bend`."""
    inner = Meta(
        meta.control,
        meta.system.tangent(meta.moving),
        meta.adjoint,
        meta.recorded,
        tuple((p + (True,) * len(v.p), q) for p, q in meta.levels),
        meta.active + (False,) * len(v.p),
    )
    ys = Outputs(data.ys.inner + ys_dot.inner, data.ys.final + ys_dot.final)
    stacked = Data(data.y0 + v.y, data.p + v.p, data.q, data.ts, ys, data.record)
    return inner, stacked, Outputs(v.g.inner + g.inner, v.g.final + g.final)


solve_p = _operation("solve", _solve, _solve_shapes)
push_p = _operation("push", _push, _push_shapes)
pull_p = _operation("pull", _pull, _pull_shapes)
bend_p = _operation("bend", _bend, _pull_shapes)


def as_solution(data: Data, out: list) -> Solution:
    """The result of `solve` from its flat outputs."""
    n = len(data.y0)
    inner = n if data.ts.shape[-1] > 2 else 0
    return Solution(out[:inner], out[inner : inner + n], *out[inner + n :])


def as_outputs(data: Data, out: list) -> Outputs:
    """The result of `push`, or the cotangents that `pull` takes, from a flat list."""
    inner = len(out) - len(data.y0)
    return Outputs(list(out[:inner]), list(out[inner:]))


def as_cotangents(data: Data, out: list) -> tuple[Leaves, Leaves]:
    """The result of `pull` or `bend` from its flat outputs."""
    n = len(data.y0)
    return list(out[:n]), list(out[n:])
