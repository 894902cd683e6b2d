"""Sylvester equations and their derivatives.

Value. `A X + X B = C` is solved in Schur bases, `A = U R U^H` and `B = V S V^H` with R and S upper
triangular (Bartels and Stewart). With `Y = U^H X V` and `F = U^H C V`, column after column:

    (R + S[j, j] I) Y[:, j] = F[:, j] - sum over k < j of Y[:, k] S[k, j]

Rule. The solution is linear in C, and differentiating the equation gives one with the same left
side:

    A X_dot + X_dot B = C_dot - A_dot X - X B_dot

The equation stands in a `custom_linear_solve`, so that this is the derivative in both modes, of
any order, from one pair of Schur factors.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.linalg import solve_triangular
from jax.typing import ArrayLike

from difflinalg._core import checks
from difflinalg._core.algebra import adjoint, mm
from difflinalg._core.tolerances import rank_rtol


class SchurFactors(NamedTuple):
    """`A = Z T Z^H` with T upper triangular; constants of a rule, not differentiated."""

    t: Array
    z: Array


def solve_sylvester(
    A: ArrayLike, B: ArrayLike, C: ArrayLike, *, method: str = "schur", tol: float = 1e-8
) -> Array:
    """Solve `A X + X B = C` for X.

    Args:
        A: shape `(..., m, m)`, real or complex.
        B: shape `(..., n, n)`.
        C: shape `(..., m, n)`; batch dimensions are broadcast.
        method: "schur" (CPU only, accurate) or "eigen" (needs diagonalisable A and B).
        tol: the result is NaN where an eigenvalue of A and one of B add up to less.

    Returns:
        X, shape `(..., m, n)`, real if all arguments are.

    Raises:
        ValueError: if the shapes do not fit or `method` is unknown.

    Derivatives:
        With respect to A, B and C, all orders, both modes in any nesting; repeated eigenvalues
        within A or B are nothing special. NaN where the value is NaN.

    Cost:
        O(m^3 + n^3 + m n (m + n)); each tangent one more triangular sweep with the same factors.

    Example:
        >>> import jax.numpy as jnp
        >>> print(solve_sylvester(2.0 * jnp.eye(2), jnp.eye(2), 3.0 * jnp.eye(2)))
        [[1. 0.]
         [0. 1.]]

    References:
        Bartels and Stewart, "Solution of the matrix equation AX + XB = C" (1972).
        Higham, "Functions of Matrices" (2008), section B.14.
    """
    name = "solve_sylvester"
    checks.check_choice(name, "method", method, ("schur", "eigen"))
    a, b, c = checks.as_inexact(name, A), checks.as_inexact(name, B), checks.as_matrix(name, C)
    m, n = c.shape[-2:]
    if a.shape[-2:] != (m, m) or b.shape[-2:] != (n, n):
        checks.refuse_shapes(name, a.shape, b.shape, c.shape)
    dtype = jnp.result_type(a, b, c)

    def solve(a, b, c):
        if method == "schur":
            return sylvester(a, b, c, schur_factors(a), schur_factors(b), tol)
        return _sylvester_by_eig(a, b, c, tol)

    solve = jnp.vectorize(solve, signature="(m,m),(n,n),(m,n)->(m,n)")
    return solve(a.astype(dtype), b.astype(dtype), c.astype(dtype))


def schur_factors(a: Array) -> SchurFactors:
    """The complex Schur factors of `a`, shape `(n, n)`, as constants."""
    a = lax.stop_gradient(a)
    a = a.astype(jnp.result_type(a.dtype, jnp.complex64))
    if a.shape[-1] == 0:
        return SchurFactors(a, a)
    return SchurFactors(*jax.scipy.linalg.schur(a, output="complex"))


def principal_schur_factors(a: Array) -> SchurFactors:
    """The same, with the negative eigenvalues of a real matrix on the upper side of the axis.

    A complex decomposition leaves them on either side by a rounding error, which the branch of a
    root or logarithm would turn into an error of order one.
    """
    t, z = schur_factors(a)
    w = jnp.diagonal(t)
    rounding = rank_rtol(t.dtype, t.shape[-1]) * jnp.max(jnp.abs(w), initial=0.0)
    snap = jnp.all(jnp.imag(a) == 0) & (w.real < 0.0) & (jnp.abs(w.imag) <= rounding)
    on_axis = lax.complex(w.real, jnp.zeros_like(w.real))
    return SchurFactors(jnp.triu(t, 1) + jnp.diag(jnp.where(snap, on_axis, w)), z)


def adjoint_factors(factors: SchurFactors) -> SchurFactors:
    """The Schur factors of `A^H` from those of `A`: the same vectors in the opposite order."""
    t, z = factors
    return SchurFactors(adjoint(t)[..., ::-1, ::-1], z[..., ::-1])


def sylvester(
    a: Array,
    b: Array,
    c: Array,
    factors_a: SchurFactors,
    factors_b: SchurFactors,
    tol: Array | float = 0.0,
) -> Array:
    """Solve `A X + X B = C`, single matrices, from Schur factors; differentiable in a, b and c."""
    factors_a, factors_b = lax.stop_gradient((factors_a, factors_b))
    gate = _gate(jnp.diagonal(factors_a.t), jnp.diagonal(factors_b.t), tol)

    def solve(_, rhs):
        return gate * by_factors(triangular_sylvester, factors_a, factors_b, rhs)

    return linear_solve(lambda x: mm(a, x) + mm(x, b), c, solve)


def linear_solve(operator, b: Array, solve) -> Array:
    """Solve `operator(x) = b`, where the transpose of `solve` solves the transposed equation."""

    def transpose_solve(_, rhs):
        return jax.linear_transpose(lambda x: solve(operator, x), rhs)(rhs)[0]

    return lax.custom_linear_solve(operator, b, solve, transpose_solve)


def by_factors(triangular_solve, factors_a, factors_b, rhs: Array) -> Array:
    """Carry a right-hand side into the Schur bases of A and B, and the solution out of them."""
    (t_a, z_a), (t_b, z_b) = factors_a, factors_b
    inner = mm(adjoint(z_a), rhs.astype(t_a.dtype), z_b)
    x = mm(z_a, triangular_solve(t_a, t_b, inner), adjoint(z_b))
    return x if jnp.iscomplexobj(rhs) else x.real


def triangular_sylvester(r: Array, s: Array, f: Array) -> Array:
    """Solve `R Y + Y S = F` for upper triangular R and S, one column of Y per step."""
    identity = jnp.eye(r.shape[-1], dtype=r.dtype)

    def column(y, step):
        j, f_j = step
        s_j = s[:, j]
        rhs = f_j - mm(y, s_j[:, None])[:, 0]
        return y.at[:, j].set(solve_triangular(r + s_j[j] * identity, rhs)), None

    if f.size == 0:
        return f
    return lax.scan(column, jnp.zeros_like(f), (jnp.arange(f.shape[-1]), f.T))[0]


def _gate(w_a: Array, w_b: Array, tol: Array | float) -> Array:
    """NaN where two eigenvalues cancel, 1 otherwise: a factor keeps the solve linear."""
    singular = jnp.any(jnp.abs(w_a[:, None] + w_b[None, :]) < tol)
    return jnp.where(singular, jnp.nan, 1.0).astype(w_a.real.dtype)


def _sylvester_by_eig(a: Array, b: Array, c: Array, tol: Array | float) -> Array:
    """The same by eigenvectors; runs wherever `jax.numpy.linalg.eig` does."""
    (w_a, v_a), (w_b, v_b) = (jnp.linalg.eig(lax.stop_gradient(x)) for x in (a, b))
    inverse_a, inverse_b = jnp.linalg.inv(v_a), jnp.linalg.inv(v_b)
    gate = _gate(w_a, w_b, tol)

    def solve(_, rhs):
        inner = mm(inverse_a, rhs.astype(w_a.dtype), v_b) / (w_a[:, None] + w_b[None, :])
        x = gate * mm(v_a, inner, inverse_b)
        return x if jnp.iscomplexobj(rhs) else x.real

    return linear_solve(lambda x: mm(a, x) + mm(x, b), c, solve)
