"""The locally optimal block preconditioned conjugate gradient iteration (Knyazev 2001).

Each step takes the Rayleigh-Ritz pairs of the space of the current vectors X, of their
preconditioned residuals W and of the last directions P. The three blocks are kept orthonormal in
the inner product of the metric (Hetmaniuk and Lehoucq 2006, section 4), so that no small matrix is
ill conditioned; directions that are lost to rounding become zero rows, which decouple.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import tolerances
from difflinalg._core.algebra import herm
from difflinalg._krylov.orthogonal import Metric, combine, inner, random_rows, scaled_norms

Rows = Callable[[Array], Array]


@dataclass(frozen=True)
class BlockPlan:
    """Static options of a run."""

    k: int
    largest: bool
    max_steps: int
    tol: float  # bound on a residual, absolute
    rtol: float  # the same, relative to the value
    history: bool


class BlockPairs(NamedTuple):
    """What a run found, the leading pair first; floating, so that an operation can return it."""

    w: Array  # (k,)
    v: Array  # (k, n)
    residuals: Array  # (k,)
    converged: Array  # (k,), 1 or 0
    extreme: Array  # (), largest size of a Ritz value
    defect: Array  # (), departure from a Hermitian operator, relative
    steps: Array  # ()
    values_history: Array  # (max_steps + 1, k), or (0, k)
    residual_history: Array


class _State(NamedTuple):
    x: Array  # (k, n)
    p: Array  # (k, n)
    residual: Array  # (k, n), rows A x - w B x
    w: Array  # (k,)
    size: Array  # (k,), norms of residuals
    allowed: Array  # (k,)
    scale: Array  # (), sum of norms of A and w B
    extreme: Array
    defect: Array
    step: Array
    values_history: Array
    residual_history: Array


def run(
    apply: Rows, metric: Metric, precondition: Rows | None, x: Array, y: Array, plan: BlockPlan
) -> BlockPairs:
    """Find the largest or smallest pairs of `apply` on rows, starting from the rows `x`.

    Args:
        apply: Hermitian.
        metric: of the inner product, Hermitian positive definite.
        precondition: an approximate inverse, for residuals.
        x: shape `(k, n)`.
        y: rows that vectors are kept orthogonal to, orthonormal in the metric, shape `(c, n)`.
        plan: static options.
    """
    real = jnp.finfo(x.dtype).dtype
    x = _orthonormal(x, y, metric)
    fresh = random_rows(jax.random.key(2), plan.k, x)
    lost = scaled_norms(x)[:, None] == 0.0
    x = jnp.where(lost, _orthonormal(fresh, jnp.concatenate([y, x]), metric), x)
    zero, nothing = jnp.zeros((), real), jnp.zeros((plan.k,), real)
    empty = jnp.full((plan.max_steps + 1 if plan.history else 0, plan.k), jnp.nan, real)
    zeros = jnp.zeros_like(x)
    first = _State(
        x, zeros, zeros, nothing, nothing, nothing, zero, zero, zero,
        jnp.full((), -1, jnp.int32), empty, empty,
    )  # fmt: skip
    first = _step(first, apply, metric, precondition, y, plan)

    def unfinished(state: _State) -> Array:
        going = jnp.any(state.size > state.allowed) & (state.step < plan.max_steps)
        return going & jnp.isfinite(state.scale)

    last = lax.while_loop(
        unfinished, lambda state: _step(state, apply, metric, precondition, y, plan), first
    )
    return BlockPairs(
        last.w,
        last.x,
        last.size,
        (last.size <= last.allowed).astype(real),
        last.extreme,
        last.defect,
        last.step.astype(real),
        last.values_history,
        last.residual_history,
    )


def _step(
    state: _State, apply: Rows, metric: Metric, precondition: Rows | None, y: Array, plan: BlockPlan
) -> _State:
    """One Rayleigh-Ritz step; the first, without W and P, only of the vectors to start from."""
    k, x = plan.k, state.x
    w = state.residual / jnp.where(state.size > 0.0, state.size, 1.0)[:, None]
    w = w if precondition is None else precondition(w)
    p = _orthonormal(state.p, jnp.concatenate([y, x]), metric)
    w = _orthonormal(w, jnp.concatenate([y, x, p]), metric)
    s = jnp.concatenate([x, p, w])
    a_s = apply(s)
    b_s = s if metric is None else metric(s)
    h = inner(s, a_s)
    live = jnp.real(jnp.sum(jnp.conj(s) * b_s, axis=1)) > 0.5
    theta, c = _leading(herm(h), live, plan.largest)
    values, c = theta[:k], c[:, :k]
    x, a_x, b_x = (combine(c.T, rows) for rows in (s, a_s, b_s))
    p = combine(c[k:].T, s[k:])
    residual = a_x - values[:, None] * b_x
    size = scaled_norms(residual)
    extreme = jnp.maximum(state.extreme, jnp.max(jnp.where(live, jnp.abs(theta), 0.0)))
    length = jnp.where(live, scaled_norms(s), jnp.inf)
    scale = jnp.max(scaled_norms(a_s) / length) + extreme * jnp.max(scaled_norms(b_s) / length)
    scale = jnp.maximum(state.scale, scale)
    departure = jnp.max(jnp.abs(h - jnp.conj(h.T))) / jnp.where(extreme > 0.0, extreme, 1.0)
    attainable = tolerances.block_residual_rtol(size.dtype) * scale * scaled_norms(x)
    wanted = jnp.maximum(plan.tol, plan.rtol * jnp.abs(values))
    step, histories = state.step + 1, (state.values_history, state.residual_history)
    if plan.history:
        at = (state.values_history.at[step], state.residual_history.at[step])
        histories = (at[0].set(values), at[1].set(size))
    return _State(
        x, p, residual, values, size, jnp.maximum(wanted, attainable), scale, extreme,
        jnp.maximum(state.defect, departure), step, *histories,
    )  # fmt: skip


def _leading(h: Array, live: Array, largest: bool) -> tuple[Array, Array]:
    """The Ritz values, wanted ones first, and their coefficients; zero rows come last."""
    sign = -1.0 if largest else 1.0
    size = jnp.max(jnp.abs(h))
    filler = 4.0 * h.shape[0] * jnp.where(size > 0.0, size, 1.0)
    theta, c = jnp.linalg.eigh(sign * h + jnp.diag(jnp.where(live, 0.0, filler)).astype(h.dtype))
    return sign * jnp.where(theta < 0.5 * filler, theta, 0.0), c


def _orthonormal(rows: Array, basis: Array, metric: Metric) -> Array:
    """Rows orthonormalised against a basis and among themselves, zero where they depend on them.

    Projection and the inverse square root of the Gram matrix (Stathopoulos and Wu 2002), twice.
    """
    eps = tolerances.breakdown_rtol(rows.dtype)
    for _ in range(2):
        rows = _unit(rows)
        image = rows if metric is None else metric(rows)
        rows = rows - combine(inner(basis, image).T, basis)
        rows = jnp.where(scaled_norms(rows)[:, None] > eps, rows, 0.0)
        rows = _unit(rows)
        gram = inner(rows, rows if metric is None else metric(rows))
        length = jnp.sqrt(jnp.maximum(jnp.real(jnp.diagonal(gram)), 0.0))
        length = jnp.where(length > 0.0, length, 1.0)
        lam, u = jnp.linalg.eigh(herm(gram / (length[:, None] * length[None, :])))
        usable = lam > eps * lam.shape[0]
        factor = jnp.where(usable, 1.0 / jnp.sqrt(jnp.where(usable, lam, 1.0)), 0.0)
        rows = combine((u * factor / length[:, None]).T, rows)
    return rows


def _unit(rows: Array) -> Array:
    length = scaled_norms(rows)[:, None]
    return rows / jnp.where(length > 0.0, length, 1.0)
