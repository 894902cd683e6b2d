"""`eigs`: a few eigenpairs of a general operator, as `scipy.sparse.linalg.eigs`."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import Tracer

from difflinalg._core import checks, krylov_checks, tolerances
from difflinalg._core.results import GeneralEigenInfo
from difflinalg._krylov.eigs_rule import GeneralFound, GeneralSpec, eigs_core
from difflinalg._krylov.eigsh import Operator, starting_rows, vectors_of
from difflinalg._krylov.eigsh_rule import Operators
from difflinalg._krylov.iterations import conjugate_gradients, gmres_iteration
from difflinalg._krylov.linear_map import Spec, transposable_solve
from difflinalg._krylov.operator import (
    Linear,
    VectorSpace,
    cast,
    is_matrix,
    linear,
    matrix_product,
    on_flat,
)
from difflinalg._krylov.thick_restart import Plan

WHICH = ("LM", "SM", "LR", "SR", "LI", "SI")
MAX_RESTARTS, INNER_RESTART, INNER_STEPS = 1000, 50, 10_000


def eigs(
    A: Operator,
    k: int = 6,
    M: Operator | None = None,
    sigma: Any = None,
    which: str = "LM",
    v0: Any = None,
    ncv: int | None = None,
    maxiter: int | None = None,
    tol: float = 0,
    return_eigenvectors: bool = True,
    Minv: Operator | None = None,
    OPinv: Operator | None = None,
    OPpart: None = None,
    *,
    left: bool = False,
    return_info: bool = False,
    verify: bool | None = None,
) -> Any:
    """The `k` wanted eigenpairs `A v = w M v` of a general operator.

    Args:
        A: a square matrix, an array `(n, n)` or BCOO, or a function on vectors that may close
            over differentiated, batched or traced arrays. Vectors are arrays or pytrees of arrays.
            Its adjoint, where left vectors or derivatives need it, is `jax.linear_transpose` of
            it.
        k: how many pairs, a Python integer.
        M: of the same kind as `A`, regular; Hermitian positive definite if it is a function
            without `Minv` or `sigma`. The identity by default.
        sigma: find the values near this number, by iterating with the inverse of `A - sigma M`;
            `which` then refers to `1 / (w - sigma)`.
        which: `'LM'` and `'SM'` for the largest and smallest magnitudes, `'LR'` and `'SR'` for
            real parts, `'LI'` and `'SI'` for imaginary parts, of a real operator in size.
        v0: starting vector. Where `A` is a function it also says what vectors are; shapes
            (`jax.ShapeDtypeStruct`) do so without a starting vector, which is random then.
        ncv: vectors in the basis, `max(20, 2 k + 16)` by default.
        maxiter: largest number of restarts, 1000 by default.
        tol: residual `|A v - w v|` to reach, relative to `|w|`; 0 is machine precision.
        return_eigenvectors: if false, only the values are returned.
        Minv: the inverse of `M`; by default an LU factorisation of an array, or conjugate
            gradients.
        OPinv: the inverse of `A - sigma M`; by default an LU factorisation of arrays, or GMRES.
        OPpart: only None; with a complex `sigma` the iteration is complex.
        left: return left vectors too, `l^H A = w l^H M`.
        return_info: append a `GeneralEigenInfo` to the result. Its `condition` says how far an
            eigenvalue is from defective (`1 / |l^H r|`, infinite for a Jordan block); it is known
            with `left` and in derivatives, NaN otherwise.
        verify: after convergence look for lost members of multiplets from a random vector. By
            default for more than one pair, and where `v0` is given.

    Returns:
        `w`, shape `(k,)`, complex, the most wanted first, and `v`, shape `(n, k)`, complex, of
        norm 1 with a real positive largest entry (for pytrees: a last axis of `k` on every leaf).
        With `left` the result is `(w, left vectors, v)`, normalised in the same way. Then the info
        if asked for. Of a conjugate pair of a real operator the value with positive imaginary part
        comes first; if `k` cuts the pair, only it is returned.

    Raises:
        ValueError: if shapes do not fit.
        NotConverged: outside of jit and other transformations, with what was found. Inside, the
            pairs that have not converged are NaN.

    Derivatives:
        Forward and reverse mode in any nesting, with respect to arrays `A` and `M` and to all
        that functions close over, by left and right vectors: for the values another run with the
        adjoint, for vectors one deflated solve by GMRES per tangent too. Where kept values
        coincide (and do not form a Jordan block) they are right for losses that depend on the
        spectral projector `V (L^H M V)^-1 L^H M` of the cluster. NaN where `k` cuts a multiplet
        (`info.cut`), and for an eigenvalue whose condition number leaves no digits, such as that
        of a nearly defective operator: above 7e5 for a value and 8e3 for a vector in double
        precision, less for higher derivatives. `sigma` and the starting vector have derivative
        zero.

    Cost:
        About as many products as ARPACK needs, `4 ncv n` operations of orthogonalisation for
        each, and a Schur form of size `ncv` for each restart, on the CPU; memory `(ncv + 1) n`
        twice. Real operators are iterated in real arithmetic.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg.scipy.sparse.linalg import eigs
        >>> def growth(a):  # of the golden matrix for a = 1
        ...     return eigs(jnp.array([[1.0, 1.0], [1.0, 0.0]]) * a, 1)[0][0].real
        >>> print(f"{growth(1.0):.4f} {jax.grad(growth)(1.0):.4f}")
        1.6180 1.6180

    References:
        Stewart, "A Krylov-Schur algorithm for large eigenproblems" (2001), section 3.
        Bai and Demmel, "On swapping diagonal blocks in real Schur form" (1993), section 2 (of the
        complex form).
        Nelson, "Simplified calculation of eigenvector derivatives" (1976), equations 6 and 11.
    """
    name = "eigs"
    checks.check_choice(name, "which", which, WHICH)
    if OPpart is not None:
        krylov_checks.refuse_argument(name, "OPpart", "with a complex sigma it iterates complex")
    space = vectors_of(name, A, M, v0)
    shifted = sigma is not None
    if shifted:
        space = space.with_dtype(jnp.result_type(space.dtype, sigma))
    k = krylov_checks.check_count(name, "k", k, 1, space.size)
    plan = _plan(k, which, ncv, maxiter, tol, verify, v0, space.size)
    is_dense_array = is_matrix(A) and not hasattr(A, "todense")
    dense = plan.length + 3 > space.size or (is_dense_array and which == "SM" and not shifted)
    a = _operator(name, A, space)
    m = None if M is None else _operator(name, M, space)
    shift = jax.lax.stop_gradient(jnp.asarray(sigma if shifted else 0.0, space.dtype))
    inverse = None
    if not dense or shifted or m is not None:
        inverse = _inverse(name, (A, M, OPinv, Minv), a, m, shift, shifted, space)
    spec = GeneralSpec(plan, dense, shifted, left)
    found = eigs_core(Operators(a, m, inverse), starting_rows(v0, 1, space), shift, spec)
    return _result(name, found, space, (return_eigenvectors, left, return_info))


def _plan(k, which, ncv, maxiter, tol, verify, v0, size: int) -> Plan:
    length = max(20, 2 * k + 16)
    if ncv is not None:
        length = krylov_checks.check_count("eigs", "ncv", ncv, min(k + 1, size), size)
    length = max(length, k + 4)
    given = any(not isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(v0))
    verify = (k > 1 or given) if verify is None else verify
    restarts, tol = krylov_checks.check_limits("eigs", maxiter, MAX_RESTARTS, tol)
    return Plan(k, which, length, 1, restarts, tol, verify)


def _operator(name: str, A: Operator, space: VectorSpace) -> Linear:
    """The operator on flat vectors."""
    if not is_matrix(A):
        return on_flat(name, A, space)
    krylov_checks.check_fits(name, A.shape, space.size)
    return linear(matrix_product(cast(A, space.dtype)), space.example)


def _inverse(name, given, a: Linear, m: Linear | None, shift, shifted: bool, space: VectorSpace):
    """The inverse of `A - sigma M` or of `M`, as `Operators` wants it."""
    A, M, OPinv, Minv = given
    wanted = OPinv if shifted else Minv
    if not shifted and m is None:
        return None
    if wanted is not None:
        return _operator(name, wanted, space)

    def forward(x: Array) -> Array:
        metric = x if m is None else m(x)
        return a(x) - shift * metric if shifted else metric

    arrays = all(X is None or (is_matrix(X) and not hasattr(X, "todense")) for X in (A, M))
    if arrays:
        columns = jax.vmap(forward)(jnp.eye(space.size, dtype=space.dtype))
        factors = jax.scipy.linalg.lu_factor(jax.lax.stop_gradient(columns.T))
        return linear(partial(jax.scipy.linalg.lu_solve, factors), space.example)
    bound = jnp.asarray(tolerances.krylov_solve_rtol(space.dtype))
    spec = Spec(conjugate_gradients, INNER_STEPS, hermitian=True)
    if shifted:
        restart = min(space.size, INNER_RESTART)
        spec = Spec(gmres_iteration, max(1, INNER_STEPS // restart), False, restart)
    inner = linear(forward, space.example)
    return linear(lambda x: transposable_solve(inner, None, x, bound, spec), space.example)


def _normalised(rows: Array) -> Array:
    """Rows of norm 1 with a real positive largest entry."""
    largest = jnp.argmax(jnp.abs(jax.lax.stop_gradient(rows)), axis=1)
    pivot = jnp.take_along_axis(rows, largest[:, None], axis=1)
    size = jnp.abs(pivot)
    usable = size > 0.0
    turned = rows * jnp.where(usable, jnp.conj(pivot) / jnp.where(usable, size, 1.0), 1.0)
    length = jnp.sqrt(jnp.sum(turned.real**2 + turned.imag**2, axis=1, keepdims=True))
    return turned / length


def _result(name: str, found: GeneralFound, space: VectorSpace, wanted: tuple[bool, ...]) -> Any:
    """Report what did not converge, and put the result together."""
    vectors, left, info = wanted
    fixed = jax.lax.stop_gradient(found)
    report = GeneralEigenInfo(
        jnp.all(fixed.converged > 0.0),
        fixed.residuals,
        fixed.products.astype(jnp.int32),
        fixed.restarts.astype(jnp.int32),
        fixed.gap,
        fixed.scale,
        jnp.any(fixed.cut > 0.0),
        fixed.condition,
    )
    if not isinstance(report.converged, Tracer) and not bool(report.converged):
        what = f"{int(jnp.sum(fixed.converged))} of {len(fixed.w)} pairs are accurate"
        remedy = "Increase maxiter, ncv or tol."
        krylov_checks.refuse_unconverged(
            name, what, (fixed.w, space.columns(fixed.r), report), remedy
        )
    guard = jnp.where(fixed.converged > 0.0, 1.0, jnp.nan).astype(fixed.scale.dtype)
    result: list[Any] = [found.w * guard]
    if left:
        result.append(space.columns(_normalised(found.dual) * guard[:, None]))
    if vectors:
        result.append(space.columns(_normalised(found.r) * guard[:, None]))
    if info:
        result.append(report)
    return tuple(result) if len(result) > 1 else result[0]
