"""Arithmetic and elementary functions of series, on stacked coefficients.

Functions take and return arrays of shape `(K + 1, *shape)`. A quotient or a solution of a
differential equation is built order by order; what an order contributes to all later ones is added
at once, so that the size of a program grows like `K` and its work like `K^2`. The recurrences are
those of Griewank and Walther, "Evaluating Derivatives" (2008), tables 13.1 and 13.2.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._taylor.series import integral, orders, slope

Bilinear = Callable[[Array, Array], Array]


def shifted(x: Array, by: int) -> Array:
    """`t^by x`, with `by` more coefficients."""
    zero = jnp.zeros((), x.dtype)
    return lax.pad(x, zero, [(by, 0, 0)] + [(0, 0, 0)] * (x.ndim - 1))


def cauchy(op: Bilinear, a: Array, b: Array) -> Array:
    """The series of `op(a, b)` for a bilinear `op` on coefficients."""
    count = a.shape[0]
    each = jax.vmap(op, in_axes=(None, 0))
    total = each(a[0], b)
    for j in range(1, count):
        total = total + shifted(each(a[j], b[: count - j]), j)
    return total


@jax.jit
def product(a: Array, b: Array) -> Array:
    """`a b`, elementwise."""
    return cauchy(jnp.multiply, a, b)


def power(x: Array, n: int) -> Array:
    """`x^n` for an integer `n >= 1`, by squaring."""
    if n == 1:
        return x
    half = power(x, n // 2)
    square = product(half, half)
    return product(square, x) if n % 2 else square


@jax.jit
def quotient(u: Array, w: Array) -> Array:
    """`u / w`: `v_k = (u_k - sum_{j<k} v_j w_{k-j}) / w_0`."""
    rest, terms = u, []
    for _ in range(u.shape[0]):
        terms.append(rest[0] / w[0])
        rest = rest[1:] - terms[-1] * w[1 : rest.shape[0]]
    return jnp.stack(terms)


def reciprocal(w: Array) -> Array:
    """`1 / w`."""
    one = jnp.zeros_like(w).at[0].set(1.0)
    return quotient(one, w)


@jax.jit
def exponential(start: Array, x: Array) -> Array:
    """The solution of `v' = v x'` with `v(0) = start`, that is `start exp(x - x_0)`."""
    rate, terms = slope(x), [start]
    rest = jnp.zeros_like(rate)
    for k in range(1, x.shape[0]):
        rest = rest + terms[-1] * rate[: rest.shape[0]]
        terms.append(rest[0] / k)
        rest = rest[1:]
    return jnp.stack(terms)


def exp(x: Array) -> Array:
    """`exp(x)`."""
    return exponential(jnp.exp(x[0]), x)


def log(x: Array) -> Array:
    """`log(x)`."""
    return integral(jnp.log(x[0]), quotient(slope(x), x[:-1]))


@jax.jit
def real_power(start: Array, x: Array, a: Array | float) -> Array:
    """`x^a` for a constant `a`, from its first coefficient: the solution of `x v' = a x' v`."""
    terms, rest = [start], jnp.zeros_like(x[1:])
    for k in range(1, x.shape[0]):
        own = x[1 : rest.shape[0] + 1]
        rest = rest + (a * orders(own, 1) - (k - 1)) * own * terms[-1]
        terms.append(rest[0] / (k * x[0]))
        rest = rest[1:]
    return jnp.stack(terms)


def sqrt(x: Array) -> Array:
    """`sqrt(x)`."""
    return real_power(jnp.sqrt(x[0]), x, 0.5)


@jax.jit
def rotation(start: tuple[Array, Array], x: Array, sign: int) -> tuple[Array, Array]:
    """The solution of `s' = c x'`, `c' = sign s x'`: sine and cosine, or the hyperbolic ones."""
    rate = slope(x)
    (s, c), rests = start, (jnp.zeros_like(rate), jnp.zeros_like(rate))
    sines, cosines = [s], [c]
    for k in range(1, x.shape[0]):
        own = rate[: rests[0].shape[0]]
        rests = (rests[0] + own * cosines[-1], rests[1] + sign * own * sines[-1])
        sines.append(rests[0][0] / k)
        cosines.append(rests[1][0] / k)
        rests = (rests[0][1:], rests[1][1:])
    return jnp.stack(sines), jnp.stack(cosines)


@jax.jit
def riccati(start: Array, x: Array, rates: tuple[float, float, float]) -> Array:
    """The solution of `v' = (a + b v + c v^2) x'`, `rates = (a, b, c)`."""
    a, b, c = rates
    rate, v = slope(x), start[None]
    right = a + b * v + c * v * v
    for k in range(1, x.shape[0]):
        v = jnp.concatenate([v, (_last(rate[:k], right) / k)[None]])
        right = jnp.concatenate([right, (b * v[k] + c * _last(v, v))[None]])
    return v


@jax.jit
def inverse_error_function(start: Array, x: Array) -> Array:
    """The solution of `v' = sqrt(pi) / 2 exp(v^2) x'`."""
    rate, v = jnp.sqrt(jnp.pi) / 2 * slope(x), start[None]
    right, square_rate = jnp.exp(v * v), None
    for k in range(1, x.shape[0]):
        v = jnp.concatenate([v, (_last(rate[:k], right) / k)[None]])
        new = (2 * _last(v[:-1], slope(v)))[None]  # coefficient k - 1 of (v^2)'
        square_rate = new if square_rate is None else jnp.concatenate([square_rate, new])
        right = jnp.concatenate([right, (_last(square_rate, right) / k)[None]])
    return v


def _last(a: Array, b: Array) -> Array:
    """The last coefficient of the product of two series of the same length."""
    return jnp.sum(a * b[::-1], axis=0)


def compose(outer: list[Array], x: Array) -> Array:
    """`sum_m outer[m] (x - x_0)^m`, by Horner's rule."""
    step = x.at[0].set(0.0)
    total = jnp.zeros_like(x).at[0].set(outer[-1])
    for coefficient in reversed(outer[:-1]):
        total = product(total, step).at[0].set(coefficient)
    return total


def leading_sign(x: Array) -> Array:
    """The sign of `x(t)` for small `t > 0`: that of the first coefficient that is not zero."""
    sign = jnp.sign(x[-1])
    for k in range(x.shape[0] - 2, -1, -1):
        sign = jnp.where(x[k] == 0.0, sign, jnp.sign(x[k]))
    return sign
