"""Optimise, then discretise: adjoint equations integrated backwards in time.

With the cotangents `g_j` of the outputs, `lambda` jumps by `g_j` at `t_j` and between them

    lambda' = -f_y^T lambda,    p_bar' = -f_p^T lambda

from the last time to the first. The two methods here differ in where `y(t)` comes from. JAX's
transpose pairs real parts, so that complex states need no conjugates.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import checks
from difflinalg._ode.adjoints import Adjoint, Pair, Problem
from difflinalg._ode.control import Control
from difflinalg._ode.forward import Record, interval
from difflinalg._ode.lift import Lift
from difflinalg._ode.packing import packing_of
from difflinalg._ode.solve import put, solve
from difflinalg._ode.stages import add, axpy, real_dtype, slopes, transposed_field
from difflinalg._ode.system import Leaves, System


def _sweep(
    control: Control,
    system: System,
    lift: Lift,
    start: Callable[[Leaves, Leaves, Leaves], Leaves],
    ts: Array,
    ys: Pair,
    cotangents: Pair,
    p_bar: Leaves,
) -> Pair:
    """Integrate `system` from each output to the one before; `start(y, lambda, p_bar)` joins."""
    inner, final = ys
    inner_bar, final_bar = cotangents
    n, batch = len(final), ts.ndim - 1
    packing = packing_of(start(final, final_bar, p_bar), batch)

    def packed(state: Leaves, t: Array, p: Leaves, q: Leaves) -> Leaves:
        return packing.pack(system.field(packing.unpack(state), t, p, q))

    def between(lam: Leaves, p_bar: Leaves, y: Leaves, ends: Array) -> Pair:
        state = lift(lambda _p, _q, state: packing.pack(state), start(y, lam, p_bar))
        out = solve(control, System(packed), lift, state, ends, 0).final
        out = lift(lambda _p, _q, out: packing.unpack(out), out)
        return out[-n - len(p_bar) : len(out) - len(p_bar)], out[len(out) - len(p_bar) :]

    if not inner:
        return between(final_bar, p_bar, final, ts[..., ::-1])

    def body(carry: Pair, row: tuple) -> tuple[Pair, None]:
        lam, p_bar = carry
        y, g, ends = row
        return between(add(lam, g), p_bar, y, ends), None

    # the last output is one row more, so that the integration is compiled once
    pairs = jnp.stack([ts[..., 1:], ts[..., :-1]], axis=-1)
    y, g = (
        [
            jnp.concatenate([x, jnp.expand_dims(last, batch)], axis=batch)
            for x, last in zip(*pair, strict=True)
        ]
        for pair in ((inner, final), (inner_bar, final_bar))
    )
    rows = jax.tree.map(lambda x: jnp.moveaxis(x, batch, 0), (y, g, pairs))
    lam = [jnp.zeros_like(x) for x in final_bar]
    (lam, p_bar), _ = lax.scan(body, (lam, p_bar), rows, reverse=True)
    return lam, p_bar


@dataclass(frozen=True)
class Backsolve(Adjoint):
    """The state is integrated backwards together with its adjoint; memory is constant.

    The method of Chen et al. (2018) and of `jax.experimental.ode.odeint`. The state restarts from
    each output. Its equation runs backwards, which amplifies errors where the forward problem
    damps them: unfit for stiff and strongly dissipative problems, where the integration fails or
    the gradient is inaccurate. Tangents are integrated with the state, and both controlled.

    Args:
        rtol: relative tolerance of the backward integration; that of the forward one by default.
        atol: the absolute part.

    References:
        Chen, Rubanova, Bettencourt and Duvenaud, "Neural ordinary differential equations" (2018),
        arXiv:1806.07366, appendices B and C.
    """

    rtol: float | None = None
    atol: float | None = None
    needs_outputs = True

    def _control(self, control: Control) -> Control:
        rtol = control.rtol if self.rtol is None else self.rtol
        atol = control.atol if self.atol is None else self.atol
        return replace(control, rtol=rtol, atol=atol)

    def push(self, problem: Problem) -> Pair:
        """Integrate the tangent system."""
        control, system, lift, y0, ts, _ = problem
        out = solve(self._control(control), system, lift, y0, ts, 0)
        return out.inner, out.final

    def pull(self, problem: Problem, active: tuple[bool, ...], ys: Pair, cotangents: Pair) -> Pair:
        """Integrate state, adjoint and cotangents of the parameters backwards."""
        system, n = problem.system, len(problem.y0)

        def field(state: Leaves, t: Array, p: Leaves, q: Leaves) -> Leaves:
            y, lam = state[:n], state[n : 2 * n]
            slope, pull = transposed_field(system, y, t, p, q, active)
            y_part, p_part = pull(lam)
            if system.keeps_values:
                slope = system.field(y, t, p, q)
            return slope + [-x for x in (*y_part, *p_part)]

        return _sweep(
            self._control(problem.control),
            System(field),
            problem.lift,
            lambda y, lam, p_bar: y + lam + p_bar,
            problem.ts,
            ys,
            cotangents,
            problem.zeros(active),
        )


@dataclass(frozen=True)
class Interpolating(Adjoint):
    """The adjoint alone is integrated backwards, along the interpolated forward solution.

    For stiff problems, with a stiff method: the adjoint equation, read backwards, is as damped as
    the forward one. States and slopes at all accepted steps are stored; between them the cubic
    Hermite interpolant is used, so that the gradient has an error of fourth order in the steps.

    Args:
        max_steps: for how many accepted steps there is room.

    References:
        Rackauckas et al., "Universal differential equations for scientific machine learning"
        (2020), arXiv:2001.04385, section 3 (interpolating adjoint).
    """

    max_steps: int = 2048
    needs_outputs = True

    def __post_init__(self) -> None:
        checks.check_positive("Interpolating", "max_steps", self.max_steps)

    def pull(self, problem: Problem, active: tuple[bool, ...], ys: Pair, cotangents: Pair) -> Pair:
        """Integrate adjoint and cotangents of the parameters backwards."""
        control, system, lift, y0, ts, record = problem
        n, batch = len(y0), ts.ndim - 1
        stored = [jnp.moveaxis(x, 0, batch) for x in _trajectory(control, system, lift, y0, record)]
        nq = len(lift.q)

        def field(state: Leaves, t: Array, p: Leaves, q: Leaves) -> Leaves:
            y = _hermite(t, q[nq], q[nq + 1 : nq + 1 + n], q[nq + 1 + n :])
            y_part, p_part = transposed_field(system, y, t, p, q[:nq], active)[1](state[:n])
            return [-x for x in (*y_part, *p_part)]

        levels = tuple((p, q + (True,) * (1 + 2 * n)) for p, q in lift.levels)
        extended = Lift(levels, lift.p, [*lift.q, record.times, *stored])
        return _sweep(
            control,
            System(field),
            extended,
            lambda _, lam, p_bar: lam + p_bar,
            ts,
            ys,
            cotangents,
            problem.zeros(active),
        )


def _trajectory(control: Control, system: System, lift: Lift, y0: Leaves, record: Record) -> Leaves:
    """States, then slopes, at all accepted times; a new leading axis."""
    tableau = control.tableau
    room = record.times.shape[-1]

    def slope(p: Leaves, q: Leaves, y: Leaves, times: Array, n: Array) -> Leaves:
        return system.field(y, times[n], p, q)

    def step(p: Leaves, q: Leaves, y: Leaves, times: Array, n: Array) -> Leaves:
        t, h = interval(times, n)
        k, _ = slopes(system, tableau, tableau.step_stages, y, t, h, p, q, None)
        return axpy(y, h, tableau.array("b", t.dtype, tableau.step_stages), k)

    def write(n: Array, y: Leaves, rows: Leaves) -> Leaves:
        f = lift(lambda p, q, y, times: slope(p, q, y, times, n), y, record.times)
        return [put(r, x, n) for r, x in zip(rows, [*y, *f], strict=True)]

    def body(n: Array, carry: Pair) -> Pair:
        y, rows = carry
        rows = write(n, y, rows)
        return lift(lambda p, q, y, times: step(p, q, y, times, n), y, record.times), rows

    rows = [jnp.zeros((room, *x.shape), x.dtype) for x in (*y0, *y0)]
    y, rows = lax.fori_loop(0, record.count, body, (y0, rows))
    return write(record.count, y, rows)


def _hermite(t: Array, times: Array, y: Leaves, f: Leaves) -> Leaves:
    """The cubic through the values and slopes at the accepted times around `t`."""
    sign = jnp.where(times[-1] < times[0], -1.0, 1.0)
    n = jnp.clip(jnp.searchsorted(sign * times, sign * t) - 1, 0, times.shape[0] - 2)
    h = times[n + 1] - times[n]
    x = (t - times[n]) / jnp.where(h == 0.0, 1.0, h)
    rise, first, last = x * x * (3.0 - 2.0 * x), x * (1.0 - x) ** 2, x * x * (x - 1.0)
    result = []
    for u, v in zip(y, f, strict=True):
        dtype = real_dtype(u)
        slope = (h * first).astype(dtype) * v[n] + (h * last).astype(dtype) * v[n + 1]
        result.append(u[n] + rise.astype(dtype) * (u[n + 1] - u[n]) + slope)
    return result
