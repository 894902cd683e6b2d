"""The adaptive integration: one loop over attempted steps, for all members of a batch.

A step may go past an output, which is then interpolated; the last output always ends a step, and
so does every output where outputs are few or the method has no interpolant (`Control.lands`).
The accepted times are recorded for the derivatives: padded with the end time, steps that do not
exist have length zero and change nothing.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._ode import control as ctl
from difflinalg._ode.control import Control
from difflinalg._ode.lift import Lift
from difflinalg._ode.stages import axpy, combine, real_dtype, slopes, weights
from difflinalg._ode.system import Leaves, System

SUCCESS, MAX_STEPS, NOT_FINITE, UNDERFLOW, RECORD_FULL, NOT_MONOTONE, STOPPED = range(7)


COUNTERS = ("accepted", "rejected", "since_output", "output", "status", "done")


class Progress(NamedTuple):
    """Where the integration of one member stands.

    What is counted is one vector, because a loop spends as much time on a number as on a vector.
    """

    t: Array
    y: Leaves
    slope: Leaves
    h: Array
    last_log: Array  # of the error ratio of the last accepted step
    counters: Array  # as named in COUNTERS; the last axis

    def __getattr__(self, name: str) -> Array:
        """A counter; `output` is the next output, counted from 0 for ts[1]."""
        if name not in COUNTERS:
            raise AttributeError(name)
        value = self.counters[..., COUNTERS.index(name)]
        return value != 0 if name == "done" else value

    def updated(self, **changes: Array) -> "Progress":
        """With other values of some counters."""
        rows = [changes.get(name, self.counters[i]) for i, name in enumerate(COUNTERS)]
        return self._replace(counters=jnp.stack([jnp.asarray(x, jnp.int32) for x in rows]))


class Step(NamedTuple):
    """The step just attempted."""

    t: Array
    h: Array
    y: Leaves
    k: Leaves
    accepted: Array
    output: Array  # the next output before the step


class Buffers(NamedTuple):
    """What is written during the integration; the last row of each takes what must not be kept."""

    inner: Leaves  # the outputs between the first and the last
    # The step of each of them.
    index: Array  # pyright: ignore[reportIncompatibleMethodOverride]
    times: Array  # the accepted times


class Solution(NamedTuple):
    """The outputs after the first one, the record of the steps, and how it ended."""

    inner: Leaves
    final: Leaves
    times: Array
    count: Array  # pyright: ignore[reportIncompatibleMethodOverride]
    index: Array  # pyright: ignore[reportIncompatibleMethodOverride]
    status: Array
    where: Array  # t, h at the end
    counts: Array  # accepted, rejected


def start(control: Control, system: System, p: Leaves, q: Leaves, y: Leaves, ts: Array) -> Progress:
    """The state before the first step."""
    t = ts[0]
    sign = jnp.where(ts[-1] < t, -1.0, 1.0).astype(ts.dtype)
    slope = system.field(y, t, p, q)
    h = ctl.first_step(control, system, y, slope, t, sign, p, q)
    h = jnp.clip(h, -control.hmax, control.hmax)
    monotone = jnp.all(sign * jnp.diff(ts) >= 0.0)
    finite = all_finite(slope) & all_finite(y) & jnp.isfinite(h)
    status = jnp.where(monotone, jnp.where(finite, SUCCESS, NOT_FINITE), NOT_MONOTONE)
    progress = Progress(
        t, y, slope, h, jnp.zeros((), ts.dtype), jnp.zeros(len(COUNTERS), jnp.int32)
    )
    return progress.updated(status=status, done=status != SUCCESS)


def all_finite(leaves: Leaves) -> Array:
    """Whether every entry of every leaf is finite."""
    good = jnp.array(True)
    for x in leaves:
        good &= jnp.all(jnp.isfinite(x))
    return good


def attempt(
    control: Control, system: System, stages: int, p: Leaves, q: Leaves, s: Progress, ts: Array
) -> tuple[Progress, Step]:
    """Try one step; nothing but counters changes if its error is too large."""
    tableau = control.tableau
    landing = control.lands(ts)
    target = ts[s.output + 1] if landing else ts[-1]
    # a step that would leave less than 1 % of itself is stretched to the target
    lands = jnp.abs(target - s.t) <= 1.01 * jnp.abs(s.h)
    h = jnp.where(lands, target - s.t, s.h)
    k, good = slopes(system, tableau, stages, s.y, s.t, h, p, q, s.slope)
    y = axpy(s.y, h, tableau.array("b", ts.dtype, stages), k)
    last = tableau.error_stages - 1
    end = [kx[last] for kx in k]
    if control.fixed:
        ratio = jnp.where(all_finite(end) & all_finite(y), 0.0, jnp.nan).astype(ts.dtype)
    else:
        ratio = ctl.error_ratio(control, s.y, y, k, end, h).astype(ts.dtype)
    finite = jnp.isfinite(ratio)
    ratio = jnp.where(finite & good, ratio, jnp.nan)
    accepted = ~s.done & (ratio <= 1.0)
    log_ratio = jnp.log(jnp.maximum(ratio, 1e-10))
    h_next = s.h if control.fixed else ctl.next_step(control, h, ratio, log_ratio, s.last_log)
    # a step cut short by a target says nothing against the size it was cut from
    h_next = jnp.where(accepted & lands & (jnp.abs(h_next) < jnp.abs(s.h)), s.h, h_next)
    h_next = jnp.clip(h_next, -control.hmax, control.hmax)
    t = jnp.where(lands, target, s.t + h)
    tiny = 4.0 * jnp.finfo(ts.dtype).eps * jnp.abs(s.t)
    stuck = ~accepted if control.fixed else (jnp.abs(h_next) <= tiny)
    # a step that no longer moves t is accepted at its end only
    frozen = jnp.where((t == s.t) & ~lands, UNDERFLOW, SUCCESS)
    failure = jnp.where(stuck, jnp.where(finite, UNDERFLOW, NOT_FINITE), SUCCESS)
    status = jnp.where(accepted, frozen, failure)
    reached = accepted & lands
    rises = [
        accepted,
        ~accepted,
        jnp.array(True),
        reached if landing else jnp.array(False),
        status,
        (reached & (s.output == ts.shape[0] - 2) if landing else reached) | (status != SUCCESS),
    ]
    rises = jnp.stack([x.astype(jnp.int32) for x in rises])
    new = Progress(
        t=jnp.where(accepted, t, s.t),
        y=select(accepted, y, s.y),
        slope=select(accepted, end, s.slope),
        h=jnp.where(s.done, s.h, h_next),
        last_log=jnp.where(accepted, jnp.maximum(log_ratio, math.log(1e-4)), s.last_log),
        counters=s.counters + jnp.where(s.done, 0, rises),
    )
    return new, Step(s.t, h, s.y, k, accepted, s.output)


def select(condition: Array, x: Any, y: Any) -> Any:
    """`x` where the condition holds, and `y` elsewhere, through a tuple of leaves."""
    return jax.tree.map(lambda u, v: jnp.where(condition, u, v), x, y)


def check_limits(control: Control, capacity: int, s: Progress) -> Progress:
    """Stop where a budget is spent."""
    spent = (s.since_output >= control.max_attempts) | (
        s.accepted + s.rejected >= control.max_steps
    )
    status = jnp.where(spent, MAX_STEPS, s.status)
    if capacity:
        status = jnp.where(~spent & (s.accepted >= capacity), RECORD_FULL, status)
    status = jnp.where(s.done, s.status, status)
    return s.updated(status=status, done=s.done | (status != SUCCESS))


def interpolate(control: Control, step: Step, theta: Array) -> Leaves:
    """The interpolant of a step: the method's own, or the cubic through values and slopes."""
    stages = step.k[0].shape[0]
    if control.tableau.dense is not None:
        row = weights(control.tableau, theta, stages)
    else:
        square = theta * theta
        rise, at_end = square * (3.0 - 2.0 * theta), square * (theta - 1.0)
        row = rise * jnp.asarray(control.tableau.array("b", theta.dtype, stages))
        row = row.at[0].add(theta * (1.0 - theta) ** 2)
        row = row.at[min(control.tableau.error_stages, stages) - 1].add(at_end)
    return [
        x + combine((step.h * row).astype(real_dtype(x)), kx)
        for x, kx in zip(step.y, step.k, strict=True)
    ]


