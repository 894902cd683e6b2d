"""Truncated power series of arrays, `x(t) = x_0 + x_1 t + ... + x_K t^K`.

The coefficients are normalised (the k-th derivative is `k! x_k`) and lie along the first axis of
one array. What does not depend on `t` is a plain array, not a series, and costs nothing. The order
`K` is the same for all series of a call.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Series:
    """A series with coefficients of shape `(K + 1, *shape)`."""

    coefficients: Array

    @property
    def order(self) -> int:
        """The order `K`."""
        return self.coefficients.shape[0] - 1


Value: TypeAlias = Any  # a `Series`, or a plain array, which is constant


def is_series(x: Any) -> bool:
    """Whether `x` depends on the expansion parameter."""
    return isinstance(x, Series)


def primal(x: Value) -> Array:
    """The coefficient of order 0."""
    return x.coefficients[0] if isinstance(x, Series) else x


def full(x: Value, order: int) -> Array:
    """All coefficients, shape `(order + 1, *shape)`, also of a constant."""
    if isinstance(x, Series):
        return x.coefficients
    x = jnp.asarray(x)
    return jnp.concatenate([x[None], jnp.zeros((order, *x.shape), x.dtype)])


def primals(tree: Any) -> Any:
    """A tree of values with every series replaced by its coefficient of order 0."""
    return jax.tree.map(primal, tree, is_leaf=is_series)


def column(x: Array, like: Array) -> Array:
    """A vector `x` along the first axis of `like`, to be multiplied with it."""
    return x.reshape((-1,) + (1,) * (like.ndim - 1))


def orders(like: Array, start: int = 0) -> Array:
    """The numbers `start, start + 1, ...` along the first axis of `like`, in its real dtype."""
    real = jnp.finfo(like.dtype).dtype
    return column(jnp.arange(start, start + like.shape[0], dtype=real), like)


def slope(x: Array) -> Array:
    """The coefficients of `dx/dt`, one fewer."""
    return orders(x[1:], 1) * x[1:]


def integral(start: Array, rate: Array) -> Array:
    """The coefficients of a series from its first one and those of its derivative."""
    return jnp.concatenate([start[None], rate / orders(rate, 1)])
