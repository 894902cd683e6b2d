"""The matrix exponential and its Frechet derivative.

Value. `exp(A) = (r(A / 2^s))^(2^s)` with the [13/13] Pade approximant r ([7/7] in single
precision), after balancing: `A = D B D^-1` with a diagonal D of powers of two, for which rows and
columns of B have similar norms, so `exp(A) = D exp(B) D^-1` without rounding errors. A matrix that
is badly scaled but harmless needs few squarings of B, where A itself would need dozens.

Rule. The module `matrix_function`; L(A, E) is the derivative of the same algorithm along E, with
s and D fixed, which is as accurate as the value (Al-Mohy and Higham 2009, section 3).
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.linalg import solve_triangular
from jax.typing import ArrayLike

from difflinalg._core import checks
from difflinalg._core.algebra import mm
from difflinalg._dense import matrix_function

# Coefficients of the numerator of the diagonal Pade approximants (Higham 2005, table 2.3 ff.),
# and the largest 1-norm for which their backward error is below rounding.
PADE_13 = (64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0,
           129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0,
           40840800.0, 960960.0, 16380.0, 182.0, 1.0)  # fmt: skip
PADE_7 = (17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0)
THETA_13, THETA_7 = 5.371920351148152, 3.925724783138660

DEFAULT_SQUARINGS = 16
BALANCING_SWEEPS = 20


def expm(A: ArrayLike, *, upper_triangular: bool = False, max_squarings: int = 16) -> Array:
    """Compute the matrix exponential.

    Args:
        A: shape `(..., n, n)`, real or complex.
        upper_triangular: read the upper triangle only.
        max_squarings: another value than the default gives NaN where more squarings are needed.
            At the default there is no limit (JAX gives NaN beyond 16, a norm of 3e5).

    Returns:
        `exp(A)`, shape `(..., n, n)`, of the dtype of `A` (integers become floats).

    Raises:
        ValueError: if `A` is not square.

    Derivatives:
        All orders, both modes in any nesting, everywhere: no eigenvalue is special.

    Cost:
        O(n^3): 6 products, one solve and `log2(|A| / 5.4)` squarings; a derivative costs three
        times that in either mode, and reverse mode keeps only `A`. Each further order of
        differentiation doubles the size of the matrix.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> print(jax.grad(lambda a: jnp.trace(expm(a)))(jnp.zeros((2, 2))))
        [[1. 0.]
         [0. 1.]]

    References:
        Higham, "The scaling and squaring method for the matrix exponential revisited" (2005),
        algorithm 2.3.
        Al-Mohy and Higham, "Computing the Frechet derivative of the matrix exponential" (2009).
        Parlett and Reinsch, "Balancing a matrix" (1969).
    """
    matrix = checks.as_square("expm", A, sequences=False)
    if upper_triangular:
        matrix = jnp.triu(matrix)
    limit = None if max_squarings == DEFAULT_SQUARINGS else math.floor(max_squarings)
    return matrix_function.apply(Exponential(upper_triangular, limit), matrix)


def expm_frechet(
    A: ArrayLike, E: ArrayLike, *, method: str | None = None, compute_expm: bool = True
) -> Array | tuple[Array, Array]:
    """Compute the Frechet derivative of the matrix exponential at `A` in the direction `E`.

    Args:
        A: shape `(..., n, n)`, real or complex.
        E: of the same shape.
        method: ignored, as in JAX.
        compute_expm: return `(exp(A), L(A, E))` instead of `L(A, E)` alone.

    Returns:
        The pair, or `L(A, E)`, each of shape `(..., n, n)`.

    Raises:
        ValueError: if `A` or `E` is not square, or the shapes differ.

    Derivatives:
        With respect to `A` and `E`; as those of `expm`.

    Cost:
        As `expm` differentiated once.

    Example:
        >>> import jax.numpy as jnp
        >>> print(expm_frechet(jnp.zeros((2, 2)), jnp.ones((2, 2)), compute_expm=False))
        [[1. 1.]
         [1. 1.]]

    References:
        Higham, "Functions of Matrices" (2008), equation (10.15).
    """
    del method
    a, e = checks.as_square("expm_frechet", A), checks.as_square("expm_frechet", E)
    if a.shape != e.shape:
        checks.refuse_shapes("expm_frechet", a.shape, e.shape)
    dtype = jnp.result_type(a, e)
    a, e = a.astype(dtype), e.astype(dtype)
    derivative = matrix_function.frechet(Exponential(), a, e)
    return (matrix_function.apply(Exponential(), a), derivative) if compute_expm else derivative


@dataclass(frozen=True)
class Exponential:
    """The exponential as a `MatrixFunction`; the derivative is that of the algorithm."""

    upper_triangular: bool = False
    max_squarings: int | None = None

    def value(self, a: Array) -> Array:
        """`exp(A)` of a single matrix."""
        if a.shape[-1] == 0:
            return a
        scale, norm = balancing(lax.stop_gradient(a))
        ratio = scale[None, :] / scale[:, None]
        balanced = a * ratio.astype(a.dtype)
        squarings = count_squarings(norm)
        power = _pade(scaled(balanced, -squarings), self.upper_triangular)
        power = lax.fori_loop(0, squarings, lambda _, x: mm(x, x), power)
        result = power / ratio.astype(a.dtype)
        if self.max_squarings is not None:
            result = jnp.where(squarings > self.max_squarings, jnp.nan, 1.0) * result
        return result.astype(a.dtype)

    def frechet(self, a: Array, e: Array) -> Array:
        """`L(A, E)`: forward mode through the loop of `value`."""
        # E may be full where A is triangular.
        general = Exponential(False, self.max_squarings)
        return jax.jvp(general.value, (a,), (e,))[1]

    def of_blocks(self) -> "Exponential":
        """Unchanged: no matrix is special."""
        return self


def balancing(a: Array) -> tuple[Array, Array]:
    """Powers of two, shape `(n,)`, for which `a[i, j] d[j] / d[i]` is balanced, and its 1-norm."""
    magnitude = jnp.abs(a)
    off_diagonal = magnitude * (1.0 - jnp.eye(a.shape[-1], dtype=magnitude.dtype))
    norm = jnp.max(jnp.sum(magnitude, axis=0))

    def sweep(state):
        d, _, count = state
        scaled = off_diagonal * (d[None, :] / d[:, None])
        column, row = jnp.sum(scaled, axis=0), jnp.sum(scaled, axis=1)
        usable = (column > 0) & (row > 0) & jnp.isfinite(column) & jnp.isfinite(row)
        ratio = jnp.where(usable, row, 1.0) / jnp.where(usable, column, 1.0)
        # Half of the way at once for all rows: full steps in parallel could oscillate.
        exponent = jnp.round(0.25 * jnp.log2(ratio))
        new = d * jnp.exp2(exponent)
        return new, jnp.any(exponent != 0), count + 1

    def balanced():
        start = (jnp.ones(a.shape[-1], magnitude.dtype), True, 0)
        d, _, _ = lax.while_loop(lambda s: s[1] & (s[2] < BALANCING_SWEEPS), sweep, start)
        new = jnp.max(jnp.sum(magnitude * (d[None, :] / d[:, None]), axis=0))
        helps = new < 0.5 * norm
        return jnp.where(helps, d, 1.0), jnp.where(helps, new, norm)

    # Where no squaring is needed anyway there is nothing to gain.
    ones = jnp.ones(a.shape[-1], magnitude.dtype)
    return lax.cond(count_squarings(norm) > 0, balanced, lambda: (ones, norm))


def count_squarings(norm: Array) -> Array:
    """The least s for which the Pade approximant is accurate at this norm over `2^s`."""
    theta = THETA_7 if jnp.finfo(norm.dtype).bits == 32 else THETA_13
    excess = norm / theta
    exponent = jnp.ceil(jnp.log2(jnp.where(jnp.isfinite(excess), jnp.maximum(excess, 1.0), 1.0)))
    return exponent.astype(jnp.int32)


def scaled(a: Array, exponent: Array) -> Array:
    """`2^exponent a`; in two steps, because `2^-1074` itself would be lost."""
    half = exponent // 2
    factors = jnp.exp2(half.astype(a.real.dtype)), jnp.exp2((exponent - half).astype(a.real.dtype))
    return (a * factors[0]) * factors[1]


def _pade(a: Array, upper_triangular: bool) -> Array:
    """The diagonal Pade approximant, `(V - U)^-1 (V + U)` with the odd and even parts U and V."""
    identity = jnp.eye(a.shape[-1], dtype=a.dtype)
    a2 = mm(a, a)
    a4 = mm(a2, a2)
    a6 = mm(a4, a2)
    if jnp.finfo(a.dtype).bits == 32:
        b = PADE_7
        u = mm(a, b[7] * a6 + b[5] * a4 + b[3] * a2 + b[1] * identity)
        v = b[6] * a6 + b[4] * a4 + b[2] * a2 + b[0] * identity
    else:
        b = PADE_13
        u = mm(a6, b[13] * a6 + b[11] * a4 + b[9] * a2)
        u = mm(a, u + b[7] * a6 + b[5] * a4 + b[3] * a2 + b[1] * identity)
        v = mm(a6, b[12] * a6 + b[10] * a4 + b[8] * a2)
        v = v + b[6] * a6 + b[4] * a4 + b[2] * a2 + b[0] * identity
    if upper_triangular:
        return solve_triangular(v - u, v + u)
    return jnp.linalg.solve(v - u, v + u)
