"""`svds`: the largest singular triplets of an operator, as `scipy.sparse.linalg.svds`.

The triplets `A v = s u`, `A^H u = s v` are the eigenpairs `(s, [u; v] / sqrt 2)` of the Hermitian
operator `[[0, A], [A^H, 0]]` with `s > 0`, which is not squared, so that no digits are lost. Its
rule is that of `eigsh`: outside of the kept space `[[s_j, -A], [-A^H, s_j]]` is positive definite.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from difflinalg._core import checks, krylov_checks, tolerances
from difflinalg._krylov.eigsh import eigsh
from difflinalg._krylov.operator import image_dtype, is_matrix, linear, matrix_product, space_of


def svds(
    A: Any,
    k: int = 6,
    ncv: int | None = None,
    tol: float = 0,
    which: str = "LM",
    v0: Any = None,
    maxiter: int | None = None,
    return_singular_vectors: bool = True,
    *,
    return_info: bool = False,
) -> Any:
    """The `k` largest singular values and vectors of an operator.

    Args:
        A: an array `(m, n)`, a BCOO matrix, or a linear function from flat arrays `(n,)` to flat
            arrays `(m,)` that may close over differentiated, batched or traced arrays.
        k: how many triplets, at most the rank of `A`.
        ncv: vectors in the basis, as in `eigsh`.
        tol: residual to reach, relative to the singular value; 0 is machine precision.
        which: `'LM'`, the only choice: the smallest singular values of an operator lie in the
            interior of a spectrum and are not found reliably without a factorisation.
        v0: an example of the vectors that a function acts on, an array `(n,)` or its shape.
        maxiter: largest number of restarts, 1000 by default.
        return_singular_vectors: if false, only the values are returned.
        return_info: append an `EigenInfo` (of the Hermitian operator of twice the size).

    Returns:
        `u`, shape `(m, k)`, `s`, shape `(k,)`, ascending as in SciPy, and `vh`, shape `(k, n)`.

    Raises:
        ValueError: if shapes do not fit.
        NotConverged: outside of jit and other transformations, as in `eigsh`.

    Derivatives:
        Forward and reverse mode in any nesting, with respect to an array `A` and to what a
        function closes over, with the exact truncation term. Where kept values coincide they are
        right for losses that depend on projectors. NaN where a multiplet is cut, and value and
        derivative are NaN for zero singular values, whose vectors are not determined.

    Cost:
        As `eigsh` for an operator of size `m + n`: each step takes a product with `A` and one
        with `A^H`.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg.scipy.sparse.linalg import svds
        >>> print(svds(jnp.diag(jnp.array([1.0, 3.0, 2.0])), 2)[1])
        [2. 3.]

    References:
        Golub and Kahan, "Calculating the singular values and pseudo-inverse of a matrix" (1965),
        equation 2.1 (the Hermitian operator).
        Francuz, Schuch and Vanhecke (2025), arXiv:2311.11894, section III (truncation term).
    """
    name = "svds"
    checks.check_choice(name, "which", which, ("LM",))
    forward, m, n, dtype = _operator(name, A, v0)
    k = krylov_checks.check_count(name, "k", k, 1, min(m, n))
    adjoint = forward.transpose(n, dtype)

    def dilation(x: Array) -> Array:
        upper = forward(x[m:])
        lower = jnp.conj(adjoint(jnp.conj(x[:m])))
        return jnp.concatenate([upper, lower])

    like = jax.ShapeDtypeStruct((m + n,), dtype)
    s, x, info = eigsh(dilation, k, None, None, "LA", like, ncv, maxiter, tol, return_info=True)
    zero = tolerances.rank_rtol(dtype, m + n) * info.norm
    defined = jnp.where(jax.lax.stop_gradient(s) > zero, 1.0, jnp.nan).astype(s.dtype)
    s = s * defined
    result: list[Any] = [s]
    if return_singular_vectors:
        x = x * defined * jnp.sqrt(2.0).astype(s.dtype)
        result = [x[:m], s, jnp.conj(x[m:]).T]
    if return_info:
        result.append(info)
    return tuple(result) if len(result) > 1 else result[0]


def _operator(name: str, A: Any, v0: Any):
    """The map of flat vectors, its two sizes and the dtype of both."""
    if is_matrix(A):
        krylov_checks.check_matrix_shape(name, A.shape)
        m, n = A.shape
        inexact = jnp.issubdtype(A.dtype, jnp.inexact)
        dtype = jnp.dtype(A.dtype if inexact else jnp.result_type(float))
        matrix = A.astype(dtype)
        return linear(matrix_product(matrix), jax.ShapeDtypeStruct((n,), dtype)), m, n, dtype
    if not callable(A):
        krylov_checks.refuse_operator(name, A)
    if v0 is None:
        krylov_checks.require_example(name, "v0")
    space = space_of(name, v0)
    dtype = image_dtype(A, space)
    like = jax.ShapeDtypeStruct((space.size,), dtype)
    image = jax.eval_shape(A, like)
    krylov_checks.check_flat(
        name, jnp.shape(v0) if not hasattr(v0, "shape") else v0.shape, image.shape
    )
    return linear(lambda x: jnp.asarray(A(x), dtype), like), image.shape[0], space.size, dtype
