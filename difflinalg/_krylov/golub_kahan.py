"""Thick-restart Golub-Kahan-Lanczos: singular triplets without squares or doubled spectra.

Orthonormal rows `p` and `q` with `A p_j = sum_i b[j, i] q_i` and `A^H q_j` in the span of `p_0` to
`p_{j+1}`. The singular triplets of the small matrix are Ritz triplets `(s, u, v)`, of which `A v =
s u` holds and `A^H u = s v` up to the next `p` (Baglama and Reichel 2005, equations 2.9 and 3.4).
All coefficients are kept, so that the arrow at a restart appears by itself. A multiplet that one
vector cannot see is found by the verification of `thick_restart`: from a random vector that is
orthogonal to what has converged.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import tolerances
from difflinalg._core.algebra import adjoint
from difflinalg._krylov.orthogonal import combine, orthogonalise, put, random_rows, scaled_norms
from difflinalg._krylov.thick_restart import (
    DONE,
    SEARCHING,
    VERIFYING,
    Pairs,
    Plan,
    distance,
    order_of,
)

Map = Callable[[Array], Array]


class _Basis(NamedTuple):
    p: Array  # (length + 1, n)
    q: Array  # (length, m)
    b: Array  # (length, length)
    last: Array  # length of the part of `A^H q` outside of the basis
    filled: Array
    scale: Array  # the largest norm of an image
    products: Array


class _State(NamedTuple):
    basis: _Basis
    wanted: Array
    residuals: Array
    converged: Array
    others: Array
    gap: Array
    checked: Array
    phase: Array
    restarts: Array


def run(forward: Map, backward: Map, start: Array, m: int, plan: Plan, key: Array) -> Pairs:
    """The `plan.k` wanted triplets, with rows `[u, v] / sqrt 2`.

    Args:
        forward: `A`, from vectors of `start.size` entries, the smaller number, to `m`.
        backward: `A^H`.
        start: the first right vector.
        m: the size of left vectors.
        plan: static options; `which` is `'LM'` or `'SM'`.
        key: for random vectors.
    """
    k, real, length = plan.k, jnp.finfo(start.dtype).dtype, plan.length
    zero, count = jnp.zeros((), real), jnp.zeros((), jnp.int32)
    p = jnp.zeros((length + 1, start.shape[0]), start.dtype).at[0].set(start / scaled_norms(start))
    q, b = jnp.zeros((length, m), start.dtype), jnp.zeros((length, length), start.dtype)
    nothing, two = jnp.full((k,), jnp.inf, real), jnp.full((2,), jnp.inf, real)
    first = _State(
        _Basis(p, q, b, zero, count, zero, count), nothing, nothing, jnp.zeros((k,), bool), two,
        zero, nothing, count, count,
    )  # fmt: skip

    def unfinished(state: _State) -> Array:
        going = (state.phase != DONE) & (state.restarts < plan.max_restarts)
        return going & jnp.isfinite(state.basis.scale)

    def cycle(state: _State) -> _State:
        here = jax.random.fold_in(key, state.restarts)
        basis = _extend(forward, backward, state.basis, here)
        return _restart(basis, state, plan, jax.random.fold_in(here, 2 * length))

    last = lax.while_loop(unfinished, cycle, first)
    rows = jnp.concatenate([last.basis.q[:k], last.basis.p[:k]], axis=1)
    return Pairs(
        last.wanted, rows / jnp.sqrt(2.0).astype(real), last.residuals,
        last.converged.astype(real), last.others, last.gap, last.basis.scale, zero,
        last.basis.products.astype(real), last.restarts.astype(real),
    )  # fmt: skip


def _extend(forward: Map, backward: Map, basis: _Basis, key: Array) -> _Basis:
    """Fill the basis, one right and one left vector at a time."""
    length = basis.q.shape[0]

    def step(s: _Basis) -> _Basis:
        j = s.filled
        w = forward(lax.dynamic_index_in_dim(s.p, j, 0, keepdims=False))[None]
        scale = jnp.maximum(s.scale, scaled_norms(w)[0])
        left = orthogonalise(s.q, w, scale, jax.random.fold_in(key, 2 * j))
        b = put(put(s.b, left.coefficients, j), left.remainder, j, j)
        z = backward(left.q[0])[None]
        scale = jnp.maximum(scale, scaled_norms(z)[0])
        right = orthogonalise(s.p, z, scale, jax.random.fold_in(key, 2 * j + 1))
        last = jnp.abs(right.remainder[0, 0])
        p, q = put(s.p, right.q, j + 1), put(s.q, left.q, j)
        return _Basis(p, q, b, last, j + 1, scale, s.products + 2)

    return lax.while_loop(lambda s: s.filled < length, step, basis)


def _restart(basis: _Basis, state: _State, plan: Plan, key: Array) -> _State:
    """Judge a full basis, and compress it to its leading Ritz triplets."""
    k = plan.k
    u, s, vh = jnp.linalg.svd(basis.b.T)
    order = order_of(plan.which, s)
    s, left, right = s[order], u.T[order], jnp.conj(vh)[order]
    residuals = basis.last * jnp.abs(left[:, -1])
    scale = jnp.maximum(basis.scale, jnp.max(s))
    wanted, others = s[:k], s[k : k + 2]
    attainable = tolerances.residual_rtol(s.dtype) * scale
    converged = residuals[:k] <= jnp.maximum(plan.tol * wanted, attainable)
    away = distance(plan.which, wanted, others)[0]
    known = tolerances.RESOLVED * away + tolerances.ritz_rtol(s.dtype) * scale
    resolved = residuals[k] <= known
    finished = jnp.all(converged)
    moved = jnp.max(jnp.abs(wanted - state.checked)) > tolerances.multiplet_rtol(s.dtype) * scale
    verified = (state.phase == VERIFYING) & finished & resolved
    verify = (verified & moved) | ((state.phase == SEARCHING) & finished)
    phase = jnp.where(verified & ~moved, DONE, jnp.where(verify, VERIFYING, state.phase))
    return _State(
        _compress(basis._replace(scale=scale), s, left, right, plan, verify, key),
        wanted,
        residuals[:k],
        converged,
        jnp.where(jnp.arange(2) < 1, others, jnp.inf),
        away,
        jnp.where(verify, wanted, state.checked),
        phase.astype(jnp.int32),
        state.restarts + 1,
    )


def _compress(basis: _Basis, s, left, right, plan: Plan, verify: Array, key: Array) -> _Basis:
    """The leading Ritz triplets and the next right vector, or those wanted and a random one."""
    limit = plan.keep
    keep = jnp.where(verify, plan.k, limit).astype(jnp.int32)
    chosen = (jnp.arange(limit) < keep)[:, None]
    p = combine(jnp.where(chosen, right[:limit], 0.0), basis.p[:-1])
    q = combine(jnp.where(chosen, left[:limit], 0.0), basis.q)
    after = basis.p[-1:]

    def fresh(_):
        one = jnp.ones((), s.dtype)
        return orthogonalise(p, random_rows(key, 1, p), one, key).q

    after = lax.cond(verify, fresh, lambda after: after, after)
    values = jnp.where(chosen[:, 0], s[:limit], 0.0).astype(basis.b.dtype)
    return basis._replace(
        p=put(put(jnp.zeros_like(basis.p), p, 0), after, keep),
        q=put(jnp.zeros_like(basis.q), q, 0),
        b=put(jnp.zeros_like(basis.b), jnp.diag(values), 0),
        filled=keep,
    )


def dense(matrix: Array, plan: Plan) -> Pairs:
    """By a decomposition of the whole matrix."""
    k = plan.k
    u, s, vh = jnp.linalg.svd(matrix, full_matrices=False)
    order = order_of(plan.which, s)
    found = jnp.concatenate([s[order], jnp.full((2,), jnp.inf, s.dtype)])
    others = jnp.where(jnp.arange(2) < 1, found[k : k + 2], jnp.inf)
    rows = jnp.concatenate([u.T, jnp.conj(vh)], axis=1)[order[:k]]
    zero = jnp.zeros((), s.dtype)
    return Pairs(
        found[:k], rows / jnp.sqrt(2.0).astype(s.dtype), jnp.zeros_like(found[:k]),
        jnp.isfinite(found[:k]).astype(s.dtype), others,
        distance(plan.which, found[:k], others)[0], jnp.max(s), zero, zero + matrix.shape[1], zero,
    )  # fmt: skip


def hermitian_operator(forward: Map, backward: Map, m: int) -> Map:
    """`[[0, A], [A^H, 0]]` on vectors `[u, v]`."""
    return lambda x: jnp.concatenate([forward(x[m:]), backward(x[:m])])


def swapped(rows: Array, first: int) -> Array:
    """Rows `[v, u]` of rows `[u, v]` with `first` entries of `u`."""
    return jnp.concatenate([rows[:, first:], rows[:, :first]], axis=1)


def matrix_of(forward: Callable[[Array], Array], n: int, dtype) -> Array:
    """The whole matrix of an operator on vectors of `n` entries."""
    return adjoint(jnp.conj(jax.vmap(forward)(jnp.eye(n, dtype=dtype))))
