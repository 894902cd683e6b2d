"""Checks of arguments at trace time, and error texts.

Those of one room alone stand in `loop_checks`, `ode_checks`, `krylov_checks`, `implicit_checks`.
"""

import itertools
import operator
from collections.abc import Sequence
from typing import NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike, DTypeLike


class ShapeError(ValueError, TypeError):
    """An argument without the axes that it needs; JAX raises now the one type, now the other."""


class MissingError(TypeError, ValueError):
    """None in place of an array; `jax.numpy` raises the one type, `jax.scipy` the other."""


def as_inexact(name: str, a: ArrayLike, sequences: bool = True) -> Array:
    """`a` as an array of a floating or complex dtype; integers become the default float.

    Lists and tuples are arrays for `jax.scipy` but not for `jax.numpy`, hence `sequences`.
    """
    if a is None or (not sequences and isinstance(a, (list, tuple))):
        msg = f"{name} needs an array, got {type(a).__name__}; convert it with jnp.asarray."
        raise MissingError(msg) if a is None else TypeError(msg)
    if not hasattr(a, "dtype") and not isinstance(a, (bool, int, float, complex, list, tuple)):
        msg = f"{name} needs an array, got {type(a).__name__}; convert it with jnp.asarray."
        raise TypeError(msg)
    if isinstance(a, np.ndarray) and a.dtype.kind in "OSU":
        msg = f"{name} needs real or complex numbers, got dtype {a.dtype}."
        raise TypeError(msg)
    array = jnp.asarray(a)
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        if not (jnp.issubdtype(array.dtype, jnp.integer) or array.dtype == jnp.bool_):
            msg = f"{name} needs real or complex numbers, got dtype {array.dtype}."
            raise TypeError(msg)
        # The float that JAX promotes these integers to.
        array = array.astype(jax.eval_shape(jnp.sqrt, array).dtype)
    return array


def of_sequence(a: ArrayLike) -> ArrayLike:
    """An array in place of nested lists or tuples, which `jax.scipy` takes too."""
    return jnp.asarray(a) if isinstance(a, (list, tuple)) else a


def as_matrix(name: str, a: ArrayLike, sequences: bool = True) -> Array:
    """`a` as a stack of matrices of a floating or complex dtype."""
    array = as_inexact(name, a, sequences)
    if array.ndim < 2:
        msg = (
            f"{name} needs a matrix, shape (..., m, n), got shape {array.shape}; "
            "give a vector a second axis, for example a[:, None]."
        )
        raise ShapeError(msg)
    return array


def as_factors(name: str, a: ArrayLike | tuple[ArrayLike, ...]) -> tuple[Array, ...]:
    """The factors of a product of matrices, of one dtype and with the same batch dimensions.

    A single matrix is its own factor.
    """
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


def as_square(name: str, a: ArrayLike, sequences: bool = True) -> Array:
    """`a` as a stack of square matrices of a floating or complex dtype."""
    array = as_matrix(name, a, sequences)
    if array.shape[-1] != array.shape[-2]:
        msg = (
            f"{name} needs square matrices, shape (..., n, n), got shape {array.shape}; "
            "for a rectangular matrix use svd or polar."
        )
        raise ShapeError(msg)
    return array


def is_lower(name: str, uplo: str | None) -> bool:
    """Whether `UPLO` names the lower triangle (`None` and 'L' do, as in NumPy)."""
    if uplo is None or uplo == "L":
        return True
    if uplo == "U":
        return False
    msg = f"UPLO must be one of None, 'L', or 'U', got {uplo!r} in {name}."
    raise ValueError(msg)


