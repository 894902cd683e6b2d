"""Series of a few eigenpairs of an operator: one deflated solve for each order.

`A V = Y D` with `Y = M V`, `V^H Y = I`, and `V[k] = V[0] P + X`. With the convolutions

    G = sum over j >= 1 of A[j] V[k - j],    H = sum over j >= 1 of M[j] V[k - j]
    R = G - H D[0] - sum over 1 <= j < k of Y[j] D[k - j],    T = V[0]^H R
    S = -1/2 (V[0]^H H + sum over 1 <= j < k of V[j]^H Y[k - j])

order k is solved by the formulas of `truncated`, and X by the solve inside of the rule of `eigsh`,
`Q^H (A[0] - w[j] M[0]) Q x_j = -Q^H r_j`. A vector that has become known is multiplied by `A(t)`
and `M(t)` once, for all later orders.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core.algebra import adjoint, adjoint_mm, herm, inv0, mm, skew
from difflinalg._krylov.eigsh_rule import Found, Operators, Spec, eigsh_core, solve_outside
from difflinalg._krylov.linear_map import Outcome, solve_core, transposable_solve
from difflinalg._krylov.linear_map import Spec as SolveSpec
from difflinalg._krylov.operator import Linear
from difflinalg._krylov.svds import Maps, SvdSpec, svds_core
from difflinalg._taylor.convolution import inner_sum, set_order, start
from difflinalg._taylor.interpreter import interpret_closed
from difflinalg._taylor.linear import solve_orders
from difflinalg._taylor.series import Series, Value, full, is_series, primals

Images = Callable[[Array], Array]


def images_of(operator: Linear | None, like: Array, order: int) -> Images:
    """The map from a block of columns `(n, k)` to the coefficients of its image `(K + 1, n, k)`."""
    if operator is None:
        return lambda x: start(x, order)
    smooth = primals(list(operator.smooth))
    fixed = replace(operator, smooth=tuple(smooth))

    def rows(leaves: list[Array], x: Array) -> Array:
        return replace(fixed, smooth=tuple(leaves)).rows(x)

    closed = jax.make_jaxpr(rows)(smooth, like.T)

    def images(x: Array) -> Array:
        (y,) = interpret_closed(closed, [*operator.smooth, x.T], order)
        return jnp.swapaxes(full(y, order), -1, -2)

    return images


def eigsh_series(ops: Operators, begin: Array, sigma: Array, spec: Spec, order: int) -> Found:
    """`Found` with series of eigenvalues and eigenvectors; the arguments are those of `eigsh_core`.

    The leaves of `ops` may be series.
    """
    fixed, begin, sigma = primals((ops, begin, sigma))
    found = eigsh_core(fixed, begin, sigma, replace(spec, level=spec.level + order))
    return _found_series(ops, found, spec, order)


def svds_series(maps: Maps, spec: SvdSpec, order: int) -> Found:
    """The same for `svds_core`: its triplets are eigenpairs of `[[0, A], [A^H, 0]]`."""
    found = svds_core(primals(maps), replace(spec, level=spec.level + order))
    return _found_series(Operators(maps.both, None, None), found, spec.rule, order)


def _found_series(ops: Operators, found: Found, spec: Spec, order: int) -> Found:
    """What a solver has found for the first coefficients, with series of values and vectors."""
    moving = [x for x in jax.tree.leaves((ops.a, ops.m), is_leaf=is_series) if is_series(x)]
    if not moving:
        return found
    fixed, constants = primals(ops), lax.stop_gradient(found)
    w, v_0 = found.w, found.v.T
    of_a, of_m = (images_of(operator, v_0, order) for operator in (ops.a, ops.m))

    def outside(r: Array) -> Array:
        return solve_outside(fixed, found, spec, r.T).T

    same = jnp.abs(w[:, None] - w[None, :]) <= constants.cluster
    d, v = _pairs(of_a, of_m, w, v_0, same, outside, order)
    guard = jnp.where(constants.cut > 0.0, jnp.nan, 1.0)
    v = v.at[1:].multiply(guard) if order else v
    values: Any = Series(jnp.real(jnp.diagonal(d, axis1=-2, axis2=-1)))
    vectors: Any = Series(jnp.swapaxes(v, -1, -2))
    return found._replace(w=values, v=vectors)


def _pairs(
    of_a: Images,
    of_m: Images,
    w: Array,
    v_0: Array,
    same: Array,
    outside: Callable[[Array], Array],
    order: int,
) -> tuple[Array, Array]:
    """The recurrence of the module: series of `D` and of the columns of `V`."""
    gap = w[None, :] - w[:, None]
    inverse = jnp.where(same, 0.0, inv0(gap, 0.0))

    def one_order(state, k):
        v, y, d, g, h = state
        r = g[k] - h[k] * w - inner_sum(mm, y, d, k)
        t = mm(adjoint(v_0), r)
        cross = inner_sum(adjoint_mm, v, y, k)
        s = herm(-0.5 * (mm(adjoint(v_0), h[k]) + cross))
        p = s + skew(inverse * t)  # orthonormal also where t over a small gap is noise
        d_k = herm(jnp.where(same, t - gap * s, jnp.zeros((), d.dtype)))
        v_k = mm(v_0, p) + outside(r)
        g, h = g + _later(of_a(v_k), k), h + _later(of_m(v_k), k)
        v, y, d = set_order(v, k, v_k), set_order(y, k, h[k]), set_order(d, k, d_k)
        return (v, y, d, g, h), None

    d_0 = (jnp.eye(w.shape[0], dtype=w.dtype) * w).astype(v_0.dtype)
    g, h = of_a(v_0), of_m(v_0)
    first = start(v_0, order), start(h[0], order), start(d_0, order), g, h
    (v, _, d, _, _), _ = lax.scan(one_order, first, jnp.arange(1, order + 1))
    return d, v


def solve_series(
    a: Linear,
    inverse: Linear | None,
    b: Value,
    begin: Array | None,
    bound: Array,
    spec: SolveSpec,
    order: int,
) -> Outcome:
    """The series of `x` in `A x = b`, one solve for each order; arguments of `solve_core`.

    `A[0] x[k] = b[k] - sum over j >= 1 of A[j] x[k - j]`.
    """
    a_0, inverse, begin, bound = primals((a, inverse, begin, bound))
    rhs = full(b, order)
    found = solve_core(a_0, inverse, rhs[0], begin, bound, spec)
    of_a = images_of(a, found.x[:, None], order)

    def solve(b: list[Array]) -> list[Array]:
        return [transposable_solve(a_0, inverse, b[0], bound, spec)]

    def apply(x: list[Array]) -> list[Array]:
        return [of_a(x[0][:, None])[:-1, :, 0]]

    # What is left for the orders from 1 on has the same equation, one order lower.
    rest = (rhs - of_a(found.x[:, None])[..., 0])[1:]
    (later,) = solve_orders(solve, apply, [rest])
    solution: Any = Series(jnp.concatenate([found.x[None], later]))
    return found._replace(x=solution)


def _later(images: Array, k: Array | int) -> Array:
    """The images of a coefficient of order k, at the orders to which they contribute."""
    padded = jnp.concatenate([images, jnp.zeros_like(images)])
    return jnp.roll(padded, k, axis=0)[: images.shape[0]]
