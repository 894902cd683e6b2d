"""Checks and error texts of the integrators of ordinary differential equations."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from difflinalg._core.checks import as_inexact


def as_argument(name: str, x: object) -> Array:
    """One leaf of the arguments of a right-hand side as an array."""
    if not isinstance(x, (bool, int, float, complex)) and not hasattr(x, "dtype"):
        msg = (
            f"{name} takes arguments that are arrays, numbers or containers of them, got "
            f"{type(x).__name__}; let the function close over anything else."
        )
        raise TypeError(msg)
    return jnp.asarray(x)


def as_state(name: str, x: object) -> Array:
    """One leaf of the initial state as an array of a strong floating or complex dtype."""
    array = as_inexact(name, x)  # type: ignore[arg-type]
    return jax.lax.convert_element_type(array, array.dtype)


def as_halves(name: str, y0: object) -> tuple[tuple[list[Array], Any], tuple[list[Array], Any]]:
    """Leaves and structure of `q` and of `p`, which must agree: each is the slope of the other."""
    if not isinstance(y0, (tuple, list)) or len(y0) != 2:
        msg = f"{name} needs y0 as the pair (q, p), got {type(y0).__name__}."
        raise ValueError(msg)
    (q, q_tree), (p, p_tree) = (jax.tree.flatten(half) for half in y0)
    q, p = ([as_state(name, x) for x in leaves] for leaves in (q, p))
    if q_tree != p_tree or [x.shape for x in q] != [x.shape for x in p]:
        got = " and ".join(str([x.shape for x in leaves]) for leaves in (q, p))
        msg = (
            f"{name} needs q and p of one structure and the same shapes, got {got} in {q_tree} and "
            f"{p_tree}; broadcast or reshape one of them."
        )
        raise ValueError(msg)
    return (q, q_tree), (p, p_tree)


def check_adjoint(name: str, adjoint: object, kinds: type | tuple[type, ...], choice: str) -> None:
    """Refuse a derivative method that an integrator does not have, and a class for its object."""
    if not isinstance(adjoint, kinds):
        msg = f"{name} needs adjoint as {choice}, got {adjoint!r}."
        raise TypeError(msg)


def as_times(name: str, t: object) -> Array:
    """The times as an array; where they can be seen they must be finite and monotone."""
    array = as_argument(name, t) if not isinstance(t, (list, tuple)) else jnp.asarray(t)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        msg = f"{name} needs times of a floating dtype, got {array.dtype}; use t.astype(float)."
        raise TypeError(msg)
    if array.ndim != 1 or array.shape[0] == 0:
        msg = f"{name} needs a vector of times, shape (m,) with m >= 1, got shape {array.shape}."
        raise ValueError(msg)
    if not isinstance(array, Tracer):
        values = np.asarray(array)
        steps = np.diff(values)
        if not np.all(np.isfinite(values)):
            msg = f"{name} got a time that is not finite: {array}."
            raise ValueError(msg)
        if not (np.all(steps >= 0) or np.all(steps <= 0)):
            turn = int(np.argmax(steps * np.sign(steps[np.flatnonzero(steps)[0]]) < 0))
            msg = (
                f"{name} needs times that increase or decrease throughout; t[{turn}] = "
                f"{float(values[turn])!r} and t[{turn + 1}] = {float(values[turn + 1])!r} turn "
                "back. Sort them, for example with jnp.sort."
            )
            raise ValueError(msg)
    return jax.lax.convert_element_type(array, array.dtype)


def check_options(
    name: str, tolerances: dict[str, float], largest: dict[str, float], adjoint: object, kind: type
) -> None:
    """Refuse tolerances and step sizes that mean nothing, and classes in place of their objects."""
    if not all(x >= 0.0 for x in tolerances.values()) or not any(tolerances.values()):
        msg = f"{name} needs rtol and atol >= 0, and not both zero; got {tolerances}."
        raise ValueError(msg)
    for key, size in largest.items():
        if not size > 0.0:
            msg = f"{name} needs {key} > 0 (a size, without direction), got {size!r}."
            raise ValueError(msg)
    choice = "an object of a class in difflinalg.ode, for example adjoint=Backsolve()"
    check_adjoint(name, adjoint, kind, choice)


def as_args(name: str, args: object) -> tuple:
    """Further arguments of a right-hand side as a tuple."""
    try:
        return tuple(args)  # type: ignore[arg-type]
    except TypeError as error:
        msg = f"{name} needs args as a tuple, got {type(args).__name__}; write args=(x,)."
        raise TypeError(msg) from error


def match_field(name: str, out: object, y: list[Array], treedef: object) -> list[Array]:
    """The value of a right-hand side as leaves with the shapes and dtypes of the state.

    As in JAX's own integrator, a value of another structure counts if it has as many entries.
    """
    leaves = [jnp.asarray(x) for x in jax.tree.leaves(out)]
    same = jax.tree.structure(out) == treedef
    if [x.shape for x in leaves] != [x.shape for x in y]:
        total, needed = sum(x.size for x in leaves), sum(x.size for x in y)
        if same or total != needed:
            got = ", ".join(str(x.shape) for x in leaves)
            want = ", ".join(str(x.shape) for x in y)
            msg = (
                f"{name} needs a right-hand side that returns what the state is, shapes {want}; "
                f"got shapes {got}."
            )
            raise ValueError(msg)
        flat = jnp.concatenate([x.ravel() for x in leaves])
        ends = [0]
        for x in y:
            ends.append(ends[-1] + x.size)
        leaves = [flat[ends[i] : ends[i + 1]].reshape(x.shape) for i, x in enumerate(y)]
    matched = []
    for value, x in zip(leaves, y, strict=True):
        if jnp.result_type(value, x) != x.dtype:
            msg = (
                f"{name} got a right-hand side of dtype {value.dtype} for a state of dtype "
                f"{x.dtype}; convert the state to {jnp.result_type(value, x)}, or the value to "
                f"{x.dtype}."
            )
            raise TypeError(msg)
        matched.append(jax.lax.convert_element_type(value, x.dtype))
    return matched


ODE_FAILURES = {
    1: "the budget of steps is spent; allow more of them, loosen rtol and atol, or use a stiff "
    "method",
    2: "the right-hand side is not finite there; look for a division by zero or an overflow in it "
    "(with atol=0 a zero in the state is one too)",
    3: "the step size underflows; the solution is probably singular there, or the problem stiff",
    4: "more steps are needed than the derivative method records; raise its max_steps",
    5: "the times do not increase or decrease throughout; sort them",
}


def ode_message(status: int) -> str:
    """What a status of an integration says."""
    if status == 0:
        return "The integration reached the end of the interval."
    if status == 6:
        return "A terminal event occurred."
    return f"The integration failed: {ODE_FAILURES[status]}."


def raise_ode_failure(name: str, status: Array, where: Array, counts: Array) -> None:
    """Refuse to go on after a failed integration, where its status can be seen."""
    if isinstance(status, Tracer) or int(status) in (0, 6):
        return
    t, h = (float(x) for x in where)
    accepted, rejected = (int(x) for x in counts)
    msg = (
        f"{name} stopped at t = {t!r} with step size {h:.3e} after {accepted} accepted and "
        f"{rejected} rejected steps: {ODE_FAILURES[int(status)]}. Under jit the result is NaN."
    )
    raise RuntimeError(msg)


def as_first_step(first_step: object, fixed: bool) -> float | None:
    """The size of the first step as a positive number, needed if all steps have it."""
    if first_step is None:
        if fixed:
            msg = "solve_ivp needs first_step, the size of all steps, for method='RK4'."
            raise ValueError(msg)
        return None
    size = float(first_step)  # type: ignore[arg-type]
    if not size > 0.0:
        msg = f"solve_ivp needs first_step > 0 (a size, without direction), got {first_step!r}."
        raise ValueError(msg)
    return size


def as_span(name: str, t_span: object) -> Array:
    """The two ends of an interval as one vector."""
    try:
        start, end = t_span  # type: ignore[misc]
    except (TypeError, ValueError) as error:
        msg = f"{name} needs t_span as a pair of times, got {t_span!r}."
        raise ValueError(msg) from error
    ends = [jnp.asarray(x) for x in (start, end)]
    dtype = jnp.result_type(*ends, float if all(_is_integer(x) for x in ends) else ends[0])
    return as_times(name, jnp.stack([x.astype(dtype) for x in ends]))


def _is_integer(x: Array) -> bool:
    return not jnp.issubdtype(x.dtype, jnp.inexact)


def as_evaluation_times(name: str, t_eval: object, span: Array) -> Array:
    """The times at which states are wanted; where they can be seen they lie in the span."""
    times = jnp.asarray(t_eval, span.dtype)
    if times.ndim != 1:
        msg = f"{name} needs t_eval as a vector, got shape {times.shape}."
        raise ValueError(msg)
    if isinstance(times, Tracer) or isinstance(span, Tracer):
        return times
    values, ends = np.asarray(times), np.sort(np.asarray(span))
    if np.any(values < ends[0]) or np.any(values > ends[1]):
        msg = f"{name} needs t_eval inside of t_span = {np.asarray(span)}, got {values}."
        raise ValueError(msg)
    as_times(name, jnp.concatenate([span[:1], times, span[1:]]))
    return times


def as_event_value(value: object, t: Array) -> Array:
    """The value of an event function as one real number."""
    array = jnp.asarray(value)
    if array.size != 1 or jnp.iscomplexobj(array):
        msg = (
            f"solve_ivp needs events that return one real number, got shape {array.shape} and "
            f"dtype {array.dtype}."
        )
        raise ValueError(msg)
    return array.reshape(()).astype(t.dtype)


def check_reconstruction(name: str, error: Array, rtol: float) -> None:
    """Refuse a reverse pass that did not find its way back, where this can be seen."""
    if not isinstance(error, Tracer) and not float(error) <= rtol:
        msg = (
            f"{name} rebuilt the first state with a relative error of {float(error):.1e}, more "
            f"than {rtol:.1e}; take smaller steps or adjoint=Checkpointed(). Under jit the "
            "gradient is NaN."
        )
        raise RuntimeError(msg)
