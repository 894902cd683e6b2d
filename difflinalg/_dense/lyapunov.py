"""Lyapunov equations and their derivatives.

The continuous equation `A X + X A^H = Q` is a Sylvester equation with `B = A^H`, whose Schur
factors are those of A in the opposite order. The discrete one, `X - A X A^H = Q`, becomes
`Y - T Y T^H = F` in the Schur basis `A = Z T Z^H`, solved from the last column to the first:

    (I - conj(T[j, j]) T) Y[:, j] = F[:, j] + T sum over k > j of Y[:, k] conj(T[j, k])

Rule. Both are linear in Q; differentiated, they are the same equations with the right sides

    Q_dot - A_dot X - X A_dot^H        and        Q_dot + A_dot X A^H + A X A_dot^H
"""

import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.linalg import solve_triangular
from jax.typing import ArrayLike

from difflinalg._core import checks
from difflinalg._core.algebra import adjoint, mm
from difflinalg._dense.sylvester import (
    SchurFactors,
    adjoint_factors,
    by_factors,
    linear_solve,
    schur_factors,
    sylvester,
)


def solve_continuous_lyapunov(a: ArrayLike, q: ArrayLike) -> Array:
    """Solve `A X + X A^H = Q` for X.

    Args:
        a: shape `(..., n, n)`, real or complex.
        q: shape `(..., n, n)`, not necessarily Hermitian; batch dimensions are broadcast.

    Returns:
        X, shape `(..., n, n)`, real if both arguments are.

    Raises:
        ValueError: if the shapes do not fit.

    Derivatives:
        With respect to `a` and `q`, all orders, both modes in any nesting. Not finite where the
        equation is singular: two eigenvalues of A with `w_i + conj(w_j) = 0`.

    Cost:
        O(n^3), one Schur decomposition (CPU only); each tangent a triangular sweep.

    Example:
        >>> import jax.numpy as jnp
        >>> print(solve_continuous_lyapunov(jnp.eye(2), 2.0 * jnp.eye(2)))
        [[1. 0.]
         [0. 1.]]

    References:
        Bartels and Stewart, "Solution of the matrix equation AX + XB = C" (1972).
    """
    return _solve("solve_continuous_lyapunov", continuous_lyapunov, a, q)


def solve_discrete_lyapunov(a: ArrayLike, q: ArrayLike, method: str | None = None) -> Array:
    """Solve `A X A^H - X + Q = 0` for X.

    Args:
        a: shape `(..., n, n)`, real or complex.
        q: shape `(..., n, n)`, not necessarily Hermitian; batch dimensions are broadcast.
        method: None, "direct" or "bilinear", as in SciPy; the solution does not depend on it.

    Returns:
        X, shape `(..., n, n)`, real if both arguments are.

    Raises:
        ValueError: if the shapes do not fit or `method` is unknown.

    Derivatives:
        With respect to `a` and `q`, all orders, both modes in any nesting. Not finite where the
        equation is singular: two eigenvalues of A with `w_i conj(w_j) = 1`.

    Cost:
        O(n^3), one Schur decomposition (CPU only); each tangent a triangular sweep.

    Example:
        >>> import jax.numpy as jnp
        >>> print(solve_discrete_lyapunov(0.5 * jnp.eye(2), 0.75 * jnp.eye(2)))
        [[1. 0.]
         [0. 1.]]

    References:
        Kitagawa, "An algorithm for solving the matrix equation X = FXF' + S" (1977).
    """
    checks.check_choice("solve_discrete_lyapunov", "method", method, (None, "direct", "bilinear"))
    return _solve("solve_discrete_lyapunov", discrete_lyapunov, a, q)


def _solve(name: str, solve, a: ArrayLike, q: ArrayLike) -> Array:
    matrix, rhs = checks.as_square(name, a), checks.as_square(name, q)
    if matrix.shape[-1] != rhs.shape[-1]:
        checks.refuse_shapes(name, matrix.shape, rhs.shape)
    dtype = jnp.result_type(matrix, rhs)
    solve = jnp.vectorize(solve, signature="(n,n),(n,n)->(n,n)")
    return solve(matrix.astype(dtype), rhs.astype(dtype))


def continuous_lyapunov(a: Array, q: Array) -> Array:
    """Solve `A X + X A^H = Q` for single matrices."""
    factors = schur_factors(a)
    return sylvester(a, adjoint(a), q, factors, adjoint_factors(factors))


def discrete_lyapunov(a: Array, q: Array) -> Array:
    """Solve `X - A X A^H = Q` for single matrices."""
    factors: SchurFactors = schur_factors(a)

    def solve(_, rhs):
        return by_factors(_triangular_stein, factors, factors, rhs)

    return linear_solve(lambda x: x - mm(a, x, adjoint(a)), q, solve)


def _triangular_stein(t: Array, _: Array, f: Array) -> Array:
    """Solve `Y - T Y T^H = F` for an upper triangular T, one column of Y per step."""
    identity = jnp.eye(t.shape[-1], dtype=t.dtype)

    def column(y, step):
        j, f_j = step
        row = jnp.conj(t[j])
        rhs = f_j + mm(t, mm(y, row[:, None]))[:, 0]
        return y.at[:, j].set(solve_triangular(identity - row[j] * t, rhs)), None

    if f.size == 0:
        return f
    steps = (jnp.arange(f.shape[-1]), f.T)
    return lax.scan(column, jnp.zeros_like(f), steps, reverse=True)[0]
