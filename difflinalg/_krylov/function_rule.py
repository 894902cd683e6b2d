"""Derivatives of `y = f(A) v` of every order, each by another evaluation of the same kind.

`A` depends on constants `c`. For a direction `(c_dot, v_dot)` the tangent is a block of the same
function of a larger operator (Najfeld and Havel 1995, theorem 2.1; Mathias 1996, theorem 2.1),

    f([[A, A_dot], [0, A]]) [v_dot; v] = [y_dot; y],

which is linear in the direction. Four operations are closed under differentiation:

    action    f(A) v                          tangent: push
    push      y_dot, linear in (c_dot, v_dot) transpose: pull
    pull      (c_bar, v_bar) of a cotangent u transpose: push
    curve     the tangent of pull along (c_dot, v_dot); a symmetric second derivative of u^T f(A) v,
              so its transpose is itself

and the tangent of each of the last three is an operation on the larger operator: `y_dot` is a
block of `action`, and the tangent of `pull` along a direction is `pull` of the larger operator at
`[v_dot; v]` with the cotangent `[u; 0]`. What remains to be computed are `f(A) v` and `pull`.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import krylov_checks
from difflinalg._core.linear_operation import LinearOperation
from difflinalg._core.operation import operation
from difflinalg._core.program import Program

Moving = tuple[int, ...]


@dataclass(frozen=True)
class Family:
    """The operator `A`, a program of constants and a vector, enlarged by directions.

    `directions` says for each enlargement which constants move; their tangents are constants of
    the larger operator, after the others. The vectors of an operator enlarged `d` times have `2^d`
    parts.
    """

    program: Program
    count: int  # of constants of the program
    extra: int = 0  # constants after them, which the method uses and which must not move
    directions: tuple[Moving, ...] = ()

    @property
    def parts(self) -> int:
        """How many blocks a vector has."""
        return 2 ** len(self.directions)

    def enlarged(self, moving: Moving) -> "Family":
        """The operator `[[A, A_dot], [0, A]]`."""
        return replace(self, directions=(*self.directions, moving))

    def apply(self, consts: Any, x: Array) -> Array:
        """The image of one vector."""
        if not self.directions:
            return self.base(consts, x)
        moving = self.directions[-1]
        inner = replace(self, directions=self.directions[:-1])
        split, n = len(consts) - len(moving), x.shape[0] // 2
        fixed, leaves = list(consts[:split]), [consts[i] for i in moving]

        def image(leaves, y):
            varied = list(fixed)
            for i, leaf in zip(moving, leaves, strict=True):
                varied[i] = leaf
            return inner.apply(varied, y)

        # The derivative along (c_dot, x[:n]) at x[n:] is A_dot x[n:] + A x[:n].
        lower, upper = jax.jvp(image, (leaves, x[n:]), (list(consts[split:]), x[:n]))
        return jnp.concatenate([upper, lower])

    def base(self, consts: Any, x: Array) -> Array:
        """The image of one vector of the operator that was not enlarged."""
        return self.program(list(consts[: self.count]), x)

    def rows(self, consts: Any, x: Array) -> Array:
        """The images of rows."""
        return jax.vmap(partial(self.apply, consts))(x)

    def transposed_rows(self, consts: Any, x: Array) -> Array:
        """The images of rows under the transpose."""
        transpose = jax.linear_transpose(partial(self.rows, consts), x)
        return transpose(x)[0]

    def pulled(self, consts: Any, moving: Moving, x: Array, cotangents: Array) -> list[Array]:
        """The cotangents of the moving constants from those of the images of rows `x`."""

        def images(leaves):
            varied = list(consts)
            for i, leaf in zip(moving, leaves, strict=True):
                varied[i] = leaf
            return self.rows(varied, x)

        return jax.vjp(images, [consts[i] for i in moving])[1](cotangents)[0]


class Found(NamedTuple):
    """`f(A) v`, of rows, and how it was found; all floating."""

    y: Array
    converged: Array  # (), 1 or 0
    products: Array  # ()
    error: Array  # (), an estimate, relative


class Method(Protocol):
    """How `f(A) v` is computed: a hashable object.

    `balanced` says whether the blocks of an enlarged operator should be of one size.
    """

    balanced: Any

    def value(self, family: Family, consts: Any, v: Array) -> Found:
        """`f(A) v` of rows."""
        ...

    def pull(self, family: Family, consts: Any, moving: Moving, v: Array, u: Array) -> Any:
        """Cotangents of the moving constants, those of `v`, and whether it has converged."""
        ...


@dataclass(frozen=True)
class Spec:
    """Static options of an operation."""

    family: Family
    method: Method
    moving: Moving = ()  # of the linear argument (push, curve) or the result (pull)
    out: Moving = ()  # of the result of curve

    def enlarged(self, moving: Moving) -> "Spec":
        """Of the operator enlarged by a direction."""
        return replace(self, family=self.family.enlarged(moving))


# Cotangents and tangents of several arrays travel as one, for `LinearOperation` has one of each.


def _pack(leaves: list[Array]) -> Array:
    dtype = jnp.result_type(*leaves)

    def flat(x: Array) -> Array:
        x = x.reshape(-1)
        if jnp.issubdtype(dtype, jnp.complexfloating) and not jnp.iscomplexobj(x):
            real = x.astype(jnp.finfo(dtype).dtype)
            return lax.complex(real, jnp.zeros_like(real))
        return x.astype(dtype)

    return jnp.concatenate([flat(x) for x in leaves])


def _unpack(packed: Array, like: list[Array]) -> list[Array]:
    leaves, at = [], 0
    for x in like:
        part = packed[at : at + x.size].reshape(x.shape)
        if jnp.iscomplexobj(part) and not jnp.iscomplexobj(x):
            part = lax.real(part)
        leaves.append(part.astype(x.dtype))
        at += x.size
    return leaves


def _like(consts: Any, moving: Moving, v: Array) -> list[Array]:
    return [*(consts[i] for i in moving), v]


@operation(statics=1)
def action(consts: tuple[Array, ...], v: Array, spec: Spec) -> Found:
    """`f(A) v` of rows `v`."""
    return spec.method.value(spec.family, consts, v)


@partial(action.defjvp, symbolic_zeros=True)
def _action_jvp(spec: Spec, primals: Any, tangents: Any) -> tuple[Found, Found]:
    (consts, v), (consts_dot, v_dot) = primals, tangents
    found = action(consts, v, spec)
    moving = _movable(spec, consts_dot)
    v_dot = jnp.zeros_like(v) if v_dot is None else v_dot
    packed = _pack([*(consts_dot[i] for i in moving), v_dot])
    y_dot = push(*consts, v, packed, replace(spec, moving=moving))
    return found, jax.tree.map(jnp.zeros_like, found)._replace(y=y_dot)


def _moving(consts_dot: Any) -> Moving:
    return tuple(i for i, dot in enumerate(consts_dot) if dot is not None)


def _movable(spec: Spec, consts_dot: Any) -> Moving:
    moving, first = _moving(consts_dot), spec.family.count
    if any(first <= i < first + spec.family.extra for i in moving):
        krylov_checks.refuse_moving_function("funm_multiply")
    return moving


def _balance(spec: Spec, consts: Any, v: Array, packed: Array) -> Array:
    """The size of a direction, in units in which its blocks are as large as those of `(A, v)`."""
    one = jnp.ones((), jnp.finfo(packed.dtype).dtype)
    if not spec.method.balanced:
        return one
    *consts_dot, v_dot = _unpack(packed, _like(consts, spec.moving, v))
    larger = jnp.concatenate([jnp.zeros_like(v), v], axis=1)
    image = spec.family.enlarged(spec.moving).rows((*consts, *consts_dot), larger)
    sizes = [jnp.max(jnp.abs(x)) for x in (*jnp.split(image, 2, axis=1), v_dot, v)]
    moved, still, start, here = (x.astype(one.dtype) for x in sizes)
    size = jnp.maximum(moved / _nonzero(still), start / _nonzero(here))
    return lax.stop_gradient(_nonzero(size))


def _nonzero(x: Array) -> Array:
    return jnp.where((x > 0.0) & jnp.isfinite(x), x, 1.0)


def _push(*arrays: Any) -> Array:
    """`y_dot`, of `(*consts, v, packed tangents)`; NaN where it has not converged."""
    *consts, v, packed, spec = arrays
    size = _balance(spec, consts, v, packed)
    packed = packed / size
    *consts_dot, v_dot = _unpack(packed, _like(consts, spec.moving, v))
    if not spec.moving:  # linear in v alone
        found = action(tuple(consts), v_dot, spec)
        return _loud(found.y, found.converged) * size
    larger = jnp.concatenate([v_dot, v], axis=1)
    outer = replace(spec.enlarged(spec.moving), moving=())
    found = action((*consts, *consts_dot), larger, outer)
    return _loud(found.y[:, : v.shape[1]], found.converged) * size


def _loud(x: Array, converged: Array) -> Array:
    guard = jnp.where(lax.stop_gradient(converged) > 0.0, 1.0, jnp.nan)
    return x * guard.astype(jnp.finfo(x.dtype).dtype)


push = LinearOperation(_push, statics=1)


@push.deftranspose
def _push_transpose(spec: Spec, *arrays: Array) -> Array:
    return pull(*arrays, spec)


def _pull(*arrays: Any) -> Array:
    """Packed `(c_bar, v_bar)`, of `(*consts, v, u)` with the cotangent `u` of `f(A) v`."""
    *consts, v, u, spec = arrays
    size = jnp.max(jnp.abs(u), initial=0.0)
    safe = jnp.where((size > 0.0) & jnp.isfinite(size), size, 1.0)
    bars, v_bar, converged = spec.method.pull(
        spec.family, tuple(consts), spec.moving, v, u / safe.astype(u.dtype)
    )
    return _loud(_pack([*bars, v_bar]), converged) * safe.astype(u.dtype)


pull = LinearOperation(_pull, statics=1)


@pull.deftranspose
def _pull_transpose(spec: Spec, *arrays: Array) -> Array:
    return push(*arrays, spec)


def _curve(*arrays: Any) -> Array:
    """The tangent of pull, of `(*consts, v, u, packed tangents)`."""
    *consts, v, u, packed, spec = arrays
    size = _balance(spec, consts, v, packed)
    packed = packed / size
    *consts_dot, v_dot = _unpack(packed, _like(consts, spec.moving, v))
    larger = jnp.concatenate([v_dot, v], axis=1)
    outer = replace(spec.enlarged(spec.moving), moving=spec.out, out=())
    cotangent = jnp.concatenate([u, jnp.zeros_like(u)], axis=1)
    bars = pull(*consts, *consts_dot, larger, cotangent, outer)
    *c_bar, v_bar = _unpack(bars, _like(consts, spec.out, larger))
    return _pack([*c_bar, v_bar[:, v.shape[1] :]]) * size


curve = LinearOperation(_curve, statics=1)


@curve.deftranspose
def _curve_transpose(spec: Spec, *arrays: Array) -> Array:
    return curve(*arrays, replace(spec, moving=spec.out, out=spec.moving))


def _along(f: Any, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """`jax.jvp` of a function of arrays of which those with a tangent None do not move."""
    moving = _moving(tangents)

    def of_moving(*leaves):
        args = list(primals)
        for i, leaf in zip(moving, leaves, strict=True):
            args[i] = leaf
        return f(*args)

    return jax.jvp(of_moving, [primals[i] for i in moving], [tangents[i] for i in moving])


@partial(push.defjvp, symbolic_zeros=True)
def _push_jvp(spec: Spec, primals: Any, tangents: Any) -> tuple[Array, Array]:
    return _along(lambda *arrays: _push(*arrays, spec), primals, tangents)


@partial(curve.defjvp, symbolic_zeros=True)
def _curve_jvp(spec: Spec, primals: Any, tangents: Any) -> tuple[Array, Array]:
    return _along(lambda *arrays: _curve(*arrays, spec), primals, tangents)


@partial(pull.defjvp, symbolic_zeros=True)
def _pull_jvp(spec: Spec, primals: Any, tangents: Any) -> tuple[Array, Array]:
    *consts, v, u = primals
    *consts_dot, v_dot, u_dot = tangents
    value = pull(*primals, spec)
    tangent = jnp.zeros_like(value) if u_dot is None else pull(*consts, v, u_dot, spec)
    moving = _movable(spec, consts_dot)
    if moving or v_dot is not None:
        v_dot = jnp.zeros_like(v) if v_dot is None else v_dot
        packed = _pack([*(consts_dot[i] for i in moving), v_dot])
        along = replace(spec, moving=moving, out=spec.moving)
        tangent = tangent + curve(*consts, v, u, packed, along)
    return value, tangent
