"""Generalised and tridiagonal Hermitian eigenproblems, reduced to the standard one.

With the Cholesky factor `B = L L^H`, `A v = w B v` becomes `C y = w y` for `C = L^-1 A L^-H` and
`v = L^-H y` (type 1); `A B v = w v` has `C = L^H A L` and `v = L^-H y` (type 2); `B A v = w v`
the same `C` and `v = L y` (type 3). Derivatives are those of `eigh`, of the Cholesky factor and
of the triangular solves, so what `eigh` says of repeated eigenvalues holds here too.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular
from jax.typing import ArrayLike

from difflinalg._core import checks, dense_checks
from difflinalg._core.algebra import adjoint, herm, mm
from difflinalg._core.results import EighResult
from difflinalg._dense.eigh import eigh as standard_eigh
from difflinalg._dense.eigh import eigvalsh as standard_eigvalsh


def eigh(
    a: ArrayLike,
    b: ArrayLike | None = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Array | tuple[Array, Array]:
    """Eigenvalues and vectors of `A v = w B v` for Hermitian `A` and positive definite `B`.

    Args:
        a: shape `(..., n, n)`, real or complex; replaced by its Hermitian part, as in JAX.
        b: shape `(..., n, n)`, positive definite; replaced by its Hermitian part. The identity
            if absent.
        lower: has no effect, because both triangles are read.
        eigvals_only: return only the eigenvalues.
        overwrite_a: ignored.
        overwrite_b: ignored.
        turbo: ignored.
        eigvals: must be None, as in JAX.
        type: 1 for `A v = w B v`, 2 for `A B v = w v`, 3 for `B A v = w v`.
        check_finite: refuse NaN and inf where the values can be seen (outside jit).

    Returns:
        `(w, v)`, shapes `(..., n)`, ascending, and `(..., n, n)`, with `v^H B v = I` (types 1
        and 2) or `v^H B^-1 v = I` (type 3); only `w` if `eigvals_only`.

    Raises:
        TypeError: if `a` or `b` is not an array of numbers.
        ValueError: if `a` or `b` is not square, the shapes differ, or `type` is not 1, 2 or 3.
        NotImplementedError: if `eigvals` is given.

    Derivatives:
        With respect to both matrices; as those of `difflinalg.linalg.eigh`. NaN where `B` is
        not positive definite.

    Cost:
        O(n^3): one Cholesky factorisation and two triangular solves more than `linalg.eigh`.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg.scipy import linalg
        >>> print(linalg.eigh(2.0 * jnp.eye(2), 4.0 * jnp.eye(2), eigvals_only=True))
        [0.5 0.5]

    References:
        Golub and Van Loan, "Matrix Computations" (2013), algorithm 8.7.1.
    """
    del lower, overwrite_a, overwrite_b, turbo
    dense_checks.check_unsupported("scipy.linalg.eigh", "eigvals", eigvals)
    checks.check_choice("scipy.linalg.eigh", "type", type, (1, 2, 3))
    matrix = checks.as_square("scipy.linalg.eigh", a)
    metric = None if b is None else checks.as_square("scipy.linalg.eigh", b)
    if metric is not None and metric.shape[-1] != matrix.shape[-1]:
        checks.refuse_shapes("scipy.linalg.eigh", matrix.shape, metric.shape)
    if check_finite:
        checks.refuse_nonfinite("scipy.linalg.eigh", matrix)
        if metric is not None:
            checks.refuse_nonfinite("scipy.linalg.eigh", metric)
    return _eigh(matrix, metric, eigvals_only, type)


@partial(jax.jit, static_argnums=(2, 3))
def _eigh(a: Array, b: Array | None, eigvals_only: bool, kind: int) -> Array | tuple[Array, Array]:
    a = herm(a)
    if b is None:
        return standard_eigvalsh(a) if eigvals_only else _pair(standard_eigh(a))
    factor = jnp.linalg.cholesky(herm(b), symmetrize_input=False)
    if kind == 1:
        half = solve_triangular(factor, a, lower=True)
        reduced = herm(solve_triangular(factor, adjoint(half), lower=True))
    else:
        reduced = herm(mm(adjoint(factor), a, factor))
    if eigvals_only:
        return standard_eigvalsh(reduced)
    w, y = standard_eigh(reduced)
    v = mm(factor, y) if kind == 3 else solve_triangular(adjoint(factor), y, lower=False)
    return w, v


def _pair(result: EighResult) -> tuple[Array, Array]:
    """A plain tuple, which is what SciPy and JAX return here."""
    return result.eigenvalues, result.eigenvectors


def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: Array | None = None,
) -> Array | tuple[Array, Array]:
    """Eigenvalues and vectors of a Hermitian tridiagonal matrix.

    Args:
        d: the real diagonal, shape `(n,)`.
        e: the off-diagonal below it, shape `(n - 1,)`, real or complex.
        eigvals_only: return only the eigenvalues.
        select: `'a'` for all eigenvalues, `'i'` for those with the indices in `select_range`.
        select_range: `(first, last)`, both included, ascending order from 0.
        tol: accepted for JAX's signature; the decomposition is always converged.
        key: accepted for JAX's signature; nothing random is needed.

    Returns:
        `(w, v)`, shapes `(k,)`, ascending, and `(n, k)`; only `w` if `eigvals_only`.

    Raises:
        TypeError: if `d` or `e` is not an array of numbers, or `d` is complex.
        ValueError: if the shapes do not fit, or `select` and `select_range` do not.
        NotImplementedError: for `select='v'`, whose result has no static shape.

    Derivatives:
        With respect to `d` and `e`; as those of `difflinalg.linalg.eigh`.

    Cost:
        O(n^3) time and O(n^2) memory: the matrix is decomposed as a dense one.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg.scipy import linalg
        >>> print(linalg.eigh_tridiagonal(jnp.zeros(2), jnp.ones(1), eigvals_only=True))
        [-1.  1.]

    References:
        Parlett, "The Symmetric Eigenvalue Problem" (1998), section 7.9 (derivatives).
    """
    del tol, key
    diagonal, off = dense_checks.as_tridiagonal("eigh_tridiagonal", d, e)
    keep = dense_checks.as_selection("eigh_tridiagonal", select, select_range, diagonal.shape[0])
    w, v = _eigh_tridiagonal(diagonal, off)
    return w[keep] if eigvals_only else (w[keep], v[:, keep])


@jax.jit
def _eigh_tridiagonal(d: Array, e: Array) -> tuple[Array, Array]:
    matrix = jnp.diag(d).astype(jnp.result_type(d, e)) + jnp.diag(e, -1) + jnp.diag(jnp.conj(e), 1)
    return _pair(standard_eigh(matrix))
