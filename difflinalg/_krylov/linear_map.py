"""The solution of a linear equation as a differentiable function of all that enters it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.core import Tracer

from difflinalg._core import krylov_checks, tolerances
from difflinalg._core.operation import operation
from difflinalg._krylov.operator import (
    Linear,
    VectorSpace,
    image_dtype,
    is_matrix,
    matrix_product,
    space_of,
)
from difflinalg._krylov.orthogonal import scaled_norms


class SolveInfo(NamedTuple):
    """How a linear solve ended; the residual is the true one."""

    converged: Array
    residual_norm: Array  # |b - A x|
    steps: Array


class Outcome(NamedTuple):
    """What an iteration hands back for a right-hand side of norm 1."""

    x: Array
    steps: Array


Map = Callable[[Array], Array]
# (apply, apply of the preconditioner or None, b, start or None, bound, max_steps[, restart])
Method = Callable[..., Outcome]


@dataclass(frozen=True)
class Spec:
    """Static options of a solve; with `restart` they are an argument of the method."""

    method: Method
    max_steps: int
    hermitian: bool
    restart: int | None = None

    def run(self, operator: Map, inverse: Map | None, b: Array, start: Array | None, bound: Array):
        """Iterate for a right-hand side of any size, scaled to norm 1."""
        size = scaled_norms(b)
        safe = jnp.where(size > 0.0, size, 1.0)
        first = None if start is None else start / safe
        more = {} if self.restart is None else {"restart": self.restart}
        found = self.method(operator, inverse, b / safe, first, bound, self.max_steps, **more)
        return Outcome(jnp.where(size > 0.0, found.x, 0.0), found.steps), safe


def as_function(A: Any) -> Callable[[Any], Any]:
    """A matrix as the function that multiplies by it."""
    return matrix_product(A) if is_matrix(A) else A


def prepare(name: str, A: Any, b: Any, others: tuple[Any, ...] = ()) -> VectorSpace:
    """The space of `b`, with a dtype that holds the images."""
    space = space_of(name, b)
    if is_matrix(A):
        krylov_checks.check_square(name, A.shape)
        krylov_checks.check_vector(name, "b", b, A.shape[0])
    elif not callable(A):
        krylov_checks.refuse_operator(name, A)
    operators: list[Any] = [f for f in (A, *others) if f is not None]
    for f in operators:
        if is_matrix(f):
            krylov_checks.check_fits(name, f.shape, space.size)
        tree = jax.eval_shape(space.unflatten, space.example)
        krylov_checks.check_same_vectors(name, tree, jax.eval_shape(as_function(f), tree))
        space = space.with_dtype(image_dtype(as_function(f), space))
    return space


@operation(statics=1)
def solve_core(
    a: Linear, inverse: Linear | None, b: Array, start: Array | None, bound: Array, spec: Spec
) -> Outcome:
    """The solution of `a x = b` and the number of steps, floating.

    The derivative is another solve, `A x_dot = b_dot - A_dot x`, with the same method and bound,
    started from zero. Neither the starting vector nor the preconditioner is differentiated.
    """
    found, size = spec.run(a, inverse, b, start, bound)
    return Outcome(found.x * size, found.steps.astype(size.dtype))


@partial(solve_core.defjvp, symbolic_zeros=True)
def _solve_core_jvp(spec: Spec, primals: Any, tangents: Any) -> tuple[Outcome, Outcome]:
    a, inverse, b, _, bound = primals
    a_dot, _, b_dot, _, _ = tangents
    found = solve_core(*primals, spec)
    rhs = jnp.zeros_like(b) if b_dot is None else b_dot
    moved = a.rows_dot(a_dot, found.x[None])
    rhs = rhs if moved is None else rhs - moved[0]
    x_dot = transposable_solve(a, inverse, rhs, bound, spec)
    return found, Outcome(x_dot, jnp.zeros_like(found.steps))


def transposable_solve(
    a: Linear, inverse: Linear | None, b: Array, bound: Array, spec: Spec
) -> Array:
    """`a^-1 b`, or NaN; JAX transposes it by the transposes of operator and preconditioner."""
    like = jax.ShapeDtypeStruct(b.shape, b.dtype)

    def transposed(f: Map) -> Map:
        if spec.hermitian:
            return lambda y: jnp.conj(f(jnp.conj(y)))
        return lambda y: jax.linear_transpose(f, like)(y)[0]

    def run(operator: Map, inverse: Map | None, rhs: Array) -> Array:
        found, size = spec.run(operator, inverse, rhs, None, bound)
        unit, x = rhs / size, found.x
        residual = jnp.linalg.norm(unit - operator(x))
        converged = residual <= _allowed(operator, unit, x, bound)  # false for NaN too
        return jnp.where(converged, x, jnp.nan) * size

    def solve(operator: Map, rhs: Array) -> Array:
        return run(operator, inverse, rhs)

    def transpose_solve(_: Map, rhs: Array) -> Array:
        return run(transposed(a), None if inverse is None else transposed(inverse), rhs)

    return lax.custom_linear_solve(a, b, solve, transpose_solve)


def _allowed(operator: Map, unit: Array, x: Array, bound: Array) -> Array:
    """The residual of a right-hand side of norm 1 that counts as converged.

    The wanted one, or what rounding leaves: a few epsilon of the norm of `A` times that of `x`.
    """
    norm = jnp.linalg.norm(operator(unit))
    rounding = tolerances.attainable_rtol(x.dtype) * (1.0 + norm * jnp.linalg.norm(x))
    return tolerances.bound_slack(x.dtype) * bound + rounding


def report(
    name: str, apply: Map, x: Array, b: Array, steps: Array, tolerance: Array | float
) -> tuple[Array, SolveInfo]:
    """The solution, NaN where it has not converged, and the info; eager: an exception."""
    residual = scaled_norms(lax.stop_gradient(b) - lax.stop_gradient(apply(x)))
    converged = residual <= tolerance
    info = SolveInfo(converged, residual, steps.astype(jnp.int32))
    if not isinstance(converged, Tracer) and not bool(converged):
        what = f"the residual {float(residual):.1e} exceeds {float(tolerance):.1e}"
        remedy = "Increase maxiter or the tolerance, or give a preconditioner."
        krylov_checks.refuse_unconverged(name, what, (x, info), remedy)
    return x * jnp.where(converged, 1.0, jnp.nan).astype(residual.dtype), info
