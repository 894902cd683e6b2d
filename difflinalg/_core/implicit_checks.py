"""Checks and error texts of fixed points and roots."""

from typing import NoReturn

import jax.numpy as jnp
from jax import Array


class NotConvergedError(ArithmeticError):
    """An iteration ended without a solution.

    Attributes:
        x: what was found.
        info: how far it came.
    """

    def __init__(self, message: str, x: object, info: object):
        super().__init__(message)
        self.x = x
        self.info = info


def refuse_unconverged_root(
    name: str, x: object, info: object, steps: int, residual: float
) -> NoReturn:
    """Report an iteration that has not converged, with what it found."""
    msg = (
        f"{name} has not converged after {steps} steps (relative residual {residual:.2e}); give a "
        "better x0, more max_steps, or a larger rtol. The exception carries x and info. Under jit "
        "the result would be NaN."
    )
    raise NotConvergedError(msg, x, info)


def as_unknown(name: str, leaf: object) -> Array:
    """A leaf of `x0`, the unknown of an equation, as a floating or complex array."""
    array = jnp.asarray(leaf)
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        msg = (
            f"{name} needs floating or complex leaves in x0, got dtype {array.dtype} (shape "
            f"{array.shape}); convert it with .astype(float), or pass it in params."
        )
        raise TypeError(msg)
    return array


def as_parameter(name: str, leaf: object) -> Array:
    """A leaf of `params` as an array."""
    if not hasattr(leaf, "dtype") and not isinstance(leaf, (bool, int, float, complex)):
        msg = (
            f"{name} needs arrays and numbers as leaves of params, got {type(leaf).__name__}; let "
            "the function close over anything else."
        )
        raise TypeError(msg)
    return jnp.asarray(leaf)


def check_same_avals(name: str, want: tuple, got: tuple) -> None:
    """Refuse a function whose value does not look like `x0`; pairs of tree and leaf types."""
    if want != got:
        msg = (
            f"{name} needs f(x, params) with the structure, shapes and dtypes of x0, {want[0]} of "
            f"{want[1]}, got {got[0]} of {got[1]}."
        )
        raise TypeError(msg)


def check_iteration(name: str, rtol: float, atol: float, max_steps: int) -> None:
    """Refuse tolerances and numbers of steps that make no sense."""
    if not (rtol >= 0.0 and atol >= 0.0):
        msg = f"{name} needs rtol >= 0 and atol >= 0, got rtol={rtol}, atol={atol}."
        raise ValueError(msg)
    if isinstance(max_steps, bool) or not hasattr(max_steps, "__index__") or max_steps < 1:
        msg = f"{name} needs max_steps as a positive integer, got {max_steps!r}."
        raise ValueError(msg)
