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

from difflinalg._core import tolerances
from difflinalg._core.algebra import adjoint, mm

Order = Callable[[Array], Array]  # eigenvalues to the permutation that puts wanted ones first


class OrderedSchur(NamedTuple):
    """`H Z = Z T`, and which values are the first of a conjugate pair of a real matrix."""

    t: Array  # (m, m), complex, upper triangular
    z: Array  # (m, m), unitary
    opens_pair: Array  # (m,), bool


def ordered_schur(h: Array, order: Order, leading: int) -> OrderedSchur:
    """The Schur form of `h` with its `leading` wanted eigenvalues in order, the rest behind."""
    sound = jnp.all(jnp.isfinite(h))
    t, z = jax.scipy.linalg.schur(jnp.where(sound, h, 0.0))  # LAPACK need not see NaN
    opens = jnp.zeros((h.shape[0],), bool)
    if not jnp.iscomplexobj(h):
        t, z = _without_noise(t, z)
        opens = opens.at[:-1].set(jnp.diagonal(t, -1) != 0.0)
        t, z = _complex_form(t, z, opens)
    closes = jnp.roll(opens, 1)
    partner = jnp.arange(h.shape[0]) + opens - closes
    rank = jnp.argsort(order(jnp.diagonal(t)))
    # Both values of a pair take the better rank of the two, and keep their order.
    pair_rank = jnp.minimum(rank, rank[partner])
    sorting = jnp.lexsort((rank, pair_rank))
    ranks, paired = pair_rank[sorting], (opens | closes)[sorting]
    opens = paired & (ranks == jnp.append(ranks[1:], -1))
    t, z = _sort(t, z, jnp.minimum(jnp.argsort(sorting), leading))
    return OrderedSchur(jnp.where(sound, t, jnp.nan), z, opens)


def _without_noise(t: Array, z: Array) -> tuple[Array, Array]:
    """The real Schur form with real values for pairs whose imaginary part is rounding.

    The diagonal of a block of LAPACK is constant: without the smaller one of its other two
    entries, which is below the imaginary part, it is triangular. Sorted among values that differ
    from it by rounding, such a pair would leave a space that is invariant and not real, which
    `leading_basis` cannot represent.
    """
    bound = tolerances.breakdown_rtol(t.dtype) * jnp.max(jnp.abs(t))
    index = jnp.arange(t.shape[0])
    upper, lower = jnp.diagonal(t, 1), jnp.diagonal(t, -1)
    noise = (lower != 0.0) & (jnp.sqrt(jnp.abs(upper)) * jnp.sqrt(jnp.abs(lower)) <= bound)
    turned = noise & (jnp.abs(lower) > jnp.abs(upper))
    t = t.at[index[1:], index[:-1]].set(jnp.where(noise & ~turned, 0.0, lower))
    t = t.at[index[:-1], index[1:]].set(jnp.where(turned, 0.0, upper))
    order = index + jnp.append(turned, False) - jnp.append(False, turned)
    return t[order][:, order], z[:, order]


