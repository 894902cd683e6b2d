"""Every tolerance of the checks, by name and with its reason. All are relative."""

COARSE_FLOOR = 1e-2
"""A derivative of order 2 or more is measured on this fraction of the lower orders at least: of
a linear function the derivative, and its differences, leave rounding of the first order."""

KINK_RTOL = 1e-2
"""One-sided slopes that differ by more than this, at every small step, are a kink. Less than the
share that one kinked entry in ten has in a random direction."""

KINK_PERSISTENCE = 0.05
"""The difference of the slopes at a kink does not vanish with the step: the smallest is at least
this share of the largest. For a smooth function it falls by a factor of 1e4 or more (float64)."""

CLEAR = 10.0
"""A disagreement of so many error estimates is a wrong derivative, resolved or not."""


def difference_rtol(epsilon: float, order: int) -> float:
    """Agreement asked of a derivative of this order with differences: `eps^(2 / (order + 3))`.

    1.5e-8, 5e-7, 6e-6 in float64; 3e-4, 2e-3, 5e-3 in float32. Extrapolated differences of a
    smooth function reach `eps^(4/5)` or better, so that two to four digits are left for a function
    that is badly conditioned; and a rule that is wrong is seldom wrong by less: Lorentzian
    broadening, the mildest common error, costs 6e-6 in a second derivative.
    """
    return epsilon ** (2.0 / (order + 3.0))


def transpose_rtol(epsilon: float, order: int) -> float:
    """Agreement asked of two nestings of one order: `10^(order + 2)` epsilon.

    The two programs add the same products in another order; the factor is what intermediate
    results larger than the sum cost, once for each differentiation.
    """
    return epsilon * 10.0 ** (order + 2)


def rounding_atol(epsilon: float) -> float:
    """A first derivative below `4 eps` of the function's size is rounding of the function."""
    return 4.0 * epsilon


def zero_atol(epsilon: float) -> float:
    """What differences may leave of a derivative that is zero: `64 eps` of the function's size.

    The best step of a constant function is the largest, about 1/4; the function may be noisy.
    """
    return 64.0 * epsilon


def kink_atol(epsilon: float) -> float:
    """A smooth function with noise `sigma` and curvature `a` shows one-sided slopes that differ.

    By `2 sqrt(a sigma)` at the best step, so by about `sqrt(eps)` of its size; 16 is the margin.
    """
    return 16.0 * epsilon**0.5


def gauge_rtol(epsilon: float) -> float:
    """Change of a loss under a gauge transformation that counts as none: `sqrt(eps)`.

    Rotating a cluster that is degenerate to `cluster_rtol = eps^(3/4)` changes the matrix, hence
    every loss, by that much; and a dependence that matters exceeds the error of a gradient.
    """
    return epsilon**0.5
