"""Krylov solves for rows of right-hand sides, each with a Hermitian operator of its own.

`conjugate_gradients` and `minres` iterate on rows of norm 1 or 0, each of which stops on its own.
`solve_rows` is the solve inside of the rules of eigensolvers: each row is scaled to unit norm
before, so that a tiny cotangent in single precision does not underflow; a zero row gives zero, and
a row that has not converged becomes NaN.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import tolerances
from difflinalg._krylov.orthogonal import norms, scaled_norms

Rows = Callable[[Array], Array]


class RowsOutcome(NamedTuple):
    """Solutions, the norms of their residuals that the iteration knows of (a column), steps."""

    x: Array
    residual: Array
    steps: Array


def _dot(x: Array, y: Array) -> Array:
    """The real inner products of rows, as a column."""
    return jnp.sum(jnp.real(jnp.conj(x) * y), axis=-1, keepdims=True)


def solve_rows(operator: Rows, b: Array, definite: bool, max_steps: int) -> Array:
    """Solve `operator(x) = b`: conjugate gradients if it is positive definite, else MINRES.

    Args:
        operator: linear and Hermitian on each row, of norm about 1.
        b: shape `(k, n)`.
        definite: whether the operators are positive definite.
        max_steps: after which a row that has not converged becomes NaN.
    """
    size = scaled_norms(b)[:, None]
    scale = jnp.where(size > 0.0, size, 1.0)
    rtol = tolerances.krylov_solve_rtol(b.dtype)
    huge = 1.0 / tolerances.multiplet_rtol(b.dtype)
    if definite:
        found = conjugate_gradients(operator, None, b / scale, None, rtol, max_steps, huge)
    else:
        eps = tolerances.epsilon(b.dtype)
        found = minres(operator, None, b / scale, None, rtol, max_steps, eps)
    # The residual of a nearly singular equation is judged against its huge solution too.
    singular = norms(found.x)[:, None] > huge
    failed = ((found.residual > 4.0 * rtol) | singular | ~jnp.isfinite(size)) & (size != 0.0)
    return jnp.where(failed, jnp.nan, found.x) * size


class _CG(NamedTuple):
    x: Array
    r: Array
    p: Array
    rho: Array
    size: Array  # norms of r
    step: Array


def conjugate_gradients(
    operator: Rows,
    precondition: Rows | None,
    b: Array,
    x0: Array | None,
    bound: Array | float,
    max_steps: int,
    huge: float | None = None,
) -> RowsOutcome:
    """Preconditioned conjugate gradients (Hestenes and Stiefel 1952).

    Args:
        operator: Hermitian and definite on each row.
        precondition: the same, an approximate inverse; None for the identity.
        b: rows of norm 1 or 0.
        x0: where to start; None for zero.
        bound: on the norms of the residuals.
        max_steps: largest number of steps.
        huge: give up on a row whose solution is longer, or that meets a direction of negative
            curvature; None to go on.
    """
    inverse = (lambda r: r) if precondition is None else precondition

    def unfinished(state: _CG) -> Array:
        going = state.size > bound
        return going if huge is None else going & (norms(state.x)[:, None] < huge)

    def step(state: _CG) -> _CG:
        active = unfinished(state)
        image = operator(state.p)
        curvature = _dot(state.p, image)
        usable = active & ((curvature != 0.0) if huge is None else (curvature > 0.0))
        alpha = jnp.where(usable, state.rho / jnp.where(usable, curvature, 1.0), 0.0)
        x, r = state.x + alpha * state.p, state.r - alpha * image
        z = inverse(r)
        rho = _dot(r, z)
        usable = active & (state.rho != 0.0)
        beta = jnp.where(usable, rho / jnp.where(usable, state.rho, 1.0), 0.0)
        return _CG(x, r, z + beta * state.p, rho, norms(r)[:, None], state.step + 1)

    r = b if x0 is None else b - operator(x0)
    z = inverse(r)
    x = jnp.zeros_like(b) if x0 is None else x0
    first = _CG(x, r, z, _dot(r, z), norms(r)[:, None], jnp.zeros((), jnp.int32))
    last = lax.while_loop(
        lambda state: jnp.any(unfinished(state)) & (state.step < max_steps), step, first
    )
    return RowsOutcome(last.x, last.size, last.step)


class _Minres(NamedTuple):
    x: Array
    q: Array  # the current Lanczos vector
    q_old: Array
    v: Any  # the preconditioned one, None where it is the same
    d: Array  # the last two search directions
    d_old: Array
    beta: Array
    c: Array  # the last two rotations
    s: Array
    c_old: Array
    s_old: Array
    eta: Array  # what is left of the right-hand side, with sign, in the norm of the preconditioner
    step: Array


def minres(
    operator: Rows,
    precondition: Rows | None,
    b: Array,
    x0: Array | None,
    bound: Array | float,
    max_steps: int,
    floor: float,
) -> RowsOutcome:
    """MINRES (Paige and Saunders 1975, section 6), with Givens rotations.

    Args:
        operator: Hermitian on each row.
        precondition: Hermitian positive definite, an approximate inverse; None for the identity.
        b: rows of norm 1 or 0.
        x0: where to start; None for zero.
        bound: on the norms of the residuals.
        max_steps: largest number of steps.
        floor: shorter than this a vector or a pivot counts as zero.
    """

    def lengths(q: Array, z: Array) -> Array:
        return jnp.sqrt(jnp.maximum(_dot(q, z), 0.0))

    def inverse_of(beta: Array) -> Array:
        return jnp.where(beta > floor, 1.0 / jnp.where(beta > floor, beta, 1.0), 0.0)

    def step(state: _Minres) -> _Minres:
        active = jnp.abs(state.eta) > stop
        v = state.q if state.v is None else state.v
        image = operator(v)
        alpha = _dot(v, image)
        w = image - alpha * state.q - state.beta * state.q_old
        z = w if precondition is None else precondition(w)
        beta = lengths(w, z)
        unit = inverse_of(beta)
        # Column (rho_3, rho_2, delta, beta) of the tridiagonal matrix under two old rotations.
        rho_3 = state.s_old * state.beta
        middle = state.c_old * state.beta
        rho_2 = state.c * middle + state.s * alpha
        delta = -state.s * middle + state.c * alpha
        rho_1 = jnp.hypot(delta, beta)
        usable = rho_1 > floor
        rho_1 = jnp.where(usable, rho_1, 1.0)
        # A singular column leaves the residual as it is.
        c, s = jnp.where(usable, delta / rho_1, 0.0), jnp.where(usable, beta / rho_1, 1.0)
        d = (v - rho_2 * state.d - rho_3 * state.d_old) / rho_1
        x = state.x + jnp.where(active & usable, c * state.eta, 0.0) * d
        eta = jnp.where(active, -s * state.eta, state.eta)
        v = None if precondition is None else z * unit
        return _Minres(
            x, w * unit, state.q, v, d, state.d, beta, c, s, state.c, state.s, eta, state.step + 1
        )

    r = b if x0 is None else b - operator(x0)
    z = r if precondition is None else precondition(r)
    beta = lengths(r, z)
    size = norms(r)[:, None]
    # `eta` is a norm of the preconditioner, `bound` one of the residual.
    ratio = jnp.where(size > 0.0, beta / jnp.where(size > 0.0, size, 1.0), 1.0)
    stop = bound * ratio
    zero, zeros = jnp.zeros_like(beta), jnp.zeros_like(b)
    unit = inverse_of(beta)
    v = None if precondition is None else z * unit
    x = zeros if x0 is None else x0
    first = _Minres(
        x, r * unit, zeros, v, zeros, zeros, zero, zero + 1, zero, zero + 1, zero, beta,
        jnp.zeros((), jnp.int32),
    )  # fmt: skip
    last = lax.while_loop(
        lambda state: jnp.any(jnp.abs(state.eta) > stop) & (state.step < max_steps), step, first
    )
    return RowsOutcome(last.x, jnp.abs(last.eta) / jnp.where(ratio > 0.0, ratio, 1.0), last.step)
