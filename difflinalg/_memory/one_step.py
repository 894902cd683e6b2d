"""Algebraically reversible integrators of `dy/dt = f(t, y)`.

Reversible Heun, order 2, with f' = f(t + h, yh'):

    yh' = 2 y - yh + h f,      y' = y + h (f + f') / 2

McCallum and Foster, around the increment `psi(t, y, h)` of any one-step method, of its order:

    y' = lam y + (1 - lam) z + psi(t, z, h),      z' = z - psi(t + h, y', -h)
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from difflinalg._core import loop_checks
from difflinalg._memory.invertible import Invertible
from difflinalg._memory.splitting import Field, step_add

Tree = Any


def reversible_heun_start(f: Field, t: ArrayLike, y: Tree) -> Tree:
    """The carry with which `reversible_heun` starts: `(y, y, f(t, y))`.

    Args:
        f: `(t, y) -> dy/dt`.
        t: the initial time.
        y: the initial value, a pytree.

    Returns:
        The carry `(y, yh, f(t, yh))`.

    Derivatives:
        Those of `f`.

    Cost:
        One call of `f`.

    Example:
        >>> from difflinalg import memory
        >>> print(memory.reversible_heun_start(lambda t, y: -y, 0.0, 2.0))
        (2.0, 2.0, -2.0)

    References:
        Kidger, Foster, Li and Lyons, "Efficient and accurate gradients for neural SDEs" (2021),
        algorithm 1; arXiv:2105.13493.
    """
    return y, y, f(jnp.asarray(t), y)


def reversible_heun(f: Field) -> Invertible:
    """The reversible Heun method of order 2.

    Args:
        f: `(t, y) -> dy/dt`, a pytree like y; may close over traced values.

    Returns:
        The step and its inverse, for `reversible_scan`, with `x = (t, h)`. The carry comes from
        `reversible_heun_start`; its first entry is the solution.

    Derivatives:
        Those of `f`; `t` and `h` included.

    Cost:
        One call of `f`, each way. Stable on a segment of the imaginary axis alone: for
        dissipative problems use `mccallum_foster`.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg import memory
        >>> f = lambda t, y: 1j * y
        >>> start = memory.reversible_heun_start(f, 0.0, jnp.array(1.0 + 0.0j))
        >>> xs = (jnp.arange(100) * 0.01, jnp.full(100, 0.01))
        >>> (y, _, _), _ = memory.reversible_scan(*memory.reversible_heun(f), start, xs)
        >>> print(abs(y - jnp.exp(1.0j)) < 1e-4)
        True

    References:
        Kidger, Foster, Li and Lyons, "Efficient and accurate gradients for neural SDEs" (2021),
        algorithms 1 and 2; arXiv:2105.13493.
    """

    def step(carry: Tree, x: Tree) -> tuple[Tree, None]:
        (y, yh, slope), (t, h) = carry, x
        yh_next = step_add(_reflect(y, yh), h, slope)
        slope_next = f(t + h, yh_next)
        return (_average(y, h, slope, slope_next), yh_next, slope_next), None

    def inverse(carry: Tree, x: Tree) -> Tree:
        (y, yh, slope), (t, h) = carry, x
        yh_last = step_add(_reflect(y, yh), -h, slope)
        slope_last = f(t, yh_last)
        return _average(y, -h, slope, slope_last), yh_last, slope_last

    return Invertible(step, inverse)


def _reflect(y: Tree, yh: Tree) -> Tree:
    return jax.tree.map(lambda a, b: 2 * a - b, y, yh)


def _average(y: Tree, h: ArrayLike, slope: Tree, other: Tree) -> Tree:
    return step_add(y, 0.5 * h, jax.tree.map(jnp.add, slope, other))


def mccallum_foster(
    increment: Callable[[ArrayLike, Tree, ArrayLike], Tree], coupling: float = 0.999
) -> Invertible:
    """Any one-step method, made reversible.

    Args:
        increment: `(t, y, h) -> psi` with the step `y(t + h) ~ y + psi` of the method; called
            with negative `h` too. May close over traced values.
        coupling: `lam` in (0, 1]; less than 1 makes the pair stable where the method is.

    Returns:
        The step and its inverse on the carry `(y, z)`, which starts as `(y0, y0)`, with
        `x = (t, h)`, for `reversible_scan`. The first entry is the solution.

    Raises:
        ValueError: if `coupling` is not in (0, 1].

    Derivatives:
        Those of `increment`: the gradient is that of the discrete steps.

    Cost:
        Two calls of `increment`, each way. The error on the way back grows as `lam^-N`.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg import memory
        >>> midpoint = lambda t, y, h: h * -(y + 0.5 * h * -y)
        >>> xs = (jnp.arange(100) * 0.01, jnp.full(100, 0.01))
        >>> start = (jnp.array(1.0), jnp.array(1.0))
        >>> (y, _), _ = memory.reversible_scan(*memory.mccallum_foster(midpoint), start, xs)
        >>> print(abs(y - jnp.exp(-1.0)) < 1e-4)
        True

    References:
        McCallum and Foster, "Efficient, accurate and stable gradients for neural ODEs" (2024),
        equations 5 and 6; arXiv:2410.11648.
    """
    loop_checks.check_coupling(coupling)

    def step(carry: Tree, x: Tree) -> tuple[Tree, None]:
        (y, z), (t, h) = carry, x
        forward = increment(t, z, h)
        y = jax.tree.map(lambda a, b, d: coupling * a + (1 - coupling) * b + d, y, z, forward)
        return (y, jax.tree.map(jnp.subtract, z, increment(t + h, y, -h))), None

    def inverse(carry: Tree, x: Tree) -> Tree:
        (y, z), (t, h) = carry, x
        z = jax.tree.map(jnp.add, z, increment(t + h, y, -h))
        forward = increment(t, z, h)
        return jax.tree.map(lambda a, b, d: (a - d - b) / coupling + b, y, z, forward), z

    return Invertible(step, inverse)
