"""Schur decomposition and its derivative.

Value. `A = Z T Z^H` with Z unitary and T upper triangular; for real input T is real, with a block
of 2 x 2, of equal diagonal elements, for each pair of complex eigenvalues.

Rule. With `K = Z^H Z_dot = -K^H` and `N = Z^H A_dot Z`,

    T_dot = N - (K T - T K),    Z_dot = Z K

`K = L - L^H` is found from the entries that stay zero, those P below the diagonal (blocks):

    L T - T L = N  on P,    L = 0  elsewhere

in columns from the left, each a triangular system with the diagonal `T[j, j] - T[i, i]`.
The diagonal of K is zero, which fixes the phases of Z. Inside of a 2 x 2 block `[[a, b], [c, a]]`
K has one more entry k, which keeps the diagonal elements equal:

    2 (b + c) k = N'[2, 2] - N'[1, 1],    N' = T_dot without k
"""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.linalg import solve_triangular
from jax.typing import ArrayLike

from difflinalg._core import checks
from difflinalg._core.algebra import adjoint, inv0, mm
from difflinalg._core.operation import operation
from difflinalg._core.tolerances import rank_rtol
from difflinalg._dense.rsf2csf import complex_form
from difflinalg._dense.sylvester import linear_solve


def schur(a: ArrayLike, output: str = "real") -> tuple[Array, Array]:
    """Compute the Schur decomposition `a = Z T Z^H` (CPU only, as in JAX).

    Args:
        a: shape `(..., n, n)`, real or complex.
        output: "real" keeps real input real, with T quasi-triangular; "complex" does not.

    Returns:
        `(T, Z)`, each of shape `(..., n, n)`: T upper (quasi-)triangular, Z unitary.

    Raises:
        ValueError: if `a` is not square or `output` is unknown.

    Derivatives:
        Of T and Z, all orders, both modes in any nesting, where the eigenvalues are distinct.
        Not finite at a repeated eigenvalue, where the decomposition has no derivative; `sqrtm`,
        `logm`, `expm` have. The phases of the columns of Z (their signs, and for a block with
        `b = -c` the rotation of its two columns) are arbitrary: they stay as they are, and a
        loss must not depend on them.

    Cost:
        O(n^3); the rule adds two products and n triangular solves per tangent, and reverse mode
        keeps the factors only.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> a = jnp.array([[1.0, 2.0], [0.0, 3.0]])
        >>> gradient = jax.grad(lambda a: schur(a)[0][1, 1])(a)
        >>> bool(jnp.allclose(gradient, jnp.array([[0.0, 0.0], [1.0, 1.0]]), atol=1e-5))
        True

    References:
        Golub and Van Loan, "Matrix Computations" (2013), theorems 7.1.3 and 7.4.1.
        Konstantinov, Petkov, Christov, "Nonlocal perturbation analysis of the Schur system of a
        matrix" (1994), section 3 (the equation for L).
    """
    checks.check_choice("schur", "output", output, ("real", "complex"))
    matrix = checks.as_square("schur", a, sequences=False, half=output == "complex")
    if output == "complex":
        matrix = matrix.astype(jnp.result_type(matrix.dtype, jnp.complex64))
    return jnp.vectorize(schur_core, signature="(n,n)->(n,n),(n,n)")(matrix)


@operation()
def schur_core(a: Array) -> tuple[Array, Array]:
    """The factors T and Z of a single matrix, of its dtype."""
    if a.shape[-1] == 0:
        return a, a
    t, z = jax.scipy.linalg.schur(a)
    return t, z


@schur_core.defjvp
def _schur_core_jvp(primals, tangents):
    (a,), (a_dot,) = primals, tangents
    t, z = schur_core(a)
    return (t, z), jax.checkpoint(schur_tangents)(t, z, a_dot)


def schur_tangents(t: Array, z: Array, a_dot: Array) -> tuple[Array, Array]:
    """Tangents of `A = Z T Z^H` from its factors, by the rule of this module."""
    size = t.shape[-1]
    if size < 2:
        return a_dot, jnp.zeros_like(z)
    n = mm(adjoint(z), a_dot, z)
    coupled = _coupled(t)
    below = jnp.tril(jnp.ones((size, size), bool), -1)
    zeros = below & ~_subdiagonal(coupled)
    low = _solve_below(t, jnp.where(zeros, n, 0.0), zeros)
    k = low - adjoint(low)
    t_dot = n - (mm(k, t) - mm(t, k))
    if not jnp.iscomplexobj(t):
        turn = _rotation(t, t_dot, coupled)
        k, t_dot = k + turn, t_dot - (mm(turn, t) - mm(t, turn))
    return jnp.where(zeros, 0.0, t_dot), mm(z, k)


def _coupled(t: Array) -> Array:
    """Where a 2 x 2 block begins, shape `(n - 1,)`."""
    return jnp.diagonal(t, -1) != 0


def _subdiagonal(values: Array) -> Array:
    """A matrix with these values below the diagonal."""
    return jnp.diag(values, -1)


def _rotation(t: Array, t_dot: Array, coupled: Array) -> Array:
    """The part of K inside of the blocks."""
    difference = jnp.diagonal(t_dot)[1:] - jnp.diagonal(t_dot)[:-1]
    upper, lower = jnp.diagonal(t, 1), jnp.diagonal(t, -1)
    # b = -c: every rotation keeps the form, and none is better than the other.
    scale = jnp.abs(upper) + jnp.abs(lower)
    inverse = inv0(upper + lower, lax.stop_gradient(rank_rtol(t.dtype, t.shape[-1]) * scale))
    turn = jnp.where(coupled, 0.5 * inverse * difference, 0.0)
    return jnp.diag(turn, -1) - jnp.diag(turn, 1)


def _solve_below(t: Array, rhs: Array, zeros: Array) -> Array:
    """Solve `L T - T L = R` on the entries `zeros`, where R lives too; exact in its derivatives."""
    factor, basis = lax.stop_gradient(complex_form(t, jnp.eye(t.shape[-1], dtype=t.dtype)))

    def operator(x):
        inside = jnp.where(zeros, x, 0.0)
        return jnp.where(zeros, mm(inside, t) - mm(t, inside), x)

    def solve(_, r):
        inside = jnp.where(zeros, r, 0.0).astype(factor.dtype)
        low = _triangular_below(factor, mm(adjoint(basis), inside, basis), zeros)
        low = mm(basis, low, adjoint(basis))
        low = low if jnp.iscomplexobj(r) else low.real
        return jnp.where(zeros, low, r)

    return linear_solve(operator, rhs, solve)


def _triangular_below(t: Array, r: Array, zeros: Array) -> Array:
    """The same for an upper triangular T; `zeros` holds, in each column, the lowest rows."""
    index = jnp.arange(t.shape[-1])

    def column(low, step):
        j, r_j, rows = step
        rhs = jnp.where(rows, r_j - mm(low, t[:, j][:, None])[:, 0], 0.0)
        matrix = jnp.where(rows[:, None] & rows[None, :], -t, 0.0)
        diagonal = jnp.where(rows, t[j, j] - jnp.diagonal(t), 1.0)
        matrix = matrix.at[index, index].set(diagonal)
        return low.at[:, j].set(solve_triangular(matrix, rhs)), None

    return lax.scan(column, jnp.zeros_like(r), (index, r.T, zeros.T))[0]
