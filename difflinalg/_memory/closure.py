"""Programs (`_core.program`) of pytrees, and their pullbacks with respect to real numbers.

In trees of cotangents, `None` stands for a leaf that has no derivative (integers, keys).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from difflinalg._core import loop_checks
from difflinalg._core.linear_operation import LinearOperation
from difflinalg._core.program import Program

Tree = Any
Pure = Callable[..., Tree]


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


def keep_value(function: Program) -> Pure:
    """`function`, whose value stays what it is where a derivative would move it.

    A rule that moves coinciding values apart (`_core.spread`) moves them in the value as well, the
    further the higher the order of differentiation. A carry that is computed by one pass and
    differentiated by another one, one order higher, would be moved too little to be right and too
    much to be degenerate. So the passes that compute carries keep their values, and move the
    tangents alone.
    """
    if not function.has_operations:
        return function

    @jax.custom_jvp
    def kept(*args: Tree) -> Tree:
        return function(*args)

    @kept.defjvp
    def _(primals: tuple[Tree, ...], tangents: tuple[Tree, ...]) -> tuple[Tree, Tree]:
        return kept(*primals), jax.jvp(function, primals, tangents)[1]

    return kept


def forward_only(tree: Tree, name: str) -> Tree:
    """The cotangents that the backward pass of the loop `name` returns, for forward mode alone."""
    return jax.tree.map(lambda leaf: _forward_only(leaf, name), tree)


def _identity(leaf: Array, name: str) -> Array:
    del name
    return leaf


_forward_only = LinearOperation(_identity, statics=1)


@_forward_only.deftranspose
def _forward_only_transpose(name: str, cotangent: Array) -> Array:
    del cotangent
    loop_checks.refuse_second_reverse(name)
