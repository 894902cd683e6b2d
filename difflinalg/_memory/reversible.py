"""A scan that is run backwards for its gradient, so that no carry has to be stored.

Reverse mode needs the carries `c[k]` in the order k = N - 1, ..., 0. With an inverse they are
computed, `c[k] = inverse(c[k + 1], x[k])`, and next to each goes the pullback of one step,

    (c_bar[k], x_bar[k], w_bar) = vjp(step at c[k])(c_bar[k + 1], y_bar[k])

with `w` for what the step closes over. Rounding follows the inverse dynamics: what contracts
forwards amplifies backwards. So the carry that is found at the start is compared with the true
one, and `refresh_every` stores true carries in between.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import checks, loop_checks, tolerances
from difflinalg._memory import closure
from difflinalg._memory.reversal import Reversal, reversal

Tree = Any
NAME = "reversible_scan"


def reversible_scan(
    step: Callable[[Tree, Tree], tuple[Tree, Tree]],
    inverse: Callable[[Tree, Tree], Tree],
    carry: Tree,
    xs: Tree = None,
    length: int | None = None,
    *,
    refresh_every: int | None = None,
    rtol: float | None = None,
    return_error: bool = False,
) -> tuple[Tree, ...]:
    """`jax.lax.scan` of an invertible step; reverse mode re-creates the carries.

    Args:
        step: `(carry, x) -> (new_carry, y)` as in `jax.lax.scan`; may close over traced values.
        inverse: `(new_carry, x) -> carry`.
        carry: the start, a pytree of arrays.
        xs: a pytree of arrays with a leading axis of `length`, or `None`.
        length: the number of steps, needed if `xs` is `None`.
        refresh_every: keep the true carry every so many steps and restart from it on the way
            back. For dynamics that contract, and for float32.
        rtol: largest relative error of a re-created carry; `sqrt(eps)` by default.
        return_error: whether to go back once more after the value is known, and to return the
            error of the start that is found.

    Returns:
        `(carry, ys)`, or `(carry, ys, error)` with `return_error=True`. `error` is the largest
        difference of an entry, relative to the largest entry of its array (of the whole start, if
        the array is zero); an integer that differs counts as infinite.

    Raises:
        ReconstructionError: in the reverse pass outside of jit and vmap, if the error exceeds
            `rtol` or is NaN. Under jit and vmap the gradient is NaN.
        TypeError: if `step` or `inverse` changes the structure, a shape or a dtype of the carry.
        ValueError: if the number of steps is not unique, or `refresh_every` not positive.

    Derivatives:
        Reverse mode, for `carry`, `xs` and what `step` closes over, because the backward pass is
        another program than the forward pass. Forward mode over reverse mode is right as well, in
        constant memory, if `inverse` is differentiable; reverse over reverse is right and stores
        every step. For forward mode alone use `scan`. The cotangent belongs to the carry that was
        re-created, so that its relative error is about that of the carry.

    Cost:
        Reverse mode runs `inverse`, `step` and its pullback once for each step. It keeps the
        start, the end and `xs`, and one carry for each `refresh_every` steps.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg import memory
        >>> def loss(rate):
        ...     step, inverse = lambda c, x: (c * rate, None), lambda c, x: c / rate
        ...     return memory.reversible_scan(step, inverse, 1.0, length=10)[0]
        >>> print(round(float(jax.grad(loss)(1.1)), 4))
        23.5795

    References:
        Gomez, Ren, Urtasun and Grosse, "The reversible residual network" (2017), algorithm 1;
        arXiv:1707.04585.
        Maclaurin, Duvenaud and Adams, "Gradient-based hyperparameter optimization through
        reversible learning" (2015), algorithm 2; arXiv:1502.03492.
    """
    refuse = partial(loop_checks.refuse_reconstruction, NAME)
    options = (refresh_every, rtol, return_error)
    return scan_back(NAME, refuse, step, inverse, carry, xs, length, *options)


def scan_back(
    name: str,
    refuse: Callable[[Array, float], None],
    step: Callable[[Tree, Tree], tuple[Tree, Tree]],
    inverse: Callable[[Tree, Tree], Tree],
    carry: Tree,
    xs: Tree = None,
    length: int | None = None,
    refresh_every: int | None = None,
    rtol: float | None = None,
    return_error: bool = False,
) -> tuple[Tree, ...]:
    """`reversible_scan` for the function `name`; `refuse(error, rtol)` raises its own error."""
    count = loop_checks.scan_length(name, xs, length)
    every = (
        count
        if refresh_every is None
        else checks.check_positive(name, "refresh_every", refresh_every)
    )
    xs = jax.tree.map(jnp.asarray, xs)
    carry = jax.tree.map(jnp.asarray, carry)
    if count == 0:
        carry, ys = lax.scan(step, carry, xs, length=0)
        return (carry, ys, jnp.zeros(())) if return_error else (carry, ys)
    returned = jax.eval_shape(step, carry, closure.element(xs))
    loop_checks.check_pair(f"{name} (step)", returned, "(carry, y)")
    carry = closure.strong_like(carry, returned[0])
    parts = reversal(name, step, inverse, closure.shapes(carry), closure.element(xs))
    if rtol is None:
        leaves = [leaf.dtype for leaf in jax.tree.leaves(carry) if closure.is_inexact(leaf)]
        rtol = max((tolerances.reconstruction_rtol(dtype) for dtype in leaves), default=0.0)
    plan = _Plan(count, min(every, count))
    end, ys = _differentiable(parts, plan, rtol, refuse)(parts.w, parts.v, carry, xs)
    if not return_error:
        return end, ys
    w, v, start, inputs = lax.stop_gradient((parts.w, parts.v, carry, xs))
    last, _, marks = _forwards(parts, plan, w, start, inputs)

    def back(c: Tree, state: None, x: Tree) -> tuple[Tree, None, None]:
        return parts.back(v, c, x), state, None

    return end, ys, _backwards(plan, back, None, last, marks, inputs)[2]


@dataclass(frozen=True)
class _Plan:
    """`count` steps in segments of `every`; what is left over comes last."""

    count: int
    every: int

    def split(self, tree: Tree) -> tuple[Tree, Tree]:
        """Leaves of length `count` as whole segments, stacked, and the last, shorter one.

        A single segment counts as the last one, so that it needs no outer loop.
        """
        whole = 0 if self.count == self.every else self.count // self.every
        cut = whole * self.every
        head = jax.tree.map(
            lambda leaf: leaf[:cut].reshape(whole, self.every, *leaf.shape[1:]), tree
        )
        return (head if cut else None), (
            jax.tree.map(lambda leaf: leaf[cut:], tree) if cut < self.count else None
        )

    @property
    def pieces(self) -> tuple[int, int]:
        """The number of stacked segments and the length of the last one."""
        whole = 0 if self.count == self.every else self.count // self.every
        return whole, self.count - whole * self.every

    def join(self, head: Tree, tail: Tree) -> Tree:
        """The inverse of `split`."""
        whole, left = self.pieces
        if not whole:
            return tail
        flat = jax.tree.map(lambda leaf: leaf.reshape(whole * self.every, *leaf.shape[2:]), head)
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), flat, tail) if left else flat


def _forwards(parts: Reversal, plan: _Plan, w: Tree, carry: Tree, xs: Tree) -> tuple:
    """The end, the `ys`, and the true carries at which segments start."""
    head, tail = plan.split(xs)
    whole, left = plan.pieces

    def segment(c: Tree, x: Tree, length: int) -> tuple[Tree, Tree]:
        return lax.scan(partial(parts.forward, w), c, x, length=length)

    def marked(c: Tree, x: Tree) -> tuple[Tree, Tree]:
        end, ys = segment(c, x, plan.every)
        return end, (c, ys)

    starts = ys_head = last = ys_tail = None
    if whole:
        carry, (starts, ys_head) = lax.scan(marked, carry, head, length=whole)
    if left:
        last = carry
        carry, ys_tail = segment(carry, tail, left)
    return carry, plan.join(ys_head, ys_tail), (starts, last)


def _backwards(
    plan: _Plan, undo: Callable, state: Tree, end: Tree, marks: tuple[Tree, Tree], inputs: Tree
) -> tuple[Tree, Tree, Array]:
    """Go back from `end`, segment by segment, from the true carry at the end of each.

    Args:
        plan: the segments.
        undo: `(carry, state, input) -> (carry, state, output)`, one step back.
        state: what goes back with the carry.
        end: the last carry.
        marks: the true carries at which segments start.
        inputs: one entry for each step.

    Returns:
        The state at the start, the outputs, and the largest error of a re-created start.
    """
    head, tail = plan.split(inputs)
    whole, left = plan.pieces
    starts, last = marks

    def segment(c_end: Tree, start: Tree, state: Tree, part: Tree, length: int) -> tuple:
        def body(both: tuple[Tree, Tree], part: Tree) -> tuple[tuple[Tree, Tree], Tree]:
            c, state, output = undo(*both, part)
            return (c, state), output

        (c, state), outputs = lax.scan(body, (c_end, state), part, length=length, reverse=True)
        return state, outputs, carry_error(start, c, c_end)

    def body(loop: tuple, part: tuple) -> tuple[tuple, Tree]:
        c_end, state, error = loop
        start, inputs = part
        state, outputs, new = segment(c_end, start, state, inputs, plan.every)
        return (start, state, jnp.maximum(error, new)), outputs

    out_head = out_tail = None
    error = carry_error(end, end, end)
    if left:
        state, out_tail, error = segment(end, last, state, tail, left)
        end = last
    if whole:
        loop = (end, state, error)
        (_, state, error), out_head = lax.scan(body, loop, (starts, head), reverse=True)
    return state, plan.join(out_head, out_tail), error


def carry_error(true: Tree, found: Tree, end: Tree) -> Array:
    """The largest relative difference of two carries; NaN if any entry is NaN.

    Each array is measured on its largest entry, one that is zero on the largest entry of the
    whole start, and if that is zero too, of the end.
    """
    leaves = list(zip(*(jax.tree.leaves(tree) for tree in (true, found, end)), strict=True))
    floats = [trio for trio in leaves if closure.is_inexact(trio[0]) and trio[0].size]
    others = [
        trio
        for trio in leaves
        if not closure.is_inexact(trio[0])
        and not jnp.issubdtype(trio[0].dtype, jax.dtypes.extended)
    ]
    largest = [jnp.max(jnp.abs(trio[0])) for trio in floats]
    whole = reduce(jnp.maximum, largest, jnp.zeros(()))
    of_end = reduce(jnp.maximum, [jnp.max(jnp.abs(trio[2])) for trio in floats], jnp.zeros(()))
    fallback = jnp.where(whole > 0.0, whole, of_end)
    error = jnp.zeros(())
    for (a, b, _), size in zip(floats, largest, strict=True):
        scale = jnp.where(size > 0.0, size, fallback)
        difference = jnp.max(jnp.abs(a - b))
        error = jnp.maximum(error, difference / jnp.where(scale > 0.0, scale, 1.0))
    for a, b, _ in others:
        error = jnp.where(jnp.all(a == b), error, jnp.inf)
    return error


def _differentiable(
    parts: Reversal, plan: _Plan, rtol: float, refuse: Callable[[Array, float], None]
) -> Callable:
    @jax.custom_vjp
    def run(w: Tree, v: Tree, carry: Tree, xs: Tree) -> tuple[Tree, Tree]:
        del v
        return lax.scan(partial(parts.forward, w), carry, xs, length=plan.count)

    def forward(w: Tree, v: Tree, carry: Tree, xs: Tree) -> tuple[tuple[Tree, Tree], Tree]:
        end, ys, marks = _forwards(parts, plan, w, carry, xs)
        return (end, ys), (w, v, xs, end, marks)

    def backward(held: Tree, cotangents: tuple[Tree, Tree]) -> tuple:
        w, v, xs, end, marks = held
        end_bar, ys_bar = closure.drop_float0(cotangents)

        def undo(c: Tree, bars: tuple[Tree, Tree], part: tuple[Tree, Tree]) -> tuple:
            (c_bar, w_bar), (x, y_bar) = bars, part
            c, w_new, c_bar, x_bar = parts.undo(w, v, c, x, c_bar, y_bar)
            return c, (c_bar, closure.add(w_bar, w_new)), x_bar

        state = (end_bar, closure.zeros(w))
        (carry_bar, w_bar), xs_bar, error = _backwards(plan, undo, state, end, marks, (xs, ys_bar))
        refuse(error, rtol)
        good = error <= rtol
        w_bar, carry_bar, xs_bar = jax.tree.map(
            lambda leaf: jnp.where(good, leaf, jnp.nan), (w_bar, carry_bar, xs_bar)
        )
        return w_bar, None, carry_bar, xs_bar

    run.defvjp(forward, backward)
    return run
