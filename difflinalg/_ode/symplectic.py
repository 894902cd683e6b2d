"""Symplectic integrators of separable systems, `q' = v(p)`, `p' = F(q)`.

The steps are those of `_memory.splitting`, kicks `p += b h F(q)` and drifts `q += a h v(p)` by
turns. Each is undone by subtracting what it added, so that a reverse pass can re-create the states
that it needs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from difflinalg._core import checks, ode_checks
from difflinalg._memory.invertible import Invertible, chain, repeat
from difflinalg._memory.loops import scan
from difflinalg._memory.reversible import scan_back
from difflinalg._memory.splitting import leapfrog, yoshida4
from difflinalg._ode.adjoints import Checkpointed
from difflinalg._ode.system import Leaves, convert

METHODS = {"Leapfrog": leapfrog, "Yoshida4": yoshida4}
State = tuple[Leaves, Leaves]


@dataclass(frozen=True)
class Reversible:
    """The reverse pass steps backwards and stores nothing but the first and the last state.

    The rebuilt first state is compared with the true one: where they differ by more than `rtol`
    of its size, the gradient is an exception, or NaN under jit and vmap. Reverse mode, and forward
    over reverse mode.

    Args:
        rtol: tolerated difference; by default `eps^(1/2)`.
        return_error: whether to go back once more after the value is known, and to return the
            error of the first state that is found, relative to the largest entry of its array.
    """

    rtol: float | None = None
    return_error: bool = False


def symplectic(
    velocity: Callable,
    force: Callable,
    y0: tuple[Any, Any],
    t: Array,
    *args: Any,
    steps: int,
    method: str = "Leapfrog",
    adjoint: Checkpointed | Reversible = Checkpointed(),  # noqa: B008 (frozen)
) -> tuple[Any, ...]:
    """Integrate `q' = velocity(p, *args)`, `p' = force(q, *args)` with fixed symplectic steps.

    Args:
        velocity: the derivative of the kinetic energy; it returns what `q` is.
        force: minus the derivative of the potential energy; it returns what `p` is.
        y0: the pair `(q, p)` at `t[0]`, two arrays or pytrees of one structure.
        t: shape `(m,)`, floating, increasing or decreasing throughout.
        *args: arrays, numbers, or pytrees of them, handed to both functions.
        steps: how many steps are taken between two times, a Python integer.
        method: "Leapfrog" (order 2) or "Yoshida4" (order 4, twice the forces).
        adjoint: `Checkpointed()`, of which only the type counts here, stores about
            `2 sqrt(m steps)` states; `Reversible()` stores two.

    Returns:
        The pair `(q, p)` at all times, each with a new leading axis of length `m`. With
        `Reversible(return_error=True)` the triple `(q, p, error)`.

    Raises:
        TypeError: as `odeint`, and if `adjoint` is neither of the two.
        ValueError: as `odeint`, if `y0` is not a pair of two of the same structure and shapes, and
            if `steps` is not a positive integer.
        RuntimeError: if the reverse pass of `Reversible` misses the first state.

    Derivatives:
        Those of the steps taken, in `y0`, `t`, `args` and closed-over values. With
        `Checkpointed` both modes in any nesting, with `Reversible` reverse mode, and forward over
        reverse mode.

    Cost:
        For each step two forces and one velocity (Leapfrog), or four and three (Yoshida4). Reverse
        mode computes each step twice and reverses it once with `Reversible`, and computes it three
        times with `Checkpointed` (twice if `m < 5`). `Reversible` holds the cotangent of what a
        function depends on once for each of its calls in a step, up to four times.

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
    checks.check_choice("symplectic", "method", method, tuple(METHODS))
    checks.check_positive("symplectic", "steps", steps)
    ode_checks.check_adjoint(
        "symplectic", adjoint, (Checkpointed, Reversible), "Checkpointed() or Reversible()"
    )
    (q, q_tree), (p, p_tree) = ode_checks.as_halves("symplectic", y0)
    ts = ode_checks.as_times("symplectic", t)
    # the state of one half is handed to convert in place of the other: both have one structure
    v_system, v_theta, v_rest = convert("symplectic", _timeless(velocity), p, p_tree, ts[0], args)
    f_system, f_theta, f_rest = convert("symplectic", _timeless(force), q, q_tree, ts[0], args)
    if ts.shape[0] == 1:
        rows = [jax.tree.unflatten(q_tree, [x[None] for x in half]) for half in (q, p)]
        return (*rows, jnp.zeros(())) if _wants_error(adjoint) else tuple(rows)
    step = METHODS[method](
        lambda t, q: f_system.field(q, t, f_theta, f_rest),
        lambda t, p: v_system.field(p, t, v_theta, v_rest),
    )
    xs = (ts[:-1], jnp.diff(ts) / steps)
    error = ()
    if isinstance(adjoint, Reversible):
        rows, *error = _reversible(step, (q, p), xs, steps, adjoint)
    else:
        rows = _checkpointed(step, (q, p), xs, steps)
    q_rows, p_rows = (
        [jnp.concatenate([x[None], r]) for x, r in zip(first, rest, strict=True)]
        for first, rest in zip((q, p), rows, strict=True)
    )
    return (jax.tree.unflatten(q_tree, q_rows), jax.tree.unflatten(p_tree, p_rows), *error)


def _timeless(function: Callable) -> Callable:
    return lambda y, _t, *args: function(y, *args)


def _wants_error(adjoint: Checkpointed | Reversible) -> bool:
    return isinstance(adjoint, Reversible) and adjoint.return_error


def _checkpointed(step: Invertible, state: State, xs: tuple[Array, Array], steps: int) -> State:
    """The states at the end of each interval; `xs` holds its start and its step size."""

    def interval(state: State, x: tuple[Array, Array]) -> tuple[State, State]:
        state, _ = scan(lambda state, _: step.step(state, x), state, length=steps)
        return state, state

    return scan(interval, state, xs)[1]


def _reversible(
    step: Invertible, state: State, xs: tuple[Array, Array], steps: int, adjoint: Reversible
) -> tuple[Any, ...]:
    """The states at the end of each interval, and the error if it is wanted."""
    emit = Invertible(lambda state, _: (state, state), lambda state, _: state)
    interval = chain(repeat(step, steps), emit, shared=True)
    _, (_, rows), *error = scan_back(
        "symplectic",
        partial(ode_checks.check_reconstruction, "symplectic"),
        *interval,
        state,
        xs,
        rtol=adjoint.rtol,
        return_error=adjoint.return_error,
    )
    return rows, *error
