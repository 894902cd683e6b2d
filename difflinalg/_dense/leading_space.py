"""The leading invariant space of a Hermitian matrix, with the derivative of its projector.

Rule. `P` is an isometry whose columns span the space of the `rank` largest magnitudes, `Q = I - P
P^H`. The frame is carried along without turning inside of the space, `P^H P_dot = 0`, so that

    P_dot = X,    X (P^H A P) - Q A X = Q A_dot P,    X in the range of Q

No difference of two kept values occurs: clusters inside of the space are harmless, at any gap and
to any order. Only the gap at the cut must be open. `P` is not the derivative of eigenvectors: use
`P^H A P`, which then is diagonal in value but not in its derivative, in place of the values.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from difflinalg._core import checks, dense_checks, lapack, tolerances
from difflinalg._core.algebra import adjoint, herm, mm
from difflinalg._core.operation import operation


class LeadingSpaceResult(NamedTuple):
    """An isometry onto the leading space, and what was kept."""

    frame: Array  # (..., n, rank)
    values: Array  # (..., rank), eigenvalues of the kept pairs, not differentiated
    kept: Array  # (...), how many columns are not zero
    gap: Array  # (...), between the last kept and first dropped magnitude, relative to the former


@dataclass(frozen=True)
class _Cut:
    rank: int
    keep_multiplets: bool
    multiplet_rtol: float


class _Basis(NamedTuple):
    """All eigenpairs by decreasing magnitude, and masks; never differentiated, all floating."""

    w: Array  # (n,)
    v: Array  # (n, n)
    kept: Array  # (rank,), 1 for the kept columns
    guard: Array  # (), NaN where a multiplet is cut, else 1
    gap: Array  # ()


def leading_space(
    a: ArrayLike,
    rank: int,
    *,
    keep_multiplets: bool = False,
    multiplet_rtol: float | None = None,
) -> LeadingSpaceResult:
    """An isometry onto the space of the `rank` largest eigenvalues by magnitude.

    Args:
        a: shape `(..., n, n)`, real or complex; its Hermitian part is decomposed.
        rank: dimension of the space, a Python integer from 1 to `n`.
        keep_multiplets: where the rank cuts through equal magnitudes, drop the members inside
            of it too; their columns are zero, `kept` counts the others.
        multiplet_rtol: two magnitudes that follow each other are equal when they differ by less
            than this times the larger one; `eps^(2/3)` by default. An approximate multiplet,
            split by an earlier truncation, is kept whole by a larger value.

    Returns:
        `LeadingSpaceResult(frame, values, kept, gap)`.

    Raises:
        TypeError: if `a` is not an array of numbers or `rank` not a static integer.
        ValueError: if `a` is not square, `rank` is out of range, or (outside jit and other
            transformations) `a` contains NaN or inf; under jit the result is NaN.

    Derivatives:
        Forward and reverse mode in any nesting, for losses that depend on the space alone, or
        on its frame in a covariant way (a tensor network that is contracted with the frame). The
        frame does not turn inside of the space, so that gaps between kept values do not matter.
        NaN where a multiplet is cut, and where the rank cuts through zeros. `values` have zero
        derivative: differentiate `frame^H a frame`.

    Cost:
        O(n^3), one full decomposition; a tangent costs four products of it with the frame.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg import linalg
        >>> result = linalg.leading_space(jnp.diag(jnp.array([1.0, -3.0, 2.0])), 2)
        >>> print(result.values, result.kept, abs(result.frame[:, 0]))
        [-3.  2.] 2 [0. 1. 0.]

    References:
        Francuz, Schuch and Vanhecke, "Stable and efficient differentiation of tensor network
        algorithms" (2025), arXiv:2311.11894, section III (gauge-independent projectors).
        Edelman, Arias and Smith, "The geometry of algorithms with orthogonality constraints"
        (1998), section 2.5 (frames that do not turn).
    """
    matrix = checks.as_square("leading_space", a)
    rank = dense_checks.check_rank("leading_space", rank, matrix.shape[-1])
    checks.refuse_nonfinite("leading_space", matrix)
    rtol = tolerances.multiplet_rtol(matrix.dtype) if multiplet_rtol is None else multiplet_rtol
    return _leading_space(matrix, _Cut(rank, bool(keep_multiplets), float(rtol)))


@partial(jax.jit, static_argnums=1)
def _leading_space(a: Array, cut: _Cut) -> LeadingSpaceResult:
    one = partial(_leading_space_one, cut=cut)
    for _ in range(a.ndim - 2):
        one = jax.vmap(one)
    return one(herm(a))


def _leading_space_one(a: Array, cut: _Cut) -> LeadingSpaceResult:
    frame, basis = leading_space_core(a, cut)
    basis = lax.stop_gradient(basis)
    kept = jnp.sum(basis.kept).astype(jnp.int32)
    return LeadingSpaceResult(frame, basis.w[: cut.rank] * basis.kept, kept, basis.gap)


@operation(statics=1)
def leading_space_core(a: Array, cut: _Cut) -> tuple[Array, _Basis]:
    """The isometry and the eigenpairs it belongs to."""
    w, v = lapack.eigh(a)
    order = jnp.argsort(-jnp.abs(w))
    w, v = w[order], v[:, order]
    defined = jnp.where(jnp.all(jnp.isfinite(a)), 1.0, jnp.nan).astype(w.dtype)
    n, magnitude = w.size, jnp.abs(w)
    drop = magnitude - jnp.append(magnitude[1:], -jnp.inf)
    floor = tolerances.rank_rtol(w.dtype, n) * magnitude[0]
    bound = ((drop > cut.multiplet_rtol * magnitude) | (magnitude <= floor))[: cut.rank]
    index = jnp.arange(cut.rank)
    count = jnp.max(jnp.where(bound, index + 1, 0))
    guard = jnp.where(count > 0 if cut.keep_multiplets else bound[-1], 1.0, jnp.nan)
    kept = (index < count) if cut.keep_multiplets else jnp.ones_like(index, bool)
    kept = kept.astype(w.dtype) * defined
    last = jnp.maximum(count, 1) - 1 if cut.keep_multiplets else cut.rank - 1
    gap = drop[last] / jnp.where(magnitude[last] > 0.0, magnitude[last], 1.0)
    return v[:, : cut.rank] * kept, _Basis(w, v, kept, guard.astype(w.dtype), gap)


@leading_space_core.defjvp
def _leading_space_core_jvp(cut, primals, tangents):
    (a,), (a_dot,) = primals, tangents
    frame, basis = leading_space_core(a, cut)
    basis = lax.stop_gradient(basis)
    frame_dot = jax.checkpoint(leading_space_tangent)(a, frame, basis, a_dot)
    return (frame, basis), (frame_dot, jax.tree.map(jnp.zeros_like, basis))


def leading_space_tangent(a: Array, frame: Array, basis: _Basis, a_dot: Array) -> Array:
    """`P_dot` of the module docstring."""
    rank = basis.kept.size
    live = basis.kept > 0.0
    core = herm(mm(adjoint(frame), mm(a, frame)))
    inside = jnp.arange(basis.w.size) < jnp.sum(live)
    w = basis.w / jnp.abs(basis.w[0])  # the equation is solved for a matrix of norm 1
    difference = jnp.where(inside[:, None] | ~live, 1.0, w[:rank] - w[:, None])
    scale = jnp.abs(basis.w[0])

    def outside(x: Array) -> Array:
        return x - mm(frame, mm(adjoint(frame), x))

    def operator(x: Array) -> Array:
        part = outside(x)
        moved = (mm(part, core) - outside(mm(a, part))) / scale
        return jnp.where(live, moved + x - part, x)

    def solve(_, g: Array) -> Array:
        return mm(basis.v, mm(adjoint(basis.v), g) / difference)

    def transpose_solve(_, g: Array) -> Array:
        return jnp.conj(solve(None, jnp.conj(g)))

    g = outside(mm(a_dot, frame)) / scale
    x = lax.custom_linear_solve(operator, g, solve, transpose_solve)
    return outside(x) * basis.kept * basis.guard
