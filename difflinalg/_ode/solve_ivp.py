"""Initial value problems in SciPy's form."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import Tracer

from difflinalg._core import checks, ode_checks
from difflinalg._ode.adjoints import Adjoint, Checkpointed
from difflinalg._ode.control import Control
from difflinalg._ode.events import Event, Found, as_event, locate, refine
from difflinalg._ode.methods import METHODS
from difflinalg._ode.operations import Data, Meta
from difflinalg._ode.rules import integrate
from difflinalg._ode.solve import SUCCESS, Solution
from difflinalg._ode.system import Leaves, convert


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OdeResult:
    """What `solve_ivp` returns.

    Attributes:
        ts: the times of the states, shape `(m,)`; NaN behind a terminal event.
        ys: the states, `y0` with a leading axis of length `m`; NaN behind a terminal event.
        status: 0 if the end was reached, 1 if a terminal event stopped the integration, and
            negative after a failure (seen under jit only; elsewhere it is an exception).
        stats: `num_accepted` and `num_rejected` steps, `t` and `step_size` at the end.
        t_events: for each event function its times, shape `(max_events,)`, padded with NaN.
        y_events: the states at these times.
        sol: with `dense_output`, a function of a time or a vector of times.
    """

    ts: Array
    ys: Any
    status: Array
    stats: dict[str, Array]
    t_events: list[Array] | None
    y_events: list[Any] | None
    sol: Callable[[Array], Any] | None = field(metadata={"static": True}, default=None)

    @property
    def success(self) -> Array:
        """Whether the end or a terminal event was reached."""
        return self.status >= 0

    @property
    def message(self) -> str:
        """What `status` means; it must not be traced."""
        if isinstance(self.status, Tracer):
            return "The status is traced; read the message outside of jit."
        status = int(self.status)
        return ode_checks.ode_message(6 if status == 1 else -status)


@dataclass(frozen=True)
class _Problem:
    """A converted problem."""

    meta: Meta
    treedef: Any
    y0: Leaves
    p: Leaves
    q: Leaves

    def integrate(self, ts: Array) -> Solution:
        return integrate(self.meta, Data(self.y0, self.p, self.q, ts))

    def states(self, solution: Solution) -> Leaves:
        """The outputs between the ends and the last one, with a leading axis."""
        if not solution.inner:
            return [x[None] for x in solution.final]
        pairs = zip(solution.inner, solution.final, strict=True)
        return [jnp.concatenate([x, last[None]]) for x, last in pairs]

    def at(self, span: Array, times: Array) -> Leaves:
        """States at times in any order inside of the span."""
        order = jnp.argsort(times * jnp.where(span[1] < span[0], -1.0, 1.0))
        ts = jnp.concatenate([span[:1], times[order], span[1:]])
        rows = self.states(self.integrate(ts))
        return [jnp.zeros_like(x[:-1]).at[order].set(x[:-1]) for x in rows]


def solve_ivp(
    fun: Callable,
    t_span: Any,
    y0: Any,
    method: str = "Tsit5",
    t_eval: Any = None,
    dense_output: bool = False,
    events: Callable | Sequence[Callable] | None = None,
    args: tuple = (),
    *,
    rtol: float = 1e-6,
    atol: float = 1e-9,
    max_step: float = jnp.inf,
    first_step: float | None = None,
    max_steps: float = 100_000,
    max_events: int = 16,
    adjoint: Adjoint = Checkpointed(),  # noqa: B008 (frozen)
) -> OdeResult:
    """Integrate `dy/dt = fun(t, y, *args)` over an interval; the form is that of SciPy.

    Args:
        fun: the right-hand side; note the order of its arguments, which is SciPy's.
        t_span: the two ends; the second may be smaller than the first.
        y0: the state at the first, an array or a pytree of arrays, real or complex.
        method: "Tsit5", "Dopri5", "Dopri8", the stiff "Esdirk43", or "RK4" with fixed steps of
            size `first_step`.
        t_eval: the times at which states are returned, in the order of integration; by default
            the two ends (JAX has no results of unknown length).
        dense_output: also return the solution as a function of time.
        events: functions `event(t, y, *args)` of which zeros are sought, one or a sequence; with
            SciPy's attributes `terminal` (a bool or a count) and `direction`. A zero at the
            first time is no event, so that what starts on a surface can leave it.
        args: further arguments of `fun` and the events.
        rtol: tolerated error of a step relative to the state; smaller than in SciPy, because
            derivatives are no better than the solution.
        atol: absolute part of the tolerated error.
        max_step: largest step size.
        first_step: size of the first step, and of all steps of "RK4".
        max_steps: how many steps may be tried.
        max_events: how many occurrences of each event are kept.
        adjoint: how derivatives are computed; see the classes in `difflinalg.ode`.

    Returns:
        An `OdeResult`.

    Raises:
        TypeError: as `odeint`.
        ValueError: as `odeint`, and if `t_eval` leaves `t_span` or "RK4" has no step size.
        RuntimeError: as `odeint`; under jit the states are NaN and `status` is negative.

    Derivatives:
        As `odeint`, also of `ts` and the times and states of events, to fifth order. An event at
        which its function touches zero without crossing it has no derivative (NaN or inf). The
        number of events is a constant.

    Cost:
        As `odeint`. Events take one more integration, and `sol` takes one per call: it stores
        nothing and integrates again, with the same steps.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg.ode import solve_ivp
        >>> def ground(t, y):
        ...     return y[0]
        >>> ground.terminal = True
        >>> def time_of_fall(height):
        ...     fall = lambda t, y: jnp.array([y[1], -2.0])
        ...     y0 = jnp.array([height, 0.0])
        ...     return solve_ivp(fall, (0.0, 9.0), y0, events=ground).t_events[0][0]
        >>> print(*(round(float(f(4.0)), 3) for f in (time_of_fall, jax.grad(time_of_fall))))
        2.0 0.25

    References:
        Hairer, Norsett and Wanner, "Solving Ordinary Differential Equations I" (1993), sections
        II.4 to II.6 and II.10. Kennedy and Carpenter, "Additive Runge-Kutta schemes" (2003),
        appendix C ("Esdirk43").
    """
    checks.check_choice("solve_ivp", "method", method, tuple(METHODS))
    args = ode_checks.as_args("solve_ivp", args)
    rtol, atol, max_step = float(rtol), float(atol), float(max_step)
    tolerances = {"rtol": rtol, "atol": atol}
    ode_checks.check_options("solve_ivp", tolerances, {"max_step": max_step}, adjoint, Adjoint)
    control = Control(
        METHODS[method],
        rtol,
        atol,
        max_steps=float(max_steps),
        hmax=max_step,
        first_step=ode_checks.as_first_step(first_step, fixed=not METHODS[method].errors),
    )
    leaves, treedef = jax.tree.flatten(y0)
    y = [ode_checks.as_state("solve_ivp", x) for x in leaves]
    span = ode_checks.as_span("solve_ivp", t_span)
    system, p, q = convert("solve_ivp", fun, y, treedef, span[0], args, time_first=True)
    problem = _Problem(Meta(control, system, adjoint), treedef, y, p, q)
    if t_eval is None:
        ts = span
    else:
        wanted = ode_checks.as_evaluation_times("solve_ivp", t_eval, span)
        ts = jnp.concatenate([span[:1], wanted, span[1:]])
    if events is None:
        solution = problem.integrate(ts)
        rows, found, occurrences = problem.states(solution), None, (None, None)
    else:
        functions = list(events) if isinstance(events, Sequence) else [events]
        chosen = [as_event(f, y, treedef, span[0], args) for f in functions]
        solution, rows, ts, found, occurrences = _with_events(problem, chosen, ts, max_events)
    ode_checks.raise_ode_failure("solve_ivp", solution.status, solution.where, solution.counts)
    # without t_eval the two ends are returned, else what was asked for
    rows = [jnp.concatenate([x[None], r]) for x, r in zip(y, rows, strict=True)]
    keep = slice(None) if t_eval is None else slice(1, -1)
    sol = _Dense(problem, span) if dense_output else None
    stopped = jnp.array(False) if found is None else found.stopped
    status = jnp.where(solution.status == SUCCESS, stopped, -solution.status)
    counts = {"num_accepted": solution.counts[0], "num_rejected": solution.counts[1]}
    return OdeResult(
        ts[keep],
        jax.tree.unflatten(treedef, [x[keep] for x in rows]),
        status,
        counts | {"t": solution.where[0], "step_size": solution.where[1]},
        *occurrences,
        sol,
    )


def _with_events(
    problem: _Problem, events: list[Event], ts: Array, room: int
) -> tuple[Solution, Leaves, Array, Found, tuple[list[Array], list[Any]]]:
    """Find the events, integrate up to the terminal one, and put the times onto the zeros."""
    meta, span = problem.meta, ts[jnp.array([0, -1])]
    found = locate(
        meta.control, meta.system, tuple(events), room, problem.p, problem.q, problem.y0, span
    )
    sign = jnp.where(span[1] < span[0], -1.0, 1.0)
    # one integration with the events among the outputs, in order
    past = sign * (ts - found.stop) > 0.0
    outputs = jnp.where(past, found.stop, ts)[1:]
    marks = jnp.where(jnp.isnan(found.times), found.stop, found.times).ravel()
    order = jnp.argsort(sign * jnp.concatenate([marks, outputs]), stable=True)
    merged = jnp.concatenate([marks, outputs])[order]
    solution = problem.integrate(jnp.concatenate([ts[:1], merged]))
    rows = [jnp.zeros_like(x).at[order].set(x) for x in problem.states(solution)]
    count = marks.shape[0]
    t_events, y_events = [], []
    for i, event in enumerate(events):
        own = slice(i * room, (i + 1) * room)
        refined, states = jax.vmap(
            lambda y, t, event=event: refine(meta.system, event, problem.p, problem.q, y, t)
        )([x[own] for x in rows], marks[own])
        missing = jnp.isnan(found.times[i])
        t_events.append(jnp.where(missing, jnp.nan, refined))
        states = [jnp.where(_column(missing, x), jnp.nan, x) for x in states]
        y_events.append(jax.tree.unflatten(problem.treedef, states))
    # the end is the terminal event, as differentiable as that; outputs behind it are NaN
    ts = jnp.where(past, jnp.nan, ts)
    rows = [jnp.where(_column(past[1:], x[count:]), jnp.nan, x[count:]) for x in rows]
    return solution, rows, ts, found, (t_events, y_events)


def _column(mask: Array, x: Array) -> Array:
    return mask.reshape((-1,) + (1,) * (x.ndim - 1))


class _Dense:
    """The solution as a function of time; each call integrates, with the same steps."""

    def __init__(self, problem: _Problem, span: Array) -> None:
        self._problem, self._span = problem, span

    def __call__(self, t: Array) -> Any:
        times = jnp.asarray(t, self._span.dtype)
        rows = self._problem.at(self._span, times.ravel())
        shaped = [x.reshape(times.shape + x.shape[1:]) for x in rows]
        return jax.tree.unflatten(self._problem.treedef, shaped)
