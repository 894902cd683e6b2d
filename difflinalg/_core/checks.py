"""Checks of arguments at trace time, and error texts.

Those of one room alone stand in `dense_checks`, `krylov_checks`, `implicit_checks`, `loop_checks`,
`ode_checks`, `taylor_checks`.
"""

import operator
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


def refuse_half(name: str, dtype: DTypeLike) -> None:
    """Refuse float16, bfloat16 and below, which the decompositions of JAX do not take."""
    if jnp.finfo(dtype).bits < 32:
        msg = (
            f"{name} needs dtype float32, float64, complex64 or complex128, got "
            f"{jnp.dtype(dtype)}; convert with a.astype(jnp.float32)."
        )
        raise TypeError(msg)


def as_matrix(name: str, a: ArrayLike, sequences: bool = True, half: bool = False) -> Array:
    """`a` as a stack of matrices of a floating or complex dtype, half precision if `half`."""
    array = as_inexact(name, a, sequences)
    if array.ndim < 2:
        msg = (
            f"{name} needs a matrix, shape (..., m, n), got shape {array.shape}; "
            "give a vector a second axis, for example a[:, None]."
        )
        raise ShapeError(msg)
    if not half:
        refuse_half(name, array.dtype)
    return array


def as_square(name: str, a: ArrayLike, sequences: bool = True, half: bool = False) -> Array:
    """`a` as a stack of square matrices, else as `as_matrix`."""
    array = as_matrix(name, a, sequences, half)
    if array.shape[-1] != array.shape[-2]:
        msg = (
            f"{name} needs square matrices, shape (..., n, n), got shape {array.shape}; "
            "for a rectangular matrix use svd or polar."
        )
        raise ShapeError(msg)
    return array


def check_choice(name: str, argument: str, value: object, choices: tuple[object, ...]) -> None:
    """Refuse a keyword whose value is none of `choices`."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        msg = f"{name} takes {argument} as one of {listed}, got {value!r}."
        raise ValueError(msg)


def check_flag(name: str, argument: str, value: object) -> bool:
    """A static truth value, that of anything which has one; arrays of one element do."""
    try:
        return bool(value)
    except (TypeError, ValueError):  # of a traced value the first, of an array with axes the second
        msg = (
            f"{name} needs {argument} as True or False, got {describe(value)}; it is static, so "
            f"under jit mark it so (static_argnames={argument!r})."
        )
        raise TypeError(msg) from None


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


def refuse_nonfinite(name: str, a: Array, what: str = "matrix") -> None:
    """Refuse NaN and inf where the values can be seen, that is outside of any transformation."""
    if isinstance(a, Tracer) or a.size == 0:
        return
    is_finite = jnp.all(jnp.isfinite(a))
    if isinstance(is_finite, Tracer):  # under jit, which traces operations on constants too
        return
    if not bool(is_finite):
        msg = (
            f"{name} got a {what} that contains NaN or inf (shape {a.shape}, dtype {a.dtype}); "
            "find its origin with jax.config.update('jax_debug_nans', True). Under jit the "
            "result would be NaN."
        )
        raise ValueError(msg)


def refuse_negative(name: str, argument: str, a: Array) -> None:
    """Refuse negative numbers where the values can be seen."""
    if isinstance(a, Tracer) or a.size == 0:
        return
    least = jnp.min(a)
    if not isinstance(least, Tracer) and bool(least < 0):
        msg = f"{name} needs {argument} >= 0, got {least}; a sign belongs to a singular vector."
        raise ValueError(msg)


def refuse_shapes(name: str, *shapes: tuple[int, ...]) -> NoReturn:
    """Refuse arguments whose shapes do not fit together."""
    msg = f"{name} got shapes that do not fit: {', '.join(str(shape) for shape in shapes)}."
    raise ValueError(msg)


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
