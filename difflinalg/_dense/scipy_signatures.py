"""Decompositions and solves under the names and signatures of SciPy.

Each one is the function of `difflinalg.linalg` of the same name, whose rule it has. What SciPy
adds is here: the triangle that is read, pivoting, and solves with a positive definite matrix.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from difflinalg._core import checks
from difflinalg._core.algebra import mm
from difflinalg._dense.cholesky import cholesky as numpy_cholesky
from difflinalg._dense.det import det as numpy_det
from difflinalg._dense.eigh import hermitian_input
from difflinalg._dense.qr import qr as numpy_qr


def det(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The determinant of square matrices.

    Args:
        a: shape `(..., n, n)`, real or complex.
        overwrite_a: ignored, as in JAX.
        check_finite: ignored, as in JAX.

    Returns:
        The determinants, shape `(...)`.

    Raises:
        TypeError: as `difflinalg.linalg.det`.
        ValueError: as `difflinalg.linalg.det`.

    Derivatives:
        Those of `difflinalg.linalg.det`: exact at singular matrices too.

    Cost:
        That of `difflinalg.linalg.det`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> print(jax.grad(det)(jnp.diag(jnp.array([0.0, 2.0]))))
        [[2. 0.]
         [0. 0.]]

    References:
        Golub and Van Loan, "Matrix Computations" (2013), section 3.2.
    """
    del overwrite_a, check_finite
    return numpy_det(a)


