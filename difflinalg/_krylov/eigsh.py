"""`eigsh`: a few eigenpairs of a Hermitian operator, as `scipy.sparse.linalg.eigsh`."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import Tracer

from difflinalg._core import checks, krylov_checks, tolerances
from difflinalg._core.algebra import adjoint, herm
from difflinalg._core.results import EigenInfo
from difflinalg._krylov.block_solve import solve_rows
from difflinalg._krylov.eigsh_rule import Found, Operators, Spec, eigsh_core
from difflinalg._krylov.operator import (
    Linear,
    VectorSpace,
    cast,
    image_dtype,
    is_matrix,
    linear,
    matrix_product,
    on_flat,
    space_of,
)
from difflinalg._krylov.orthogonal import scaled_norms
from difflinalg._krylov.thick_restart import Plan

Operator = Any  # an array, a BCOO matrix or a function
WHICH = ("LM", "SM", "LA", "SA", "BE")
MAX_RESTARTS, MAX_INNER_STEPS = 1000, 10_000


def eigsh(
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
    mode: str = "normal",
    *,
    return_info: bool = False,
    block_size: int = 1,
    verify: bool | None = None,
) -> Any:
    """The `k` wanted eigenpairs `A v = w M v` of a Hermitian operator.

    Args:
        A: a Hermitian matrix, an array `(n, n)` or BCOO, or a function on vectors that may close
            over differentiated, batched or traced arrays. Vectors are arrays or pytrees of arrays.
        k: how many pairs, a Python integer.
        M: Hermitian positive definite, of the same kind as `A`; the identity by default.
        sigma: find the values near this number, by iterating with the inverse of `A - sigma M`;
            `which` then refers to `1 / (w - sigma)`.
        which: `'LM'` and `'SM'` for the largest and smallest magnitudes, `'LA'` and `'SA'` for
            the largest and smallest values, `'BE'` for both ends, one more from the upper.
        v0: starting vector. Where `A` is a function it also says what vectors are; shapes
            (`jax.ShapeDtypeStruct`) do so without a starting vector, which is random then.
        ncv: vectors in the basis; `20` for one pair and up to `4 k + 16` for more by default.
        maxiter: largest number of restarts, 1000 by default.
        tol: residual `|A v - w v|` to reach, relative to `|w|`; 0 is machine precision.
        return_eigenvectors: if false, only the values are returned.
        Minv: the inverse of `M`; by default a Cholesky factorisation of an array, or conjugate
            gradients.
        OPinv: the inverse of `A - sigma M`; by default an LU factorisation of arrays, or MINRES.
        mode: `'normal'`, the only one.
        return_info: append an `EigenInfo` to the result.
        block_size: vectors in a block; a multiplet larger than it is completed by verification.
        verify: after convergence look for lost members of multiplets from a random vector. By
            default for more than one pair, and where `v0` is given.

    Returns:
        `w`, shape `(k,)`, ascending, and `v`, shape `(n, k)` (for pytrees: a last axis of `k` on
        every leaf); then the info if asked for.

    Raises:
        ValueError: if shapes do not fit, or the operator is found not to be Hermitian.
        NotConverged: outside of jit and other transformations, with what was found. Inside, the
            pairs that have not converged are NaN (all, if the operator is not Hermitian).

    Derivatives:
        Forward and reverse mode in any nesting, with respect to an array `A` or `M` (their
        Hermitian parts) and to all that functions close over, by implicit differentiation: one
        deflated solve per tangent, none for derivatives of the values. Where kept values coincide
        they are right for losses that depend on the projector of the cluster. If the last value
        coincides with the next one, no derivative of its vector exists: NaN, and `info.cut` where
        the next value is looked for (see `verify`); that of the value is then the one of a single
        member, `v^H A_dot v`. A starting vector and `sigma` have derivative zero.

    Cost:
        About as many products as ARPACK needs, and `4 ncv n` operations of orthogonalisation for
        each; memory `(ncv + 1) n` twice. A tangent of the vectors costs conjugate gradients with
        the condition `width / gap`, MINRES with `sigma` and `which='SM'`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg.scipy.sparse.linalg import eigsh
        >>> def lowest(g):  # of two coupled levels
        ...     return eigsh(jnp.array([[1.0, 0.0], [0.0, -1.0]]) * g, 1, which="SA")[0][0]
        >>> print(lowest(2.0), jax.grad(lowest)(2.0))
        -2.0 -1.0

    References:
        Wu and Simon, "Thick-restart Lanczos method for large symmetric eigenvalue problems"
        (2000), equations 3.4 to 3.8.
        Xie, Liu and Wang, "Automatic differentiation of dominant eigensolver" (2020),
        arXiv:2001.04121, equations 8 and 9 (one pair).
        Nelson, "Simplified calculation of eigenvector derivatives" (1976), equation 11.
    """
    name = "eigsh"
    checks.check_choice(name, "which", which, WHICH)
    checks.check_choice(name, "mode", mode, ("normal",))
    space = vectors_of(name, A, M, v0)
    k = krylov_checks.check_count(name, "k", k, 1, space.size)
    shifted = sigma is not None
    is_dense_array = (is_matrix(A) and isinstance(A, jax.Array | Tracer)) or hasattr(A, "__array__")
    plan = _plan(k, which, ncv, maxiter, tol, block_size, verify, v0, space.size)
    small = plan.length + plan.block + 2 > space.size
    dense = small or (bool(is_dense_array) and which == "SM" and not shifted)
    a, defect = hermitian_operator(name, A, space)
    m, m_defect = (None, None) if M is None else hermitian_operator(name, M, space)
    defect = worst(defect, m_defect)
    real = jnp.finfo(space.dtype).dtype
    if jnp.iscomplexobj(sigma):
        krylov_checks.refuse_argument(name, "a complex sigma", "the eigenvalues are real; use eigs")
    shift = jnp.asarray(0.0 if sigma is None else sigma, real)
    inverse = None
    if not dense:
        inverse = _inverse(name, (A, M, OPinv, Minv), a, m, shift, shifted, space)
    spec = Spec(plan, dense, shifted)
    found = eigsh_core(Operators(a, m, inverse), starting_rows(v0, plan.block, space), shift, spec)
    return _result(name, found, defect, space, return_eigenvectors, return_info)


def vectors_of(name: str, A: Operator, M: Operator | None, v0: Any) -> VectorSpace:
    """What vectors are, with a dtype that holds their images."""
    if is_matrix(A):
        krylov_checks.check_square(name, A.shape)
        space = space_of(name, jax.ShapeDtypeStruct((A.shape[0],), A.dtype))
        if v0 is not None:
            krylov_checks.check_vector(name, "v0", v0, A.shape[0])
            space = space.with_dtype(jnp.result_type(space.dtype, v0.dtype))
    elif callable(A):
        if v0 is None:
            krylov_checks.require_example(name, "v0")
        space = space_of(name, v0)
        space = space.with_dtype(image_dtype(A, space))
    else:
        krylov_checks.refuse_operator(name, A)
    if M is not None and not is_matrix(M):
        space = space.with_dtype(image_dtype(M, space))
    elif M is not None:
        space = space.with_dtype(jnp.result_type(space.dtype, M.dtype))
    krylov_checks.check_precision(name, space.dtype)
    return space


def _plan(k, which, ncv, maxiter, tol, block_size, verify, v0, size: int) -> Plan:
    block = krylov_checks.check_count("eigsh", "block_size", block_size, 1, size)
    length = 20 if k == 1 else max(20, 2 * k + min(2 * k, 40) + 16)
    if ncv is not None:
        length = krylov_checks.check_count("eigsh", "ncv", ncv, min(k + 1, size), size)
    length = max(length, k + 2 + block)
    given = any(not isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(v0))
    verify = (k > 1 or given) if verify is None else verify
    restarts, tol = krylov_checks.check_limits("eigsh", maxiter, MAX_RESTARTS, tol)
    return Plan(k, which, length, block, restarts, tol, verify)


def hermitian_operator(name: str, A: Operator, space: VectorSpace) -> tuple[Linear, Array | None]:
    """The operator on flat vectors; of an array the Hermitian part, and how far it is from it."""
    if not is_matrix(A):
        return on_flat(name, A, space), None
    krylov_checks.check_fits(name, A.shape, space.size)
    if hasattr(A, "todense"):
        return linear(matrix_product(cast(A, space.dtype)), space.example), None
    matrix = cast(A, space.dtype)
    size = jnp.max(jnp.abs(matrix))
    defect = jnp.max(jnp.abs(matrix - adjoint(matrix))) / jnp.where(size > 0.0, size, 1.0)
    return linear(matrix_product(herm(matrix)), space.example), jax.lax.stop_gradient(defect)


def worst(*defects: Array | None) -> Array | None:
    """The largest of what is known."""
    known = [defect for defect in defects if defect is not None]
    return jnp.max(jnp.stack(known)) if known else None


def _inverse(name, given, a: Linear, m: Linear | None, shift, shifted: bool, space: VectorSpace):
    """The inverse of `A - sigma M` or of `M`, as `Operators` wants it."""
    A, M, OPinv, Minv = given
    wanted = OPinv if shifted else Minv
    if not shifted and m is None:
        return None
    if wanted is not None:
        return hermitian_operator(name, wanted, space)[0]

    def rows(x: Array) -> Array:
        image = a.rows(x) if shifted else jnp.zeros_like(x)
        metric = x if m is None else m.rows(x)
        return image - shift * metric if shifted else metric

    arrays = all(X is None or (is_matrix(X) and not hasattr(X, "todense")) for X in (A, M))
    if arrays:
        matrix = jax.lax.stop_gradient(rows(jnp.eye(space.size, dtype=space.dtype)).T)
        factors = jax.scipy.linalg.lu_factor(matrix)
        return linear(partial(jax.scipy.linalg.lu_solve, factors), space.example)
    return linear(_iterative_inverse(rows, definite=not shifted), space.example)


def _iterative_inverse(rows: Callable[[Array], Array], definite: bool) -> Callable[[Array], Array]:
    def solve(x: Array) -> Array:
        length = scaled_norms(x[None])
        unit = x / jnp.where(length > 0.0, length, 1.0)
        size = scaled_norms(rows(unit[None]))
        size = jnp.where(size > 0.0, size, 1.0)
        return solve_rows(lambda y: rows(y) / size, x[None], definite, MAX_INNER_STEPS)[0] / size[0]

    return solve


def starting_rows(v0: Any, block: int, space: VectorSpace) -> Array:
    """Rows to start from: the starting vector, and random ones."""
    leaves = jax.tree.leaves(v0)
    given = leaves and not any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)
    random = jax.random.normal(jax.random.key(1), (block, space.size), space.dtype)
    if not given:
        return random
    first = jax.lax.stop_gradient(space.flatten(v0))[None]
    return first if block == 1 else jnp.concatenate([first, random[1:]])


def judge(name: str, found: Found, defect: Array | None, space: VectorSpace):
    """The info, and what values and vectors are multiplied by: NaN where they are not right.

    Outside of transformations an exception reports what did not converge.
    """
    fixed = jax.lax.stop_gradient(found)
    defect = fixed.defect if defect is None else jnp.maximum(fixed.defect, defect)
    is_hermitian = defect <= tolerances.hermitian_rtol(defect.dtype)
    report = EigenInfo(
        jnp.all(fixed.converged > 0.0) & is_hermitian,
        fixed.residuals,
        fixed.products.astype(jnp.int32),
        fixed.restarts.astype(jnp.int32),
        fixed.gap,
        fixed.scale,
        jnp.any(fixed.cut > 0.0),
        defect,
    )
    if not isinstance(report.converged, Tracer) and not bool(report.converged):
        if not bool(is_hermitian) or bool(jnp.any(jnp.isnan(fixed.w))):
            defect = jnp.where(jnp.any(jnp.isnan(fixed.w)), jnp.nan, defect)
            krylov_checks.refuse_not_hermitian(name, float(defect))
        what = f"{int(jnp.sum(fixed.converged))} of {len(fixed.w)} pairs are accurate"
        remedy = "Increase maxiter, ncv or tol."
        krylov_checks.refuse_unconverged(
            name, what, (fixed.w, space.columns(fixed.v), report), remedy
        )
    good = (fixed.converged > 0.0) & is_hermitian
    return report, jnp.where(good, 1.0, jnp.nan).astype(fixed.w.dtype)


def _result(name, found: Found, defect, space: VectorSpace, vectors: bool, info: bool) -> Any:
    """Report what did not converge, and put the result together."""
    report, guard = judge(name, found, defect, space)
    result: list[Any] = [found.w * guard]
    if vectors:
        result.append(space.columns(found.v * guard[:, None]))
    if info:
        result.append(report)
    return tuple(result) if len(result) > 1 else result[0]
