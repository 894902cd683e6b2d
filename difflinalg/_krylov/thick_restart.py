"""Thick-restart block Lanczos: the wanted eigenpairs of a Hermitian operator.

One `while_loop` over restarts. A cycle fills the basis, takes the Ritz pairs of the projected
matrix, and keeps the leading ones, `k` and half of the rest. A Ritz pair `(theta, y)` has the
residual `A y - theta y = sum_c coupling[c] q_c` with the block `q` that comes next.

Verification. A single starting block can miss members of a multiplet, with small residuals and
without a sign. When all pairs have converged they are therefore kept alone, and the iteration
goes on with a random block orthogonal to them: a member that was lost enters among them. It ends
when the first value that is not wanted is known well enough to be told from the last wanted one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import tolerances
from difflinalg._core.algebra import herm
from difflinalg._krylov import lanczos
from difflinalg._krylov.orthogonal import (
    Metric,
    combine,
    orthogonalise,
    put,
    random_rows,
    scaled_norms,
    take_rows,
)

SEARCHING, VERIFYING, DONE = 0, 1, 2


@dataclass(frozen=True)
class Plan:
    """Static options of a run."""

    k: int
    which: str
    length: int  # of the basis, without the block that comes next
    block: int
    max_restarts: int
    tol: float
    verify: bool

    @property
    def keep(self) -> int:
        """How many Ritz vectors survive a restart."""
        return min(self.k + (self.length - self.k) // 2, self.length - self.block)


class Pairs(NamedTuple):
    """What a run found, the leading pair first; floating, so that an operation can return it."""

    w: Array  # (k,)
    v: Array  # (k, n)
    residuals: Array  # (k,), estimates
    converged: Array  # (k,), 1 or 0
    others: Array  # (2,), the next values, that of the other end second if which='BE'
    gap: Array  # (), from the wanted values to the next one
    scale: Array  # (), estimate of the norm of the operator
    defect: Array  # (), departure from a Hermitian operator, relative to the scale
    products: Array  # ()
    restarts: Array  # ()


class _State(NamedTuple):
    basis: lanczos.Basis
    wanted: Array  # (k,)
    residuals: Array  # (k,)
    converged: Array  # (k,)
    others: Array  # (2,)
    gap: Array
    defect: Array
    checked: Array  # (k,), the values that the last verification started from
    phase: Array
    restarts: Array


def order_of(which: str, w: Array) -> Array:
    """The permutation that puts the wanted values first."""
    if which == "BE":
        ascending = jnp.argsort(jnp.argsort(w))
        descending = w.shape[0] - 1 - ascending
        return jnp.argsort(jnp.minimum(2 * descending, 2 * ascending + 1))
    return jnp.argsort(_key(which, w))


def _key(which: str, w: Array) -> Array:
    """Smaller is more wanted."""
    keys = {"LA": -w, "SA": w, "LM": -jnp.abs(w), "SM": jnp.abs(w)}
    return keys[which]


def distance(which: str, wanted: Array, others: Array) -> Array:
    """How far each of `others` is from entering among the wanted values."""
    if which == "BE":
        return jnp.min(jnp.abs(others[:, None] - wanted[None, :]), axis=1)
    return jnp.abs(_key(which, others) - jnp.max(_key(which, wanted)))


def run(
    apply: Callable[[Array], Array], rows: Array, plan: Plan, key: Array, metric: Metric
) -> Pairs:
    """Find the `plan.k` wanted eigenpairs of the Hermitian operator `apply` on rows.

    Args:
        apply: Hermitian in the inner product of `metric`.
        rows: where to start, shape `(block, n)`.
        plan: static options.
        key: for the random vectors of verification and breakdowns.
        metric: of the inner product.
    """
    k, real = plan.k, jnp.finfo(rows.dtype).dtype
    zero, nothing = jnp.zeros((), real), jnp.full((k,), jnp.inf, real)
    count = jnp.zeros((), jnp.int32)
    basis = lanczos.start(rows, plan.length, key, metric)
    first = _State(
        basis, nothing, nothing, jnp.zeros((k,), bool), jnp.full((2,), jnp.inf, real),
        zero, zero, nothing, count, count,
    )  # fmt: skip

    def unfinished(state: _State) -> Array:
        going = (state.phase != DONE) & (state.restarts < plan.max_restarts)
        return going & jnp.isfinite(state.basis.scale)

    def cycle(state: _State) -> _State:
        here = jax.random.fold_in(key, state.restarts)
        basis = lanczos.extend(apply, state.basis, plan.block, here, metric)
        return _restart(basis, state, plan, jax.random.fold_in(here, plan.length), metric)

    last = lax.while_loop(unfinished, cycle, first)
    return Pairs(
        last.wanted,
        last.basis.q[:k],
        last.residuals,
        last.converged.astype(real),
        last.others,
        last.gap,
        last.basis.scale,
        last.defect,
        last.basis.products.astype(real),
        last.restarts.astype(real),
    )


def _restart(basis, state: _State, plan: Plan, key: Array, metric: Metric) -> _State:
    """Judge a full basis, and compress it to its leading Ritz vectors."""
    ritz, k = _ritz(basis, plan), plan.k
    scale = jnp.maximum(basis.scale, jnp.max(jnp.abs(ritz.theta[:k])))
    wanted, others = ritz.theta[:k], ritz.theta[k : k + 2]
    attainable = tolerances.residual_rtol(wanted.dtype) * scale
    converged = ritz.residuals[:k] <= jnp.maximum(plan.tol * jnp.abs(wanted), attainable)
    away = distance(plan.which, wanted, others)
    known = tolerances.RESOLVED * away + tolerances.ritz_rtol(wanted.dtype) * scale
    # The next value from each end that wanted values come from.
    is_next = jnp.arange(2) < (2 if plan.which == "BE" else 1)
    resolved = jnp.all((ritz.residuals[k : k + 2] <= known) | ~is_next)
    moved = (
        jnp.max(jnp.abs(wanted - state.checked)) > tolerances.multiplet_rtol(scale.dtype) * scale
    )

    finished = jnp.all(converged)
    if plan.verify:
        verified = (state.phase == VERIFYING) & finished & resolved
        done = verified & ~moved
        verify = (verified & moved) | ((state.phase == SEARCHING) & finished)
    else:
        done, verify = finished, jnp.zeros((), bool)
    phase = jnp.where(done, DONE, jnp.where(verify, VERIFYING, state.phase)).astype(jnp.int32)
    return _State(
        _compress(basis._replace(scale=scale), ritz, plan, verify, key, metric),
        wanted,
        ritz.residuals[:k],
        converged,
        jnp.where(is_next, others, jnp.inf),
        jnp.min(jnp.where(is_next, away, jnp.inf)),
        jnp.maximum(state.defect, ritz.defect),
        jnp.where(verify, wanted, state.checked),
        phase,
        state.restarts + 1,
    )


def _compress(basis, ritz: "_Ritz", plan: Plan, verify: Array, key: Array, metric: Metric):
    """The leading Ritz vectors and the next block, or the wanted ones and a random block."""
    m, b, limit = plan.length, plan.block, plan.keep
    keep = jnp.where(verify, plan.k, limit).astype(jnp.int32)
    chosen = jnp.arange(limit) < keep
    vectors = jnp.where(chosen[:, None], ritz.vectors[:limit], 0.0)
    kept = combine(vectors, basis.q[:m])
    after = take_rows(basis.q, basis.filled, b)

    def fresh(_):
        rows = random_rows(key, b, kept)
        one = jnp.ones((), jnp.finfo(kept.dtype).dtype)
        return orthogonalise(kept, rows, one, key, metric).q

    block = lax.cond(verify, fresh, lambda after: after, after)
    q = put(jnp.zeros_like(basis.q), kept, 0)
    q = put(q, block, keep)
    theta = jnp.where(chosen, ritz.theta[:limit], 0.0)
    gram = jnp.zeros_like(basis.gram).at[jnp.arange(limit), jnp.arange(limit)].set(theta)
    coupling = jnp.where(chosen[:, None] & ~verify, ritz.coupling[:limit], 0.0)
    gram = put(gram, coupling, 0, keep)
    return basis._replace(q=q, gram=gram.astype(basis.gram.dtype), filled=keep)


class _Ritz(NamedTuple):
    theta: Array  # (m,), wanted first
    vectors: Array  # (m, m), rows of coefficients
    coupling: Array  # (m, b), to the block that comes next
    residuals: Array  # (m,)
    defect: Array


def _ritz(basis: lanczos.Basis, plan: Plan) -> _Ritz:
    """The Ritz pairs of a basis; the rows that are not filled decouple and come last."""
    m, filled = plan.length, basis.filled
    live = jnp.arange(m) < filled
    square = jnp.where(live[:, None] & live[None, :], basis.gram[:m, :m], 0.0)
    projected = herm(square.T)
    defect = jnp.max(jnp.abs(square - square.T.conj())) / jnp.where(basis.scale > 0, basis.scale, 1)
    largest = jnp.max(jnp.abs(projected))
    filler = 4.0 * jnp.where(largest > 0.0, largest, 1.0) * m
    apart = jnp.where(live, 0.0, filler).astype(projected.dtype)
    theta, s = jnp.linalg.eigh(projected + jnp.diag(apart))
    is_live = theta < 0.75 * filler
    theta_live = jnp.where(is_live, theta, 0.0)
    order = order_of(plan.which, theta_live)
    order = order[jnp.argsort(~is_live[order], stable=True)]
    theta, vectors = theta[order], s[:, order].T
    after = lax.dynamic_slice_in_dim(basis.gram[:m], filled, plan.block, axis=1)
    coupling = combine(vectors, jnp.where(live[:, None], after, 0.0))
    residuals = scaled_norms(coupling)
    return _Ritz(theta, vectors, coupling, jnp.where(is_live[order], residuals, jnp.inf), defect)
