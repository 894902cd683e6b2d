"""A while loop with checkpoints for a number of steps that only the run tells; reverse mode."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core.program import Program, hoist
from difflinalg._memory import closure, treeverse

Tree = Any


def online_while(
    condition: Callable[[Tree], Array],
    body: Callable[[Tree], Tree],
    carry: Tree,
    max_steps: int | None,
    slots: int,
) -> tuple[Tree, Array]:
    """The last carry, and whether the condition still holds after `max_steps`."""
    slots = slots if max_steps is None else min(slots, max(max_steps, 1))
    example = closure.shapes(carry)
    step, w = hoist(body, example)
    test, v = hoist(condition, example)
    end = _differentiable(step, test, max_steps, slots)(w, v, carry)
    return end, lax.stop_gradient(condition(end))


def thin(stack: treeverse.Stack, stride: Array, position: Array) -> tuple[treeverse.Stack, Array]:
    """Give up every other checkpoint and double the stride, if the stack is full at a multiple."""
    count = stack.order.shape[0]
    full = (stack.used == count) & (position % stride == 0)
    halves = jnp.concatenate([jnp.arange(0, count, 2), jnp.arange(1, count, 2)])
    order = jnp.where(full, stack.order[halves], stack.order)
    positions = jnp.where(full, stack.positions[halves], stack.positions)
    used = jnp.where(full, (count + 1) // 2, stack.used).astype(stack.used.dtype)
    return treeverse.Stack(stack.slots, order, positions, used), jnp.where(full, 2 * stride, stride)


def _differentiable(
    step: Program, test: Program, max_steps: int | None, slots: int
) -> Callable[[Tree, Tree, Tree], Tree]:
    advance = closure.keep_value(step)

    def unfinished(v: Tree, carry: Tree, count: Array) -> Array:
        go_on = test(v, carry)
        return go_on if max_steps is None else go_on & (count < max_steps)

    @jax.custom_vjp
    def run(w: Tree, v: Tree, carry: Tree) -> Tree:
        zero = jnp.zeros((), jnp.int32)
        return lax.while_loop(
            lambda state: unfinished(v, *state),
            lambda state: (step(w, state[0]), state[1] + 1),
            (carry, zero),
        )[0]

    def forward(w: Tree, v: Tree, carry: Tree) -> tuple[Tree, Tree]:
        def sweep(state: tuple) -> tuple:
            c, count, stack, stride = state
            stack, stride = thin(stack, stride, count)
            stack = treeverse.push(stack, c, count, count % stride == 0)
            return advance(w, c), count + 1, stack, stride

        zero, one = jnp.zeros((), jnp.int32), jnp.ones((), jnp.int32)
        start = (carry, zero, treeverse.new_stack(carry, slots), one)
        end, count, stack, _ = lax.while_loop(
            lambda state: unfinished(v, state[0], state[1]), sweep, start
        )
        return end, (w, count, stack)

    def backward(held: Tree, cotangent: Tree) -> tuple[Tree, None, Tree]:
        w, count, stack = held

        def back(state: tuple) -> tuple:
            i, stack, c_bar, w_bar = state
            c, stack = treeverse.reach(lambda c, _: advance(w, c), stack, i)
            _, pull = closure.pullback(step, w, c)
            w_new, c_bar = pull(c_bar)[0]
            return i - 1, stack, c_bar, closure.add(w_bar, w_new)

        stack = treeverse.cheapest(stack, count)
        start = (count - 1, stack, closure.drop_float0(cotangent), closure.zeros(w))
        _, _, c_bar, w_bar = lax.while_loop(lambda state: state[0] >= 0, back, start)
        w_bar, c_bar = closure.forward_only((w_bar, c_bar), "while_loop with Online")
        return w_bar, None, c_bar

    run.defvjp(forward, backward)
    return run
