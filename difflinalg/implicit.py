"""Solutions of equations, with the derivatives of the implicit function theorem.

The derivative is that of the solution, not of the iteration that found it: exact to the tolerance,
with memory independent of the number of steps, in both modes and to any order.
"""

from collections.abc import Callable
from typing import Any

from difflinalg._core import implicit_checks, tolerances
from difflinalg._core.implicit_checks import NotConvergedError as NotConvergedError
from difflinalg._implicit.linear import GMRES as GMRES
from difflinalg._implicit.linear import BiCGStab as BiCGStab
from difflinalg._implicit.linear import Dense as Dense
from difflinalg._implicit.linear import LinearSolver as LinearSolver
from difflinalg._implicit.linear import Neumann as Neumann
from difflinalg._implicit.problem import trace
from difflinalg._implicit.solution import ImplicitInfo as ImplicitInfo
from difflinalg._implicit.solution import ImplicitResult as ImplicitResult
from difflinalg._implicit.solution import Settings, solve


def fixed_point(
    f: Callable[[Any, Any], Any],
    x0: Any,
    params: Any = (),
    *,
    rtol: float | None = None,
    atol: float = 0.0,
    max_steps: int = 1000,
    solver: LinearSolver = GMRES(),  # noqa: B008  frozen
    trust_rtol: float | None = None,
) -> ImplicitResult:
    """The solution of `x = f(x, params)` that the iteration of `f` finds.

    Args:
        f: takes `x` and `params` to something like `x`. It may close over traced values.
        x0: where to start, a pytree of floating or complex arrays. A solution found by other
            means is accepted after one evaluation.
        params: a pytree of arrays, integers among them too.
        rtol: stop where `|f(x) - x| <= rtol |x| + atol`, all leaves taken together;
            `eps^(3/4)` by default.
        atol: see `rtol`; give it where the solution may be zero.
        max_steps: how often `f` is evaluated at most.
        solver: of the linear equation of the derivative, with its own tolerance: `GMRES`,
            `BiCGStab`, `Dense`, `Neumann`, or any hashable object of type `LinearSolver`.
        trust_rtol: largest `|f(x) - x| / |x|` at which the derivative is given, where `f` is
            evaluated for it; 100 `rtol` by default.

    Returns:
        `ImplicitResult(x, info)`, `info = ImplicitInfo(converged, steps, residual)`. Under jit `x`
        is NaN where it has not converged.

    Raises:
        NotConvergedError: outside of jit and vmap, with `x` and `info`.
        TypeError: if a leaf of `x0` is not floating or complex, or `f(x, params)` has another
            structure, shape or dtype than `x0`.
        ValueError: if a tolerance is negative or `max_steps` not positive.

    Derivatives:
        Forward and reverse mode in any nesting, with respect to `params` and all that `f` closes
        over; zero with respect to `x0`. `f` need not be holomorphic: real and imaginary parts are
        separate unknowns. `1` must not be an eigenvalue of the derivative of `f`: a family of
        solutions (a gauge freedom) has no derivative, fix the gauge in `f`. Where `f` fixes a
        gauge, take it from the values that `f` itself computed, with `lax.stop_gradient`. NaN
        where the linear solve has not converged, and where `f`, evaluated once more for the
        derivative, misses `x` by more than `trust_rtol`.

    Cost:
        `steps` evaluations of `f`. A tangent or a gradient costs one linearisation of `f` and one
        product with it for each step of the solver. Memory does not depend on `steps`. Outside of
        jit a call compiles for each new function object.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg import implicit
        >>> def babylonian(x, a):
        ...     return 0.5 * (x + a / x)
        >>> print(jax.grad(lambda a: implicit.fixed_point(babylonian, 1.0, a).x)(4.0))
        0.25

    References:
        Krantz and Parks, "The implicit function theorem" (2013), theorem 3.3.1.
        Christianson, "Reverse accumulation and attractive fixed points" (1994), section 4.
    """
    name = "fixed_point"
    return _solve(name, False, f, x0, params, rtol, atol, max_steps, solver, trust_rtol)


def root(
    f: Callable[[Any, Any], Any],
    x0: Any,
    params: Any = (),
    *,
    rtol: float | None = None,
    atol: float = 0.0,
    max_steps: int = 100,
    solver: LinearSolver = GMRES(),  # noqa: B008  frozen
    trust_rtol: float | None = None,
) -> ImplicitResult:
    """The solution of `f(x, params) = 0` that Newton's method finds.

    Args:
        f: takes `x` and `params` to something like `x`. It may close over traced values.
        x0: where to start, a pytree of floating or complex arrays.
        params: a pytree of arrays, integers among them too.
        rtol: stop where the Newton step is at most `rtol |x| + atol`, all leaves taken together;
            `eps^(3/4)` by default.
        atol: see `rtol`.
        max_steps: number of Newton steps at most. A step is halved until `|f|` decreases.
        solver: of the linear equations, see `fixed_point`; here also of the Newton steps.
        trust_rtol: as in `fixed_point`, for `|f(x)|` relative to the growth of `x` under the
            derivative of `f`; 100 `rtol` by default.

    Returns:
        `ImplicitResult(x, info)`; `info.residual` is the last Newton step relative to `|x|`.

    Raises:
        NotConvergedError: as `fixed_point`.
        TypeError: as `fixed_point`.
        ValueError: as `fixed_point`.

    Derivatives:
        As `fixed_point`. The derivative of `f` must be regular at the solution: a multiple root
        has no derivative.

    Cost:
        A linearisation of `f` and a linear solve for each Newton step; derivatives as
        `fixed_point`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg import implicit
        >>> def cube(x, a):
        ...     return x**3 - a
        >>> print(jax.grad(lambda a: implicit.root(cube, 1.0, a).x)(8.0).round(4))
        0.0833

    References:
        Krantz and Parks, "The implicit function theorem" (2013), theorem 3.3.1.
        Dennis and Schnabel, "Numerical methods for unconstrained optimization and nonlinear
        equations" (1996), section 6.5 (damping).
    """
    return _solve("root", True, f, x0, params, rtol, atol, max_steps, solver, trust_rtol)


def _solve(
    name, newton, f, x0, params, rtol, atol, max_steps, solver, trust_rtol
) -> ImplicitResult:
    function, layout, z0, arguments = trace(name, f, x0, params)
    rtol = tolerances.implicit_rtol(layout.dtype) if rtol is None else float(rtol)
    trust = tolerances.trust_factor() * rtol if trust_rtol is None else float(trust_rtol)
    implicit_checks.check_iteration(name, rtol, float(atol), max_steps)
    limit = max_steps.__index__()
    settings = Settings(name, newton, rtol, float(atol), limit, solver, trust, layout)
    return solve(function, z0, arguments, settings)
