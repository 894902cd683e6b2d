"""`svds`: singular triplets of an operator, as `scipy.sparse.linalg.svds`.

Rule. The triplets `A v = s u`, `A^H u = s v` are the eigenpairs `(s, [u; v] / sqrt 2)` of the
Hermitian operator `[[0, A], [A^H, 0]]`, which is not squared, and their derivative is that of
`eigsh`: outside of the largest triplets `[[s_j, -A], [-A^H, s_j]]` is positive definite, outside of
the smallest it is indefinite.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import Tracer

from difflinalg._core import checks, krylov_checks, tolerances
from difflinalg._core.operation import operation
from difflinalg._core.refuse import refuse_where
from difflinalg._core.results import EigenInfo
from difflinalg._krylov import golub_kahan
from difflinalg._krylov.eigsh_rule import Found, Operators, Spec, eigsh_tangents
from difflinalg._krylov.operator import (
    Linear,
    cast,
    image_dtype,
    is_matrix,
    linear,
    matrix_product,
    space_of,
)
from difflinalg._krylov.orthogonal import scaled_norms
from difflinalg._krylov.thick_restart import Plan

MAX_RESTARTS = 1000


class Maps(NamedTuple):
    """`A`, `A^H` and the Hermitian operator of both, which alone is differentiated."""

    forward: Linear
    backward: Linear
    both: Linear


@dataclass(frozen=True)
class SvdSpec:
    """Static options: the run, the sizes of `A`, whether by a dense decomposition."""

    plan: Plan
    m: int
    n: int
    dense: bool
    level: int = 0  # how many rules lie above this one

    @property
    def rule(self) -> Spec:
        """The options of the rule of the Hermitian operator."""
        which = {"LM": "LA", "SM": "SM"}[self.plan.which]
        return Spec(replace(self.plan, which=which), self.dense, False, 0, self.level)


@operation(statics=1)
def svds_core(maps: Maps, spec: SvdSpec) -> Found:
    """The wanted triplets in ascending order, as eigenpairs of the Hermitian operator."""
    m, n, plan = spec.m, spec.n, spec.plan
    dtype = maps.forward.program.out_avals[0].dtype
    if spec.dense:
        pairs = golub_kahan.dense(golub_kahan.matrix_of(maps.forward, n, dtype), plan)
    else:
        key = jax.random.key(0)
        start = jax.random.normal(jax.random.key(1), (min(m, n),), dtype)
        # The spectrum of A^H A must not have zeros that A does not have.
        forward, backward = (maps.forward, maps.backward)[:: 1 if m >= n else -1]
        pairs = golub_kahan.run(forward, backward, start, max(m, n), plan, key)
        if m < n:
            pairs = pairs._replace(v=golub_kahan.swapped(pairs.v, n))
    w = pairs.w
    residuals = scaled_norms(maps.both.rows(pairs.v) - w[:, None] * pairs.v)
    nearest = jnp.min(jnp.abs(w[:, None] - pairs.others[None, :]), axis=1)
    scale = jnp.maximum(jnp.max(w), pairs.scale)
    cut = (nearest <= tolerances.multiplet_rtol(w.dtype) * scale).astype(w.dtype)
    order = jnp.argsort(w)
    cluster = tolerances.cluster_rtol(w.dtype, max(spec.level - 1, 0)) * scale
    return Found(
        w[order], pairs.v[order], residuals[order], pairs.converged[order], cut[order], pairs.gap,
        scale, cluster + jnp.max(residuals), pairs.defect, pairs.products + 2 * w.shape[0],
        pairs.restarts,
    )  # fmt: skip


@partial(svds_core.defjvp, symbolic_zeros=True)
def _svds_core_jvp(spec: SvdSpec, primals: Any, tangents: Any) -> tuple[Found, Found]:
    (maps,), (maps_dot,) = primals, tangents
    found = svds_core(maps, replace(spec, level=spec.level + 1))
    ops, ops_dot = (Operators(x.both, None, None) for x in (maps, maps_dot))
    w_dot, v_dot = eigsh_tangents(ops, ops_dot, found, spec.rule)
    return found, jax.tree.map(jnp.zeros_like, found)._replace(w=w_dot, v=v_dot)


def svds(
    A: Any,
    k: int = 6,
    ncv: int | None = None,
    tol: float = 0,
    which: str = "LM",
    v0: Any = None,
    maxiter: int | None = None,
    return_singular_vectors: bool | str = True,
    solver: str = "arpack",
    *,
    return_info: bool = False,
) -> Any:
    """The `k` largest or smallest singular values and vectors of an operator.

    Args:
        A: an array `(m, n)`, a BCOO matrix, or a linear function from flat arrays `(n,)` to flat
            arrays `(m,)` that may close over differentiated, batched or traced arrays.
        k: how many triplets, for `'LM'` at most the rank of `A`.
        ncv: vectors in the basis, `max(20, 4 k + 16)` at most by default.
        tol: residual to reach, relative to the singular value; 0 is machine precision.
        which: `'LM'` for the largest, `'SM'` for the smallest. The smallest converge slowly where
            they are close to each other, compared with the largest; those of an array come
            from a dense decomposition.
        v0: an example of the vectors that a function acts on, an array `(n,)` or its shape.
        maxiter: largest number of restarts, 1000 by default.
        return_singular_vectors: if false, only the values are returned; with `'u'` or `'vh'` only
            these vectors, and None in the place of the others.
        solver: `'arpack'`, the only one: Golub-Kahan-Lanczos, whatever the name.
        return_info: append an `EigenInfo`.

    Returns:
        `u`, shape `(m, k)`, `s`, shape `(k,)`, ascending as in SciPy, and `vh`, shape `(k, n)`.

    Raises:
        ValueError: if shapes do not fit.
        NotConverged: outside of jit and other transformations, as in `eigsh`.

    Derivatives:
        Forward and reverse mode in any nesting, with respect to an array `A` and to what a
        function closes over, with the exact truncation term. Where kept values coincide they are
        right for losses that depend on projectors. NaN where a multiplet is cut. Zero singular
        values have no derivative: NaN, and with `'LM'` the value too, whose vectors are not
        determined.

    Cost:
        Each step takes a product with `A` and one with `A^H`, and `4 ncv (m + n)` operations.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg.scipy.sparse.linalg import svds
        >>> print(svds(jnp.diag(jnp.array([1.0, 3.0, 2.0])), 2)[1])
        [2. 3.]

    References:
        Golub and Kahan, "Calculating the singular values and pseudo-inverse of a matrix" (1965),
        equation 2.1 (the Hermitian operator).
        Baglama and Reichel, "Augmented implicitly restarted Lanczos bidiagonalization methods"
        (2005), equations 2.9 and 3.4.
        Francuz, Schuch and Vanhecke (2025), arXiv:2311.11894, section III (truncation term).
    """
    name = "svds"
    checks.check_choice(name, "which", which, ("LM", "SM"))
    checks.check_choice(name, "solver", solver, ("arpack",))
    if isinstance(return_singular_vectors, str):
        checks.check_choice(name, "return_singular_vectors", return_singular_vectors, ("u", "vh"))
    forward, m, n, dtype = _operator(name, A, v0)
    k = krylov_checks.check_count(name, "k", k, 1, min(m, n))
    transpose = forward.transpose(n, dtype)
    backward = linear(lambda y: jnp.conj(transpose(jnp.conj(y))), jax.ShapeDtypeStruct((m,), dtype))
    both = linear(
        golub_kahan.hermitian_operator(forward, backward, m),
        jax.ShapeDtypeStruct((m + n,), dtype),
    )
    length = max(20, 2 * k + min(2 * k, 40) + 16) if k > 1 else 20
    if ncv is not None:
        length = krylov_checks.check_count(name, "ncv", ncv, min(k + 1, m, n), min(m, n))
        length = max(length, k + 3)
    restarts, tol = krylov_checks.check_limits(name, maxiter, MAX_RESTARTS, tol)
    plan = Plan(k, which, length, 1, restarts, tol, True)
    is_array = is_matrix(A) and not hasattr(A, "todense")
    dense = length + 3 > min(m, n) or (is_array and which == "SM")
    found = svds_core(Maps(forward, backward, both), SvdSpec(plan, m, n, dense))
    return _result(name, found, which, m, return_singular_vectors, return_info)


def _result(name: str, found: Found, which: str, m: int, vectors: bool | str, info: bool):
    """Report what did not converge or is not determined, and put the result together."""
    fixed = jax.lax.stop_gradient(found)
    report = EigenInfo(
        jnp.all(fixed.converged > 0.0), fixed.residuals, fixed.products.astype(jnp.int32),
        fixed.restarts.astype(jnp.int32), fixed.gap, fixed.scale, jnp.any(fixed.cut > 0.0),
        fixed.defect,
    )  # fmt: skip
    if not isinstance(report.converged, Tracer) and not bool(report.converged):
        what = f"{int(jnp.sum(fixed.converged))} of {len(fixed.w)} triplets are accurate"
        parts = (fixed.v[:, :m].T, fixed.w, jnp.conj(fixed.v[:, m:]), report)
        krylov_checks.refuse_unconverged(name, what, parts, "Increase maxiter, ncv or tol.")
    is_zero = fixed.w <= tolerances.rank_rtol(fixed.w.dtype, fixed.v.shape[1]) * fixed.scale
    lost = (fixed.converged == 0.0) | (is_zero & (which == "LM"))
    guard = jnp.where(lost, jnp.nan, 1.0).astype(fixed.w.dtype)

    def guarded(x: Array, fixed_x: Array, condition: Array) -> Array:
        return fixed_x + refuse_where(x - fixed_x, condition)

    s = guarded(found.w, fixed.w, is_zero) * guard
    result: list[Any] = [s]
    if vectors:
        x = guarded(found.v, fixed.v, is_zero[:, None])
        x = x * guard[:, None] * jnp.sqrt(2.0).astype(s.dtype)
        u, vh = x[:, :m].T, jnp.conj(x[:, m:])
        result = [None if vectors == "vh" else u, s, None if vectors == "u" else vh]
    if info:
        result.append(report)
    return tuple(result) if len(result) > 1 else result[0]


def _operator(name: str, A: Any, v0: Any):
    """The map of flat vectors, its two sizes and the dtype of both."""
    if is_matrix(A):
        krylov_checks.check_matrix_shape(name, A.shape)
        m, n = A.shape
        inexact = jnp.issubdtype(A.dtype, jnp.inexact)
        dtype = jnp.dtype(A.dtype if inexact else jnp.result_type(float))
        krylov_checks.check_precision(name, dtype)
        matrix = cast(A, dtype)
        return linear(matrix_product(matrix), jax.ShapeDtypeStruct((n,), dtype)), m, n, dtype
    if not callable(A):
        krylov_checks.refuse_operator(name, A)
    if v0 is None:
        krylov_checks.require_example(name, "v0")
    space = space_of(name, v0)
    dtype = image_dtype(A, space)
    krylov_checks.check_precision(name, dtype)
    like = jax.ShapeDtypeStruct((space.size,), dtype)
    image = jax.eval_shape(A, like)
    krylov_checks.check_flat(
        name, jnp.shape(v0) if not hasattr(v0, "shape") else v0.shape, image.shape
    )
    return linear(lambda x: jnp.asarray(A(x), dtype), like), image.shape[0], space.size, dtype
