"""Orthonormal bases of fixed shape: block Gram-Schmidt with a guard against breakdown.

A basis is an array of rows of which the unused ones are zero, so that projecting on all rows is
projecting on the used ones. A pass of classical Gram-Schmidt is two products with the whole basis.
One gives orthogonality to rounding where it leaves half of a row, two do it else (Daniel, Gragg,
Kaufman and Stewart 1976, "Reorthogonalization and stable algorithms for updating the Gram-Schmidt
QR factorization"; Giraud, Langou and Rozloznik 2005, "The loss of orthogonality in the Gram-Schmidt
orthogonalization process", section 4). What the first pass leaves may be rounding error inside of
the span, above the level of a breakdown; the second then leaves a small part of it, and there are
more passes.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import tolerances
from difflinalg._core.algebra import HIGHEST

SMALL_BLOCK, PASSES = 4, 4
Metric = Callable[[Array], Array] | None  # rows to rows, x -> M x; None is the identity


class Orthogonalised(NamedTuple):
    """`w = coefficients @ basis + remainder @ q`, with orthonormal rows `q`."""

    q: Array  # (b, n)
    coefficients: Array  # (b, m)
    remainder: Array  # (b, b), lower triangular


def inner(x: Array, y: Array) -> Array:
    """The inner products `<x_i, y_j>` of rows, shape `(rows of x, rows of y)`."""
    if jnp.iscomplexobj(x):
        x = jnp.conj(x)
    return jnp.einsum("in,jn->ij", x, y, precision=HIGHEST)


def combine(coefficients: Array, rows: Array) -> Array:
    """The rows `coefficients @ rows`."""
    if coefficients.shape[0] <= SMALL_BLOCK:
        return jnp.stack([jnp.matmul(c, rows, precision=HIGHEST) for c in coefficients])
    return jnp.einsum("ij,jn->in", coefficients, rows, precision=HIGHEST)


def norms(x: Array) -> Array:
    """The Euclidean norms of rows."""
    return jnp.sqrt(jnp.sum(jnp.real(x * jnp.conj(x)), axis=-1))


def scaled_norms(x: Array) -> Array:
    """The norms of rows whose squares may underflow or overflow."""
    size = jnp.max(jnp.abs(x), axis=-1, keepdims=True, initial=0.0)
    size = jnp.where((size > 0.0) & jnp.isfinite(size), size, 1.0)
    return norms(x / size) * size[..., 0]


def random_rows(key: Array, rows: int, like: Array) -> Array:
    """Random unit rows of the width and dtype of `like`."""
    x = jax.random.normal(key, (rows, like.shape[-1]), like.dtype)
    return x / norms(x)[:, None]


def _coefficients(basis: Array, w: Array, metric: Metric) -> Array:
    """The inner products of rows with a basis, shape `(b, m)`."""
    image = w if metric is None else metric(w)
    if image.shape[0] > SMALL_BLOCK:
        return jnp.conj(inner(image, basis))
    # Row by row: compilers make a slow product of a narrow block with a large matrix.
    rows = [jnp.matmul(basis, jnp.conj(row), precision=HIGHEST) for row in image]
    return jnp.conj(jnp.stack(rows))


def _orthonormal_rows(w: Array, floor: Array, key: Array, metric: Metric) -> tuple[Array, Array]:
    """The rows `q` and lower triangle `r` of `w = r q`; a row shorter than `floor` is replaced.

    Its replacement is random, and its diagonal entry of `r` zero: the invariant subspace that the
    breakdown has found is coupled to nothing.
    """
    count = w.shape[0]
    remainder, rows = jnp.zeros((count, count), w.dtype), []
    for c in range(count):
        row = w[c]
        for _ in range(2):
            for p, q in enumerate(rows):
                overlap = _coefficients(q[None], row[None], metric)[0, 0]
                row = row - overlap * q
                remainder = remainder.at[c, p].add(overlap)
        length = _length(row, metric)
        broken = ~(length > floor)  # true for NaN too
        unit = row / jnp.where(broken, 1.0, length)
        fresh = lax.cond(
            broken,
            lambda unit, c=c: random_rows(jax.random.fold_in(key, c), 1, w)[0] + 0.0 * unit,
            lambda unit: unit,
            jnp.where(broken, 0.0, unit),
        )
        rows.append(fresh)
        remainder = remainder.at[c, c].set(jnp.where(broken, 0.0, length).astype(w.dtype))
    return jnp.stack(rows), remainder


def _length(row: Array, metric: Metric) -> Array:
    if metric is None:
        return scaled_norms(row)
    largest = jnp.max(jnp.abs(row))
    largest = jnp.where((largest > 0.0) & jnp.isfinite(largest), largest, 1.0)
    unit = row / largest
    square = jnp.real(jnp.sum(jnp.conj(unit) * metric(unit[None])[0]))
    return jnp.sqrt(jnp.maximum(square, 0.0)) * largest


def orthogonalise(
    basis: Array, w: Array, scale: Array, key: Array, metric: Metric = None
) -> Orthogonalised:
    """Orthonormalise rows `w` against a basis and among themselves, in one pass or more.

    Args:
        basis: orthonormal rows and zero rows, shape `(m, n)`.
        w: shape `(b, n)`.
        scale: the norm of the operator, or the best known lower bound; what is left of a row is
            rounding, a breakdown, when it is shorter than a few `eps` of that.
        key: for the rows that replace it.
        metric: of the inner product.
    """
    floor = tolerances.breakdown_rtol(w.dtype) * scale
    first = _coefficients(basis, w, metric)
    q, remainder = _orthonormal_rows(w - combine(first, basis), floor, key, metric)
    noise = jnp.asarray(tolerances.lost_rtol(w.dtype), floor.dtype)

    def again(state: _Pass) -> _Pass:
        more = _coefficients(basis, state.q, metric)
        here = jax.random.fold_in(key, state.passes)
        q, r = _orthonormal_rows(state.q - combine(more, basis), noise, here, metric)
        return _Pass(
            q,
            state.coefficients + jnp.matmul(state.remainder, more, precision=HIGHEST),
            jnp.matmul(state.remainder, r, precision=HIGHEST),
            jnp.min(jnp.abs(jnp.diagonal(r))),
            state.passes + 1,
        )

    # Until a pass has left half of each row; what it leaves less of may be rounding or random.
    sizes = jnp.hypot(scaled_norms(first), scaled_norms(remainder))  # in the metric, without it
    kept = jnp.min(jnp.abs(jnp.diagonal(remainder)) / jnp.where(sizes > 0.0, sizes, 1.0))
    start = _Pass(q, first, remainder, kept.astype(floor.dtype), jnp.ones((), jnp.int32))
    last = lax.while_loop(lambda state: (state.kept < 0.5) & (state.passes <= PASSES), again, start)
    return Orthogonalised(last.q, last.coefficients, last.remainder)


class _Pass(NamedTuple):
    q: Array
    coefficients: Array
    remainder: Array
    kept: Array  # what the last pass has left of the shortest row
    passes: Array


def take_rows(x: Array, first: Array, count: int) -> Array:
    """`x[first : first + count]` for a traced `first`."""
    return lax.dynamic_slice_in_dim(x, first, count, axis=0)


def put(x: Array, block: Array, row: Array | int, column: Array | int = 0) -> Array:
    """`x` with `block` written at the traced position `(row, column)`."""
    at = (jnp.asarray(row, jnp.int32), jnp.asarray(column, jnp.int32))
    return lax.dynamic_update_slice(x, block.astype(x.dtype), at)
