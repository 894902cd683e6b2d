"""Step-size control: the first step, the error of a step, and the next step.

The controller is the one of DOPRI5, proportional-integral with exponents `0.17` and `0.04` at
order 5 (Hairer, Norsett and Wanner 1993, section IV.2 of volume II, equation 2.43c).
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from difflinalg._ode.stages import combine, real_dtype
from difflinalg._ode.system import Leaves, System
from difflinalg._ode.tableaus import Tableau

SAFETY = 0.9
SHRINK, GROW = 0.2, 10.0
MAX_LANDINGS = 16


@dataclass(frozen=True)
class Control:
    """What decides about steps; all of it is static."""

    tableau: Tableau
    rtol: float = 1.4e-8
    atol: float = 1.4e-8
    max_attempts: float = jnp.inf  # between two outputs
    max_steps: float = jnp.inf  # altogether
    hmax: float = jnp.inf
    first_step: float | None = None

    def lands(self, ts: Array) -> bool:
        """Whether steps end at every output, rather than pass it and interpolate.

        Where outputs are few this is the cheaper way, because interpolants need further stages.
        """
        return self.tableau.dense is None or ts.shape[-1] <= MAX_LANDINGS + 2

    @property
    def fixed(self) -> bool:
        """Whether all steps have the size of the first."""
        return not self.tableau.errors


def rms(x: Leaves, scale: Leaves) -> Array:
    """The root mean square of `x / scale` over all entries of all leaves."""
    total = sum(jnp.sum(jnp.abs(u / s) ** 2) for u, s in zip(x, scale, strict=True))
    count = sum(max(u.size, 1) for u in x)
    return jnp.sqrt(total / count)


def scales(control: Control, y: Leaves, z: Leaves) -> Leaves:
    """The tolerated error of every entry."""
    return [
        control.atol + control.rtol * jnp.maximum(jnp.abs(u), jnp.abs(v))
        for u, v in zip(y, z, strict=True)
    ]


def first_step(
    control: Control,
    system: System,
    y: Leaves,
    f: Leaves,
    t: Array,
    sign: Array,
    p: Leaves,
    q: Leaves,
) -> Array:
    """The first step, by the algorithm of Hairer, Norsett and Wanner (1993), section II.4."""
    if control.first_step is not None:
        return sign * jnp.asarray(control.first_step, t.dtype)
    scale = scales(control, y, y)
    d0, d1 = rms(y, scale), rms(f, scale)
    h0 = jnp.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / d1)
    h0 = jnp.minimum(h0, control.hmax)
    signed = (sign * h0).astype(t.dtype)
    moved = [u + signed.astype(real_dtype(u)) * v for u, v in zip(y, f, strict=True)]
    other = system.field(moved, t + signed, p, q)
    d2 = rms([u - v for u, v in zip(other, f, strict=True)], scale) / h0
    slope = jnp.maximum(d1, d2)
    h1 = jnp.where(
        slope <= 1e-15,
        jnp.maximum(1e-6, 1e-3 * h0),
        (0.01 / slope) ** (1.0 / (control.tableau.error_order + 1.0)),
    )
    return sign * jnp.minimum(100.0 * h0, h1).astype(t.dtype)


def error_ratio(
    control: Control, y: Leaves, z: Leaves, k: Leaves, slope: Leaves, h: Array
) -> Array:
    """The estimated error of a step in units of the tolerated one.

    It is NaN if the new state `z` or its slope is not finite.
    """
    scale = [
        jnp.where(jnp.isfinite(u) & jnp.isfinite(v), size, jnp.nan)
        for size, u, v in zip(scales(control, y, z), z, slope, strict=True)
    ]
    estimates = []
    for row in control.tableau.array("errors", h.dtype, k[0].shape[0]):
        error = [combine(jnp.asarray(row, real_dtype(x)), kx) for x, kx in zip(y, k, strict=True)]
        estimates.append(jnp.abs(h) * rms(error, scale).astype(h.dtype))
    if len(estimates) == 1:
        return estimates[0]
    # DOP853: the fifth-order estimate, damped where the third-order one shows it to be lucky
    fifth, third = estimates
    size = jnp.sqrt(fifth**2 + 0.01 * third**2)
    return jnp.where(size == 0.0, 0.0, fifth**2 / size)


def next_step(control: Control, h: Array, ratio: Array, log_ratio: Array, last_log: Array) -> Array:
    """The size of the step after one with this error ratio; a NaN counts as a large error.

    `log_ratio` is `log(max(ratio, 1e-10))`, and `last_log` the same of the last accepted step.
    """
    order = control.tableau.error_order + 1
    good = ratio <= 1.0
    # one exponential for both cases: powers cost more than all else that happens here
    exponent = jnp.where(good, 0.2 * last_log - 0.85 * log_ratio, -log_ratio) / order
    factor = jnp.clip(SAFETY * jnp.exp(exponent), SHRINK, jnp.where(good, GROW, 1.0))
    return h * jnp.where(jnp.isfinite(ratio), factor, SHRINK).astype(h.dtype)
