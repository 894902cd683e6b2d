"""Products of matrix series, as a recurrence over the orders needs them.

A series `x(t) = x[0] + x[1] t + .. + x[K] t^K` is one array whose first axis is the order. In a
recurrence the coefficients that are not known yet are zero, so that every order is one step of a
`lax.scan` with the same shapes, and the size of the compiled program does not depend on K.

A recurrence of few orders is written out instead (`each_order`). Its index k is then a Python
integer, sums end at k, and nothing is multiplied by a coefficient that is not known yet.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core.algebra import HIGHEST, herm, mm, mm_adjoint

WRITTEN_OUT = 2  # the highest order of which the coefficients are treated one by one
State = TypeVar("State")
Product = Callable[[Array, Array], Array]


def each_order(step: Callable[[State, Array | int], State], state: State, order: int) -> State:
    """`state` after `step(state, k)` for `k = 1 .. order`."""
    if order <= WRITTEN_OUT:
        return reduce(step, range(1, order + 1), state)
    return lax.scan(lambda x, k: (step(x, k), None), state, jnp.arange(1, order + 1))[0]


def past(x: Array, k: Array | int) -> Array:
    """The coefficients `x[k], x[k - 1], .., x[k - K]`, zero where the index is negative."""
    index = k - jnp.arange(x.shape[0])
    known = (index >= 0).reshape(-1, *[1] * (x.ndim - 1))
    return jnp.where(known, x[jnp.maximum(index, 0)], jnp.zeros((), x.dtype))


def side_by_side(x: Array) -> Array:
    """`[x[0], x[1], ..]`, shape `(..., m, K n)`, the left factor of a convolution."""
    x = jnp.moveaxis(x, 0, -2)
    return x.reshape(*x.shape[:-2], -1)


def on_top(x: Array) -> Array:
    """`[x[0]; x[1]; ..]`, shape `(..., K n, p)`, the right factor of a convolution."""
    x = jnp.moveaxis(x, 0, -3)
    return x.reshape(*x.shape[:-3], -1, x.shape[-1])


def known_sum(times: Product, a: Array, b: Array, k: Array | int) -> Array:
    """The sum over `1 <= j <= k` of `times(a[j], b[k - j])`."""
    if isinstance(k, int):
        return _total(times, a, b, [(j, k - j) for j in range(1, k + 1)])
    return jnp.sum(jax.vmap(times)(a[1:], past(b, k)[1:]), axis=0)


def inner_sum(times: Product, a: Array, b: Array, k: Array | int) -> Array:
    """The sum over `1 <= j < k` of `times(a[j], b[k - j])`."""
    if isinstance(k, int):
        return _total(times, a, b, [(j, k - j) for j in range(1, k)])
    return known_sum(times, a, b.at[0].set(0.0), k)


def overlap(xh: Array, k: Array | int) -> Array:
    """The Hermitian part of `X[0]^H X[k]` that makes the rows of `xh = X^H` orthonormal."""
    return herm(-0.5 * inner_sum(mm_adjoint, xh, xh, k))


def _total(times: Product, a: Array, b: Array, pairs: list[tuple[int, int]]) -> Array:
    if not pairs:
        like = jax.eval_shape(times, a[0], b[0])
        return jnp.zeros(like.shape, like.dtype)
    return reduce(jnp.add, [times(a[i], b[j]) for i, j in pairs])


def product(*factors: Array) -> Array:
    """The product of matrix series of one length, from left to right."""
    result = factors[0]
    for factor in factors[1:]:
        result = _product(result, factor)
    return result


def _product(a: Array, b: Array) -> Array:
    """All orders by one product of matrices, with the block Toeplitz matrix of the narrower."""
    if a.shape[0] == 1:
        return mm(a[0], b[0])[None]
    if b.shape[-1] <= a.shape[-2]:  # [a0 a1 a2] [[b0 b1 b2], [0 b0 b1], [0 0 b0]]
        rows = jnp.stack([past(b, k) for k in range(b.shape[0])])  # (k, j, ..., n, p): b[k - j]
        rows = jnp.moveaxis(jnp.moveaxis(rows, 1, -3), 0, -2)  # (..., j, n, k, p)
        rows = rows.reshape(*rows.shape[:-4], rows.shape[-4] * rows.shape[-3], -1)
        both = mm(side_by_side(a), rows)
        return jnp.moveaxis(both.reshape(*both.shape[:-1], a.shape[0], -1), -2, 0)
    columns = jnp.stack([past(a, k) for k in range(a.shape[0])])  # (k, j, ..., m, n): a[k - j]
    columns = jnp.moveaxis(jnp.moveaxis(columns, 1, -2), 0, -4)  # (..., k, m, j, n)
    columns = columns.reshape(*columns.shape[:-4], columns.shape[-4] * columns.shape[-3], -1)
    both = mm(columns, on_top(b))
    return jnp.moveaxis(both.reshape(*both.shape[:-2], a.shape[0], -1, b.shape[-1]), -3, 0)


def scalar_product(a: Array, b: Array) -> Array:
    """The product of two series of numbers, shape `(K + 1, ...)`."""
    return jnp.stack([jnp.sum(a * past(b, k), axis=0) for k in range(a.shape[0])])


def set_order(x: Array, k: Array | int, value: Array) -> Array:
    """`x` with the coefficient of order `k` replaced."""
    value = value.astype(x.dtype)
    if isinstance(k, int):
        return jnp.concatenate([x[:k], value[None], x[k + 1 :]])
    return x.at[k].set(value)


def start(first: Array, order: int) -> Array:
    """A series of which the coefficient of order 0 is known."""
    return jnp.concatenate([first[None], jnp.zeros((order, *first.shape), first.dtype)])


class Chain:
    """The series of `x(t) F_1(t) F_2(t) ..` for rows x that become known order by order.

    Args:
        factors: series of matrices.
        times: how rows are multiplied by a matrix; with `mm_adjoint`, by its adjoint.
    """

    def __init__(self, factors: Sequence[Array], times: Product):
        self._factors = factors
        self._times = times

    def start(self, x: Array, order: int) -> tuple[Array, ...]:
        """The known series, of `x` and after each factor but the last."""
        known = [x]
        for factor in self._factors[:-1]:
            known.append(self._times(known[-1], factor[0]))
        return tuple(start(y, order) for y in known)

    def without(self, known: tuple[Array, ...], k: Array | int) -> tuple[Array, list[Array]]:
        """The coefficient of order k without `x[k]`, and what `complete` needs."""
        parts = [
            known_sum(lambda f, x: self._times(x, f), factor, y, k)
            for factor, y in zip(self._factors, known, strict=True)
        ]
        total = parts[0]
        for factor, part in zip(self._factors[1:], parts[1:], strict=True):
            total = self._times(total, factor[0]) + part
        return total, parts

    def complete(
        self, known: tuple[Array, ...], parts: list[Array], k: Array | int, x: Array
    ) -> tuple[Array, ...]:
        """The known series with the order k, of which `x` is the coefficient."""
        result = [set_order(known[0], k, x)]
        for factor, part, y in zip(self._factors[:-1], parts[:-1], known[1:], strict=True):
            x = self._times(x, factor[0]) + part
            result.append(set_order(y, k, x))
        return tuple(result)


def norms(x: Array) -> Array:
    """Frobenius norms of the coefficients, shape `(K + 1, ...)`."""
    squares = jnp.real(jnp.einsum("...ij,...ij->...", jnp.conj(x), x, precision=HIGHEST))
    return jnp.sqrt(squares)
