"""Reduction to Hessenberg form and its derivative.

Value. `A = Q H Q^H` with Q unitary, its first column (1, 0, ...), and H zero below the first
subdiagonal, whose elements are real.

Rule. With `K = Q^H Q_dot = -K^H`, whose first column is zero, and `N = Q^H A_dot Q`,

    H_dot = N - (K H - H K),    Q_dot = Q K

The entries of H_dot that must be zero give K column by column: the column j of this equation
holds the column j + 1 of K with the factor `H[j + 1, j]`, and otherwise only what is known,

    K[:, j + 1] H[j + 1, j] = N[:, j] + (H K)[:, j] - sum over k <= j of K[:, k] H[k, j]

in the rows below j + 1. In row j + 1 its imaginary part is the phase that keeps H[j + 1, j] real.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from difflinalg._core import checks
from difflinalg._core.algebra import adjoint, mm
from difflinalg._core.operation import operation


def hessenberg(
    a: ArrayLike, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Array | tuple[Array, Array]:
    """Compute the Hessenberg form `a = Q H Q^H`.

    Args:
        a: shape `(..., n, n)`, real or complex.
        calc_q: return Q too.
        overwrite_a: ignored, as in JAX.
        check_finite: ignored, as in JAX.

    Returns:
        H, or `(H, Q)`, each of shape `(..., n, n)`.

    Raises:
        ValueError: if `a` is not square.

    Derivatives:
        Of H and Q, all orders, both modes in any nesting, where the subdiagonal of H has no zero
        (except the last one for real input). Not finite otherwise, because Q jumps there.

    Cost:
        O(n^3); the rule adds two products and a loop of n products with vectors per tangent.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> a = jnp.array([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0], [4.0, 1.0, 1.0]])
        >>> gradient = jax.grad(lambda a: hessenberg(a)[1, 0])(a)[:, 0]
        >>> bool(jnp.allclose(gradient, jnp.array([0.0, -0.6, -0.8]), atol=1e-5))
        True

    References:
        Golub and Van Loan, "Matrix Computations" (2013), section 7.4.2 and theorem 7.4.2
        (implicit Q: the columns of Q follow from the first one).
    """
    del overwrite_a, check_finite
    matrix = checks.as_square("hessenberg", a)
    h, q = jnp.vectorize(hessenberg_core, signature="(n,n)->(n,n),(n,n)")(matrix)
    return (h, q) if calc_q else h


@operation()
def hessenberg_core(a: Array) -> tuple[Array, Array]:
    """The factors H and Q of a single matrix."""
    if a.shape[-1] < 2:
        return a, jnp.ones_like(a)
    return jax.scipy.linalg.hessenberg(a, calc_q=True)


@hessenberg_core.defjvp
def _hessenberg_core_jvp(primals, tangents):
    (a,), (a_dot,) = primals, tangents
    h, q = hessenberg_core(a)
    return (h, q), jax.checkpoint(hessenberg_tangents)(h, q, a_dot)


def hessenberg_tangents(h: Array, q: Array, a_dot: Array) -> tuple[Array, Array]:
    """Tangents of `A = Q H Q^H` from its factors, by the rule of this module."""
    size = h.shape[-1]
    if size < 2:
        return a_dot, jnp.zeros_like(q)
    n = mm(adjoint(q), a_dot, q)
    rows = jnp.arange(size)

    def column(k, step):
        j, n_j, h_j = step
        known = jnp.where(rows[None, :] <= j, k, 0.0)
        rest = n_j + mm(h, k[:, j][:, None])[:, 0] - mm(known, h_j[:, None])[:, 0]
        below = jnp.where(rows > j + 1, rest, 0.0)
        if jnp.iscomplexobj(h):
            below += jnp.where(rows == j + 1, 1j * rest.imag, 0.0)
            pivot = h_j[j + 1]
        else:
            # Nothing is left below the last subdiagonal element.
            pivot = jnp.where(j + 2 < size, h_j[j + 1], 1.0)
        below = below / pivot
        new = jnp.where(rows > j + 1, below, 0.0)
        k = k.at[:, j + 1].add(below)
        return k.at[j + 1, :].add(-jnp.conj(new)), None

    steps = (rows[:-1], n.T[:-1], h.T[:-1])
    k = lax.scan(column, jnp.zeros_like(h), steps)[0]
    h_dot = jnp.triu(n - (mm(k, h) - mm(h, k)), -1)
    if jnp.iscomplexobj(h):
        subdiagonal = jnp.diagonal(h_dot, -1)
        h_dot = h_dot - jnp.diag(1j * subdiagonal.imag, -1)
    return h_dot, mm(q, k)
