"""The right-hand side as a function of flat lists, and the system of its tangents.

Everything below works on `y' = f(y, t, p, q)` with lists of arrays: the state `y`, what may be
differentiated `p` (floating and complex arguments and closed-over values) and what may not `q`
(integers, booleans, keys). The tangent system is

    (y, y_dot)' = (f, f_y y_dot + f_p p_dot)    with parameters (p, p_dot)

Runge-Kutta methods commute with this construction: the derivative of a step of `f` is a step of
the tangent system. All derivatives of all orders are therefore integrations of such systems.
"""

import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import Tracer

from difflinalg._core import ode_checks
from difflinalg._core.program import hoist

Leaves = list[Array]


@dataclass(frozen=True, eq=False)
class System:
    """A right-hand side, `field(y, t, p, q)`, on lists of arrays.

    With `keeps_values` the tangent system takes the slope of the state from `field` as it stands,
    and not from its derivative, where rules move coinciding values apart (`_core.spread`): a state
    moved for one derivative is not degenerate any more for the second.
    """

    field: Callable[[Leaves, Array, Leaves, Leaves], Leaves]
    keeps_values: bool = False

    @cached_property
    def _tangents(self) -> dict[tuple[bool, ...], "System"]:
        return {}

    def tangent(self, active: tuple[bool, ...]) -> "System":
        """The system of `y + y_dot` with parameters `p + p_dot`, `p_dot` for `active` ones only."""
        if active not in self._tangents:

            def field(y: Leaves, t: Array, p: Leaves, q: Leaves) -> Leaves:
                n, k = len(y) // 2, len(active)
                moving = [x for x, a in zip(p[:k], active, strict=True) if a]

                def inner(y: Leaves, moving: Leaves) -> Leaves:
                    rest = iter(moving)
                    chosen = zip(p[:k], active, strict=True)
                    return self.field(y, t, [next(rest) if a else x for x, a in chosen], q)

                value, dot = jax.jvp(inner, (y[:n], moving), (y[n:], p[k:]))
                if self.keeps_values:
                    value = self.field(y[:n], t, p[:k], q)
                return value + dot

            self._tangents[active] = System(field, self.keeps_values)
        return self._tangents[active]


def is_inexact(x: Any) -> bool:
    """Whether a value is floating or complex, that is, has a derivative."""
    return jnp.issubdtype(jax.typeof(x).dtype, jnp.inexact)


def convert(
    name: str,
    func: Callable,
    y: Leaves,
    treedef: Any,
    t: Array,
    args: tuple,
    time_first: bool = False,
) -> tuple[System, Leaves, Leaves]:
    """The system of `func(y, t, *args)`, or of `func(t, y, *args)`, its parameters `p` and `q`.

    What `func` closes over becomes a parameter. The conversion of a plain function is kept, so
    that a second call finds the compiled programs of the first.
    """
    leaves, args_treedef = jax.tree.flatten(args)
    leaves = [ode_checks.as_argument(name, leaf) for leaf in leaves]
    avals = tuple((jnp.shape(x), jax.typeof(x)) for x in (*y, t, *leaves))
    closure = getattr(func, "__closure__", None) or ()
    try:
        key = (func, tuple(id(cell.cell_contents) for cell in closure))
        hash(key)
    except (TypeError, ValueError):
        key = None
    if key is None or not isinstance(func, types.FunctionType):
        return _trace(name, func, y, treedef, t, leaves, args_treedef, time_first)[0]
    cache = _cache(key, name, avals, treedef, args_treedef, len(y))
    if not cache:
        converted, keep = _trace(name, func, y, treedef, t, leaves, args_treedef, time_first)
        if keep is None:
            return converted
        cache.append((converted[0], keep, [cell.cell_contents for cell in closure]))
    system, consts, _ = cache[0]
    return system, *_split([*leaves, *consts])


@lru_cache(maxsize=512)
def _cache(*key: Any) -> list:
    """A place for what belongs to `key`, which the caller fills."""
    del key
    return []


def _split(leaves: list) -> tuple[Leaves, Leaves]:
    inexact = [x for x in leaves if is_inexact(x)]
    return inexact, [x for x in leaves if not is_inexact(x)]


def flat_call(
    func: Callable, y: Leaves, treedef: Any, t: Array, args: tuple, time_first: bool
) -> Any:
    """Call a user's function of state, time and arguments."""
    state = jax.tree.unflatten(treedef, y)
    return func(t, state, *args) if time_first else func(state, t, *args)


def _trace(
    name: str,
    func: Callable,
    y: Leaves,
    treedef: Any,
    t: Array,
    leaves: list,
    args_treedef: Any,
    time_first: bool,
) -> tuple[tuple[System, Leaves, Leaves], list | None]:
    """The converted function, and its constants if none of them is traced."""

    def flat(y: Leaves, t: Array, leaves: list) -> Leaves:
        args = jax.tree.unflatten(args_treedef, leaves)
        return ode_checks.match_field(
            name, flat_call(func, y, treedef, t, args, time_first), y, treedef
        )

    program, consts = hoist(flat, y, t, leaves)
    inexact = [is_inexact(x) for x in (*leaves, *consts)]
    n_leaves = len(leaves)

    def field(y: Leaves, t: Array, p: Leaves, q: Leaves) -> Leaves:
        p_iter, q_iter = iter(p), iter(q)
        merged = [next(p_iter) if differentiable else next(q_iter) for differentiable in inexact]
        return program(merged[n_leaves:], y, t, merged[:n_leaves])

    traced = any(isinstance(x, Tracer) for x in consts)
    system = System(field, program.has_operations)
    return (system, *_split([*leaves, *consts])), None if traced else consts
