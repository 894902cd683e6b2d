"""Any function of a general matrix, given as a function of numbers.

Value. With the complex Schur form `A = Z T Z^H`, `f(A) = Z F Z^H`; F commutes with T, which gives
the column j of F above the diagonal from the columns before it (Parlett):

    (T[j, j] I - T[:j, :j]) F[:j, j] = T[:j, j] F[j, j] - F[:j, :j] T[:j, j]

Rule. The steps are differentiated, with the rule of `schur` for T and Z. Both divide by the gaps
of eigenvalues. Those that coincide are moved apart, by distances that grow with the order of
differentiation as in `_core.spread`. Where elements of T couple them, the quotients of the value
have the error `eps / delta` and those of the derivative `eps / delta^3`: the value of a coupled
pair is right to `sqrt(eps)`, everything beyond is refused.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.linalg import solve_triangular
from jax.typing import ArrayLike

from difflinalg._core import checks
from difflinalg._core.algebra import adjoint, mm
from difflinalg._core.operation import operation
from difflinalg._core.tolerances import cluster_rtol, epsilon, rank_rtol, spread_rtol
from difflinalg._dense.schur import schur_tangents
from difflinalg._dense.sylvester import principal_schur_factors


def funm(
    A: ArrayLike, func: Callable[[Array], Array], disp: bool = True
) -> Array | tuple[Array, Array]:
    """Evaluate a function of a matrix.

    Args:
        A: shape `(..., n, n)`, real or complex.
        func: takes the eigenvalues, a complex array of shape `(n,)`, to the values of an analytic
            function, elementwise.
        disp: with False, JAX's estimate of the error is returned too.

    Returns:
        `f(A)`, shape `(..., n, n)`, complex; with `disp=False` the pair of it and the estimate,
        shape `(...)`.

    Raises:
        ValueError: if `A` is not square.

    Derivatives:
        With respect to `A` and to what `func` closes over, all orders, both modes in any nesting.
        With coinciding eigenvalues the gradient is right to 1e-7, the second derivative to 1e-4
        (float64). Where they are coupled, as in a Jordan block, derivatives are NaN; the value is
        right to 1e-7 for pairs and NaN beyond. Close coupled eigenvalues lose digits: gaps g
        leave an error of `eps / g` in the value and `eps / g^3` in the gradient. `expm`, `logm`,
        `sqrtm`, `signm`, `cosm` and `fractional_matrix_power` have no such limits; for Hermitian
        A use `funm_hermitian`.

    Cost:
        O(n^3), one Schur decomposition (CPU only); about ten times that differentiated.

    Example:
        >>> import jax.numpy as jnp
        >>> a = jnp.array([[1.0, 1.0], [0.0, 2.0]])
        >>> print(funm(a, lambda x: x**2).real.round(4))
        [[1. 3.]
         [0. 4.]]

    References:
        Higham, "Functions of Matrices" (2008), algorithm 4.13.
        Golub and Van Loan, "Matrix Computations" (2013), algorithm 9.1.1.
    """
    matrix = checks.as_square("funm", A, half=True)
    matrix = matrix.astype(jnp.result_type(matrix.dtype, jnp.complex64))
    evaluate = jnp.vectorize(lambda a: _funm(a, func), signature="(n,n)->(n,n),()")
    value, error = evaluate(matrix)
    return value if disp else (value, error)


def _funm(a: Array, func: Callable[[Array], Array]) -> tuple[Array, Array]:
    """The function of a single matrix, and the estimate of its error."""
    if a.shape[-1] == 0:
        return a, jnp.zeros((), a.real.dtype)
    t, z = spread_schur(a, 0)
    f = triangular_funm(t, func(jnp.diagonal(t)).astype(t.dtype))
    return mm(z, f, adjoint(z)), _error(lax.stop_gradient(t), lax.stop_gradient(f))


def triangular_funm(t: Array, values: Array) -> Array:
    """The function of an upper triangular matrix from its values at the diagonal."""
    index = jnp.arange(t.shape[-1])
    diagonal = jnp.diagonal(t)

    def column(f, step):
        j, t_j = step
        above = index < j
        t_j = jnp.where(above, t_j, 0.0)
        rhs = jnp.where(above, t_j * values[j] - mm(f, t_j[:, None])[:, 0], 0.0)
        matrix = jnp.where(above[None, :], -jnp.triu(t, 1), 0.0)
        matrix = matrix + jnp.diag(jnp.where(above, diagonal[j] - diagonal, 1.0))
        f_j = jnp.where(above, solve_triangular(matrix, rhs), 0.0)
        return f.at[:, j].set(jnp.where(index == j, values, f_j)), None

    return lax.scan(column, jnp.zeros_like(t), (index, t.T))[0]


@operation(statics=1)
def spread_schur(a: Array, level: int) -> tuple[Array, Array]:
    """The Schur factors of a complex matrix, coinciding eigenvalues moved apart; NaN if coupled."""
    t, z = principal_schur_factors(a)
    w = jnp.diagonal(t)
    size = jnp.max(jnp.abs(w), initial=0.0)
    size = jnp.where(size > 0.0, size, 1.0)
    strict = jnp.triu(jnp.ones(t.shape, bool), 1)
    close = strict & (jnp.abs(w[:, None] - w[None, :]) <= cluster_rtol(t.dtype, level) * size)
    before = jnp.sum(close, axis=0)  # how many members of its cluster precede each value
    rounding = 4.0 * rank_rtol(t.dtype, t.shape[-1]) * size
    coupled = jnp.any(close & (jnp.abs(t) > rounding))
    # Uncoupled members divide zeros only: the distance that one derivative less would ask for.
    apart = cluster_rtol(t.dtype) if level == 0 else spread_rtol(t.dtype, level - 1)
    distance = jnp.where(coupled, spread_rtol(t.dtype, level), apart) * size
    shift = before.astype(w.real.dtype) * distance
    refused = coupled & (jnp.any(before > 1) | (level > 0))
    factor = jnp.where(refused, jnp.nan, 1.0).astype(w.real.dtype)
    return factor * (t + jnp.diag(shift).astype(t.dtype)), z


@spread_schur.defjvp
def _spread_schur_jvp(level, primals, tangents):
    (a,), (a_dot,) = primals, tangents
    t, z = spread_schur(a, level + 1)
    return (t, z), jax.checkpoint(schur_tangents)(t, z, a_dot)


def _error(t: Array, f: Array) -> Array:
    """The estimate of SciPy and JAX, from the smallest gap that was divided by."""
    w, eps = jnp.diagonal(t), epsilon(t.dtype)
    gaps = jnp.abs(w[:, None] - w[None, :]) + jnp.where(
        jnp.eye(t.shape[-1], dtype=bool), jnp.inf, 0
    )
    smallest = jnp.minimum(jnp.min(gaps), jnp.abs(w[0]))
    smallest = jnp.where(smallest == 0.0, eps, smallest)
    off = jnp.max(jnp.sum(jnp.abs(jnp.triu(t, 1)), axis=0))
    estimate = jnp.minimum(1.0, jnp.maximum(eps, eps / smallest * off))
    return jnp.where(jnp.any(jnp.isinf(f)), jnp.inf, estimate)
