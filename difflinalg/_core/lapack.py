"""Decompositions by the library under JAX, also of matrices that are not finite.

LAPACK's divide and conquer need not end where an entry is infinite, and answers NaN in part with
numbers. Such a matrix is replaced before, and the result is NaN throughout.
"""

import jax.numpy as jnp
from jax import Array


def svd(a: Array, full_matrices: bool = False) -> tuple[Array, Array, Array]:
    """`U`, `s` and `V^H`, the same as those of JAX."""
    usable, finite = _finite(a)
    u, s, vh = jnp.linalg.svd(usable, full_matrices=full_matrices)
    return _or_nan(finite, u), _or_nan(finite[..., 0], s), _or_nan(finite, vh)


def eigh(a: Array) -> tuple[Array, Array]:
    """Ascending eigenvalues and eigenvectors; the lower triangle is read."""
    usable, finite = _finite(a)
    w, v = jnp.linalg.eigh(usable, UPLO="L", symmetrize_input=False)
    return _or_nan(finite[..., 0], w), _or_nan(finite, v)


def _finite(a: Array) -> tuple[Array, Array]:
    """The finite members of a stack, zero in the place of the others; and which these are."""
    finite = jnp.all(jnp.isfinite(a), axis=(-2, -1), keepdims=True)
    return jnp.where(finite, a, jnp.zeros((), a.dtype)), finite


def _or_nan(finite: Array, x: Array) -> Array:
    return jnp.where(finite, x, jnp.full((), jnp.nan, x.dtype))
