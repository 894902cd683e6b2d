"""The principal logarithm of a general matrix, real powers, and their derivatives.

Value. Inverse scaling and squaring on the complex Schur form `A = Z T Z^H`: square roots are
taken until `T^(1/2^k) = I + X` with a small X, and

    log T = 2^k log(I + X),    log(I + X) = integral of X (I + s X)^-1 over 0 <= s <= 1,

by a Gauss rule of 7 points, which is the [7/7] Pade approximant. The diagonals of X and of log T,
which the roots would spoil by cancellation, are computed from the eigenvalues themselves.

Rule. The module `matrix_function`, with L(A, E) from the triangular block matrix
`[[T, Z^H E Z], [0, T]]`. A power is `A^t = exp(t log A)`.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.linalg import solve_triangular
from jax.typing import ArrayLike

from difflinalg._core import checks
from difflinalg._core.algebra import adjoint, mm
from difflinalg._core.tolerances import branch_rtol
from difflinalg._dense import matrix_function
from difflinalg._dense.expm import Exponential, expm
from difflinalg._dense.sqrtm import triangular_sqrt
from difflinalg._dense.sylvester import SchurFactors, principal_schur_factors

# Below this 1-norm of X the [7/7] approximant has a backward error below rounding (Al-Mohy and
# Higham 2012, table 2.1).
THETA = 0.264
GAUSS_POINTS = 7
MAX_ROOTS = 100  # the roots of the largest and the smallest number need 12


def logm(A: ArrayLike, disp: bool = True) -> Array | tuple[Array, Array]:
    """Compute the principal matrix logarithm.

    Args:
        A: shape `(..., n, n)`, real or complex, without eigenvalue 0.
        disp: with False, the error `|exp(log A) - A|_1 / |A|_1` is returned too.

    Returns:
        `log A`, shape `(..., n, n)`, complex also for a real `A`; with `disp=False` the pair of
        it and the error, shape `(...)`. Not finite where `A` is singular.

    Raises:
        ValueError: if `A` is not square.

    Derivatives:
        All orders, both modes in any nesting, also at repeated and defective eigenvalues. Not
        finite where `A` is singular. At an eigenvalue on the negative real axis, the branch cut,
        the first derivative is that of the branch with the argument pi, higher ones are NaN.

    Cost:
        O(n^3): one Schur decomposition (CPU only) and about 5 to 15 triangular square roots. A
        derivative does the same for a matrix of twice the size, as does each further order.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> a = jnp.array([[2.0, 0.0], [0.0, 4.0]])
        >>> gradient = jax.grad(lambda a: jnp.trace(logm(a)).real)(a)
        >>> bool(jnp.allclose(gradient, jnp.diag(jnp.array([0.5, 0.25])), atol=1e-5))
        True

    References:
        Al-Mohy and Higham, "Improved inverse scaling and squaring algorithms for the matrix
        logarithm" (2012), algorithm 4.1.
        Higham, "Functions of Matrices" (2008), theorem 11.4 and equation (11.18).
    """
    matrix = checks.as_square("logm", A, half=True)
    matrix = matrix.astype(jnp.result_type(matrix.dtype, jnp.complex64))
    logarithm = matrix_function.apply(Logarithm(), matrix)
    if disp:
        return logarithm
    back = matrix_function.apply(Exponential(), lax.stop_gradient(logarithm))
    error = _norm(back - lax.stop_gradient(matrix)) / _norm(lax.stop_gradient(matrix))
    return logarithm, error


def fractional_matrix_power(A: ArrayLike, t: ArrayLike) -> Array:
    """Compute a real power of a matrix, `A^t`.

    Args:
        A: shape `(..., n, n)`, real or complex.
        t: a real number. A Python integer, or a Python float of integer value, gives products
            of `A` (or of its inverse); anything else `exp(t log A)`.

    Returns:
        `A^t`, shape `(..., n, n)`. Complex also for a real `A`, except for integer powers. Not
        finite where `A` is singular and `t` is neither zero nor a positive integer.

    Raises:
        ValueError: if `A` is not square or `t` is not a single real number.

    Derivatives:
        With respect to `A`, and to `t` where it is an array; all orders, both modes in any
        nesting, as for `logm`.

    Cost:
        That of `logm` and `expm`; of `matrix_power` for integer powers.

    Example:
        >>> import jax.numpy as jnp
        >>> print(fractional_matrix_power(jnp.array([[4.0, 0.0], [0.0, 9.0]]), 0.5).real.round(4))
        [[2. 0.]
         [0. 3.]]

    References:
        Higham and Lin, "A Schur-Pade algorithm for fractional powers of a matrix" (2011),
        equation (1.1).
    """
    matrix = checks.as_square("fractional_matrix_power", A, half=True)
    if isinstance(t, (int, float)) and t == int(t):
        return jnp.linalg.matrix_power(matrix, int(t))
    power = checks.as_inexact("fractional_matrix_power", t)
    if power.shape or jnp.iscomplexobj(power):
        checks.refuse_shapes("fractional_matrix_power", matrix.shape, power.shape)
    logarithm = logm(matrix)
    return expm(power.astype(matrix.real.dtype) * jnp.asarray(logarithm))


@dataclass(frozen=True)
class Logarithm:
    """The principal logarithm as a `MatrixFunction` of complex matrices.

    Args:
        blocks: for block matrices, whose eigenvalues are multiple and computed to half of the
            digits or less. Of such a one beside the branch cut the side is not known: NaN.
    """

    blocks: bool = False

    def value(self, a: Array) -> Array:
        """`log A` of a single matrix."""
        t, z = self._factors(a)
        return mm(z, triangular_log(t), adjoint(z))

    def frechet(self, a: Array, e: Array) -> Array:
        """`L(A, E)`, from the logarithm of a triangular matrix of twice the size."""
        t, z = self._factors(a)
        n = a.shape[-1]
        inner = mm(adjoint(z), e, z)
        # E of the size of T, so that the number of roots is decided by T.
        size = _norm(inner) / jnp.where(_norm(t) > 0.0, _norm(t), 1.0)
        size = jnp.where(size > 0.0, size, 1.0)
        block = triangular_log(matrix_function.block_triangular(t, inner / size))
        return mm(z, size * block[:n, n:], adjoint(z))

    def of_blocks(self) -> "Logarithm":
        """The logarithm that refuses eigenvalues beside the branch cut."""
        return Logarithm(True)

    def _factors(self, a: Array) -> SchurFactors:
        t, z = principal_schur_factors(a)
        if self.blocks:
            w = jnp.diagonal(t)
            beside = (w.real < 0.0) & (jnp.abs(w.imag) <= branch_rtol(t.dtype) * jnp.abs(w))
            t = jnp.where(jnp.any(beside), jnp.nan, 1.0).astype(t.real.dtype) * t
        return SchurFactors(t, z)


def triangular_log(t: Array) -> Array:
    """The logarithm of an upper triangular complex matrix."""
    if t.shape[-1] == 0:
        return t
    identity = jnp.eye(t.shape[-1], dtype=t.dtype)

    def large(state):
        root, count = state
        return (_norm(root - identity) > THETA) & (count < MAX_ROOTS)

    root, count = lax.while_loop(
        large, lambda state: (triangular_sqrt(state[0]), state[1] + 1), (t, 0)
    )
    scale = 2.0 ** jnp.asarray(count, t.real.dtype)
    logs = jnp.log(jnp.diagonal(t))
    x = jnp.triu(root, 1) + jnp.diag(jnp.expm1(logs / scale))
    points, weights = np.polynomial.legendre.leggauss(GAUSS_POINTS)
    points, weights = (1.0 + points) / 2.0, weights / 2.0
    nodes = jnp.asarray(points, t.real.dtype), jnp.asarray(weights, t.real.dtype)

    def term(point, weight):
        return weight * solve_triangular(identity + point * x, x)

    result = scale * jnp.sum(jax.vmap(term)(*nodes), axis=0)
    return jnp.triu(result, 1) + jnp.diag(logs)


def _norm(a: Array) -> Array:
    return jnp.max(jnp.sum(jnp.abs(a), axis=-2), axis=-1, initial=0.0)
