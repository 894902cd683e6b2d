"""Rules for programs inside of programs: calls, branches and loops.

A loop carries a series wherever the loop makes one: which parts of the carry are constant is found
by tracing the body until the answer no longer changes. Conditions see the coefficient of order 0.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import ClosedJaxpr, JaxprEqn, jaxpr_as_fun

from difflinalg._taylor.interpreter import evaluate, interpret, interpret_closed
from difflinalg._taylor.rules import rule
from difflinalg._taylor.series import Series, Value, full, integral, is_series, primals, slope

Flags = tuple[bool, ...]


@lru_cache(maxsize=1024)
def _compiled(closed: ClosedJaxpr, order: int) -> Callable[..., list[Value]]:
    """The interpreted program under jit, traced once for inputs of the same kind."""
    return jax.jit(lambda *arguments: interpret_closed(closed, arguments, order))


@rule("jit", "pjit")
def _jit(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    closed = equation.params["jaxpr"]
    if equation.params["inline"]:
        return interpret_closed(closed, inputs, order)
    return _compiled(closed, order)(*inputs)


@rule("custom_jvp_call")
def _custom_jvp_call(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    """A function with a rule for its first derivative: `y' = rule(x, x')`, one order lower.

    The rule calls the function again, on series of that order. Its body need not be differentiable
    (that of `lax.custom_root` is not), and is never followed.
    """
    at_zero = evaluate(equation, primals(inputs))
    moving = [i for i, x in enumerate(inputs) if isinstance(x, Series)]

    def slopes(xs: list[Array], x_dots: list[Array]) -> list[Array]:
        def f(*parts: Array) -> list[Array]:
            arguments = list(xs)
            for i, part in zip(moving, parts, strict=True):
                arguments[i] = part
            return [y for y in evaluate(equation, arguments) if is_inexact(y)]

        return jax.jvp(f, [xs[i] for i in moving], x_dots)[1]

    xs = primals(inputs)
    closed = jax.make_jaxpr(slopes)(xs, [xs[i] for i in moving])
    rates = [slope(inputs[i].coefficients) for i in moving]
    if order == 1:
        y_dots = [y[None] for y in jaxpr_as_fun(closed)(*xs, *(x[0] for x in rates))]
    else:
        lower = [Series(x.coefficients[:-1]) if isinstance(x, Series) else x for x in inputs]
        found = interpret_closed(closed, [*lower, *map(Series, rates)], order - 1)
        y_dots = [full(y, order - 1) for y in found]
    rest = iter(y_dots)
    return [Series(integral(y, next(rest))) if is_inexact(y) else y for y in at_zero]


def is_inexact(x: Any) -> bool:
    """Whether an array has derivatives."""
    return bool(jnp.issubdtype(jnp.result_type(x), jnp.inexact))


@rule("closed_call", "core_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
def _call(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    """A function with a rule for first derivatives: the function itself is followed."""
    names = ("call_jaxpr", "fun_jaxpr", "jaxpr")
    closed = next(equation.params[name] for name in names if name in equation.params)
    return interpret_closed(closed, inputs, order)


@rule("checkpoint", "remat", "remat2")
def _checkpoint(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    jaxpr, policy = equation.params["jaxpr"], equation.params["policy"]

    def run(*arguments: Value) -> list[Value]:
        return interpret(jaxpr, [], arguments, order)

    again = jax.checkpoint(run, policy=policy, prevent_cse=equation.params["prevent_cse"])
    return again(*inputs)


def _as_flagged(values: Sequence[Value], flags: Flags, order: int) -> list[Value]:
    """Values as series where the flags say so; a series stays one."""
    return [Series(full(x, order)) if flag else x for x, flag in zip(values, flags, strict=True)]


def _flags_of(f: Callable[..., list[Value]], *arguments: Any) -> Flags:
    """Which outputs of `f` are series, without computing them."""
    return tuple(is_series(x) for x in jax.eval_shape(f, *arguments))


@rule("cond")
def _cond(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    index, *operands = inputs
    closed = equation.params["branches"]
    branches = [lambda *xs, c=c: interpret_closed(c, xs, order) for c in closed]
    found = [_flags_of(branch, *operands) for branch in branches]
    flags = tuple(any(flag) for flag in zip(*found, strict=True))
    same = [lambda *xs, b=b: _as_flagged(b(*xs), flags, order) for b in branches]
    return lax.switch(index, same, *operands)


def _carry_flags(
    body: Callable[..., list[Value]], carry: Sequence[Value], order: int, *rest: Any
) -> Flags:
    """Which parts of the carry of `body(carry, *rest) -> (*carry, ...)` become series."""
    flags = tuple(is_series(x) for x in carry)
    while True:
        found = _flags_of(body, _as_flagged(carry, flags, order), *rest)[: len(flags)]
        union = tuple(a or b for a, b in zip(flags, found, strict=True))
        if union == flags:
            return flags
        flags = union


@rule("while")
def _while(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    params = equation.params
    of_cond, of_body = params["cond_nconsts"], params["body_nconsts"]
    cond_consts = primals(inputs[:of_cond])
    body_consts = inputs[of_cond : of_cond + of_body]
    test = jaxpr_as_fun(params["cond_jaxpr"])

    def body(carry: Sequence[Value]) -> list[Value]:
        return interpret_closed(params["body_jaxpr"], [*body_consts, *carry], order)

    carry = inputs[of_cond + of_body :]
    flags = _carry_flags(body, carry, order)
    return lax.while_loop(
        lambda carry: test(*cond_consts, *primals(carry))[0],
        lambda carry: _as_flagged(body(carry), flags, order),
        _as_flagged(carry, flags, order),
    )


@rule("scan")
def _scan(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    params = equation.params
    closed, of_consts, of_carry = params["jaxpr"], params["num_consts"], params["num_carry"]
    consts, carry = inputs[:of_consts], inputs[of_consts : of_consts + of_carry]
    xs = [_swapped(x) for x in inputs[of_consts + of_carry :]]

    def body(carry: Sequence[Value], x: Sequence[Value]) -> list[Value]:
        return interpret_closed(closed, [*consts, *carry, *x], order)

    row = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), xs)
    flags = _carry_flags(body, carry, order, row)

    def step(carry: list[Value], x: list[Value]) -> tuple[list[Value], list[Value]]:
        outputs = body(carry, x)
        return _as_flagged(outputs[:of_carry], flags, order), outputs[of_carry:]

    carry, ys = lax.scan(
        step,
        _as_flagged(carry, flags, order),
        xs,
        length=params["length"],
        reverse=params["reverse"],
        unroll=params["unroll"],
    )
    return [*carry, *(_swapped(y) for y in ys)]


def _swapped(x: Value) -> Value:
    """A series with its first two axes exchanged, that of the order and that of the loop."""
    return Series(jnp.swapaxes(x.coefficients, 0, 1)) if isinstance(x, Series) else x