def write_outputs(
    control: Control, lift: Lift, s: Progress, step: Step, ts: Array, buffers: Buffers
) -> tuple[Progress, Buffers]:
    """Fill in the outputs that the accepted step has passed."""

    def due(_p: Leaves, _q: Leaves, output: Array, s: Progress, step: Step, ts: Array) -> Array:
        inside = output < ts.shape[0] - 2
        time = ts[jnp.minimum(output + 1, ts.shape[0] - 1)]
        sign = jnp.where(ts[-1] < ts[0], -1.0, 1.0)
        return step.accepted & inside & (sign * (s.t - time) >= 0.0)

    def write(
        p: Leaves, q: Leaves, output: Array, s: Progress, step: Step, ts: Array, old: Buffers
    ) -> tuple[Array, Buffers]:
        active = due(p, q, output, s, step, ts)
        row = jnp.where(active, output, ts.shape[0] - 2)
        theta = (ts[row + 1] - step.t) / jnp.where(step.h == 0.0, 1.0, step.h)
        value = interpolate(control, step, theta)
        inner = [put(b, x, row) for b, x in zip(old.inner, value, strict=True)]
        new = old._replace(inner=inner, index=put(old.index, s.accepted - 1, row))
        return output + active, new

    def any_due(carry: tuple) -> Array:
        return jnp.any(lift(due, carry[0], s, step, ts))

    def write_all(carry: tuple) -> tuple:
        return lift(write, carry[0], s, step, ts, carry[1])

    def update(_p: Leaves, _q: Leaves, s: Progress, output: Array, since: Array) -> Progress:
        return s.updated(output=output, since_output=since)

    output, buffers = lax.while_loop(any_due, write_all, (s.output, buffers))
    since = jnp.where(output > s.output, 0, s.since_output)
    return lift(update, s, output, since), buffers


