"""Krylov solves for rows of right-hand sides, each with a Hermitian operator of its own.

Each row is scaled to unit norm before the iteration, so that a tiny cotangent in single precision
does not underflow, and stops on its own; a zero row gives zero. A row that has not converged
becomes NaN.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import tolerances
from difflinalg._krylov.orthogonal import norms, scaled_norms

Rows = Callable[[Array], Array]


def _dot(x: Array, y: Array) -> Array:
    """The real inner products of rows, as a column."""
    return jnp.sum(jnp.real(jnp.conj(x) * y), axis=-1, keepdims=True)


def solve_rows(operator: Rows, b: Array, definite: bool, max_steps: int) -> Array:
    """Solve `operator(x) = b`: conjugate gradients if it is positive definite, else MINRES.

    Args:
        operator: linear and Hermitian on each row.
        b: shape `(k, n)`.
        definite: whether the operators are positive definite.
        max_steps: after which a row that has not converged becomes NaN.
    """
    size = scaled_norms(b)[:, None]
    scale = jnp.where(size > 0.0, size, 1.0)
    method = _conjugate_gradients if definite else _minres
    x, residual = method(operator, b / scale, max_steps)
    rtol = tolerances.krylov_solve_rtol(b.dtype)
    # The residual of a nearly singular equation is judged against its huge solution too.
    huge = norms(x)[:, None] * tolerances.multiplet_rtol(b.dtype) > 1.0
    failed = ((residual > 4.0 * rtol) | huge | ~jnp.isfinite(size)) & (size != 0.0)
    return jnp.where(failed, jnp.nan, x) * size


class _CG(NamedTuple):
    x: Array
    r: Array
    p: Array
    rho: Array
    step: Array


def _conjugate_gradients(operator: Rows, b: Array, max_steps: int) -> tuple[Array, Array]:
    """Solutions and norms of residuals, for rows of norm 1 or 0."""
    bound = tolerances.krylov_solve_rtol(b.dtype) ** 2
    huge = 1.0 / tolerances.multiplet_rtol(b.dtype)

    def unfinished(state: _CG) -> Array:
        return (state.rho > bound) & (norms(state.x)[:, None] < huge)

    def step(state: _CG) -> _CG:
        active = unfinished(state)
        image = operator(state.p)
        curvature = _dot(state.p, image)
        usable = active & (curvature > 0.0)
        alpha = jnp.where(usable, state.rho / jnp.where(usable, curvature, 1.0), 0.0)
        x, r = state.x + alpha * state.p, state.r - alpha * image
        rho = _dot(r, r)
        beta = jnp.where(active, rho / jnp.where(active, state.rho, 1.0), 0.0)
        return _CG(x, r, r + beta * state.p, rho, state.step + 1)

    first = _CG(jnp.zeros_like(b), b, b, _dot(b, b), jnp.zeros((), jnp.int32))
    last = lax.while_loop(
        lambda state: jnp.any(unfinished(state)) & (state.step < max_steps), step, first
    )
    return last.x, jnp.sqrt(last.rho)


class _Minres(NamedTuple):
    x: Array
    v: Array  # the current Lanczos vector
    v_old: Array
    d: Array  # the last two search directions
    d_old: Array
    beta: Array
    c: Array  # the last two rotations
    s: Array
    c_old: Array
    s_old: Array
    eta: Array  # what is left of the right-hand side, with sign
    step: Array


def _minres(operator: Rows, b: Array, max_steps: int) -> tuple[Array, Array]:
    """MINRES (Paige and Saunders 1975) for rows of norm 1 or 0, with Givens rotations."""
    bound = tolerances.krylov_solve_rtol(b.dtype)
    eps = tolerances.epsilon(b.dtype)
    one = norms(b)[:, None]

    def step(state: _Minres) -> _Minres:
        active = jnp.abs(state.eta) > bound
        image = operator(state.v)
        alpha = _dot(state.v, image)
        w = image - alpha * state.v - state.beta * state.v_old
        beta = norms(w)[:, None]
        safe = jnp.where(beta > eps, beta, 1.0)
        v = jnp.where(beta > eps, w / safe, 0.0)
        # Column (rho_3, rho_2, delta, beta) of the tridiagonal matrix under two old rotations.
        rho_3 = state.s_old * state.beta
        middle = state.c_old * state.beta
        rho_2 = state.c * middle + state.s * alpha
        delta = -state.s * middle + state.c * alpha
        rho_1 = jnp.sqrt(delta * delta + beta * beta)
        usable = rho_1 > eps
        rho_1 = jnp.where(usable, rho_1, 1.0)
        # A singular column leaves the residual as it is.
        c, s = jnp.where(usable, delta / rho_1, 0.0), jnp.where(usable, beta / rho_1, 1.0)
        d = (state.v - rho_2 * state.d - rho_3 * state.d_old) / rho_1
        x = state.x + jnp.where(active & usable, c * state.eta, 0.0) * d
        eta = jnp.where(active, -s * state.eta, state.eta)
        return _Minres(x, v, state.v, d, state.d, beta, c, s, state.c, state.s, eta, state.step + 1)

    zero, zeros = jnp.zeros_like(one), jnp.zeros_like(b)
    first = _Minres(
        zeros, b, zeros, zeros, zeros, zero, zero + 1, zero, zero + 1, zero, one,
        jnp.zeros((), jnp.int32),
    )  # fmt: skip
    last = lax.while_loop(
        lambda state: jnp.any(jnp.abs(state.eta) > bound) & (state.step < max_steps), step, first
    )
    return last.x, jnp.abs(last.eta)
