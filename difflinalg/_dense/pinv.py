"""Pseudo-inverse, truncated or not, least squares, and their derivatives.

Value. Of `A = U diag(s) V^H` the singular values above a cutoff are kept, and
`P = V_1 diag(1/s_1) U_1^H`.

Rule. P is the pseudo-inverse of the kept part of A, `A_1 = A P A`; the dropped part `B = A - A_1`
need not vanish. With the projectors `Q_U = A P` and `Q_V = P A`, for a fixed number of kept values,

    P_dot = -P A_dot P + X^H + Y
    X A_1^H - B Y = (1 - Q_U) A_dot P,       X = X Q_V,   Q_U X = 0
    Y A_1 - B^H X = (1 - Q_V) A_dot^H P^H,   Y = Y Q_U,   Q_V Y = 0

In the singular bases the two equations couple the entries X[j, i] and Y[j, i] only, j dropped and
i kept, with determinant `s_i^2 - s_j^2`: no gap between two kept or two dropped values enters, and
the rule is exact where they coincide. With B = 0 this is the formula of Golub and Pereyra. The
equations are solved multiplied by `A_1` and `A_1^H`, and completed to regular ones on all matrices.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from difflinalg._core import checks, dense_checks, lapack, tolerances
from difflinalg._core.algebra import adjoint, herm, mm
from difflinalg._core.operation import operation
from difflinalg._dense.svd import svd_core, svdvals_tangents


class Factors(NamedTuple):
    """A singular value decomposition of which `kept` marks the values in use, 1 or 0."""

    u: Array
    s: Array
    vh: Array
    kept: Array


def pinv(
    a: ArrayLike,
    rtol: ArrayLike | None = None,
    hermitian: bool = False,
    *,
    rcond: ArrayLike | None = None,
) -> Array:
    """Moore-Penrose pseudo-inverse of matrices, of their leading part if truncated.

    Args:
        a: shape `(..., m, n)`, real or complex; integers are converted to the default float.
        rtol: singular values up to this multiple of the largest count as zero; a number, or an
            array that broadcasts against the shape `(...)` of the stack. By default
            `10 eps max(m, n)`, as in JAX.
        hermitian: take the Hermitian part of `a`.
        rcond: another name of `rtol`.

    Returns:
        The pseudo-inverse, shape `(..., n, m)`.

    Raises:
        TypeError: if `a` is not an array of numbers.
        ValueError: if `a` is not a matrix, not square with `hermitian`, or both `rtol` and
            `rcond` are given.

    Derivatives:
        Forward and reverse mode in any nesting, to every order, exact for repeated singular
        values, at a fixed number of kept ones: right for every perturbation if the rank is full,
        and for those that keep the rank if values vanish (the pseudo-inverse jumps for others).
        With a cutoff above nonzero values the derivative is that of the truncated
        pseudo-inverse; it is not finite where the cutoff separates equal values. `rtol` itself
        has no derivative.

    Cost:
        One singular value decomposition; a tangent takes about fifteen products. Reverse mode
        keeps `P`, `A` and the factors.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg import linalg
        >>> print(jax.grad(lambda a: linalg.pinv(a)[0, 0])(jnp.diag(jnp.array([2.0, 0.0]))))
        [[-0.25  0.  ]
         [ 0.    0.  ]]

    References:
        Golub and Pereyra, "The differentiation of pseudo-inverses" (1973), equation (4.12).
    """
    dense_checks.check_alias("pinv", "rtol", rtol, "rcond", rcond)
    check = checks.as_square if hermitian else checks.as_matrix
    matrix = check("pinv", a, sequences=False)
    if matrix.shape[-1] == 0 or matrix.shape[-2] == 0:
        return jnp.empty((*matrix.shape[:-2], *matrix.shape[:-3:-1]), matrix.dtype)
    given = rcond if rtol is None else rtol
    real = matrix.real.dtype
    default = 10.0 * tolerances.rank_rtol(real, max(matrix.shape[-2:]))
    cutoff = checks.as_inexact("pinv", default if given is None else given).astype(real)
    batch = jnp.broadcast_shapes(cutoff.shape, matrix.shape[:-2])
    matrix = jnp.broadcast_to(matrix, (*batch, *matrix.shape[-2:]))
    return _pinv(matrix, jnp.broadcast_to(cutoff, batch), hermitian)


def lstsq(
    a: ArrayLike, b: ArrayLike, rcond: float | None = None, *, numpy_resid: bool = False
) -> tuple[Array, Array, Array, Array]:
    """Least-squares solution of `a x = b`, of least norm among all of them.

    Args:
        a: shape `(m, n)`, real or complex, of any rank.
        b: shape `(m,)` or `(m, k)`.
        rcond: singular values below this multiple of the largest count as zero. By default
            `eps max(m, n)`.
        numpy_resid: return residuals as NumPy does, empty unless m > n and the rank is full; not
            under jit.

    Returns:
        `(x, resid, rank, s)`: the solution, shape `(n,)` or `(n, k)`; the squared norms of
        `b - a x`, shape `(1,)` or `(k,)`; the number of singular values in use; all of them.

    Raises:
        TypeError: if `a` or `b` is not an array of numbers, or has too many or too few axes.
        ValueError: if the first axes differ.

    Derivatives:
        With respect to `a` and `b`; those of `pinv(a, rcond) @ b`, see there: every order, also
        where singular values coincide, and at a rank that is kept. `resid` and `s` are
        differentiable as well, `s` as `svdvals` is.

    Cost:
        As `pinv`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg import linalg
        >>> a, b = jnp.array([[1.0], [1.0]]), jnp.array([1.0, 3.0])
        >>> print(linalg.lstsq(a, b)[0], jax.grad(lambda a: linalg.lstsq(a, b)[0][0])(a)[:, 0])
        [2.] [-1.5 -0.5]

    References:
        Golub and Pereyra, "The differentiation of pseudo-inverses" (1973), section 4.
    """
    matrix, rhs = (checks.as_inexact("lstsq", x, sequences=False) for x in (a, b))
    dense_checks.check_least_squares("lstsq", matrix.shape, rhs.shape)
    dtype = jnp.result_type(matrix, rhs)
    checks.refuse_half("lstsq", dtype)
    matrix, rhs = matrix.astype(dtype), rhs.astype(dtype)
    real = matrix.real.dtype
    if rcond is None:
        cutoff = jnp.asarray(tolerances.rank_rtol(real, max(*matrix.shape, 1)), real)
    else:
        cutoff = jnp.where(jnp.asarray(rcond) < 0, tolerances.epsilon(real), rcond).astype(real)
    x, resid, rank, s = _lstsq(matrix, rhs.reshape(rhs.shape[0], -1), cutoff)
    if numpy_resid and (rank < matrix.shape[1] or matrix.shape[0] <= matrix.shape[1]):
        resid = jnp.asarray([], real)
    return x.reshape(matrix.shape[1], *rhs.shape[1:]), resid, rank, s


@partial(jax.jit, static_argnums=2)
def _pinv(a: Array, rtol: Array, hermitian: bool) -> Array:
    return pinv_core(herm(a) if hermitian else a, rtol, False)[0]


@jax.jit
def _lstsq(a: Array, b: Array, rcond: Array) -> tuple[Array, Array, Array, Array]:
    if a.size == 0:
        x, s = jnp.zeros((a.shape[1], b.shape[1]), a.dtype), jnp.zeros(0, a.real.dtype)
        rank = jnp.zeros((), int)
    else:
        p, s, factors = pinv_core(a, rcond, True)
        x = mm(p, b)
        # The factors, applied one by one, solve more accurately than their product.
        inverse = _inverse(factors)[:, None]
        better = mm(adjoint(factors.vh), inverse * mm(adjoint(factors.u), b))
        x = x + lax.stop_gradient(better - x)
        rank = jnp.sum(factors.kept > 0)
    rest = b - mm(a, x)
    return x, jnp.sum(jnp.real(jnp.conj(rest) * rest), axis=0), rank, s


@operation(statics=1)
def pinv_core(a: Array, rtol: Array, inclusive: bool) -> tuple[Array, Array, Factors]:
    """The pseudo-inverse, the singular values, and the factors, which are constants.

    Args:
        a: shape `(..., m, n)`, not empty.
        rtol: shape `(...)`, the cutoff relative to the largest singular value.
        inclusive: keep a value that equals the cutoff.
    """
    u, s, vh = lapack.svd(a)
    cutoff = rtol[..., None] * s[..., :1]
    kept = (s >= cutoff) & (s > 0) if inclusive else s > cutoff
    factors = Factors(u, s, vh, kept.astype(s.dtype))
    p = mm(adjoint(vh) * _inverse(factors)[..., None, :], adjoint(u))
    return jnp.where(jnp.isnan(s[..., :1, None]), jnp.nan, p), s, factors


@pinv_core.defjvp
def _pinv_core_jvp(inclusive, primals, tangents):
    (a, rtol), (a_dot, _) = primals, tangents
    p, s, factors = pinv_core(a, rtol, inclusive)
    factors = lax.stop_gradient(factors)
    p_dot = jax.checkpoint(pinv_tangent)(a, p, factors, a_dot)
    # Only lstsq hands out the singular values; elsewhere this decomposition is not used.
    u, s, vh = svd_core(a, False, 0, None)
    s_dot = jax.checkpoint(svdvals_tangents)(u, vh, a_dot)
    return (p, s, factors), (p_dot, s_dot, jax.tree.map(jnp.zeros_like, factors))


def _inverse(factors: Factors) -> Array:
    return factors.kept / jnp.where(factors.kept > 0, factors.s, 1.0)


def pinv_tangent(a: Array, p: Array, factors: Factors, a_dot: Array) -> Array:
    """The tangent of the pseudo-inverse `p` from the tangent of `a`, by the rule above."""
    # All lengths in units of the largest singular value.
    unit = jnp.where(factors.s[..., :1] > 0, factors.s[..., :1], 1.0)[..., None]
    a, p, a_dot = a / unit, p * unit, a_dot / unit
    scaled = factors._replace(s=factors.s / unit[..., 0])
    x, y = _coupling(a, p, scaled, a_dot)
    return (adjoint(x) + y - mm(p, a_dot, p)) / unit


def _coupling(a: Array, p: Array, factors: Factors, a_dot: Array) -> tuple[Array, Array]:
    """`X` and `Y` of the module docstring."""
    a_1 = mm(a, p, a)
    b = a - a_1
    q_u, q_v = partial(_product, a, p), partial(_product, p, a)

    def operator(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        x, y = pair
        x_a, y_a = mm(x, adjoint(a_1)), mm(y, a_1)
        # On the dropped part of the row space, where the equations say nothing, the identity.
        x_rest, y_rest = x - mm(mm(x, p), a), y - mm(mm(y, a), p)
        return (
            mm(x_a - mm(b, y), a_1) + x_rest,
            mm(y_a - mm(adjoint(b), x), adjoint(a_1)) + y_rest,
        )

    a_dot_h = adjoint(a_dot)
    x_rhs, y_rhs = mm(mm(a_dot, p), a), mm(mm(a_dot_h, a), p)
    return lax.custom_linear_solve(
        operator,
        (x_rhs - q_u(x_rhs), y_rhs - q_v(y_rhs)),
        lambda _, rhs: _solve_coupled(factors, *rhs),
        # The operator is Hermitian, so that its transpose is its conjugate.
        lambda _, rhs: jax.tree.map(
            jnp.conj, _solve_coupled(factors, *(jnp.conj(part) for part in rhs))
        ),
    )


def _product(x: Array, y: Array, z: Array) -> Array:
    return mm(x, mm(y, z))


def _solve_coupled(factors: Factors, x: Array, y: Array) -> tuple[Array, Array]:
    """Solve the pair of equations in the singular bases."""
    u, s, vh, kept = factors
    v, inverse = adjoint(vh), _inverse(factors)[..., None, :]
    s_i, s_j = s[..., None, :], (s * (1.0 - kept))[..., :, None]
    alive = kept[..., None, :]
    # Not finite where the cutoff separates equal values.
    weight = alive / jnp.where(alive > 0, (s_i - s_j) * (s_i + s_j), 1.0)
    x_right, y_right = mm(x, v) * alive, mm(y, u) * alive
    x_in, y_in = mm(adjoint(u), x_right), mm(vh, y_right)
    solved_x = mm(u, weight * (x_in + s_j * inverse * y_in))
    solved_y = mm(v, weight * (y_in + s_j * inverse * x_in))
    # Outside of the span of the thin factors s_j = 0.
    solved_x += (x_right - mm(u, x_in)) * inverse**2
    solved_y += (y_right - mm(v, y_in)) * inverse**2
    rest_x, rest_y = x - mm(x_right, vh), y - mm(y_right, adjoint(u))
    return mm(solved_x, vh) + rest_x, mm(solved_y, adjoint(u)) + rest_y
