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
from jax.interpreters import ad, batching, mlir

from difflinalg._ode.adjoints import Adjoint
from difflinalg._ode.control import Control
from difflinalg._ode.forward import Record
from difflinalg._ode.lift import Level, Lift
from difflinalg._ode.solve import Solution, solve
from difflinalg._ode.stages import add, real_dtype
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
    ys: Outputs | None = None
    record: Record | None = None


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
    capacity = meta.adjoint.capacity if meta.recorded else 0
    lift = Lift(meta.levels, data.p, data.q)
    return solve(meta.control, meta.system, lift, data.y0, data.ts, capacity)


def _solve_shapes(meta: Meta, data: Data, _linear: None) -> list:
    sizes, m, dtype = data.ts.shape[:-1], data.ts.shape[-1], data.ts.dtype
    capacity = meta.adjoint.capacity if meta.recorded else 0
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
    inner, final = meta.adjoint.push(
        meta.control, tangent, lift, [*data.y0, *y_dot], data.ts, data.record
    )
    return Outputs(inner[n:], final[n:])


def _push_shapes(_meta: Meta, data: Data, _linear: Any) -> list:
    return _output_shapes(data)


def _pull(meta: Meta, data: Data, cotangents: Outputs) -> tuple[Leaves, Leaves]:
    lift = Lift(meta.levels, data.p, data.q)
    return meta.adjoint.pull(
        meta.control,
        meta.system,
        lift,
        meta.active,
        data.y0,
        data.ts,
        data.ys,
        data.record,
        cotangents,
    )


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
    y_bar, p_bar = _pull(*_tangent_pull(meta, data, g, v, ys_dot))
    return y_bar[: len(v.y)], p_bar


def _tangent_pull(
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


def integrate(meta: Meta, data: Data) -> Solution:
    """Integrate, with derivatives."""
    return _as_solution(data, bind(solve_p, meta, data, None))


def _as_solution(data: Data, out: list) -> Solution:
    n = len(data.y0)
    inner = n if data.ts.shape[-1] > 2 else 0
    return Solution(out[:inner], out[inner : inner + n], *out[inner + n :])


def _as_outputs(data: Data, out: list) -> Outputs:
    inner = len(out) - len(data.y0)
    return Outputs(list(out[:inner]), list(out[inner:]))


def _as_cotangents(data: Data, out: list) -> tuple[Leaves, Leaves]:
    n = len(data.y0)
    return list(out[:n]), list(out[n:])


# Rules. A tangent that is known to be zero is an `ad.Zero`.


def _is_zero(x: Any) -> bool:
    return type(x) is ad.Zero


def _solid(leaves: Leaves) -> Leaves:
    return [ad.instantiate_zeros(x) for x in leaves]


def _rests(data: Data, dot: Data) -> bool:
    """Whether nothing that an integration depends on has a tangent."""
    del data
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
    outputs = _as_outputs(data, out)
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
    rests = _rests(data, dot)
    meta = meta if rests else replace(meta, recorded=True)
    out = bind(solve_p, meta, data, None)
    solution = _as_solution(data, out)
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
    if _rests(data, dot):
        return out, bind(push_p, meta, data, (_solid(v_dot), _solid(v_p_dot)))
    outputs = _as_outputs(data, out)
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
    g = _as_outputs(data, _solid(cotangents))
    y_bar, p_bar = _as_cotangents(data, bind(pull_p, meta, data, g))
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
    if _rests(data, dot):
        return out, bind(pull_p, meta, data, g_dot)
    moved = _moved(meta, data, dot)
    extra = None
    if not _is_zero(dot.ts):
        y_bar, _ = _as_cotangents(data, out)
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
    y_dot, p_dot = _as_cotangents(data, _solid(cotangents))
    out = bind(push_p, meta, data, (y_dot, p_dot))
    linear = [*g.inner, *g.final]
    return [None] * (len(operands) - len(linear)) + _where_linear(linear, out)


def _bend_jvp(leaves: Any, dots: Any, *, treedef: Any, meta: Bend) -> tuple[list, list]:
    data, (g, v) = jax.tree.unflatten(treedef, leaves)
    dot, (g_dot, v_dot) = jax.tree.unflatten(treedef, dots)
    if _rests(data, dot) and all(map(_is_zero, [*g_dot.inner, *g_dot.final])):
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
            ys_dot = _as_outputs(data, bind(push_p, push, data, (v.y, v.p)))
        else:
            ys_dot = Outputs(*(jax.tree.map(jnp.zeros_like, x) for x in data.ys))
        inner, stacked, cotangents = _tangent_pull(meta, data, g, v, ys_dot)
        y_bar, p_bar = _as_cotangents(stacked, bind(pull_p, inner, stacked, cotangents))
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
    y_dot, p_dot = _as_cotangents(data, _solid(cotangents))
    zeros = Outputs(*(jax.tree.map(jnp.zeros_like, x) for x in g))
    mirrored = replace(meta, active=meta.moving, moving=meta.active)
    out = bind(bend_p, mirrored, data, (g, Direction(y_dot, p_dot, zeros)))
    y_bar, p_bar = _as_cotangents(data, out)
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