def cholesky(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Array:
    """The Cholesky factor of positive definite matrices, `A = R^H R` or `A = L L^H`.

    Args:
        a: shape `(..., n, n)`; only the triangle named by `lower` is read.
        lower: return `L` from the lower triangle, and not `R` from the upper one.
        overwrite_a: ignored, as in JAX.
        check_finite: ignored, as in JAX.

    Returns:
        The factor, shape `(..., n, n)`; NaN where a matrix is not positive definite.

    Raises:
        TypeError: as `difflinalg.linalg.cholesky`.
        ValueError: as `difflinalg.linalg.cholesky`.

    Derivatives:
        Any order, both modes, with respect to the triangle that is read.

    Cost:
        That of `difflinalg.linalg.cholesky`.

    Example:
        >>> import jax.numpy as jnp
        >>> print(cholesky(jnp.array([[4.0, 2.0], [0.0, 2.0]])))
        [[2. 1.]
         [0. 1.]]

    References:
        Murray, "Differentiation of the Cholesky decomposition" (2016), arXiv:1602.07527,
        equation 8.
    """
    del overwrite_a, check_finite
    return numpy_cholesky(checks.of_sequence(a), upper=not lower, symmetrize_input=False)


def cho_factor(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, bool]:
    """The Cholesky factor in the form that `cho_solve` takes.

    Args:
        a: as in `cholesky`.
        lower: as in `cholesky`.
        overwrite_a: ignored, as in JAX.
        check_finite: ignored, as in JAX.

    Returns:
        `(factor, lower)`.

    Raises:
        TypeError: as `cholesky`.
        ValueError: as `cholesky`.

    Derivatives:
        Those of `cholesky`.

    Cost:
        That of `cholesky`.

    Example:
        >>> import jax.numpy as jnp
        >>> print(cho_factor(jnp.array([[4.0]]))[0])
        [[2.]]

    References:
        Golub and Van Loan, "Matrix Computations" (2013), section 4.2.
    """
    return cholesky(a, lower, overwrite_a, check_finite), lower


def solve(
    a: ArrayLike,
    b: ArrayLike,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Array:
    """Solve `A x = b`.

    Args:
        a: shape `(..., n, n)`.
        b: shape `(..., n)` or `(..., n, m)`, as in JAX.
        lower: with `assume_a="pos"`, read the lower triangle and not the upper one.
        overwrite_a: ignored, as in JAX.
        overwrite_b: ignored, as in JAX.
        debug: ignored, as in JAX.
        check_finite: ignored, as in JAX.
        assume_a: `"gen"`, `"sym"`, `"her"`, or `"pos"` for a Cholesky decomposition.

    Returns:
        `x`, in the shape of `b`; NaN or inf where a matrix is singular.

    Raises:
        ValueError: if `assume_a` is unknown or the shapes do not fit.

    Derivatives:
        Any order, both modes, real and complex; with `assume_a="pos"` with respect to the triangle
        that is read.

    Cost:
        One factorisation, also used for the derivatives.

    Example:
        >>> import jax.numpy as jnp
        >>> print(solve(2.0 * jnp.eye(2), jnp.ones(2), assume_a="pos"))
        [0.5 0.5]

    References:
        Giles, "An extended collection of matrix derivative results" (2008), section 2.3.
    """
    if assume_a != "pos":
        return jax.scipy.linalg.solve(
            a, b, lower, overwrite_a, overwrite_b, debug, check_finite, assume_a
        )
    matrix, rhs = checks.as_square("solve", a), checks.as_inexact("solve", b)
    is_vector = rhs.ndim == 1 or rhs.ndim == matrix.ndim - 1
    columns = rhs[..., None] if is_vector else rhs
    if columns.shape[-2] != matrix.shape[-1]:
        checks.refuse_shapes("solve", matrix.shape, rhs.shape)
    x = _solve_definite(matrix, columns, lower)
    return x[..., 0] if is_vector else x


@partial(jax.jit, static_argnums=2)
def _solve_definite(a: Array, b: Array, lower: bool) -> Array:
    dtype = jnp.result_type(a, b)
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = jnp.broadcast_to(hermitian_input(a, lower, False).astype(dtype), (*batch, *a.shape[-2:]))
    b = jnp.broadcast_to(b.astype(dtype), (*batch, *b.shape[-2:]))
    factor = numpy_cholesky(lax.stop_gradient(a)), True

    def by_factor(_: Any, rhs: Array) -> Array:
        return jax.scipy.linalg.cho_solve(factor, rhs)

    def by_transpose(_: Any, rhs: Array) -> Array:
        return jnp.conj(jax.scipy.linalg.cho_solve(factor, jnp.conj(rhs)))

    return lax.custom_linear_solve(partial(mm, a), b, by_factor, by_transpose)


def qr(
    a: ArrayLike,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[Array, ...]:
    """The decomposition `A = Q R`, or `A[:, P] = Q R` with column pivoting.

    Args:
        a: shape `(..., m, n)`, real or complex.
        overwrite_a: ignored, as in JAX.
        lwork: ignored, as in JAX.
        mode: `"full"` with a square `Q`, `"economic"` with a thin one, `"r"` without `Q`.
        pivoting: permute columns so that the diagonal of `R` decreases in magnitude.
        check_finite: ignored, as in JAX.

    Returns:
        `(Q, R)`, or `(R,)` with `mode="r"`; with `pivoting` the indices `P`, shape `(..., n)`,
        are appended.

    Raises:
        TypeError: as `difflinalg.linalg.qr`.
        ValueError: if `mode` is unknown.

    Derivatives:
        Those of `difflinalg.linalg.qr` at fixed `P`; undefined where the choice of a pivot changes.

    Cost:
        That of `difflinalg.linalg.qr`; pivoting adds a decomposition.

    Example:
        >>> import jax.numpy as jnp
        >>> q, r, p = qr(jnp.array([[1.0, 2.0], [0.0, 0.0]]), pivoting=True)
        >>> print(p)
        [1 0]

    References:
        Golub and Van Loan, "Matrix Computations" (2013), sections 5.2 and 5.4.2.
    """
    del overwrite_a, lwork, check_finite
    if mode not in ("full", "economic", "r"):
        checks.check_choice("qr", "mode", mode, ("full", "economic", "r"))
    matrix = checks.as_matrix("qr", a)
    pivots: tuple[Array, ...] = ()
    if pivoting:
        fixed = lax.stop_gradient(matrix)
        pivots = (jax.scipy.linalg.qr(fixed, mode="r", pivoting=True)[-1],)
        matrix = jnp.take_along_axis(matrix, pivots[0][..., None, :], axis=-1)
    if mode == "r":
        q, r = numpy_qr(matrix, "complete")
        return (r, *pivots)
    q, r = numpy_qr(matrix, "complete" if mode == "full" else "reduced")
    return (q, r, *pivots)
