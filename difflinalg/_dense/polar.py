"""Polar decomposition and its derivative.

Value. `A = W P` for an m x n matrix, m >= n: W has orthonormal columns, P is positive
semidefinite. Wide matrices are done by the adjoint, left factors from `P_left = W P W^H`.

Rule. Differentiating `A = W P`, `W^H W = 1` and `P = P^H`, with `T = W^H A_dot`:

    K = W^H W_dot = -K^H solves   P K + K P = T - T^H
    P_dot = T - K P                                             (Hermitian part)
    W_dot = W K + (A_dot - W T) P^-1

In the eigenbasis of P the first equation divides by `p_i + p_j` and never by a difference: equal
singular values are nothing special, to any order. W and P in the rule are outputs of the
decomposition, so that a derivative of the rule finds theirs.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from difflinalg._core.algebra import adjoint, herm, inv0, mm, skew
from difflinalg._core.checks import as_matrix, check_choice, check_positive, refuse_nonfinite
from difflinalg._core.dense_checks import check_eps
from difflinalg._core.operation import operation
from difflinalg._core.refuse import refuse_where
from difflinalg._core.tolerances import rank_rtol


def polar(
    a: ArrayLike,
    side: str = "right",
    *,
    method: str = "qdwh",
    eps: float | None = None,
    max_iterations: int | None = None,
) -> tuple[Array, Array]:
    """Compute the polar decomposition `a = unitary @ posdef` (or `posdef @ unitary`).

    Args:
        a: shape `(..., m, n)`, any m and n for both sides, real or complex.
        side: "right" for `a = unitary @ posdef`, "left" for `a = posdef @ unitary`.
        method: "qdwh" (an iteration of products and QR, the default) or "svd".
        eps: precision that "qdwh" iterates to, a number between 0 and 1 (static); that of the
            dtype by default. Not used by "svd".
        max_iterations: most steps of "qdwh", 10 by default. Not used by "svd".

    Returns:
        `unitary`, shape `(..., m, n)`, with orthonormal columns (rows if m < n), and `posdef`,
        positive semidefinite, shape `(..., n, n)` for the right side, `(..., m, m)` for the left.
        Where `a` is rank deficient, `unitary` is not unique: "svd" completes it, while the part
        that "qdwh" returns in place of the missing directions is not orthonormal.

    Raises:
        TypeError: if `a` is not an array of numbers, `eps` not a number, or `max_iterations` not
            an integer.
        ValueError: if `a` has no two axes, `side` or `method` is unknown, `eps` or
            `max_iterations` is out of range, or (outside jit and other transformations) `a`
            contains NaN or inf; under jit the result is NaN.

    Derivatives:
        All orders, forward and reverse mode in any nesting, exact to rounding for repeated
        singular values too. Where `a` is rank deficient (a singular value below `rank_rtol` of
        the largest, of min(m, n) of them), `unitary` has no derivative: its tangents are NaN, as
        is a gradient that depends on it. There `posdef` is like `abs` at 0; its first derivative
        is exact for every loss that has one and otherwise a subgradient (trace: the nuclear
        norm), and second derivatives are NaN. The rule takes the factors as exact: with a coarse
        `eps` or few iterations its error is theirs.

    Cost:
        As the method; the rule adds an eigendecomposition of an n x n matrix (the smaller side)
        and 8 to 11 products per tangent. Reverse mode keeps the factors only.

    Example:
        >>> import jax.numpy as jnp
        >>> unitary, posdef = polar(jnp.array([[0.0, -2.0], [2.0, 0.0]]), method="svd")
        >>> print(posdef)
        [[2. 0.]
         [0. 2.]]

    References:
        Higham, "Functions of Matrices" (2008), section 8.1, equation (8.10) and theorem 8.9 ff.
        Nakatsukasa, Bai, Gygi, "Optimizing Halley's iteration for computing the matrix polar
        decomposition" (2010), section 4: "qdwh".
    """
    array = as_matrix("polar", a)
    check_choice("polar", "side", side, ("right", "left"))
    check_choice("polar", "method", method, ("qdwh", "svd"))
    eps = check_eps("polar", eps)
    if max_iterations is not None:
        max_iterations = check_positive("polar", "max_iterations", max_iterations)
    refuse_nonfinite("polar", array)
    rows, columns = array.shape[-2:]
    tall = array if rows >= columns else adjoint(array)
    w, p = polar_core(tall, (method, eps, max_iterations))
    if (side == "right") != (rows >= columns):
        p = herm(mm(w, p, adjoint(w)))
    return (w if rows >= columns else adjoint(w)), p


@operation(statics=1)
def polar_core(a: Array, options: tuple) -> tuple[Array, Array]:
    """The factors of a tall or square matrix; `options` are method, eps and max_iterations."""
    method, eps, max_iterations = options
    if method == "svd" or 0 in a.shape:
        return jax.scipy.linalg.polar(a, method="svd")

    # jax.scipy.linalg.polar fails for any eps, and drops max_iterations.
    def qdwh(a):
        return lax.linalg.qdwh(a, eps=eps, max_iterations=max_iterations)[:2]

    return jnp.vectorize(qdwh, signature="(m,n)->(m,n),(n,n)")(a)


@polar_core.defjvp
def _polar_core_jvp(options, primals, tangents):
    (a,), (a_dot,) = primals, tangents
    w, p = polar_core(a, options)
    return (w, p), polar_tangents(w, p, a_dot)


def polar_tangents(w: Array, p: Array, a_dot: Array) -> tuple[Array, Array]:
    """Tangents of `A = W P` (tall or square) from its factors, by the rule of this module.

    Args:
        w: shape `(..., m, n)`, orthonormal columns.
        p: shape `(..., n, n)`, Hermitian.
        a_dot: the tangent of A, shape `(..., m, n)`.

    Returns:
        `w_dot` and `p_dot`; `w_dot` is NaN where `p` is singular.
    """
    values, vectors = jnp.linalg.eigh(lax.stop_gradient(p))
    largest = jnp.max(jnp.abs(values), axis=-1, keepdims=True, initial=0.0)
    tolerance = rank_rtol(p.dtype, p.shape[-1]) * largest
    singular = jnp.any(values <= tolerance, axis=-1)[..., None, None]
    sums = inv0(values[..., :, None] + values[..., None, :], tolerance[..., None])
    inverse = inv0(values, tolerance)[..., None, :]

    def sylvester(v, b):
        return mm(v, mm(adjoint(v), b, v) * sums, adjoint(v))

    def divide(v, b):
        return mm(mm(b, v) * inverse, adjoint(v))

    t = mm(adjoint(w), a_dot)
    # The anti-Hermitian part: a rounding error of the other, divided by a small 2 p_i, is large.
    k = skew(_solve(lambda x: mm(p, x) + mm(x, p), t - adjoint(t), sylvester, vectors))
    p_dot = herm(t - mm(k, p))
    w_dot = mm(w, k)
    if w.shape[-2] > w.shape[-1]:
        w_dot += _solve(lambda x: mm(x, p), a_dot - mm(w, t), divide, vectors)
    return refuse_where(w_dot, singular), p_dot


def _solve(operator, b, solve, vectors):
    """Solve `operator(x) = b` in the eigenbasis of P, exact in its derivatives by `operator`."""
    return lax.custom_linear_solve(
        operator,
        b,
        lambda _, rhs: solve(vectors, rhs),
        # The transpose of P is its conjugate.
        lambda _, rhs: solve(jnp.conj(vectors), rhs),
    )
