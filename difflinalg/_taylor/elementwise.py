"""Rules of elementwise operations.

Where an operation has a kink (`abs`, `max`), the values for small `t > 0` decide, so that the
series is that of the function on that side.
"""

import math
from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import JaxprEqn

from difflinalg._taylor import arithmetic as ta
from difflinalg._taylor.interpreter import shape_of
from difflinalg._taylor.rules import rule
from difflinalg._taylor.series import Series, Value, full, integral, primal, slope


def unary(*names: str) -> Callable[[Callable[[Array], Array]], Callable[[Array], Array]]:
    """Decorator: a function of stacked coefficients as the rule of these primitives."""

    def register(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
        @rule(*names)
        def _(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
            del equation
            return [Series(function(full(inputs[0], order)))]

        return function

    return register


def _by_slope(name: str, function: Callable, rate: Callable[[Array], Array]) -> None:
    """The rule of a function with `f(x)' = rate(x) x'`, where `rate` is a function of series."""
    unary(name)(lambda x: integral(function(x[0]), ta.product(rate(x[:-1]), slope(x))))


def _shift(x: Array, constant: float) -> Array:
    """`x + constant`."""
    return x.at[0].add(constant)


def _square_plus(x: Array, constant: float) -> Array:
    return _shift(ta.product(x, x), constant)


def _unit_gap(x: Array) -> Array:
    """`1 - x^2`."""
    return ta.product(_shift(-x, 1.0), _shift(x, 1.0))


def _inverse_root(x: Array) -> Array:
    return ta.real_power(lax.rsqrt(x[0]), x, -0.5)


def _bell(x: Array) -> Array:
    """The derivative of the error function."""
    return 2.0 / math.sqrt(math.pi) * ta.exp(-ta.product(x, x))


unary("exp")(ta.exp)
unary("exp2")(lambda x: ta.exponential(jnp.exp2(x[0]), math.log(2.0) * x))
unary("log")(ta.log)
unary("sqrt")(ta.sqrt)
unary("rsqrt")(_inverse_root)
unary("cbrt")(lambda x: ta.real_power(jnp.cbrt(x[0]), x, 1.0 / 3.0))
unary("square")(lambda x: ta.product(x, x))
unary("tanh")(lambda x: ta.riccati(jnp.tanh(x[0]), x, (1.0, 0.0, -1.0)))
unary("tan")(lambda x: ta.riccati(jnp.tan(x[0]), x, (1.0, 0.0, 1.0)))
unary("logistic")(lambda x: ta.riccati(lax.logistic(x[0]), x, (0.0, 1.0, -1.0)))
unary("sin")(lambda x: ta.rotation((jnp.sin(x[0]), jnp.cos(x[0])), x, -1)[0])
unary("cos")(lambda x: ta.rotation((jnp.sin(x[0]), jnp.cos(x[0])), x, -1)[1])
unary("sinh")(lambda x: ta.rotation((jnp.sinh(x[0]), jnp.cosh(x[0])), x, 1)[0])
unary("cosh")(lambda x: ta.rotation((jnp.sinh(x[0]), jnp.cosh(x[0])), x, 1)[1])
unary("erf_inv")(lambda x: ta.inverse_error_function(lax.erf_inv(x[0]), x))
_by_slope("expm1", jnp.expm1, ta.exp)
_by_slope("log1p", jnp.log1p, lambda x: ta.reciprocal(_shift(x, 1.0)))
_by_slope("asin", lax.asin, lambda x: _inverse_root(_unit_gap(x)))
_by_slope("acos", lax.acos, lambda x: -_inverse_root(_unit_gap(x)))
_by_slope("atan", lax.atan, lambda x: ta.reciprocal(_square_plus(x, 1.0)))
_by_slope("asinh", lax.asinh, lambda x: _inverse_root(_square_plus(x, 1.0)))
_by_slope("acosh", lax.acosh, lambda x: ta.product(
    _inverse_root(_shift(x, -1.0)), _inverse_root(_shift(x, 1.0))))  # fmt: skip
_by_slope("atanh", lax.atanh, lambda x: ta.reciprocal(_unit_gap(x)))
_by_slope("erf", lax.erf, _bell)
_by_slope("erfc", lax.erfc, lambda x: -_bell(x))


@unary("lgamma")
def _lgamma(x: Array) -> Array:
    return ta.compose([lax.lgamma(x[0]), *_digamma_terms(x[0], x.shape[0] - 1, 1)], x)


@unary("digamma")
def _digamma(x: Array) -> Array:
    return ta.compose(_digamma_terms(x[0], x.shape[0], 0), x)


def _digamma_terms(x: Array, count: int, lift: int) -> list[Array]:
    """The derivatives of the digamma function over the factorial of their order plus `lift`."""
    terms = [lax.digamma(x)]
    terms += [lax.polygamma(jnp.full_like(x, m), x) for m in range(1, count)]
    return [term / math.factorial(m + lift) for m, term in enumerate(terms[:count])]


@rule("integer_pow")
def _integer_pow(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    x, n = full(inputs[0], order), equation.params["y"]
    if n == 0:
        return [jnp.ones_like(x[0])]
    value = ta.power(x, abs(n))
    return [Series(value if n > 0 else ta.reciprocal(value))]


@rule("pow")
def _pow(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    x, y = inputs
    shape = shape_of(equation)
    start = lax.pow(*jnp.broadcast_arrays(primal(x), primal(y)))
    if not isinstance(y, Series):
        return [Series(ta.real_power(start, ranked(x, shape, order), jnp.asarray(y)))]
    if isinstance(x, Series):
        exponent = ta.product(ranked(y, shape, order), ta.log(ranked(x, shape, order)))
    else:  # zero to a positive power is zero, as in the rule of JAX
        exponent = ranked(y, shape, order) * jnp.log(jnp.where(x == 0.0, 1.0, x))
    return [Series(ta.exponential(start, exponent))]


@rule("atan2")
def _atan2(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    shape = shape_of(equation)
    y, x = (jnp.broadcast_to(ranked(v, shape, order), (order + 1, *shape)) for v in inputs)
    short_x, short_y = x[:-1], y[:-1]
    turn = ta.product(short_x, slope(y)) - ta.product(short_y, slope(x))
    size = ta.product(short_x, short_x) + ta.product(short_y, short_y)
    return [Series(integral(lax.atan2(y[0], x[0]), ta.quotient(turn, size)))]


@rule("div")
def _div(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    u, w = inputs
    shape = shape_of(equation)
    if not isinstance(w, Series):
        return [Series(ranked(u, shape, order) / w)]
    u = jnp.broadcast_to(ranked(u, shape, order), (order + 1, *shape))
    return [Series(ta.quotient(u, ranked(w, shape, order)))]


@rule("rem")
def _rem(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    """`x - y n` with the constant `n`, the integer part of `x / y`."""
    x, y = inputs
    shape = shape_of(equation)
    value = lax.rem(*jnp.broadcast_arrays(primal(x), primal(y)))
    whole = lax.round((primal(x) - value) / primal(y))
    return [Series((ranked(x, shape, order) - whole * ranked(y, shape, order)).at[0].set(value))]


@rule("abs")
def _abs(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    del equation
    x = full(inputs[0], order)
    if not jnp.iscomplexobj(x):
        return [Series((ta.leading_sign(x) * x).at[0].set(jnp.abs(x[0])))]
    rests = jnp.all(x == 0.0, axis=0)
    real, imag = jnp.where(rests, 1.0, x.real), jnp.where(rests, 0.0, x.imag)
    square = ta.product(real, real) + ta.product(imag, imag)
    # The first coefficient by the function itself, which does not overflow.
    value = ta.real_power(jnp.hypot(real[0], imag[0]), square, 0.5)
    return [Series(jnp.where(rests, 0.0, value))]


@rule("sign")
def _sign(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    del equation
    x = full(inputs[0], order)
    if not jnp.iscomplexobj(x):
        return [jnp.sign(x[0])]
    square = ta.product(x.real, x.real) + ta.product(x.imag, x.imag)
    inverse = _inverse_root(jnp.where(square[0] == 0.0, 1.0, square))
    return [Series(jnp.where(square[0] == 0.0, 0.0, ta.product(x, inverse.astype(x.dtype))))]


@rule("max", "min")
def _max(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    shape = shape_of(equation)
    x, y = (jnp.broadcast_to(ranked(v, shape, order), (order + 1, *shape)) for v in inputs)
    return [Series(choose(x, y, equation.primitive.name == "max"))]


def choose(x: Array, y: Array, largest: bool) -> Array:
    """The larger or the smaller of two series for small `t > 0`."""
    sign = ta.leading_sign(x - y)
    value = jnp.where(sign >= 0.0 if largest else sign <= 0.0, x, y)
    pick = jnp.maximum if largest else jnp.minimum
    return value.at[0].set(pick(x[0], y[0]))  # which knows about NaN and infinities


@rule("clamp")
def _clamp(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    shape = shape_of(equation)
    low, x, high = (jnp.broadcast_to(ranked(v, shape, order), (order + 1, *shape)) for v in inputs)
    return [Series(choose(choose(low, x, True), high, False))]


def ranked(x: Value, shape: tuple[int, ...], order: int) -> Array:
    """The coefficients of an operand that may be a scalar where the result is an array."""
    coefficients = full(x, order)
    missing = len(shape) + 1 - coefficients.ndim
    return coefficients.reshape(coefficients.shape[:1] + (1,) * missing + coefficients.shape[1:])
