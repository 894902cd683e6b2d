"""Symplectic splittings of `q' = velocity(t, p)`, `p' = force(t, q)`: kicks and drifts.

    kick:   p <- p + b h force(t_q, q)
    drift:  q <- q + a h velocity(t_p, p)

Each is undone by subtracting the same increment, so any sequence of them is invertible. The time
`t_q` of q advances with the drifts, the time `t_p` of p with the kicks.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from difflinalg._core import loop_checks
from difflinalg._memory.invertible import Invertible, chain

Tree = Any
Field = Callable[[Array, Tree], Tree]
YOSHIDA = 1.0 / (2.0 - 2.0 ** (1.0 / 3.0))  # w1 of the fourth-order composition; w0 = 1 - 2 w1


def step_add(y: Tree, h: ArrayLike, slope: Tree) -> Tree:
    """`y + h slope` in the dtypes of `y`."""

    def one(a: Array, b: Array) -> Array:
        a = jnp.asarray(a)
        real = jnp.finfo(a.dtype).dtype
        return a + (jnp.asarray(h).astype(real) * b).astype(a.dtype)

    return jax.tree.map(one, y, slope)


def kick(force: Field, weight: float = 1.0, at: float = 0.0) -> Invertible:
    """The step `p <- p + weight h force(t + at h, q)` on the carry `(q, p)` with `x = (t, h)`.

    Args:
        force: `(t, q) -> dp/dt`, a pytree like p; may close over traced values.
        weight: the share of the step `h`.
        at: the time at which the force is taken, as a share of the step.

    Returns:
        The step and its inverse, for `chain(..., shared=True)` and `reversible_scan`.

    Derivatives:
        Those of `force`; `t` and `h` included.

    Cost:
        One call of `force`, each way.

    Example:
        >>> from difflinalg import memory
        >>> step, inverse = memory.kick(lambda t, q: -q)
        >>> print(step((1.0, 0.0), (0.0, 0.5))[0][1])
        -0.5

    References:
        Hairer, Lubich and Wanner, "Geometric numerical integration" (2006), equation II.5.2.
    """

    def step(carry: Tree, x: Tree) -> tuple[Tree, None]:
        (q, p), (t, h) = carry, x
        return (q, step_add(p, weight * h, force(t + at * h, q))), None

    def inverse(carry: Tree, x: Tree) -> Tree:
        (q, p), (t, h) = carry, x
        return q, step_add(p, -weight * h, force(t + at * h, q))

    return Invertible(step, inverse)


def drift(velocity: Field | None = None, weight: float = 1.0, at: float = 0.0) -> Invertible:
    """The step `q <- q + weight h velocity(t + at h, p)` on the carry `(q, p)` with `x = (t, h)`.

    Args:
        velocity: `(t, p) -> dq/dt`, a pytree like q; p itself by default.
        weight: the share of the step `h`.
        at: the time at which the velocity is taken, as a share of the step.

    Returns:
        The step and its inverse, for `chain(..., shared=True)` and `reversible_scan`.

    Derivatives:
        Those of `velocity`; `t` and `h` included.

    Cost:
        One call of `velocity`, each way.

    Example:
        >>> from difflinalg import memory
        >>> step, inverse = memory.drift()
        >>> print(step((1.0, 2.0), (0.0, 0.5))[0][0])
        2.0

    References:
        Hairer, Lubich and Wanner, "Geometric numerical integration" (2006), equation II.5.2.
    """
    speed = velocity or (lambda _, p: p)

    def step(carry: Tree, x: Tree) -> tuple[Tree, None]:
        (q, p), (t, h) = carry, x
        return (step_add(q, weight * h, speed(t + at * h, p)), p), None

    def inverse(carry: Tree, x: Tree) -> Tree:
        (q, p), (t, h) = carry, x
        return step_add(q, -weight * h, speed(t + at * h, p)), p

    return Invertible(step, inverse)


def splitting(
    force: Field,
    velocity: Field | None = None,
    *,
    kicks: Sequence[float],
    drifts: Sequence[float],
) -> Invertible:
    """A splitting method: a kick, then drifts and kicks by turns.

    Args:
        force: `(t, q) -> dp/dt`.
        velocity: `(t, p) -> dq/dt`; p itself by default.
        kicks: the shares of the step of the kicks, which sum to 1; zeros are left out.
        drifts: those of the drifts, one fewer.

    Returns:
        The step and its inverse on the carry `(q, p)` with `x = (t, h)`, for `reversible_scan`.

    Raises:
        ValueError: if `drifts` does not have one entry fewer than `kicks`, or if one of them does
            not sum to 1.

    Derivatives:
        Those of `force` and `velocity`; `t` and `h` included.

    Cost:
        One call of `force` for each kick and of `velocity` for each drift.

    Example:
        >>> from difflinalg import memory
        >>> step, _ = memory.splitting(lambda t, q: -q, kicks=(0.5, 0.5), drifts=(1.0,))
        >>> print(step((1.0, 0.0), (0.0, 1.0))[0][1])
        -0.75

    References:
        Hairer, Lubich and Wanner, "Geometric numerical integration" (2006), equation II.5.6.
    """
    loop_checks.check_splitting(kicks, drifts)
    members, t_q, t_p = [], 0.0, 0.0
    for i, b in enumerate(kicks):
        if b:
            members.append(kick(force, b, t_q))
        t_p += b
        if i < len(drifts) and drifts[i]:
            members.append(drift(velocity, drifts[i], t_p))
            t_q += drifts[i]
    return chain(*members, shared=True)


def leapfrog(force: Field, velocity: Field | None = None) -> Invertible:
    """The Stoermer-Verlet method of order 2: half a kick, a drift, half a kick.

    Args:
        force: `(t, q) -> dp/dt`.
        velocity: `(t, p) -> dq/dt`; p itself by default.

    Returns:
        The step and its inverse on the carry `(q, p)` with `x = (t, h)`, for `reversible_scan`.

    Derivatives:
        Those of `force` and `velocity`; `t` and `h` included.

    Cost:
        Two calls of `force` and one of `velocity`, each way.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg import memory
        >>> times = (jnp.arange(100) * 0.1, jnp.full(100, 0.1))
        >>> start = (jnp.array(1.0), jnp.array(0.0))
        >>> (q, p), _ = memory.reversible_scan(*memory.leapfrog(lambda t, q: -q), start, times)
        >>> print(abs(q**2 + p**2 - 1.0) < 3e-3)
        True

    References:
        Hairer, Lubich and Wanner, "Geometric numerical integration" (2006), equation I.3.4.
    """
    return splitting(force, velocity, kicks=(0.5, 0.5), drifts=(1.0,))


def yoshida4(force: Field, velocity: Field | None = None) -> Invertible:
    """The method of order 4 of Forest, Ruth and Yoshida: three leapfrog steps.

    Args:
        force: `(t, q) -> dp/dt`.
        velocity: `(t, p) -> dq/dt`; p itself by default.

    Returns:
        The step and its inverse on the carry `(q, p)` with `x = (t, h)`, for `reversible_scan`.

    Derivatives:
        Those of `force` and `velocity`; `t` and `h` included.

    Cost:
        Four calls of `force` and three of `velocity`, each way.

    Example:
        >>> from difflinalg import memory
        >>> len(memory.yoshida4(lambda t, q: -q).step.members)
        7

    References:
        Yoshida, "Construction of higher order symplectic integrators" (1990), equation 2.11.
    """
    w1, w0 = YOSHIDA, 1.0 - 2.0 * YOSHIDA
    return splitting(
        force, velocity, kicks=(w1 / 2, (w0 + w1) / 2, (w0 + w1) / 2, w1 / 2), drifts=(w1, w0, w1)
    )
