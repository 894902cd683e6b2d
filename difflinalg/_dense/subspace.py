"""Leading part of a spectrum by block subspace iteration, in fixed shapes and compiled loops.

A block of `b > k` vectors is multiplied by `A^H A` (or by a Hermitian `A`) until the `k` leading
triplets (or pairs) have the residual that a full decomposition would leave. The vectors are the
rows of the block: then neither product transposes the matrix. Each product is followed by an
orthonormalisation through a Cholesky factor, at the speed of a matrix product; only a
Rayleigh-Ritz step decomposes, a `b x b` matrix. The error falls by `(s[b] / s[k])^2` in a product
(Halko, Martinsson and Tropp 2011, section 4.5; Saad 2011, theorem 5.2), and after the first
Rayleigh-Ritz step the number of products to the next one is the one that this rate asks for.

A block that has not converged, because the spectrum is flat, is thrown away and the full
decomposition takes over. The fallback is a loop of at most one turn, not a conditional, because
a conditional under `vmap` runs both of its branches every time.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import tolerances
from difflinalg._core.algebra import adjoint, herm, lower_triangular_inverse, mm, mm_adjoint

FIRST_PRODUCTS = 2  # converge at a decay of about 1e-5 in a product, typical where ranks pay


class Block(NamedTuple):
    """Ritz triplets `a v = u s` of a block, sorted by decreasing `|s|`; vectors are rows."""

    uh: Array  # (b, m)
    s: Array  # (b,)
    vh: Array  # (b, n)
    image: Array  # (b, n), the product u^H a / scale
    residual: Array  # (), largest row norm of image - s v^H over the wanted rows
    rounds: Array  # ()
    products: Array  # (), how many products the next round takes


def subspace_svd(a: Array, rank: int, width: int, max_products: int) -> tuple[Block, Array]:
    """The leading `rank` singular triplets in a block of `width`, and whether they converged."""
    signs = _random_signs(a, width)
    first, scale = _first_block(a, signs)

    def times(uh: Array) -> Array:
        return mm(uh, a) / scale

    def times_adjoint(vh: Array) -> Array:
        return mm_adjoint(vh, a) / scale

    def one_round(block: Block) -> Block:
        def product(_: Array, vh: Array) -> Array:
            return times(times_adjoint(_well_conditioned(vh)))

        vh = lax.fori_loop(1, block.products, product, block.image)
        # Two products in a row square the small values down to rounding; not the last time.
        uh = _well_conditioned(times_adjoint(_well_conditioned(vh)))
        vh = orthonormal(times(uh), signs)
        uh = orthonormal(times_adjoint(vh), signs)
        image = times(uh)
        w, s, zh = _small_svd(mm_adjoint(image, vh))
        wh = adjoint(w)
        return _ritz_block(mm(wh, uh), s, mm(zh, vh), mm(wh, image), rank, block.rounds)

    block = _until_converged(one_round, first, max_products)
    return block._replace(s=block.s * scale), _has_converged(block)


def subspace_eigh(a: Array, rank: int, width: int, max_products: int) -> tuple[Block, Array]:
    """The `rank` eigenpairs of largest magnitude of a Hermitian matrix; `uh` equals `vh`."""
    signs = _random_signs(a, width)
    first, scale = _first_block(a, signs)

    def times(vh: Array) -> Array:
        return mm(vh, a) / scale

    def one_round(block: Block) -> Block:
        def product(_: Array, vh: Array) -> Array:
            return times(_well_conditioned(times(_well_conditioned(vh))))

        vh = orthonormal(lax.fori_loop(0, block.products, product, block.image), signs)
        image = times(vh)
        w, z = jnp.linalg.eigh(herm(mm_adjoint(image, vh)), symmetrize_input=False)
        order = jnp.argsort(-jnp.abs(w))
        w, zh = w[order], adjoint(z[:, order])
        vh = mm(zh, vh)
        return _ritz_block(vh, w, vh, mm(zh, image), rank, block.rounds)

    block = _until_converged(one_round, first, max_products)
    return block._replace(s=block.s * scale), _has_converged(block)


def or_else(block: Block, accepted: Array, full: Callable[[], Block]) -> Block:
    """`block`, or what `full` computes where it was not accepted."""
    _, block = lax.while_loop(
        lambda state: ~state[0],
        lambda state: (jnp.ones_like(state[0]), full()),
        (accepted, block),
    )
    return block


def orthonormal(y: Array, signs: Array) -> Array:
    """Orthonormal rows with the span of those of `y`, completed where these are dependent.

    Signs of the size of rounding give each row a direction of its own. A shifted pass lengthens
    the short directions, by the inverse root of the shift at most; when all are long, a pass
    without a shift restores the digits (Fukaya et al. 2020, sections 3 and 4). Shifted passes take
    a direction of squared length x to `x / (x + shift)`, hence to the fixed point `1 - shift`.
    """
    m, n = y.shape
    noise = tolerances.epsilon(y.dtype) / n**0.5 * signs[:, :n]
    longest = m * (1.0 - _shift(y))

    def has_short_directions(q: Array) -> Array:
        return longest - jnp.sum(jnp.square(_row_norms(q))) > 0.5  # false for NaN

    q = _divided_by_cholesky(_normalised(y) + noise, _shift(y))
    q = lax.while_loop(has_short_directions, lambda q: _divided_by_cholesky(q, _shift(y)), q)
    return _divided_by_cholesky(q, 0.0)


def _well_conditioned(y: Array) -> Array:
    """Rows with the span of those of `y`, near to orthonormal; dependent ones are short."""
    return _divided_by_cholesky(_normalised(y), _shift(y))


def _divided_by_cholesky(q: Array, shift: float) -> Array:
    """`L^-1 q` with the Cholesky factor L of the Gram matrix of the rows, shifted."""
    gram = mm_adjoint(q, q) + shift * jnp.eye(q.shape[0], dtype=q.dtype)
    return mm(lower_triangular_inverse(jnp.linalg.cholesky(gram, symmetrize_input=False)), q)


def _normalised(y: Array) -> Array:
    norms = _row_norms(y)
    return y / jnp.where(norms > 0.0, norms, 1.0)[:, None]


def _shift(y: Array) -> float:
    """The rounding of a Gram matrix of normalised rows."""
    return tolerances.epsilon(y.dtype) * sum(y.shape)


def _small_svd(x: Array) -> tuple[Array, Array, Array]:
    """The singular value decomposition of one small square matrix.

    On a CPU by QR iteration: divide and conquer takes two thirds of the time from 44 columns on,
    but wakes threads, which go on spinning while the products that follow want the cores.
    """
    serial = partial(lax.linalg.svd, algorithm=lax.linalg.SvdAlgorithm.QR)
    u, s, vh = lax.platform_dependent(x, cpu=serial, default=lax.linalg.svd)
    return u, s, vh


def _random_signs(a: Array, width: int) -> Array:
    """Random signs, which cost less than normal numbers and do as well in a sketch."""
    return jax.random.rademacher(jax.random.key(0), (width, max(a.shape)), a.real.dtype)


def _first_block(a: Array, signs: Array) -> tuple[Block, Array]:
    """The block of signs, multiplied once, and the scale of `a`, a power of two.

    Products are divided by the scale, so that squares of them stay in range.
    """
    (m, n), width = a.shape, signs.shape[0]
    image = mm(signs[:, :m], a)
    _, exponent = jnp.frexp(jnp.max(jnp.maximum(jnp.abs(image.real), jnp.abs(image.imag))))
    one, limits = jnp.ones((), a.real.dtype), jnp.finfo(a.dtype)
    scale = jnp.ldexp(one, jnp.clip(exponent, limits.minexp, limits.maxexp - 2))
    first = Block(
        jnp.zeros((width, m), a.dtype),
        jnp.ones((width,), a.real.dtype),
        jnp.zeros((width, n), a.dtype),
        image / scale,
        one * jnp.inf,
        0.0 * one,
        jnp.full((), FIRST_PRODUCTS, jnp.int32),
    )
    return first, scale


def _row_norms(x: Array) -> Array:
    return jnp.sqrt(jnp.sum(jnp.real(x * jnp.conj(x)), axis=1))


def _ritz_block(uh: Array, s: Array, vh: Array, image: Array, rank: int, rounds: Array) -> Block:
    """A block with its residual, and the products to convergence at `(s[b] / s[k])^2` in each."""
    size = jnp.abs(s)
    residual = jnp.max(_row_norms(image - s[:, None] * vh)[:rank])
    tiny = jnp.finfo(s.dtype).tiny
    ratio = jnp.clip(size[-1] / jnp.maximum(size[rank - 1], tiny), 1e-8, 0.999)
    target = tolerances.subspace_rtol(s.dtype) * size[0]
    excess = jnp.maximum(residual, tiny) / jnp.maximum(target, tiny)
    products = jnp.ceil(jnp.log(excess) / (-2.0 * jnp.log(ratio)))
    return Block(uh, s, vh, image, residual, rounds + 1, _as_count(products))


def _as_count(products: Array) -> Array:
    return jnp.clip(jnp.nan_to_num(products, nan=1e4), 1, 1e4).astype(jnp.int32)


def _until_converged(one_round: Callable[[Block], Block], first: Block, max_products: int) -> Block:
    """Iterate until the block has converged or the next round would take too many products."""

    def goes_on(block: Block) -> Array:
        return ~_has_converged(block) & (block.products <= max_products) & (block.rounds < 4)

    return lax.while_loop(goes_on, one_round, first)


def _has_converged(block: Block) -> Array:
    return block.residual <= tolerances.subspace_rtol(block.s.dtype) * jnp.abs(block.s[0])
