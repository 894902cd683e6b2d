"""QR decomposition and its derivative.

Rule. `A = Q R` with `Q^H Q = 1` and a real diagonal of R. Let k = min(m, n), and let R_1 and
A_dot_1 be the first k columns of R and A_dot, `T = Q^H A_dot_1 R_1^-1` and `W = Q^H Q_dot`:

    W[i, j] = T[i, j] for i > j,   W[i, i] = i Im T[i, i],   W = -W^H
    Q_dot = Q W + (1 - Q Q^H) A_dot R_1^-1             (the second term for m > n, reduced)
    R_dot = Q^H A_dot - W R

In the complete decomposition W between the columns that complete Q is zero: they are any basis of
the complement, and this one turns least. Column j of Q and row j of R depend on the pivots
`R[0, 0] ... R[j, j]` only, and the last column of a real m x m factor not on its own pivot. Where
an earlier pivot vanishes they have no derivative and are refused (NaN); the others are exact.
"""

from functools import partial
from typing import Literal, overload

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from difflinalg._core import checks, tolerances
from difflinalg._core.algebra import adjoint, mm
from difflinalg._core.operation import operation
from difflinalg._core.refuse import refuse_where
from difflinalg._core.results import QRResult


@overload
def qr(
    a: ArrayLike, mode: Literal["reduced", "complete", "raw", "full"] = "reduced"
) -> QRResult: ...
@overload
def qr(a: ArrayLike, mode: Literal["r"]) -> Array: ...
@overload
def qr(a: ArrayLike, mode: str) -> Array | QRResult: ...
def qr(a: ArrayLike, mode: str = "reduced") -> Array | QRResult:
    """Decompose matrices as `A = Q R`, Q with orthonormal columns and R upper triangular.

    Args:
        a: shape `(..., m, n)`, real or complex; integers are converted to the default float.
        mode: `'reduced'` (also `'full'`), `'complete'`, `'r'` (R only) or `'raw'` (Householder
            vectors, without derivatives).

    Returns:
        `QRResult(Q, R)` with shapes `(..., m, k)` and `(..., k, n)`, where k = min(m, n), or m
        if complete; only R for `'r'`. The diagonal of R is real, of either sign.

    Raises:
        TypeError: if `a` is not an array of numbers.
        ValueError: if `a` is not a matrix, or `mode` is unknown.

    Derivatives:
        Forward and reverse mode in any nesting, to every order, for tall, square and wide
        matrices. At a vanishing pivot `R[j, j]` (to rounding, relative to column j) the columns
        of Q and rows of R from j on have no derivative: a loss that depends on them has the
        derivative NaN, one that does not has the right one. A last pivot of a real square or wide
        matrix may vanish. The columns that complete Q are differentiated as a basis of the
        complement that turns as little as possible; a loss of them must depend on their span only.

    Cost:
        O(m n min(m, n)); a tangent takes four products of that cost and a triangular solve.
        Reverse mode keeps Q, R and `A_dot`-sized arrays.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg import linalg
        >>> print(jax.grad(lambda a: jnp.abs(linalg.qr(a, mode="r")[0, 0]))(jnp.eye(2)))
        [[1. 0.]
         [0. 0.]]

    References:
        Walter, Lehmann and Lamour, "On evaluating higher-order derivatives of the QR
        decomposition" (2012), section 2.
    """
    matrix = checks.as_matrix("qr", a, sequences=False)
    checks.check_choice("qr", "mode", mode, ("reduced", "complete", "r", "raw", "full"))
    if mode == "raw":
        return QRResult(*jnp.linalg.qr(matrix, mode="raw"))
    q, r = qr_of_matrix(matrix, mode == "complete")
    return r if mode == "r" else QRResult(q, r)


@partial(jax.jit, static_argnums=1)
def qr_of_matrix(a: Array, complete: bool) -> tuple[Array, Array]:
    """Compiled `qr_core`."""
    return qr_core(a, complete)


