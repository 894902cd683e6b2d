"""The invertible residual block `y = x + g(x)` with a contraction g.

With the Lipschitz constant L < 1 of g the inverse is the fixed point of `x <- y - g(x)`. The
residual `r = x + g(x) - y` of one iterate is the step to the next, so `|r'| <= L |r|`: a residual
that falls more slowly shows that the bound is not one.
"""

import math
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import loop_checks, tolerances
from difflinalg._memory.invertible import Invertible

Tree = Any


class _State(NamedTuple):
    x: Tree
    residual: Tree
    norm: Array
    last_norm: Array
    noise: Array  # of one evaluation of the residual
    rounds: Array
    valid: Array


def residual_block(g: Callable[[Tree, Tree], Tree], lipschitz: float) -> Invertible:
    """The invertible residual block `y = c + g(c, x)` on the carry `c`.

    Args:
        g: `(c, x) -> change of c`, a pytree like c; `x` holds the parameters of the layer.
        lipschitz: a bound below 1 of the Lipschitz constant of g in the Euclidean norm, for
            example the product of the spectral norms of its layers.

    Returns:
        The step and its inverse, for `reversible_scan`. The inverse is NaN where the iteration
        shows that `lipschitz` is not a bound.

    Raises:
        ValueError: if `lipschitz` is not in [0, 1).

    Derivatives:
        The step has those of `g`; the inverse, by the implicit function theorem, any order of
        both modes. Reverse mode over reverse mode is an error for an inverse in a `lax.scan`.

    Cost:
        One call of `g` for the step; for the inverse as many as rounding needs, at most
        `log(eps (1 - L)) / log(L)`.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg import memory
        >>> step, inverse = memory.residual_block(lambda c, x: 0.5 * jnp.sin(x * c), 0.5)
        >>> c, _ = step(jnp.array([1.0, 2.0]), 1.0)
        >>> print(inverse(c, 1.0).round(4))
        [1. 2.]

    References:
        Behrmann, Grathwohl, Chen, Duvenaud and Jacobsen, "Invertible residual networks" (2019),
        algorithm 1 and lemma 2; arXiv:1811.00995.
    """
    loop_checks.check_lipschitz(lipschitz)

    def step(carry: Tree, x: Tree) -> tuple[Tree, None]:
        return jax.tree.map(jnp.add, carry, g(carry, x)), None

    def inverse(carry: Tree, x: Tree) -> Tree:
        y = jax.tree.map(jnp.asarray, carry)

        def residual(c: Tree) -> Tree:
            return jax.tree.map(lambda a, b, c: a + b - c, c, g(c, x), y)

        def tangent_solve(linear: Callable[[Tree], Tree], rhs: Tree) -> Tree:
            def solve(matvec: Callable[[Tree], Tree], b: Tree) -> Tree:
                return _contract(
                    lambda v: jax.tree.map(jnp.subtract, matvec(v), b), b, lipschitz, b
                )

            return lax.custom_linear_solve(linear, rhs, solve, solve)

        return lax.custom_root(
            residual, y, lambda f, guess: _contract(f, guess, lipschitz, y), tangent_solve
        )

    return Invertible(step, inverse)


def _norm(tree: Tree) -> Array:
    squares = [jnp.sum(jnp.square(jnp.abs(leaf))) for leaf in jax.tree.leaves(tree)]
    return jnp.sqrt(reduce(jnp.add, squares))


def _contract(residual: Callable[[Tree], Tree], guess: Tree, bound: float, y: Tree) -> Tree:
    """The root of `residual` by `x <- x - residual(x)`; NaN if that does not contract as said.

    The noise of each evaluation adds up to `noise / (1 - bound)`, below which nothing is gained.
    """
    dtype = jnp.result_type(*jax.tree.leaves(guess))
    eps, size = tolerances.epsilon(dtype), sum(leaf.size for leaf in jax.tree.leaves(guess))
    rtol, size_y = tolerances.contraction_rtol(dtype, size), _norm(y)
    limit = 8 + math.ceil(math.log(eps * (1.0 - bound)) / math.log(bound)) if bound else 8

    def body(state: _State) -> _State:
        x = jax.tree.map(jnp.subtract, state.x, state.residual)
        new = residual(x)
        norm, noise = _norm(new), rtol * (_norm(x) + size_y)
        valid = norm <= bound * state.norm + noise
        return _State(x, new, norm, state.norm, noise, state.rounds + 1, valid)

    def attained(state: _State) -> Array:
        return state.norm <= state.noise / (1.0 - bound)

    def unfinished(state: _State) -> Array:
        stagnates = attained(state) & (state.norm >= state.last_norm)
        return (state.norm > state.noise) & ~stagnates & (state.rounds < limit) & state.valid

    first = residual(guess)
    norm, noise = _norm(first), 2.0 * rtol * size_y
    zero = jnp.zeros((), jnp.int32)
    start = _State(guess, first, norm, jnp.full_like(norm, jnp.inf), noise, zero, jnp.array(True))
    last = lax.while_loop(unfinished, body, start)
    good = last.valid & attained(last)
    # The last residual is at hand: one more step costs no call of g.
    return jax.tree.map(lambda x, r: jnp.where(good, x - r, jnp.nan), last.x, last.residual)
