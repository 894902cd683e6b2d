"""The rules of the four primitives: derivatives of `operations`, as derived in its text."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.interpreters import ad

from difflinalg._ode.forward import Record
from difflinalg._ode.lift import Lift
from difflinalg._ode.operations import (
    Bend,
    Data,
    Direction,
    Meta,
    Outputs,
    as_cotangents,
    as_outputs,
    as_solution,
    bend_p,
    bind,
    pull_p,
    push_p,
    solve_p,
    tangent_pull,
)
from difflinalg._ode.solve import Solution
from difflinalg._ode.stages import add, real_dtype
from difflinalg._ode.system import Leaves


def integrate(meta: Meta, data: Data) -> Solution:
    """Integrate, with derivatives."""
    return as_solution(data, bind(solve_p, meta, data, None))


# A tangent that is known to be zero is an `ad.Zero`.


def _is_zero(x: Any) -> bool:
    return type(x) is ad.Zero


def _solid(leaves: Leaves) -> Leaves:
    return [ad.instantiate_zeros(x) for x in leaves]


def _rests(dot: Data) -> bool:
    """Whether nothing that an integration depends on has a tangent."""
    return all(map(_is_zero, [*dot.y0, *dot.p, dot.ts]))


def _lift(meta: Meta, data: Data) -> Lift:
    return Lift(meta.levels, data.p, data.q)


class _Moved(NamedTuple):
    y: Leaves
    p: Leaves
    active: tuple[bool, ...]


def _moved(meta: Meta, data: Data, dot: Data) -> _Moved:
    """Tangents at the start as `push` takes them: `y0_dot - f_0 t0_dot`, and `p_dot`."""
    lift = _lift(meta, data)
    y_dot = _solid(dot.y0)
    if not _is_zero(dot.ts):

        def shift(p: Leaves, q: Leaves, y: Leaves, y_dot: Leaves, ts: Array, dot: Array) -> Leaves:
            slope = meta.system.field(y, ts[0], p, q)
            return [u - f * dot[0].astype(real_dtype(f)) for u, f in zip(y_dot, slope, strict=True)]

        y_dot = lift(shift, data.y0, y_dot, data.ts, dot.ts)
    active = tuple(not _is_zero(x) for x in dot.p)
    spread = lift.spread(
        [x if a else None for x, a in zip(dot.p, active, strict=True)], data.ts.shape[:-1]
    )
    return _Moved(y_dot, spread, active)


def _outputs_dot(meta: Meta, data: Data, dot: Data) -> Outputs:
    """The tangents of the outputs."""
    moved = _moved(meta, data, dot)
    out = bind(push_p, replace(meta, active=moved.active), data, (moved.y, moved.p))
    outputs = as_outputs(data, out)
    if _is_zero(dot.ts):
        return outputs

    def shift(
        p: Leaves, q: Leaves, outputs: Outputs, ys: Outputs, ts: Array, dot: Array
    ) -> Outputs:
        def scaled(y: Leaves, t: Array, t_dot: Array) -> Leaves:
            slope = meta.system.field(y, t, p, q)
            return [f * t_dot.astype(real_dtype(f)) for f in slope]

        final = add(outputs.final, scaled(ys.final, ts[-1], dot[-1]))
        if not ys.inner:
            return Outputs([], final)
        return Outputs(add(outputs.inner, jax.vmap(scaled)(ys.inner, ts[1:-1], dot[1:-1])), final)

    return _lift(meta, data)(shift, outputs, data.ys, data.ts, dot.ts)


def _solve_jvp(leaves: Any, dots: Any, *, treedef: Any, meta: Meta) -> tuple[list, list]:
    data, _ = jax.tree.unflatten(treedef, leaves)
    dot, _ = jax.tree.unflatten(treedef, dots)
    rests = _rests(dot)
    meta = meta if rests else replace(meta, recorded=True)
    out = bind(solve_p, meta, data, None)
    solution = as_solution(data, out)
    tangents: list = []
    if not rests:
        tangents = jax.tree.leaves(_outputs_dot(meta, with_outputs(data, solution), dot))
    tangents += [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in out[len(tangents) :]]
    return out, tangents


def with_outputs(data: Data, solution: Solution) -> Data:
    """The operands of `push` and `pull` from those of `solve` and its result."""
    record = Record(solution.times, solution.index, jnp.max(solution.count))
    return data._replace(ys=Outputs(solution.inner, solution.final), record=record)


def _push_jvp(leaves: Any, dots: Any, *, treedef: Any, meta: Meta) -> tuple[list, list]:
    data, (v, v_p) = jax.tree.unflatten(treedef, leaves)
    dot, (v_dot, v_p_dot) = jax.tree.unflatten(treedef, dots)
    out = bind(push_p, meta, data, (v, v_p))
    if _rests(dot):
        return out, bind(push_p, meta, data, (_solid(v_dot), _solid(v_p_dot)))
    outputs = as_outputs(data, out)
    stacked = data._replace(
        y0=data.y0 + v,
        p=data.p + v_p,
        ys=Outputs(data.ys.inner + outputs.inner, data.ys.final + outputs.final),
    )
    tangent = replace(
        meta,
        system=meta.system.tangent(meta.active),
        levels=tuple((p + (True,) * len(v_p), q) for p, q in meta.levels),
        active=(),
    )
    moved = Data(dot.y0 + v_dot, dot.p + v_p_dot, dot.q, dot.ts)
    both = _outputs_dot(tangent, stacked, moved)
    n = len(v)
    return out, [*both.inner[n:], *both.final[n:]]


def _push_transpose(cotangents: Any, *operands: Any, treedef: Any, meta: Meta) -> list:
    data, (v, v_p) = jax.tree.unflatten(treedef, operands)
    g = as_outputs(data, _solid(cotangents))
    y_bar, p_bar = as_cotangents(data, bind(pull_p, meta, data, g))
    rest = [None] * (len(operands) - len(v) - len(v_p))
    return rest + _where_linear(v, y_bar) + _where_linear(v_p, p_bar)


def _where_linear(operands: list, cotangents: list) -> list:
    return [
        c if ad.is_undefined_primal(x) else None for x, c in zip(operands, cotangents, strict=True)
    ]


def _pull_jvp(leaves: Any, dots: Any, *, treedef: Any, meta: Meta) -> tuple[list, list]:
    data, g = jax.tree.unflatten(treedef, leaves)
    dot, g_dot = jax.tree.unflatten(treedef, dots)
    out = bind(pull_p, meta, data, g)
    g_dot = Outputs(_solid(g_dot.inner), _solid(g_dot.final))
    if _rests(dot):
        return out, bind(pull_p, meta, data, g_dot)
    moved = _moved(meta, data, dot)
    extra = None
    if not _is_zero(dot.ts):
        y_bar, _ = as_cotangents(data, out)
        g_dot, extra = _lift(meta, data)(
            _pull_time_terms(meta), data.y0, data.ys, data.ts, dot.ts, y_bar, g, g_dot
        )
    bend = _as_bend(meta, moved.active)
    tangents = bind(bend_p, bend, data, (g, Direction(moved.y, moved.p, g_dot)))
    return out, tangents if extra is None else add(tangents, extra)


def _as_bend(meta: Meta, moving: tuple[bool, ...]) -> Bend:
    return Bend(
        meta.control, meta.system, meta.adjoint, meta.recorded, meta.levels, meta.active, moving
    )


def _pull_time_terms(meta: Meta) -> Callable:
    """`g_dot + f_y^T g t_dot`, and the terms added to the cotangents, as in the module's text."""

    def transposed(p: Leaves, q: Leaves, y: Leaves, t: Array, g: Leaves, t_dot: Array) -> tuple:
        _, pull = jax.vjp(lambda y, p: meta.system.field(y, t, p, q), y, p)
        y_bar, p_bar = pull([x * t_dot.astype(real_dtype(x)) for x in g])
        return y_bar, [x for x, a in zip(p_bar, meta.active, strict=True) if a]

    def terms(
        p: Leaves,
        q: Leaves,
        y0: Leaves,
        ys: Outputs,
        ts: Array,
        dot: Array,
        y_bar: Leaves,
        g: Outputs,
        g_dot: Outputs,
    ) -> tuple[Outputs, Leaves]:
        final, p_bar = transposed(p, q, ys.final, ts[-1], g.final, dot[-1])
        at_start, p_start = transposed(p, q, y0, ts[0], y_bar, -dot[0])
        p_bar = add(p_bar, p_start)
        inner = g_dot.inner
        if ys.inner:
            mapped = jax.vmap(lambda *x: transposed(p, q, *x))
            more, p_more = mapped(ys.inner, ts[1:-1], g.inner, dot[1:-1])
            inner = add(inner, more)
            p_bar = add(p_bar, [jnp.sum(x, axis=0) for x in p_more])
        return Outputs(inner, add(g_dot.final, final)), at_start + p_bar

    return terms


