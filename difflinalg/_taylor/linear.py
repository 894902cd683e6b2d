"""Rules of linear solves: order by order, with the operator of order 0.

From `A(t) x(t) = b(t)`,

    A_0 x_k = b_k - sum_{j=1..k} A_j x_{k-j}

Once `x_k` is known, `A(t) x_k` is subtracted from all later right-hand sides, so that an order
costs one solve and one product with each coefficient of A.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import JaxprEqn

from difflinalg._core.algebra import mm
from difflinalg._taylor.interpreter import evaluate, interpret_closed
from difflinalg._taylor.rules import rule
from difflinalg._taylor.series import Series, Value, full, is_series, primals

Vectors = list[Array]


def solve_orders(
    solve: Callable[[Vectors], Vectors], apply: Callable[[Vectors], Vectors], b: Vectors
) -> Vectors:
    """The coefficients of `x` in `A(t) x = b`, for lists of arrays.

    Args:
        solve: `A_0^-1` of a vector; what it returns behind the solution is stacked as well.
        apply: the coefficients of `A(t) x` for a vector `x`, shape `(K + 1, ...)` each.
        b: coefficients, shape `(K + 1, ...)` each.
    """

    def step(rest: Vectors, _: None) -> tuple[Vectors, Vectors]:
        x = solve([r[0] for r in rest])
        rest = [r - ax for r, ax in zip(rest, apply(x[: len(b)]), strict=True)]
        return [jnp.concatenate([r[1:], jnp.zeros_like(r[:1])]) for r in rest], x

    return lax.scan(step, b, None, length=b[0].shape[0])[1]


@rule("custom_linear_solve", "linear_solve")
def _custom_linear_solve(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    params = equation.params
    matvec, count = params["jaxprs"].matvec, sum(params["const_lengths"])
    consts = inputs[:count]
    moving, fixed = consts[: params["const_lengths"].matvec], primals(consts)
    b = [full(x, order) for x in inputs[count:]]

    solve = partial(_evaluate_for, equation, fixed)

    def apply(x: Vectors) -> Vectors:
        return [full(y, order) for y in interpret_closed(matvec, [*moving, *x], order)]

    if any(is_series(x) for x in moving):
        outputs = solve_orders(solve, apply, b)
    else:
        outputs = jax.vmap(lambda *b: solve(list(b)))(*b)
    # What the solver returns beside the solution (a number of steps) is that of order 0.
    return [Series(x) if i < len(b) else x[0] for i, x in enumerate(outputs)]


@rule("triangular_solve")
def _triangular_solve(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    a, b = inputs
    params = equation.params
    if not isinstance(a, Series):
        columns = full(b, order)
        return [Series(jax.vmap(lambda b: evaluate(equation, [a, b])[0])(columns))]
    kept = jnp.tril if params["lower"] else jnp.triu
    unit = params["unit_diagonal"]
    moved = kept(a.coefficients, (-1 if params["lower"] else 1) if unit else 0)
    if unit:
        moved = moved.at[0].add(jnp.eye(moved.shape[-1], dtype=moved.dtype))
    moved = jnp.swapaxes(moved, -1, -2) if params["transpose_a"] else moved
    moved = jnp.conj(moved) if params["conjugate_a"] else moved

    def apply(x: Vectors) -> Vectors:
        return [mm(moved, x[0]) if params["left_side"] else mm(x[0], moved)]

    first = a.coefficients[0]
    solve = partial(_evaluate_for, equation, [first])
    return [Series(solve_orders(solve, apply, [full(b, order)])[0])]


@rule("tridiagonal_solve")
def _tridiagonal_solve(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    *bands, b = inputs
    fixed = primals(bands)
    if not any(is_series(x) for x in bands):
        columns = full(b, order)
        return [Series(jax.vmap(lambda b: evaluate(equation, [*fixed, b])[0])(columns))]
    low, middle, high = (full(x, order)[..., None] for x in bands)

    def apply(x: Vectors) -> Vectors:
        rows = x[0]
        zero = jnp.zeros_like(rows[..., :1, :])
        above = jnp.concatenate([zero, rows[..., :-1, :]], axis=-2)
        below = jnp.concatenate([rows[..., 1:, :], zero], axis=-2)
        return [low * above + middle * rows + high * below]

    solve = partial(_evaluate_for, equation, fixed)
    return [Series(solve_orders(solve, apply, [full(b, order)])[0])]


def _evaluate_for(equation: JaxprEqn, fixed: Vectors, b: Vectors) -> Vectors:
    return evaluate(equation, [*fixed, *b])
