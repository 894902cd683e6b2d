"""An equation in a pytree as a function of one real vector and of all it depends on."""

import weakref
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from difflinalg._core import implicit_checks


class Layout(NamedTuple):
    """How a pytree of floating and complex arrays lies in one real vector; hashable."""

    treedef: Any
    leaves: tuple[tuple[tuple[int, ...], Any], ...]  # shape and dtype of each
    dtype: Any  # of the vector

    def ravel(self, tree: Any) -> Array:
        """The vector of a tree; the real parts of a complex leaf before the imaginary ones."""
        parts = [jnp.zeros((0,), self.dtype)]
        for leaf in jax.tree.leaves(tree):
            parts.append(jnp.real(leaf).ravel().astype(self.dtype))
            if jnp.iscomplexobj(leaf):
                parts.append(jnp.imag(leaf).ravel().astype(self.dtype))
        return jnp.concatenate(parts)

    def unravel(self, vector: Array) -> Any:
        """The tree of a vector."""
        leaves, start = [], 0

        def take(shape):
            nonlocal start
            size = 1
            for length in shape:
                size *= length
            start += size
            return vector[start - size : start].reshape(shape)

        for shape, dtype in self.leaves:
            if jnp.issubdtype(dtype, jnp.complexfloating):
                real = jnp.finfo(dtype).dtype
                leaf = jax.lax.complex(take(shape).astype(real), take(shape).astype(real))
            else:
                leaf = take(shape).astype(dtype)
            leaves.append(leaf)
        return jax.tree.unflatten(self.treedef, leaves)


class Arguments(NamedTuple):
    """What the function depends on: `smooth` can be differentiated, `fixed` cannot."""

    smooth: tuple[Array, ...]
    fixed: tuple[Array, ...]


class Function:
    """The user's function of a vector, with what it closed over taken out.

    Static and hashable. Two are equal if they come from the same Python function and were traced
    to the same program, so that a call outside of jit is compiled once.
    """

    def __init__(self, f: Callable[..., Any], jaxpr: Any, is_smooth: tuple[bool, ...]):
        self._jaxpr = jaxpr
        self._is_smooth = is_smooth
        self._identity = id(f)
        try:
            self._origin: Any = weakref.ref(f)
        except TypeError:
            self._origin = lambda: None

    def __call__(self, z: Array, arguments: Arguments) -> Array:
        parts = [iter(arguments.fixed), iter(arguments.smooth)]
        values = [next(parts[is_smooth]) for is_smooth in self._is_smooth]
        count = len(self._jaxpr.constvars)
        closed = ClosedJaxpr(self._jaxpr, values[:count])
        return jaxpr_as_fun(closed)(z, *values[count:])[0]

    @cached_property
    def _text(self) -> str:
        return f"{self._jaxpr} {[v.aval for v in self._jaxpr.constvars]}"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Function) or self._origin() is None:
            return False
        return self._origin() is other._origin() and self._text == other._text

    def __hash__(self) -> int:
        return self._identity


def trace(
    name: str, f: Callable[..., Any], x0: Any, params: Any
) -> tuple[Function, Layout, Array, Arguments]:
    """`f`, the layout of its unknown, the vector of `x0`, and all that `f` depends on."""
    if not callable(f):
        msg = f"{name} needs a function f(x, params), got {type(f).__name__}."
        raise TypeError(msg)
    x0 = jax.tree.map(lambda leaf: implicit_checks.as_unknown(name, leaf), x0)
    leaves, treedef = jax.tree.flatten(x0)
    real = [jnp.finfo(leaf.dtype).dtype for leaf in leaves]
    dtype = jnp.result_type(*real) if real else jnp.result_type(float)
    layout = Layout(treedef, tuple((leaf.shape, leaf.dtype) for leaf in leaves), dtype)
    values, params_def = jax.tree.flatten(params)
    values = [implicit_checks.as_parameter(name, value) for value in values]

    def flat(z, *values):
        y = f(layout.unravel(z), jax.tree.unflatten(params_def, values))
        y = jax.tree.map(jnp.asarray, y)
        found, found_def = jax.tree.flatten(y)
        types = tuple((leaf.shape, leaf.dtype) for leaf in found)
        implicit_checks.check_same_avals(name, (treedef, layout.leaves), (found_def, types))
        return layout.ravel(y)

    z0 = layout.ravel(x0)
    closed = jax.make_jaxpr(flat)(z0, *values)
    everything = [*(jnp.asarray(c) for c in closed.consts), *values]
    is_smooth = tuple(bool(jnp.issubdtype(v.dtype, jnp.inexact)) for v in everything)
    pairs = list(zip(everything, is_smooth, strict=True))
    arguments = Arguments(
        tuple(v for v, smooth in pairs if smooth), tuple(v for v, smooth in pairs if not smooth)
    )
    return Function(f, closed.jaxpr, is_smooth), layout, z0, arguments
