"""Krylov iterations for one right-hand side of norm 1: CG, BiCGStab, GMRES and MINRES.

Each takes the operator, the preconditioner (an approximate inverse), the right-hand side, the
starting vector and a bound on the norm of the residual.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import tolerances
from difflinalg._core.algebra import HIGHEST
from difflinalg._krylov.linear_map import Map, Outcome
from difflinalg._krylov.orthogonal import put


def _vdot(x: Array, y: Array) -> Array:
    return jnp.vdot(x, y, precision=HIGHEST)


def _safe(x: Array) -> Array:
    return jnp.where(x == 0.0, jnp.ones_like(x), x)


class _CG(NamedTuple):
    x: Array
    r: Array
    p: Array
    rho: Array
    step: Array


def conjugate_gradients(
    apply: Map, precondition: Map, b: Array, x0: Array, bound: Array, max_steps: int
) -> Outcome:
    """Preconditioned conjugate gradients (Hestenes and Stiefel 1952)."""

    def step(state: _CG) -> _CG:
        image = apply(state.p)
        alpha = state.rho / _safe(_vdot(state.p, image))
        x, r = state.x + alpha * state.p, state.r - alpha * image
        z = precondition(r)
        rho = _vdot(r, z)
        return _CG(x, r, z + (rho / _safe(state.rho)) * state.p, rho, state.step + 1)

    r = b - apply(x0)
    z = precondition(r)
    first = _CG(x0, r, z, _vdot(r, z), jnp.zeros((), jnp.int32))
    last = lax.while_loop(
        lambda s: (jnp.linalg.norm(s.r) > bound) & (s.step < max_steps), step, first
    )
    return Outcome(last.x, last.step)


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
    apply: Map, precondition: Map, b: Array, x0: Array, bound: Array, max_steps: int
) -> Outcome:
    """Right-preconditioned BiCGStab (van der Vorst 1992)."""
    r0 = b - apply(x0)

    def step(s: _BiCG) -> _BiCG:
        rho = _vdot(r0, s.r)
        beta = rho / _safe(s.rho) * s.alpha / _safe(s.omega)
        p = s.r + beta * (s.p - s.omega * s.v)
        p_hat = precondition(p)
        v = apply(p_hat)
        alpha = rho / _safe(_vdot(r0, v))
        half = s.r - alpha * v
        half_hat = precondition(half)
        t = apply(half_hat)
        omega = _vdot(t, half) / _safe(_vdot(t, t))
        x = s.x + alpha * p_hat + omega * half_hat
        return _BiCG(x, half - omega * t, p, v, rho, alpha, omega, s.step + 1)

    one, zeros = jnp.ones((), b.dtype), jnp.zeros_like(b)
    first = _BiCG(x0, r0, zeros, zeros, one, one, one, jnp.zeros((), jnp.int32))
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
    apply: Map, precondition: Map, b: Array, x0: Array, bound: Array, max_steps: int, restart: int
) -> Outcome:
    """Right-preconditioned, restarted GMRES (Saad and Schultz 1986); `max_steps` restarts."""

    def cycle(state: _Cycle) -> _Cycle:
        r = b - apply(state.x)
        size = jnp.linalg.norm(r)
        basis = jnp.zeros((restart + 1, b.shape[0]), b.dtype).at[0].set(r / _safe(size))
        hessenberg = jnp.zeros((restart, restart + 1), b.dtype)

        def arnoldi(j, carry):
            basis, hessenberg = carry
            w = apply(precondition(basis[j]))[None]
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
        x = state.x + precondition(jnp.matmul(y, basis[:-1], precision=HIGHEST))
        residual = jnp.linalg.norm(b - apply(x))
        better = residual < state.residual
        x = jnp.where(better, x, state.x)
        return _Cycle(x, jnp.minimum(residual, state.residual), state.step + 1, ~better)

    start = jnp.linalg.norm(b - apply(x0))
    first = _Cycle(x0, start, jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    last = lax.while_loop(
        lambda s: (s.residual > bound) & (s.step < max_steps) & ~s.stalled, cycle, first
    )
    return Outcome(last.x, last.step)


class _Minres(NamedTuple):
    x: Array
    v: Array  # z_k = M q_k unnormalised Lanczos pair
    q: Array
    q_old: Array
    d: Array
    d_old: Array
    beta: Array
    c: Array
    s: Array
    c_old: Array
    s_old: Array
    eta: Array
    step: Array


def minres_iteration(
    apply: Map, precondition: Map, b: Array, x0: Array, bound: Array, max_steps: int
) -> Outcome:
    """MINRES (Paige and Saunders 1975, section 6), preconditioner Hermitian positive definite."""
    real = jnp.finfo(b.dtype).dtype
    tiny = jnp.finfo(real).tiny

    def length(q: Array, z: Array) -> Array:
        return jnp.sqrt(jnp.maximum(jnp.real(_vdot(q, z)), 0.0))

    def step(s: _Minres) -> _Minres:
        image = apply(s.v)
        alpha = jnp.real(_vdot(s.v, image))
        w = image - alpha * s.q - s.beta * s.q_old
        z = precondition(w)
        beta = length(w, z)
        inverse = jnp.where(beta > tiny, 1.0 / jnp.where(beta > tiny, beta, 1.0), 0.0)
        rho_3, middle = s.s_old * s.beta, s.c_old * s.beta
        rho_2 = s.c * middle + s.s * alpha
        delta = -s.s * middle + s.c * alpha
        rho_1 = jnp.hypot(delta, beta)
        usable = rho_1 > tiny
        rho_1 = jnp.where(usable, rho_1, 1.0)
        # A singular column leaves the residual as it is.
        c, sine = jnp.where(usable, delta / rho_1, 0.0), jnp.where(usable, beta / rho_1, 1.0)
        d = (s.v - rho_2 * s.d - rho_3 * s.d_old) / rho_1
        x = s.x + jnp.where(usable, c * s.eta, 0.0) * d
        return _Minres(
            x, z * inverse, w * inverse, s.q, d, s.d, beta, c, sine, s.c, s.s,
            -sine * s.eta, s.step + 1,
        )  # fmt: skip

    r = b - apply(x0)
    z = precondition(r)
    beta = length(r, z)
    unit = 1.0 / jnp.where(beta > tiny, beta, 1.0)
    zeros, zero = jnp.zeros_like(b), jnp.zeros((), real)
    first = _Minres(
        x0, z * unit, r * unit, zeros, zeros, zeros, zero, zero + 1, zero, zero + 1, zero, beta,
        jnp.zeros((), jnp.int32),
    )  # fmt: skip
    # `eta` is a norm of the preconditioner; only a true residual ends the iteration.
    stop = bound * jnp.where(beta > 0.0, beta / jnp.maximum(jnp.linalg.norm(r), tiny), 1.0)
    last = lax.while_loop(lambda s: (jnp.abs(s.eta) > stop) & (s.step < max_steps), step, first)
    return Outcome(last.x, last.step)
