"""Random matrices whose spectrum is prescribed, and the spectra that derivatives stumble on."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from difflinalg._core.algebra import adjoint, herm, mm
from difflinalg._core.checks import (
    as_inexact,
    check_floating,
    check_pair,
    check_positive,
    refuse_half,
    refuse_negative,
    refuse_nonfinite,
)

KINDS = ("generic", "clustered", "degenerate", "rank_deficient", "zero", "graded")


def spectrum(kind: str, n: int, dtype: DTypeLike | None = None) -> Array:
    """A spectrum of `n` values that derivatives of decompositions may stumble on.

    - "generic": well separated, between 2 and 0.5, no two gaps equal.
    - "clustered": "degenerate", but the members of a multiplet are `sqrt(eps)` apart. That is
      far enough to be told apart, and close enough to lose half the digits.
    - "degenerate": multiplets of 2, 3, 2, 3 ... exactly equal values.
    - "rank_deficient": "generic", with the last half (at least one) exactly zero.
    - "zero": all zero.
    - "graded": geometric from 1 to `sqrt(eps)`; of full rank.

    Args:
        kind: one of the names above.
        n: number of values, 0 or more.
        dtype: dtype of the matrix it is for; a complex one stands for its real part. By default
            JAX's floating dtype.

    Returns:
        Values, shape `(n,)`, real, descending and not negative: singular values, or eigenvalues
        of a positive matrix.

    Raises:
        ValueError: if `kind` is unknown or `n` is negative.

    Example:
        >>> from difflinalg.testing import spectrum
        >>> [round(float(value), 3) for value in spectrum("degenerate", 4)]
        [2.0, 2.0, 1.25, 1.25]
    """
    if kind not in KINDS:
        msg = f"spectrum takes kind as one of {', '.join(KINDS)}, got {kind!r}."
        raise ValueError(msg)
    n = check_positive("spectrum", "n", n, least=0)
    dtype = jnp.result_type(float) if dtype is None else dtype
    check_floating("spectrum", dtype)
    real = jnp.finfo(dtype).dtype
    root = float(jnp.finfo(real).eps) ** 0.5
    index = np.arange(n)
    share = index / max(n, 1)
    generic = 2.0 - 1.5 * share * (0.8 + 0.2 * share)
    group = np.searchsorted(np.cumsum([2, 3] * (n + 1)), index, side="right")
    degenerate = 2.0 - 1.5 * group / max(group[-1:].sum() + 1, 1)
    values = {
        "generic": generic,
        "clustered": degenerate - root * index,
        "degenerate": degenerate,
        "rank_deficient": np.where(index < n - max(n // 2, 1), generic, 0.0),
        "zero": np.zeros(n),
        "graded": root ** (index / max(n - 1, 1)),
    }[kind]
    return jnp.asarray(values.astype(real))


def random_unitary(key: Array, n: int, dtype: DTypeLike | None = None) -> Array:
    """A unitary (real dtype: orthogonal) matrix from the Haar measure.

    Args:
        key: a JAX random key.
        n: size, 0 or more.
        dtype: real or complex floating dtype; by default JAX's floating dtype.

    Returns:
        Shape `(n, n)`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg.testing import random_unitary
        >>> u = random_unitary(jax.random.key(0), 3, jnp.complex64)
        >>> bool(jnp.allclose(u.conj().T @ u, jnp.eye(3), atol=1e-5))
        True

    References:
        Mezzadri, "How to generate random matrices from the classical compact groups" (2007),
        section 5; arXiv:math-ph/0609050.
    """
    dtype = jnp.dtype(jnp.result_type(float) if dtype is None else dtype)
    check_floating("random_unitary", dtype)
    refuse_half("random_unitary", dtype)
    return _haar(key, check_positive("random_unitary", "n", n, least=0), dtype)


@partial(jax.jit, static_argnames=("n", "dtype"))
def _haar(key: Array, n: int, dtype: DTypeLike) -> Array:
    q, r = jnp.linalg.qr(jax.random.normal(key, (n, n), dtype))
    diagonal = jnp.diagonal(r)
    return q * (diagonal / jnp.abs(diagonal))


def random_hermitian(key: Array, eigenvalues: ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """A Hermitian (real dtype: symmetric) matrix with these eigenvalues, to rounding.

    Args:
        key: a JAX random key.
        eigenvalues: shape `(n,)`, real, in any order.
        dtype: dtype of the matrix; by default that of `eigenvalues`.

    Returns:
        Shape `(n, n)`; exactly Hermitian, eigenvectors from the Haar measure.

    Raises:
        TypeError: if `dtype` is not a floating or complex one.
        ValueError: if `eigenvalues` is not a real vector, or (outside jit and other
            transformations) contains NaN or inf.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg.testing import random_hermitian
        >>> a = random_hermitian(jax.random.key(0), jnp.array([1.0, 1.0, 4.0]))
        >>> round(float(jnp.trace(a)), 3)
        6.0
    """
    w = _real_vector("random_hermitian", "eigenvalues", eigenvalues)
    dtype = w.dtype if dtype is None else dtype
    check_floating("random_hermitian", dtype)
    refuse_half("random_hermitian", dtype)
    u = random_unitary(key, w.shape[0], dtype)
    return herm(mm(u * w.astype(u.dtype), adjoint(u)))


def random_matrix(
    key: Array, singular_values: ArrayLike, shape: tuple[int, int], dtype: DTypeLike | None = None
) -> Array:
    """A matrix with these singular values, to rounding.

    Args:
        key: a JAX random key.
        singular_values: shape `(min(m, n),)`, real and not negative, in any order.
        shape: `(m, n)`.
        dtype: dtype of the matrix; by default that of `singular_values`.

    Returns:
        Shape `(m, n)`; singular vectors from the Haar measure.

    Raises:
        TypeError: if `shape` is not a pair, or `dtype` not a floating or complex one.
        ValueError: if `singular_values` is not a real vector of length `min(m, n)`, or (outside
            jit and other transformations) contains NaN, inf or a negative number.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg.testing import random_matrix, spectrum
        >>> a = random_matrix(jax.random.key(0), spectrum("rank_deficient", 4), (5, 4))
        >>> int(jnp.linalg.matrix_rank(a))
        2
    """
    s = _real_vector("random_matrix", "singular_values", singular_values)
    m, n = check_pair("random_matrix", shape)
    if s.shape[0] != min(m, n):
        msg = (
            f"random_matrix needs {min(m, n)} singular values for shape {shape}, got {s.shape[0]}."
        )
        raise ValueError(msg)
    refuse_negative("random_matrix", "singular_values", s)
    dtype = s.dtype if dtype is None else dtype
    check_floating("random_matrix", dtype)
    refuse_half("random_matrix", dtype)
    left, right = jax.random.split(key)
    u = random_unitary(left, m, dtype)[:, : s.shape[0]]
    v = random_unitary(right, n, dtype)[:, : s.shape[0]]
    return mm(u * s.astype(u.dtype), adjoint(v))


def _real_vector(name: str, argument: str, values: ArrayLike) -> Array:
    array = as_inexact(name, values)
    if array.ndim != 1 or jnp.iscomplexobj(array):
        msg = (
            f"{name} needs {argument} as a real vector, shape (n,), "
            f"got shape {array.shape}, dtype {array.dtype}."
        )
        raise ValueError(msg)
    refuse_nonfinite(name, array, f"vector of {argument}")
    return array
