"""`lobpcg`: extremal eigenpairs with a preconditioner, as `scipy.sparse.linalg.lobpcg`.

The derivative is that of `eigsh`. Constraints Y enter it through the operator

    P^H A P + t B Y Y^H B,    P = I - Y Y^H B,    Y^H B Y = I,

which has the wanted pairs of A in the complement of Y and carries Y itself, by a large t, to the
far end of the spectrum.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from difflinalg._core import krylov_checks, tolerances
from difflinalg._core.operation import operation
from difflinalg._krylov.eigsh import hermitian_operator, judge, worst
from difflinalg._krylov.eigsh_rule import Found, Operators, Spec, eigsh_core, eigsh_tangents
from difflinalg._krylov.lobpcg_iteration import BlockPlan, run
from difflinalg._krylov.operator import Linear, VectorSpace, is_matrix, linear, space_of
from difflinalg._krylov.orthogonal import combine, inner
from difflinalg._krylov.thick_restart import Plan

MAX_STEPS = 1000


def lobpcg(
    A: Any,
    X: Any,
    B: Any = None,
    M: Any = None,
    Y: Any = None,
    tol: float | None = None,
    maxiter: int | None = None,
    largest: bool = True,
    verbosityLevel: int = 0,
    retLambdaHistory: bool = False,
    retResidualNormsHistory: bool = False,
    restartControl: int = 20,
    *,
    return_info: bool = False,
) -> Any:
    """The largest or smallest eigenpairs `A v = w B v`, from approximations to the vectors.

    Args:
        A: a Hermitian matrix, an array `(n, n)` or BCOO, or a function on columns `(n, 1)` that
            may close over differentiated, batched or traced arrays.
        X: approximate eigenvectors, shape `(n, k)`, or random ones.
        B: Hermitian positive definite, of the same kind; the identity by default.
        M: preconditioner, an approximate inverse of `A`, Hermitian positive definite.
        Y: constraints, shape `(n, c)`; eigenpairs are those of the complement
            `v^H B Y = 0`.
        tol: bound on the norms of the residuals `A v - w B v`. By default machine precision,
            which derivatives need, rather than SciPy's `n sqrt(eps)`.
        maxiter: largest number of steps, 1000 by default (20 in SciPy).
        largest: which end of the spectrum.
        verbosityLevel: ignored, nothing is printed.
        retLambdaHistory: append the values after each step, shape `(maxiter + 1, k)`, NaN after
            the last step.
        retResidualNormsHistory: append the norms of residuals in the same way.
        restartControl: ignored, bases are kept orthonormal.
        return_info: append an `EigenInfo` to the result; its restarts are the steps, and its gap
            is NaN: nothing is known of the next value.

    Returns:
        `w`, shape `(k,)`, real, descending if `largest` and else ascending, and `v`, shape
        `(n, k)`, with `v^H B v = 1`; then what was asked for.

    Raises:
        ValueError: if shapes do not fit, or the operator is found not to be Hermitian.
        NotConverged: outside of jit and other transformations, with what was found. Inside, the
            pairs that have not converged are NaN.

    Derivatives:
        As `eigsh`, with respect to `A`, `B` and `Y` (the space that it spans). `X` and `M` have
        derivative zero. If the last value coincides with the next one the equation for the
        derivative of its vector is singular, and the derivative NaN unless it does not depend on
        the choice.

    Cost:
        `3 k` products with `A` and `k` with `M` for each step, and a decomposition of size `3 k`.
        If `5 k > n` a dense decomposition instead.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg.scipy.sparse.linalg import lobpcg
        >>> def top(c):
        ...     return lobpcg(c * jnp.diag(jnp.arange(20.0)), jnp.ones((20, 1)))[0][0]
        >>> print(top(2.0).round(3), jax.grad(top)(2.0).round(3))
        38.0 19.0

    References:
        Knyazev, "Toward the optimal preconditioned eigensolver: locally optimal block
        preconditioned conjugate gradient method" (2001), algorithm 5.1.
        Hetmaniuk and Lehoucq, "Basis selection in LOBPCG" (2006), section 4.
    """
    del verbosityLevel, restartControl
    steps, bound = krylov_checks.check_limits(
        "lobpcg", maxiter, MAX_STEPS, 0.0 if tol is None else tol
    )
    history = retLambdaHistory or retResidualNormsHistory
    solved = _solve("lobpcg", (A, B, M), X, Y, (largest, steps, bound, 0.0, history))
    w, v, report, values, residuals = solved
    result = [w, v]
    if retLambdaHistory:
        result.append(values)
    if retResidualNormsHistory:
        result.append(residuals)
    if return_info:
        result.append(report)
    return tuple(result)


def lobpcg_standard(
    A: Any, X: Any, m: int = 100, tol: float | None = None
) -> tuple[Array, Array, Array]:
    """The `k` largest eigenpairs, as `jax.experimental.sparse.linalg.lobpcg_standard`.

    Args:
        A: as in `lobpcg`.
        X: as in `lobpcg`.
        m: largest number of steps.
        tol: a pair has converged when `|A v - w v| <= tol 10 n (|w| + |A v|)`; by default
            machine precision, which is stricter than JAX's.

    Returns:
        `theta`, shape `(k,)`, descending, `U`, shape `(n, k)`, and the number of steps.

    Raises:
        As `lobpcg`; JAX returns what it has.

    Derivatives:
        As `lobpcg`.

    Cost:
        As `lobpcg`.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg.scipy.sparse.linalg import lobpcg_standard
        >>> print(lobpcg_standard(jnp.diag(jnp.arange(20.0)), jnp.ones((20, 1)))[0].round(3))
        [19.]

    References:
        As `lobpcg`.
    """
    name = "lobpcg_standard"
    steps, rtol = krylov_checks.check_limits(name, m, MAX_STEPS, 0.0 if tol is None else tol)
    rtol *= 20.0 * krylov_checks.check_columns(name, "X", X, axis=0)
    options = (True, steps, 0.0, rtol, False)
    w, v, report, _, _ = _solve(name, (A, None, None), X, None, options)
    return w, v, report.restarts


@dataclass(frozen=True)
class _BlockSpec:
    """Static options: those of the run, and those of the rule."""

    block: BlockPlan
    rule: Spec


@operation(statics=1)
def lobpcg_core(
    ops: Operators, x: Array, y: Array, spec: _BlockSpec
) -> tuple[Found, tuple[Array, Array]]:
    """Eigenpairs by LOBPCG from the rows `x`, orthogonal to the rows `y`, and their history."""
    rows = [None if f is None else f.rows for f in (ops.m, ops.inverse)]
    pairs = run(ops.a.rows, rows[0], rows[1], x, y, spec.block)
    order = jnp.argsort(pairs.w)
    zero = jnp.zeros_like(pairs.w)
    close = tolerances.cluster_rtol(zero.dtype, max(spec.rule.level - 1, 0)) * pairs.extreme
    found = Found(
        pairs.w[order],
        pairs.v[order],
        pairs.residuals[order],
        pairs.converged[order],
        zero,
        jnp.full((), jnp.nan, zero.dtype),
        pairs.extreme,
        close + jnp.max(pairs.residuals),
        pairs.defect,
        (pairs.steps + 1.0) * 3 * x.shape[0],
        pairs.steps,
    )
    return found, (pairs.values_history, pairs.residual_history)


@partial(lobpcg_core.defjvp, symbolic_zeros=True)
def _lobpcg_core_jvp(spec: _BlockSpec, primals: Any, tangents: Any):
    ops, _, _ = primals
    deeper = replace(spec.rule, level=spec.rule.level + 1)
    found, history = lobpcg_core(*primals, replace(spec, rule=deeper))
    w_dot, v_dot = eigsh_tangents(ops, tangents[0], found, spec.rule)
    constants = jax.tree.map(jnp.zeros_like, (found, history))
    return (found, history), (constants[0]._replace(w=w_dot, v=v_dot), constants[1])


def _solve(name: str, problem: tuple, X: Any, Y: Any, options: tuple):
    """Values, vectors, info and the two histories."""
    A, B, M = problem
    largest, steps, tol, rtol, history = options
    x, k = jnp.asarray(X), krylov_checks.check_columns(name, "X", X)
    space = _space(name, problem, x, Y)
    x = jax.lax.stop_gradient(x).astype(space.dtype).T
    a, defect = hermitian_operator(name, _on_vectors(A), space)
    m, m_defect = (None, None) if B is None else hermitian_operator(name, _on_vectors(B), space)
    defect = worst(defect, m_defect)
    preconditioner = None if M is None else hermitian_operator(name, _on_vectors(M), space)[0]
    block = BlockPlan(k, largest, steps, tol, rtol, history)
    plan = Plan(k, "LA" if largest else "SA", space.size, 1, steps, tol, False)
    dense = 5 * k > space.size
    spec = _BlockSpec(block, Spec(plan, dense, False))

    def core(a: Linear, x: Array, y: Array):
        if not dense:
            return lobpcg_core(Operators(a, m, preconditioner), x, y, spec)
        found = eigsh_core(Operators(a, m, None), x[:1], jnp.zeros((), norm_dtype), spec.rule)
        trace = found.w[::-1] if largest else found.w
        empty = jnp.full((steps + 1 if history else 0, k), jnp.nan, norm_dtype)
        return found, (empty.at[:1].set(trace), empty.at[:1].set(found.residuals))

    norm_dtype = jnp.finfo(space.dtype).dtype
    y = jnp.zeros((0, space.size), space.dtype)
    if Y is not None:
        count = krylov_checks.check_columns(name, "Y", Y)
        krylov_checks.check_count(name, "the columns of Y and X", count + k, 1, space.size)
        y = _orthonormal_constraints(jnp.asarray(Y).astype(space.dtype).T, m)
        fixed = jax.lax.stop_gradient
        rough, _ = core(fixed(_constrained(a, m, y, jnp.zeros((), norm_dtype))), x, fixed(y))
        far = jnp.where(rough.scale > 0.0, 2.0 * rough.scale, 1.0) * (-1.0 if largest else 1.0)
        a = _constrained(a, m, y, fixed(far))
        # What was found is the start: nothing is left to iterate.
        x = fixed(jnp.where(jnp.isfinite(rough.v), rough.v, x))
    found, histories = core(a, x, jax.lax.stop_gradient(y))
    report, guard = judge(name, found, defect, space)
    w, v = found.w * guard, found.v * guard[:, None]
    if largest:
        w, v = w[::-1], v[::-1]
        report = report._replace(residual_norms=report.residual_norms[::-1])
    return w, v.T, report, *histories


def _space(name: str, problem: tuple, x: Array, Y: Any) -> VectorSpace:
    """Columns, with a dtype that holds their images."""
    space = space_of(name, jax.ShapeDtypeStruct((x.shape[0],), x.dtype))
    dtypes = [space.dtype]
    for f in problem:
        if f is None:
            continue
        if is_matrix(f):
            krylov_checks.check_fits(name, f.shape, space.size)
            dtypes.append(f.dtype)
        elif callable(f):
            column = jax.ShapeDtypeStruct((space.size, 1), space.dtype)
            image = jax.eval_shape(f, column)
            krylov_checks.check_same_vectors(name, column, image)
            dtypes.append(image.dtype)
        else:
            krylov_checks.refuse_operator(name, f)
    if Y is not None:
        krylov_checks.check_rows(name, "Y", Y, space.size)
        dtypes.append(jnp.asarray(Y).dtype)
    krylov_checks.check_precision(name, jnp.result_type(*dtypes))
    return space.with_dtype(jnp.result_type(*dtypes))


def _on_vectors(f: Any) -> Any:
    """A function on columns as one on vectors; a matrix as it is."""
    return f if is_matrix(f) else lambda x: f(x[:, None])[:, 0]


def _orthonormal_constraints(y: Array, m: Linear | None) -> Array:
    """Rows that span the same space and are orthonormal in the metric, differentiable."""
    gram = inner(y, y if m is None else m.rows(y))
    factor = jnp.linalg.cholesky(gram)
    return jnp.conj(jax.scipy.linalg.solve_triangular(factor, jnp.conj(y), lower=True))


def _constrained(a: Linear, m: Linear | None, y: Array, far: Array) -> Linear:
    """The operator of the module docstring."""
    m_y = y if m is None else m.rows(y)

    def apply(x: Array) -> Array:
        row = x[None]
        kept = inner(m_y, row)
        image = a.rows(row - combine(kept.T, y))
        image = image - combine(inner(y, image).T, m_y)
        return (image + far * combine(kept.T, m_y))[0]

    return linear(apply, jax.ShapeDtypeStruct(y.shape[1:], y.dtype))
