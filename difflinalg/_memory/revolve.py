"""A scan with the optimal checkpoint schedule (Griewank and Walther), for reverse mode.

The first sweep keeps the checkpoints of `treeverse.first_positions` and tapes the last step. The
way back is one compiled loop over the steps; for each, `treeverse.reach` re-creates the carry.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core.program import Program, hoist
from difflinalg._memory import closure, treeverse

Tree = Any


def revolve_scan(
    f: Callable[[Tree, Tree], tuple[Tree, Tree]],
    carry: Tree,
    xs: Tree,
    count: int,
    slots: int,
    unroll: int | bool,
) -> tuple[Tree, Tree]:
    """`lax.scan` whose reverse mode keeps `slots` carries; `count` is at least 1."""
    step, constants = hoist(f, closure.shapes(carry), closure.element(xs))
    return _differentiable(step, count, min(slots, count), unroll)(constants, carry, xs)


def _at(xs: Tree, i: Array | int) -> Tree:
    return jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, i, 0, keepdims=False), xs)


def _differentiable(
    step: Program, count: int, slots: int, unroll: int | bool
) -> Callable[[Tree, Tree, Tree], tuple[Tree, Tree]]:
    positions = treeverse.first_positions(count, slots)
    last = count - 1
    advance = closure.keep_value(step)

    @jax.custom_vjp
    def run(w: Tree, carry: Tree, xs: Tree) -> tuple[Tree, Tree]:
        return lax.scan(lambda c, x: step(w, c, x), carry, xs, length=count, unroll=unroll)

    def forward(w: Tree, carry: Tree, xs: Tree) -> tuple[tuple[Tree, Tree], Tree]:
        marks = jnp.asarray([*positions, count], jnp.int32)

        def sweep(state: tuple[Tree, treeverse.Stack], i: Array) -> tuple[tuple, Tree]:
            c, stack = state
            stack = treeverse.push(stack, c, i, i == marks[stack.used])
            c, y = advance(w, c, _at(xs, i))
            return (c, stack), y

        start = (carry, treeverse.new_stack(carry, len(positions)))
        (c, stack), ys = lax.scan(sweep, start, jnp.arange(last, dtype=jnp.int32))
        # The first entry is kept for a single step too, where the sweep is empty.
        (c, y), pull = closure.pullback(step, w, c, _at(xs, last))
        ys = jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), ys, y)
        return (c, ys), (w, xs, _widen(stack, slots), pull)

    def backward(held: Tree, cotangents: tuple[Tree, Tree]) -> tuple[Tree, Tree, Tree]:
        w, xs, stack, pull = held
        c_bar, ys_bar = closure.drop_float0(cotangents)
        w_bar, c_bar, x_bar = pull((c_bar, _at(ys_bar, last)))[0]

        def back(state: tuple, i: Array) -> tuple[tuple, Tree]:
            stack, c_bar, w_bar = state
            c, stack = treeverse.reach(lambda c, j: advance(w, c, _at(xs, j))[0], stack, i)
            _, pull = closure.pullback(step, w, c, _at(xs, i))
            w_new, c_bar, x_bar = pull((c_bar, _at(ys_bar, i)))[0]
            return (stack, c_bar, closure.add(w_bar, w_new)), x_bar

        steps = jnp.arange(last, dtype=jnp.int32)
        (_, c_bar, w_bar), xs_bar = lax.scan(back, (stack, c_bar, w_bar), steps, reverse=True)
        xs_bar = jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), xs_bar, x_bar)
        bars = (w_bar, c_bar, xs_bar)
        return closure.forward_only(bars, "scan with Revolve") if last else bars

    run.defvjp(forward, backward)
    return run


def _widen(stack: treeverse.Stack, slots: int) -> treeverse.Stack:
    """The stack with room for `slots` carries."""
    more = slots - stack.order.shape[0]
    if more == 0:
        return stack
    pad = lambda leaf: jnp.concatenate([leaf, jnp.zeros((more, *leaf.shape[1:]), leaf.dtype)])  # noqa: E731
    return treeverse.Stack(
        jax.tree.map(pad, stack.slots),
        jnp.arange(slots, dtype=jnp.int32),
        pad(stack.positions),
        stack.used,
    )
