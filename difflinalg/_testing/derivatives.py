"""Derivatives of any function, checked against differences and against each other."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from difflinalg._core.checks import check_callable
from difflinalg._testing import tolerances
from difflinalg._testing.differences import (
    Evaluation,
    extrapolate,
    kink,
    mixed_difference,
    noise,
    step_ladder,
)
from difflinalg._testing.probe import Probe, Terms, differentiate, evaluation, make_probe
from difflinalg._testing.report import (
    DerivativeEntry,
    DerivativeError,
    DerivativeReport,
    compare,
    judge,
    kinked,
)

MODES = ("fwd", "rev")


def check_derivatives(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    order: int = 2,
    modes: tuple[str, ...] = ("fwd", "rev"),
    *,
    rtol: float | None = None,
    atol: float | None = None,
    transpose_rtol: float | None = None,
    seed: int = 0,
    step: float | None = None,
    jit: bool = True,
) -> DerivativeReport:
    """Check all derivatives of `f` up to `order`, in every nesting of `modes`.

    The function is seen as `g(t) = Re sum(c * f(x + t_1 d_1 + t_2 d_2 + ...))` with random c and
    one random direction for each order. Of each order k are compared

    - every nesting of the modes with differences of `f` itself, the only reference that no
      derivative rule has touched. For k >= 2 they have few digits, so they are compared to the
      digits that they have;
    - for k >= 2, every nesting with differences of the same nesting without its outermost mode,
      which was checked one order below. These have the digits to resolve the tolerance;
    - the nestings with each other, nearly to machine precision. Where they differ in the outermost
      mode this is the transpose test `<c, J d> = <J^T c, d>`, of f or of its derivative.

    All differences are extrapolated and come with an estimate of their error. Where no reference
    resolves the tolerance the check raises; it never passes for lack of evidence. A kink of the
    function or of a lower derivative, which central differences do not see, is looked for apart.

    Args:
        f: function of pytrees of arrays, real or complex, that returns a pytree of arrays. Leaves
            that are not floating or complex are constants.
        args: the positional arguments, a tuple.
        order: highest order of differentiation, 1 or more.
        modes: a tuple out of "fwd" and "rev"; `("rev",)` for functions without forward mode.
        rtol: relative tolerance of the comparison with differences, for every order; by default
            `eps^(2 / (order + 3))`. Relative to the sum of the moduli of the derivative's terms.
        atol: absolute tolerance. The outputs are weighted to size one, so that numbers are
            relative derivatives. By default `4 eps` of the function at order 1 (`64 eps` if the
            derivative is itself below `4 eps`, hence zero), and nothing above.
        transpose_rtol: relative tolerance between nestings; by default `10^(order + 2) eps`.
        seed: seed of c and of the directions.
        step: the largest step, relative to the largest entry of each argument (absolute, if that
            is below epsilon); by default `0.25 N^(1/4)` for N entries. Smaller ones follow, each
            half of the last.
        jit: compile; with False, `f` may branch on values and raise while it runs.

    Returns:
        The comparisons made, with `max_error`.

    Raises:
        DerivativeError: if a derivative is wrong, not finite, or cannot be formed, or if `f` or a
            lower derivative has a kink at `args`. An AssertionError.
        InconclusiveError: if differences cannot resolve the tolerance. A DerivativeError.
        ValueError: if `order`, `modes` or `step` is not as above, or if `args` or the result hold
            no floating or complex array.
        TypeError: if `args` is not a tuple.

    Cost:
        Compiles one program per order, with `2^order` nestings in the last. Evaluates `f` 8 to 30
        times `2^order`, and the derivatives below the highest order some 50 times.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg.testing import check_derivatives
        >>> report = check_derivatives(jnp.sin, (jnp.array([0.5, 1.0]),), order=2)
        >>> sorted({entry.nesting for entry in report.entries if entry.order == 2})
        ['fwd-fwd', 'fwd-rev', 'rev-fwd', 'rev-rev']
        >>> bool(report.max_error < 1e-2)
        True

    References:
        Ridders, "Accurate computation of F'(x) and F'(x) F''(x)", Adv. Eng. Software 4, 75 (1982).
        More and Wild, "Estimating computational noise", SIAM J. Sci. Comput. 33, 1292 (2011).
    """
    check_callable("check_derivatives", f)
    _check_arguments(args, order, modes, step)
    probe = make_probe(f, args, order, seed, step, jit)
    levels = _Levels(probe, rtol, atol, transpose_rtol, jit)
    entries: list[DerivativeEntry] = []
    for k in range(1, order + 1):
        entries += levels.climb(k, modes)
    return DerivativeReport(tuple(entries))


def _check_arguments(args: object, order: object, modes: object, step: float | None) -> None:
    if not isinstance(args, tuple):
        msg = f"check_derivatives needs args as a tuple, got {type(args).__name__}; write (x,)."
        raise TypeError(msg)
    if isinstance(order, bool) or not isinstance(order, int) or order < 1:
        msg = f"check_derivatives needs an order of 1 or more, got {order!r}."
        raise ValueError(msg)
    if not isinstance(modes, tuple) or not modes or not set(modes) <= set(MODES):
        msg = (
            'check_derivatives takes modes as a tuple out of "fwd" and "rev", for example '
            f'("rev",), got {modes!r}.'
        )
        raise ValueError(msg)
    if step is not None and not step > 0:
        msg = f"check_derivatives needs a positive step, got {step!r}."
        raise ValueError(msg)


class _Levels:
    """The state of one check: what each order needs from the orders below it."""

    def __init__(
        self,
        probe: Probe,
        rtol: float | None,
        atol: float | None,
        transpose_rtol: float | None,
        jit: bool,
    ):
        self.probe, self.jit = probe, jit
        self.rtol, self.atol, self.transpose_rtol = rtol, atol, transpose_rtol
        self.function = evaluation(probe, [probe.terms], jit)
        values, sizes = self.function(np.zeros(len(probe.directions)))
        if not np.all(np.isfinite(values)):
            raise DerivativeError("The function itself is not finite at args.")
        self.size = max(float(sizes[0]), self._size_nearby())
        self.lower = 0.0
        self.nestings: dict[tuple[str, ...], Terms] = {(): probe.terms}
        self.inner = self.function

    def _size_nearby(self) -> float:
        """The size of the function a tenth of a step away: at args it may vanish."""
        unit = np.eye(len(self.probe.directions))[0]
        sizes = [
            self.function(0.1 * sign * self.probe.largest * unit)[1][0] for sign in (1.0, -1.0)
        ]
        return max((float(size) for size in sizes if np.isfinite(size)), default=0.0)

    def look_for_a_kink(self, k: int) -> None:
        """Raise if the derivative of order k - 1 has two slopes; central differences see one."""
        epsilon, width = self.probe.epsilon, len(self.probe.directions)
        right, left, persistence = kink(self.inner, k - 1, width, 0.2 * self.probe.largest, epsilon)
        floor = tolerances.kink_atol(epsilon) * max(self.lower, self.size if k == 1 else 0.0)
        visible = max(tolerances.KINK_RTOL * max(abs(right), abs(left)), floor)
        if persistence > tolerances.KINK_PERSISTENCE and abs(right - left) > visible:
            raise kinked(k - 1, right, left)

    def climb(self, k: int, modes: tuple[str, ...]) -> list[DerivativeEntry]:
        """All comparisons of order k; raises at the first that fails."""
        self.look_for_a_kink(k)
        direction = self.probe.directions[k - 1]
        below = list(self.nestings)
        nestings = {
            (mode, *inner): differentiate(mode, self.nestings[inner], direction)
            for mode, inner in itertools.product(modes, below)
        }
        current = self._compiled(k, nestings)
        values, sizes = current(np.zeros(len(self.probe.directions)))
        size = float(np.max(sizes[np.isfinite(sizes)], initial=0.0))
        size, tolerance = self._scale(k, size)
        expected, error = self._differences(range(k), self.function, tolerance)
        references = [("function", np.repeat(expected, len(below)), np.repeat(error, len(below)))]
        if k > 1:
            references.append(("derivative", *self._differences([k - 1], self.inner, tolerance)))
        entries: list[DerivativeEntry] = []
        for index, nesting in enumerate(nestings):
            compared = []
            for against, reference, uncertainty in references:
                inner = index % len(below)
                pair = (values[index], reference[inner], uncertainty[inner])
                compared.append(compare(k, nesting, against, *pair, tolerance, size))
            judge(compared)
            entries += compared
        entries += self._transpose(k, list(nestings), values, size)
        self.nestings, self.inner = nestings, current
        self.lower = max(self.lower, size)
        return entries

    def _scale(self, k: int, size: float) -> tuple[float, float]:
        """The size of the derivative, or of what it is negligible against, and the tolerance."""
        epsilon = self.probe.epsilon
        rtol = _default(self.rtol, tolerances.difference_rtol(epsilon, k))
        if k > 1:
            size = max(size, tolerances.COARSE_FLOOR * self.lower)
            return size, rtol * size + (self.atol or 0.0)
        rounding = tolerances.rounding_atol(epsilon) * self.size
        if size > rounding:
            return size, rtol * size + _default(self.atol, rounding)
        zero = tolerances.zero_atol(epsilon) * self.size
        return self.size, _default(self.atol, zero)

    def _differences(
        self, axes: Sequence[int], evaluate: Evaluation, tolerance: float
    ) -> tuple[np.ndarray, np.ndarray]:
        width, epsilon = len(self.probe.directions), self.probe.epsilon
        wanted = tolerance * np.ones(1 if evaluate is self.function else len(self.nestings))
        sigma = noise(evaluate, axes[-1], width, epsilon)
        return extrapolate(
            lambda step: mixed_difference(evaluate, axes, width, step, epsilon, sigma),
            step_ladder(self.probe.largest, len(axes), epsilon),
            wanted,
        )

    def _compiled(self, k: int, nestings: dict[tuple[str, ...], Terms]) -> Evaluation:
        """One program for all nestings; if it cannot be formed, say which one is to blame."""
        origin = np.zeros(len(self.probe.directions))
        trouble = (TypeError, ValueError, NotImplementedError)
        together = evaluation(self.probe, list(nestings.values()), self.jit)
        try:
            together(origin)
        except trouble as original:
            for nesting, terms in nestings.items():
                try:
                    evaluation(self.probe, [terms], self.jit)(origin)
                except trouble as error:
                    msg = (
                        f"The derivative of order {k}, nesting {'-'.join(nesting)} (outermost "
                        f"mode first), cannot be formed: {type(error).__name__}: {error}\n"
                        'If the function has one mode by design, pass modes=("rev",) or ("fwd",).'
                    )
                    raise DerivativeError(msg) from error
            raise original
        return together

    def _transpose(
        self, k: int, nestings: list[tuple[str, ...]], values: np.ndarray, size: float
    ) -> list[DerivativeEntry]:
        rtol = _default(self.transpose_rtol, tolerances.transpose_rtol(self.probe.epsilon, k))
        floor = tolerances.rounding_atol(self.probe.epsilon) * self.size
        tolerance = rtol * max(size, self.lower) + max(floor, self.atol or 0.0)
        entries = [
            compare(k, nesting, "nesting", value, values[0], 0.0, tolerance, size)
            for nesting, value in zip(nestings[1:], values[1:], strict=True)
        ]
        for entry in entries:
            judge([entry])
        return entries


def _default(given: float | None, default: float) -> float:
    return default if given is None else given
