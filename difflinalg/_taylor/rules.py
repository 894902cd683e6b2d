"""The table of rules: how each operation acts on power series.

A rule belongs to a primitive of JAX, by name, or to an `Operation` of this package:

    @rule("sin", "cos")                     # (equation, inputs, order) -> list of outputs
    @operation_rule(eigh_core)              # (*arguments, *statics, order=...) -> outputs

Inputs and outputs are `Series` or plain arrays (constants). A rule is called only if at least one
input is a series; the others may be either.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import JaxprEqn, Primitive

from difflinalg._core import taylor_checks
from difflinalg._core.operation import Operation
from difflinalg._taylor.series import Series, Value, is_series

Rule = Callable[[JaxprEqn, list[Value], int], list[Value]]

_rules: dict[str | Primitive, Rule] = {}


def rule(*names: str | Primitive) -> Callable[[Rule], Rule]:
    """Decorator: the rule of the primitives of these names (or of a primitive itself).

    The rule is a function `(equation, inputs, order) -> outputs`: the equation of the jaxpr, with
    `equation.primitive` and `equation.params`, the list of its inputs, and the order of the
    series. It returns a list with one entry for each output of the equation.
    """

    def register(function: Rule) -> Rule:
        for name in names:
            _rules[name] = function
        return function

    return register


def find_rule(primitive: Primitive) -> Rule:
    """The rule of a primitive; an error that names it if there is none."""
    found = _rules.get(primitive) or _rules.get(primitive.name)
    if found is None:
        taylor_checks.refuse_operation(primitive.name)
    return found


def operation_rule(operation: Operation) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the rule of an `Operation`.

    The function has the signature of the function of the operation, `(*arguments, *statics)`, and
    the keyword `order`; leaves of the arguments may be `Series`. It returns the outputs of the
    operation, in the same tree, with `Series` or plain arrays as leaves. Batch axes of `vmap` are
    taken away before: shapes are those that the operation was called with.

    Example:
        >>> from difflinalg._core.operation import operation
        >>> from difflinalg._taylor.rules import operation_rule
        >>> from difflinalg._taylor.series import Series, full
        >>> @operation(statics=1)
        ... def scale(x, factor):
        ...     return factor * x
        >>> @operation_rule(scale)
        ... def _(x, factor, *, order):
        ...     return Series(factor * full(x, order))
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def of_equation(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
            call = equation.params["call"]

            def flat(*leaves: Value) -> list[Value]:
                arguments = jax.tree.unflatten(call.treedef, leaves)
                outputs = function(*arguments, *call.statics, order=order)
                return jax.tree.leaves(outputs, is_leaf=is_series)

            for axes in call.axes:
                flat = _mapped(flat, axes)
            return flat(*inputs)

        _rules[operation.primitive] = of_equation
        return function

    return register


def _mapped(f: Callable[..., Any], axes: tuple[int | None, ...]) -> Callable[..., Any]:
    """`f` mapped over the axes of its arguments, which a series has behind its first one."""

    def mapped(*leaves: Value) -> list[Value]:
        shifted = [
            None if axis is None else axis + is_series(x)
            for x, axis in zip(leaves, axes, strict=True)
        ]
        outputs = jax.vmap(f, in_axes=tuple(shifted))(*leaves)
        return [
            Series(jnp.moveaxis(x.coefficients, 0, 1)) if isinstance(x, Series) else x
            for x in outputs
        ]

    return mapped
