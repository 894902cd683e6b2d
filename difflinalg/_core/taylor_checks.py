"""Error texts of Taylor mode."""

from typing import Any, NoReturn

import jax
import jax.numpy as jnp


def refuse_operation(name: str) -> NoReturn:
    """Refuse an operation without a rule."""
    msg = (
        f"jet has no rule for the operation '{name}' with an operand that depends on the expansion "
        "parameter; rewrite the function without it, or apply lax.stop_gradient to its operand if "
        "the dependence does not matter."
    )
    raise NotImplementedError(msg)


def refuse_case(name: str, what: str) -> NoReturn:
    """Refuse a case of an operation whose rule does not cover it."""
    msg = f"jet has a rule for the operation '{name}', but not for {what}."
    raise NotImplementedError(msg)


def check_order(name: str, order: Any) -> int:
    """A static order of differentiation, at least 0."""
    try:
        found = order.__index__()
    except (AttributeError, TypeError) as error:
        msg = f"{name} needs a static integer as order, got {type(order).__name__}."
        raise TypeError(msg) from error
    if found < 0:
        msg = f"{name} needs an order of at least 0, got {found}."
        raise ValueError(msg)
    return found


def split_series(primals: Any, series: Any) -> tuple[list, Any, list, int]:
    """The leaves of `primals`, their tree, the terms of each, and how many terms there are.

    A leaf of `primals` has the list of its terms in `series`, or None if it is constant.
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(series, (tuple, list)):
        msg = (
            "jet takes tuples or lists of the arguments and of their series, got "
            f"{type(primals).__name__} and {type(series).__name__}."
        )
        raise TypeError(msg)
    if len(primals) != len(series):
        msg = f"jet needs a series for each argument, got {len(series)} for {len(primals)}."
        raise ValueError(msg)
    leaves, treedef = jax.tree.flatten(tuple(primals))
    try:
        terms = treedef.flatten_up_to(tuple(series))
    except ValueError as error:
        msg = (
            "jet needs series of the structure of primals, with a list of terms, or None for a "
            f"constant, in the place of each array; {error}"
        )
        raise ValueError(msg) from error
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    lengths = set()
    for leaf, own in zip(leaves, terms, strict=True):
        if own is None:
            continue
        if not isinstance(own, (tuple, list)):
            msg = f"jet needs a list of terms for each array, got {type(own).__name__}."
            raise TypeError(msg)
        lengths.add(len(own))
        for term in own:
            if jnp.shape(term) != leaf.shape:
                msg = (
                    f"jet needs terms of the shape of their primal, {leaf.shape}, got "
                    f"{jnp.shape(term)}."
                )
                raise ValueError(msg)
            if jnp.iscomplexobj(term) and not jnp.iscomplexobj(leaf):
                msg = f"jet got a complex term for a primal of dtype {leaf.dtype}; make it complex."
                raise TypeError(msg)
    if len(lengths) > 1:
        msg = f"jet needs as many terms in each series, got {sorted(lengths)}."
        raise ValueError(msg)
    return leaves, treedef, terms, lengths.pop() if lengths else 0


def check_direction(x: Any, direction: Any) -> Any:
    """The direction of `derivatives`, which only a scalar can do without."""
    leaves, treedef = jax.tree.flatten(x)
    if direction is None:
        if len(leaves) != 1 or jnp.shape(leaves[0]) != ():
            shapes = [jnp.shape(leaf) for leaf in leaves]
            msg = f"derivatives needs a direction where x is not a scalar, got shapes {shapes}."
            raise ValueError(msg)
        return jax.tree.unflatten(treedef, [1.0])
    found = jax.tree.structure(direction)
    if found != treedef or any(
        jnp.shape(d) != jnp.shape(leaf)
        for d, leaf in zip(jax.tree.leaves(direction), leaves, strict=True)
    ):
        msg = (
            f"derivatives needs a direction of the structure and shapes of x, got {found} for "
            f"{treedef} and shapes {[jnp.shape(d) for d in jax.tree.leaves(direction)]} for "
            f"{[jnp.shape(leaf) for leaf in leaves]}."
        )
        raise ValueError(msg)
    for d, leaf in zip(jax.tree.leaves(direction), leaves, strict=True):
        if jnp.iscomplexobj(d) and not jnp.iscomplexobj(leaf):
            msg = f"derivatives got a complex direction for x of dtype {leaf.dtype}."
            raise TypeError(msg)
    return direction
