"""Norms of vectors and matrices and their derivatives, at zero too.

Rules, with `<x, y> = Re sum(conj(x) y)`:

    2-norm, Frobenius   n_dot = <x / n, x_dot>
    p-norm              n_dot = <q |q|^(p-2), x_dot>,    q = x / n
    spectral            n_dot = <u v^H, A_dot>,          (u, v) the leading singular pair
    nuclear             n_dot = <W, A_dot>,              W = U V^H over the nonzero values

At zero every one of them takes the subgradient of least norm, which is zero. The second
derivative of the 2-norm is infinite there, but that of its square is not: where the rule is
differentiated again, it returns the value `zero_norm` instead of 0, so that n times n'' is right.

Values are computed with a scale taken out, a power of two, so that squares neither overflow nor
underflow; and `x / n` has a rule of its own, so that its derivative does not divide by `n^2`.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from difflinalg._core import checks, dense_checks, lapack, tolerances
from difflinalg._core.algebra import adjoint, herm, mm
from difflinalg._core.operation import operation
from difflinalg._dense.leading_pair import leading_pair_core
from difflinalg._dense.polar import polar_tangents
from difflinalg._dense.svd import svdvals_core

Axes = tuple[int, ...]
Order = int | float | str | None


def norm(
    x: ArrayLike,
    ord: Order = None,
    axis: tuple[int, ...] | int | None = None,
    keepdims: bool = False,
) -> Array:
    """Norm of vectors or matrices.

    Args:
        x: an array, real or complex; integers are converted to the default float.
        ord: for vectors (one axis) any number p, `inf`, `-inf` or 0 (the number of nonzero
            entries), by default 2; for matrices (two axes) `'fro'` (the default), `'nuc'`, 2
            (spectral), -2 (smallest singular value), 1, -1, `inf` or `-inf` (column and row sums).
        axis: one axis, or two that form matrices. By default all axes, which with `ord=None` may
            be any number.
        keepdims: keep the reduced axes, with size one.

    Returns:
        The norms, real, in the shape of `x` without the reduced axes.

    Raises:
        TypeError: if `x` is not an array of numbers.
        ValueError: if `ord` does not fit, or there are not one or two axes.

    Derivatives:
        Forward and reverse mode in any nesting. At zero the subgradient of least norm, zero, is
        returned for every order. The 2-norm and the Frobenius norm are right to every order where
        x is not zero; at zero the square `norm(x)**2` is, to second order. p-norms are smooth
        where no entry is zero; where one is, derivatives beyond the first are right for p > 2 and
        not finite for p < 2. At zero second derivatives of norms that are no sum of squares
        do not exist and are NaN, or zero for 1, `inf`, `-inf`, which are taken as piecewise
        linear. The spectral norm has a derivative where the largest singular value is simple
        (otherwise one of its subgradients is returned); the nuclear norm is exact to every order
        at full rank, and at lower rank has the subgradient `U V^H` over the nonzero values and a
        second derivative that is NaN.

    Cost:
        O(size) for vectors and sums. Spectral norm: singular values, and a gradient the leading
        pair only. Nuclear norm: a singular value decomposition.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg import linalg
        >>> print(jax.grad(linalg.norm)(jnp.zeros(2)))
        [0. 0.]
        >>> print(jax.hessian(lambda x: linalg.norm(x) ** 2)(jnp.zeros(2)))
        [[2. 0.]
         [0. 2.]]

    References:
        Watson, "Characterization of the subdifferential of some matrix norms" (1992), theorem 2
        and examples 1 and 2.
    """
    array = checks.as_inexact("norm", x, sequences=False)
    if axis is None and ord is None:
        return two_norm_core(array, tuple(range(array.ndim)), keepdims, 0)
    axes = dense_checks.as_axes("norm", axis, array.ndim)
    if len(axes) == 1:
        return _vector_norm("norm", array, 2 if ord is None else ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix_norm("norm", array, "fro" if ord is None else ord, axes, keepdims)
    return dense_checks.refuse_axes("norm", axes)


def vector_norm(
    x: ArrayLike,
    /,
    *,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    ord: int | str = 2,
) -> Array:
    """Norm of vectors, over any number of axes.

    Args:
        x: an array, real or complex.
        axis: one axis or several that are taken together; by default all.
        keepdims: keep the reduced axes, with size one.
        ord: as in `norm` for vectors.

    Returns:
        The norms, real.

    Raises:
        TypeError: if `x` is not an array of numbers.
        ValueError: if `ord` or `axis` does not fit.

    Derivatives:
        As those of `norm`.

    Cost:
        O(size).

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg import linalg
        >>> print(linalg.vector_norm(jnp.array([3.0, 4.0])))
        5.0

    References:
        Boyd and Vandenberghe, "Convex Optimization" (2004), appendix A.1.6.
    """
    array = checks.as_inexact("vector_norm", x, sequences=False)
    if getattr(x, "dtype", None) == jnp.bool_:
        array = array.astype(jnp.result_type(float))  # as in JAX, whose other names take float32
    axes = dense_checks.as_axes("vector_norm", axis, array.ndim)
    return _vector_norm("vector_norm", array, 2 if ord is None else ord, axes, keepdims)


def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: str | int = "fro") -> Array:
    """Norm of matrices, over the last two axes.

    Args:
        x: shape `(..., m, n)`, real or complex.
        keepdims: keep the reduced axes, with size one.
        ord: as in `norm` for matrices.

    Returns:
        The norms, shape `(...)`, real.

    Raises:
        TypeError: if `x` is not an array of numbers.
        ValueError: if `ord` is unknown or `x` has fewer than two axes.

    Derivatives:
        As those of `norm`.

    Cost:
        As that of `norm`.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg import linalg
        >>> print(linalg.matrix_norm(jnp.eye(4)))
        2.0

    References:
        Golub and Van Loan, "Matrix Computations" (2013), section 2.3.
    """
    array = checks.as_inexact("matrix_norm", x, sequences=False)
    axes = dense_checks.as_axes("matrix_norm", (-2, -1), array.ndim)
    return _matrix_norm("matrix_norm", array, "fro" if ord is None else ord, axes, keepdims)


def _vector_norm(name: str, x: Array, ord: Order, axes: Axes, keepdims: bool) -> Array:
    if isinstance(ord, str) or ord is None:
        return dense_checks.refuse_order(name, ord, "vectors")
    if ord == 2:
        return two_norm_core(x, axes, keepdims, 0)
    if ord == np.inf:
        return jnp.max(modulus(x), axis=axes, keepdims=keepdims, initial=0)
    if ord == -np.inf:
        return jnp.min(modulus(x), axis=axes, keepdims=keepdims)
    if ord == 0:
        return jnp.sum(x != 0, axis=axes, keepdims=keepdims, dtype=x.real.dtype)
    if ord == 1:
        return jnp.sum(modulus(x), axis=axes, keepdims=keepdims)
    return p_norm_core(x, float(ord), axes, keepdims)


def _matrix_norm(name: str, x: Array, ord: Order, axes: Axes, keepdims: bool) -> Array:
    if ord in ("fro", "f"):
        return two_norm_core(x, axes, keepdims, 0)
    row, column = axes
    if ord in (1, -1, np.inf, -np.inf):
        summed, chosen = (row, column) if abs(ord) == 1 else (column, row)
        sums = jnp.sum(modulus(x), axis=summed, keepdims=True)
        if ord > 0:
            value = jnp.max(sums, axis=chosen, keepdims=True, initial=0)
        else:
            value = jnp.min(sums, axis=chosen, keepdims=True)
        return value if keepdims else jnp.squeeze(value, axis=axes)
    if ord not in (2, -2, "nuc"):
        return dense_checks.refuse_order(name, ord, "matrices")
    checks.refuse_half(f"{name} of singular values", x.dtype)
    matrices = jnp.moveaxis(x, axes, (-2, -1))
    if ord == 2:
        value = spectral_norm_core(matrices)
    elif ord == -2:
        value = jnp.min(svdvals_core(matrices, None), axis=-1)
    else:
        value = nuclear_norm_core(matrices)
    return jnp.expand_dims(value, axes) if keepdims else value


def modulus(x: Array) -> Array:
    """`abs(x)` with the derivative 0 at 0, where JAX has 1; complex, its square is right too."""
    if not jnp.iscomplexobj(x):
        return x * lax.stop_gradient(jnp.sign(x))
    return two_norm_core(jnp.stack([x.real, x.imag], axis=-1), (x.ndim,), False, 0)


@operation(statics=3)
def two_norm_core(x: Array, axes: Axes, keepdims: bool, level: int) -> Array:
    """The root of the sum of squares; `level` is the number of rules above this one."""
    del level
    parts = x if not jnp.iscomplexobj(x) else jnp.stack([x.real, x.imag])
    scale = _scale(parts, 0 if parts is x else 1, axes)
    scaled = parts / scale
    squares = jnp.square(scaled) if parts is x else jnp.sum(jnp.square(scaled), axis=0)
    scale = scale if parts is x else scale[0]
    value = scale * jnp.sqrt(jnp.sum(squares, axis=axes, keepdims=True))
    return value if keepdims else jnp.squeeze(value, axis=axes)


def _scale(parts: Array, offset: int, axes: Axes) -> Array:
    """A power of two near the largest entry, 1 for a zero or not finite array."""
    over = tuple(axis + offset for axis in axes) + tuple(range(offset))
    largest = 0.5 * jnp.max(jnp.abs(parts), axis=over, keepdims=True, initial=0)
    bits = jnp.finfo(parts.dtype).nexp
    power = lax.reduce_precision(largest, exponent_bits=bits, mantissa_bits=0)
    return jnp.where((power > 0) & (power < jnp.inf), power, 1.0)


@two_norm_core.defjvp
def _two_norm_core_jvp(axes, keepdims, level, primals, tangents):
    (x,), (x_dot,) = primals, tangents
    value = two_norm_core(x, axes, True, level + 1)
    if level:
        value = jnp.where(value == 0, tolerances.zero_norm(value.dtype), value)
    value_dot = _along(ratio(x, value), x_dot, axes)
    if keepdims:
        return value, value_dot
    return jnp.squeeze(value, axis=axes), jnp.squeeze(value_dot, axis=axes)


def _along(direction: Array, x_dot: Array, axes: Axes) -> Array:
    return jnp.sum(jnp.real(jnp.conj(direction) * x_dot), axis=axes, keepdims=True)


@operation()
def ratio(x: Array, n: Array) -> Array:
    """`x / n`, and 0 where n is 0 (with no derivative there); `n` broadcasts to `x`."""
    safe = jnp.where(n == 0, 1.0, n)
    return jnp.where(n == 0, 0.0, x / safe)


@ratio.defjvp
def _ratio_jvp(primals, tangents):
    (x, n), (x_dot, n_dot) = primals, tangents
    q = ratio(x, n)
    return q, (x_dot - q * n_dot) / jnp.where(n == 0, jnp.nan, n)


@operation(statics=3)
def p_norm_core(x: Array, p: float, axes: Axes, keepdims: bool) -> Array:
    """`sum(|x|^p)^(1/p)`."""
    size = jnp.abs(x)
    scale = _scale(size, 0, axes)
    value = scale * jnp.sum((size / scale) ** p, axis=axes, keepdims=True) ** (1.0 / p)
    return value if keepdims else jnp.squeeze(value, axis=axes)


@p_norm_core.defjvp
def _p_norm_core_jvp(p, axes, keepdims, primals, tangents):
    (x,), (x_dot,) = primals, tangents
    value = p_norm_core(x, p, axes, True)
    value_dot = _along(dual_core(ratio(x, value), p), x_dot, axes)
    if keepdims:
        return value, value_dot
    return jnp.squeeze(value, axis=axes), jnp.squeeze(value_dot, axis=axes)


@operation(statics=1)
def dual_core(q: Array, p: float) -> Array:
    """`q |q|^(p-2)`, and 0 at 0."""
    size = jnp.abs(q)
    return jnp.where(size == 0, 0.0, q * jnp.where(size == 0, 1.0, size) ** (p - 2.0))


@dual_core.defjvp
def _dual_core_jvp(p, primals, tangents):
    (q,), (q_dot,) = primals, tangents
    size = modulus(jnp.where(q == 0, 1.0, q))
    unit = ratio(q, size)
    weight = jnp.where(q == 0, 0.0 if p > 2.0 else jnp.inf, size ** (p - 2.0))
    turned = q_dot + (p - 2.0) * unit * jnp.real(jnp.conj(unit) * q_dot)
    return dual_core(q, p), weight * turned


@operation()
def spectral_norm_core(a: Array) -> Array:
    """The largest singular value."""
    return jnp.max(jnp.linalg.svd(a, compute_uv=False), axis=-1, initial=0)


@spectral_norm_core.defjvp
def _spectral_norm_core_jvp(primals, tangents):
    (a,), (a_dot,) = primals, tangents
    u, s, v = leading_pair_core(a)
    a_dot_v = jnp.sum(a_dot * v[..., None, :], axis=-1)
    return s, jnp.sum(jnp.real(jnp.conj(u) * a_dot_v), axis=-1)


@operation()
def nuclear_norm_core(a: Array) -> Array:
    """The sum of the singular values."""
    return jnp.sum(jnp.linalg.svd(a, compute_uv=False), axis=-1)


@nuclear_norm_core.defjvp
def _nuclear_norm_core_jvp(primals, tangents):
    (a,), (a_dot,) = primals, tangents
    isometry = isometry_core(a)
    value_dot = jnp.sum(jnp.real(jnp.conj(isometry) * a_dot), axis=(-1, -2))
    return nuclear_norm_core(a), value_dot


@operation()
def isometry_core(a: Array) -> Array:
    """`U V^H` over the nonzero singular values."""
    u, s, vh = lapack.svd(a)
    floor = tolerances.rank_rtol(s.dtype, max(a.shape[-2:])) * s[..., :1]
    return mm(u * (s > floor)[..., None, :], vh)


@isometry_core.defjvp
def _isometry_core_jvp(primals, tangents):
    (a,), (a_dot,) = primals, tangents
    w = isometry_core(a)
    if a.shape[-2] < a.shape[-1]:
        return w, adjoint(_isometry_tangent(*(adjoint(x) for x in (a, w, a_dot))))
    return w, _isometry_tangent(a, w, a_dot)


def _isometry_tangent(a: Array, w: Array, a_dot: Array) -> Array:
    return jax.checkpoint(polar_tangents)(w, herm(mm(adjoint(w), a)), a_dot)[0]
