"""The matrix sign function and its derivative.

Value. Newton's iteration for `X^2 = I` from `X = A`, scaled by the norms while it is far away:

    X <- (mu X + (mu X)^-1) / 2,    mu^4 = |X^-1|_1 |X^-1|_inf / (|X|_1 |X|_inf)

Rule. The module `matrix_function`; L(A, E) is the derivative of the iteration, which converges
quadratically as the iteration itself does (Higham 2008, theorem 5.6 ff.).
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from difflinalg._core import checks
from difflinalg._core.algebra import mm
from difflinalg._core.tolerances import newton_rtol
from difflinalg._dense import matrix_function

MAX_STEPS = 100
FINAL_STEPS = 2  # from half of the digits to all, and the derivative's one step behind


def signm(A: ArrayLike, disp: bool = True) -> Array | tuple[Array, Array]:
    """Compute the matrix sign function: eigenvalues become the signs of their real parts.

    Args:
        A: shape `(..., n, n)`, real or complex, without eigenvalues on the imaginary axis.
        disp: with False, the error `|S^2 - I|_1` is returned too.

    Returns:
        S, shape `(..., n, n)`, of the dtype of `A`; with `disp=False` the pair of it and the
        error, shape `(...)`. NaN where the iteration does not converge, as with eigenvalues on
        the imaginary axis.

    Raises:
        ValueError: if `A` is not square.

    Derivatives:
        All orders, both modes in any nesting, also at repeated and defective eigenvalues.
        Undefined, and NaN, with eigenvalues on the imaginary axis.

    Cost:
        About 10 inverses; a derivative three times that, and each further order for a matrix of
        twice the size. Runs on every device.

    Example:
        >>> import jax.numpy as jnp
        >>> sign = signm(jnp.array([[2.0, 0.0], [3.0, -1.0]]))
        >>> bool(jnp.allclose(sign, jnp.array([[1.0, 0.0], [2.0, -1.0]]), atol=1e-5))
        True

    References:
        Roberts, "Linear model reduction and solution of the algebraic Riccati equation by use of
        the sign function" (1980); Higham, "Functions of Matrices" (2008), (5.16) and (5.35).
    """
    matrix = checks.as_square("signm", A)
    sign = matrix_function.apply(Sign(), matrix)
    if disp:
        return sign
    fixed = lax.stop_gradient(sign)
    residual = mm(fixed, fixed) - jnp.eye(fixed.shape[-1], dtype=fixed.dtype)
    return sign, jnp.max(jnp.sum(jnp.abs(residual), axis=-2), axis=-1, initial=0.0)


@dataclass(frozen=True)
class Sign:
    """The sign as a `MatrixFunction`; the derivative is that of the iteration."""

    def value(self, a: Array) -> Array:
        """`sign A` of a single matrix."""
        if a.shape[-1] == 0:
            return a

        def step(state):
            x, _, count = state
            inverse = jnp.linalg.inv(x)
            scale = lax.stop_gradient(jnp.sqrt(jnp.sqrt(_size(inverse) / _size(x))))
            new = 0.5 * (scale * x + inverse / scale)
            change = jnp.max(jnp.abs(new - x)) / jnp.max(jnp.abs(new))
            return new, change, count + 1

        def unfinished(state):
            return (state[1] > newton_rtol(a.dtype)) & (state[2] < MAX_STEPS)

        far = jnp.asarray(jnp.inf, a.real.dtype)
        x, change, _ = lax.while_loop(unfinished, step, (a, far, 0))
        for _ in range(FINAL_STEPS):
            x = 0.5 * (x + jnp.linalg.inv(x))
        return x * jnp.where(change <= newton_rtol(a.dtype), 1.0, jnp.nan).astype(a.real.dtype)

    def frechet(self, a: Array, e: Array) -> Array:
        """`L(A, E)`: forward mode through the iteration."""
        return jax.jvp(self.value, (a,), (e,))[1]

    def of_blocks(self) -> "Sign":
        """Unchanged: the sign is analytic wherever it is defined."""
        return self


def _size(x: Array) -> Array:
    magnitude = jnp.abs(x)
    return jnp.max(jnp.sum(magnitude, axis=0)) * jnp.max(jnp.sum(magnitude, axis=1))
