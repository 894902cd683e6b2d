"""Functions of the user as values: a traced program that is hashable, and what it closed over.

A rule must see every traced value that a function uses, so what a function closes over is taken
out of it (`hoist`). What is left is compared by structure: the same code traced twice is equal,
and what is compiled for it is found again.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

from difflinalg._core.operation import is_operation


class Program:
    """A function of `(consts, *arguments)` on pytrees of arrays, equal to its like."""

    def __init__(self, closed: ClosedJaxpr, out_tree: Any):
        self.jaxpr = closed.jaxpr
        self.out_avals = closed.out_avals
        self.out_tree = out_tree
        self._hash = hash((_outline(closed.jaxpr), out_tree))

    def __call__(self, consts: list[Any], *arguments: Any) -> Any:
        """The outputs."""
        run = jaxpr_as_fun(ClosedJaxpr(self.jaxpr, consts))
        return jax.tree.unflatten(self.out_tree, run(*jax.tree.leaves(arguments)))

    @cached_property
    def has_operations(self) -> bool:
        """Whether it uses an `Operation`, whose value a derivative may move (`_core.spread`)."""
        return _has_operations(self.jaxpr)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Program)
            and self._hash == other._hash
            and self.out_tree == other.out_tree
            and _same_jaxpr(self.jaxpr, other.jaxpr)
        )


def hoist(f: Callable[..., Any], *arguments: Any) -> tuple[Program, list[Any]]:
    """The program of a function of pytrees, and the arrays that the function closes over.

    Args:
        f: the function.
        arguments: what it is called with, or their shapes and dtypes; the program takes arguments
            like them.
    """
    closed, out = jax.make_jaxpr(f, return_shape=True)(*arguments)
    consts = [c if jnp.issubdtype(c.dtype, jax.dtypes.extended) else jnp.asarray(c)
              for c in closed.consts]  # fmt: skip
    return Program(closed, jax.tree.structure(out)), consts


def _has_operations(jaxpr: Jaxpr) -> bool:
    return any(
        is_operation(equation.primitive) or any(map(_has_operations, _inner(equation.params)))
        for equation in jaxpr.eqns
    )


def _inner(value: Any) -> Iterator[Jaxpr]:
    """The programs among the parameters of an equation."""
    if isinstance(value, ClosedJaxpr):
        yield value.jaxpr
    elif isinstance(value, Jaxpr):
        yield value
    elif isinstance(value, (dict, tuple, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _inner(part)


def _outline(jaxpr: Jaxpr) -> tuple[Any, ...]:
    """What is quick to compare: the shapes at both ends and the names of the operations."""
    ends = tuple(str(v.aval) for v in (*jaxpr.constvars, *jaxpr.invars, *jaxpr.outvars))
    return (ends, tuple(equation.primitive.name for equation in jaxpr.eqns))


def _same_jaxpr(a: Jaxpr, b: Jaxpr) -> bool:
    """Whether two programs are the same up to the names of their variables."""
    if _outline(a) != _outline(b):
        return False
    names = dict(zip((*a.constvars, *a.invars), (*b.constvars, *b.invars), strict=True))
    if any(x.aval != y.aval for x, y in names.items()):
        return False

    def same_atoms(left, right) -> bool:
        return len(left) == len(right) and all(map(same_atom, left, right))

    def same_atom(x, y) -> bool:
        if isinstance(x, Literal) or isinstance(y, Literal):
            both = isinstance(x, Literal) and isinstance(y, Literal)
            return both and x.aval == y.aval and _same_value(x.val, y.val)
        return names.get(x) is y

    for one, two in zip(a.eqns, b.eqns, strict=True):
        if one.primitive is not two.primitive or not same_atoms(one.invars, two.invars):
            return False
        if not _same_value(one.params, two.params) or one.effects or two.effects:
            return False
        if [v.aval for v in one.outvars] != [v.aval for v in two.outvars]:
            return False
        names.update(zip(one.outvars, two.outvars, strict=True))
    return same_atoms(a.outvars, b.outvars)


def _same_value(x: Any, y: Any) -> bool:
    """Whether two parameters are surely the same; in doubt they are not."""
    if x is y:
        return True
    if type(x) is not type(y):
        return False
    if isinstance(x, ClosedJaxpr):
        consts = len(x.consts) == len(y.consts) and all(map(_same_value, x.consts, y.consts))
        return consts and _same_jaxpr(x.jaxpr, y.jaxpr)
    if isinstance(x, Jaxpr):
        return _same_jaxpr(x, y)
    if isinstance(x, dict):
        return x.keys() == y.keys() and all(_same_value(x[key], y[key]) for key in x)
    if isinstance(x, (tuple, list)):
        return len(x) == len(y) and all(map(_same_value, x, y))
    if isinstance(x, (np.ndarray, np.generic)):
        return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
    if isinstance(x, jax.Array):
        return False
    try:
        return bool(x == y) and hash(x) == hash(y)
    except (TypeError, ValueError):
        return False
