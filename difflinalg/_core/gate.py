"""Tangents that must be loud."""

import jax.numpy as jnp
from jax import Array, lax


def refuse(x: Array, condition: Array) -> Array:
    """`x`, and NaN where `condition` holds, except for exact zeros, in both modes.

    A gradient that does not depend on the factor in question so survives (0 times NaN would not);
    the solve of the equation `y = x` is where JAX lets both modes have the same exception.
    """

    def gate(_, b):
        return jnp.where(condition & (b != 0), jnp.full_like(b, jnp.nan), b)

    return lax.custom_linear_solve(lambda y: y, x, gate, gate)
