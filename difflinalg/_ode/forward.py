"""The forward pass over recorded steps, which carries tangents.

It only ever runs as it stands; nothing differentiates it. The derivative of a forward pass is a
forward pass of the tangent system.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from difflinalg._ode.control import Control
from difflinalg._ode.lift import Lift
from difflinalg._ode.solve import Step, interpolate, put
from difflinalg._ode.stages import axpy, slopes
from difflinalg._ode.system import Leaves, System


class Record(NamedTuple):
    """The accepted steps; `count` is the same for all members of a batch."""

    times: Array
    index: Array  # pyright: ignore[reportIncompatibleMethodOverride]
    count: Array  # pyright: ignore[reportIncompatibleMethodOverride]


def stages_needed(control: Control, ts: Array) -> int:
    """How many stages a recorded step needs: the interpolant only where it is used."""
    tableau = control.tableau
    return tableau.step_stages if control.lands(ts) else len(tableau.c)


def interval(times: Array, n: Array) -> tuple[Array, Array]:
    """Start and size of step `n`."""
    ends = lax.dynamic_slice_in_dim(times, n, 2)
    return ends[0], ends[1] - ends[0]


def forward(
    control: Control, system: System, lift: Lift, y0: Leaves, ts: Array, record: Record
) -> tuple[Leaves, Leaves]:
    """The outputs, inner and final, by the recorded steps."""
    tableau, stages = control.tableau, stages_needed(control, ts)
    has_inner = ts.shape[-1] > 2

    def first(_p: Leaves, _q: Leaves, y: Leaves, ts: Array) -> tuple:
        rows = ts.shape[0] - 1
        return y, [jnp.broadcast_to(x, (rows, *x.shape)) for x in y] if has_inner else []

    def body(carry: tuple) -> tuple:
        n, y, inner, output = carry

        def advance(p: Leaves, q: Leaves, y: Leaves, times: Array) -> tuple[Leaves, Step]:
            t, h = interval(times, n)
            k, _ = slopes(system, tableau, stages, y, t, h, p, q, None)
            new = axpy(y, h, tableau.array("b", t.dtype, stages), k)
            return new, Step(t, h, y, k, jnp.array(True), jnp.zeros((), jnp.int32))

        def due(_p: Leaves, _q: Leaves, output: Array, index: Array) -> Array:
            row = jnp.minimum(output, index.shape[0] - 1)
            return (output < index.shape[0]) & (index[row] == n)

        def write(p: Leaves, q: Leaves, carry: tuple, step: Step, record: tuple) -> tuple:
            output, inner = carry
            index, ts = record
            active = due(p, q, output, index)
            row = jnp.where(active, output, index.shape[0])
            theta = (ts[row + 1] - step.t) / jnp.where(step.h == 0.0, 1.0, step.h)
            value = interpolate(control, step, theta)
            return output + active, [put(b, x, row) for b, x in zip(inner, value, strict=True)]

        def write_end(_p: Leaves, _q: Leaves, carry: tuple, y: Leaves, index: Array) -> tuple:
            output, inner = carry
            active = due(_p, _q, output, index)
            row = jnp.where(active, output, index.shape[0])
            return output + active, [put(b, x, row) for b, x in zip(inner, y, strict=True)]

        y, step = lift(advance, y, record.times)
        if has_inner and control.lands(ts):
            output, inner = lift(write_end, (output, inner), y, record.index)
        elif has_inner:
            output, inner = lax.while_loop(
                lambda c: jnp.any(lift(due, c[0], record.index)),
                lambda c: lift(write, c, step, (record.index, ts)),
                (output, inner),
            )
        return n + 1, y, inner, output

    y, inner = lift(first, y0, ts)
    output = jnp.zeros(ts.shape[:-1], jnp.int32)
    zero = jnp.zeros((), jnp.int32)
    _, y, inner, _ = lax.while_loop(
        lambda carry: carry[0] < record.count, body, (zero, y, inner, output)
    )
    return lift(lambda _p, _q, inner: [x[:-1] for x in inner], inner), y
