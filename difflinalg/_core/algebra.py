"""Matrix algebra that every rule shares: adjoints, Hermitian parts, products with all digits."""

from functools import partial, reduce

import jax.numpy as jnp
from jax import Array, lax

HIGHEST = lax.Precision.HIGHEST


def adjoint(x: Array) -> Array:
    """The conjugate transpose `x^H` of a stack of matrices, shape `(..., n, m)`."""
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def herm(x: Array) -> Array:
    """The Hermitian part `(x + x^H) / 2`; halved first, so that it cannot overflow."""
    return 0.5 * x + 0.5 * adjoint(x)


def skew(x: Array) -> Array:
    """The anti-Hermitian part `(x - x^H) / 2`."""
    return 0.5 * x - 0.5 * adjoint(x)


def mm(*factors: Array) -> Array:
    """The product of matrices from left to right, at the highest precision of the device."""
    return reduce(_matmul, factors)


def mm_adjoint(x: Array, y: Array) -> Array:
    """`x y^H`; the product reads `y` by rows, and nothing is transposed."""
    return _matmul(x, y, adjoint_right=True)


def adjoint_mm(x: Array, y: Array) -> Array:
    """`x^H y`."""
    return _matmul(x, y, adjoint_left=True)


def _matmul(
    x: Array, y: Array, *, adjoint_left: bool = False, adjoint_right: bool = False
) -> Array:
    """One product; a complex one by real products, which compilers multiply at full speed.

    Two complex factors take three real products (Higham 2002, section 23.2.4), normwise as
    accurate as four. A factor is transposed last, so that the compiler sees a product with a
    transposed matrix, and no transposed copy.
    """
    product = partial(jnp.matmul, precision=HIGHEST)
    left, right = _parts(x, adjoint_left), _parts(y, adjoint_right)
    if len(left) == len(right) == 3:
        ac, bd, rest = map(product, left, right)
        return lax.complex(ac - bd, rest - ac - bd)
    if len(left) == 3:
        return lax.complex(product(left[0], right[0]), product(left[1], right[0]))
    if len(right) == 3:
        return lax.complex(product(left[0], right[0]), product(left[0], right[1]))
    return product(left[0], right[0])


def _parts(x: Array, conjugate: bool) -> list[Array]:
    """`x`, or its real part, its imaginary part and their sum; transposed if conjugated."""
    parts = [x]
    if jnp.iscomplexobj(x):
        re, im = x.real, -x.imag if conjugate else x.imag
        parts = [re, im, re + im]
    return [jnp.swapaxes(part, -1, -2) for part in parts] if conjugate else parts


def diagonal_matrix(x: Array) -> Array:
    """Diagonal matrices, shape `(..., n, n)`, from their diagonals, shape `(..., n)`."""
    return x[..., None] * jnp.eye(x.shape[-1], dtype=x.dtype)


def real_diagonal(x: Array) -> Array:
    """The real part of the diagonal, shape `(..., n)`."""
    return jnp.real(jnp.diagonal(x, axis1=-2, axis2=-1))


def inv0(x: Array, tolerance: Array | float) -> Array:
    """`1 / x`, and 0 where `|x| <= tolerance`; its own derivative is finite everywhere."""
    safe = jnp.abs(x) > tolerance
    return jnp.where(safe, 1.0, 0.0) / jnp.where(safe, x, jnp.ones_like(x))


def lower_triangular_inverse(x: Array) -> Array:
    """The inverse of one small lower triangular matrix, shape `(n, n)`, by matrix products.

    Inverses of diagonal blocks are merged in pairs, from single entries on,
    `[[A, 0], [B, C]]^-1 = [[A^-1, 0], [-C^-1 B A^-1, C^-1]]`. A library call for so small a matrix
    wakes threads that go on spinning while the next product wants the cores.
    """
    n = x.shape[-1]
    size = 1 << max(0, (n - 1).bit_length())
    x = jnp.eye(size, dtype=x.dtype).at[:n, :n].set(x)
    inverse, width = 1.0 / jnp.diagonal(x)[:, None, None], 1
    while width < size:
        left, right = inverse[0::2], inverse[1::2]
        pair = jnp.arange(size // (2 * width))
        below = x.reshape(len(pair), 2, width, len(pair), 2, width)[pair, 1, :, pair, 0]
        corner = -mm(right, below, left)
        upper = jnp.concatenate([left, jnp.zeros_like(left)], axis=-1)
        lower = jnp.concatenate([corner, right], axis=-1)
        inverse, width = jnp.concatenate([upper, lower], axis=-2), 2 * width
    return inverse[0, :n, :n]