def _turn(t: Array, z: Array, i: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """Make an eigenvector `(first, second)` of a diagonal block the first vector of the block."""
    # Scaled first: both may be so small that their squares underflow.
    largest = jnp.maximum(jnp.abs(first), jnp.abs(second))
    usable = largest >= jnp.finfo(largest.dtype).tiny
    largest = jnp.where(usable, largest, 1.0)
    first, second = first / largest, second / largest
    first, second = jnp.where(usable, first, 0.0), jnp.where(usable, second, 1.0)
    size = jnp.sqrt(jnp.abs(first) ** 2 + jnp.abs(second) ** 2)
    x, y = first / size, second / size

    def columns(a: Array) -> Array:
        pair = lax.dynamic_slice_in_dim(a, i, 2, axis=1)
        a_0, a_1 = pair[:, 0], pair[:, 1]
        turned = jnp.stack([a_0 * x + a_1 * y, a_1 * jnp.conj(x) - a_0 * jnp.conj(y)], axis=1)
        return lax.dynamic_update_slice_in_dim(a, turned, i, axis=1)

    t = jnp.conj(columns(jnp.conj(columns(t)).T)).T
    return t, columns(z)


def _complex_form(t: Array, z: Array, opens: Array) -> tuple[Array, Array]:
    """The complex form of a real Schur form, positive imaginary parts first, pairs exact."""
    dtype = jnp.result_type(t.dtype, jnp.complex64)
    if t.shape[0] < 2:
        return t.astype(dtype), z.astype(dtype)

    def step(i, form):
        t, z = form
        (a, b), (c, d) = lax.dynamic_slice(t, (i, i), (2, 2))
        half = 0.5 * (a - d)
        root = jnp.sqrt(half * half + b * c)
        root = jnp.where(root.imag < 0.0, -root, root)
        mean = (0.5 * (a + d)).real
        # A block that is triangular, or so to the last digit, stays as it is.
        first = jnp.where(opens[i], half + root, 0.0)
        second = jnp.where(first == 0.0, 0.0, c)
        turned, z = _turn(t, z, i, jnp.where(first == 0.0, 1.0, first), second)
        values = lax.complex(mean, jnp.abs(root.imag))
        block = jnp.stack(
            [jnp.stack([values, turned[i, i + 1]]), jnp.stack([0.0 * values, jnp.conj(values)])]
        )
        block = jnp.where(opens[i], block, lax.dynamic_slice(turned, (i, i), (2, 2)))
        return lax.dynamic_update_slice(turned, block, (i, i)), z

    return lax.fori_loop(0, t.shape[0] - 1, step, (t.astype(dtype), z.astype(dtype)))


def _sort(t: Array, z: Array, labels: Array) -> tuple[Array, Array]:
    """Swap neighbours on the diagonal until their labels are ascending."""
    if t.shape[0] < 2:
        return t, z

    def descents(labels: Array) -> Array:
        return labels[:-1] > labels[1:]

    def swap(state):
        t, z, labels = state
        i = jnp.argmax(descents(labels))
        first, second = t[i, i], t[i + 1, i + 1]
        t, z = _turn(t, z, i, t[i, i + 1], second - first)
        t = t.at[i, i].set(second).at[i + 1, i + 1].set(first).at[i + 1, i].set(0.0)
        pair = lax.dynamic_slice_in_dim(labels, i, 2)[::-1]
        return t, z, lax.dynamic_update_slice_in_dim(labels, pair, i, axis=0)

    going = lax.while_loop(lambda state: jnp.any(descents(state[2])), swap, (t, z, labels))
    return going[0], going[1]


def leading_pairs(h: Array, order: Order, count: int) -> tuple[Array, Array, Array]:
    """The first `count` eigenvalues, their vectors of length 1 as columns, the other values."""
    form = ordered_schur(h, order, count)
    theta = jnp.diagonal(form.t)
    return theta[:count], leading_vectors(form, count), theta[count:]


def leading_vectors(form: OrderedSchur, count: int) -> Array:
    """The eigenvectors of the first `count` values, columns of length 1.

    By substitution in the Schur form. Where two values and their coupling differ from a multiple
    of the identity by rounding, the Schur vectors themselves are taken: a solver that divides
    rounding by rounding makes nearly dependent vectors of a multiplet.
    """
    t, k = form.t, count
    scale, real = jnp.max(jnp.abs(t)), jnp.finfo(t.dtype).dtype
    noise = tolerances.block_residual_rtol(real) * scale
    close = tolerances.cluster_rtol(real) * scale
    leading = t[:k, :k]
    index = jnp.arange(k)

    def substitute(step, y):
        i = k - 1 - step
        row = jnp.where(index > i, leading[i], 0.0)
        known = mm(row[None], y)[0]
        gap = jnp.diagonal(leading) - leading[i, i]
        same = (jnp.abs(gap) <= close) & (jnp.abs(known) <= noise)
        gap = jnp.where(jnp.abs(gap) <= tolerances.epsilon(real) * scale, noise, gap)
        gap = jnp.where(gap == 0.0, 1.0, gap)
        new = jnp.where(same | (index <= i), y[i], known / gap)
        return y.at[i].set(new)

    y = lax.fori_loop(0, k, substitute, jnp.eye(k, dtype=t.dtype))
    y = y / jnp.sqrt(jnp.sum(jnp.abs(y) ** 2, axis=0))
    return mm(form.z[:, :k], y)


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
