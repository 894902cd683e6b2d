"""Trigonometric and hyperbolic functions of matrices, from the exponential.

    cos A + i sin A = exp(i A),    cosh A + sinh A = exp A,    tan A = (cos A)^-1 sin A

For a real A the first is the real and the imaginary part of one exponential. Derivatives are
those of the exponential and of the solve.
"""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from difflinalg._core import checks
from difflinalg._dense import matrix_function
from difflinalg._dense.expm import Exponential


def cosm(A: ArrayLike) -> Array:
    """Compute the matrix cosine.

    Args:
        A: shape `(..., n, n)`, real or complex.

    Returns:
        Shape `(..., n, n)`, of the dtype of `A` (integers become floats).

    Raises:
        ValueError: if `A` is not square.

    Derivatives:
        All orders, both modes in any nesting, everywhere.

    Cost:
        One exponential of a complex matrix for a real `A`, two for a complex one.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> print(jax.grad(lambda a: jnp.trace(cosm(a)))(jnp.zeros((2, 2))))
        [[0. 0.]
         [0. 0.]]

    References:
        Higham, "Functions of Matrices" (2008), section 12.1.
    """
    return _circular("cosm", A)[0]


def sinm(A: ArrayLike) -> Array:
    """Compute the matrix sine.

    Args:
        A: shape `(..., n, n)`, real or complex.

    Returns:
        Shape `(..., n, n)`, of the dtype of `A` (integers become floats).

    Raises:
        ValueError: if `A` is not square.

    Derivatives:
        All orders, both modes in any nesting, everywhere.

    Cost:
        As `cosm`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> print(jax.grad(lambda a: jnp.trace(sinm(a)))(jnp.zeros((2, 2))))
        [[1. 0.]
         [0. 1.]]

    References:
        Higham, "Functions of Matrices" (2008), section 12.1.
    """
    return _circular("sinm", A)[1]


def tanm(A: ArrayLike) -> Array:
    """Compute the matrix tangent.

    Args:
        A: shape `(..., n, n)`, real or complex.

    Returns:
        Shape `(..., n, n)`, of the dtype of `A` (integers become floats).

    Raises:
        ValueError: if `A` is not square.

    Derivatives:
        All orders, both modes in any nesting, except where the cosine is singular.

    Cost:
        As `cosm`, and a solve.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> print(jax.grad(lambda a: jnp.trace(tanm(a)))(jnp.zeros((2, 2))))
        [[1. 0.]
         [0. 1.]]

    References:
        Higham, "Functions of Matrices" (2008), section 12.1.
    """
    cosine, sine = _circular("tanm", A)
    return jnp.linalg.solve(cosine, sine)


def coshm(A: ArrayLike) -> Array:
    """Compute the matrix hyperbolic cosine.

    Args:
        A: shape `(..., n, n)`, real or complex.

    Returns:
        Shape `(..., n, n)`, of the dtype of `A` (integers become floats).

    Raises:
        ValueError: if `A` is not square.

    Derivatives:
        All orders, both modes in any nesting, everywhere.

    Cost:
        Two exponentials.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> print(jax.grad(lambda a: jnp.trace(coshm(a)))(jnp.zeros((2, 2))))
        [[0. 0.]
         [0. 0.]]

    References:
        Higham, "Functions of Matrices" (2008), section 12.1.
    """
    return _hyperbolic("coshm", A)[0]


def sinhm(A: ArrayLike) -> Array:
    """Compute the matrix hyperbolic sine.

    Args:
        A: shape `(..., n, n)`, real or complex.

    Returns:
        Shape `(..., n, n)`, of the dtype of `A` (integers become floats).

    Raises:
        ValueError: if `A` is not square.

    Derivatives:
        All orders, both modes in any nesting, everywhere.

    Cost:
        Two exponentials.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> print(jax.grad(lambda a: jnp.trace(sinhm(a)))(jnp.zeros((2, 2))))
        [[1. 0.]
         [0. 1.]]

    References:
        Higham, "Functions of Matrices" (2008), section 12.1.
    """
    return _hyperbolic("sinhm", A)[1]


def tanhm(A: ArrayLike) -> Array:
    """Compute the matrix hyperbolic tangent.

    Args:
        A: shape `(..., n, n)`, real or complex.

    Returns:
        Shape `(..., n, n)`, of the dtype of `A` (integers become floats).

    Raises:
        ValueError: if `A` is not square.

    Derivatives:
        All orders, both modes in any nesting, except where the hyperbolic cosine is singular.

    Cost:
        Two exponentials and a solve.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> print(jax.grad(lambda a: jnp.trace(tanhm(a)))(jnp.zeros((2, 2))))
        [[1. 0.]
         [0. 1.]]

    References:
        Higham, "Functions of Matrices" (2008), section 12.1.
    """
    cosine, sine = _hyperbolic("tanhm", A)
    return jnp.linalg.solve(cosine, sine)


def _circular(name: str, A: ArrayLike) -> tuple[Array, Array]:
    """The cosine and the sine."""
    matrix = checks.as_square(name, A, half=True)
    if not jnp.iscomplexobj(matrix):
        rotation = matrix_function.apply(Exponential(), 1j * matrix)
        return rotation.real, rotation.imag
    forward, backward = _pair(1j * matrix)
    return 0.5 * (forward + backward), -0.5j * (forward - backward)


def _hyperbolic(name: str, A: ArrayLike) -> tuple[Array, Array]:
    """The hyperbolic cosine and sine."""
    forward, backward = _pair(checks.as_square(name, A))
    return 0.5 * (forward + backward), 0.5 * (forward - backward)


def _pair(a: Array) -> tuple[Array, Array]:
    """`exp(A)` and `exp(-A)`."""
    both = matrix_function.apply(Exponential(), jnp.stack([a, -a]))
    return both[0], both[1]
