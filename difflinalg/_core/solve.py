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


def hermitian_solve(
    matvec: Operator,
    b: Array,
    preconditioner: Operator,
    max_steps: int,
    *,
    constant: Operator | None = None,
    axis: int = -2,
) -> Array:
    """Solve `matvec(x) = b` vector by vector, differentiable to any order through `matvec`.

    Args:
        matvec: linear, acts on the vectors of a block one by one, each time with a Hermitian
            positive definite matrix of norm about 1 that may differ between vectors.
        b: the right-hand sides, a block of vectors; the solution is linear in them.
        preconditioner: an approximate inverse of the same kind; it is not differentiated.
        max_steps: after which a vector that has not converged becomes NaN.
        constant: computes the same as `matvec`, faster; it is not differentiated.
        axis: along which the vectors run: -2 for columns, -1 for rows.
    """

    def solve(operator: Operator, rhs: Array) -> Array:
        return _block_cg(constant or operator, rhs, preconditioner, max_steps, axis)

    def transpose_solve(_: Operator, rhs: Array) -> Array:
        return jnp.conj(
            _block_cg(constant or matvec, jnp.conj(rhs), preconditioner, max_steps, axis)
        )

    return lax.custom_linear_solve(matvec, b, solve, transpose_solve)


def _block_cg(
    matvec: Operator, b: Array, preconditioner: Operator, max_steps: int, axis: int
) -> Array:
    """Preconditioned conjugate gradients to a small normwise backward error in every vector.

    Right-hand sides are scaled to unit norm, so that tiny ones do not underflow.
    """

    def dot(x: Array, y: Array) -> Array:
        """The inner products of vectors, real because the operators are Hermitian."""
        return jnp.sum(jnp.real(jnp.conj(x) * y), axis=axis, keepdims=True)

    size = jnp.max(jnp.abs(b), axis=axis, keepdims=True)
    size = jnp.where(size > 0.0, size, 1.0)
    scaled = b / size
    norm_b = jnp.sqrt(dot(scaled, scaled))
    rtol = tolerances.solve_rtol(b.dtype)

    def unfinished(state: _State) -> Array:
        allowed = rtol * (norm_b + jnp.sqrt(dot(state.x, state.x)))
        return jnp.sqrt(dot(state.r, state.r)) > allowed

    def step(state: _State) -> _State:
        active = unfinished(state)
        image = matvec(state.p)
        curvature = dot(state.p, image)
        alpha = jnp.where(active, state.rho / jnp.where(active, curvature, 1.0), 0.0)
        x, r = state.x + alpha * state.p, state.r - alpha * image
        z = preconditioner(r)
        rho = dot(r, z)
        beta = jnp.where(active, rho / jnp.where(active, state.rho, 1.0), 0.0)
        return _State(x, r, z + beta * state.p, rho, state.step + 1)

    z = preconditioner(scaled)
    first = _State(jnp.zeros_like(scaled), scaled, z, dot(scaled, z), jnp.zeros((), jnp.int32))
    last = lax.while_loop(
        lambda state: jnp.any(unfinished(state)) & (state.step < max_steps), step, first
    )
    return jnp.where(unfinished(last), jnp.nan, last.x) * size
