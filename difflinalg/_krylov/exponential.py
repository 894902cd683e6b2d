"""`exp(A) v` and its cotangents by truncated Taylor series over equal steps of time.

One step of length `h = 1 / N` sums `h^j A^j v / j!` until two terms in turn are rounding, in every
block of an enlarged operator on its own. `N` comes from an estimate of the norm of `A` by the
power method: `h |A|` is bounded by a number of order one, so that terms cannot cancel more than a
few digits. A series that does not end within the largest number of terms has not converged.

The cotangent of `A`, the integral of `u(1 - s) v(s)^T` with `v(s) = exp(s A) v` and `u(s) = exp(s
A^T) u`, is on each step a sum over the terms `b_a` and `a_b` of both series,

    h sum a! b! / (a + b + 1)! b_a a_b^T,

and the vectors `v(s)` at the steps are kept, or evolved again from the nearest that is kept.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from difflinalg._core import tolerances
from difflinalg._core.algebra import HIGHEST
from difflinalg._krylov.function_rule import Family, Found, Moving
from difflinalg._krylov.orthogonal import norms

POWER_STEPS = 5
KEPT = 32  # vectors at steps of time that the reverse pass keeps
MAX_STEPS = 1 << 20


class _Series(NamedTuple):
    """The terms `h^j A^j v / j!` and their sum."""

    total: Array  # (k, n)
    term: Array
    small: Array  # (), whether the last two terms were rounding
    before: Array  # (), whether the last one was
    order: Array


@dataclass(frozen=True)
class Exponential:
    """The method."""

    terms: int = 64  # of a series at most
    balanced = False  # the blocks of an enlarged operator are judged one by one

    def value(self, family: Family, consts: Any, v: Array) -> Found:
        """`exp(A) v` of rows."""
        steps, norm = _steps(family, consts, v)
        apply = partial(family.rows, consts)
        width = family.parts

        def step(carry):
            x, ok, products, i = carry
            series = self.series(apply, x, steps, width)
            return series.total, ok & series.small, products + series.order, i + 1

        zero = jnp.zeros((), jnp.int32)
        first = v, jnp.isfinite(norm), zero, zero
        y, ok, products, _ = lax.while_loop(lambda c: (c[3] < steps) & c[1], step, first)
        real = jnp.finfo(v.dtype).dtype
        products = (products * v.shape[0] + 2 * POWER_STEPS).astype(real)
        error = steps * tolerances.epsilon(real)
        return Found(y, ok.astype(real), products, jnp.where(ok, error, jnp.inf).astype(real))

    def series(self, apply, x: Array, steps: Array, parts: int, keep: Array | None = None) -> Any:
        """One step of time; with `keep`, zeros of shape `(terms, k, n)`, also all terms."""
        tol = tolerances.epsilon(x.dtype)

        def sizes(x: Array) -> Array:
            return jnp.max(jnp.abs(x).reshape(x.shape[0], parts, -1), axis=(0, 2))

        def add(carry):
            s, kept = carry
            factor = 1.0 / ((s.order + 1) * steps).astype(jnp.finfo(x.dtype).dtype)
            term = apply(s.term) * factor
            total = s.total + term
            here = jnp.all(sizes(term) <= tol * sizes(total))
            if kept is not None:
                kept = lax.dynamic_update_index_in_dim(kept, term, s.order + 1, 0)
            return _Series(total, term, here & s.before, here, s.order + 1), kept

        if keep is not None:
            keep = keep.at[0].set(x)
        no = jnp.zeros((), bool)
        first = _Series(x, x, no, no, jnp.zeros((), jnp.int32)), keep
        last, kept = lax.while_loop(
            lambda c: ~c[0].small & (c[0].order < self.terms - 1), add, first
        )
        return last if keep is None else (last, kept)

    def pull(self, family: Family, consts: Any, moving: Moving, v: Array, u: Array) -> Any:
        """Cotangents of the moving constants and of `v`, and whether all series have ended."""
        steps, norm = _steps(family, consts, v)
        steps = jnp.where(jnp.isfinite(norm), steps, 1)
        forward = partial(family.rows, consts)
        backward = partial(family.transposed_rows, consts)
        parts, stride = family.parts, (steps + KEPT - 1) // KEPT

        def advance(x: Array) -> tuple[Array, Array]:
            series = self.series(forward, x, steps, parts)
            return series.total, series.small

        def record(carry):
            x, kept, ok, i = carry
            place = jnp.where(i % stride == 0, i // stride, KEPT)  # the last is for the others
            kept = lax.dynamic_update_index_in_dim(kept, x, place, 0)
            x, small = advance(x)
            return x, kept, ok & small, i + 1

        kept = jnp.zeros((KEPT + 1, *v.shape), v.dtype)
        first = v, kept, jnp.isfinite(norm), jnp.zeros((), jnp.int32)
        _, kept, ok, _ = lax.while_loop(lambda c: (c[3] < steps) & c[2], record, first)
        weights = jnp.asarray(_weights(self.terms), jnp.finfo(v.dtype).dtype)
        empty = jnp.zeros((self.terms, *v.shape), v.dtype)

        def pull_step(carry):
            bars, u, ok, i = carry
            x = _at(kept, i, stride, advance)
            ahead, a = self.series(forward, x, steps, parts, empty)
            behind, b = self.series(backward, u, steps, parts, empty)
            h = (1.0 / steps).astype(weights.dtype)
            mixed = h * jnp.tensordot(weights, b, 1, precision=HIGHEST)
            rows = (-1, v.shape[1])
            more = family.pulled(consts, moving, a.reshape(rows), mixed.reshape(rows))
            bars = jax.tree.map(jnp.add, bars, more)
            return bars, behind.total, ok & ahead.small & behind.small, i - 1

        bars = [jnp.zeros_like(consts[i]) for i in moving]
        bars, u, ok, _ = lax.while_loop(
            lambda c: (c[3] >= 0) & c[2], pull_step, (bars, u, ok, steps - 1)
        )
        return bars, u, ok.astype(weights.dtype)


def _at(kept: Array, i: Array, stride: Array, advance) -> Array:
    """The vector before step `i`."""
    x = lax.dynamic_index_in_dim(kept, i // stride, 0, keepdims=False)
    return lax.fori_loop(0, i % stride, lambda _, x: advance(x)[0], x)


def _weights(terms: int) -> np.ndarray:
    """`a! b! / (a + b + 1)!`, with `b` for the rows."""
    a, b = np.meshgrid(np.arange(terms), np.arange(terms))
    log = np.vectorize(math.lgamma)
    return np.exp(log(a + 1.0) + log(b + 1.0) - log(a + b + 2.0))


def _steps(family: Family, consts: Any, v: Array) -> tuple[Array, Array]:
    """How many steps of time, and an estimate of the norm of `A`."""
    n = v.shape[1] // family.parts
    example = jax.ShapeDtypeStruct((n,), v.dtype)
    apply = partial(family.base, consts)

    def power(_, carry):
        x, _ = carry
        y = apply(x)
        size = norms(y)
        y = y / jnp.where(size > 0.0, size, 1.0)
        x = jnp.conj(jax.linear_transpose(apply, example)(jnp.conj(y))[0])
        size = norms(x)
        return x / jnp.where(size > 0.0, size, 1.0), size

    x = jax.random.normal(jax.random.key(7), (n,), v.dtype)
    first = x / norms(x), jnp.zeros((), jnp.finfo(v.dtype).dtype)
    _, norm = lax.fori_loop(0, POWER_STEPS, power, first)
    wanted = jnp.ceil(norm / tolerances.taylor_step(v.dtype))
    steps = jnp.clip(jnp.nan_to_num(wanted, nan=1.0), 1, MAX_STEPS).astype(jnp.int32)
    norm = jnp.where(wanted > MAX_STEPS, jnp.inf, norm)
    return lax.stop_gradient(steps), lax.stop_gradient(norm)
