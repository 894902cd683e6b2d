"""Algebraic Riccati equations and their derivatives.

With `G = B R^-1 B^H` (after S and E have been eliminated) the stabilising solutions of

    continuous   A^H X + X A - X G X + Q = 0
    discrete     A^H X (I + G X)^-1 A - X + Q = 0

Values. Continuous: the sign function of the Hamiltonian matrix `[[A, -G], [-Q, -A^H]]` projects
on the stable subspace, which (I, X) spans; Newton steps then remove its rounding errors. Discrete:
the structure-preserving doubling algorithm.

Rule. Differentiated, both are Lyapunov equations of the closed loop, `A_c = A - G X` and
`A_c = (I + G X)^-1 A`; with `M = X (I + G X)^-1`,

    A_c^H X_dot + X_dot A_c = -(A_dot^H X + X A_dot - X G_dot X + Q_dot)
    X_dot - A_c^H X_dot A_c = A_dot^H M A + A^H M A_dot - A^H M G_dot M A + Q_dot
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from difflinalg._core import checks
from difflinalg._core.algebra import adjoint, herm, mm
from difflinalg._core.operation import operation
from difflinalg._core.tolerances import newton_rtol
from difflinalg._dense.lyapunov import continuous_lyapunov, discrete_lyapunov
from difflinalg._dense.signm import Sign

NEWTON_STEPS = 2
MAX_DOUBLINGS = 60


def solve_continuous_are(
    a: ArrayLike,
    b: ArrayLike,
    q: ArrayLike,
    r: ArrayLike,
    e: ArrayLike | None = None,
    s: ArrayLike | None = None,
    balanced: bool = True,
) -> Array:
    """Solve the continuous-time algebraic Riccati equation.

    `E^H X A + A^H X E - (E^H X B + S) R^-1 (B^H X E + S^H) + Q = 0`

    Args:
        a: shape `(..., m, m)`, real or complex.
        b: shape `(..., m, n)`.
        q: shape `(..., m, m)`, Hermitian; its Hermitian part is used.
        r: shape `(..., n, n)`, Hermitian, not singular; its Hermitian part is used.
        e: shape `(..., m, m)`, not singular; the identity if absent.
        s: shape `(..., m, n)`; zero if absent.
        balanced: ignored: no pencil is formed.

    Returns:
        The stabilising X, shape `(..., m, m)`, Hermitian; NaN where there is none.

    Raises:
        ValueError: if the shapes do not fit.

    Derivatives:
        With respect to all matrices, all orders, both modes in any nesting.

    Cost:
        About 10 inverses of 2m x 2m matrices and a few Schur decompositions (CPU only); the rule
        solves one Lyapunov equation per tangent.

    Example:
        >>> import jax.numpy as jnp
        >>> one = jnp.eye(1)
        >>> print(solve_continuous_are(0.0 * one, one, 4.0 * one, one).round(4))
        [[2.]]

    References:
        Roberts (1980), as for `signm`; Lancaster and Rodman, "Algebraic Riccati Equations"
        (1995), section 11.2 (derivatives).
    """
    del balanced
    return _solve("solve_continuous_are", continuous_core, a, b, q, r, e, s)


def solve_discrete_are(
    a: ArrayLike,
    b: ArrayLike,
    q: ArrayLike,
    r: ArrayLike,
    e: ArrayLike | None = None,
    s: ArrayLike | None = None,
    balanced: bool = True,
) -> Array:
    """Solve the discrete-time algebraic Riccati equation.

    `A^H X A - E^H X E - (A^H X B + S) (R + B^H X B)^-1 (B^H X A + S^H) + Q = 0`

    Args:
        a: shape `(..., m, m)`, real or complex.
        b: shape `(..., m, n)`.
        q: shape `(..., m, m)`, Hermitian; its Hermitian part is used.
        r: shape `(..., n, n)`, Hermitian; its Hermitian part is used. It must not be singular,
            which SciPy does not demand.
        e: shape `(..., m, m)`, not singular; the identity if absent.
        s: shape `(..., m, n)`; zero if absent.
        balanced: ignored: no pencil is formed.

    Returns:
        The stabilising X, shape `(..., m, m)`, Hermitian; NaN where there is none.

    Raises:
        ValueError: if the shapes do not fit.

    Derivatives:
        With respect to all matrices, all orders, both modes in any nesting.

    Cost:
        About 10 solves of m x m systems; the rule solves one discrete Lyapunov equation per
        tangent (CPU only).

    Example:
        >>> import jax.numpy as jnp
        >>> one = jnp.eye(1)
        >>> print(solve_discrete_are(0.0 * one, one, 4.0 * one, one).round(4))
        [[4.]]

    References:
        Chu, Fan, Lin, Wang, "Structure-preserving algorithms for periodic discrete-time
        algebraic Riccati equations" (2004), algorithm 2.1 ff.
    """
    del balanced
    return _solve("solve_discrete_are", discrete_core, a, b, q, r, e, s)


def _solve(name, core, a, b, q, r, e, s) -> Array:
    """Eliminate S and E, and solve the standard equation."""
    given = [a, b, q, r, *(x for x in (e, s) if x is not None)]
    arrays = [checks.as_matrix(name, x) for x in given]
    dtype = jnp.result_type(*arrays)
    m, n = arrays[1].shape[-2:]
    shapes = [(m, m), (m, n), (m, m), (n, n)]
    shapes += [(m, m)] * (e is not None) + [(m, n)] * (s is not None)
    if any(x.shape[-2:] != shape for x, shape in zip(arrays, shapes, strict=True)):
        checks.refuse_shapes(name, *(x.shape for x in arrays))
    return _reduced(core, e is not None, s is not None, *(x.astype(dtype) for x in arrays))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _reduced(core, has_e: bool, has_s: bool, a, b, q, r, *rest) -> Array:
    q, r = herm(q), herm(r)
    s = rest[-1] if has_s else None
    if has_e:
        # In Y = X with A E^-1, E^-H Q E^-1 and E^-H S the equation has E = I.
        inverse = jnp.linalg.inv(rest[0])
        a, q = mm(a, inverse), herm(mm(adjoint(inverse), q, inverse))
        s = None if s is None else mm(adjoint(inverse), s)
    if s is not None:
        gain = jnp.linalg.solve(r, adjoint(s))
        a, q = a - mm(b, gain), herm(q - mm(s, gain))
    g = herm(mm(b, jnp.linalg.solve(r, adjoint(b))))
    return jnp.vectorize(core, signature="(m,m),(m,m),(m,m)->(m,m)")(a, g, q)


@operation()
def continuous_core(a: Array, g: Array, q: Array) -> Array:
    """The stabilising solution of `A^H X + X A - X G X + Q = 0` for single matrices."""
    m = a.shape[-1]
    if m == 0:
        return a
    identity = jnp.eye(m, dtype=a.dtype)
    sign = Sign().value(jnp.block([[a, -g], [-q, -adjoint(a)]]))
    # (sign + I) (I; X) = 0, an overdetermined consistent system.
    left = jnp.concatenate([sign[:m, m:], sign[m:, m:] + identity])
    right = -jnp.concatenate([sign[:m, :m] + identity, sign[m:, :m]])
    orthogonal, triangle = jnp.linalg.qr(left)
    x = herm(jnp.linalg.solve(triangle, mm(adjoint(orthogonal), right)))

    def newton(_, x):
        residual = mm(adjoint(a), x) + mm(x, a) - mm(x, g, x) + q
        return herm(x + continuous_lyapunov(adjoint(a - mm(g, x)), -residual))

    return lax.fori_loop(0, NEWTON_STEPS, newton, x)


@continuous_core.defjvp
def _continuous_core_jvp(primals, tangents):
    a, g, q = primals
    x = continuous_core(a, g, q)
    return x, jax.checkpoint(_continuous_tangent)(x, a, g, *tangents)


def _continuous_tangent(x, a, g, a_dot, g_dot, q_dot):
    rate = mm(adjoint(a_dot), x) + mm(x, a_dot) - mm(x, g_dot, x) + q_dot
    return herm(continuous_lyapunov(adjoint(a - mm(g, x)), -herm(rate)))


@operation()
def discrete_core(a: Array, g: Array, q: Array) -> Array:
    """The stabilising solution of `A^H X (I + G X)^-1 A - X + Q = 0` for single matrices."""
    identity = jnp.eye(a.shape[-1], dtype=a.dtype)
    if a.size == 0:
        return a

    def doubling(state):
        a, g, x, _, count = state
        both = jnp.linalg.solve(identity + mm(g, x), jnp.concatenate([a, g], axis=1))
        w_a, w_g = both[:, : a.shape[-1]], both[:, a.shape[-1] :]
        new = herm(x + mm(adjoint(a), x, w_a))
        change = jnp.max(jnp.abs(new - x)) / jnp.maximum(jnp.max(jnp.abs(new)), tiny)
        return mm(a, w_a), herm(g + mm(a, w_g, adjoint(a))), new, change, count + 1

    def unfinished(state):
        return (state[3] > newton_rtol(a.dtype)) & (state[4] < MAX_DOUBLINGS)

    tiny = jnp.finfo(a.dtype).tiny
    state = (a, g, q, jnp.asarray(jnp.inf, a.real.dtype), 0)
    state = lax.while_loop(unfinished, doubling, state)
    converged = state[3] <= newton_rtol(a.dtype)
    # One more step, because convergence is quadratic.
    return doubling(state)[2] * jnp.where(converged, 1.0, jnp.nan).astype(a.real.dtype)


@discrete_core.defjvp
def _discrete_core_jvp(primals, tangents):
    a, g, q = primals
    x = discrete_core(a, g, q)
    return x, jax.checkpoint(_discrete_tangent)(x, a, g, *tangents)


def _discrete_tangent(x, a, g, a_dot, g_dot, q_dot):
    inner = jnp.eye(a.shape[-1], dtype=a.dtype) + mm(g, x)
    closed = jnp.linalg.solve(inner, a)
    # M = X (I + G X)^-1 is the Hermitian adjoint of (I + X G)^-1 X.
    middle = adjoint(jnp.linalg.solve(adjoint(inner), x))
    half = mm(adjoint(a_dot), middle, a)
    rate = half + adjoint(half) - mm(adjoint(a), middle, g_dot, middle, a) + q_dot
    return herm(discrete_lyapunov(adjoint(closed), herm(rate)))
