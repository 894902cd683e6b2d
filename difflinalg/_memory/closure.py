"""Functions of pytrees without closures, and their pullbacks with respect to real numbers.

A rule written by hand sees only its arguments. What the body of a loop closes over is therefore
turned into an argument: `hoist` traces the body and returns a function of the closed-over values.
In trees of cotangents, `None` stands for a leaf that has no derivative (integers, keys).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax import Array

Tree = Any
Pure = Callable[..., Tree]


def hoist(function: Callable[..., Tree], *examples: Tree) -> tuple[Pure, list[Array]]:
    """A pure function `pure(constants, *args)` and the constants that `function` closes over.

    Args:
        function: of pytrees.
        examples: arguments, or their shapes and dtypes; `pure` takes arguments like them.
    """
    leaves, tree = jax.tree.flatten(examples)
    closed, out = jax.make_jaxpr(
        lambda *flat: function(*jax.tree.unflatten(tree, flat)), return_shape=True
    )(*leaves)
    out_tree = jax.tree.structure(out)

    def pure(constants: list[Array], *args: Tree) -> Tree:
        run = jex.jaxpr_as_fun(jex.ClosedJaxpr(closed.jaxpr, constants))
        return jax.tree.unflatten(out_tree, run(*jax.tree.leaves(args)))

    return pure, [jnp.asarray(constant) for constant in closed.consts]


def shapes(tree: Tree) -> Tree:
    """Shapes and dtypes of the leaves."""
    return jax.eval_shape(lambda: tree)


def element(xs: Tree) -> Tree:
    """Shapes and dtypes of one element of `xs` along its first axis."""
    return jax.eval_shape(lambda tree: jax.tree.map(lambda leaf: leaf[0], tree), xs)


def strong_like(carry: Tree, returned: Tree) -> Tree:
    """The carry with the dtypes that a step returns, where its own are those of Python numbers."""
    if jax.tree.structure(returned) != jax.tree.structure(carry):
        return carry
    return jax.tree.map(
        lambda old, new: old.astype(new.dtype) if jax.typeof(old).weak_type else old,
        carry,
        returned,
    )


def is_inexact(leaf: Array) -> bool:
    """Whether a leaf has a derivative."""
    return jnp.issubdtype(leaf.dtype, jnp.inexact)


def inexact(tree: Tree) -> Tree:
    """The leaves that have a derivative; the others become `None`."""
    return jax.tree.map(lambda leaf: leaf if is_inexact(leaf) else None, tree)


def drop_float0(cotangents: Tree) -> Tree:
    """Cotangents as JAX hands them to a rule, without those of leaves that have no derivative."""
    return jax.tree.map(lambda ct: None if ct.dtype == jax.dtypes.float0 else ct, cotangents)


def zeros(tree: Tree) -> Tree:
    """Zero cotangents of the leaves that have a derivative."""
    return jax.tree.map(jnp.zeros_like, inexact(tree))


def add(left: Tree, right: Tree) -> Tree:
    """The sum of two trees of cotangents."""
    return jax.tree.map(jnp.add, left, right)


def pullback(function: Pure, *args: Tree) -> tuple[Tree, Callable[[Tree], tuple[tuple[Tree, ...]]]]:
    """The value of `function(*args)` and its pullback, a pytree that a rule can hold.

    The pullback takes the cotangent of `inexact(value)` and returns a tuple with one entry, the
    tuple of cotangents of `inexact(args)`.
    """

    def on_inexact(moving: Tree) -> tuple[Tree, Tree]:
        merged = jax.tree.map(
            lambda new, old: old if new is None else new,
            moving,
            args,
            is_leaf=lambda leaf: leaf is None,
        )
        value = function(*merged)
        return inexact(value), jax.tree.map(lambda v: None if is_inexact(v) else v, value)

    moving_value, pull, fixed_value = jax.vjp(on_inexact, inexact(args), has_aux=True)
    value = jax.tree.map(
        lambda new, old: old if new is None else new,
        moving_value,
        fixed_value,
        is_leaf=lambda leaf: leaf is None,
    )
    return value, pull
