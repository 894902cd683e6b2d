"""NaN for derivatives that do not exist, without harm to losses that do not use them."""

import jax.numpy as jnp
from jax import Array, lax


def refuse_where(x: Array, condition: Array) -> Array:
    """`x`, and NaN where `condition` holds, except for exact zeros, in both modes.

    A gradient that does not depend on the part in question so survives (0 times NaN would not);
    the solve of the equation `y = x` is where JAX lets both modes have the same exception.
    """

    def gate(_, b):
        return jnp.where(condition & (b != 0), jnp.full_like(b, jnp.nan), b)

    return lax.custom_linear_solve(lambda y: y, x, gate, gate)
