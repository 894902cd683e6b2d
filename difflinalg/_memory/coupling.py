"""Coupling layers: one half of the carry changes by what the other half says.

Additive (RevNet):  y1 = x1 + f(x2),                    y2 = x2 + g(y1)
Affine (RealNVP):   y1 = x1 exp(s1(x2)) + t1(x2),       y2 = x2 exp(s2(y1)) + t2(y1)

Both are undone from the second line to the first, without inverting f, g, s or t.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from difflinalg._core import loop_checks
from difflinalg._memory.invertible import Invertible

Tree = Any


def additive_coupling(
    f: Callable[[Tree, Tree], Tree], g: Callable[[Tree, Tree], Tree]
) -> Invertible:
    """The additive coupling `y1 = x1 + f(x2, x)`, `y2 = x2 + g(y1, x)` on the carry `(x1, x2)`.

    Args:
        f: `(x2, x) -> change of x1`; `x` holds the parameters of the layer.
        g: `(y1, x) -> change of x2`.

    Returns:
        The step and its inverse, for `reversible_scan`.

    Derivatives:
        Those of `f` and `g`.

    Cost:
        One call of `f` and of `g`, each way. Rounding alone is lost on the way back; it grows
        with the Lipschitz constants of `f` and `g`.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg import memory
        >>> step, inverse = memory.additive_coupling(lambda c, x: x * c, lambda c, x: c**2)
        >>> carry, _ = step((1.0, 2.0), 3.0)
        >>> print([float(c) for c in carry], [float(c) for c in inverse(carry, 3.0)])
        [7.0, 51.0] [1.0, 2.0]

    References:
        Gomez, Ren, Urtasun and Grosse, "The reversible residual network" (2017), equations 6
        and 7; arXiv:1707.04585.
    """

    def step(carry: Tree, x: Tree) -> tuple[Tree, None]:
        x1, x2 = carry
        y1 = jax.tree.map(jnp.add, x1, f(x2, x))
        return (y1, jax.tree.map(jnp.add, x2, g(y1, x))), None

    def inverse(carry: Tree, x: Tree) -> Tree:
        y1, y2 = carry
        x2 = jax.tree.map(jnp.subtract, y2, g(y1, x))
        return jax.tree.map(jnp.subtract, y1, f(x2, x)), x2

    return Invertible(step, inverse)


def affine_coupling(
    f: Callable[[Tree, Tree], tuple[Tree, Tree]], g: Callable[[Tree, Tree], tuple[Tree, Tree]]
) -> Invertible:
    """The affine coupling `y1 = x1 exp(s) + t` with `s, t = f(x2, x)`, then `y2` with `g(y1, x)`.

    Args:
        f: `(x2, x) -> (s, t)`, the logarithm of the scale of x1 and its shift.
        g: `(y1, x) -> (s, t)` for x2.

    Returns:
        The step and its inverse on the carry `(x1, x2)`, for `reversible_scan`.

    Raises:
        TypeError: when called, if `f` or `g` does not return a pair.

    Derivatives:
        Those of `f` and `g`.

    Cost:
        One call of `f` and of `g`, each way. The error on the way back grows by `exp(-s)` in
        each layer; keep `s` bounded, for example with `tanh`.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg import memory
        >>> half = lambda c, x: (jnp.log(x), c)
        >>> step, inverse = memory.affine_coupling(half, half)
        >>> carry, _ = step((1.0, 3.0), 2.0)
        >>> print([round(float(c), 4) for c in inverse(carry, 2.0)])
        [1.0, 3.0]

    References:
        Dinh, Sohl-Dickstein and Bengio, "Density estimation using Real NVP" (2017), equations 7
        and 8; arXiv:1605.08803.
    """

    def pair(returned: Any) -> tuple[Tree, Tree]:
        loop_checks.check_pair("affine_coupling", returned, "(s, t)")
        return returned

    def forward(part: Tree, s: Tree, t: Tree) -> Tree:
        return jax.tree.map(lambda a, s, t: a * jnp.exp(s) + t, part, s, t)

    def back(part: Tree, s: Tree, t: Tree) -> Tree:
        return jax.tree.map(lambda a, s, t: (a - t) * jnp.exp(-s), part, s, t)

    def step(carry: Tree, x: Tree) -> tuple[Tree, None]:
        x1, x2 = carry
        y1 = forward(x1, *pair(f(x2, x)))
        return (y1, forward(x2, *pair(g(y1, x)))), None

    def inverse(carry: Tree, x: Tree) -> Tree:
        y1, y2 = carry
        x2 = back(y2, *pair(g(y1, x)))
        return back(y1, *pair(f(x2, x))), x2

    return Invertible(step, inverse)
