"""Central differences, extrapolated to step zero, with an estimate of the error.

For directions d_1 ... d_k the product stencil

    D(h) = sum over signs s of  s_1 ... s_k g(x + h (s_1 d_1 + ... + s_k d_k))  /  (2 h)^k

is the mixed derivative plus a series in h^2. Halving the step and eliminating one power after the
other (Richardson; the tableau is Neville's, the choice of the best entry is Ridders's) gives

    T[i][0] = D(h_i),   T[i][j] = T[i][j-1] + (T[i][j-1] - T[i-1][j-1]) / (4^j - 1).

Large steps suffer from truncation, small ones from rounding, and neither scale is known. So all
steps are tried, and an entry is believed as far as two witnesses allow: its own column one row
above, and the column on its left. Rounding of the function, or its noise as measured, is added: a
step so small that all differences vanish has witnesses in perfect agreement, and among many noisy
entries some agree by accident.

References:
    More and Wild, "Estimating computational noise", SIAM J. Sci. Comput. 33, 1292 (2011).
    Ridders, "Accurate computation of F'(x) and F'(x) F''(x)", Adv. Eng. Software 4, 75 (1982).
"""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

MAX_COLUMNS = 7
"""Columns of the tableau: seven eliminate h^2 ... h^12; further ones extrapolate noise."""

PATIENCE = 4
"""Rows without progress after which the tableau ends, once the tolerance is resolved."""

NOISE_MARGIN = 3.0
"""Standard deviations of the measured noise that enter the estimate of the error."""

Evaluation = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Maps the displacements along each direction to values of g and sizes of g, shape `(p,)` each."""


def step_ladder(first: float, order: int, epsilon: float) -> list[float]:
    """Halved steps, down to where rounding alone is a tenth of the derivative; at least eight."""
    smallest = (10.0 * epsilon) ** (1.0 / order)
    rows = int(np.clip(np.log2(first / smallest), 8, 30))
    return [first / 2**row for row in range(rows)]


def noise(evaluate: Evaluation, axis: int, width: int, epsilon: float) -> np.ndarray:
    """Standard deviation of the noise of g, shape `(p,)`, where it exceeds rounding.

    Fourth differences at a spacing of `sqrt(eps)` see nothing of a smooth function. Noise of
    deviation sigma gives them the variance `sigma^2 (2 k)! / (k!)^2`, k = 4.
    """
    unit = np.eye(width)[axis]
    values = [evaluate(index * epsilon**0.5 * unit)[0] for index in range(-4, 5)]
    with np.errstate(invalid="ignore"):
        differences = np.diff(np.array(values), 4, axis=0)
        return np.sqrt(np.mean(differences**2, axis=0) / 70.0)


def mixed_difference(
    evaluate: Evaluation,
    axes: Sequence[int],
    width: int,
    step: float,
    epsilon: float,
    sigma: np.ndarray | float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """`D(h)` along the directions `axes` out of `width`, and the rounding error it carries.

    The function is taken to be uncertain by epsilon or, if that is more, by three times the noise
    `sigma` that was measured.
    """
    total: np.ndarray | float = 0.0
    size: np.ndarray | float = 0.0
    for signs in itertools.product((1.0, -1.0), repeat=len(axes)):
        offsets = np.zeros(width)
        offsets[list(axes)] = step * np.array(signs)
        values, sizes = evaluate(offsets)
        with np.errstate(invalid="ignore"):
            total = total + np.prod(signs) * values
        size = np.maximum(size, sizes)
    uncertain = np.fmax(epsilon * size, NOISE_MARGIN * sigma)
    volume = (2.0 * step) ** len(axes)
    return np.asarray(total / volume), np.asarray(uncertain / volume)


def extrapolate(
    sample: Callable[[float], tuple[np.ndarray, np.ndarray]],
    steps: Sequence[float],
    tolerance: np.ndarray | float,
) -> tuple[np.ndarray, np.ndarray]:
    """The limit of `sample` at step zero and the estimate of its error, shape `(p,)` each.

    Entries that are not finite (a step out of the function's domain) are passed over; the error
    is infinite where nothing is left.
    """
    best = np.full(np.shape(tolerance), np.nan)
    error = np.full(np.shape(tolerance), np.inf)
    above: list[np.ndarray] = []
    idle = 0
    for step in steps:
        first, rounding = sample(step)
        row = [first]
        with np.errstate(invalid="ignore", over="ignore"):
            for j in range(1, min(len(above) + 1, MAX_COLUMNS)):
                row.append(row[j - 1] + (row[j - 1] - above[j - 1]) / (4.0**j - 1.0))
            progress = False
            for j in range(1, min(len(row), len(above))):
                witnesses = np.maximum(abs(row[j] - above[j]), abs(row[j - 1] - above[j - 1]))
                estimate = witnesses + rounding
                better = np.isfinite(estimate) & (estimate < error)
                progress |= bool(np.any(better & (estimate < 0.9 * error)))
                best = np.where(better, row[j], best)
                error = np.where(better, estimate, error)
        above = row
        idle = 0 if progress else idle + 1
        if idle >= PATIENCE and np.all(error <= tolerance):
            break
    return best, error


def kink(
    evaluate: Evaluation, axis: int, width: int, largest: float, epsilon: float
) -> tuple[float, float, float]:
    """Slopes from the right and the left at the step where they agree best, and `persistence`.

    For a smooth function the two differ by `h g''`, which small steps make vanish; noise makes it
    grow again. At a kink they differ at every step: persistence, the ratio of the smallest to the
    largest difference, is then near one. The first component of g is looked at.
    """
    center = evaluate(np.zeros(width))[0][0]
    unit = np.eye(width)[axis]
    slopes: list[tuple[float, float]] = []
    step = largest
    while step > epsilon ** (2.0 / 3.0):
        right, left = (evaluate(sign * step * unit)[0][0] for sign in (1.0, -1.0))
        if np.isfinite(right) and np.isfinite(left):
            slopes.append(((right - center) / step, (center - left) / step))
        step /= 8.0
    if not slopes:
        return 0.0, 0.0, 0.0
    gaps = [abs(right - left) for right, left in slopes]
    right, left = slopes[int(np.argmin(gaps))]
    return right, left, min(gaps) / max(*gaps, np.finfo(float).tiny)
