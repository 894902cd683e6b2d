"""Eigenpairs of a Hermitian operator as one operation, and its derivative.

Rule. `A V = M V diag(w)`, `V^H M V = I`, `Q = I - V V^H M`. With `b_j = (A_dot - w_j M_dot) v_j`:

    w_dot_j = v_j^H b_j
    V_dot   = V C + X,     C[i, j] = v_i^H b_j / (w_j - w_i),    -v_i^H M_dot v_j / 2 in a cluster
    Q^H (A - w_j M) Q x_j = -Q^H b_j,    x_j in the range of Q

(Nelson 1976 for one pair; here all computed pairs are projected out, so that the matrix is
definite when they are extremal). Completed on the range of `V` by `M V V^H M`, and times the sign
that makes it positive, it is a regular Hermitian matrix that `lax.custom_linear_solve` solves,
transposes and differentiates. `x_j w_j` stands for column j of `X V^H A V`: inside of a cluster
the tangent of that is not diagonal, and a second derivative sees it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import tolerances
from difflinalg._core.algebra import adjoint, herm, inv0, mm
from difflinalg._core.operation import operation
from difflinalg._krylov import thick_restart
from difflinalg._krylov.block_solve import solve_rows
from difflinalg._krylov.operator import Linear
from difflinalg._krylov.orthogonal import combine, inner, random_rows, scaled_norms
from difflinalg._krylov.thick_restart import Plan, distance, order_of

MAX_STEPS = 10_000  # of the solve inside the rule


class Operators(NamedTuple):
    """`A`, `M` (None for the identity) and the inverse that the iteration uses.

    The inverse is that of `A - sigma M` with a shift, else that of `M`.
    """

    a: Linear
    m: Linear | None
    inverse: Linear | None


@dataclass(frozen=True)
class Spec:
    """Static options: the run, whether by a dense decomposition, whether with a shift."""

    plan: Plan
    dense: bool
    shifted: bool
    seed: int = 0
    level: int = 0  # how many rules lie above this one


class Found(NamedTuple):
    """Eigenpairs in ascending order, and what the info and the rule need; all floating."""

    w: Array  # (k,)
    v: Array  # (k, n), rows
    residuals: Array  # (k,), true ones
    converged: Array  # (k,)
    cut: Array  # (k,), 1 if a value that is not wanted coincides
    gap: Array  # ()
    scale: Array  # ()
    cluster: Array  # (), the gap up to which values are one cluster
    defect: Array  # ()
    products: Array  # ()
    restarts: Array  # ()


@operation(statics=1)
def eigsh_core(ops: Operators, start: Array, sigma: Array, spec: Spec) -> Found:
    """The wanted eigenpairs; `start` are rows to start from, `sigma` the shift."""
    pairs = (_dense if spec.dense else _iterate)(ops, start, sigma, spec)
    others = sigma + 1.0 / pairs.others if spec.shifted else pairs.others
    image = ops.a.rows(pairs.v)
    metric = pairs.v if ops.m is None else ops.m.rows(pairs.v)
    w = jnp.real(jnp.sum(jnp.conj(pairs.v) * image, axis=1)) if spec.shifted else pairs.w
    residuals = scaled_norms(image - w[:, None] * metric)
    scale = jnp.maximum(jnp.max(jnp.abs(w)), 0.0 if spec.shifted else pairs.scale)
    converged = pairs.converged
    if ops.inverse is not None:
        # The iteration judges itself; an inverse that is wrong shows in the true residual.
        size = jnp.maximum(
            jnp.max(scaled_norms(image) + jnp.abs(w) * scaled_norms(metric)), _size(ops.a, start)
        )
        bound = (tolerances.ritz_rtol(w.dtype) + spec.plan.tol) * size
        own = sigma + 1.0 / pairs.w if spec.shifted else w  # what the inverse makes of w
        missed = residuals + jnp.abs(w - own) * scaled_norms(metric)
        converged = jnp.where(missed <= bound, converged, 0.0)
    nearest = jnp.min(jnp.abs(w[:, None] - others[None, :]), axis=1)
    cut = (nearest <= tolerances.multiplet_rtol(w.dtype) * scale).astype(w.dtype)
    gap = jnp.min(nearest) if spec.shifted else pairs.gap
    order = jnp.argsort(w)
    return Found(
        w[order],
        pairs.v[order],
        residuals[order],
        converged[order],
        cut[order],
        gap,
        scale,
        tolerances.cluster_rtol(w.dtype, max(spec.level - 1, 0)) * scale + jnp.max(residuals),
        pairs.defect,
        pairs.products + w.shape[0],
        pairs.restarts,
    )


def _size(a: Linear, like: Array) -> Array:
    """The norm of the image of a random vector of norm 1."""
    return scaled_norms(a.rows(random_rows(jax.random.key(2), 1, like)))[0]


def _iterate(ops: Operators, start: Array, sigma: Array, spec: Spec) -> thick_restart.Pairs:
    """By thick-restart Lanczos."""
    del sigma
    metric = None if ops.m is None else ops.m.rows

    def apply(x: Array) -> Array:
        if spec.shifted:
            return _rows(ops.inverse, x if metric is None else metric(x))
        return ops.a.rows(x) if metric is None else _rows(ops.inverse, ops.a.rows(x))

    return thick_restart.run(apply, start, spec.plan, jax.random.key(spec.seed), metric)


def _rows(f: Linear | None, x: Array) -> Array:
    if f is None:  # the public function sees to it that there is one
        raise AssertionError
    return f.rows(x)


def _dense(ops: Operators, start: Array, sigma: Array, spec: Spec) -> thick_restart.Pairs:
    """By a decomposition of the whole matrix."""
    k, n, dtype = spec.plan.k, start.shape[1], start.dtype
    identity = jnp.eye(n, dtype=dtype)
    matrix = ops.a.rows(identity).T
    defect = jnp.max(jnp.abs(matrix - adjoint(matrix)))
    scale = jnp.max(jnp.abs(matrix))
    if ops.m is None:
        w, v = jnp.linalg.eigh(herm(matrix))
    else:
        factor = jnp.linalg.cholesky(ops.m.rows(identity).T)
        solve = partial(jax.scipy.linalg.solve_triangular, factor, lower=True)
        w, v = jnp.linalg.eigh(herm(solve(adjoint(solve(herm(matrix))))))
        v = solve(v, trans="C")
    values = 1.0 / (w - sigma) if spec.shifted else w
    order = order_of(spec.plan.which, values)
    found = jnp.concatenate([values[order], jnp.full((2,), jnp.inf, w.dtype)])
    is_next = jnp.arange(2) < (2 if spec.plan.which == "BE" else 1)
    others = jnp.where(is_next, found[k : k + 2], jnp.inf)
    away = distance(spec.plan.which, found[:k], others)
    zero = jnp.zeros((), w.dtype)
    return thick_restart.Pairs(
        found[:k],
        v[:, order[:k]].T,
        jnp.zeros_like(found[:k]),
        jnp.isfinite(found[:k]).astype(w.dtype),
        others,
        jnp.min(jnp.where(is_next, away, jnp.inf)),
        jnp.max(jnp.abs(w)),
        defect / jnp.where(scale > 0.0, scale, 1.0),
        zero + n,
        zero,
    )


@partial(eigsh_core.defjvp, symbolic_zeros=True)
def _eigsh_core_jvp(spec: Spec, primals: Any, tangents: Any) -> tuple[Found, Found]:
    ops, _, _ = primals
    found = eigsh_core(*primals, replace(spec, level=spec.level + 1))
    constants = jax.tree.map(jnp.zeros_like, found)
    w_dot, v_dot = eigsh_tangents(ops, tangents[0], found, spec)
    return found, constants._replace(w=w_dot, v=v_dot)


def eigsh_tangents(
    ops: Operators, ops_dot: Operators, found: Found, spec: Spec
) -> tuple[Array, Array]:
    """Tangents of eigenvalues and eigenvectors (rows) from those of what `A` and `M` close over."""
    w, v = found.w, found.v
    a_dot_v = ops.a.rows_dot(ops_dot.a, v)
    m_dot_v = None if ops.m is None or ops_dot.m is None else ops.m.rows_dot(ops_dot.m, v)
    if a_dot_v is None and m_dot_v is None:
        return jnp.zeros_like(w), jnp.zeros_like(v)
    b = jnp.zeros_like(v) if a_dot_v is None else a_dot_v
    if m_dot_v is not None:
        b = b - w[:, None] * m_dot_v
    overlap = inner(v, b)
    cluster = lax.stop_gradient(found.cluster)
    gaps = w[None, :] - w[:, None]
    c = inv0(gaps, cluster) * overlap
    if m_dot_v is not None:
        same = jnp.abs(gaps) <= cluster
        c = jnp.where(same, -0.5 * inner(v, m_dot_v), c)
    x = solve_outside(ops, found, spec, b)
    guard = jnp.where(found.cut > 0.0, jnp.nan, 1.0)[:, None]
    return jnp.real(jnp.diagonal(overlap)), (combine(c.T, v) + x) * guard


def _signs(w: Array, plan: Plan) -> Array | None:
    """The sign that makes `A - w_j` positive definite outside of the pairs, if there is one."""
    ones = jnp.ones_like(w)
    if plan.which == "BE":
        return jnp.where(jnp.arange(w.shape[0]) < plan.k // 2, ones, -ones)
    return {"SA": ones, "LA": -ones, "LM": jnp.where(w > 0.0, -ones, ones)}.get(plan.which)


def solve_outside(ops: Operators, found: Found, spec: Spec, b: Array) -> Array:
    """The rows `x_j` of the module docstring."""
    w, v = found.w, found.v
    signs = None if spec.shifted else _signs(w, spec.plan)
    definite = signs is not None
    scale = jnp.where(found.scale > 0.0, found.scale, 1.0)
    factor = lax.stop_gradient((1.0 / scale) * (signs if definite else jnp.ones_like(w)))[:, None]
    m_v = v if ops.m is None else ops.m.rows(v)
    times_m: Callable[[Array], Array] = (lambda x: x) if ops.m is None else ops.m.rows
    core = jnp.diag(w).astype(v.dtype)
    if w.shape[0] > 1:
        full = herm(inner(v, ops.a.rows(v)))
        core = lax.stop_gradient(core - full) + full

    def project(x: Array) -> Array:  # Q
        return x - combine(inner(m_v, x).T, v)

    def project_adjoint(x: Array) -> Array:  # Q^H
        return x - combine(inner(v, x).T, m_v)

    def operator(x: Array) -> Array:
        x_out = project(x)
        moved = ops.a.rows(x_out) - mm(core.T, times_m(x_out))
        return factor * project_adjoint(moved) + combine(inner(m_v, x).T, m_v)

    def outside(x: Array) -> Array:
        if ops.m is not None:
            x = project(x)
        return factor * project_adjoint(ops.a.rows(x) - w[:, None] * times_m(x))

    def solve(_: Any, rhs: Array) -> Array:
        # Twice, and to zero: what is left of a right side in the range of V is rounding, which
        # the operator cannot reach.
        rest = project_adjoint(project_adjoint(rhs))
        noise = tolerances.breakdown_rtol(w.dtype) * scaled_norms(rhs)[:, None]
        rest = jnp.where(scaled_norms(rest)[:, None] > noise, rest, 0.0)
        x = solve_rows(outside, rest, definite, min(10 * rhs.shape[1], MAX_STEPS))
        return project(x) + combine(inner(v, rhs).T, v)

    def transpose_solve(operator: Any, rhs: Array) -> Array:
        return jnp.conj(solve(operator, jnp.conj(rhs)))

    rhs = -factor * project_adjoint(b)
    return project(lax.custom_linear_solve(operator, rhs, solve, transpose_solve))
