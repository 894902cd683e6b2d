"""What a check of derivatives compares, reports and raises."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from difflinalg._testing import tolerances


class DerivativeEntry(NamedTuple):
    """One comparison; all numbers refer to the probe, a weighted sum of the outputs.

    `nesting` reads from the outside: "fwd-rev" is forward over reverse. `against` says what the
    reference is: differences of the "function", differences of the "derivative" one order lower,
    or another "nesting" (the transpose test). `size` is the sum of the moduli of the terms that
    add up to `value`, or the size of the function or a lower order if the derivative is
    negligible against it; errors are absolute.
    """

    order: int
    nesting: str
    against: str
    value: float
    reference: float
    error: float
    reference_error: float
    tolerance: float
    size: float

    @property
    def resolved(self) -> bool:
        """Whether the reference is known to within the tolerance."""
        return self.reference_error <= self.tolerance

    @property
    def wrong(self) -> bool:
        """Whether value and reference disagree beyond what the error of the reference allows."""
        slack = self.reference_error * (1.0 if self.resolved else tolerances.CLEAR)
        return not self.error <= self.tolerance + slack and bool(np.isfinite(self.reference_error))


@dataclass(frozen=True)
class DerivativeReport:
    """Every comparison that was made, and `max_error`, the largest relative error."""

    entries: tuple[DerivativeEntry, ...]

    @property
    def max_error(self) -> float:
        """The largest `error / size` of the comparisons whose reference resolves the tolerance."""
        return max((e.error / e.size for e in self.entries if e.resolved and e.size), default=0.0)

    def __str__(self) -> str:
        lines = [
            f"order {e.order}  {e.nesting:<12} against {e.against:<11}"
            f"error {e.error:.1e}  tolerance {e.tolerance:.1e}"
            + ("" if e.resolved else f"  (not resolved: reference error {e.reference_error:.1e})")
            for e in self.entries
        ]
        return "\n".join(lines)


class DerivativeError(AssertionError):
    """A derivative is wrong, or cannot be formed. `entry` holds the comparison, if there is one."""

    def __init__(self, message: str, entry: DerivativeEntry | None = None):
        super().__init__(message)
        self.entry = entry


class InconclusiveError(DerivativeError):
    """The differences cannot resolve the tolerance, so nothing is known about the derivative."""


_REMEDY = {
    "function": (
        "The rule is wrong, or the function is not smooth here (a kink, a branch, a level "
        "crossing), varies on a scale that the steps miss (pass `step`), or is gauge dependent "
        "(check_gauge tells)."
    ),
    "derivative": (
        "The lower order agrees with differences of the function, so the rule is right but its "
        "own derivative is not: does it use a value for which no derivative rule holds "
        "(stop_gradient, a closed-over result), or is it degenerate here? Or the function is not "
        "smooth enough, or gauge dependent (check_gauge tells)."
    ),
    "nesting": (
        "Forward and reverse mode disagree: the transpose of a linear map is wrong, or an "
        "iterative solve inside the rule stops too early, or the rule is badly conditioned here "
        "(then pass transpose_rtol)."
    ),
}
_REFERENCE = {
    "function": "differences of the function",
    "derivative": "differences of the derivative one order lower",
    "nesting": "the first nesting of this order",
}


def _numbers(entry: DerivativeEntry) -> str:
    return (
        f"\n  got             {entry.value:.16g}"
        f"\n  expected        {entry.reference:.16g}   ({_REFERENCE[entry.against]})"
        f"\n  error           {entry.error:.3e}"
        f"\n  reference error {entry.reference_error:.3e}   (estimate)"
        f"\n  tolerance       {entry.tolerance:.3e}   (size of the derivative {entry.size:.3e})\n"
    )


def _wrong(entry: DerivativeEntry) -> DerivativeError:
    finding = f"disagrees with {_REFERENCE[entry.against]}"
    head = (
        f"The derivative of order {entry.order}, nesting {entry.nesting} (outermost mode first), "
        f"{finding if np.isfinite(entry.value) else 'is not finite'}:"
    )
    return DerivativeError(f"{head}{_numbers(entry)}{_REMEDY[entry.against]}", entry)


def _inconclusive(entry: DerivativeEntry) -> InconclusiveError:
    head = (
        f"Inconclusive: the derivative of order {entry.order}, nesting {entry.nesting} (outermost "
        "mode first), cannot be checked, because differences do not resolve the tolerance:"
    )
    remedy = (
        "The function is noisy (float32, an unconverged iteration), not smooth here, or varies on "
        "a scale that the steps miss. Use float64, a better conditioned or rescaled input, "
        "another `step`, or a larger `rtol` or `atol`."
    )
    return InconclusiveError(f"{head}{_numbers(entry)}{remedy}", entry)


def kinked(order: int, right: float, left: float) -> DerivativeError:
    """The error of a function, or a derivative of this order, with two one-sided slopes."""
    what = f"derivative of order {order}" if order else "function"
    msg = (
        f"The {what} has a kink at args, so that no derivative of order {order + 1} exists: along "
        f"a random direction its slope is {right:.6g} on one side and {left:.6g} on the other. "
        "Check it at another point; abs, max, sorting, and single eigenvalues of a degenerate "
        "cluster are not smooth."
    )
    return DerivativeError(msg)


def compare(
    k: int,
    nesting: tuple[str, ...],
    against: str,
    value: float,
    reference: float,
    uncertainty: float,
    tolerance: float,
    size: float,
) -> DerivativeEntry:
    """The entry for `value` against a reference known to within `uncertainty`."""
    error = abs(float(value) - float(reference))
    numbers = (float(value), float(reference), error, float(uncertainty), float(tolerance), size)
    return DerivativeEntry(k, "-".join(nesting), against, *numbers)


def judge(compared: list[DerivativeEntry]) -> None:
    """Raise if a comparison fails, or if none of them resolves the tolerance."""
    for entry in compared:
        if entry.wrong or not np.isfinite(entry.value):
            raise _wrong(entry)
    if not any(entry.resolved for entry in compared):
        raise _inconclusive(min(compared, key=lambda entry: entry.reference_error))
