"""Gradient descent with momentum in exact arithmetic, so that it can be run backwards.

    v' = g v - (1 - g) grad L(w),        w' = w + a v'
    w  = w' - a v',                      v = (v' + (1 - g) grad L(w)) / g

Dividing by g < 1 amplifies rounding; each step forwards loses log2(1 / g) bits of v. Here w and v
are multiples of `2^-b`, held exactly in floats, and the momentum is a fraction `g = n / d` with
`d = 2^15`. The bits that the product drops go to a buffer i, a long integer for each parameter:

    i <- i d + (c mod d),   c <- c div d,   c <- c n + (i mod n),   i <- i div n

The inverse is the same with n and d exchanged. For derivatives rounding is the identity. The
product is that of real numbers up to d units of the grid, `2^-25`.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from difflinalg._core import checks, loop_checks
from difflinalg._core.known import known
from difflinalg._memory.invertible import Invertible

Tree = Any
FRACTION_BITS = 40  # of the 53 of float64: values below 4096
DENOMINATOR = 2**15  # with limbs of 16 bits every product fits into 32
LIMB_BITS = 16


class MomentumState(NamedTuple):
    """Position and velocity on the grid, and the bits that the velocity has lost."""

    position: Tree
    velocity: Tree
    buffer: Tree  # for each leaf, shape (limbs, *leaf.shape), unsigned integers, lowest limb first


class MomentumInput(NamedTuple):
    """What one step needs: `w' = w + rate v'`, `v' = decay v - (1 - decay) gradient(w, data)`."""

    rate: ArrayLike
    decay: ArrayLike
    data: Tree = None


def momentum_start(position: Tree, steps: int, least_decay: float = 0.5) -> MomentumState:
    """The state at rest from which `momentum` starts, with room for the bits of `steps` steps.

    Args:
        position: the parameters, a pytree of float64; rounded to the grid.
        steps: how many steps the buffer must last.
        least_decay: the smallest momentum coefficient; a step costs `log2(1 / decay)` bits.

    Returns:
        The `MomentumState`.

    Raises:
        TypeError: if a leaf is not float64.
        ValueError: if `steps` is not positive or `least_decay` not in (0, 1].

    Derivatives:
        Rounding counts as the identity.

    Cost:
        `steps log2(1 / least_decay) / 8` bytes for each parameter, twice.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg import memory
        >>> memory.momentum_start(jnp.zeros(3), 1000, 0.9).buffer.shape
        (12, 3)

    References:
        Maclaurin, Duvenaud and Adams, "Gradient-based hyperparameter optimization through
        reversible learning" (2015), section 3.1; arXiv:1502.03492.
    """
    checks.check_positive("momentum_start", "steps", steps)
    loop_checks.check_decay(least_decay)
    bits = steps * math.log2(1.0 / least_decay)
    limbs = 1 + math.ceil((bits + 15.0) / LIMB_BITS)  # 15 bits pass through in the middle of a step
    position = jax.tree.map(partial(loop_checks.as_exact_leaf, "momentum_start"), position)
    return MomentumState(
        jax.tree.map(_on_grid, position),
        jax.tree.map(jnp.zeros_like, position),
        jax.tree.map(lambda w: jnp.zeros((limbs, *w.shape), jnp.uint32), position),
    )


def momentum(gradient: Callable[[Tree, Tree], Tree]) -> Invertible:
    """One step of gradient descent with momentum, with an inverse that is exact to the last bit.

    Args:
        gradient: `(w, data) -> gradient of the loss`, a pytree like w; may close over traced
            values. It must give the same bits whenever it is called with the same ones.

    Returns:
        The step and its inverse on a `MomentumState`, with a `MomentumInput` as `x`, for
        `reversible_scan`. The coefficient `decay` is rounded to a multiple of `2^-15`. The
        state becomes NaN when a parameter leaves the range of the grid (4096), the buffer is full
        or `decay` is not in (0, 1].

    Raises:
        TypeError: when called, if `gradient` does not return what is like the parameters.

    Derivatives:
        Those of the same step in real arithmetic: rounding counts as the identity.

    Cost:
        One call of `gradient`, each way, and two passes over the buffer.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg import memory
        >>> step, inverse = memory.momentum(lambda w, data: w)
        >>> start = memory.momentum_start(jnp.array([0.7, -0.3]), steps=1)
        >>> x = memory.MomentumInput(rate=0.1, decay=0.9)
        >>> back = inverse(step(start, x)[0], x)
        >>> print(all(bool((a == b).all()) for a, b in zip(back, start)))
        True

    References:
        Maclaurin, Duvenaud and Adams, "Gradient-based hyperparameter optimization through
        reversible learning" (2015), algorithms 1 to 3; arXiv:1502.03492.
    """

    def push(position: Tree, x: MomentumInput) -> Tree:
        """`(1 - g) grad L(w)` on the grid, fenced off so that the compiler cannot vary it."""
        slope = gradient(lax.optimization_barrier(position), x.data)
        loop_checks.check_slope(position, slope)
        fenced = lax.optimization_barrier(slope)
        return jax.tree.map(lambda s: _on_grid(_rest(x.decay, s.dtype) * s), fenced)

    def move(velocity: Tree, x: MomentumInput) -> Tree:
        return jax.tree.map(lambda v: _on_grid(jnp.asarray(x.rate, v.dtype) * v), velocity)

    def step(state: MomentumState, x: MomentumInput) -> tuple[MomentumState, None]:
        (w, v, buffer), x = state, MomentumInput(*x)
        pairs = jax.tree.map(lambda v, i: _scale(v, jnp.asarray(x.decay, v.dtype), i), v, buffer)
        scaled, buffer = jax.tree.transpose(jax.tree.structure(v), None, pairs)
        v = jax.tree.map(jnp.subtract, scaled, push(w, x))
        w = jax.tree.map(lambda a, b: _in_range(a + b), w, move(v, x))
        return MomentumState(w, v, buffer), None

    def inverse(state: MomentumState, x: MomentumInput) -> MomentumState:
        (w, v, buffer), x = state, MomentumInput(*x)
        w = jax.tree.map(jnp.subtract, w, move(v, x))
        scaled = jax.tree.map(jnp.add, v, push(w, x))
        pairs = jax.tree.map(
            lambda v, i: _unscale(v, jnp.asarray(x.decay, v.dtype), i), scaled, buffer
        )
        v, buffer = jax.tree.transpose(jax.tree.structure(w), None, pairs)
        return MomentumState(w, v, buffer)

    return Invertible(step, inverse)


def _numerator(decay: Array) -> Array:
    """`n` of the fraction `n / d` next to `decay`, from 1 to d."""
    decay = lax.stop_gradient(decay)
    return jnp.clip(jnp.round(decay * DENOMINATOR), 1, DENOMINATOR).astype(jnp.uint32)


def _rest(decay: ArrayLike, dtype: Any) -> Array:
    """`1 - n / d`, exact."""
    exact = jnp.asarray(decay, dtype)
    n = _numerator(exact)
    return known(1.0 - exact, (DENOMINATOR - n.astype(dtype)) / DENOMINATOR)


def _on_grid(x: Array) -> Array:
    """The nearest multiple of `2^-b`; NaN out of range."""
    unit = 2.0**FRACTION_BITS
    return known(x, _in_range(jnp.round(lax.stop_gradient(x) * unit) / unit))


def _in_range(x: Array) -> Array:
    """`x`, or NaN where its multiple of `2^-b` might not fit into the mantissa."""
    limit = 2.0 ** (jnp.finfo(x.dtype).nmant - FRACTION_BITS)
    return jnp.where(jnp.abs(lax.stop_gradient(x)) < limit, x, jnp.nan)


def _scale(v: Array, decay: Array, buffer: Array) -> tuple[Array, Array]:
    """`g v` on the grid and the buffer with what was dropped."""
    fixed_v, fixed_decay = lax.stop_gradient((v, decay))
    scaled, buffer = _exchange(fixed_v, _numerator(decay), jnp.uint32(DENOMINATOR), buffer)
    scaled = jnp.where((fixed_decay > 0.0) & (fixed_decay <= 1.0), scaled, jnp.nan)
    return known(decay * v, scaled), buffer


def _unscale(v: Array, decay: Array, buffer: Array) -> tuple[Array, Array]:
    """The inverse of `_scale`."""
    fixed = lax.stop_gradient(v)
    old, buffer = _exchange(fixed, jnp.uint32(DENOMINATOR), _numerator(decay), buffer)
    return known(v / decay, old), buffer


def _exchange(v: Array, n: Array, d: Array, buffer: Array) -> tuple[Array, Array]:
    """`c <- c n / d` on the integers `c = 2^b v`, the remainders from and to the buffer."""
    unit, integer = 2.0**FRACTION_BITS, jnp.int64
    finite = jnp.isfinite(v)
    c = jnp.where(finite, v * unit, 0.0).astype(integer)
    big_d, big_n = d.astype(integer), n.astype(integer)
    buffer, overflow = _multiply_add(buffer, d, jnp.mod(c, big_d).astype(jnp.uint32))
    c = jnp.floor_divide(c, big_d)
    buffer, remainder = _divide(buffer, n)
    c = c * big_n + remainder.astype(integer)
    scaled = c.astype(v.dtype) / unit
    return jnp.where(finite & (overflow == 0), scaled, jnp.nan), buffer


def _multiply_add(buffer: Array, d: Array, extra: Array) -> tuple[Array, Array]:
    """`i d + extra`, and what does not fit; `extra < d <= 2^15`."""

    def limb(carried: Array, digit: Array) -> tuple[Array, Array]:
        total = digit * d + carried
        return total >> LIMB_BITS, total & (2**LIMB_BITS - 1)

    overflow, digits = lax.scan(limb, extra, buffer)
    return digits, overflow


def _divide(buffer: Array, n: Array) -> tuple[Array, Array]:
    """`i div n` and `i mod n`; `n <= 2^15`."""

    def limb(remainder: Array, digit: Array) -> tuple[Array, Array]:
        total = (remainder << LIMB_BITS) | digit
        quotient = total // n
        return total - quotient * n, quotient

    start = jnp.zeros(buffer.shape[1:], buffer.dtype)
    remainder, digits = lax.scan(limb, start, buffer, reverse=True)
    return digits, remainder