def _pull_transpose(cotangents: Any, *operands: Any, treedef: Any, meta: Meta) -> list:
    data, g = jax.tree.unflatten(treedef, operands)
    y_dot, p_dot = as_cotangents(data, _solid(cotangents))
    out = bind(push_p, meta, data, (y_dot, p_dot))
    linear = [*g.inner, *g.final]
    return [None] * (len(operands) - len(linear)) + _where_linear(linear, out)


def _bend_jvp(leaves: Any, dots: Any, *, treedef: Any, meta: Bend) -> tuple[list, list]:
    data, (g, v) = jax.tree.unflatten(treedef, leaves)
    dot, (g_dot, v_dot) = jax.tree.unflatten(treedef, dots)
    if _rests(dot) and all(map(_is_zero, [*g_dot.inner, *g_dot.final])):
        v_dot = Direction(
            _solid(v_dot.y),
            _solid(v_dot.p),
            Outputs(_solid(v_dot.g.inner), _solid(v_dot.g.final)),
        )
        return (
            bind(bend_p, meta, data, (g, v)),
            bind(bend_p, meta, data, (g, v_dot)),
        )
    times_move = not _is_zero(dot.ts)

    def composed(*leaves: Array) -> list[Array]:
        data, (g, v) = jax.tree.unflatten(treedef, leaves)
        if times_move or meta.adjoint.needs_outputs:
            push = Meta(
                meta.control, meta.system, meta.adjoint, meta.recorded, meta.levels, meta.moving
            )
            ys_dot = as_outputs(data, bind(push_p, push, data, (v.y, v.p)))
        else:
            ys_dot = Outputs(*(jax.tree.map(jnp.zeros_like, x) for x in data.ys))
        inner, stacked, cotangents = tangent_pull(meta, data, g, v, ys_dot)
        y_bar, p_bar = as_cotangents(stacked, bind(pull_p, inner, stacked, cotangents))
        return y_bar[: len(v.y)] + p_bar

    return _jvp_of(composed, leaves, dots)


