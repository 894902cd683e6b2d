"""Does a loss of the factors of a decomposition depend on what the decomposition leaves open?

The factors of `A = U diag(s) V^H` are fixed up to `U -> U Q, V -> V Q` with any unitary Q that
commutes with diag(s): phases of the columns (signs, if real), and rotations inside a cluster of
equal values. Where s is zero the two sides may be changed independently, and mixed with the
vectors that a thin factor leaves out. For `A = V diag(w) V^H` it is `V -> V Q`.

With `dL = Re tr(Ubar^H dU)` (JAX's cotangents are the complex conjugates) and `dU = U X`,
`dV = V X` for an anti-Hermitian X, the loss is invariant to first order if and only if

    anti(U^H Ubar + V^H Vbar)[i, j] = 0        for i, j in one cluster, i = j included.

The diagonal is imaginary: the phases, absent for real input, where signs are tried instead.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from difflinalg._core.checks import (
    as_matrix,
    as_square,
    check_callable,
    check_choice,
    refuse_nonfinite,
)
from difflinalg._core.tolerances import cluster_rtol, epsilon
from difflinalg._testing.tolerances import gauge_rtol

TRIALS = 4
"""Random gauge transformations of each kind; a dependence escapes one only by accident."""

Clusters = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class GaugeReport:
    """What `check_gauge` found. Residuals and changes are relative to the size of the loss.

    Attributes:
        invariant: whether everything below is within `tolerance`.
        phase_residual: derivative of the loss with respect to the phases of single columns; for
            real input the change of the loss when the sign of one column is flipped.
        cluster_residual: derivative with respect to rotations inside clusters.
        phase_change: change of the loss under random phases (signs) of all columns.
        cluster_change: change of the loss under random rotations inside clusters.
        columns: the columns whose phase or sign the loss sees.
        clusters: indices of numerically degenerate values; zero singular values come last.
        tolerance: what counts as zero.
        decomposition: "svd" or "eigh".
    """

    invariant: bool
    phase_residual: float
    cluster_residual: float
    phase_change: float
    cluster_change: float
    columns: tuple[int, ...]
    clusters: Clusters
    tolerance: float
    decomposition: str

    @property
    def value_change(self) -> float:
        """The largest change of the loss under the transformations that were applied."""
        return max(self.phase_change, self.cluster_change)

    def __bool__(self) -> bool:
        return self.invariant

    def __str__(self) -> str:
        vectors = "singular vectors" if self.decomposition == "svd" else "eigenvectors"
        numbers = (
            f"phases: residual {self.phase_residual:.1e}, change {self.phase_change:.1e}; "
            f"clusters {list(self.clusters)}: residual {self.cluster_residual:.1e}, "
            f"change {self.cluster_change:.1e}; tolerance {self.tolerance:.1e}"
        )
        if self.invariant:
            return f"The loss does not depend on the gauge of the {vectors} ({numbers})."
        text = []
        if max(self.phase_residual, self.phase_change) > self.tolerance:
            partner = "u_i v_i^H" if self.decomposition == "svd" else "v_i v_i^H"
            text.append(
                f"The loss depends on the phases (signs) of the {vectors}, columns "
                f"{list(self.columns)}. They are arbitrary, and the derivative takes a gauge for "
                f"granted: use combinations that are free of them ({partner}, |v|^2, overlaps "
                "squared), or fix the phase of each column inside the loss."
            )
        if max(self.cluster_residual, self.cluster_change) > self.tolerance:
            text.append(
                f"The loss depends on the basis inside a cluster of degenerate values, one of "
                f"{list(self.clusters)}. The basis is arbitrary, and no derivative exists: use "
                "each cluster as a whole, through its projector V_c V_c^H, with one weight for "
                "all its members, and truncate between clusters, never inside one."
            )
        return " ".join(text) + f" ({numbers})"


def check_gauge(
    f: Callable[..., Any],
    a: ArrayLike,
    *,
    decomposition: str = "svd",
    rtol: float | None = None,
    seed: int = 0,
) -> GaugeReport:
    """Check whether a loss of the factors of `a` is free of the gauge of the decomposition.

    Two independent ways: the cotangents of the factors (taken as constants) must be orthogonal to
    all infinitesimal gauge transformations, and finite ones, applied at random, must not change
    the loss. A loss that passes has the derivative that the rules of this library return; for one
    that does not, the result of any rule is an accident.

    Args:
        f: the loss, real and scalar: `f(u, s, vh)` of the thin factors for "svd", `f(w, v)` for
            "eigh".
        a: shape `(m, n)`; for "eigh" `(n, n)`, of which the Hermitian part is used.
        decomposition: "svd" or "eigh".
        rtol: what counts as zero, relative to the largest of |f| and the norms of the cotangents;
            by default `sqrt(eps)`.
        seed: seed of the random transformations.

    Returns:
        A report, true if the loss is invariant; `str(report)` says what to do if not.

    Raises:
        ValueError: if `a` is not one matrix (square, for "eigh"), if `decomposition` is unknown,
            or if `f` is not a finite real scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg.testing import check_gauge
        >>> a = jnp.array([[2.0, 0.0], [0.0, 1.0]])
        >>> check_gauge(lambda u, s, vh: jnp.sum((u * s) @ vh), a).invariant
        True
        >>> check_gauge(lambda u, s, vh: jnp.sum(u), a).invariant
        False

    References:
        Wan and Zhang, "Automatic differentiation for complex valued SVD" (2019), arXiv:1909.02659.
        Francuz, Schuch and Vanhecke, "Stable and efficient differentiation of tensor network
        algorithms", Phys. Rev. Research 7, 013237 (2025), arXiv:2311.11894.
    """
    check_callable("check_gauge", f)
    check_choice("check_gauge", "decomposition", decomposition, ("svd", "eigh"))
    check = as_square if decomposition == "eigh" else as_matrix
    array = check("check_gauge", a, half=True)
    if array.ndim != 2:
        msg = f"check_gauge needs one matrix, shape (m, n), got shape {array.shape}."
        raise ValueError(msg)
    refuse_nonfinite("check_gauge", array)
    gauge = _Gauge(np.asarray(array), decomposition)
    rng = np.random.default_rng(seed)
    value, residual = gauge.residual(f)
    scale = max(abs(value), gauge.cotangent_norm) or 1.0
    tolerance = gauge_rtol(epsilon(array.dtype)) if rtol is None else rtol

    def change(left: np.ndarray, right: np.ndarray) -> float:
        return abs(gauge.value(f, left, right) - value) / scale

    columns = np.diagonal(residual) / scale
    if not gauge.is_complex:
        columns = np.array([change(*pair) for pair in gauge.flips()])
    inside = np.where(np.eye(len(residual), dtype=bool), 0.0, residual) / scale
    inside = np.append(inside, gauge.outside / scale)
    phases = [change(*gauge.random_phases(rng)) for _ in range(TRIALS)]
    rotations = [
        change(*gauge.random_rotation(rng)) for _ in range(TRIALS if gauge.clusters else 0)
    ]
    found = (
        float(np.max(columns, initial=0.0)),
        float(np.max(inside, initial=0.0)),
        float(np.max(phases, initial=0.0)),
        float(np.max(rotations, initial=0.0)),
    )
    return GaugeReport(
        max(found) <= tolerance,
        *found,
        columns=tuple(int(i) for i in np.flatnonzero(columns > tolerance)),
        clusters=gauge.clusters,
        tolerance=tolerance,
        decomposition=decomposition,
    )


def _adjoint(x: np.ndarray) -> np.ndarray:
    return np.conj(x.T)


def _skew(x: np.ndarray) -> np.ndarray:
    return (x - _adjoint(x)) / 2.0


def _clusters(values: np.ndarray, tolerance: float) -> list[list[int]]:
    """Runs of sorted values whose neighbours are within the tolerance."""
    runs: list[list[int]] = []
    for index, value in enumerate(values):
        if index and abs(value - values[index - 1]) <= tolerance:
            runs[-1].append(index)
        else:
            runs.append([index])
    return runs


class _Gauge:
    """The factors of one matrix, the transformations that they leave open, and the residual.

    `left` and `right` are the full bases, of which the thin factors are the first r columns; for
    "eigh" there is no left one. `null` are the columns of vanishing singular values.
    """

    def __init__(self, a: np.ndarray, decomposition: str):
        self.is_svd = decomposition == "svd"
        self.is_complex = np.iscomplexobj(a)
        self.dtype = a.dtype
        self.shape = a.shape
        unit = epsilon(a.dtype)
        if self.is_svd:
            self.left, self.values, vh = np.linalg.svd(a, full_matrices=True)
            self.right = _adjoint(vh)
            width = np.max(self.values, initial=0.0)
            largest = width
        else:
            self.values, self.right = np.linalg.eigh((a + _adjoint(a)) / 2)
            self.left = self.right
            width = np.ptp(self.values) if self.values.size else 0.0
            largest = np.max(abs(self.values), initial=0.0)
        tolerance = max(cluster_rtol(a.dtype) * width, 4.0 * unit * max(a.shape) * largest)
        null = 2.0 * self.values <= tolerance if self.is_svd else np.zeros(len(self.values), bool)
        self.null = [int(i) for i in np.flatnonzero(null)]
        runs = [run for run in _clusters(self.values[~null], tolerance) if len(run) > 1]
        self.runs = runs
        self.clusters: Clusters = tuple(tuple(run) for run in [*runs, self.null] if run)
        self.cotangent_norm = 0.0
        self.outside = 0.0

    def value(self, f: Callable[..., Any], left: np.ndarray, right: np.ndarray) -> float:
        """The loss of the transformed factors, the first columns of `left @ Q`, `right @ Q`."""
        return float(f(*self._factors(self.left @ left, self.right @ right)))

    def _factors(self, left: np.ndarray, right: np.ndarray) -> list[jax.Array]:
        rank = len(self.values)
        values, right = jnp.asarray(self.values), right[:, :rank].astype(self.dtype)
        if self.is_svd:
            u = jnp.asarray(left[:, :rank].astype(self.dtype))
            return [u, values, jnp.asarray(_adjoint(right))]
        return [values, jnp.asarray(right)]

    def residual(self, f: Callable[..., Any]) -> tuple[float, np.ndarray]:
        """The loss, and the moduli of its derivatives along the gauge, shape `(r, r)`.

        Zero outside the clusters. Sets `cotangent_norm` and, for zero singular values, `outside`:
        what mixing with the vectors that the thin factors leave out does.
        """
        value, pullback = jax.vjp(f, *self._factors(self.left, self.right))
        if jnp.shape(value) != () or jnp.iscomplexobj(value) or not jnp.isfinite(value):
            msg = (
                "check_gauge needs a loss that returns a finite real scalar, got "
                f"shape {jnp.shape(value)}, dtype {jnp.result_type(value)}, value {value}."
            )
            raise ValueError(msg)
        cotangents = [np.asarray(bar) for bar in pullback(jnp.ones_like(value))]
        if self.is_svd:
            u_bar, v_bar = np.conj(cotangents[0]), cotangents[2].T
        else:
            u_bar, v_bar = np.zeros_like(self.right), np.conj(cotangents[1])
        self.cotangent_norm = float(max(np.linalg.norm(u_bar), np.linalg.norm(v_bar)))
        rank, null = len(self.values), self.null
        left, right = _adjoint(self.left) @ u_bar, _adjoint(self.right) @ v_bar
        inside = np.eye(rank, dtype=bool)
        for run in self.runs:
            inside[np.ix_(run, run)] = True
        total = np.where(inside, abs(_skew(left[:rank] + right[:rank])), 0.0)
        for side in (left, right) if null else ():
            block = np.ix_(null, null)
            total[block] = np.maximum(total[block], abs(_skew(side[:rank]))[block])
            self.outside = max(self.outside, float(np.max(abs(side[rank:, null]), initial=0.0)))
        return float(value), total

    def _identity(self) -> tuple[np.ndarray, np.ndarray]:
        dtype = complex if self.is_complex else float
        return np.eye(self.left.shape[1], dtype=dtype), np.eye(self.right.shape[1], dtype=dtype)

    def flips(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each column, the change of its sign (on the left alone where the value is zero)."""
        pairs = []
        for index in range(len(self.values)):
            left, right = self._identity()
            left[index, index] = -1.0
            if index not in self.null:
                right[index, index] = -1.0
            pairs.append((left, right))
        return pairs

    def random_phases(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Phases (signs, if real) of all columns, independent on both sides at value zero."""
        left, right = self._identity()
        for index in range(len(self.values)):
            left[index, index] = self._haar(rng, 1)[0, 0]
            right[index, index] = left[index, index]
            if index in self.null:
                right[index, index] = self._haar(rng, 1)[0, 0]
        return left, right

    def random_rotation(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Unitary transformations inside every cluster, Haar distributed."""
        left, right = self._identity()
        for run in self.runs:
            block = np.ix_(run, run)
            left[block] = self._haar(rng, len(run))
            right[block] = left[block]
        for side in (left, right) if self.null else ():
            free = [*self.null, *range(len(self.values), len(side))]
            side[np.ix_(free, free)] = self._haar(rng, len(free))
        return left, right

    def _haar(self, rng: np.random.Generator, size: int) -> np.ndarray:
        draw = rng.standard_normal((size, size))
        if self.is_complex:
            draw = draw + 1j * rng.standard_normal((size, size))
        q, r = np.linalg.qr(draw)
        diagonal = np.diagonal(r)
        return q * (diagonal / abs(diagonal))
