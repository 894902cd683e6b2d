"""A traced program, evaluated on power series, equation by equation.

Equations whose inputs are all constant, and those whose outputs are integers or booleans, are
evaluated as they are. Programs inside of programs
(jit, loops, branches) are the business of their rules, in `control.py`.
"""

from collections.abc import Sequence
from typing import cast

import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from difflinalg._taylor.rules import find_rule
from difflinalg._taylor.series import Value, is_series, primals


def interpret(
    jaxpr: Jaxpr, consts: Sequence[Value], arguments: Sequence[Value], order: int
) -> list[Value]:
    """The outputs of a jaxpr for constants and arguments that may be series."""
    values: dict[Var, Value] = {}
    values.update(zip(jaxpr.constvars, consts, strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))

    def read(atom):
        if isinstance(atom, Literal):
            return np.asarray(atom.val, cast(ShapedArray, atom.aval).dtype)
        return values[atom]

    for equation in jaxpr.eqns:
        inputs = [read(atom) for atom in equation.invars]
        if any(is_series(x) for x in inputs) and _is_smooth(equation):
            outputs = find_rule(equation.primitive)(equation, inputs, order)
        else:
            outputs = evaluate(equation, primals(inputs))
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _is_smooth(equation: JaxprEqn) -> bool:
    """Whether an output is floating or complex."""
    avals = [cast(ShapedArray, v.aval) for v in equation.outvars]
    return any(jnp.issubdtype(aval.dtype, jnp.inexact) for aval in avals)


def interpret_closed(closed: ClosedJaxpr, arguments: Sequence[Value], order: int) -> list[Value]:
    """`interpret` for a jaxpr that comes with its constants."""
    return interpret(closed.jaxpr, closed.consts, arguments, order)


def shape_of(equation: JaxprEqn) -> tuple[int, ...]:
    """The shape of the first output."""
    return cast(ShapedArray, equation.outvars[0].aval).shape


def evaluate(equation: JaxprEqn, inputs: Sequence[Value]) -> list[Value]:
    """The outputs of one equation for arrays, with all derivative rules left in place."""
    found = equation.primitive.get_bind_params(equation.params)
    functions, params = found if isinstance(found, tuple) else ((), found)  # by version of JAX
    out = equation.primitive.bind(*functions, *inputs, **params)
    return list(out) if equation.primitive.multiple_results else [out]
