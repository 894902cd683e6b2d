"""The backward pass over recorded steps, which carries cotangents, with checkpoints.

It only ever runs as it stands; nothing differentiates it. The derivative of a backward pass is a
backward pass of the tangent system.

States are kept on a stack of checkpoints. The last stretch that is not yet reversed is split by
new checkpoints until it has at most `segment` steps; their stage values are then computed, used
and forgotten. This schedule is data that one loop works off, as in Griewank and Walther (2000),
algorithm 799, with blocks of steps in place of single ones.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from difflinalg._ode.control import Control
from difflinalg._ode.forward import Record, interval, stages_needed
from difflinalg._ode.lift import Lift
from difflinalg._ode.packing import Packing, packing_of
from difflinalg._ode.solve import put
from difflinalg._ode.stages import add, axpy, evaluate, real_dtype, transpose
from difflinalg._ode.system import Leaves, System


class Pass(NamedTuple):
    """What stays the same during one backward pass."""

    control: Control
    system: System
    lift: Lift
    active: tuple[bool, ...]
    ts: Array
    record: Record
    inner_bar: Leaves  # cotangents of the outputs between the first and the last
    segment: int
    slots: int
    packing: Packing  # of the cotangents of `p`

    @property
    def stages(self) -> int:
        """The stages of a step."""
        return stages_needed(self.control, self.ts)


class Stack(NamedTuple):
    """Checkpointed states, the numbers of their steps, and how many there are."""

    states: Leaves
    steps: Array
    size: Array


class Reversal(NamedTuple):
    """How far the pass has come: all steps from `end` on are reversed.

    From the last checkpoint it has gone forward to step `number`, with the state `y`.
    """

    stack: Stack
    number: Array
    y: Leaves
    rows: Leaves  # the stage values of one segment
    end: Array
    y_bar: Leaves
    p_bar: Leaves
    output: Array  # the last inner output whose cotangent is not yet used


def backward(
    control: Control,
    system: System,
    lift: Lift,
    y0: Leaves,
    ts: Array,
    record: Record,
    active: tuple[bool, ...],
    p_bar: Leaves,
    cotangents: tuple[Leaves, Leaves],
    segment: int,
    slots: int,
) -> tuple[Leaves, Leaves]:
    """The cotangents of `y0` and of the active `p`, added to `p_bar`, from those of the outputs."""
    inner_bar, final_bar = cotangents
    # slices of one segment must not reach past the end of the record
    end = jnp.repeat(record.times[..., -1:], segment, axis=-1)
    record = record._replace(times=jnp.concatenate([record.times, end], axis=-1))
    packing = packing_of(p_bar, ts.ndim - 1)
    run = Pass(control, system, lift, active, ts, record, inner_bar, segment, slots, packing)
    p_bar = lift(lambda _p, _q, p_bar: packing.pack(p_bar), p_bar)
    states = [jnp.zeros((slots + 2, *x.shape), x.dtype).at[0].set(x) for x in y0]
    zero = jnp.zeros((), jnp.int32)
    stack = Stack(states, jnp.zeros((slots + 2,), jnp.int32), zero + 1)
    rows = [
        jnp.zeros((segment, *ts.shape[:-1], run.stages, *x.shape[ts.ndim - 1 :]), x.dtype)
        for x in y0
    ]
    output = jnp.full(ts.shape[:-1], ts.shape[-1] - 3, jnp.int32)
    first = Reversal(stack, zero, y0, rows, record.count, final_bar, p_bar, output)
    last = lax.while_loop(lambda s: s.end > 0, lambda s: _turn(run, s), first)
    return last.y_bar, lift(lambda _p, _q, p_bar: packing.unpack(p_bar), last.p_bar)


def _turn(run: Pass, s: Reversal) -> Reversal:
    """Go on by one segment at most: towards the next checkpoint, or to the end and back."""
    top = s.stack.size - 1
    begin = s.stack.steps[top]
    last = s.end - begin <= run.segment
    goal = jnp.where(last, s.end, _next_checkpoint(run, begin, s.end, s.stack.size))
    length = jnp.minimum(goal - s.number, run.segment)
    window = _window(run, s.number)

    def store(n: Array, carry: tuple[Leaves, Leaves]) -> tuple[Leaves, Leaves]:
        y, rows = carry
        y, at = _step(run, window, n, y)
        return y, [put(r, x, n) for r, x in zip(rows, at, strict=True)]

    y, rows = lax.fori_loop(0, length, store, (s.y, s.rows))

    def reverse(i: Array, carry: tuple) -> tuple:
        n = length - 1 - i
        at = [lax.dynamic_index_in_dim(r, n, 0, keepdims=False) for r in rows]
        return _reverse_step(run, window, n, begin + n, at, *carry)

    carry = (s.y_bar, s.p_bar, s.output)
    back = jnp.where(last, length, 0)
    y_bar, p_bar, output = lax.fori_loop(0, back, reverse, carry)
    # a new checkpoint, or one less; the row behind all others takes what is not kept
    number = s.number + length
    reached = ~last & (number == goal)
    row = jnp.where(reached, s.stack.size, run.slots + 1)
    states = [put(kept, x, row) for kept, x in zip(s.stack.states, y, strict=True)]
    stack = Stack(states, put(s.stack.steps, number, row), s.stack.size + reached - last)
    top = jnp.maximum(stack.size - 1, 0)
    y = [
        jnp.where(last, lax.dynamic_index_in_dim(kept, top, 0, keepdims=False), x)
        for kept, x in zip(states, y, strict=True)
    ]
    number = jnp.where(last, stack.steps[top], number)
    end = jnp.where(last, begin, s.end)
    return Reversal(stack, number, y, rows, end, y_bar, p_bar, output)


def _next_checkpoint(run: Pass, begin: Array, end: Array, size: Array) -> Array:
    """The step of the next checkpoint between the top of the stack, at `begin`, and `end`."""
    pieces = (end - begin + run.segment - 1) // run.segment
    free = run.slots - size
    # as many checkpoints as there are pieces, or half of what is free at a wider distance;
    # without a free slot, one at the last piece, which is reversed next
    used = jnp.where(pieces - 1 <= free, pieces - 1, jnp.maximum(free // 2, 1))
    ahead = jnp.where(free > 0, (pieces + used) // (used + 1), pieces - 1)
    return begin + run.segment * jnp.minimum(ahead, pieces - 1)


def _window(run: Pass, begin: Array) -> Array:
    """The times of the steps of one segment.

    Inner loops carry this instead of the whole record, which would be copied when they start.
    """
    return lax.dynamic_slice_in_dim(run.record.times, begin, run.segment + 1, axis=-1)


def _step(run: Pass, window: Array, n: Array, y: Leaves) -> tuple[Leaves, Leaves]:
    """The state after step `n` of a segment, and the stage values of that step."""
    tableau = run.control.tableau

    def step(p: Leaves, q: Leaves, y: Leaves, times: Array) -> tuple[Leaves, Leaves]:
        t, h = interval(times, n)
        k, values, _ = evaluate(run.system, tableau, run.stages, y, t, h, p, q, None, keep=True)
        b = tableau.array("b", t.dtype, run.stages)
        return axpy(y, h, b, k), values

    return run.lift(step, y, window)


def _reverse_step(
    run: Pass,
    window: Array,
    n: Array,
    number: Array,
    at: Leaves,
    y_bar: Leaves,
    p_bar: Leaves,
    output: Array,
) -> tuple[Leaves, Leaves, Array]:
    """Carry cotangents over step `n` of a segment, which is step `number` of all."""
    tableau = run.control.tableau
    b = tableau.array("b", run.ts.dtype, run.stages)
    seeds: list[Leaves] = []
    landing = run.control.lands(run.ts)
    if run.inner_bar and landing:
        output, y_bar = run.lift(
            lambda _p, _q, *x: _add_output(number, *x),
            output,
            y_bar,
            run.inner_bar,
            run.record.index,
        )
    elif run.inner_bar:
        output, seeds = _output_seeds(run, number, output)

    def step(
        p: Leaves, q: Leaves, y_bar: Leaves, p_bar: Leaves, at: Leaves, times: Array, seeds: list
    ) -> tuple[Leaves, Leaves]:
        t, h = interval(times, n)
        direct, w = y_bar, b[:, None]
        if seeds:
            direct = add(y_bar, seeds[0])
            dense = tableau.array("dense", t.dtype, run.stages)
            w = np.concatenate([w, dense], axis=1)
        g = [jnp.stack(rows) for rows in zip(y_bar, *seeds[1:], strict=True)]
        y_part, p_bar = transpose(
            run.system, tableau, at, w, g, t, h, p, q, p_bar, run.active, run.packing
        )
        return add(direct, y_part), p_bar

    y_bar, p_bar = run.lift(step, y_bar, p_bar, at, window, seeds)
    return y_bar, p_bar, output


def _add_output(
    n: Array, output: Array, y_bar: Leaves, inner_bar: Leaves, index: Array
) -> tuple[Array, Leaves]:
    """Add the cotangent of the output at which step `n` ends, if it ends at one."""
    row = jnp.maximum(output, 0)
    active = (output >= 0) & (index[row] == n)
    added = [jnp.where(active, x[row], jnp.zeros_like(x[row])) for x in inner_bar]
    return output - active, add(y_bar, added)


def _output_seeds(run: Pass, n: Array, output: Array) -> tuple[Array, list[Leaves]]:
    """The cotangents of the outputs inside of step `n`, times all powers of `theta`, summed."""
    dense = run.control.tableau.dense
    powers = len(dense[0]) if dense else 0

    def due(_p: Leaves, _q: Leaves, output: Array, index: Array) -> Array:
        return (output >= 0) & (index[jnp.maximum(output, 0)] == n)

    def zeros(_p: Leaves, _q: Leaves, inner_bar: Leaves) -> list[Leaves]:
        return [[jnp.zeros_like(x[0]) for x in inner_bar] for _ in range(powers + 1)]

    def collect(
        p: Leaves, q: Leaves, output: Array, sums: list, inner_bar: Leaves, record: tuple
    ) -> tuple[Array, list[Leaves]]:
        index, times, ts = record
        active = due(p, q, output, index)
        row = jnp.maximum(output, 0)
        h = times[n + 1] - times[n]
        theta = (ts[row + 1] - times[n]) / jnp.where(h == 0.0, 1.0, h)
        factor = jnp.where(active, 1.0, 0.0).astype(theta.dtype)
        new = []
        for total in sums:
            new.append(
                [
                    u + factor.astype(real_dtype(u)) * x[row]
                    for u, x in zip(total, inner_bar, strict=True)
                ]
            )
            factor = factor * theta
        return output - active, new

    record = (run.record.index, run.record.times, run.ts)
    return lax.while_loop(
        lambda c: jnp.any(run.lift(due, c[0], run.record.index)),
        lambda c: run.lift(collect, *c, run.inner_bar, record),
        (output, run.lift(zeros, run.inner_bar)),
    )
