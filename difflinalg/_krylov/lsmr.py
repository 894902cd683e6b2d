"""`lsmr`: least-squares and minimum-norm solutions, as `scipy.sparse.linalg.lsmr`."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from difflinalg._core import krylov_checks
from difflinalg._core.program import hoist
from difflinalg._core.results import LsmrResult
from difflinalg._krylov.least_squares import Solution, Spec, lsmr_core
from difflinalg._krylov.operator import VectorSpace, cast, is_matrix, matrix_product, space_of


def lsmr(
    A: Any,
    b: Any,
    damp: Any = 0.0,
    atol: float = 1e-6,
    btol: float = 1e-6,
    conlim: float = 1e8,
    maxiter: int | None = None,
    show: bool = False,
    x0: Any = None,
) -> LsmrResult:
    """The `x` of minimum norm that minimises `|b - A x|^2 + damp^2 |x|^2`.

    Args:
        A: an array `(m, n)`, a BCOO matrix, or a linear function that may close over
            differentiated, batched or traced arrays. Vectors are arrays or pytrees of arrays.
        b: the right-hand side, like the images of `A`.
        damp: weight of the norm of the solution.
        atol: relative error of `A`, and
        btol: of `b` that the solution may answer for: converged when `|r| <= btol |b| + atol |A|
            |x|` or `|A^H r| <= atol |A| |r|` for `r = b - A x`.
        conlim: condition number at which to give up; 0 for no limit.
        maxiter: largest number of steps, `10 min(m, n)` by default (SciPy: `min(m, n)`).
        show: not supported; must be false.
        x0: subtracted from `x` in the problem above: the solution is as close to it as
            possible. Where `A` is a function it also says what `x` is; shapes
            (`jax.ShapeDtypeStruct`) do so, and stand for zero.

    Returns:
        `LsmrResult` with `x`, `istop`, `itn`, `normr`, `normar`, `norma`, `conda`, `normx`, as in
        SciPy, also where the rank is not full. `normr` and `normar` are recomputed.

    Raises:
        ValueError: if shapes do not fit.
        NotConverged: outside of jit and other transformations, where `maxiter` or `conlim` is
            reached; inside `x` is NaN, and `istop` is 3, 6 or 7.

    Derivatives:
        Forward and reverse mode in any nesting, with respect to `b`, `damp`, `x0` and all that
        `A` closes over, by solves with the same method and tolerances, each with its right-hand
        side scaled to norm 1; NaN where one of them has not converged. They are those of a
        pseudoinverse of constant rank: where the rank is not full a perturbation that changes it
        has no derivative. They are as accurate as `atol` and `btol` ask, times the condition.

    Cost:
        A product with `A` and one with its adjoint for each step. A tangent with respect to `A`
        costs three solves, one with respect to `b` one.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg.scipy.sparse.linalg import lsmr
        >>> a = jnp.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
        >>> print(lsmr(a, jnp.array([1.0, 2.0, 2.0])).x.round(4))
        [1.5 1. ]

    References:
        Fong and Saunders, "LSMR: an iterative algorithm for sparse least-squares problems" (2011),
        section 2.8, arXiv:1006.0758.
        Golub and Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares
        problems whose variables separate" (1973), equation 4.12.
    """
    name = "lsmr"
    if show:
        krylov_checks.refuse_argument(name, "show=True", "nothing is printed; see the result")
    domain, image = _spaces(name, A, b, x0)
    dtype = domain.dtype
    product = matrix_product(cast(A, dtype)) if is_matrix(A) else _on_flat(A, domain, image)
    damped = isinstance(damp, (Tracer, jax.Array, np.ndarray)) or damp != 0.0
    weight = jnp.asarray(damp).astype(jnp.finfo(dtype).dtype)

    def operator(x: Array) -> Array:
        y = product(x)
        return jnp.concatenate([y, weight * x]) if damped else y

    given = jax.tree.leaves(x0)
    moved = bool(given) and not any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in given)
    rhs, start = image.flatten(b), domain.flatten(x0) if moved else None
    if start is not None:
        rhs = rhs - product(start)
    if damped:
        rhs = jnp.concatenate([rhs, jnp.zeros((domain.size,), dtype)])
    program, consts = hoist(operator, domain.example)
    default = 10 * min(image.size, domain.size)
    limits = krylov_checks.check_limits(name, maxiter, default, atol, btol, conlim)
    limit, atol, btol, conlim = limits
    spec = Spec(program, rhs.shape[0], domain.size, atol, btol, conlim, limit)
    return _result(lsmr_core(tuple(consts), rhs, spec), start, domain)


def _on_flat(f: Any, domain: VectorSpace, image: VectorSpace):
    return lambda x: image.flatten(f(domain.unflatten(x)))


def _spaces(name: str, A: Any, b: Any, x0: Any) -> tuple[VectorSpace, VectorSpace]:
    """The spaces of `x` and of `b`, of one dtype."""
    image = space_of(name, b)
    if is_matrix(A):
        krylov_checks.check_matrix_shape(name, A.shape)
        krylov_checks.check_vector(name, "b", b, A.shape[0])
        if x0 is not None:
            krylov_checks.check_vector(name, "x0", x0, A.shape[1])
        like = jax.ShapeDtypeStruct((A.shape[1],), A.dtype) if x0 is None else x0
        domain = space_of(name, like)
        dtype = jnp.result_type(domain.dtype, image.dtype, A.dtype)
        return domain.with_dtype(dtype), image.with_dtype(dtype)
    if not callable(A):
        krylov_checks.refuse_operator(name, A)
    if x0 is None:
        krylov_checks.require_example(name, "x0")
    domain = space_of(name, x0)
    tree = jax.eval_shape(domain.unflatten, domain.example)
    found = jax.eval_shape(A, tree)
    krylov_checks.check_same_vectors(name, jax.tree.map(lambda x: x, b), found)
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(found)]
    dtype = jnp.result_type(domain.dtype, image.dtype, *dtypes)
    return domain.with_dtype(dtype), image.with_dtype(dtype)


def _result(found: Solution, start: Array | None, domain: VectorSpace) -> LsmrResult:
    """Report a solve that has not converged, and put the result together."""
    fixed = jax.lax.stop_gradient(found)
    x = found.x if start is None else found.x + start
    normx = fixed.normx if start is None else jnp.linalg.norm(jax.lax.stop_gradient(x))

    def result(x: Array) -> LsmrResult:
        return LsmrResult(
            domain.unflatten(x), fixed.istop.astype(jnp.int32), fixed.itn.astype(jnp.int32),
            fixed.normr, fixed.normar, fixed.norma, fixed.conda, normx,
        )  # fmt: skip

    if not isinstance(fixed.converged, Tracer) and not bool(fixed.converged > 0.0):
        what = f"stopped after {int(fixed.itn)} steps for the reason istop={int(fixed.istop)}"
        remedy = "Increase maxiter, conlim, atol or btol, or give damp."
        krylov_checks.refuse_unconverged("lsmr", what, result(x), remedy)
    guard = jnp.where(fixed.converged > 0.0, 1.0, jnp.nan).astype(fixed.normr.dtype)
    return result(x * guard)