def put(buffer: Array, value: Array, row: Array) -> Array:
    """The buffer with one row replaced."""
    return lax.dynamic_update_index_in_dim(buffer, value.astype(buffer.dtype), row, 0)


def solve(
    control: Control, system: System, lift: Lift, y0: Leaves, ts: Array, capacity: int
) -> Solution:
    """Integrate from `ts[0]` to `ts[-1]`; `capacity` is 0 or how many steps are recorded."""
    tableau = control.tableau
    has_inner = ts.shape[-1] > 2
    stages = tableau.error_stages if control.lands(ts) else len(tableau.c)

    def first(p: Leaves, q: Leaves, y: Leaves, ts: Array) -> tuple[Progress, Buffers]:
        rows = ts.shape[0] - 1
        inner = [jnp.broadcast_to(x, (rows, *x.shape)) for x in y] if has_inner else []
        index = jnp.zeros((rows if has_inner else 1,), jnp.int32)
        times = jnp.full((capacity + 2 if capacity else 1,), ts[0])
        return start(control, system, p, q, y, ts), Buffers(inner, index, times)

    def advance(
        p: Leaves, q: Leaves, s: Progress, buffers: Buffers, ts: Array
    ) -> tuple[Progress, Step, Buffers]:
        s, step = attempt(control, system, stages, p, q, s, ts)
        if capacity:
            row = jnp.where(step.accepted, s.accepted, capacity + 1)
            buffers = buffers._replace(times=put(buffers.times, s.t, row))
        if has_inner and control.lands(ts):
            reached = step.accepted & (s.output > step.output) & (s.output < ts.shape[0] - 1)
            row = jnp.where(reached, step.output, ts.shape[0] - 2)
            inner = [put(b, x, row) for b, x in zip(buffers.inner, s.y, strict=True)]
            index = put(buffers.index, s.accepted - 1, row)
            buffers = buffers._replace(inner=inner, index=index)
            s = s.updated(since_output=jnp.where(reached, 0, s.since_output))
        return s, step, buffers

    def body(carry: tuple[Progress, Buffers]) -> tuple[Progress, Buffers]:
        s, step, buffers = lift(advance, *carry, ts)
        if has_inner and not control.lands(ts):
            s, buffers = write_outputs(control, lift, s, step, ts, buffers)
        return lift(lambda _p, _q, s: check_limits(control, capacity, s), s), buffers

    carry = lift(first, y0, ts)
    s, buffers = lax.while_loop(lambda carry: ~jnp.all(carry[0].done), body, carry)
    return lift(
        lambda _p, _q, s, buffers, ts: _finish(s, buffers, ts, capacity, has_inner), s, buffers, ts
    )


def _finish(s: Progress, buffers: Buffers, ts: Array, capacity: int, has_inner: bool) -> Solution:
    """NaN in place of what was not reached, in the record too, from where it spreads."""
    failed = s.status != SUCCESS
    inner = [jnp.where(failed, jnp.nan, x[:-1]) for x in buffers.inner]
    final = [jnp.where(failed, jnp.nan, x) for x in s.y]
    times = jnp.zeros((0,), ts.dtype)
    if capacity:
        reached = jnp.arange(capacity + 1) <= s.accepted
        times = jnp.where(reached, buffers.times[:-1], ts[-1]) + jnp.where(failed, jnp.nan, 0.0)
    count = jnp.where(failed, 1, jnp.maximum(s.accepted, 1))
    index = buffers.index[:-1] if has_inner else buffers.index[:0]
    return Solution(
        inner,
        final,
        times,
        count.astype(jnp.int32),
        index,
        s.status,
        jnp.stack([s.t, s.h]),
        jnp.stack([s.accepted, s.rejected]),
    )