def _jvp_of(function: Callable, leaves: Any, dots: Any) -> tuple[list, list]:
    """`jax.jvp` over those arguments that have a tangent."""
    moving = [not _is_zero(x) for x in dots]

    def restricted(*some: Array) -> list[Array]:
        some_iter = iter(some)
        return function(*(next(some_iter) if m else x for x, m in zip(leaves, moving, strict=True)))

    pairs = [(x, d) for x, d, m in zip(leaves, dots, moving, strict=True) if m]
    primals, tangents = zip(*pairs, strict=True)
    return jax.jvp(restricted, primals, tangents)


def _bend_transpose(cotangents: Any, *operands: Any, treedef: Any, meta: Bend) -> list:
    data, (g, v) = jax.tree.unflatten(treedef, operands)
    y_dot, p_dot = as_cotangents(data, _solid(cotangents))
    zeros = Outputs(*(jax.tree.map(jnp.zeros_like, x) for x in g))
    mirrored = replace(meta, active=meta.moving, moving=meta.active)
    out = bind(bend_p, mirrored, data, (g, Direction(y_dot, p_dot, zeros)))
    y_bar, p_bar = as_cotangents(data, out)
    push = Meta(meta.control, meta.system, meta.adjoint, meta.recorded, meta.levels, meta.active)
    g_bar = bind(push_p, push, data, (y_dot, p_dot))
    linear = _where_linear([*v.y, *v.p, *v.g.inner, *v.g.final], [*y_bar, *p_bar, *g_bar])
    return [None] * (len(operands) - len(linear)) + linear


ad.primitive_jvps[solve_p] = _solve_jvp
ad.primitive_jvps[push_p] = _push_jvp
ad.primitive_jvps[pull_p] = _pull_jvp
ad.primitive_jvps[bend_p] = _bend_jvp
ad.primitive_transposes[push_p] = _push_transpose
ad.primitive_transposes[pull_p] = _pull_transpose
ad.primitive_transposes[bend_p] = _bend_transpose
