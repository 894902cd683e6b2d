"""Symplectic integrators of separable systems, `q' = v(p)`, `p' = F(q)`.

One leapfrog step of size h is `kick(h/2) drift(h) kick(h/2)` with

    kick(h):  p += h F(q),    drift(h):  q += h v(p)

and Yoshida's method of order 4 is three of them, of sizes `w_1 h, w_0 h, w_1 h` with
`w_1 = 1 / (2 - 2^(1/3))`, `w_0 = 1 - 2 w_1`. Both are symmetric: the step of size -h is the
inverse, so that a reverse pass can re-create the states that it needs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import isqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import checks, ode_checks, tolerances
from difflinalg._ode.adjoints import Checkpointed
from difflinalg._ode.stages import real_dtype
from difflinalg._ode.system import Leaves, System, convert

_W1 = 1.0 / (2.0 - 2.0 ** (1.0 / 3.0))
WEIGHTS = {"Leapfrog": (1.0,), "Yoshida4": (_W1, 1.0 - 2.0 * _W1, _W1)}


@dataclass(frozen=True)
class Reversible:
    """The reverse pass steps backwards and stores nothing but the last state.

    Reverse mode only. The rebuilt first state is compared with the true one: where they differ
    by more than `rtol` of its size, the gradient is an exception, or NaN under jit.

    Args:
        rtol: tolerated difference; by default `eps^(1/2)`.
    """

    rtol: float | None = None


class _Theta(NamedTuple):
    """What velocity and force depend on; only the first two have derivatives."""

    velocity: Leaves
    force: Leaves
    velocity_rest: Leaves
    force_rest: Leaves


class _Split(NamedTuple):
    """The static part of an integration."""

    velocity: System
    force: System
    weights: tuple[float, ...]
    steps: int
    rtol: float | None


State = tuple[Leaves, Leaves]


def symplectic(
    velocity: Callable,
    force: Callable,
    y0: tuple[Any, Any],
    t: Array,
    *args: Any,
    steps: int,
    method: str = "Leapfrog",
    adjoint: Checkpointed | Reversible = Checkpointed(),  # noqa: B008 (frozen)
) -> tuple[Any, Any]:
    """Integrate `q' = velocity(p, *args)`, `p' = force(q, *args)` with fixed symplectic steps.

    Args:
        velocity: the derivative of the kinetic energy; it returns what `q` is.
        force: minus the derivative of the potential energy; it returns what `p` is.
        y0: the pair `(q, p)` at `t[0]`, two arrays or pytrees of one structure.
        t: shape `(m,)`, floating, increasing or decreasing throughout.
        *args: arrays, numbers, or pytrees of them, handed to both functions.
        steps: how many steps are taken between two times, a Python integer.
        method: "Leapfrog" (order 2) or "Yoshida4" (order 4, three times the work).
        adjoint: `Checkpointed()`, of which only the type counts here, stores about
            `m + 2 sqrt(steps)` states; `Reversible()` stores one.

    Returns:
        The pair `(q, p)` at all times, each with a new leading axis of length `m`.

    Raises:
        TypeError: as `odeint`.
        ValueError: as `odeint`, and if `steps` is not a positive integer.
        RuntimeError: if the reverse pass of `Reversible` misses the first state.

    Derivatives:
        Those of the steps taken, in `y0`, `t`, `args` and closed-over values. With
        `Checkpointed` both modes in any nesting, with `Reversible` reverse mode only.

    Cost:
        One force and one velocity for each leapfrog, and one more force. Reverse mode computes
        each step twice and reverses it once.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg.ode import symplectic
        >>> t = jnp.array([0.0, jnp.pi])
        >>> q, p = symplectic(lambda p: p, lambda q: -q, (1.0, 0.0), t, steps=100)
        >>> print(round(float(q[-1]), 3))
        -1.0

    References:
        Yoshida, "Construction of higher order symplectic integrators" (1990), equation 4.6.
        Hairer, Lubich and Wanner, "Geometric Numerical Integration" (2006), section V.3.
    """
    checks.check_choice("symplectic", "method", method, tuple(WEIGHTS))
    checks.check_positive("symplectic", "steps", steps)
    (q, q_tree), (p, p_tree) = (jax.tree.flatten(x) for x in y0)
    q, p = ([ode_checks.as_state("symplectic", x) for x in leaves] for leaves in (q, p))
    ts = ode_checks.as_times("symplectic", t)
    # the state of one half is handed to convert in place of the other: both have one structure
    v_system, v_theta, v_rest = convert("symplectic", _timeless(velocity), p, p_tree, ts[0], args)
    f_system, f_theta, f_rest = convert("symplectic", _timeless(force), q, q_tree, ts[0], args)
    theta = _Theta(v_theta, f_theta, v_rest, f_rest)
    if ts.shape[0] == 1:
        return jax.tree.map(lambda x: jnp.asarray(x)[None], y0)
    rtol = adjoint.rtol if isinstance(adjoint, Reversible) else None
    split = _Split(v_system, f_system, WEIGHTS[method], steps, rtol)
    run = _reversible if isinstance(adjoint, Reversible) else _checkpointed
    rows: Any = run(split, (q, p), ts, theta)
    q_rows, p_rows = (
        [jnp.concatenate([x[None], r]) for x, r in zip(first, rest, strict=True)]
        for first, rest in zip((q, p), rows, strict=True)
    )
    return jax.tree.unflatten(q_tree, q_rows), jax.tree.unflatten(p_tree, p_rows)


def _timeless(function: Callable) -> Callable:
    return lambda y, _t, *args: function(y, *args)


def _move(y: Leaves, h: Array, slope: Leaves) -> Leaves:
    return [u + h.astype(real_dtype(u)) * f for u, f in zip(y, slope, strict=True)]


def _step(split: _Split, state: State, h: Array, theta: _Theta) -> State:
    """One step; of size -h, its inverse."""
    time = jnp.zeros_like(h)

    def leapfrog(state: State, weight: Array) -> tuple[State, None]:
        q, p = state
        size = weight * h
        p = _move(p, 0.5 * size, split.force.field(q, time, theta.force, theta.force_rest))
        q = _move(q, size, split.velocity.field(p, time, theta.velocity, theta.velocity_rest))
        p = _move(p, 0.5 * size, split.force.field(q, time, theta.force, theta.force_rest))
        return (q, p), None

    weights = jnp.asarray(split.weights, h.dtype)
    return lax.scan(leapfrog, state, weights)[0]


def _checkpointed(split: _Split, state: State, ts: Array, theta: _Theta) -> State:
    """The states at `ts[1:]`; blocks of about `sqrt(steps)` steps are recomputed."""
    block = max(isqrt(split.steps), 1)
    blocks = -(-split.steps // block)

    def several(state: State, h: Array, first: Array) -> State:
        # steps behind the last one have length zero
        def one(state: State, i: Array) -> tuple[State, None]:
            size = jnp.where(first + i < split.steps, h, jnp.zeros_like(h))
            return _step(split, state, size, theta), None

        return lax.scan(one, state, jnp.arange(block))[0]

    def interval(state: State, h: Array) -> tuple[State, State]:
        checkpointed = jax.checkpoint(several)
        body = lambda state, i: (checkpointed(state, h, i * block), None)  # noqa: E731
        state, _ = lax.scan(body, state, jnp.arange(blocks))
        return state, state

    return lax.scan(jax.checkpoint(interval), state, jnp.diff(ts) / split.steps)[1]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _reversible(split: _Split, state: State, ts: Array, theta: _Theta) -> State:
    return _checkpointed(split, state, ts, theta)


def _reversible_forward(split: _Split, state: State, ts: Array, theta: _Theta) -> tuple:
    rows = _checkpointed(split, state, ts, theta)
    return rows, (state, jax.tree.map(lambda x: x[-1], rows), ts, theta)


def _reversible_backward(split: _Split, saved: tuple, cotangents: State) -> tuple:
    first, last, ts, theta = saved
    smooth = (theta.velocity, theta.force)

    def back(carry: tuple, _row: None, h: Array) -> tuple[tuple, None]:
        state, bar, h_bar, theta_bar = carry
        before = _step(split, state, -h, theta)
        _, pull = jax.vjp(
            lambda state, h, smooth: _step(split, state, h, _Theta(*smooth, *theta[2:])),
            before,
            h,
            smooth,
        )
        bar, h_part, theta_part = pull(bar)
        add = partial(jax.tree.map, jnp.add)
        return (before, bar, h_bar + h_part, add(theta_bar, theta_part)), None

    def interval(carry: tuple, row: tuple) -> tuple[tuple, Array]:
        state, bar, theta_bar = carry
        h, cotangent = row
        bar = jax.tree.map(jnp.add, bar, cotangent)
        inner = (state, bar, jnp.zeros_like(h), theta_bar)
        (state, bar, h_bar, theta_bar), _ = lax.scan(
            partial(back, h=h), inner, None, length=split.steps
        )
        return (state, bar, theta_bar), h_bar / split.steps

    zeros = partial(jax.tree.map, jnp.zeros_like)
    (rebuilt, bar, theta_bar), h_bar = lax.scan(
        interval,
        (last, zeros(last), zeros(smooth)),
        (jnp.diff(ts) / split.steps, cotangents),
        reverse=True,
    )
    error = reconstruction_error(first, rebuilt)
    rtol = tolerances.reconstruction_rtol(ts.dtype) if split.rtol is None else split.rtol
    ode_checks.check_reconstruction("symplectic", error, rtol)
    poison = jnp.where(error <= rtol, 1.0, jnp.nan)
    ts_bar = jnp.pad(h_bar, (1, 0)) - jnp.pad(h_bar, (0, 1))
    bar, ts_bar, theta_bar = jax.tree.map(
        lambda x: x * poison.astype(real_dtype(x)), (bar, ts_bar, theta_bar)
    )
    return bar, ts_bar, _Theta(*theta_bar, *([None] * len(x) for x in theta[2:]))


_reversible.defvjp(_reversible_forward, _reversible_backward)


def reconstruction_error(first: State, rebuilt: State) -> Array:
    """The largest difference of two states, relative to the largest entry of the first."""
    pairs = list(zip(jax.tree.leaves(first), jax.tree.leaves(rebuilt), strict=True))
    size = jnp.max(jnp.stack([jnp.max(jnp.abs(x)) for x, _ in pairs]))
    worst = jnp.max(jnp.stack([jnp.max(jnp.abs(x - y)) for x, y in pairs]))
    return worst / jnp.where(size > 0.0, size, 1.0)
