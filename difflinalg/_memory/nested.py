"""Loops in loops under `jax.checkpoint`: all orders and both modes, memory like N^(1/levels).

JAX keeps the carry at the start of each block of a scan and recomputes the block. Of a while loop
the blocks are branches, which are skipped once the condition has become false, so that a loose
bound costs next to nothing.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

Tree = Any


def block_length(count: int, levels: int) -> int:
    """The length of the outermost blocks, near `count^(1 - 1/levels)`; a divisor if possible."""
    ideal = max(round(count ** (1.0 - 1.0 / levels)), 1)
    near = range(max(ideal * 2 // 3, 1), ideal * 3 // 2 + 1)
    divisors = [length for length in near if count % length == 0]
    return min(divisors, key=lambda length: abs(length - ideal), default=ideal)


def useful_levels(count: int, levels: int) -> int:
    """No more levels than blocks of two need."""
    return min(levels, max(count - 1, 1).bit_length())


def nested_scan(
    f: Callable[[Tree, Tree], tuple[Tree, Tree]],
    carry: Tree,
    xs: Tree,
    count: int,
    levels: int,
    unroll: int | bool,
) -> tuple[Tree, Tree]:
    """`lax.scan` whose blocks are recomputed in reverse mode; what is left over comes last."""
    levels = useful_levels(count, levels)
    if levels == 1 or count < 4:
        return lax.scan(f, carry, xs, length=count, unroll=unroll)
    every = block_length(count, levels)
    whole, left = divmod(count, every)
    cut = whole * every

    def block(length: int) -> Callable[[Tree, Tree], tuple[Tree, Tree]]:
        return lambda c, x: nested_scan(f, c, x, length, levels - 1, unroll)

    head = jax.tree.map(lambda leaf: leaf[:cut].reshape(whole, every, *leaf.shape[1:]), xs)
    carry, ys = lax.scan(jax.checkpoint(block(every), prevent_cse=False), carry, head, length=whole)
    ys = jax.tree.map(lambda leaf: leaf.reshape(cut, *leaf.shape[2:]), ys)
    if not left:
        return carry, ys
    tail = jax.tree.map(lambda leaf: leaf[cut:], xs)
    carry, ys_tail = jax.checkpoint(block(left))(carry, tail)
    return carry, jax.tree.map(lambda a, b: jnp.concatenate([a, b]), ys, ys_tail)


class _State(NamedTuple):
    carry: Tree
    taken: Array
    active: Array


@custom_vmap
def any_member(active: Array) -> Array:
    """`active`, or whether any member of a batch is, so that a branch stays a branch under vmap."""
    return active


@any_member.def_vmap
def _any_member_batched(axis_size: int, in_batched: list[bool], active: Array) -> tuple:
    del axis_size
    return any_member(jnp.any(active, axis=0) if in_batched[0] else active), False


def nested_while(
    condition: Callable[[Tree], Array],
    body: Callable[[Tree], Tree],
    carry: Tree,
    max_steps: int,
    levels: int,
) -> tuple[Tree, Array]:
    """The last carry, and whether the condition still holds after `max_steps`."""
    levels = useful_levels(max_steps, levels)
    width = 1
    while width**levels < max_steps:
        width += 1

    def step(state: _State) -> _State:
        # Members of a batch that have finished are frozen, and nothing flows back through them.
        frozen = jax.tree.map(
            lambda leaf: jnp.where(state.active, leaf, lax.stop_gradient(leaf)), state.carry
        )
        carry = jax.tree.map(
            lambda new, old: jnp.where(state.active, new, old), body(frozen), state.carry
        )
        taken = state.taken + state.active
        return _State(carry, taken, state.active & condition(carry) & (taken < max_steps))

    def loop(level: int) -> Callable[[_State], _State]:
        if level == 0:
            return step
        inner = loop(level - 1)
        if level > 1:
            inner = jax.checkpoint(inner, prevent_cse=False)

        def unless_finished(state: _State, _: None) -> tuple[_State, None]:
            return lax.cond(any_member(state.active), inner, lambda s: s, state), None

        return lambda state: lax.scan(unless_finished, state, length=width)[0]

    zero = jnp.zeros((), jnp.int32)
    start = _State(carry, zero, condition(carry) & (max_steps > 0))
    last = loop(levels)(start)
    return last.carry, lax.stop_gradient(condition(last.carry))
