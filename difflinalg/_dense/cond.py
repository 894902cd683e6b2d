"""Condition number.

Rule. That of its parts: `cond(A) = s_max / s_min`, or `norm(A) norm(A^-1)` for other norms.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from difflinalg._core import checks, dense_checks
from difflinalg._dense.norm import norm
from difflinalg._dense.svd import svdvals_core


def cond(x: ArrayLike, p: int | float | str | None = None) -> Array:
    """Condition numbers of matrices.

    Args:
        x: shape `(..., m, n)`, real or complex, not empty; square unless `p` is `None`, 2 or -2.
        p: order of the norm, `None` or 2 for the ratio of the largest to the smallest singular
            value, -2 for its inverse, otherwise as in `norm` for matrices.

    Returns:
        The condition numbers, shape `(...)`, real; `inf` for a singular matrix.

    Raises:
        TypeError: if `x` is not an array of numbers.
        ValueError: if `x` is not a matrix, is empty, or is not square where it has to be.

    Derivatives:
        Forward and reverse mode in any nesting, to every order, where the norms in it are smooth:
        for `None` and 2 where the largest and the smallest singular value are simple and not
        zero. Not finite for a singular matrix.

    Cost:
        That of the singular values, or of an inverse and two norms.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg import linalg
        >>> print(linalg.cond(jnp.diag(jnp.array([3.0, 2.0]))).round(12))
        1.5

    References:
        Higham, "Accuracy and Stability of Numerical Algorithms" (2002), section 6.2.
    """
    matrix = checks.as_matrix("cond", x, sequences=False)
    dense_checks.refuse_empty("cond", matrix)
    if p in (None, 2, -2):
        s = svdvals_core(matrix, None)
        largest, smallest = s[..., 0], s[..., -1]
        if p != -2:
            return largest / smallest
        value = smallest / largest
    else:
        matrix = checks.as_square("cond", matrix)
        axes = (-2, -1)
        value = norm(matrix, p, axes) * norm(jnp.linalg.inv(matrix), p, axes)
    given = jnp.any(jnp.isnan(matrix), axis=(-2, -1))
    return jnp.where(jnp.isnan(jax.lax.stop_gradient(value)) & ~given, np.inf, value)
