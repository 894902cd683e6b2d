"""Operations that are linear in one argument and whose transpose is known in closed form."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad

from difflinalg._core.operation import Operation

Transpose = Callable[..., Any]


class LinearOperation(Operation):
    """An `Operation` that is linear in its last argument, an array, and returns one array.

    Reverse mode needs the transpose with respect to that argument, which is set by
    `deftranspose`; the rule of `defjvp` gives the derivative with respect to the others.

    Args:
        function: takes pytrees of arrays, then the array in which it is linear, then the static
            arguments; returns an array.
        statics: how many of the last arguments are static.
    """

    def __init__(self, function: Callable[..., Any], statics: int = 0):
        super().__init__(function, statics)
        self._transpose_rule: Transpose | None = None
        ad.primitive_transposes[self.primitive] = self._transpose

    def deftranspose(self, rule: Transpose) -> Transpose:
        """Set the transpose: `(*statics, *other arguments, cotangent) -> cotangent of the last`."""
        self._transpose_rule = rule
        return rule

    def _transpose(self, cotangents, *leaves, call):
        (cotangent,), (*others, last) = cotangents, leaves
        if isinstance(cotangent, ad.Zero):
            return [None] * len(others) + [ad.Zero(last.aval)]
        rule = self._transpose_rule
        if rule is None or any(ad.is_undefined_primal(leaf) for leaf in others):
            msg = f"{self.__name__} has no transpose with respect to these arguments"
            raise NotImplementedError(msg)

        def transposed(*leaves):
            return rule(*call.statics, *jax.tree.unflatten(call.treedef, leaves))

        for *axes, axis in call.axes:
            transposed = _mapped_once(transposed, (*axes, 0), axis)
        return [None] * len(others) + [transposed(*others, cotangent)]

    def _jvp(self, primals, tangents, *, call):
        """Linear where only the linear argument moves; else by the rule."""
        if all(isinstance(tangent, ad.Zero) for tangent in tangents[:-1]):
            value = self.primitive.bind(*primals, call=call)
            last = ad.instantiate_zeros(tangents[-1])
            return value, self.primitive.bind(*primals[:-1], last, call=call)
        return super()._jvp(primals, tangents, call=call)


def _mapped_once(f: Callable[..., Any], in_axes: tuple, axis: int | None) -> Callable[..., Any]:
    """`f` mapped, and its result summed over the batch where the linear argument has none."""
    if axis is not None:
        return jax.vmap(f, in_axes=in_axes, out_axes=axis)
    mapped = jax.vmap(f, in_axes=in_axes)
    return lambda *args: jnp.sum(mapped(*args), axis=0)
