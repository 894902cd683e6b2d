"""Checks of arguments of decompositions, norms and solvers of dense matrices, and error texts."""

import itertools
import operator
from collections.abc import Sequence
from typing import NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from difflinalg._core.checks import (
    ShapeError,
    as_index,
    as_inexact,
    as_matrix,
    check_choice,
    describe,
    refuse_half,
    refuse_nonfinite,
    refuse_shapes,
)


def as_factors(name: str, a: ArrayLike | tuple[ArrayLike, ...]) -> tuple[Array, ...]:
    """The factors of a product of matrices, of one dtype and with the same batch dimensions.

    A single matrix is its own factor.
    """
    if isinstance(a, list):
        shapes = [getattr(matrix, "shape", ()) for matrix in a]
        if len(set(shapes)) > 1:
            listed = ", ".join(str(shape) for shape in shapes)
            msg = (
                f"{name} got a list of arrays of shapes {listed}, which is no stack of matrices; "
                "give the factors of a product as a tuple."
            )
            raise ValueError(msg)
    if not isinstance(a, tuple):
        return (as_matrix(name, a),)
    if not a:
        msg = f"{name} needs at least one factor, got an empty tuple."
        raise ValueError(msg)
    factors = [as_matrix(name, factor) for factor in a]
    pairs = itertools.pairwise(factors)
    if any(left.shape[-1] != right.shape[-2] for left, right in pairs):
        refuse_shapes(name, *(factor.shape for factor in factors))
    dtype = jnp.result_type(*factors)
    batch = jnp.broadcast_shapes(*(factor.shape[:-2] for factor in factors))
    return tuple(
        jnp.broadcast_to(factor.astype(dtype), (*batch, *factor.shape[-2:])) for factor in factors
    )


def as_product(name: str, product: ArrayLike, factors: tuple[Array, ...]) -> Array:
    """The product of `factors` as a caller has it, of their dtype and batch dimensions."""
    array = as_matrix(name, product)
    shape = (*factors[0].shape[:-1], factors[-1].shape[-1])
    if len(factors) == 1 or array.shape != shape:
        msg = (
            f"the product that {name} takes is that of a tuple of matrices, here of shape {shape} "
            f"for {len(factors)} of them, got shape {array.shape}."
        )
        raise ShapeError(msg)
    if jnp.iscomplexobj(array) and not jnp.iscomplexobj(factors[0]):
        msg = f"the product that {name} takes is complex, its factors are real."
        raise TypeError(msg)
    refuse_nonfinite(name, array)
    return array.astype(factors[0].dtype)


def is_lower(name: str, uplo: str | None) -> bool:
    """Whether `UPLO` names the lower triangle (`None` and 'L' do, as in NumPy)."""
    if uplo is None or uplo == "L":
        return True
    if uplo == "U":
        return False
    msg = f"UPLO must be one of None, 'L', or 'U', got {uplo!r} in {name}."
    raise ValueError(msg)


def check_rank(name: str, rank: object, limit: int) -> int:
    """`rank` as a static integer from 1 to `limit`."""
    value = as_index(rank)
    if value is None:
        msg = (
            f"{name} needs `rank` as a Python integer, got {describe(rank)}; the rank fixes "
            "the shape of the result, so under jit mark it static (static_argnames='rank')."
        )
        raise TypeError(msg)
    if limit == 0:
        msg = f"{name} got an empty matrix, which has no rank to keep; got rank={value}."
        raise ValueError(msg)
    if not 1 <= value <= limit:
        msg = f"{name} needs 1 <= rank <= {limit} for this shape, got rank={value}."
        raise ValueError(msg)
    return value


