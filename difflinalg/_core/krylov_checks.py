"""Checks and error texts of matrix-free eigensolvers and linear solvers."""

import math
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
from jax.core import Tracer


class NotConverged(RuntimeError):
    """An iteration ended before the wanted accuracy; `found` is what it would have returned."""

    def __init__(self, message: str, found: object):
        super().__init__(message)
        self.found = found


def refuse_unconverged(name: str, what: str, found: object, remedy: str) -> NoReturn:
    """Report an iteration that did not converge, with what it found."""
    msg = (
        f"{name} has not converged: {what}. {remedy} The exception carries what was found in its "
        "attribute `found`; under jit the values that have not converged are NaN."
    )
    raise NotConverged(msg, found)


def refuse_not_hermitian(name: str, defect: float) -> NoReturn:
    """Refuse an operator that differs from its adjoint, or whose difference is not a number."""
    if math.isnan(defect):
        msg = (
            f"{name} met numbers that are not finite: check the entries of all matrices, that "
            "sigma is not an eigenvalue, that the metric is positive definite, and that the "
            "columns of a Y are independent."
        )
        raise ValueError(msg)
    msg = (
        f"{name} needs a Hermitian operator, and a Hermitian positive definite metric if there is "
        f"one; what it got differs from that by {defect:.1e} of the norm. Use eigs, or check them."
    )
    raise ValueError(msg)


def check_vector_leaves(name: str, leaves: list) -> None:
    """Refuse a vector that is not made of numbers."""
    if not leaves:
        msg = f"{name} got an empty vector; it needs an array or a pytree of arrays."
        raise ValueError(msg)
    for leaf in leaves:
        if not hasattr(leaf, "dtype") and not isinstance(leaf, (bool, int, float, complex)):
            msg = f"{name} needs vectors made of arrays, got {type(leaf).__name__}."
            raise TypeError(msg)


def check_same_vectors(name: str, vector: object, image: object) -> None:
    """Refuse a function that does not map a space of vectors to itself."""
    got = jax.tree.map(jnp.shape, image), jax.tree.structure(image)
    want = jax.tree.map(jnp.shape, vector), jax.tree.structure(vector)
    if got != want:
        msg = (
            f"{name} needs an operator whose image has the structure of the vector: from shapes "
            f"{want[0]} it made {got[0]}."
        )
        raise ValueError(msg)


def check_start(name: str, vector: object, start: object) -> None:
    """Refuse a starting vector that is not like the right-hand side."""
    got = jax.tree.map(jnp.shape, start)
    want = jax.tree.map(jnp.shape, vector)
    if got != want:
        msg = f"{name} needs x0 like b, of shapes {want}, got {got}."
        raise ValueError(msg)


def require_example(name: str, argument: str) -> NoReturn:
    """Ask for the vector that says on what a function acts."""
    msg = (
        f"{name} cannot know the vectors that a function acts on: give {argument}, a vector or "
        "its shapes (jax.ShapeDtypeStruct)."
    )
    raise ValueError(msg)


def check_vector(name: str, argument: str, got: object, size: int) -> None:
    """Refuse a vector that does not fit the operator."""
    shape = getattr(got, "shape", type(got).__name__)
    if shape != (size,):
        msg = f"{name} needs {argument} of shape ({size},) for this operator, got {shape}."
        raise ValueError(msg)


def check_count(name: str, argument: str, value: object, low: int, high: int) -> int:
    """A static integer from `low` to `high`."""
    if isinstance(value, (bool, Tracer)) or not hasattr(value, "__index__"):
        msg = (
            f"{name} needs `{argument}` as a Python integer, got {type(value).__name__}; it fixes "
            "the shape of arrays, so under jit mark it static."
        )
        raise TypeError(msg)
    number = value.__index__()  # type: ignore[attr-defined]
    if not low <= number <= high:
        msg = f"{name} needs {low} <= {argument} <= {high} here, got {argument}={number}."
        raise ValueError(msg)
    return number


def check_limits(name: str, maxiter: object, default: int, *tolerances: object) -> tuple[Any, ...]:
    """The static limits of an iteration: the number of steps, and tolerances as floats."""
    steps = default if maxiter is None else check_count(name, "maxiter", maxiter, 0, 1 << 30)
    for value in tolerances:
        if isinstance(value, Tracer):
            msg = (
                f"{name} needs its tolerances as Python numbers, got a traced value; they are part "
                "of the compiled program, so under jit mark them static."
            )
            raise TypeError(msg)
    return steps, *(float(value) for value in tolerances)  # type: ignore[arg-type]


