"""The Krylov-Schur method: the wanted eigenpairs of a general operator.

One `while_loop` over restarts. A cycle fills the basis by the Arnoldi process, `A V = V H + q b^T`,
takes an ordered Schur form of `H`, and keeps the leading Schur vectors (Stewart 2001): `k` and
half of the rest, and never one value of a conjugate pair of a real operator without the other.
The first j Schur vectors have converged, and with them j eigenpairs, when the first j entries of
`b^T Z` are small.

Verification as in `thick_restart`: members of multiplets that a single starting vector missed are
looked for from a random vector, with the wanted Schur vectors kept alone.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import tolerances
from difflinalg._core.algebra import mm
from difflinalg._krylov import lanczos
from difflinalg._krylov.ordered_schur import (
    Order,
    leading_basis,
    leading_vectors,
    ordered_schur,
)
from difflinalg._krylov.orthogonal import combine, orthogonalise, put, random_rows, take_rows
from difflinalg._krylov.thick_restart import DONE, SEARCHING, VERIFYING, Plan


class GeneralPairs(NamedTuple):
    """What a run found, the leading pair first; floating, so that an operation can return it."""

    w: Array  # (k,), complex
    v: Array  # (k, n), complex rows of norm 1
    others: Array  # values that are not wanted, infinite where there is none
    converged: Array  # (k,), 1 or 0
    scale: Array  # (), estimate of the norm of the operator
    products: Array  # ()
    restarts: Array  # ()


class _State(NamedTuple):
    basis: lanczos.Basis
    wanted: Array  # (k,)
    ritz: Array  # (limit, k), coefficients of their vectors in the basis
    converged: Array  # (k,)
    others: Array  # (m - k,)
    checked: Array  # (k,), the values that the last verification started from
    phase: Array
    restarts: Array


def order_of(which: str, real: bool) -> Order:
    """The order of eigenvalues; of a real operator imaginary parts count by their size."""

    def order(w: Array) -> Array:
        imag = jnp.abs(w.imag) if real else w.imag
        keys = {"M": jnp.abs(w), "R": w.real, "I": imag}
        key = keys[which[1]]
        return jnp.argsort(-key if which[0] == "L" else key, stable=True)

    return order


def order_by_targets(targets: Array, otherwise: Order) -> Order:
    """First, for each target in turn, the value nearest to it, then the others."""

    def order(w: Array) -> Array:
        size = w.shape[0]
        late = jnp.argsort(otherwise(w)) + size

        def take(j, rank):
            distance = jnp.where(rank >= size, jnp.abs(w - targets[j]), jnp.inf)
            return rank.at[jnp.argmin(distance)].set(j)

        return jnp.argsort(lax.fori_loop(0, targets.shape[0], take, late))

    return order


def run(
    apply: Callable[[Array], Array],
    row: Array,
    plan: Plan,
    key: Array,
    order: Order,
    targets: Array | None = None,
) -> GeneralPairs:
    """Find the `plan.k` first eigenpairs in `order` of the operator `apply` on rows.

    Args:
        apply: linear, on rows of the dtype of `row`.
        row: where to start, shape `(1, n)`.
        plan: static options, with blocks of one vector.
        key: for the random vectors of verification and breakdowns.
        order: of eigenvalues.
        targets: values that are known to be eigenvalues; then those have to be found.
    """
    k, m, real = plan.k, plan.length, jnp.finfo(row.dtype).dtype
    complex_dtype = jnp.result_type(row.dtype, jnp.complex64)
    nothing = jnp.full((k,), jnp.inf, complex_dtype)
    count = jnp.zeros((), jnp.int32)
    basis = lanczos.start(row, m, key, None)
    others = jnp.full((m - k,), jnp.inf, complex_dtype)
    ritz = jnp.zeros((_limit(plan) + 1, k), complex_dtype)
    first = _State(basis, nothing, ritz, jnp.zeros((k,), bool), others, nothing, count, count)

    def unfinished(state: _State) -> Array:
        going = (state.phase != DONE) & (state.restarts < plan.max_restarts)
        return going & jnp.isfinite(state.basis.scale)

    def cycle(state: _State) -> _State:
        here = jax.random.fold_in(key, state.restarts)
        basis = lanczos.extend(apply, state.basis, 1, here, None)
        return _restart(basis, state, plan, jax.random.fold_in(here, m), order, targets)

    last = lax.while_loop(unfinished, cycle, first)
    return GeneralPairs(
        last.wanted,
        combine(last.ritz.T, last.basis.q[: _limit(plan) + 1]),
        last.others,
        last.converged.astype(real),
        last.basis.scale,
        last.basis.products.astype(real),
        last.restarts.astype(real),
    )


def _limit(plan: Plan) -> int:
    """How many Schur vectors survive a restart; one more where a conjugate pair needs it."""
    return min(plan.k + 1 + (plan.length - plan.k) // 2, plan.length - 2)


def _restart(basis, state: _State, plan: Plan, key: Array, order: Order, targets) -> _State:
    """Judge a full basis, and compress it to its leading Schur vectors."""
    k, m = plan.k, plan.length
    form = ordered_schur(basis.gram[:m, :m].T, order, _limit(plan) + 1)
    theta = jnp.diagonal(form.t)
    coupling = jnp.sqrt(jnp.cumsum(jnp.abs(mm(basis.gram[:m, m], form.z)) ** 2))
    wanted = theta[:k]
    scale = jnp.maximum(basis.scale, jnp.max(jnp.abs(wanted)))
    real = scale.dtype
    attainable = tolerances.residual_rtol(real) * scale
    converged = coupling[:k] <= jnp.maximum(plan.tol * jnp.abs(wanted), attainable)
    finished = jnp.all(converged)
    near = tolerances.ritz_rtol(real) * scale
    if targets is not None:
        # One more: the value that is asked for may be the second of a pair.
        found = jnp.all(_mismatch(theta[: k + 1], targets, order) <= near)
        done, verify = finished & found, finished & ~found
    elif plan.verify:
        # The next value is known when it can be told from the wanted ones.
        away = jnp.min(jnp.abs(theta[k] - wanted))
        resolved = coupling[k] <= tolerances.RESOLVED * away + near
        moved = jnp.any(_mismatch(wanted, state.checked, order) > near)
        verified = (state.phase == VERIFYING) & finished & resolved
        done = verified & ~moved
        verify = (verified & moved) | ((state.phase == SEARCHING) & finished)
    else:
        done, verify = finished, jnp.zeros((), bool)
    phase = jnp.where(done, DONE, jnp.where(verify, VERIFYING, state.phase)).astype(jnp.int32)
    whole = jnp.where(form.opens_pair[k - 1], k + 1, k)  # with the other value of a cut pair
    limit = jnp.where(form.opens_pair[_limit(plan) - 1], _limit(plan) + 1, _limit(plan))
    keep = jnp.where(done | verify, whole, limit).astype(jnp.int32)
    columns = leading_basis(form, keep, _limit(plan) + 1, not jnp.iscomplexobj(basis.q))
    basis = _compress(basis._replace(scale=scale), columns, keep, plan, verify, key)
    ritz = mm(jnp.conj(columns).T, leading_vectors(form, k))
    checked = jnp.where(verify, wanted, state.checked)
    return _State(basis, wanted, ritz, converged, theta[k:], checked, phase, state.restarts + 1)


def _mismatch(w: Array, targets: Array, otherwise: Order) -> Array:
    """The distance of each target to a value of its own."""
    matched = order_by_targets(targets, otherwise)(w)[: targets.shape[0]]
    return jnp.abs(w[matched] - targets)


def _compress(
    basis: lanczos.Basis, columns: Array, keep: Array, plan: Plan, verify: Array, key: Array
) -> lanczos.Basis:
    """The `keep` vectors of which `columns` are the coefficients, and the next or a random one."""
    m = plan.length
    kept = combine(columns.T, basis.q[:m])
    after = take_rows(basis.q, jnp.asarray(m), 1)

    def fresh(after):
        one = jnp.ones((), jnp.finfo(after.dtype).dtype)
        return orthogonalise(kept, random_rows(key, 1, kept), one, key, None).q + 0.0 * after

    after = lax.cond(verify, fresh, lambda after: after, after)
    q = put(put(jnp.zeros_like(basis.q), kept, 0), after, keep)
    projected = mm(jnp.conj(columns).T, basis.gram[:m, :m].T, columns)
    coupling = jnp.where(verify, 0.0, mm(basis.gram[:m, m], columns))
    gram = put(jnp.zeros_like(basis.gram), projected.T, 0)
    gram = put(gram, coupling[:, None], 0, keep)
    return basis._replace(q=q, gram=gram, filled=keep)
