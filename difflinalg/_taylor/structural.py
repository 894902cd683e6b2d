"""Rules of operations that are linear or bilinear in their operands, and of those that only move.

A linear operation is applied to all coefficients at once, mapped over their axis, or, if they are
few, to one after the other: then the compiler sees no array of coefficients that has to be built.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import JaxprEqn

from difflinalg._taylor import arithmetic as ta
from difflinalg._taylor.convolution import WRITTEN_OUT
from difflinalg._taylor.elementwise import choose, ranked
from difflinalg._taylor.interpreter import evaluate, interpret_closed, shape_of
from difflinalg._taylor.rules import rule
from difflinalg._taylor.series import Series, Value, full, primals


def is_smooth(x: Any) -> bool:
    """Whether a value is floating or complex."""
    return jnp.issubdtype(jnp.result_type(x), jnp.inexact)


def composite(f, *inputs: Value, order: int) -> list[Value]:
    """A function of arrays, which returns one array or a list, applied to series."""
    closed = jax.make_jaxpr(lambda *xs: jax.tree.leaves(f(*xs)))(*primals(list(inputs)))
    return interpret_closed(closed, inputs, order)


@rule("stop_gradient", "floor", "ceil", "round", "nextafter")
def _constant(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    del order
    return evaluate(equation, primals(inputs))


@rule(
    "neg", "real", "imag", "conj", "complex", "convert_element_type", "reduce_precision",
    "broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "rev", "slice",
    "concatenate", "split", "stack", "unstack", "pad", "tile", "select_n", "dynamic_slice",
    "dynamic_update_slice", "gather", "scatter", "scatter-add", "scatter-sub", "scatter_add",
    "reduce_sum", "reduce_window_sum", "cumsum", "fft", "copy", "copy_p", "device_put",
    "reshard", "optimization_barrier", "sharding_constraint", "add_any", "select_and_gather_add",
)  # fmt: skip
def _linear(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    """Linear in all floating operands together; predicates and indices are constants."""
    axes = [0 if is_smooth_value(x) else None for x in inputs]
    operands = [full(x, order) if axis == 0 else x for x, axis in zip(inputs, axes, strict=True)]

    if order <= WRITTEN_OUT:
        parts = list(zip(operands, inputs, strict=True))
        each = [
            evaluate(equation, [x[k] if is_smooth_value(y) else x for x, y in parts])
            for k in range(order + 1)
        ]
        return [Series(jnp.stack(coefficients)) for coefficients in zip(*each, strict=True)]
    single = jax.vmap(lambda *xs: evaluate(equation, xs), in_axes=tuple(axes))
    return [Series(x) for x in single(*operands)]


def is_smooth_value(x: Value) -> bool:
    """Whether an operand has coefficients, or zeros for them."""
    return isinstance(x, Series) or is_smooth(x)


@rule("add", "sub")
def _add(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    x, y = inputs
    shape = shape_of(equation)
    op = jnp.add if equation.primitive.name == "add" else jnp.subtract
    if isinstance(x, Series) and isinstance(y, Series):
        return [Series(op(ranked(x, shape, order), ranked(y, shape, order)))]
    moving = ranked(x if isinstance(x, Series) else y, shape, order)
    first = op(*primals([x, y]))
    rest = op(0.0, moving[1:]) if isinstance(y, Series) else moving[1:]
    rest = jnp.broadcast_to(rest, (order, *shape))
    return [Series(jnp.concatenate([first[None], rest]))]


@rule("mul")
def _mul(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    x, y = inputs
    shape = shape_of(equation)
    if isinstance(x, Series) and isinstance(y, Series):
        return [Series(ta.product(ranked(x, shape, order), ranked(y, shape, order)))]
    if isinstance(x, Series):
        return [Series(ranked(x, shape, order) * y)]
    return [Series(x * ranked(y, shape, order))]


@rule("dot_general", "conv_general_dilated")
def _bilinear(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    x, y = inputs

    def op(x: Array, y: Array) -> Array:
        return evaluate(equation, [x, y])[0]

    if isinstance(x, Series) and isinstance(y, Series):
        contracting = equation.params.get("dimension_numbers", (((), ()),))[0]
        if equation.primitive.name == "dot_general" and contracting[0]:
            axes = contracting[0][0], contracting[1][0]
            return [Series(_wide_products(op, axes, x.coefficients, y.coefficients))]
        return [Series(ta.cauchy(op, x.coefficients, y.coefficients))]
    if isinstance(x, Series):
        return [Series(jax.vmap(op, in_axes=(0, None))(x.coefficients, y))]
    return [Series(jax.vmap(op, in_axes=(None, 0))(x, full(y, order)))]


def _wide_products(op: ta.Bilinear, axes: tuple[int, int], a: Array, b: Array) -> Array:
    """The product of two series, order k by one contraction of `[a_0 .. a_k]`, `[b_k .. b_0]`.

    Args:
        op: a contraction.
        axes: an axis of `a_k` and the one of `b_k` that is contracted with it.
        a: coefficients.
        b: coefficients.
    """
    return jnp.stack(
        [
            op(
                jnp.concatenate(a[: k + 1], axis=axes[0]),
                jnp.concatenate(b[k::-1], axis=axes[1]),
            )
            for k in range(a.shape[0])
        ]
    )


@rule("sort")
def _sort(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    """Keys that agree at `t = 0` are ordered as for small `t > 0`."""
    del order
    params, keys = equation.params, []
    axis = params["dimension"]
    for x in inputs[: params["num_keys"]]:
        keys += list(x.coefficients) if isinstance(x, Series) else [x]
    place = lax.broadcasted_iota(jnp.int32, keys[0].shape, axis)
    *_, place = lax.sort([*keys, place], dimension=axis, num_keys=len(keys))
    return [_take(x, place, axis) for x in inputs]


def _take(x: Value, place: Array, axis: int) -> Value:
    """The entries of `x` at places along an axis."""
    if isinstance(x, Series):
        each = partial(jnp.take_along_axis, indices=place, axis=axis)
        return Series(jax.vmap(each)(x.coefficients))
    return jnp.take_along_axis(x, place, axis)


@rule("top_k")
def _top_k(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    del order
    (x,), (values, place) = inputs, evaluate(equation, primals(inputs))
    axis = equation.params.get("axis", values.ndim - 1) % values.ndim
    return [_take(x, place, axis), place]


@rule("reduce_max", "reduce_min")
def _reduce_max(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    """Pairs are compared as for small `t > 0`, in a tournament."""
    x, axes = full(inputs[0], order), equation.params["axes"]
    largest = equation.primitive.name == "reduce_max"
    return [Series(_tournament(x, axes, partial(choose, largest=largest)))]


@rule("reduce_prod")
def _reduce_prod(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    return [Series(_tournament(full(inputs[0], order), equation.params["axes"], ta.product))]


def _tournament(x: Array, axes: tuple[int, ...], play) -> Array:
    """Reduce axes of the coefficients by a function of two series, by halves."""
    axes = tuple(axis + 1 for axis in axes)
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    x = jnp.transpose(x, (*kept, *axes)).reshape(*(x.shape[axis] for axis in kept), count)
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        rest = x[..., 2 * half :]
        x = jnp.concatenate([play(x[..., :half], x[..., half : 2 * half]), rest], axis=-1)
    return x[..., 0]


_SCANS = {"cumprod": lax.mul, "cummax": lax.max, "cummin": lax.min, "cumlogsumexp": jnp.logaddexp}


@rule(*_SCANS)
def _cumulative(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    params, op = equation.params, _SCANS[equation.primitive.name]
    scan = partial(lax.associative_scan, op, axis=params["axis"], reverse=params["reverse"])
    return composite(scan, *inputs, order=order)
