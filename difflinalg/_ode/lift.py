"""Batches inside of loops: bodies are mapped, while the loops themselves run once.

`jax.vmap` of a `while_loop` selects between the old and the new value of everything that the loop
carries, buffers included, in every iteration. The loops here are written over all members of a
batch from the start: what happens to one member is a function mapped by `Lift`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from difflinalg._ode.system import Leaves

Level = tuple[tuple[bool, ...], tuple[bool, ...]]  # which of p and of q have this batch axis


class Lift(NamedTuple):
    """Parameters with the batch axes they have; levels from the outermost to the innermost."""

    levels: tuple[Level, ...]
    p: Leaves
    q: Leaves

    def __call__(self, function: Callable, *state: Any) -> Any:
        """Map `function(p, q, *state)` over all batch axes; `state` has all of them."""
        if not jax.tree.leaves(state):
            return function(self.p, self.q, *state)
        for p_flags, q_flags in reversed(self.levels):
            axes = [[0 if flag else None for flag in flags] for flags in (p_flags, q_flags)]
            function = jax.vmap(function, in_axes=(*axes, *(0 for _ in state)))
        return function(self.p, self.q, *state)

    def tangent(self, p_dot: Leaves) -> "Lift":
        """The parameters of the tangent system; `p_dot` has all batch axes."""
        levels = tuple((p + (True,) * len(p_dot), q) for p, q in self.levels)
        return Lift(levels, [*self.p, *p_dot], self.q)

    def spread(self, leaves: list[Array | None], sizes: tuple[int, ...]) -> Leaves:
        """Values shaped as the parameters `p`, with all batch axes (of `sizes`) added.

        Those that are None are left out.
        """
        return [
            _spread(x, tuple(p_flags[i] for p_flags, _ in self.levels), sizes)
            for i, x in enumerate(leaves)
            if x is not None
        ]


def _spread(x: Array, flags: tuple[bool, ...], sizes: tuple[int, ...]) -> Array:
    own = jnp.shape(x)[sum(flags) :]
    for axis, flag in enumerate(flags):
        if not flag:
            x = jnp.expand_dims(x, axis)
    return jnp.broadcast_to(x, (*sizes, *own))
