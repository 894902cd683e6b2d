"""Linear solves with the signatures of `jax.scipy.sparse.linalg`, and `minres`."""

from typing import Any

import jax
import jax.numpy as jnp

from difflinalg._core import checks, krylov_checks, tolerances
from difflinalg._krylov import iterations
from difflinalg._krylov.linear_map import Spec, as_function, prepare, report, solve_core
from difflinalg._krylov.operator import Linear, linear
from difflinalg._krylov.orthogonal import scaled_norms


def cg(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    return_info: bool = False,
) -> tuple[Any, Any]:
    """Solve `A x = b` for a Hermitian positive definite `A` by conjugate gradients.

    Args:
        A: an array `(n, n)`, a BCOO matrix, or a linear function on vectors like `b`, which may
            close over differentiated, batched or traced arrays.
        b: the right-hand side, an array or a pytree of arrays.
        x0: where the iteration starts, zero by default; it has the derivative zero.
        tol: relative, and
        atol: absolute bound: converged when `|b - A x| <= max(tol |b|, atol)`.
        maxiter: largest number of steps, `10 n` by default.
        M: preconditioner, an approximate inverse of `A`, Hermitian positive definite.
        return_info: give a `SolveInfo` in the place of `None`.

    Returns:
        `x`, like `b`, and None (as in JAX) or the info.

    Raises:
        ValueError: if shapes do not fit.
        NotConverged: outside of jit and other transformations; inside `x` is NaN.

    Derivatives:
        Forward and reverse mode in any nesting, with respect to `b` and to what `A` closes over,
        by a second solve with the same method and tolerance, started from zero, its right-hand
        side scaled to norm 1. In the reverse pass the preconditioner is its adjoint. `M` and
        `x0` are not differentiated. A derivative is as accurate as `tol` asks, and NaN where the
        solve inside of it has not converged.

    Cost:
        One product with `A` and one with `M` for each step.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg.scipy.sparse.linalg import cg
        >>> half = lambda a: cg(lambda x: a * x, jnp.ones(2))[0][0]
        >>> print(half(2.0), jax.grad(half)(2.0))
        0.5 -0.25

    References:
        Hestenes and Stiefel, "Methods of conjugate gradients for solving linear systems" (1952),
        equations 3:1.
    """
    method = iterations.conjugate_gradients
    return _solve("cg", method, (A, b, x0, M), (tol, atol, maxiter), True, return_info)


def bicgstab(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    return_info: bool = False,
) -> tuple[Any, Any]:
    """Solve `A x = b` by the stabilised method of biconjugate gradients.

    Args:
        A: as in `cg`, but any regular matrix.
        b: as in `cg`.
        x0: as in `cg`.
        tol: as in `cg`.
        atol: as in `cg`.
        maxiter: as in `cg`.
        M: preconditioner, an approximate inverse of `A`.
        return_info: as in `cg`.

    Returns:
        As `cg`.

    Raises:
        As `cg`. The method can break down; then it has not converged.

    Derivatives:
        As `cg`; the reverse pass solves with the transposes of `A` and `M`.

    Cost:
        Two products with `A` and two with `M` for each step.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg.scipy.sparse.linalg import bicgstab
        >>> print(bicgstab(jnp.array([[1.0, 2.0], [0.0, 4.0]]), jnp.array([0.0, 4.0]))[0][1])
        1.0

    References:
        van der Vorst, "Bi-CGSTAB: a fast and smoothly converging variant of Bi-CG" (1992),
        section 3.
    """
    method = iterations.bicgstab_iteration
    return _solve("bicgstab", method, (A, b, x0, M), (tol, atol, maxiter), False, return_info)


