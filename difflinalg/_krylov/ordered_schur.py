"""The leading invariant subspace of a small general matrix, with the wanted eigenvalues first.

A complex Schur form `H = Z T Z^H` is reordered by rotations that swap neighbours on the diagonal,
each of which is backward stable, whatever the condition of the eigenvectors. Of a real matrix the
two values of a conjugate pair stay together, and an invariant subspace that holds whole pairs has
a real basis.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core.algebra import adjoint, mm
from difflinalg._dense.rsf2csf import complex_form

Order = Callable[[Array], Array]  # eigenvalues to the permutation that puts wanted ones first


class OrderedSchur(NamedTuple):
    """`H Z = Z T`, and which values are the first of a conjugate pair of a real matrix."""

    t: Array  # (m, m), complex, upper triangular
    z: Array  # (m, m), unitary
    opens_pair: Array  # (m,), bool


def ordered_schur(h: Array, order: Order, leading: int) -> OrderedSchur:
    """The Schur form of `h` with its `leading` wanted eigenvalues in order, the rest behind."""
    t, z = jax.scipy.linalg.schur(h)
    size = h.shape[0]
    opens_pair = jnp.zeros((size,), bool)
    if not jnp.iscomplexobj(h):
        opens_pair = opens_pair.at[:-1].set(jnp.diagonal(t, -1) != 0.0)
        t, z = complex_form(t, z)
    rank = jnp.argsort(order(jnp.diagonal(t)))
    # Both values of a pair take the better rank of the two; a tie keeps their order.
    with_next = jnp.minimum(rank, jnp.append(rank[1:], size))
    rank = jnp.where(opens_pair, with_next, rank)
    closes_pair = jnp.append(False, opens_pair[:-1])
    rank = jnp.where(closes_pair, jnp.append(size, rank[:-1]), rank)
    position = jnp.argsort(jnp.argsort(rank, stable=True))
    wanted = jnp.minimum(position, leading)
    t, z, (_, opens_pair) = _sort(t, z, (wanted, opens_pair))
    return OrderedSchur(t, z, opens_pair)


def _sort(t: Array, z: Array, labels: tuple[Array, Array]) -> tuple[Array, Array, tuple]:
    """Swap neighbours on the diagonal until the first label is ascending."""

    def descents(labels) -> Array:
        return labels[0][:-1] > labels[0][1:]

    def swap(state):
        t, z, labels = state
        i = jnp.argmax(descents(labels))
        block = lax.dynamic_slice(t, (i, i), (2, 2))
        first, second = block[0, 1], block[1, 1] - block[0, 0]
        size = jnp.sqrt(jnp.abs(first) ** 2 + jnp.abs(second) ** 2)
        usable = size > 0.0
        size = jnp.where(usable, size, 1.0)
        # The eigenvector of the second value becomes the first basis vector.
        x, y = jnp.where(usable, first / size, 0.0), jnp.where(usable, second / size, 1.0)
        turn = jnp.stack([jnp.stack([x, -jnp.conj(y)]), jnp.stack([y, jnp.conj(x)])])
        rows = mm(adjoint(turn), lax.dynamic_slice_in_dim(t, i, 2, axis=0))
        t = lax.dynamic_update_slice_in_dim(t, rows, i, axis=0)
        columns = mm(lax.dynamic_slice_in_dim(t, i, 2, axis=1), turn)
        t = lax.dynamic_update_slice_in_dim(t, columns, i, axis=1)
        exchanged = jnp.diag(jnp.stack([block[1, 1], block[0, 0]]))
        corner = lax.dynamic_slice(t, (i, i), (2, 2))
        corner = exchanged.at[0, 1].set(corner[0, 1])
        t = lax.dynamic_update_slice(t, corner, (i, i))
        columns = mm(lax.dynamic_slice_in_dim(z, i, 2, axis=1), turn)
        z = lax.dynamic_update_slice_in_dim(z, columns, i, axis=1)
        pairs = (lax.dynamic_slice_in_dim(label, i, 2)[::-1] for label in labels)
        labels = tuple(
            lax.dynamic_update_slice_in_dim(label, pair, i, axis=0)
            for label, pair in zip(labels, pairs, strict=True)
        )
        return t, z, labels

    return lax.while_loop(lambda state: jnp.any(descents(state[2])), swap, (t, z, labels))


def leading_basis(form: OrderedSchur, count: Array, limit: int, real: bool) -> Array:
    """An orthonormal basis of the first `count <= limit` Schur vectors, other columns zero.

    Real if asked for; the space must then hold whole conjugate pairs.
    """
    live = jnp.arange(limit) < count
    basis = jnp.where(live[None, :], form.z[:, :limit], 0.0)
    if not real:
        return basis
    # Z Z^H is real, with eigenvalues 1 and 0.
    _, vectors = jnp.linalg.eigh(jnp.real(mm(basis, adjoint(basis))))
    return jnp.where(live[None, :], vectors[:, ::-1][:, :limit], 0.0)
