"""The principal square root of a general matrix and its derivative.

Value. With the complex Schur form `A = Z T Z^H`, `X = Z U Z^H`, where `U^2 = T` for the upper
triangular U, column after column (Bjorck and Hammarling; here a whole column at a time):

    U[j, j] = sqrt(T[j, j]),    (U[:j, :j] + U[j, j] I) U[:j, j] = T[:j, j]

Rule. Differentiating `X X = A` gives the Sylvester equation `X X_dot + X_dot X = A_dot`, whose
Schur factors are U and Z. Sums of square roots are divided by, never differences.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.linalg import solve_triangular
from jax.typing import ArrayLike

from difflinalg._core import checks, dense_checks
from difflinalg._core.algebra import adjoint, mm
from difflinalg._core.operation import operation
from difflinalg._dense.sylvester import SchurFactors, principal_schur_factors, sylvester


def sqrtm(A: ArrayLike, blocksize: int = 1) -> Array:
    """Compute the principal square root of a matrix.

    Args:
        A: shape `(..., n, n)`, real or complex.
        blocksize: must be 1, as in JAX.

    Returns:
        X with `X @ X = A`, shape `(..., n, n)`, complex also for a real `A`; NaN where there is
        no square root.

    Raises:
        ValueError: if `A` is not square.
        NotImplementedError: if `blocksize` is larger than 1.

    Derivatives:
        All orders, both modes in any nesting, also at repeated and defective eigenvalues. Not
        finite where `A` is singular. At an eigenvalue on the negative real axis, the branch cut,
        they are those of the branch with the argument pi / 2, which only perturbations that keep
        it on the axis or move it upwards stay on.

    Cost:
        One Schur decomposition (CPU only) and O(n^3); each tangent one triangular sweep.

    Example:
        >>> import jax.numpy as jnp
        >>> print(sqrtm(jnp.array([[4.0, 4.0], [0.0, 4.0]])).real)
        [[2. 1.]
         [0. 2.]]

    References:
        Bjorck and Hammarling, "A Schur method for the square root of a matrix" (1983).
        Higham, "Functions of Matrices" (2008), algorithm 6.3 and equation (6.5).
    """
    if blocksize > 1:
        dense_checks.refuse_blocks("sqrtm", blocksize)
    matrix = checks.as_square("sqrtm", A, half=True)
    matrix = matrix.astype(jnp.result_type(matrix.dtype, jnp.complex64))
    return jnp.vectorize(lambda a: sqrtm_core(a)[0], signature="(n,n)->(n,n)")(matrix)


@operation()
def sqrtm_core(a: Array) -> tuple[Array, Array, Array]:
    """The square root of a single complex matrix, and its Schur factors, which are constants."""
    t, z = principal_schur_factors(a)
    u = triangular_sqrt(t)
    return mm(z, u, adjoint(z)), u, z


@sqrtm_core.defjvp
def _sqrtm_jvp(primals, tangents):
    (a,), (a_dot,) = primals, tangents
    x, u, z = sqrtm_core(a)

    def rule(x, a_dot):
        return sylvester(x, x, a_dot, SchurFactors(u, z), SchurFactors(u, z))

    tangents = (jax.checkpoint(rule)(x, a_dot), jnp.zeros_like(u), jnp.zeros_like(z))
    return (x, u, z), tangents


def triangular_sqrt(t: Array) -> Array:
    """The upper triangular square root of an upper triangular matrix; NaN where there is none."""
    if t.shape[-1] == 0:
        return t
    roots = jnp.sqrt(jnp.diagonal(t))
    index = jnp.arange(t.shape[-1])

    def column(u, step):
        j, t_j = step
        above = index < j
        sums = jnp.where(above, roots + roots[j], 1.0)
        singular = sums == 0.0
        matrix = jnp.triu(u, 1) + jnp.diag(jnp.where(singular, 1.0, sums))
        u_j = solve_triangular(matrix, jnp.where(above, t_j, 0.0))
        # 0 u = 0 is solved by 0, any other right-hand side by nothing.
        u_j = jnp.where(singular & (u_j != 0.0), jnp.nan, u_j)
        return u.at[:, j].set(jnp.where(index == j, roots[j], u_j)), None

    u = lax.scan(column, jnp.zeros_like(t), (index, t.T))[0]
    return jnp.where(jnp.any(jnp.isnan(u)), jnp.nan, u)
