"""Every tolerance of the library, by name and with its reason. All are relative.

The unit is the machine epsilon of the (real) dtype at hand, so that a rule is as strict in
float32 as it is in float64.
"""

import math

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

    32 epsilon: an order of magnitude at most above a full decomposition, whose residual is 4 to 8
    epsilon at sizes of 64 to 576, so that a derivative, with an error of the residual over the
    gap, has as many digits.
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


# Loops and reversible programs (_memory).


def reconstruction_rtol(dtype: DTypeLike) -> float:
    """Error of a carry computed backwards that counts as rounding: `sqrt(eps)`.

    Half of the digits of the gradient are then left; a wrong inverse is seldom wrong by less.
    """
    return epsilon(dtype) ** 0.5


def contraction_rtol(dtype: DTypeLike, size: int) -> float:
    """Noise of the residual `x + g(x) - y`, relative to the norms of x and y.

    Each entry is rounded a few times, 4 epsilon at most with a g written with care; the norm
    carries that over, but entries of very different sizes ask for some of `sqrt(size)`.
    """
    return 4.0 * epsilon(dtype) * max(size, 1) ** 0.25


def stage_rtol(dtype: DTypeLike) -> float:
    """Last update, relative to the state, at which the equations of an implicit stage are solved.

    `eps^(3/4)`: Newton's method is quadratic, so that the error left is below rounding, and the
    derivatives, which assume that the equations hold, are as exact as those of explicit steps.
    """
    return epsilon(dtype) ** 0.75


def breakdown_rtol(dtype: DTypeLike) -> float:
    """What is left of a vector after orthogonalisation is rounding below this, times the norm.

    10 epsilon: the rounding errors of the product and of two projections.
    """
    return 10.0 * epsilon(dtype)


def lost_rtol(dtype: DTypeLike) -> float:
    """A unit vector of which a second orthogonalisation leaves less was rounding error.

    `sqrt(eps)`: where more is left, a third pass makes what is left orthogonal to rounding.
    """
    return epsilon(dtype) ** 0.5


def residual_rtol(dtype: DTypeLike) -> float:
    """Residual of an eigenpair, relative to the norm of the operator, that counts as converged.

    4 epsilon: no smaller one can be verified with a product that rounds. It is the meaning of
    `tol=0`, as in ARPACK, and right for derivatives, whose error is the residual over the gap.
    """
    return 4.0 * epsilon(dtype)


def krylov_solve_rtol(dtype: DTypeLike) -> float:
    """Residual, relative to the right-hand side, at which the solve inside a rule stops."""
    return 16.0 * epsilon(dtype)


def hermitian_rtol(dtype: DTypeLike) -> float:
    """An operator whose projection departs more from its adjoint, times the norm, is not Hermitian.

    `sqrt(eps)`: far above the rounding of any product, and a smaller departure moves an
    eigenvalue by no more than its square.
    """
    return epsilon(dtype) ** 0.5


def ritz_rtol(dtype: DTypeLike) -> float:
    """Residual, relative to the norm, from which on a Ritz value is known to rounding.

    `sqrt(eps)`: the error of the value is the square of the residual over a gap.
    """
    return epsilon(dtype) ** 0.5


RESOLVED = 0.1
"""A Ritz value is told from another when its residual is this fraction of their distance."""


def implicit_rtol(dtype: DTypeLike) -> float:
    """Where an iteration, and the linear solve of its derivative, has converged by default.

    `eps^(3/4)`, 2e-12 in float64: the function is the user's, and its rounding errors may be
    thousands of epsilons (those of an eigensolver are), below which no residual falls.
    """
    return epsilon(dtype) ** 0.75


def trust_factor() -> float:
    """How far, in units of its tolerance, a solution may miss where its derivative is taken.

    The derivative evaluates the function once more, in another compiled program. Rounding may
    then be different; a gauge chosen otherwise, or another branch, is off by far more.
    """
    return 100.0


def regular_limit(dtype: DTypeLike) -> float:
    """Condition number, in the Frobenius norm, up to which an adjugate is taken from the inverse.

    `eps^(-1/2)`: the inverse by LU then has half of the digits at least; beyond, the singular
    value decomposition gives the adjugate with an error of order epsilon of its norm, or the
    error that a perturbation of A by epsilon causes.
    """
    return epsilon(dtype) ** -0.5


def zero_norm(dtype: DTypeLike) -> float:
    """What a second derivative sees in place of a 2-norm that is 0: `tiny^(1/4)`.

    1e-77 in float64, 3e-10 in float32: its fourth power, the largest that derivatives up to the
    third divide by, is still a normal number, and its square is far below epsilon.
    """
    return float(jnp.finfo(dtype).tiny) ** 0.25


def degenerate_shift(dtype: DTypeLike, level: int) -> float:
    """By how much a general matrix with a repeated eigenvalue is moved, relative to its norm.

    `eps^(1/(level + 2))`, as values are spread (`spread_rtol`).
    """
    return epsilon(dtype) ** (1.0 / (level + 2))


def defective_limit(dtype: DTypeLike, power: int) -> float:
    """Condition number of an eigenvalue above which its matrix counts as defective.

    A derivative has an error of `eps kappa^power`: 2 for the first derivative of eigenvalues, 3 for
    that of vectors, one more for each further derivative. The limit `eps^(-3 / (4 power))` leaves
    `eps^(1/4)` at worst, as `cluster_rtol` does.
    """
    return epsilon(dtype) ** (-0.75 / power)


def defective_shift(dtype: DTypeLike, power: int) -> float:
    """By how much a defective matrix is moved, relative to its norm: `eps^(2/(power + 2))`.

    Moved by delta, a Jordan block of two has condition numbers `delta^(-1/2)`; this choice
    balances delta and the error that `defective_limit` names.
    """
    return epsilon(dtype) ** (2.0 / (power + 2))


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


def lift_rtol(dtype: DTypeLike, excess: int) -> float:
    """To what zero singular values are lifted where a determinant is divided by them.

    `eps^(1/(excess + 1))`, relative to the largest: a derivative whose order exceeds the first
    one in which they matter by `excess` has the error `eps / lift^excess` from rounding.
    """
    return epsilon(dtype) ** (1.0 / (max(excess, 0) + 1))


def block_residual_rtol(dtype: DTypeLike) -> float:
    """Residual of LOBPCG, relative to the norms of the operators, that counts as converged.

    16 epsilon: its vectors are combinations of three blocks, whose products round each.
    """
    return 16.0 * epsilon(dtype)


# Krylov solves and functions of operators.


def bound_slack(dtype: DTypeLike) -> float:
    """By what factor a recomputed residual may exceed the bound that an iteration stopped at.

    `1 + eps^(1/4)`: the residual of the recursion and the true one agree to a few digits there.
    """
    return 1.0 + epsilon(dtype) ** 0.25


def attainable_rtol(dtype: DTypeLike) -> float:
    """Residual of a linear solve, relative to `|b| + |A| |x|`, below which there is rounding only.

    16 epsilon, as the solves inside of other rules.
    """
    return 16.0 * epsilon(dtype)


def taylor_step(dtype: DTypeLike) -> float:
    """Norm of a step of time over which an exponential is summed as a series: `-log(eps) / 6`.

    6 in float64, 2.7 in float32. Terms of size `exp(6) = 400` cancel to `exp(-6)` at worst, and
    the series has about 6 terms for a unit of the norm; longer steps take fewer but lose digits.
    """
    return -math.log(epsilon(dtype)) / 6.0
