"""`f(A) v` and its cotangents from Krylov spaces, with `f` of small matrices.

With the Arnoldi relation `A Q = Q H + ...` from `v`, `f(A) v = |v| Q f(H) e_1` (Saad 1992, equation
4). With another from `u` for the transpose of `A`, the cotangent of `A` is `|u| |v| sum X[a, b] p_a
q_b^T`, where `X` is the upper right block of

    f([[H_u, e_1 e_1^T], [0, H_v^T]])

(Kandolf, Koskela, Relton and Schweitzer 2021, algorithm 1). The spaces grow until the coefficients
no longer change.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import tolerances
from difflinalg._core.algebra import HIGHEST, herm
from difflinalg._core.program import Program
from difflinalg._krylov.function_rule import Family, Found, Moving
from difflinalg._krylov.orthogonal import put, scaled_norms

STRIDE = 8  # steps from one look at the coefficients to the next


class _Space(NamedTuple):
    q: Array  # (m + 1, n), rows; zero rows after a breakdown
    h: Array  # (m + 1, m + 1), transposed: A q_i = sum_j h[i, j] q_j
    filled: Array
    size: Array  # the norm of the vector at the start


def _start(v: Array, m: int) -> _Space:
    size = scaled_norms(v)
    q = jnp.zeros((m + 1, v.shape[0]), v.dtype)
    q = q.at[0].set(v / jnp.where(size > 0.0, size, 1.0))
    return _Space(q, jnp.zeros((m + 1, m + 1), v.dtype), jnp.zeros((), jnp.int32), size)


def _extend(apply: Callable[[Array], Array], space: _Space) -> _Space:
    """The space after `STRIDE` steps of Arnoldi, with two passes of Gram-Schmidt."""

    def step(_, s: _Space) -> _Space:
        w = apply(lax.dynamic_index_in_dim(s.q, s.filled, 0, keepdims=False))
        scale, row = scaled_norms(w), jnp.zeros(s.q.shape[:1], s.q.dtype)
        for _ in range(2):
            overlap = jnp.conj(jnp.matmul(s.q, jnp.conj(w), precision=HIGHEST))
            w = w - jnp.matmul(overlap, s.q, precision=HIGHEST)
            row = row + overlap
        length = scaled_norms(w)
        ends = ~(length > tolerances.breakdown_rtol(w.dtype) * scale)
        w = jnp.where(ends, 0.0, w / jnp.where(ends, 1.0, length))
        row = row.at[s.filled + 1].set(jnp.where(ends, 0.0, length).astype(w.dtype))
        return _Space(
            put(s.q, w[None], s.filled + 1), put(s.h, row[None], s.filled), s.filled + 1, s.size
        )

    return lax.fori_loop(0, STRIDE, step, space)


def _projected(space: _Space, m: int) -> tuple[Array, Array, Array]:
    """`H`, with a value from its field of values where there is no vector; which are; an end."""
    exists = jnp.any(space.q[:m] != 0.0, axis=1) & (jnp.arange(m) < space.filled)
    h = jnp.where(exists[:, None] & exists[None, :], space.h[:m, :m], 0.0).T
    filler = jnp.where(exists, 0.0, space.h[0, 0])
    ended = jnp.all(lax.dynamic_index_in_dim(space.q, space.filled, 0, keepdims=False) == 0.0)
    return h + jnp.diag(filler), exists, ended


@dataclass(frozen=True)
class KrylovFunction:
    """The method: `f` for matrices `(m, m)` and `(2 m, 2 m)`, and when to stop."""

    small: Program
    large: Program
    counts: tuple[int, int]  # of the constants of both
    m: int
    rtol: float
    atol: float
    hermitian: bool
    balanced = True

    def _constants(self, family: Family, consts: Any) -> tuple[list[Array], list[Array]]:
        first = family.count
        middle, last = first + self.counts[0], first + sum(self.counts)
        return list(consts[first:middle]), list(consts[middle:last])

    def value(self, family: Family, consts: Any, v: Array) -> Found:
        """`f(A) v` of rows."""
        found = [self._single(family, consts, row) for row in v]
        y, *rest = (jnp.stack(x) for x in zip(*found, strict=True))
        converged, products, error = rest
        return Found(y, jnp.min(converged), jnp.sum(products), jnp.max(error))

    def _single(self, family: Family, consts: Any, v: Array) -> Found:
        m, f_consts = self.m, self._constants(family, consts)[0]
        symmetric = self.hermitian and not family.directions

        def grow(carry):
            space, old, _, _ = carry
            space = _extend(partial(family.apply, consts), space)
            h, exists, ended = _projected(space, m)
            f = self.small(f_consts, herm(h) if symmetric else h)
            c = jnp.where(exists, f[:, 0], 0.0).astype(v.dtype)
            error, ok = self._judge(c, old, ended, space.size)
            return space, c, error, ok

        real = jnp.finfo(v.dtype).dtype
        first = (
            _start(v, m), jnp.zeros((m,), v.dtype), jnp.asarray(jnp.inf, real), jnp.zeros((), bool)
        )  # fmt: skip
        space, c, error, ok = lax.while_loop(
            lambda s: ~s[3] & (s[0].filled < m) & jnp.all(jnp.isfinite(s[1])), grow, first
        )
        y = jnp.matmul(c, space.q[:m], precision=HIGHEST) * space.size
        return Found(y, ok.astype(real), space.filled.astype(real), error)

    def _judge(self, new: Array, old: Array, ended: Array, size: Array) -> tuple[Array, Array]:
        """The relative change, and whether it is small enough."""
        length, change = scaled_norms(new.reshape(-1)), scaled_norms((new - old).reshape(-1))
        allowed = self.rtol * length + self.atol / jnp.where(size > 0.0, size, 1.0)
        change = jnp.where(ended, tolerances.epsilon(new.dtype) * length, change)
        ok = ((change <= allowed) | ended | (size == 0.0)) & jnp.isfinite(length)
        return change / jnp.where(length > 0.0, length, 1.0), ok & jnp.isfinite(size)

    def pull(self, family: Family, consts: Any, moving: Moving, v: Array, u: Array) -> Any:
        """Cotangents of the moving constants and of `v`, and whether the spaces suffice."""
        single = partial(self._pull_single, family, consts, moving)
        found = [single(*pair) for pair in zip(v, u, strict=True)]
        bars = [sum(parts[1:], parts[0]) for parts in zip(*(f[0] for f in found), strict=True)]
        return bars, jnp.stack([f[1] for f in found]), jnp.min(jnp.stack([f[2] for f in found]))

    def _pull_single(self, family: Family, consts: Any, moving: Moving, v: Array, u: Array) -> Any:
        m, f_consts = self.m, self._constants(family, consts)[1]
        forward = partial(family.apply, consts)
        example = jax.ShapeDtypeStruct(v.shape, v.dtype)

        def backward(x: Array) -> Array:
            return jax.linear_transpose(forward, example)(x)[0]

        def grow(carry):
            ahead, behind, old, _ = carry
            ahead, behind = _extend(forward, ahead), _extend(backward, behind)
            h_v, has_v, end_v = _projected(ahead, m)
            h_u, has_u, end_u = _projected(behind, m)
            corner = jnp.zeros((m, m), v.dtype).at[0, 0].set(1.0)
            both = jnp.block([[h_u, corner], [jnp.zeros_like(corner), h_v.T]])
            f = self.large(f_consts, both)
            x = jnp.where(has_u[:, None] & has_v[None, :], f[:m, m:], 0.0)
            column = jnp.where(has_u, f[:m, 0], 0.0)
            new = jnp.concatenate([x, column[:, None]], axis=1).astype(v.dtype)
            pieces = (slice(0, m), slice(m, m + 1))
            ok = [
                self._judge(new[:, piece], old[:, piece], end_v & end_u, behind.size)[1]
                for piece in pieces
            ]
            return ahead, behind, new, ok[0] & ok[1]

        first = _start(v, m), _start(u, m), jnp.zeros((m, m + 1), v.dtype), jnp.zeros((), bool)
        ahead, behind, found, ok = lax.while_loop(
            lambda s: ~s[3] & (s[0].filled < m) & jnp.all(jnp.isfinite(s[2])), grow, first
        )
        x, column = found[:, :m] * (ahead.size * behind.size), found[:, m] * behind.size
        mixed = jnp.matmul(x.T, behind.q[:m], precision=HIGHEST)
        bars = family.pulled(consts, moving, ahead.q[:m], mixed)
        v_bar = jnp.matmul(column, behind.q[:m], precision=HIGHEST)
        return bars, v_bar, ok.astype(jnp.finfo(v.dtype).dtype)