def as_subset(name: str, subset: object, size: int, full_matrices: bool) -> slice:
    """`subset_by_index` as a slice of `size` values."""
    if full_matrices:
        msg = f"{name} takes subset_by_index with full_matrices=False only."
        raise ValueError(msg)
    if not (isinstance(subset, tuple) and len(subset) == 2):
        msg = f"{name} takes subset_by_index as a pair (start, end), got {subset!r}."
        raise ValueError(msg)
    start, end = (as_index(bound) for bound in subset)
    if start is None or end is None:
        msg = f"{name} needs Python integers in subset_by_index, got {subset!r}."
        raise TypeError(msg)
    if not 0 <= start < end <= size:
        msg = f"{name} needs 0 <= start < end <= {size} in subset_by_index, got {subset!r}."
        raise ValueError(msg)
    return slice(start, end)


def check_eps(name: str, eps: object) -> float | None:
    """`eps` as a static number between 0 and 1, or None for the default.

    An array of one element is a number too.
    """
    if eps is None:
        return None
    is_number = not isinstance(eps, (bool, Tracer, str)) and np.size(eps) == 1  # type: ignore[arg-type]
    try:
        value = float(np.asarray(eps).item()) if is_number else None
    except (TypeError, ValueError):
        value = None
    if value is None:
        msg = (
            f"{name} needs eps as a Python number or None, got {describe(eps)}; it is static, so "
            "under jit do not pass it as an argument."
        )
        raise TypeError(msg)
    if not 0.0 < value < 1.0:
        msg = f"{name} needs 0 < eps < 1, or None for the precision of the dtype, got {value}."
        raise ValueError(msg)
    return value


def check_elementwise(name: str, f: object, scalar: jax.ShapeDtypeStruct) -> None:
    """Refuse `f` unless it takes one number to one number."""
    if not callable(f):
        msg = f"{name} needs a function of one number, got {type(f).__name__}."
        raise TypeError(msg)
    if isinstance(f, np.ufunc):
        msg = f"{name} needs a function written with JAX, got numpy.{f.__name__}; use jax.numpy."
        raise TypeError(msg)
    value = jax.eval_shape(f, scalar)
    if not isinstance(value, jax.ShapeDtypeStruct) or value.shape != ():
        msg = (
            f"{name} needs a function that takes one number to one number, got {value} for "
            "a scalar; for one function per matrix of a stack use jax.vmap."
        )
        raise ValueError(msg)


def refuse_iteration(name: str, which: str) -> None:
    """Refuse subspace iteration for another end of the spectrum than the largest magnitudes."""
    msg = f"{name} iterates for which='LM' only, got which={which!r}; leave out full=False."
    raise ValueError(msg)


def check_unsupported(name: str, argument: str, value: object) -> None:
    """Refuse an argument that stands in a signature only because JAX has it."""
    if value is not None:
        msg = f"{name} does not support {argument}; leave it None."
        raise NotImplementedError(msg)


def as_tridiagonal(name: str, d: ArrayLike, e: ArrayLike) -> tuple[Array, Array]:
    """The diagonal and the off-diagonal of a Hermitian tridiagonal matrix."""
    diagonal, off = as_inexact(name, d), as_inexact(name, e)
    if diagonal.ndim != 1 or off.ndim != 1 or off.shape[0] != max(diagonal.shape[0] - 1, 0):
        msg = f"{name} needs shapes (n,) and (n - 1,), got {diagonal.shape} and {off.shape}."
        raise ShapeError(msg)
    if jnp.iscomplexobj(diagonal):
        msg = f"{name} needs a real diagonal, got dtype {diagonal.dtype}."
        raise TypeError(msg)
    for array in (diagonal, off):
        refuse_half(name, array.dtype)
        refuse_nonfinite(name, array)
    return diagonal, off


def as_selection(name: str, select: str, select_range: object, size: int) -> slice:
    """`select` and `select_range` of SciPy as a slice of `size` ascending values."""
    check_choice(name, "select", select, ("a", "i", "v"))
    if select == "v":
        msg = f"{name} with select='v' has no static shape; select by index, or mask the result."
        raise NotImplementedError(msg)
    if select == "a":
        return slice(None)
    if not (isinstance(select_range, (tuple, list)) and len(select_range) == 2):
        msg = f"{name} with select='i' needs select_range=(first, last), got {select_range!r}."
        raise ValueError(msg)
    first, last = (int(bound) for bound in select_range)
    if not 0 <= first <= last < size:
        msg = f"{name} needs 0 <= first <= last < {size} in select_range, got {select_range!r}."
        raise ValueError(msg)
    return slice(first, last + 1)


