"""Series of functions of a Hermitian matrix, not through its eigenvectors.

`A(t)` is block diagonalised on clusters of eigenvalues (`hermitian.block_series`), with a frame
that moves no faster than the clusters are apart, and the function of a block is its Taylor
polynomial around the centre of the cluster,

    f(D) = sum over p of f^(p)(c) / p! (D - c)^p,

which is exact to order K with the terms p <= K where the cluster is one value; EXTRA terms more
account for its width. A pair is a cluster where the error of that polynomial is below the error
that the gap would cause (module `clusters`). No gap is divided by otherwise.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import tolerances
from difflinalg._core.algebra import adjoint, herm, mm
from difflinalg._dense.funm_hermitian import Arguments, Function, decompose
from difflinalg._taylor.clusters import ends_of, gaps, labels_of, noise, same_label
from difflinalg._taylor.convolution import product
from difflinalg._taylor.hermitian import block_series, mean_in_cluster
from difflinalg._taylor.interpreter import interpret_closed
from difflinalg._taylor.series import Series, full, primals

EXTRA = 8


def funm_series(a: Array, arguments: Arguments, function: Function, order: int) -> Array:
    """The series of `f(A(t))`, shape `(K + 1, ..., n, n)`.

    Args:
        a: a Hermitian series, shape `(K + 1, ..., n, n)`.
        arguments: what `f` closes over, constants or series.
        function: `f` on scalars.
        order: K.
    """
    dtype = jnp.result_type(a, function.dtype)
    if a.shape[-1] == 0:
        return a.astype(dtype)
    w, v = decompose(a[0])
    b = mm(adjoint(v), herm(a), v)
    labels = labels_of(ends_of(_close(b, w, arguments, function, order)))
    centre = mean_in_cluster(w, labels)
    blocks = block_series(b, w, same_label(labels))
    identity = jnp.eye(a.shape[-1], dtype=dtype)
    moved = blocks.d.at[0].add(-identity * centre[..., None, :]).astype(dtype)
    terms = _series_of_terms(function, arguments, centre, order)

    def horner(total: Array, term: Array) -> tuple[Array, None]:
        return product(total, moved) + identity * term[..., None, :], None

    start = identity * terms[-1][..., None, :]
    value, _ = lax.scan(horner, start.astype(dtype), terms[:-1][::-1].astype(dtype))
    frame = mm(v, blocks.z).astype(dtype)
    return product(frame, value, adjoint(frame))


def _close(b: Array, w: Array, arguments: Arguments, function: Function, order: int) -> Array:
    """The pairs of one cluster, shape `(..., n, n)`."""
    gap = gaps(w)
    size = jnp.max(jnp.abs(w), axis=-1)
    width = w[..., -1] - w[..., 0]
    rounding = tolerances.identity_rtol(w.dtype, w.shape[-1]) * size
    terms = jnp.abs(_terms(function, primals(arguments), w, order + EXTRA))
    last = jnp.maximum(terms[-1][..., :, None], terms[-1][..., None, :])
    largest = jnp.max(terms[: order + 1], axis=-1)[..., None, None]
    powers = jnp.arange(order + EXTRA, EXTRA - 1, -1).reshape(-1, *[1] * gap.ndim)
    shares = last * gap**powers / jnp.where(largest > 0.0, largest, jnp.inf)
    tail = jnp.max(shares, axis=0)  # what the terms beyond the last are worth, at any order
    scale = jnp.where(width > 0.0, width, jnp.where(size > 0.0, size, 1.0))
    kept = noise(b, gap, scale, order)
    return (gap <= rounding[..., None, None]) | (tail < kept)


def _terms(function: Function, arguments: Arguments, points: Array, count: int) -> Array:
    """`f^(p)(x) / p!` for p = 0 .. count at the points, shape `(count + 1, ..., n)`."""
    closed = jax.make_jaxpr(lambda x: function.on_array(x, arguments))(points)
    x = jnp.zeros((count + 1, *points.shape), points.dtype).at[0].set(points)
    (y,) = interpret_closed(closed, [Series(x.at[1].set(1.0))], count)
    return full(y, count)


def _series_of_terms(function: Function, arguments: Arguments, points: Array, order: int) -> Array:
    """The same as series in t, shape `(count + 1, K + 1, ..., n)`."""

    def terms(smooth: tuple[Array, ...]) -> Array:
        return _terms(function, Arguments(smooth, arguments.fixed), points, order + EXTRA)

    closed = jax.make_jaxpr(terms)(primals(arguments.smooth))
    (y,) = interpret_closed(closed, list(arguments.smooth), order)
    return jnp.moveaxis(full(y, order), 0, 1)
