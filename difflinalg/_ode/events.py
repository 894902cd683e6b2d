"""Events: zeros of functions of time and state, with differentiable times.

A first integration, which is not differentiated, finds the zeros: a change of sign over a step is
bisected on the interpolant. The states at these fixed times then come out of the differentiable
integration, and Newton's method on

    g(y_e + RK(t - t_e), t) = 0,    RK the increment of one Runge-Kutta step from (y_e, t_e)

moves the times onto the zeros. The move is of the size of the interpolation error, but it carries
the derivatives: each iteration doubles the number of orders that are right, as it doubles digits,
up to the order of the step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from difflinalg._core import ode_checks
from difflinalg._ode.control import Control
from difflinalg._ode.solve import SUCCESS, Progress, Step, attempt, check_limits, interpolate, start
from difflinalg._ode.stages import axpy, slopes
from difflinalg._ode.system import Leaves, System, flat_call
from difflinalg._ode.tableaus import DOPRI5

BISECTIONS, REFINEMENTS = 52, 3

EventValue = Callable[[Leaves, Array, Leaves], Array]  # (y, t, theta) -> number


@dataclass(frozen=True, eq=False)
class Event:
    """One event function with SciPy's attributes; `terminal` counts occurrences, 0 for never."""

    value: EventValue
    theta: Leaves  # its arguments and what it closes over
    terminal: int
    direction: float


class Found(NamedTuple):
    """Times of the occurrences, shape `(events, room)`, how many there are, and the end."""

    times: Array
    counts: Array
    stop: Array
    stopped: Array
    progress: Progress


def locate(
    control: Control,
    system: System,
    events: tuple[Event, ...],
    room: int,
    p: Leaves,
    q: Leaves,
    y0: Leaves,
    span: Array,
) -> Found:
    """Find the events between `span[0]` and `span[1]`, the first `room` of each."""
    thetas = [e.theta for e in events]
    p, y0, span, thetas = jax.tree.map(lax.stop_gradient, (p, y0, span, thetas))
    tableau = control.tableau
    stages = len(tableau.c)
    wanted = jnp.array([e.direction for e in events])
    limits = jnp.array([e.terminal if e.terminal else jnp.inf for e in events])

    def values(y: Leaves, t: Array) -> Array:
        return jnp.stack([e.value(y, t, x) for e, x in zip(events, thetas, strict=True)])

    def roots(step: Step, end: Array, before: Array) -> Array:
        def state(time: Array) -> Leaves:
            theta = (time - step.t) / jnp.where(step.h == 0.0, 1.0, step.h)
            return interpolate(control, step, theta)

        def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = bracket
            middle = 0.5 * (low + high)
            value = jnp.stack(
                [e.value(state(middle[i]), middle[i], thetas[i]) for i, e in enumerate(events)]
            )
            same = jnp.sign(value) == jnp.sign(before)
            return jnp.where(same, middle, low), jnp.where(same, high, middle)

        shape = before.shape
        bracket = (jnp.broadcast_to(step.t, shape), jnp.broadcast_to(end, shape))
        return lax.fori_loop(0, BISECTIONS, halve, bracket)[1]

    def body(carry: tuple) -> tuple:
        s, found, before = carry
        new, step = attempt(control, system, stages, p, q, s, span)
        after = jnp.where(step.accepted, values(new.y, new.t), before)
        change = jnp.sign(after) - jnp.sign(before)
        hit = (change != 0.0) & (before != 0.0) & (change * wanted >= 0.0)
        # bisection costs many evaluations of the interpolant, so only where there is a zero
        ends = jnp.broadcast_to(new.t, hit.shape)
        times = lax.cond(jnp.any(hit), lambda: roots(step, new.t, before), lambda: ends)
        final = hit & (found.counts + 1 >= limits)
        sign = jnp.sign(step.h)
        stop = sign * jnp.min(jnp.where(final, sign * times, jnp.inf))
        stopped = jnp.any(final)
        hit &= ~stopped | (sign * times <= sign * stop)
        column = jnp.where(hit, found.counts, room)
        record = found.times.at[jnp.arange(len(events)), column].set(times, mode="drop")
        stop = jnp.where(stopped, stop, span[1])
        found = found._replace(times=record, counts=found.counts + hit, stop=stop, stopped=stopped)
        new = new.updated(done=new.done | stopped)
        return check_limits(control, 0, new), found, after

    s = start(control, system, p, q, y0, span)
    nothing = jnp.full((len(events), room), jnp.nan, span.dtype)
    zeros = jnp.zeros((len(events),), jnp.int32)
    found = Found(nothing, zeros, span[1], jnp.array(False), s)
    before = values(y0, span[0])
    s, found, _ = lax.while_loop(lambda c: ~c[0].done, body, (s, found, before))
    failed = (s.status != SUCCESS) & ~found.stopped
    return found._replace(progress=s, stop=jnp.where(failed, span[1], found.stop))


def refine(
    system: System, event: Event, p: Leaves, q: Leaves, y: Leaves, t: Array
) -> tuple[Array, Leaves]:
    """The time and state of one event, differentiable, from the state `y` at the fixed `t`."""
    at = lax.stop_gradient(t)

    def state(time: Array) -> Leaves:
        k, _ = slopes(system, DOPRI5, DOPRI5.step_stages, y, at, time - at, p, q, None)
        return axpy(y, time - at, DOPRI5.array("b", t.dtype, DOPRI5.step_stages), k)

    def along(time: Array) -> Array:
        return event.value(state(time), time, event.theta)

    def improve(time: Array, _: None) -> tuple[Array, None]:
        value, slope = jax.jvp(along, (time,), (jnp.ones_like(time),))
        return time - value / slope, None

    time, _ = lax.scan(improve, at, None, length=REFINEMENTS)
    return time, state(time)


def as_event(function: Callable, y: Leaves, treedef: Any, t: Array, args: tuple) -> Event:
    """The event of `function(t, y, *args)`, with the attributes that SciPy reads."""
    leaves, args_treedef = jax.tree.flatten(args)
    leaves = [ode_checks.as_argument("solve_ivp", x) for x in leaves]

    def flat(y: Leaves, t: Array, leaves: Leaves) -> Array:
        inner = jax.tree.unflatten(args_treedef, leaves)
        return ode_checks.as_event_value(flat_call(function, y, treedef, t, inner, True), t)

    closed = jax.make_jaxpr(flat)(y, t, leaves)
    count = len(leaves)

    def value(y: Leaves, t: Array, theta: Leaves) -> Array:
        evaluate = jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, theta[count:]))
        return evaluate(*y, t, *theta[:count])[0]

    theta = [*leaves, *closed.consts]
    terminal = int(getattr(function, "terminal", 0) or 0)
    return Event(value, theta, terminal, float(getattr(function, "direction", 0.0)))
