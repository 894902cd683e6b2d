"""The solution of an equation as an operation, with the rule of the implicit function theorem.

Rule. `F(x, p) = 0` holds along `p(t)`, so that

    F_x x_dot = -F_p p_dot

a linear equation, solved inside of the JVP. `F(x, p) = x - f(x, p)` for a fixed point. The rule
takes `x` from the operation itself, and the matrix from `F` at that `x`, so that the rule can be
differentiated again.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.core import Tracer

from difflinalg._core import implicit_checks, tolerances
from difflinalg._core.operation import operation
from difflinalg._implicit.linear import LinearSolver, linear_solve
from difflinalg._implicit.problem import Arguments, Function, Layout

MAX_HALVINGS = 30  # of a Newton step: by 1e9, after which the direction is no descent


@dataclass(frozen=True)
class Settings:
    """Static options of an equation and of its solution."""

    name: str  # of the public function
    newton: bool  # whether f is to vanish, or else x is to reproduce itself
    rtol: float
    atol: float
    max_steps: int
    solver: LinearSolver
    trust: float
    layout: Layout

    def error(self, function: Function, z: Array, arguments: Arguments) -> Array:
        """`F` at `z`."""
        value = function(z, arguments)
        return value if self.newton else z - value


class ImplicitInfo(NamedTuple):
    """How an implicit equation was solved."""

    converged: Array  # bool
    steps: Array  # evaluations of f for a fixed point, Newton steps for a root
    residual: Array  # |f(x) - x| / |x|, or for a root the last Newton step relative to |x|


class ImplicitResult(NamedTuple):
    """A solution and how it was found."""

    x: Any
    info: ImplicitInfo


class _State(NamedTuple):
    z: Array
    value: Array  # F(z)
    change: Array  # the next change of z, |F| for a fixed point and |F_x^-1 F| for a root
    steps: Array


def solve(function: Function, z0: Array, arguments: Arguments, settings: Settings):
    """The solution as a pytree, with its info; loud where there is none."""
    z, stats = implicit_solution(lax.stop_gradient(z0), arguments, function, settings)
    stats = lax.stop_gradient(stats)
    info = _info(stats)
    _raise_unless_converged(z, stats, settings)
    return ImplicitResult(settings.layout.unravel(z * _or_nan(stats[0] > 0.0, z.dtype)), info)


@operation(statics=2)
def implicit_solution(
    z0: Array, arguments: Arguments, function: Function, settings: Settings
) -> tuple[Array, Array]:
    """The last iterate, converged or not, and `(converged, steps, residual)` as numbers."""

    def unfinished(state: _State) -> Array:
        pending = state.change > allowed(state.z)
        return pending & ~jnp.isnan(state.change) & (state.steps < settings.max_steps)

    def allowed(z: Array) -> Array:
        return settings.rtol * jnp.linalg.norm(z) + settings.atol

    step = _newton_step if settings.newton else _picard_step
    start = _start(function, z0, arguments, settings)
    last = lax.while_loop(
        unfinished, lambda state: step(function, state, arguments, settings), start
    )
    size = jnp.linalg.norm(last.z)
    residual = last.change / jnp.where(size > 0.0, size, 1.0)
    converged = last.change <= allowed(last.z)
    stats = [x.astype(z0.dtype) for x in (converged, last.steps, residual)]
    return last.z, jnp.stack(stats)


@implicit_solution.defjvp
def _implicit_solution_jvp(function, settings, primals, tangents):
    (z0, arguments), (_, arguments_dot) = primals, tangents
    z, stats = implicit_solution(z0, arguments, function, settings)
    _raise_unless_converged(z, stats, settings)

    def along(smooth):
        return settings.error(function, z, arguments._replace(smooth=smooth))

    value, moved = jax.jvp(along, (arguments.smooth,), (arguments_dot.smooth,))
    _, matvec = jax.linearize(lambda z: settings.error(function, z, arguments), z)
    z_dot = linear_solve(matvec, -moved, settings.solver)
    factor = trusted_or_nan(z, value, stats, matvec, settings)
    return (z, stats), (z_dot * factor, jnp.zeros_like(stats))


def trusted_or_nan(z: Array, value: Array, stats: Array, matvec, settings: Settings) -> Array:
    """1 where derivatives at the solution `z` can be given, with `F(z) = value`; else NaN."""
    z, value, stats = lax.stop_gradient((z, value, stats))
    return _or_nan(_is_trusted(z, value, stats, matvec, settings), z.dtype)


def _is_trusted(z: Array, value: Array, stats: Array, matvec, settings: Settings) -> Array:
    """Whether `F`, as the derivative evaluates it, vanishes at the solution."""
    scale, growth = jnp.linalg.norm(z), jnp.ones((), z.dtype)
    if settings.newton:
        image = lax.stop_gradient(jnp.linalg.norm(matvec(z)))
        growth = image / jnp.where(scale > 0.0, scale, 1.0)
    allowed = growth * (settings.trust * scale + tolerances.trust_factor() * settings.atol)
    return (stats[0] > 0.0) & (jnp.linalg.norm(value) <= allowed)


def _start(function: Function, z: Array, arguments: Arguments, settings: Settings) -> _State:
    value = settings.error(function, z, arguments)
    if settings.newton:  # no step is known yet
        change = jnp.where(jnp.all(jnp.isfinite(value)), jnp.inf, jnp.nan).astype(z.dtype)
        return _State(z, value, change, jnp.zeros((), jnp.int32))
    return _State(z, value, jnp.linalg.norm(value), jnp.ones((), jnp.int32))


def _picard_step(function: Function, state: _State, arguments: Arguments, settings: Settings):
    z = state.z - state.value
    value = settings.error(function, z, arguments)
    return _State(z, value, jnp.linalg.norm(value), state.steps + 1)


def _newton_step(function: Function, state: _State, arguments: Arguments, settings: Settings):
    """A Newton step, halved until `|F|` decreases."""

    def error(z):
        return settings.error(function, z, arguments)

    _, matvec = jax.linearize(error, state.z)
    change = linear_solve(matvec, -state.value, settings.solver)
    size = jnp.linalg.norm(state.value)

    def too_long(search):
        _, value, halvings = search
        # At rounding level nothing decreases; a full step of that size is as good as any.
        worse = ~(jnp.linalg.norm(value) < size) & (size > 0.0)
        small = jnp.linalg.norm(change) <= settings.rtol * jnp.linalg.norm(state.z)
        return worse & ~small & (halvings < MAX_HALVINGS)

    def halve(search):
        t, _, halvings = search
        return 0.5 * t, error(state.z + 0.5 * t * change), halvings + 1

    one, zero = jnp.ones((), state.z.dtype), jnp.zeros((), jnp.int32)
    t, value, _ = lax.while_loop(too_long, halve, (one, error(state.z + change), zero))
    return _State(state.z + t * change, value, jnp.linalg.norm(change), state.steps + 1)


def _or_nan(condition: Array, dtype) -> Array:
    return jnp.where(condition, 1.0, jnp.nan).astype(dtype)


def _info(stats: Array) -> ImplicitInfo:
    return ImplicitInfo(stats[0] > 0.0, stats[1].astype(jnp.int32), stats[2])


def _raise_unless_converged(z: Array, stats: Array, settings: Settings) -> None:
    """An exception where the outcome is known, that is outside of jit and vmap."""
    if isinstance(stats, Tracer) or bool(stats[0] > 0.0):
        return
    x, info = settings.layout.unravel(z), _info(stats)
    implicit_checks.refuse_unconverged_root(settings.name, x, info, int(stats[1]), float(stats[2]))
