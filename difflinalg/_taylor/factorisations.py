"""Rules of factorisations that need no gap: Cholesky, LU, QR; of determinants and the norm.

Each order is a linear equation with the factors of order 0. With `H` the coefficient of the matrix
minus the products of lower orders of the factors:

    Cholesky  A = L L^H    M = L_0^-1 H L_0^-H,  L_k = L_0 (strict lower part + half the diagonal)
    LU      P A = L U      M = L_0^-1 H U_0^-1,  L_k = L_0 stril(M),  U_k = triu(M) U_0

(Walter and Lehmann, "Algorithmic differentiation of linear algebra functions with application in
optimum experimental design" (2010), sections 3.1 and 3.2.) The first-order rules of this package
solve just these equations, with `H` in the place of the tangent, and are used for them.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import JaxprEqn

from difflinalg._core.algebra import adjoint, diagonal_matrix, mm
from difflinalg._dense.det import (
    det_cofactors_core,
    det_cofactors_in_blocks,
    det_core,
    lifted,
    slogdet_core,
)
from difflinalg._dense.lu import lu_core, lu_tangents
from difflinalg._dense.norm import Axes, ratio, two_norm_core
from difflinalg._dense.qr import qr_core, qr_tangents
from difflinalg._taylor import arithmetic as ta
from difflinalg._taylor.interpreter import evaluate
from difflinalg._taylor.rules import operation_rule, rule
from difflinalg._taylor.series import Series, Value, full, integral, orders, primal
from difflinalg._taylor.structural import composite


def _lower_orders(a: list[Array], b: list[Array]) -> Array | float:
    """`sum_{0<j<k} a_j b_{k-j}` for lists that end at order `k - 1`, as one product."""
    if len(a) < 2:
        return 0.0
    return mm(jnp.concatenate(a[1:], axis=-1), jnp.concatenate(b[:0:-1], axis=-2))


def cholesky_series(first: Array, a: Array) -> Array:
    """The coefficients of L, the first of which is given."""
    factors = [first]

    def divide(x: Array) -> Array:
        return lax.linalg.triangular_solve(first, x, left_side=True, lower=True)

    for k in range(1, a.shape[0]):
        h = a[k] - _lower_orders(factors, [adjoint(x) for x in factors])
        m = divide(adjoint(divide(h)))
        half = 0.5 * jnp.real(jnp.diagonal(m, axis1=-2, axis2=-1))
        factors.append(mm(first, jnp.tril(m, -1) + diagonal_matrix(half).astype(m.dtype)))
    return jnp.stack(factors)


def lu_series(first: Array, a: Array) -> Array:
    """The coefficients of L and U in one matrix, for the rows in the order of the pivots."""
    m, n = a.shape[-2:]
    k = min(m, n)
    packed = [first]
    # The coefficients of L and U; that of order 0 is not used in the sums.
    lower, upper = [first[:, :k]], [first[:k]]
    for order in range(1, a.shape[0]):
        h = a[order] - _lower_orders(lower, upper)
        packed.append(lu_tangents(first, h))
        lower.append(jnp.tril(packed[-1][:, :k], -1))
        upper.append(jnp.triu(packed[-1][:k]))
    return jnp.stack(packed)


def qr_series(q: Array, r: Array, a: Array) -> tuple[Array, Array]:
    """The coefficients of Q and R, the first of which are given.

    `Q_k = Q_0 S + Q'` with `S = -1/2 sum_{0<j<k} Q_j^H Q_{k-j}`, which restores orthogonality, and
    `Q'` that of the first-order rule for `H - Q_0 S R_0`.
    """
    qs, rs = [q], [r]
    for k in range(1, a.shape[0]):
        h = a[k] - _lower_orders(qs, rs)
        s = -0.5 * jnp.asarray(_lower_orders([adjoint(x) for x in qs], qs))
        if k > 1:
            s_q = mm(q, s)
            rotated, r_k = qr_tangents(q, r, h - mm(s_q, r))
            rotated = rotated + s_q
        else:
            rotated, r_k = qr_tangents(q, r, h)
        qs.append(rotated)
        rs.append(r_k)
    return jnp.stack(qs), jnp.stack(rs)


@rule("cholesky")
def _cholesky(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    del order
    a = inputs[0].coefficients
    first = jnp.tril(evaluate(equation, [a[0]])[0])  # above the diagonal LAPACK leaves `a`
    return [Series(cholesky_series(first, a))]


@rule("lu")
def _lu(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    del order
    a = inputs[0].coefficients
    factors, pivots, permutation = evaluate(equation, [a[0]])
    rows = jnp.take_along_axis(a, permutation[None, ..., :, None], axis=-2)
    series = _for_stacks(lu_series, factors.ndim - 2)(factors, rows)
    return [Series(series), pivots, permutation]


def _for_stacks(f: Callable[..., Array], count: int) -> Callable[..., Array]:
    """`f(first, coefficients)` of a matrix, mapped over stacks of matrices."""
    for _ in range(count):
        f = jax.vmap(f, in_axes=(0, 1), out_axes=1)
    return f


@operation_rule(lu_core)
def _lu_core(permuted: Value, factors: Value, *, order: int) -> Value:
    return Series(lu_series(primal(factors), full(permuted, order)))


@rule("qr")
def _qr(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    del order
    a = inputs[0].coefficients
    q, r, *order_of_columns = evaluate(equation, [a[0]])
    if order_of_columns:
        columns = order_of_columns[0][None, ..., None, :]
        a = jnp.take_along_axis(a, columns, axis=-1)
    qs, rs = qr_series(q, r, a)
    return [Series(qs), Series(rs), *order_of_columns]


@operation_rule(qr_core)
def _qr_core(a: Value, complete: bool, *, order: int) -> tuple[Value, Value]:
    coefficients = full(a, order)
    q, r = qr_core(coefficients[0], complete)
    qs, rs = qr_series(q, r, coefficients)
    return Series(qs), Series(rs)


@operation_rule(det_core)
def _det_core(a: Value, *, order: int) -> Value:
    """By the formula in blocks, which also holds where the matrix is singular."""
    (value,) = composite(lambda a: det_cofactors_in_blocks(a)[0], a, order=order)
    return Series(full(value, order).at[0].set(det_core(primal(a))))


@operation_rule(lifted)
def _lifted(values: Value, a: Value, level: int, *, order: int) -> Value:
    """A constant that knows the order of differentiation."""
    return lifted(primal(values), primal(a), level + order)


@operation_rule(slogdet_core)
def _slogdet_core(a: Value, by_qr: bool, *, order: int) -> tuple[Value, Value]:
    coefficients = full(a, order)
    sign, log = slogdet_core(coefficients[0], by_qr)
    rate = _slope_of_log_det(coefficients)
    logs = Series(integral(log, jnp.real(rate)))
    if not jnp.iscomplexobj(rate):
        return sign, logs
    angle = integral(jnp.zeros_like(log), jnp.imag(rate))
    return Series(ta.exponential(sign, 1j * angle)), logs


def _slope_of_log_det(a: Array) -> Array:
    """`tr(Z E')` for `A_0^-1 A = 1 + E` and `Z = (1 + E)^-1`, to one order less than `a`."""
    order = a.shape[0] - 1
    wide = jnp.linalg.solve(a[0], jnp.concatenate(list(a[1:]), axis=-1))
    e = jnp.stack(jnp.split(wide, order, axis=-1))
    z = [jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a[0].shape)]
    rates = []
    for k in range(order):
        if k:
            above, below = jnp.concatenate(list(e[:k]), axis=-1), jnp.concatenate(z[::-1], axis=-2)
            z.append(-mm(above, below))
        slopes = orders(e[: k + 1], 1) * e[: k + 1]
        rates.append(jnp.sum(slopes * jnp.swapaxes(jnp.stack(z[::-1]), -1, -2), axis=(0, -1, -2)))
    return jnp.stack(rates)


@operation_rule(det_cofactors_core)
def _det_cofactors_core(a: Value, *, order: int) -> list[Value]:
    return composite(det_cofactors_in_blocks, a, order=order)


@operation_rule(two_norm_core)
def _two_norm_core(a: Value, axes: Axes, keepdims: bool, level: int, *, order: int) -> Value:
    """The root of the sum of squares; zero where the series is."""
    x = full(a, order)
    largest = jnp.max(jnp.abs(x[0]), axis=axes, keepdims=True, initial=0)
    size = jnp.where((largest > 0) & (largest < jnp.inf), largest, 1.0)
    unit = x / size.astype(x.dtype)
    squares = ta.product(unit.real, unit.real)
    if jnp.iscomplexobj(x):
        squares = squares + ta.product(unit.imag, unit.imag)
    behind = tuple(axis % x[0].ndim + 1 for axis in axes)
    total = jnp.sum(squares, axis=behind, keepdims=True)
    rests = jnp.all(x == 0, axis=(0, *behind), keepdims=True)[0]
    value = size * ta.sqrt(jnp.where(rests, 1.0, total))
    value = jnp.where(rests, 0.0, value)
    value = value if keepdims else jnp.squeeze(value, axis=behind)
    return Series(value.at[0].set(two_norm_core(x[0], axes, keepdims, level)))


@operation_rule(ratio)
def _ratio(a: Value, n: Value, *, order: int) -> Value:
    x, divisor = full(a, order), full(n, order)
    zero = divisor[0] == 0
    safe = divisor.at[0].set(jnp.where(zero, 1.0, divisor[0])).astype(x.dtype)
    value = ta.quotient(x, jnp.broadcast_to(safe, x.shape))
    return Series(jnp.where(zero, jnp.nan, value).at[0].set(ratio(x[0], divisor[0])))
