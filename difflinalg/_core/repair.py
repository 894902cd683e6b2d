"""Replacing the bad members of a stack, at a cost only where there are any.

`jnp.where(bad, repair(a), value)` always computes both; `lax.cond` does so under `vmap`. Here the
condition is taken over the whole stack, mapped axes included.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap


def repair_where(repair: Callable[..., Any], bad: Array, value: Any, *args: Array) -> Any:
    """`repair(*args)` where `bad` holds, `value` elsewhere; not differentiable.

    Args:
        repair: maps stacks to a pytree like `value`; it runs if `bad` holds for any member.
        bad: booleans, in the shape of the stack.
        value: a pytree of stacks, one or more axes longer than `bad`, or of its shape.
        args: stacks.
    """

    @custom_vmap
    def run(bad: Array, value: Any, args: tuple[Array, ...]) -> Any:
        def choose(new: Array, old: Array) -> Array:
            return jnp.where(bad.reshape(bad.shape + (1,) * (old.ndim - bad.ndim)), new, old)

        return lax.cond(
            jnp.any(bad),
            lambda: jax.tree.map(choose, repair(*args), value),
            lambda: value,
        )

    @run.def_vmap
    def _(axis_size: int, in_batched: Any, *operands: Any) -> Any:
        def broadcast(x: Array, batched: bool) -> Array:
            return x if batched else jnp.broadcast_to(x, (axis_size, *x.shape))

        flat, treedef = jax.tree.flatten(operands)
        full = [broadcast(x, b) for x, b in zip(flat, jax.tree.leaves(in_batched), strict=True)]
        result = run(*jax.tree.unflatten(treedef, full))
        return result, jax.tree.map(lambda _: True, result)

    return run(bad, value, args)
