"""The block Lanczos process with full reorthogonalisation, in arrays of fixed shape.

With orthonormal rows `q_i` of a basis, the process keeps all Gram-Schmidt coefficients

    A q_i = sum_j gram[i, j] q_j,    gram[i, j] = <q_j, A q_i>,

rather than a band: after a restart the arrowhead of the thick-restart Lanczos method (Wu and Simon
2000, equation 3.6) appears by itself. For a Hermitian operator `gram` is Hermitian up to rounding,
which is how one that is not is found out.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._krylov.orthogonal import Metric, orthogonalise, put, scaled_norms, take_rows


class Basis(NamedTuple):
    """The basis and the coefficients; the rows `filled` to `filled + b` are not processed yet."""

    q: Array  # (m + b, n)
    gram: Array  # (m + b, m + b)
    filled: Array  # (), int32
    scale: Array  # (), largest norm of `A q` seen
    products: Array  # (), int32, how often the operator was applied to a vector


def start(rows: Array, length: int, key: Array, metric: Metric) -> Basis:
    """A basis that holds the orthonormalised `rows` only, with room for `length` and a block."""
    block, n = rows.shape
    real = jnp.finfo(rows.dtype).dtype
    empty = jnp.zeros((length + block, n), rows.dtype)
    floor = jnp.asarray(jnp.finfo(real).tiny, real)
    first = orthogonalise(empty[:1], rows, floor, key, metric).q
    return Basis(
        put(empty, first, 0),
        jnp.zeros((length + block, length + block), rows.dtype),
        jnp.zeros((), jnp.int32),
        jnp.zeros((), real),
        jnp.zeros((), jnp.int32),
    )


def extend(
    apply: Callable[[Array], Array], basis: Basis, block: int, key: Array, metric: Metric
) -> Basis:
    """Apply the operator to one block after the other, until the basis is full."""
    length = basis.q.shape[0] - block

    def step(basis: Basis) -> Basis:
        q, gram, j = basis.q, basis.gram, basis.filled
        w = apply(take_rows(q, j, block))
        scale = jnp.maximum(basis.scale, jnp.max(scaled_norms(w)))
        new = orthogonalise(q, w, scale, jax.random.fold_in(key, j), metric)
        gram = put(gram, new.coefficients, j)
        gram = put(gram, new.remainder, j, j + block)
        q = put(q, new.q, j + block)
        return Basis(q, gram, j + block, scale, basis.products + block)

    return lax.while_loop(lambda basis: basis.filled + block <= length, step, basis)