def check_choice(name: str, argument: str, value: object, choices: tuple[object, ...]) -> None:
    """Refuse a keyword whose value is none of `choices`."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        msg = f"{name} takes {argument} as one of {listed}, got {value!r}."
        raise ValueError(msg)


def as_index(value: object) -> int | None:
    """`value` as an integer, None if it is not one: an array with axes has `__index__` too."""
    if isinstance(value, (bool, Tracer)) or getattr(value, "shape", ()) != ():
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def describe(value: object) -> str:
    """The type of `value`, and the shape if it is an array with axes."""
    shape = getattr(value, "shape", ())
    return type(value).__name__ + (f" of shape {shape}" if shape else "")


def check_rank(name: str, rank: object, limit: int) -> int:
    """`rank` as a static integer from 1 to `limit`."""
    value = as_index(rank)
    if value is None:
        msg = (
            f"{name} needs `rank` as a Python integer, got {describe(rank)}; the rank fixes "
            "the shape of the result, so under jit mark it static (static_argnames='rank')."
        )
        raise TypeError(msg)
    if not 1 <= value <= limit:
        msg = f"{name} needs 1 <= rank <= {limit} for this shape, got rank={value}."
        raise ValueError(msg)
    return value


def refuse_nonfinite(name: str, a: Array) -> None:
    """Refuse NaN and inf where the values can be seen, that is outside of any transformation."""
    if isinstance(a, Tracer) or a.size == 0:
        return
    is_finite = jnp.all(jnp.isfinite(a))
    if isinstance(is_finite, Tracer):  # under jit, which traces operations on constants too
        return
    if not bool(is_finite):
        msg = (
            f"{name} got a matrix that contains NaN or inf (shape {a.shape}, dtype {a.dtype}); "
            "find its origin with jax.config.update('jax_debug_nans', True). Under jit the "
            "result would be NaN."
        )
        raise ValueError(msg)


def as_subset(name: str, subset: object, size: int, full_matrices: bool) -> slice:
    """`subset_by_index` as a slice of `size` values."""
    if full_matrices:
        msg = f"{name} takes subset_by_index with full_matrices=False only."
        raise ValueError(msg)
    if not (isinstance(subset, tuple) and len(subset) == 2):
        msg = f"{name} takes subset_by_index as a pair (start, end), got {subset!r}."
        raise ValueError(msg)
    start, end = subset
    if not 0 <= start < end <= size:
        msg = f"{name} needs 0 <= start < end <= {size} in subset_by_index, got {subset!r}."
        raise ValueError(msg)
    return slice(start, end)


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


def refuse_shapes(name: str, *shapes: tuple[int, ...]) -> NoReturn:
    """Refuse arguments whose shapes do not fit together."""
    msg = f"{name} got shapes that do not fit: {', '.join(str(shape) for shape in shapes)}."
    raise ValueError(msg)


def as_tridiagonal(name: str, d: ArrayLike, e: ArrayLike) -> tuple[Array, Array]:
    """The diagonal and the off-diagonal of a Hermitian tridiagonal matrix."""
    diagonal, off = as_inexact(name, d), as_inexact(name, e)
    if diagonal.ndim != 1 or off.ndim != 1 or off.shape[0] != max(diagonal.shape[0] - 1, 0):
        msg = f"{name} needs shapes (n,) and (n - 1,), got {diagonal.shape} and {off.shape}."
        raise ShapeError(msg)
    if jnp.iscomplexobj(diagonal):
        msg = f"{name} needs a real diagonal, got dtype {diagonal.dtype}."
        raise TypeError(msg)
    refuse_nonfinite(name, diagonal)
    refuse_nonfinite(name, off)
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


def check_positive(name: str, argument: str, value: object, least: int = 1) -> int:
    """`value` as a static integer that is `least` or more."""
    number = as_index(value)
    if number is None:
        msg = f"{name} needs {argument} as a Python integer, got {describe(value)}."
        raise TypeError(msg)
    if number < least:
        msg = f"{name} needs {argument} >= {least}, got {argument}={number}."
        raise ValueError(msg)
    return number


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


def check_tolerance(name: str, argument: str, value: object) -> float | None:
    """A relative tolerance as a static number that is not negative, or None for the default."""
    if value is None:
        return None
    is_number = not isinstance(value, (bool, Tracer, str)) and getattr(value, "shape", ()) == ()
    try:
        number = float(value) if is_number else None  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None:
        msg = (
            f"{name} needs {argument} as a Python number or None, got {describe(value)}; it is "
            "static, so under jit do not pass it as an argument."
        )
        raise TypeError(msg)
    if not number >= 0.0:
        msg = f"{name} needs {argument} >= 0, or None for the default, got {number}."
        raise ValueError(msg)
    return number


def check_callable(name: str, f: object) -> None:
    """Refuse what is not a function."""
    if not callable(f):
        msg = f"{name} needs a function, got {type(f).__name__}."
        raise TypeError(msg)


def check_floating(name: str, dtype: DTypeLike) -> None:
    """Refuse a dtype that is not floating or complex."""
    if not jnp.issubdtype(dtype, jnp.inexact):
        msg = f"{name} needs a real or complex floating dtype, got {dtype}."
        raise TypeError(msg)


def check_pair(name: str, shape: object) -> tuple[int, int]:
    """`shape` as that of a matrix."""
    if not isinstance(shape, (tuple, list)) or len(shape) != 2:
        msg = f"{name} needs shape as a pair (m, n), got {shape!r}."
        raise TypeError(msg)
    m, n = (check_positive(name, "shape", size, least=0) for size in shape)
    return m, n
