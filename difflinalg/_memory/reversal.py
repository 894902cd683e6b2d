"""A step and its inverse as functions without closures, with one step of the gradient back.

Chains and repetitions are taken apart, so that their members are undone one by one and no carry
between them is held.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import jax
from jax import lax
from jax.core import Tracer

from difflinalg._core import loop_checks
from difflinalg._core.program import hoist
from difflinalg._memory import closure
from difflinalg._memory.invertible import (
    ChainInverse,
    ChainStep,
    RepeatInverse,
    RepeatStep,
    UndoableStep,
)

Tree = Any


class Reversal(NamedTuple):
    """A step without closures: `forward(w, c, x)`, `back(v, c, x)` and one step of the gradient.

    `undo(w, v, c_next, x, c_next_bar, y_bar)` returns `(c, w_bar, c_bar, x_bar)`; `w` is what the
    step closes over, `v` what the inverse does.
    """

    forward: Callable[..., Tree]
    back: Callable[..., Tree]
    undo: Callable[..., tuple[Tree, Tree, Tree, Tree]]
    w: Tree
    v: Tree


def reversal(name: str, step: Callable, inverse: Callable, carry: Tree, x: Tree) -> Reversal:
    """Take the closures out of a step, or out of each member of a chain or a repetition."""
    if (
        isinstance(step, ChainStep)
        and isinstance(inverse, ChainInverse)
        and step is inverse.forward
    ):
        return _chain_reversal(name, step, carry, x)
    if (
        isinstance(step, RepeatStep)
        and isinstance(inverse, RepeatInverse)
        and step is inverse.forward
    ):
        return _repeat_reversal(name, step, carry, x)
    taped, w = hoist(step, carry, x)
    plain_back, v = hoist(inverse, carry, x)
    forward, back = closure.keep_value(taped), closure.keep_value(plain_back)
    loop_checks.check_same_carry(f"{name} (step)", carry, jax.eval_shape(forward, w, carry, x)[0])
    loop_checks.check_same_carry(f"{name} (inverse)", carry, jax.eval_shape(back, v, carry, x))

    def undo(w: Tree, v: Tree, c_next: Tree, x: Tree, c_bar: Tree, y_bar: Tree) -> tuple:
        c = back(v, c_next, x)
        _, pull = closure.pullback(taped, w, c, x)
        return (c, *pull((c_bar, y_bar))[0])

    if isinstance(step, UndoableStep) and not _closes_over_tracers(step, carry, x):

        def undo_shortly(w: Tree, v: Tree, c: Tree, x: Tree, c_bar: Tree, y_bar: Tree) -> tuple:
            del v, y_bar
            c, c_bar, x_bar = step.undo(c, x, c_bar)
            return c, closure.zeros(w), c_bar, x_bar

        return Reversal(forward, back, undo_shortly, w, v)
    return Reversal(forward, back, undo, w, v)


def _closes_over_tracers(step: UndoableStep, carry: Tree, x: Tree) -> bool:
    """Whether the step closes over values that a transformation follows."""
    closed = jax.make_jaxpr(step.step)(carry, x)
    return any(isinstance(leaf, Tracer) for leaf in closed.consts)


def _chain_reversal(name: str, step: ChainStep, carry: Tree, x: Tree) -> Reversal:
    """The members are undone from last to first."""
    parts = [
        reversal(name, *member, carry, part)
        for member, part in zip(step.members, step.inputs(x), strict=True)
    ]

    def forward(w: Tree, c: Tree, x: Tree) -> tuple[Tree, Tree]:
        ys = []
        for part, w_part, x_part in zip(parts, w, step.inputs(x), strict=True):
            c, y = part.forward(w_part, c, x_part)
            ys.append(y)
        return c, tuple(ys)

    def back(v: Tree, c: Tree, x: Tree) -> Tree:
        for part, v_part, x_part in list(zip(parts, v, step.inputs(x), strict=True))[::-1]:
            c = part.back(v_part, c, x_part)
        return c

    def undo(w: Tree, v: Tree, c: Tree, x: Tree, c_bar: Tree, y_bar: Tree) -> tuple:
        w_bars, x_bars = [], []
        for i in reversed(range(len(parts))):
            c, w_bar, c_bar, x_bar = parts[i].undo(
                w[i], v[i], c, step.inputs(x)[i], c_bar, y_bar[i]
            )
            w_bars.insert(0, w_bar)
            x_bars.insert(0, x_bar)
        total = reduce(closure.add, x_bars) if step.shared else type(x)(x_bars)
        return c, w_bars, c_bar, total

    return Reversal(forward, back, undo, [part.w for part in parts], [part.v for part in parts])


def _repeat_reversal(name: str, step: RepeatStep, carry: Tree, x: Tree) -> Reversal:
    """The repetitions are undone in a loop of their own."""
    part, count = reversal(name, *step.member, carry, x), step.count

    def forward(w: Tree, c: Tree, x: Tree) -> tuple[Tree, Tree]:
        return lax.scan(lambda c, _: part.forward(w, c, x), c, None, length=count)

    def back(v: Tree, c: Tree, x: Tree) -> Tree:
        return lax.scan(lambda c, _: (part.back(v, c, x), None), c, None, length=count)[0]

    def undo(w: Tree, v: Tree, c: Tree, x: Tree, c_bar: Tree, y_bar: Tree) -> tuple:
        def one(state: tuple, y_bar: Tree) -> tuple[tuple, None]:
            c, w_bar, c_bar, x_bar = state
            c, w_new, c_bar, x_new = part.undo(w, v, c, x, c_bar, y_bar)
            return (c, closure.add(w_bar, w_new), c_bar, closure.add(x_bar, x_new)), None

        start = (c, closure.zeros(w), c_bar, closure.zeros(x))
        return lax.scan(one, start, y_bar, length=count, reverse=True)[0]

    return Reversal(forward, back, undo, part.w, part.v)
