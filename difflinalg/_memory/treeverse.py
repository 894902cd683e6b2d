"""The optimal schedule of a loop run backwards with few checkpoints, as a program over integers.

With s slots and at most r evaluations of any step, `beta(s, r) = (s + r)! / (s! r!)` steps can be
reversed. For N steps let r be the least with `beta(s, r) >= N`; then

    p(N, s) = r N - beta(s + 1, r - 1)

evaluations are needed besides the N that are taped. They are attained if the next checkpoint is
set m steps ahead with `m <= beta(s, r - 1)` and `N - m >= beta(s - 1, r - 1)`; the largest such
m is taken. The slots are a stack: to reach a step, go from the top of the stack, set checkpoints
on the way while there is room, and drop the one that has been reached.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

Tree = Any


def repetitions(steps: int, slots: int) -> int:
    """The least r with `beta(slots, r) >= steps`."""
    if slots == 1:
        return max(steps - 1, 0)
    r = 0
    while math.comb(slots + r, slots) < steps:
        r += 1
    return r


def advances(steps: int, slots: int) -> int:
    """`p(steps, slots)`, the least number of evaluations besides the taped ones."""
    r = repetitions(steps, slots)
    return r * steps - math.comb(slots + r, slots + 1)


def first_positions(steps: int, slots: int) -> list[int]:
    """Where the first sweep sets its checkpoints, the start included, the last step excluded."""
    positions = [0]
    while len(positions) < slots:
        left, free = steps - positions[-1], slots - len(positions) + 1
        if left < 3:
            break
        before = math.comb(free + repetitions(left, free) - 1, free)
        r = repetitions(left, free)
        stride = min(before, left - before * free // (free + r - 1))
        positions.append(positions[-1] + stride)
    return [p for p in positions if p < steps - 1 or p == 0]


class Stack(NamedTuple):
    """Checkpoints in the order of their positions; `order[j]` is the slot of the j-th."""

    slots: Tree
    order: Array
    positions: Array
    used: Array


def new_stack(carry: Tree, slots: int) -> Stack:
    """An empty stack for carries like this one."""
    return Stack(
        jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (slots, *leaf.shape)), carry),
        jnp.arange(slots, dtype=jnp.int32),
        jnp.zeros(slots, jnp.int32),
        jnp.zeros((), jnp.int32),
    )


def push(stack: Stack, carry: Tree, position: Array, wanted: Array) -> Stack:
    """Put a carry on the stack where `wanted` and where there is room.

    The slot is written in any case, with its old content if need be: a branch would copy the
    whole stack.
    """
    count = stack.order.shape[0]
    store = wanted & (stack.used < count)
    place = jnp.minimum(stack.used, count - 1)
    slot = stack.order[place]

    def write(slots: Array, leaf: Array) -> Array:
        old = lax.dynamic_index_in_dim(slots, slot, 0, keepdims=False)
        return lax.dynamic_update_index_in_dim(slots, jnp.where(store, leaf, old), slot, 0)

    positions = stack.positions.at[place].set(jnp.where(store, position, stack.positions[place]))
    return Stack(
        jax.tree.map(write, stack.slots, carry), stack.order, positions, stack.used + store
    )


def stride(steps: Array, slots: Array) -> Array:
    """The distance of the next checkpoint, for `steps >= 2` and `slots >= 2`.

    Exact while `steps (slots + r)` fits into the default integer; beyond, still a valid stride.
    """
    integer = jnp.result_type(int)
    steps, slots = steps.astype(integer), slots.astype(integer)
    limit = jnp.iinfo(integer).max

    def grow(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        r, beta, _ = state
        return r + 1, beta * (slots + r + 1) // (r + 1), beta

    def small(state: tuple[Array, Array, Array]) -> Array:
        r, beta, _ = state
        return (beta < steps) & (beta < limit // (slots + r + 1))

    one = jnp.ones((), integer)
    r, _, before = lax.while_loop(small, grow, (jnp.zeros((), integer), one, one))
    length = jnp.minimum(before, steps - before * slots // (slots + r - 1))
    return jnp.clip(length, 1, steps - 1).astype(jnp.int32)


def cheapest(stack: Stack, steps: Array) -> Stack:
    """The stack without its last checkpoints, where their slots serve better on the way back.

    The cost of the way back is known for any number of checkpoints that stay: each reverses the
    steps up to the next with the slots that are left by then.
    """
    count = stack.order.shape[0]
    real = jnp.result_type(float)
    places = jnp.arange(count)
    ends = jnp.concatenate([stack.positions[1:], stack.positions[-1:]])
    free = (count - places).astype(real)
    between = _advances(jnp.maximum(ends - stack.positions, 0).astype(real), free)
    before = jnp.cumsum(between) - between
    total = before + _advances((steps - stack.positions).astype(real), free)
    best = jnp.argmin(jnp.where(places < stack.used, total, jnp.inf)) + 1
    return stack._replace(used=jnp.minimum(stack.used, best.astype(stack.used.dtype)))


def _advances(steps: Array, slots: Array) -> Array:
    """`advances` of arrays, in floating point."""

    def short(state: tuple[Array, Array]) -> Array:
        return (state[1] < steps) & (slots > 1)

    def grow(state: tuple[Array, Array]) -> tuple[Array, Array]:
        r, beta = state
        more = short(state)
        return r + more, jnp.where(more, beta * (slots + r + 1) / (r + 1), beta)

    start = (jnp.zeros_like(steps), jnp.ones_like(steps))
    r, beta = lax.while_loop(lambda state: jnp.any(short(state)), grow, start)
    return jnp.where(slots > 1, r * steps - beta * r / (slots + 1), steps * (steps - 1) / 2)


def reach(
    advance: Callable[[Tree, Array], Tree], stack: Stack, target: Array
) -> tuple[Tree, Stack]:
    """The carry before step `target`, and the stack of what is still needed below it.

    Args:
        advance: `(carry, i) -> carry`, step i.
        stack: its top is at `target` or below.
        target: a step.
    """
    count = stack.order.shape[0]

    def top(stack: Stack) -> tuple[Tree, Array]:
        place = jnp.maximum(stack.used - 1, 0)
        slot = stack.order[place]
        read = lambda slots: lax.dynamic_index_in_dim(slots, slot, 0, keepdims=False)  # noqa: E731
        return jax.tree.map(read, stack.slots), stack.positions[place]

    def climb(state: tuple[Tree, Array, Stack]) -> tuple[Tree, Array, Stack]:
        carry, position, stack = state
        room = stack.used < count
        left = target + 1 - position
        next_position = position + jnp.where(
            room, stride(left, jnp.maximum(count - stack.used + 1, 2)), left - 1
        )
        carry = lax.fori_loop(position, next_position, lambda i, c: advance(c, i), carry)
        return carry, next_position, push(stack, carry, next_position, room)

    carry, position = top(stack)
    carry, _, stack = lax.while_loop(lambda s: s[1] < target, climb, (carry, position, stack))
    reached = top(stack)[1] == target
    return carry, stack._replace(used=stack.used - reached)