def refuse_argument(name: str, argument: str, reason: str) -> NoReturn:
    """Refuse an argument that does not go with the others."""
    msg = f"{name} cannot take {argument}: {reason}."
    raise ValueError(msg)


def check_precision(name: str, dtype: Any) -> None:
    """Refuse vectors whose small matrices no decomposition takes, such as half precision."""
    if jnp.dtype(dtype).name not in ("float32", "float64", "complex64", "complex128"):
        msg = (
            f"{name} needs vectors of dtype float32, float64, complex64 or complex128, got "
            f"{jnp.dtype(dtype).name}: convert the matrix, or the images of the function and v0."
        )
        raise TypeError(msg)


def check_square(name: str, shape: tuple[int, ...]) -> None:
    """Refuse a matrix that is not one square matrix."""
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] == 0:
        msg = (
            f"{name} needs one square matrix, shape (n, n), got shape {shape}; use jax.vmap for a "
            "stack, svds for a rectangular matrix."
        )
        raise ValueError(msg)


def check_fits(name: str, shape: tuple[int, ...], size: int) -> None:
    """Refuse a matrix that does not act on vectors of `size`."""
    if tuple(shape) != (size, size):
        msg = f"{name} needs matrices of shape ({size}, {size}) here, got shape {tuple(shape)}."
        raise ValueError(msg)


def refuse_operator(name: str, a: object) -> NoReturn:
    """Refuse what is neither a matrix nor a function."""
    msg = f"{name} needs an array, a BCOO matrix or a function, got {type(a).__name__}."
    raise TypeError(msg)


def check_matrix_shape(name: str, shape: tuple[int, ...]) -> None:
    """Refuse what is not one matrix."""
    if len(shape) != 2 or 0 in shape:
        msg = f"{name} needs one matrix, shape (m, n), got shape {shape}; use jax.vmap for a stack."
        raise ValueError(msg)


def check_flat(name: str, *shapes: tuple[int, ...]) -> None:
    """Refuse vectors that are not one-dimensional arrays."""
    if any(len(shape) != 1 for shape in shapes):
        msg = f"{name} needs functions from arrays (n,) to arrays (m,), got shapes {shapes}."
        raise ValueError(msg)


def check_columns(name: str, argument: str, value: object, axis: int = 1) -> int:
    """The number of columns of a matrix of vectors, at least one, or of rows (axis 0)."""
    shape = tuple(getattr(value, "shape", ()))
    if len(shape) != 2 or 0 in shape or shape[1] > shape[0]:
        msg = f"{name} needs {argument} of shape (n, k) with 1 <= k <= n, got shape {shape}."
        raise ValueError(msg)
    return shape[axis]


def check_rows(name: str, argument: str, value: object, size: int) -> None:
    """Refuse a matrix of vectors of another length."""
    shape = tuple(getattr(value, "shape", ()))
    if len(shape) != 2 or shape[0] != size:
        msg = f"{name} needs {argument} of shape ({size}, c) here, got shape {shape}."
        raise ValueError(msg)


def refuse_moving_function(name: str) -> NoReturn:
    """Refuse a derivative with respect to what a matrix function closes over."""
    msg = (
        f"{name} has no derivative with respect to what the function f closes over; let the "
        "parameter enter through the operator, or through t for f(t A)."
    )
    raise NotImplementedError(msg)


def check_block(name: str, shape: tuple[int, ...], size: int) -> None:
    """Refuse what is not one vector of `size` entries or a matrix of such columns."""
    if len(shape) not in (1, 2) or shape[0] != size:
        msg = f"{name} needs B of shape ({size},) or ({size}, k) for this A, got shape {shape}."
        raise ValueError(msg)


def check_matrix_function(name: str, shape: tuple[int, ...], size: int) -> None:
    """Refuse a function of matrices that does not return one of the same size."""
    if shape != (size, size):
        msg = (
            f"{name} needs an f that maps a matrix to its matrix function, such as "
            f"jax.scipy.linalg.expm; from shape ({size}, {size}) it made {shape}."
        )
        raise ValueError(msg)


def refuse_foreign_matrix(a: object) -> NoReturn:
    """Refuse a sparse matrix or an operator of another library."""
    msg = (
        f"{type(a).__module__}.{type(a).__name__} is not a matrix that JAX can trace: give an "
        "array, jax.experimental.sparse.BCOO.from_scipy_sparse(a) or a function."
    )
    raise TypeError(msg)
