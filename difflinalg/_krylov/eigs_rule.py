"""Eigenpairs of a general operator as one operation, and its derivative.

Rule. `A R = M R diag(w)`, `L^H A = diag(w) L^H M`, `L^H M R = I`, and `S = I - R L^H M`. With
`b_j = (A_dot - w_j M_dot) r_j`:

    w_dot_j = l_j^H b_j
    R_dot   = R C + X,     C[i, j] = l_i^H b_j / (w_j - w_i),    -l_i^H M_dot r_j / 2 in a cluster
    (A - w_j M) x_j = -(I - M R L^H) b_j,    x_j in the range of S

and the same for L with the adjoints of A and M and with `conj(w)`. All computed pairs are projected
out, and the equation for `x_j` is completed on the range of R by `M R L^H M` to a regular one,
which GMRES solves. The scale of `r_j` is a gauge; the public function fixes it afterwards.

As in `eigsh_rule`, `x_j w_j` stands for column j of `X L^H A R`: inside of a cluster the tangent
of that is not diagonal.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import tolerances
from difflinalg._core.algebra import adjoint, inv0, mm
from difflinalg._core.operation import operation
from difflinalg._krylov import krylov_schur
from difflinalg._krylov.eigsh_rule import Operators
from difflinalg._krylov.general_map import Side, adjoint_rows, complex_rows
from difflinalg._krylov.iterations import gmres_iteration
from difflinalg._krylov.krylov_schur import GeneralPairs
from difflinalg._krylov.ordered_schur import leading_pairs
from difflinalg._krylov.orthogonal import combine, inner, norms, scaled_norms
from difflinalg._krylov.thick_restart import Plan

RESTART, MAX_STEPS = 40, 20_000  # of the solve inside the rule
VALUES, VECTORS = 2, 3  # powers of `defective_limit` in the first derivative


@dataclass(frozen=True)
class GeneralSpec:
    """Static options: the run, dense or not, shifted or not, and whether with left vectors."""

    plan: Plan
    dense: bool
    shifted: bool
    left: bool
    level: int = 0  # how many rules lie above this one


class GeneralFound(NamedTuple):
    """Eigenpairs, the most wanted first, and what info and rule need; floating or complex."""

    w: Array  # (k,)
    r: Array  # (k, n), rows
    dual: Array  # (k, n), rows; zero if not asked for
    residuals: Array  # (k,), true ones
    converged: Array  # (k,)
    cut: Array  # (k,), 1 if a value that is not wanted coincides
    gap: Array  # ()
    scale: Array  # ()
    cluster: Array  # (), the gap up to which values are one cluster
    condition: Array  # (k,)
    products: Array  # ()
    restarts: Array  # ()


@operation(statics=1)
def eigs_core(ops: Operators, start: Array, sigma: Array, spec: GeneralSpec) -> GeneralFound:
    """The wanted eigenpairs; `start` is the row to start from, `sigma` the shift."""
    pairs, dual, left_converged = (_dense if spec.dense else _iterate)(ops, start, sigma, spec)
    dtype, r, real = start.dtype, pairs.v, jnp.finfo(start.dtype).dtype
    image = complex_rows(ops.a, r, dtype)
    metric = r if ops.m is None else complex_rows(ops.m, r, dtype)
    w, others = pairs.w, pairs.others
    if spec.shifted:
        w, others = _unshifted(w, sigma), _unshifted(others, sigma)
    residuals = norms(image - w[:, None] * metric)
    size = norms(image) + jnp.abs(w) * norms(metric)
    scale = jnp.maximum(jnp.max(size), 0.0 if spec.shifted else pairs.scale)
    # The iteration judges itself; an inverse that is not accurate shows in the true residual.
    honest = residuals <= (tolerances.ritz_rtol(real) + spec.plan.tol) * scale
    if dual is not None:
        dual, condition = _biorthogonal(ops, r, dual, dtype)
        known = left_converged & jnp.isfinite(condition)
    else:
        dual, condition = jnp.zeros_like(r), jnp.full((w.shape[0],), jnp.nan, real)
        known = jnp.ones((w.shape[0],), bool)
    nearest = jnp.min(jnp.abs(w[:, None] - others[None, :]), axis=1, initial=jnp.inf)
    amplified = jnp.max(residuals) * (jnp.max(condition) if spec.left else 1.0)
    close = tolerances.cluster_rtol(real, max(spec.level - 1, 0)) * scale
    return GeneralFound(
        w,
        r,
        dual,
        residuals,
        ((pairs.converged > 0.0) & honest & known).astype(real),
        (nearest <= tolerances.multiplet_rtol(real) * scale).astype(real),
        jnp.min(nearest),
        scale,
        close + amplified,
        condition,
        pairs.products + w.shape[0],
        pairs.restarts,
    )


def _unshifted(x: Array, sigma: Array) -> Array:
    """The eigenvalues of which `x = 1 / (w - sigma)`."""
    return jnp.where(x == 0.0, jnp.inf, sigma + 1.0 / jnp.where(x == 0.0, 1.0, x))


def _biorthogonal(ops: Operators, r: Array, dual: Array, dtype: Any) -> tuple[Array, Array]:
    """Left vectors with `L^H M R = I`, and the condition numbers of the eigenvalues."""
    m_r = r if ops.m is None else complex_rows(ops.m, r, dtype)
    overlap = inner(dual, m_r)
    dual = jnp.linalg.solve(overlap, jnp.conj(dual)).conj()
    return dual, norms(dual) * norms(r)


def _iterate(ops: Operators, start: Array, sigma: Array, spec: GeneralSpec):
    """By Krylov-Schur runs of the operator and, for left vectors, of its adjoint."""
    del sigma
    dtype, plan = start.dtype, spec.plan
    real = not jnp.issubdtype(dtype, jnp.complexfloating)

    def apply(x: Array) -> Array:
        if spec.shifted:
            return _inverse(ops).rows(x if ops.m is None else ops.m.rows(x))
        return ops.a.rows(x) if ops.m is None else _inverse(ops).rows(ops.a.rows(x))

    def apply_adjoint(x: Array) -> Array:
        if spec.shifted:
            x = adjoint_rows(_inverse(ops), x, dtype)
            return x if ops.m is None else adjoint_rows(ops.m, x, dtype)
        x = x if ops.m is None else adjoint_rows(_inverse(ops), x, dtype)
        return adjoint_rows(ops.a, x, dtype)

    order = krylov_schur.order_of(plan.which, real)
    key = jax.random.key(0)
    pairs = krylov_schur.run(apply, start, plan, key, order)
    if not spec.left:
        return pairs, None, None
    targets = jnp.conj(pairs.w)
    by_target = krylov_schur.order_by_targets(targets, order)
    key = jax.random.key(1)
    row = jax.random.normal(key, start.shape, dtype)
    left = krylov_schur.run(apply_adjoint, row, plan, key, by_target, targets)
    pairs = pairs._replace(
        products=pairs.products + left.products, restarts=pairs.restarts + left.restarts
    )
    dual = left.v if ops.inverse is None else adjoint_rows(_inverse(ops), left.v, dtype)
    return pairs, dual, left.converged > 0.0


def _inverse(ops: Operators):
    if ops.inverse is None:  # the public function sees to it that there is one
        raise AssertionError
    return ops.inverse


def _dense(ops: Operators, start: Array, sigma: Array, spec: GeneralSpec):
    """By a decomposition of the whole matrix."""
    k, (_, n), dtype = spec.plan.k, start.shape, start.dtype
    identity = jnp.eye(n, dtype=dtype)
    matrix = ops.a.rows(identity).T
    m = None if ops.m is None else ops.m.rows(identity).T
    standard = matrix if m is None else jnp.linalg.solve(m, matrix)
    real = not jnp.issubdtype(dtype, jnp.complexfloating)
    order = krylov_schur.order_of(spec.plan.which, real)

    def of_values(w: Array) -> Array:
        return order(1.0 / (w - sigma) if spec.shifted else w)

    w, v, others = leading_pairs(standard, of_values, k)
    finite = jnp.isfinite(w)
    dual = None
    if spec.left:
        by_target = krylov_schur.order_by_targets(jnp.conj(w), order)
        matched, u, _ = leading_pairs(adjoint(standard), by_target, k)
        u = u if m is None else jnp.linalg.solve(adjoint(m).astype(u.dtype), u)
        dual = u.T
        near = tolerances.ritz_rtol(w.dtype) * jnp.max(jnp.abs(standard))
        finite = finite & (jnp.abs(matched - jnp.conj(w)) <= near)
    zero = jnp.zeros((), jnp.finfo(dtype).dtype)
    scale = jnp.max(jnp.abs(jnp.concatenate([w, others])))
    if spec.shifted:
        w, others = 1.0 / (w - sigma), 1.0 / (others - sigma)
    pairs = GeneralPairs(w, v.T, others, finite.astype(zero.dtype), scale, zero + n, zero)
    return pairs, dual, finite


@partial(eigs_core.defjvp, symbolic_zeros=True)
def _eigs_core_jvp(spec: GeneralSpec, primals: Any, tangents: Any):
    ops, start, _ = primals
    found = eigs_core(*primals, replace(spec, level=spec.level + 1, left=True))
    constants = jax.tree.map(jnp.zeros_like, found)
    w_dot, r_dot, l_dot = eigs_tangents(ops, tangents[0], found, spec, start.dtype)
    return found, constants._replace(w=w_dot, r=r_dot, dual=l_dot)


def eigs_tangents(
    ops: Operators, ops_dot: Operators, found: GeneralFound, spec: GeneralSpec, dtype: Any
) -> tuple[Array, Array, Array]:
    """Tangents of eigenvalues, right and left vectors from those of what `A` and `M` close over.

    They are NaN where a multiplet is cut, or an eigenvalue is so ill conditioned that rounding
    leaves no digits of its derivative (a nearly defective operator).
    """
    right = Side(ops, dtype, False, found.w, found.r, found.dual)
    left = Side(ops, dtype, True, jnp.conj(found.w), found.dual, found.r)
    w_dot, r_dot = _side_tangents(right, ops_dot, found, spec)
    _, l_dot = _side_tangents(left, ops_dot, found, spec)
    cut = found.cut > 0.0

    def guard(power: int) -> Array:
        limit = tolerances.defective_limit(dtype, power + spec.level)
        lost = cut | ~(found.condition <= limit)
        return jnp.where(lost, jnp.nan, 1.0).astype(found.scale.dtype)

    vectors = guard(VECTORS)[:, None]
    return w_dot * guard(VALUES), r_dot * vectors, l_dot * vectors


def _side_tangents(side: Side, ops_dot: Operators, found: GeneralFound, spec: GeneralSpec):
    """Tangents of the values of a side and of its vectors."""
    b, m_dot_r = side.moved(ops_dot)
    if b is None:
        return jnp.zeros_like(side.w), jnp.zeros_like(side.r)
    overlap = inner(side.dual, b)
    gaps = side.w[None, :] - side.w[:, None]
    cluster = lax.stop_gradient(found.cluster)
    c = inv0(gaps, cluster) * overlap
    if m_dot_r is not None:
        c = jnp.where(jnp.abs(gaps) <= cluster, -0.5 * inner(side.dual, m_dot_r), c)
    x = _outside(side, found, b, spec)
    return jnp.diagonal(overlap), combine(c.T, side.r) + x


def _outside(side: Side, found: GeneralFound, b: Array, spec: GeneralSpec) -> Array:
    """The rows `x_j` of the module docstring."""
    factor = lax.stop_gradient(1.0 / jnp.where(found.scale > 0.0, found.scale, 1.0))
    coupling = jnp.diag(side.w)
    if coupling.shape[0] > 1:
        full = inner(side.dual, side.a(side.r))
        coupling = lax.stop_gradient(coupling - full) + full

    def operator(x: Array) -> Array:
        out = side.project(x)
        moved = side.a(out) - mm(coupling.T, side.m(out))
        return factor * side.project_image(moved) + side.kept(x)

    def solve(_: Any, rhs: Array) -> Array:
        return _solve(side, rhs, factor, found.condition, spec)

    def transpose_solve(_: Any, rhs: Array) -> Array:
        x = _solve(side.adjoint(), jnp.conj(rhs), factor, found.condition, spec)
        return jnp.conj(x)

    rhs = -factor * side.project_image(b)
    return side.project(lax.custom_linear_solve(operator, rhs, solve, transpose_solve))


def _solve(side: Side, rhs: Array, factor: Array, condition: Array, spec: GeneralSpec) -> Array:
    """Solve the completed equations, row by row, with right-hand sides of norm 1."""
    real, size = jnp.finfo(rhs.dtype).dtype, scaled_norms(rhs)
    unit = rhs / jnp.where(size > 0.0, size, 1.0)[:, None]
    # Twice, and to zero: what is left of a right side in the range of M R is rounding.
    rest = side.project_image(side.project_image(unit))
    worst = jnp.max(condition)
    small = tolerances.breakdown_rtol(real) * worst
    rest = jnp.where(norms(rest)[:, None] > small, rest, 0.0)
    inverse = side.inverse() if spec.shifted or side.ops.m is not None else None
    n = rhs.shape[1]
    restart = min(n, RESTART)
    bound = jnp.asarray(tolerances.krylov_solve_rtol(real), real)

    def one(b: Array, w: Array) -> tuple[Array, Array]:
        def apply(x: Array) -> Array:
            out = side.project(x[None])
            return factor * side.project_image(side.a(out) - w * side.m(out))[0]

        def precondition(x: Array) -> Array:
            if inverse is None:
                return x
            return side.project(inverse(side.project_image(x[None])))[0] / factor

        steps = max(1, min(20 * n, MAX_STEPS) // restart)
        zero = jnp.zeros_like(b)
        x = gmres_iteration(apply, precondition, b, zero, bound, steps, restart).x
        return x, jnp.linalg.norm(b - apply(x))

    x, residual = jax.vmap(one)(rest, side.w)
    length = norms(x)
    # A residual is no smaller than the rounding of a product with a large solution.
    allowed = 4.0 * bound * (1.0 + length) * worst
    huge = length * tolerances.multiplet_rtol(real) > 1.0
    failed = ((residual > allowed) | huge | ~jnp.isfinite(size)) & (size != 0.0)
    x = side.project(x) + side.kept_inverse(unit)
    return jnp.where(failed, jnp.nan, 1.0)[:, None] * x * size[:, None]
