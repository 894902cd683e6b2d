"""LQ decomposition and its derivative.

Rule. `A = L Q` is the adjoint of `A^H = Q^H R` with `R = L^H`, and has its rule.
"""

from jax.typing import ArrayLike

from difflinalg._core import checks
from difflinalg._core.algebra import adjoint
from difflinalg._core.results import LQResult
from difflinalg._dense.qr import qr_of_matrix


def lq(a: ArrayLike, mode: str = "reduced") -> LQResult:
    """Decompose matrices as `A = L Q`, L lower triangular and Q with orthonormal rows.

    Args:
        a: shape `(..., m, n)`, real or complex; integers are converted to the default float.
        mode: `'reduced'`, or `'complete'` for a square Q.

    Returns:
        `LQResult(L, Q)` with shapes `(..., m, k)` and `(..., k, n)`, where k = min(m, n), or n
        if complete. The diagonal of L is real, of either sign.

    Raises:
        TypeError: if `a` is not an array of numbers.
        ValueError: if `a` is not a matrix, or `mode` is unknown.

    Derivatives:
        Those of `qr` of the adjoint matrix: forward and reverse mode in any nesting, to every
        order; NaN for columns of L and rows of Q after a vanishing pivot. The rows that complete
        Q are differentiated as a basis of the complement: a loss must depend on their span only.

    Cost:
        That of `qr`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg import linalg
        >>> print(jax.grad(lambda a: jnp.abs(linalg.lq(a).L[0, 0]))(jnp.array([[3.0, 4.0]])))
        [[0.6 0.8]]

    References:
        Golub and Van Loan, "Matrix Computations" (2013), section 5.2.
    """
    matrix = checks.as_matrix("lq", a, sequences=False)
    checks.check_choice("lq", "mode", mode, ("reduced", "complete"))
    q, r = qr_of_matrix(adjoint(matrix), mode == "complete")
    return LQResult(adjoint(r), adjoint(q))
