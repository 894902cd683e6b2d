"""Polar decomposition and its derivative.

Rule. For a tall matrix `A = W P` with `W^H W = I` and Hermitian `P`, differentiation leaves an
anti-Hermitian `K = W^H W_dot` and a Hermitian `P_dot`:

    K P + P K = W^H A_dot - A_dot^H W
    P_dot     = W^H A_dot - K P
    W_dot     = W K + (I - W W^H) A_dot P^-1

In the eigenbasis of `P` the first equation divides by sums `p[i] + p[j]`, never by differences:
repeated singular values are nothing special, to every order. Both linear systems are solved by
`lax.custom_linear_solve`, whose matrix `P` is the output of the decomposition itself, so that
nested derivatives are those of the implicit function.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from difflinalg._core import checks, tolerances
from difflinalg._core.algebra import adjoint, herm, mm


def polar(
    a: ArrayLike,
    side: str = "right",
    *,
    method: str = "qdwh",
    eps: float | None = None,
    max_iterations: int | None = None,
) -> tuple[Array, Array]:
    """Decompose matrices as `A = U P` (right) or `A = P U` (left).

    Args:
        a: shape `(..., m, n)`, real or complex.
        side: `'right'` or `'left'`.
        method: `'qdwh'` or `'svd'`, the algorithm, as in `jax.scipy.linalg.polar`.
        eps: precision of the iteration `'qdwh'`, as in JAX.
        max_iterations: limit of the iteration `'qdwh'`, as in JAX.

    Returns:
        `(U, P)`: `U`, shape `(..., m, n)`, with orthonormal columns (rows if `m < n`); `P`,
        positive semidefinite, shape `(..., n, n)` for the right side, `(..., m, m)` for the left.

    Raises:
        TypeError: if `a` is not an array of numbers.
        ValueError: if `a` is not a matrix, `side` or `method` is unknown, or (outside jit and
            other transformations) `a` contains NaN or inf; under jit the result is NaN.

    Derivatives:
        Forward and reverse mode in any nesting, exact to every order for matrices of full rank,
        also where singular values coincide. Undefined for a rank-deficient matrix, where `U` is
        not unique and `P` not differentiable: there the derivative is NaN.

    Cost:
        O(m n min(m, n)); the rule adds one eigendecomposition of `P` and six products.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg.scipy import linalg
        >>> print(jax.jacfwd(lambda a: linalg.polar(a)[0])(2.0 * jnp.eye(2))[0, 1].round(2))
        [[ 0.    0.25]
         [-0.25  0.  ]]

    References:
        Higham, "Functions of Matrices" (2008), chapter 8, theorem 8.7 (sums of singular values).
    """
    matrix = checks.as_matrix("polar", a)
    checks.check_choice("polar", "side", side, ("right", "left"))
    checks.check_choice("polar", "method", method, ("qdwh", "svd"))
    checks.refuse_nonfinite("polar", matrix)
    return _polar(matrix, side == "right", method, eps, max_iterations)


@partial(jax.jit, static_argnums=(1, 2, 3, 4))
def _polar(
    a: Array, right: bool, method: str, eps: float | None, max_iterations: int | None
) -> tuple[Array, Array]:
    """Reduce every case to the right factor of a tall matrix."""
    tall = a.shape[-2] >= a.shape[-1]
    w, p = polar_core(a if tall else adjoint(a), method, eps, max_iterations)
    if tall:
        return w, p if right else herm(mm(w, p, adjoint(w)))
    return adjoint(w), herm(mm(w, p, adjoint(w))) if right else p


@partial(jax.custom_jvp, nondiff_argnums=(1, 2, 3))
def polar_core(
    a: Array, method: str, eps: float | None, max_iterations: int | None
) -> tuple[Array, Array]:
    """`W` and `P` of tall matrices."""
    if a.size == 0:
        return a, jnp.zeros((*a.shape[:-2], a.shape[-1], a.shape[-1]), a.dtype)
    w, p = jax.scipy.linalg.polar(a, method=method, eps=eps, max_iterations=max_iterations)
    return w, herm(p)


@polar_core.defjvp
def _polar_core_jvp(method, eps, max_iterations, primals, tangents):
    (a,), (a_dot,) = primals, tangents
    w, p = polar_core(a, method, eps, max_iterations)
    return (w, p), jax.checkpoint(polar_tangents)(w, p, a_dot)


def polar_tangents(w: Array, p: Array, a_dot: Array) -> tuple[Array, Array]:
    """`w_dot` and `p_dot` from the factors of a tall `A = W P`."""
    b = mm(adjoint(w), a_dot)
    spectrum, basis = jnp.linalg.eigh(lax.stop_gradient(p), symmetrize_input=False)
    if spectrum.shape[-1] > 0:
        floor = tolerances.rank_rtol(spectrum.dtype, w.shape[-2]) * spectrum[..., -1:]
        spectrum = jnp.where(spectrum > floor, spectrum, jnp.nan)
    sums = spectrum[..., :, None] + spectrum[..., None, :]

    def sylvester(rhs: Array) -> Array:
        return mm(basis, mm(adjoint(basis), rhs, basis) / sums, adjoint(basis))

    def divide(rhs: Array) -> Array:
        return mm(mm(rhs, basis) / spectrum[..., None, :], adjoint(basis))

    k = _implicit(lambda x: mm(x, p) + mm(p, x), b - adjoint(b), sylvester)
    w_dot = mm(w, k)
    if w.shape[-2] > w.shape[-1]:
        w_dot = w_dot + _implicit(lambda x: mm(x, p), a_dot - mm(w, b), divide)
    return w_dot, herm(b - mm(k, p))


def _implicit(matvec, rhs: Array, solution) -> Array:
    """Solve `matvec(x) = rhs` for a Hermitian operator whose inverse at the point is known."""
    return lax.custom_linear_solve(
        matvec,
        rhs,
        lambda _, y: solution(y),
        lambda _, y: jnp.conj(solution(jnp.conj(y))),
    )