def as_axes(name: str, axis: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """`axis` as a tuple of distinct axes counted from the front; `None` is all of them."""
    if axis is None:
        return tuple(range(ndim))
    several = axis if isinstance(axis, Sequence) else (axis,)
    listed = [operator.index(one) for one in several]
    for one in listed:
        if not -ndim <= one < ndim:
            msg = f"{name} needs axes of an array with {ndim} of them, got axis={axis}."
            raise ValueError(msg)
    axes = tuple(one % ndim for one in listed)
    if len(set(axes)) != len(axes):
        msg = f"{name} needs distinct axes, got axis={axis} for {ndim} dimensions."
        raise ValueError(msg)
    return axes


def refuse_axes(name: str, axes: tuple[int, ...]) -> NoReturn:
    """Refuse a number of axes that is neither that of vectors nor that of matrices."""
    msg = (
        f"{name} with `ord` takes one axis for vectors or two for matrices, got {len(axes)}; "
        "give `axis`, or flatten the array."
    )
    raise ValueError(msg)


def refuse_order(name: str, ord: object, what: str) -> NoReturn:
    """Refuse an order that vectors or matrices do not have."""
    known = (
        "a number, inf or -inf" if what == "vectors" else "'fro', 'nuc', 1, -1, 2, -2, inf, -inf"
    )
    msg = f"{name} of {what} takes ord as {known}, got {ord!r}."
    raise ValueError(msg)


def check_alias(name: str, first: str, value: object, second: str, alias: object) -> None:
    """Refuse two names of one argument."""
    if value is not None and alias is not None:
        msg = f"{name} takes {first} or {second}, which mean the same; give one of them."
        raise ValueError(msg)


def check_least_squares(name: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    """Refuse shapes that are not those of one least-squares problem."""
    if a and b and a[0] != b[0]:
        msg = f"{name} needs as many rows in `b` as in `a`, got shapes {a} and {b}."
        raise ValueError(msg)
    if len(a) != 2 or len(b) not in (1, 2):
        msg = (
            f"{name} needs a matrix `a` and a vector or matrix `b`, got shapes {a} and {b}; "
            "for stacks use jax.vmap."
        )
        raise TypeError(msg)


def refuse_empty(name: str, a: Array) -> None:
    """Refuse matrices without entries."""
    if 0 in a.shape[-2:]:
        msg = f"{name} needs matrices with entries, got shape {a.shape}."
        raise ValueError(msg)


def refuse_blocks(name: str, blocksize: object) -> NoReturn:
    """Refuse a blocked algorithm, which JAX does not have either."""
    msg = f"{name} has no blocked version, got blocksize={blocksize!r}; leave it 1."
    raise NotImplementedError(msg)


def check_given_rank(name: str, rank: object, limit: int) -> int:
    """A `rank` that is given, as a static integer from 0 to `limit`."""
    if rank == 0 and not isinstance(rank, (bool, Tracer)):
        return 0
    return check_rank(name, rank, limit)


def refuse_unknown_rank(name: str, a: Array) -> None:
    """Refuse a matrix whose rank, and so the shape of the result, cannot be seen."""
    if isinstance(a, Tracer):
        msg = (
            f"{name} cannot see the values of its argument (shape {a.shape}) under jit or vmap, "
            "and their rank is the shape of the result; give the rank by keyword."
        )
        raise TypeError(msg)


def common_rank(name: str, ranks: np.ndarray) -> int:
    """The rank of all matrices of a stack."""
    if ranks.min() != ranks.max():
        msg = (
            f"{name} got a stack of matrices of ranks {ranks.min()} to {ranks.max()}, whose "
            "results differ in shape; give the rank by keyword, or treat them one by one."
        )
        raise ValueError(msg)
    return int(ranks.max())
