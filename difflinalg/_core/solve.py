"""Conjugate gradients for a block of right-hand sides, each with an operator of its own."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import tolerances

Operator = Callable[[Array], Array]


class _State(NamedTuple):
    x: Array
    r: Array
    p: Array
    rho: Array
    step: Array


def hermitian_solve(matvec: Operator, b: Array, preconditioner: Operator, max_steps: int) -> Array:
    """Solve `matvec(x) = b` column by column, differentiable to any order through `matvec`.

    Args:
        matvec: linear, acts on the columns of an `(m, k)` array one by one, each time with a
            Hermitian positive definite matrix of norm about 1 that may differ between columns.
        b: the right-hand sides, shape `(m, k)`; the solution is linear in them.
        preconditioner: an approximate inverse of the same kind; it is not differentiated.
        max_steps: after which a column that has not converged becomes NaN.
    """

    def solve(operator: Operator, rhs: Array) -> Array:
        return _block_cg(operator, rhs, preconditioner, max_steps)

    def transpose_solve(_: Operator, rhs: Array) -> Array:
        return jnp.conj(_block_cg(matvec, jnp.conj(rhs), preconditioner, max_steps))

    return lax.custom_linear_solve(matvec, b, solve, transpose_solve)


def _dot(x: Array, y: Array) -> Array:
    """The inner products of columns, real because the operators are Hermitian."""
    return jnp.sum(jnp.real(jnp.conj(x) * y), axis=-2)


def _block_cg(matvec: Operator, b: Array, preconditioner: Operator, max_steps: int) -> Array:
    """Preconditioned conjugate gradients to a small normwise backward error in every column.

    Right-hand sides are scaled to unit norm, so that tiny ones do not underflow.
    """
    size = jnp.max(jnp.abs(b), axis=-2, keepdims=True)
    size = jnp.where(size > 0.0, size, 1.0)
    scaled = b / size
    norm_b = jnp.sqrt(_dot(scaled, scaled))
    rtol = tolerances.solve_rtol(b.dtype)

    def unfinished(state: _State) -> Array:
        allowed = rtol * (norm_b + jnp.sqrt(_dot(state.x, state.x)))
        return jnp.sqrt(_dot(state.r, state.r)) > allowed

    def step(state: _State) -> _State:
        active = unfinished(state)
        image = matvec(state.p)
        curvature = _dot(state.p, image)
        alpha = jnp.where(active, state.rho / jnp.where(active, curvature, 1.0), 0.0)
        x, r = state.x + alpha * state.p, state.r - alpha * image
        z = preconditioner(r)
        rho = _dot(r, z)
        beta = jnp.where(active, rho / jnp.where(active, state.rho, 1.0), 0.0)
        return _State(x, r, z + beta * state.p, rho, state.step + 1)

    z = preconditioner(scaled)
    first = _State(jnp.zeros_like(scaled), scaled, z, _dot(scaled, z), jnp.zeros((), jnp.int32))
    last = lax.while_loop(
        lambda state: jnp.any(unfinished(state)) & (state.step < max_steps), step, first
    )
    return jnp.where(unfinished(last), jnp.nan, last.x) * size
