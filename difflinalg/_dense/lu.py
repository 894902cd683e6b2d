"""LU decomposition with partial pivoting and its derivative.

Rule. The permutation is locally constant. For `P A = L U` with m rows and n columns,
k = min(m, n), and the first k rows `L_1 U` of it, `L_1` unit lower triangular,

    F = L_1^-1 (P A_dot)_1 = M U + U_dot,    M = L_1^-1 L_1_dot

with M strictly lower and U_dot upper triangular. Below the diagonal F is M U, where the last
column of M is zero: `M = tril(F[:, :k-1] U_11^-1, -1)` with the leading block of size k - 1. So

    L_1_dot = L_1 M,    U_dot = triu(F - M U)

never divide by the last pivot, which may be zero. Only the rows of L below a square U do:

    L_2_dot = ((P A_dot)_2 - L_2 U_dot) U^-1
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.linalg import solve_triangular
from jax.typing import ArrayLike

from difflinalg._core import checks
from difflinalg._core.algebra import mm
from difflinalg._core.operation import operation
from difflinalg._core.refuse import refuse_where


def lu(
    a: ArrayLike, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, Array] | tuple[Array, Array, Array]:
    """Compute the pivoted LU decomposition `a = P L U`.

    Args:
        a: shape `(..., m, n)`, real or complex; k = min(m, n).
        permute_l: return `(P L, U)` instead of `(P, L, U)`.
        overwrite_a: ignored, as in JAX.
        check_finite: ignored, as in JAX.

    Returns:
        `(P, L, U)`: P, shape `(..., m, m)`, a permutation, real; L, shape `(..., m, k)`, unit
        lower triangular; U, shape `(..., k, n)`, upper triangular. Or `(P L, U)`.

    Raises:
        ValueError: if `a` is not a matrix.

    Derivatives:
        Of L and U, all orders, both modes in any nesting, also where the last pivot is zero (a
        square matrix of rank n - 1). NaN where an earlier pivot is zero, and for the part of L
        below a square U that is singular: there is no derivative. The permutation is constant,
        so there is none where two pivots tie either.

    Cost:
        O(m n k); the rule adds two triangular solves and two products per tangent.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> print(jax.grad(lambda a: lu(a)[2][1, 1])(jnp.array([[2.0, 4.0], [1.0, 2.0]])))
        [[ 1.  -0.5]
         [-2.   1. ]]

    References:
        de Hoog, Anderssen, Lukas, "Differentiation of matrix functionals using triangular
        factorization" (2011), section 3.
    """
    del overwrite_a, check_finite
    return _lu(checks.as_matrix("lu", a), permute_l)


@partial(jax.jit, static_argnums=1)
def _lu(a: Array, permute_l: bool) -> tuple[Array, Array] | tuple[Array, Array, Array]:
    factors, _, order = _factorise(a)
    m, k = a.shape[-2], min(a.shape[-2:])
    lower = jnp.tril(factors[..., :k], -1) + jnp.eye(m, k, dtype=a.dtype)
    upper = jnp.triu(factors[..., :k, :])
    p = (jnp.arange(m)[:, None] == order[..., None, :]).astype(a.real.dtype)
    return (mm(p, lower), upper) if permute_l else (p, lower, upper)


def lu_factor(
    a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, Array]:
    """Compute the pivoted LU decomposition for `lu_solve`.

    Args:
        a: shape `(..., m, n)`, real or complex.
        overwrite_a: ignored, as in JAX.
        check_finite: ignored, as in JAX.

    Returns:
        L (without its unit diagonal) and U in one matrix, shape `(..., m, n)`, and the row that
        each row was exchanged with, shape `(..., min(m, n))`, integers.

    Raises:
        ValueError: if `a` is not a matrix.

    Derivatives:
        As `lu`.

    Cost:
        As `lu`.

    Example:
        >>> import jax.numpy as jnp
        >>> print(lu_factor(jnp.array([[1.0, 2.0], [2.0, 2.0]]))[0])
        [[2.  2. ]
         [0.5 1. ]]

    References:
        As `lu`.
    """
    del overwrite_a, check_finite
    factors, pivots, _ = _factorise(checks.as_matrix("lu_factor", a))
    return factors, pivots


def _factorise(a: Array) -> tuple[Array, Array, Array]:
    """The factors in one matrix, differentiable, the pivots and the permutation."""
    factors, pivots, order = lax.linalg.lu(lax.stop_gradient(a))
    permuted = jnp.take_along_axis(a, order[..., :, None], axis=-2)
    signature = "(m,n),(m,n)->(m,n)"
    return jnp.vectorize(lu_core, signature=signature)(permuted, factors), pivots, order


@operation()
def lu_core(permuted: Array, factors: Array) -> Array:
    """The factors, known, of a matrix whose rows are in the right order."""
    del permuted
    return factors


@lu_core.defjvp
def _lu_core_jvp(primals, tangents):
    factors = lu_core(*primals)
    return factors, jax.checkpoint(lu_tangents)(factors, tangents[0])


def lu_tangents(factors: Array, a_dot: Array) -> Array:
    """The tangent of L and U in one matrix from themselves and the tangent of `P A`."""
    m, n = factors.shape
    k = min(m, n)
    if k == 0:
        return a_dot
    lower = jnp.tril(factors[:k, :k], -1) + jnp.eye(k, dtype=factors.dtype)
    upper = jnp.triu(factors[:k])
    f = solve_triangular(lower, a_dot[:k], lower=True, unit_diagonal=True)
    change = jnp.zeros_like(lower)
    if k > 1:
        leading = _solve_right(upper[: k - 1, : k - 1], f[:, : k - 1])
        change = change.at[:, : k - 1].set(jnp.tril(leading, -1)[:, : k - 1])
    upper_dot = jnp.triu(f - mm(change, upper))
    result = upper_dot.at[:, :k].add(jnp.tril(mm(lower, change), -1))
    if m > k:
        rest = a_dot[k:] - mm(factors[k:], upper_dot)
        result = jnp.concatenate([result, _solve_right(upper, rest)])
    return result


def _solve_right(upper: Array, x: Array) -> Array:
    """`X U^-1`; NaN from the first zero pivot on, except where nothing is divided."""
    pivots = lax.stop_gradient(jnp.diagonal(upper))
    zero = pivots == 0.0
    safe = upper + jnp.diag(jnp.where(zero, 1.0, 0.0).astype(upper.dtype))
    solution = solve_triangular(safe.T, x.T, lower=True).T
    return refuse_where(solution, (jnp.cumsum(zero) > 0)[None, :])