@operation(statics=1)
def qr_core(a: Array, complete: bool) -> tuple[Array, Array]:
    """The decomposition of LAPACK, reduced or complete."""
    q, r = jnp.linalg.qr(a, mode="complete" if complete else "reduced")
    return q, r


@qr_core.defjvp
def _qr_core_jvp(complete, primals, tangents):
    (a,), (a_dot,) = primals, tangents
    q, r = qr_core(a, complete)
    return (q, r), jax.checkpoint(qr_tangents)(q, r, a_dot)


def qr_tangents(q: Array, r: Array, a_dot: Array) -> tuple[Array, Array]:
    """`q_dot` and `r_dot` from the factors, reduced or complete, and the tangent of `A`.

    For a pivoted decomposition give the permuted tangent.
    """
    m, n = a_dot.shape[-2:]
    k = min(m, n)
    if k == 0:
        return jnp.zeros_like(q), jnp.zeros_like(r)
    vanishing = _vanishing(r, k)
    square = r[..., :k, :k]
    divisor = square + vanishing[..., :, None] * jnp.eye(k, dtype=r.dtype)
    q_h_a_dot = mm(adjoint(q), a_dot)
    t = _divide(divisor, q_h_a_dot[..., :k])
    w = _rotation(t)
    q_dot = mm(q, w)
    if q.shape[-1] < m:
        # (1 - Q Q^H) A_dot R_1^-1; the projection once more, against cancellation.
        q_dot += _divide(divisor, a_dot[..., :k] - mm(q, q_h_a_dot[..., :k]))
    r_dot = jnp.triu(q_h_a_dot - mm(w, r))
    undefined = _undefined(vanishing, q.shape[-1], last_is_free=m <= n and not jnp.iscomplexobj(r))
    return refuse_where(q_dot, undefined[..., None, :]), refuse_where(
        r_dot, undefined[..., :, None]
    )


def _divide(r: Array, x: Array) -> Array:
    """`x r^-1` for an upper triangular r."""
    return lax.linalg.triangular_solve(r, x, left_side=False, lower=False)


def _rotation(t: Array) -> Array:
    """`W` from `T`, shape `(..., p, k)`, completed to `(..., p, p)`."""
    p, k = t.shape[-2:]
    lower = jnp.tril(t, -1)
    if p > k:
        lower = jnp.concatenate([lower, jnp.zeros_like(t, shape=(*t.shape[:-1], p - k))], axis=-1)
    w = lower - adjoint(lower)
    if not jnp.iscomplexobj(t):
        return w
    phases = jnp.imag(jnp.diagonal(t, axis1=-2, axis2=-1))
    padded = jnp.concatenate([phases, jnp.zeros_like(phases, shape=(*t.shape[:-2], p - k))], -1)
    return w + lax.complex(jnp.zeros_like(padded), padded)[..., None] * jnp.eye(p, dtype=t.dtype)


def _vanishing(r: Array, k: int) -> Array:
    """Which of the k pivots are rounding of their column or less."""
    r = lax.stop_gradient(r)
    pivots = jnp.abs(jnp.diagonal(r, axis1=-2, axis2=-1))
    columns = jnp.max(jnp.abs(r[..., :k]), axis=-2)
    return pivots <= tolerances.rank_rtol(r.dtype, max(r.shape[-2:])) * columns


def _undefined(vanishing: Array, size: int, last_is_free: bool) -> Array:
    """Which of `size` columns of Q and rows of R depend on a pivot that vanishes."""
    k = vanishing.shape[-1]
    if last_is_free:
        vanishing = vanishing & (jnp.arange(k) < k - 1)
    seen = lax.cummax(vanishing.astype(jnp.int32), axis=vanishing.ndim - 1)
    rest = jnp.broadcast_to(seen[..., -1:], (*seen.shape[:-1], size - k))
    return jnp.concatenate([seen, rest], axis=-1) > 0