def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    restart: int = 20,
    maxiter: int | None = None,
    M: Any = None,
    solve_method: str = "batched",
    return_info: bool = False,
) -> tuple[Any, Any]:
    """Solve `A x = b` by restarted GMRES.

    Args:
        A: as in `cg`, but any regular matrix.
        b: as in `cg`.
        x0: as in `cg`.
        tol: as in `cg`.
        atol: as in `cg`.
        restart: vectors in the basis.
        maxiter: largest number of restarts, `10 n` by default.
        M: preconditioner, an approximate inverse of `A`, applied from the right.
        solve_method: `'batched'` or `'incremental'`, both accepted: the residual is tested at
            each restart, and the small problem is solved by least squares.
        return_info: as in `cg`.

    Returns:
        As `cg`; the steps of the info are restarts.

    Raises:
        As `cg`; also where a restart does not reduce the residual.

    Derivatives:
        As `cg`; the reverse pass solves with the transposes of `A` and `M`.

    Cost:
        `restart` products with `A` and `4 n restart^2` operations for each restart.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg.scipy.sparse.linalg import gmres
        >>> x, _ = gmres(jnp.array([[0.0, 1.0], [-1.0, 0.0]]), jnp.array([1.0, 0.0]))
        >>> print(abs(x[1]))
        1.0

    References:
        Saad and Schultz, "GMRES: a generalized minimal residual algorithm" (1986), algorithm 4.
    """
    checks.check_choice("gmres", "solve_method", solve_method, ("batched", "incremental"))
    size = sum(jnp.size(leaf) for leaf in jax.tree.leaves(b))
    restart = min(krylov_checks.check_count("gmres", "restart", restart, 1, 1 << 30), max(size, 1))
    method, limits = iterations.gmres_iteration, (tol, atol, maxiter)
    return _solve("gmres", method, (A, b, x0, M), limits, False, return_info, restart)


def minres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    return_info: bool = False,
) -> tuple[Any, Any]:
    """Solve `A x = b` for a Hermitian, possibly indefinite `A` by minimal residuals.

    Args:
        A: as in `cg`, but only Hermitian.
        b: as in `cg`.
        x0: as in `cg`.
        tol: as in `cg`.
        atol: as in `cg`.
        maxiter: as in `cg`.
        M: preconditioner, an approximate inverse, Hermitian positive definite.
        return_info: as in `cg`.

    Returns:
        As `cg`.

    Raises:
        As `cg`.

    Derivatives:
        As `cg`.

    Cost:
        One product with `A` and one with `M` for each step.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg.scipy.sparse.linalg import minres
        >>> x, _ = minres(jnp.array([[0.0, 2.0], [2.0, 0.0]]), jnp.array([1.0, 0.0]))
        >>> print(x[1])
        0.5

    References:
        Paige and Saunders, "Solution of sparse indefinite systems of linear equations" (1975),
        section 6.
    """
    method = iterations.minres_iteration
    return _solve("minres", method, (A, b, x0, M), (tol, atol, maxiter), True, return_info)


def _solve(name, iteration, problem, limits, hermitian: bool, return_info: bool, restart=None):
    A, b, x0, M = problem
    tol, atol, maxiter = limits
    space = prepare(name, A, b, (M,))

    def on_flat(f: Any) -> Linear:
        g = as_function(f)
        return linear(lambda x: space.flatten(g(space.unflatten(x))), space.example)

    a = on_flat(A)
    precondition = None if M is None else on_flat(M)
    rhs = space.flatten(b)
    start = None
    if x0 is not None:
        tree = jax.eval_shape(space.unflatten, space.example)
        krylov_checks.check_start(name, tree, x0)
        start = space.flatten(x0)
    size = scaled_norms(jax.lax.stop_gradient(rhs))
    # Relative to the unit right-hand side of the iteration; a derivative has the relative part.
    relative = jnp.maximum(tol, atol / jnp.where(size > 0.0, size, 1.0)).astype(size.dtype)
    (steps,) = krylov_checks.check_limits(name, maxiter, 10 * space.size)
    spec = Spec(iteration, steps, hermitian, restart)
    x, count = solve_core(a, precondition, rhs, start, relative, spec)
    slack = tolerances.bound_slack(rhs.dtype)
    floor = tolerances.epsilon(rhs.dtype) * size
    x, info = report(name, a, x, rhs, count, slack * relative * size + floor)
    return space.unflatten(x), (info if return_info else None)
