"""The solution of a linear equation as a differentiable function of all that enters it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.core import Tracer

from difflinalg._core import krylov_checks
from difflinalg._krylov.operator import (
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
# (apply, apply of the preconditioner, b, start) -> Outcome
Method = Callable[[Map, Map, Array, Array], Outcome]


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
    for f in (A, *others):
        if f is not None:
            tree = jax.eval_shape(space.unflatten, space.example)
            krylov_checks.check_same_vectors(name, tree, jax.eval_shape(as_function(f), tree))
            space = space.with_dtype(image_dtype(as_function(f), space))
    return space


def solve_linear(
    method: Method,
    apply: Map,
    precondition: Map,
    b: Array,
    start: Array | None,
    hermitian: bool,
) -> tuple[Array, Array]:
    """Solve `apply(x) = b` on flat vectors; the solution and the number of steps.

    The derivative is another solve with the same method, `A x_dot = b_dot - A_dot x`, and the
    transpose is one with the transposes of the operator and of the preconditioner. Neither
    the starting vector nor the preconditioner is differentiated. Every right-hand side is scaled
    to norm 1 first.
    """
    like = jax.ShapeDtypeStruct(b.shape, b.dtype)

    def run(operator: Map, inverse: Map, rhs: Array, first: Array | None):
        size = scaled_norms(rhs)
        safe = jnp.where(size > 0.0, size, 1.0)
        first = jnp.zeros_like(rhs) if first is None else first / safe
        outcome = method(operator, inverse, rhs / safe, first)
        return jnp.where(size > 0.0, outcome.x, 0.0) * safe, outcome.steps.astype(size.dtype)

    def transposed(f: Map) -> Map:
        if hermitian:
            return lambda y: jnp.conj(f(jnp.conj(y)))
        return lambda y: jax.linear_transpose(f, like)(y)[0]

    def transpose_solve(_: Map, rhs: Array):
        return run(transposed(apply), transposed(precondition), rhs, None)

    def solve(operator: Map, rhs: Array):
        return run(operator, precondition, rhs, start)

    return lax.custom_linear_solve(apply, b, solve, transpose_solve, has_aux=True)


def report(
    name: str, apply: Map, x: Array, b: Array, steps: Array, tolerance: Array | float
) -> tuple[Array, SolveInfo]:
    """The solution, NaN where it has not converged, and the info; eager: an exception."""
    residual = scaled_norms(lax.stop_gradient(b - apply(x)))
    converged = residual <= tolerance
    info = SolveInfo(converged, residual, steps.astype(jnp.int32))
    if not isinstance(converged, Tracer) and not bool(converged):
        what = f"the residual {float(residual):.1e} exceeds {float(tolerance):.1e}"
        remedy = "Increase maxiter or the tolerance, or give a preconditioner."
        krylov_checks.refuse_unconverged(name, what, (x, info), remedy)
    return x * jnp.where(converged, 1.0, jnp.nan).astype(residual.dtype), info
