"""The singular value decomposition with the signature of SciPy."""

from jax import Array
from jax.typing import ArrayLike

from difflinalg._core.checks import of_sequence
from difflinalg._dense.svd import svd as numpy_svd
from difflinalg._dense.svd import svdvals


def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Array | tuple[Array, Array, Array]:
    """Compute `a = U diag(s) Vh`.

    Args:
        a: shape `(..., m, n)`, real or complex.
        full_matrices: square `U` and `Vh`, or thin ones.
        compute_uv: with False, only the singular values.
        overwrite_a: ignored, as in JAX.
        check_finite: ignored, as in JAX.
        lapack_driver: ignored, as in JAX.

    Returns:
        `(U, s, Vh)`, or `s`, descending.

    Raises:
        TypeError: as `difflinalg.linalg.svd`.
        ValueError: as `difflinalg.linalg.svd`.

    Derivatives:
        Those of `difflinalg.linalg.svd`.

    Cost:
        That of `difflinalg.linalg.svd`.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg.scipy.linalg import svd
        >>> print(svd(jnp.diag(jnp.array([1.0, 2.0])), compute_uv=False))
        [2. 1.]

    References:
        Golub and Van Loan, "Matrix Computations" (2013), section 2.4.
    """
    del overwrite_a, check_finite, lapack_driver
    if not compute_uv:
        return svdvals(of_sequence(a))
    u, s, vh = numpy_svd(of_sequence(a), full_matrices=full_matrices)
    return u, s, vh
