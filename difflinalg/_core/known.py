"""A value that is known otherwise, with the derivative of an expression for it."""

from jax import Array

from difflinalg._core.operation import operation


@operation()
def known(expression: Array, value: Array) -> Array:
    """`value`, with the derivatives of `expression`, of which it is the value but for rounding.

    `expression` itself is not computed, unless a derivative needs it.
    """
    del expression
    return value


@known.defjvp
def _known_jvp(primals, tangents):
    return known(*primals), tangents[0]
