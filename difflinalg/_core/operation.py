"""Functions with a derivative rule of their own, which no transformation takes apart.

A `jax.custom_jvp` function loses its rule where JAX evaluates it partially: in reverse mode
through the carry of a `lax.scan` only its body is left, and a second derivative differentiates
that body. A primitive is left whole. An `Operation` is a primitive with the interface of
`jax.custom_jvp`, and visible in a jaxpr under its own name.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

Axes = tuple[int | None, ...]
Rule = Callable[..., tuple[Any, Any]]
_PRIMITIVES: set[Primitive] = set()


class _Call(NamedTuple):
    """The parameters of one use of an operation, hashable."""

    statics: tuple[Hashable, ...]
    treedef: Any  # of the arguments
    axes: tuple[Axes, ...]  # of the flat arguments, for each `vmap`, the innermost first


class Operation:
    """A function of arrays, a primitive of JAX, whose derivative is the rule of `defjvp`.

    Args:
        function: takes pytrees of arrays, then the static arguments; returns a pytree of floating
            or complex arrays. Integer arrays have no tangents.
        statics: how many of the last arguments are static (hashable).
    """

    def __init__(self, function: Callable[..., Any], statics: int = 0):
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self._function = function
        self._statics = statics
        self._rule: Rule | None = None
        self._symbolic_zeros = False
        self.primitive = Primitive(f"difflinalg_{function.__name__.strip('_')}")
        self.primitive.multiple_results = True
        self._register()

    def __call__(self, *args: Any) -> Any:
        """The value of the function."""
        split = len(args) - self._statics
        leaves, treedef = jax.tree.flatten(args[:split])
        call = _Call(tuple(args[split:]), treedef, ())
        leaves = [jnp.asarray(leaf) for leaf in leaves]
        flat = self.primitive.bind(*leaves, call=call)
        _, treedef = _output(self, call, tuple(jax.typeof(leaf) for leaf in leaves))
        return jax.tree.unflatten(treedef, flat)

    def defjvp(self, rule: Rule, symbolic_zeros: bool = False) -> Rule:
        """Set the rule: `(*statics, primals, tangents) -> (primals_out, tangents_out)`.

        With `symbolic_zeros` a tangent that is known to be zero, or that an integer array does not
        have, is `None` in the rule; otherwise it is an array of zeros (of dtype `float0`).
        """
        self._rule = rule
        self._symbolic_zeros = symbolic_zeros
        return rule

    def _register(self) -> None:
        _PRIMITIVES.add(self.primitive)
        self.primitive.def_impl(lambda *leaves, call: self._compiled(call)(*leaves))
        self.primitive.def_abstract_eval(lambda *avals, call: _output(self, call, avals)[0])
        mlir.register_lowering(
            self.primitive,
            mlir.lower_fun(lambda *leaves, call: self._flat(call)(*leaves), multiple_results=True),
        )
        batching.primitive_batchers[self.primitive] = self._batch
        ad.primitive_jvps[self.primitive] = self._jvp

    def _of_leaves(self, call: _Call) -> Callable[..., Any]:
        """The function of flat arguments, mapped as `call` says."""

        def single(*leaves):
            return self._function(*jax.tree.unflatten(call.treedef, leaves), *call.statics)

        return _mapped(single, call.axes)

    def _flat(self, call: _Call) -> Callable[..., list[Any]]:
        mapped = self._of_leaves(call)
        return lambda *leaves: jax.tree.leaves(mapped(*leaves))

    @lru_cache(maxsize=1024)  # noqa: B019  operations live as long as the program
    def _compiled(self, call: _Call) -> Callable[..., list[Any]]:
        return jax.jit(self._flat(call))

    def _batch(self, leaves, dims, *, call: _Call):
        flat = self.primitive.bind(*leaves, call=call._replace(axes=(*call.axes, tuple(dims))))
        return flat, [0] * len(flat)

    def _jvp(self, primals, tangents, *, call: _Call):
        rule = self._rule
        if rule is None:
            msg = f"{self.__name__} has no derivative rule"
            raise NotImplementedError(msg)

        moving = [
            i
            for i, (primal, tangent) in enumerate(zip(primals, tangents, strict=True))
            if jnp.issubdtype(primal.dtype, jnp.inexact)
            and not (self._symbolic_zeros and isinstance(tangent, ad.Zero))
        ]

        def flat_rule(primals, moving_tangents):
            tangents = [None if self._symbolic_zeros else _zero_tangent(p) for p in primals]
            for i, tangent in zip(moving, moving_tangents, strict=True):
                tangents[i] = tangent
            args = jax.tree.unflatten(call.treedef, primals)
            args_dot = jax.tree.unflatten(call.treedef, tangents)
            outputs = rule(*call.statics, args, args_dot)
            return tuple(jax.tree.leaves(output) for output in outputs)

        axes = tuple((list(axes), [axes[i] for i in moving]) for axes in call.axes)
        moving_tangents = [ad.instantiate_zeros(tangents[i]) for i in moving]
        return _mapped(flat_rule, axes)(list(primals), moving_tangents)


def operation(statics: int = 0) -> Callable[[Callable[..., Any]], Operation]:
    """Decorator: the function as an `Operation` with `statics` static arguments at its end."""
    return partial(Operation, statics=statics)


def is_operation(primitive: Primitive) -> bool:
    """Whether a primitive belongs to an `Operation`."""
    return primitive in _PRIMITIVES


def _zero_tangent(primal: Any) -> Any:
    if jnp.issubdtype(primal.dtype, jnp.inexact):
        return jnp.zeros_like(primal)
    return np.zeros(primal.shape, jax.dtypes.float0)


def _mapped(f: Callable[..., Any], axes: Sequence[Any]) -> Callable[..., Any]:
    for in_axes in axes:
        f = jax.vmap(f, in_axes=in_axes)
    return f


@lru_cache(maxsize=4096)
def _output(op: Operation, call: _Call, avals: tuple[Any, ...]) -> tuple[list[Any], Any]:
    """Types and tree of the outputs, from one trace, which is not kept."""
    jaxpr, shape = jax.make_jaxpr(op._of_leaves(call), return_shape=True)(*avals)
    return list(jaxpr.out_avals), jax.tree.structure(shape)
