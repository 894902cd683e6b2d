"""Krylov iterations for one right-hand side of norm 1: CG, BiCGStab, GMRES and MINRES.

Each takes the operator, the preconditioner (an approximate inverse, or None), the right-hand side,
the starting vector (None for zero) and a bound on the norm of the residual.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import tolerances
from difflinalg._core.algebra import HIGHEST
from difflinalg._krylov import block_solve
from difflinalg._krylov.linear_map import Map, Outcome
from difflinalg._krylov.orthogonal import put


def _vdot(x: Array, y: Array) -> Array:
    return jnp.vdot(x, y, precision=HIGHEST)


def _safe(x: Array) -> Array:
    return jnp.where(x == 0.0, jnp.ones_like(x), x)


def _as_rows(f: Map) -> Map:
    return lambda x: f(x[0])[None]


def _hermitian(
    iteration, apply: Map, precondition: Map | None, b: Array, x0: Array | None, *rest
) -> Outcome:
    """An iteration on rows, with one row."""
    inverse = None if precondition is None else _as_rows(precondition)
    first = None if x0 is None else x0[None]
    found = iteration(_as_rows(apply), inverse, b[None], first, *rest)
    return Outcome(found.x[0], found.steps)


def conjugate_gradients(
    apply: Map, precondition: Map | None, b: Array, x0: Array | None, bound: Array, max_steps: int
) -> Outcome:
    """Preconditioned conjugate gradients (Hestenes and Stiefel 1952)."""
    method = block_solve.conjugate_gradients
    return _hermitian(method, apply, precondition, b, x0, bound, max_steps)


def minres_iteration(
    apply: Map, precondition: Map | None, b: Array, x0: Array | None, bound: Array, max_steps: int
) -> Outcome:
    """MINRES (Paige and Saunders 1975, section 6), preconditioner Hermitian positive definite."""
    tiny = float(jnp.finfo(b.dtype).tiny)
    return _hermitian(block_solve.minres, apply, precondition, b, x0, bound, max_steps, tiny)


def _residual(apply: Map, b: Array, x0: Array | None) -> Array:
    return b if x0 is None else b - apply(x0)


class _BiCG(NamedTuple):
    x: Array
    r: Array
    p: Array
    v: Array
    rho: Array
    alpha: Array
    omega: Array
    step: Array


def bicgstab_iteration(
    apply: Map, precondition: Map | None, b: Array, x0: Array | None, bound: Array, max_steps: int
) -> Outcome:
    """Right-preconditioned BiCGStab (van der Vorst 1992)."""
    inverse = (lambda x: x) if precondition is None else precondition
    r0 = _residual(apply, b, x0)

    def step(s: _BiCG) -> _BiCG:
        rho = _vdot(r0, s.r)
        beta = rho / _safe(s.rho) * s.alpha / _safe(s.omega)
        p = s.r + beta * (s.p - s.omega * s.v)
        p_hat = inverse(p)
        v = apply(p_hat)
        alpha = rho / _safe(_vdot(r0, v))
        half = s.r - alpha * v
        half_hat = inverse(half)
        t = apply(half_hat)
        omega = _vdot(t, half) / _safe(_vdot(t, t))
        x = s.x + alpha * p_hat + omega * half_hat
        return _BiCG(x, half - omega * t, p, v, rho, alpha, omega, s.step + 1)

    one, zeros = jnp.ones((), b.dtype), jnp.zeros_like(b)
    x = zeros if x0 is None else x0
    first = _BiCG(x, r0, zeros, zeros, one, one, one, jnp.zeros((), jnp.int32))
    last = lax.while_loop(
        lambda s: (jnp.linalg.norm(s.r) > bound) & (s.step < max_steps), step, first
    )
    return Outcome(last.x, last.step)


class _Cycle(NamedTuple):
    x: Array
    residual: Array
    step: Array
    stalled: Array


def gmres_iteration(
    apply: Map,
    precondition: Map | None,
    b: Array,
    x0: Array | None,
    bound: Array,
    max_steps: int,
    restart: int,
) -> Outcome:
    """Right-preconditioned, restarted GMRES (Saad and Schultz 1986); `max_steps` restarts."""
    inverse = (lambda x: x) if precondition is None else precondition

    def cycle(state: _Cycle) -> _Cycle:
        r = b - apply(state.x)
        size = jnp.linalg.norm(r)
        basis = jnp.zeros((restart + 1, b.shape[0]), b.dtype).at[0].set(r / _safe(size))
        hessenberg = jnp.zeros((restart, restart + 1), b.dtype)

        def arnoldi(j, carry):
            basis, hessenberg = carry
            w = apply(inverse(basis[j]))[None]
            scale = jnp.linalg.norm(w)
            h, w = jnp.zeros((1, restart + 1), b.dtype), w
            for _ in range(2):
                overlap = jnp.conj(jnp.matmul(basis, jnp.conj(w[0]), precision=HIGHEST))
                w = w - jnp.matmul(overlap, basis, precision=HIGHEST)
                h = h + overlap
            length = jnp.linalg.norm(w)
            ends = length <= tolerances.breakdown_rtol(b.dtype) * scale
            row = jnp.where(ends, 0.0, w / _safe(length))
            hessenberg = put(hessenberg, h, j)
            hessenberg = hessenberg.at[j, j + 1].set(jnp.where(ends, 0.0, length))
            return put(basis, row, j + 1), hessenberg

        basis, hessenberg = lax.fori_loop(0, restart, arnoldi, (basis, hessenberg))
        target = jnp.zeros(restart + 1, b.dtype).at[0].set(size)
        y = jnp.linalg.lstsq(hessenberg.T, target)[0]
        x = state.x + inverse(jnp.matmul(y, basis[:-1], precision=HIGHEST))
        residual = jnp.linalg.norm(b - apply(x))
        better = residual < state.residual
        x = jnp.where(better, x, state.x)
        return _Cycle(x, jnp.minimum(residual, state.residual), state.step + 1, ~better)

    start = jnp.linalg.norm(_residual(apply, b, x0))
    x = jnp.zeros_like(b) if x0 is None else x0
    first = _Cycle(x, start, jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    last = lax.while_loop(
        lambda s: (s.residual > bound) & (s.step < max_steps) & ~s.stalled, cycle, first
    )
    return Outcome(last.x, last.step)
