"""Every tolerance of the library, by name and with its reason. All are relative.

The unit is the machine epsilon of the (real) dtype at hand, so that a rule is as strict in
float32 as it is in float64.
"""

import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike


def epsilon(dtype: DTypeLike) -> float:
    """Machine epsilon of the real dtype that belongs to `dtype`."""
    return float(jnp.finfo(dtype).eps)


def cluster_rtol(dtype: DTypeLike, level: int = 0) -> float:
    """Two values closer than this, relative to the width of the spectrum, are one cluster.

    A gap that is kept costs `eps / gap^(level + 1)` in a smooth loss differentiated `level + 1`
    times; a gap that is not falsifies a loss that depends on it. `eps^(3/4)` for the first
    derivative, and in general `eps^(3 / (4 (level + 1)))`, leaves a smooth loss `eps^(1/4)` at
    worst, at the tolerance itself. No larger than the distance to which a pair is spread.
    """
    return min(epsilon(dtype) ** (0.75 / (level + 1)), epsilon(dtype) ** (1.0 / (level + 2)))


def spread_rtol(dtype: DTypeLike, level: int, size: Array | int = 2) -> Array:
    """Distance to which neighbours in a cluster of `size` are moved, relative to the width.

    `(2 eps / size)^(1/(level + 2))`: a loss differentiated `level + 1` times has an error of order
    `size delta + eps / delta^(level + 1)`, which this choice balances.
    """
    return jnp.asarray(2.0 * epsilon(dtype) / size) ** (1.0 / (level + 2))


def rank_rtol(dtype: DTypeLike, size: int) -> float:
    """Singular values below this, relative to the largest, count as zero (NumPy's convention)."""
    return epsilon(dtype) * size


def multiplet_rtol(dtype: DTypeLike) -> float:
    """A truncation cuts a multiplet when the first dropped value is this close to the last kept.

    `eps^(2/3)` relative to the largest value: a derivative of a truncation has an error of
    `eps / gap`, so that at least a third of the digits are left where it is defined.
    """
    return epsilon(dtype) ** (2.0 / 3.0)


def subspace_rtol(dtype: DTypeLike) -> float:
    """Residual, relative to the largest value, at which a subspace iteration has converged.

    32 epsilon: what a full decomposition attains (its backward error is a modest multiple of
    epsilon), so that the truncated result is not the less accurate one.
    """
    return 32.0 * epsilon(dtype)


def solve_rtol(dtype: DTypeLike) -> float:
    """Normwise backward error at which the linear solve inside a truncated rule stops."""
    return 16.0 * epsilon(dtype)


def identity_rtol(dtype: DTypeLike, size: int) -> float:
    """A dense matrix whose spectrum is no wider, relative to its mean, is a multiple of I.

    Rounding of the entries alone spreads the eigenvalues of `Q (c I) Q^H` by about this much.
    """
    return 4.0 * epsilon(dtype) * max(size, 1) ** 0.5


def rounding_slack(dtype: DTypeLike) -> float:
    """How many rounding errors a user's function may be off where two of its uses are compared.

    `eps^(-1/4)`, 8192 in float64: more than functions written with care are off, and little
    enough that what it hides at well separated arguments is of order `eps^(3/4)`.
    """
    return epsilon(dtype) ** -0.25


def newton_rtol(dtype: DTypeLike) -> float:
    """Relative change of an iterate at which a Newton iteration has half of its digits.

    `sqrt(eps) / 8`: quadratic convergence makes it rounding error in the next step.
    """
    return 0.125 * epsilon(dtype) ** 0.5


def branch_rtol(dtype: DTypeLike) -> float:
    """An eigenvalue of a block matrix this close to a branch cut, relatively, is on either side.

    `eps^(1/4)`: the eigenvalues of the block matrix of the second derivative are double and have
    errors of `eps^(1/2)`, those of the third are fourfold and have errors of `eps^(1/4)`.
    """
    return epsilon(dtype) ** 0.25
