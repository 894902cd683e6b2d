"""Cholesky decomposition and its derivative.

Rule. `A = L L^H`, with `Phi(X)` the lower triangle of X with its diagonal halved:

    L_dot = L Phi(L^-1 A_dot L^-H)

It holds for Hermitian `A_dot`. The decomposed matrix is therefore first made Hermitian, from both
triangles or from the one that is read, so that the rule never meets another tangent.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from difflinalg._core import checks
from difflinalg._core.algebra import adjoint
from difflinalg._dense.eigh import hermitian_input


def cholesky(a: ArrayLike, *, upper: bool = False, symmetrize_input: bool = True) -> Array:
    """Cholesky factor of positive definite matrices.

    Args:
        a: shape `(..., n, n)`, real or complex; integers are converted to the default float.
        upper: return the upper triangular factor `U = L^H`.
        symmetrize_input: decompose `(a + a^H) / 2`. If false, only the triangle of the factor
            that is returned is read, the upper one with `upper` as in NumPy, and value and
            gradient belong to it.

    Returns:
        `L` with `A = L L^H`, or `U` with `A = U^H U`, shape `(..., n, n)`; NaN if a matrix is
        not positive definite.

    Raises:
        TypeError: if `a` is not an array of numbers.
        ValueError: if `a` is not square.

    Derivatives:
        Forward and reverse mode in any nesting, to every order, where the matrix is positive
        definite; not finite where it is singular.

    Cost:
        O(n^3); a tangent takes two triangular solves and a product.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg import linalg
        >>> print(jax.grad(lambda a: linalg.cholesky(a)[0, 0])(4.0 * jnp.eye(2)))
        [[0.25 0.  ]
         [0.   0.  ]]

    References:
        Murray, "Differentiation of the Cholesky decomposition" (2016), arXiv:1602.07527,
        equation (8).
    """
    return _cholesky(checks.as_square("cholesky", a, sequences=False), upper, symmetrize_input)


@partial(jax.jit, static_argnums=(1, 2))
def _cholesky(a: Array, upper: bool, symmetrize_input: bool) -> Array:
    hermitian = hermitian_input(a, not upper, symmetrize_input)
    factor = jnp.linalg.cholesky(hermitian, symmetrize_input=False)
    return adjoint(factor) if upper else factor
