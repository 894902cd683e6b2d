"""Hermitian eigendecomposition and its derivative.

Rule. Differentiating `A V = V diag(w)` and `V^H V = I`, with `K = V^H A_dot V`:

    w_dot     = Re diag(K)
    V^H V_dot = F * K,    F[i, j] = 1 / (w[j] - w[i]),   F[i, i] = 0

The zero diagonal is the gauge choice: the phase of each column does not move. Repeated
eigenvalues are spread (`_core.spread`), by a distance that knows the order of differentiation:
the rule of level `l` calls the decomposition of level `l + 1`.

Derivatives do not see a multiple of the identity, so `A - (tr A / n) I` is decomposed.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from difflinalg._core import checks, dense_checks, lapack, tolerances
from difflinalg._core.algebra import adjoint, diagonal_matrix, herm, inv0, mm, real_diagonal
from difflinalg._core.operation import operation
from difflinalg._core.results import EighResult
from difflinalg._core.spread import spread


def eigh(
    a: ArrayLike,
    UPLO: str | None = None,
    symmetrize_input: bool = True,
    *,
    cluster_rtol: float | None = None,
) -> EighResult:
    """Decompose Hermitian matrices as `A = V diag(w) V^H`.

    Args:
        a: shape `(..., n, n)`, real or complex; integers are converted to the default float.
        UPLO: the triangle that is read when `symmetrize_input` is false; `'L'` (also `None`)
            or `'U'`.
        symmetrize_input: decompose `(a + a^H) / 2`. If false, value and gradient belong to the
            triangle named by `UPLO`; the other one is not read.
        cluster_rtol: eigenvalues closer than this, relative to the width of the spectrum, are
            treated as one cluster where the result is differentiated. By default `eps^(3/4)` for
            a first derivative and `eps^(3/8)` for a second.

    Returns:
        `EighResult(eigenvalues, eigenvectors)`: `w`, shape `(..., n)`, real, ascending, and `V`,
        shape `(..., n, n)`, in the dtype of `a`.

    Raises:
        TypeError: if `a` is not an array of numbers, in half precision, or `symmetrize_input` is
            not static.
        ValueError: if `a` is not square, `UPLO` is unknown, or (outside jit and other
            transformations) `a` contains NaN or inf; under jit the result is NaN.

    Derivatives:
        Forward and reverse mode in any nesting, to every order. A derivative of order k is exact
        for every loss where the gaps, relative to the width of the spectrum, exceed `cluster_rtol`
        (2e-12 for k = 1, 1.3e-6 for k = 2, eps^(1/(k+1)) beyond, in float64); its rounding error
        grows like `eps / gap^k`. Values that are closer are moved apart, by `(eps / m)^(1/(k+1))`
        of the width for m of them, in the value that is returned too. The derivative is then right
        for every loss that is a smooth function of the matrix, such as `V f(w) V^H` or the
        projector on a whole cluster, to about 1e-8 (first order) and 1e-4 (second order) at exact
        degeneracy, 2e-4 at any gap; and wrong for a loss that resolves the cluster: give
        `cluster_rtol=0` where the gap itself matters. A single vector of a degenerate cluster has
        no derivative. These errors are in units of the loss over the k-th power of the width (of a
        multiple c of the identity: of c), so that `exp` at 1e-3 I has no digits at second order:
        scale the matrix to the loss. A loss that depends on the phases of columns depends on the
        gauge (`testing.check_gauge`). For functions of the matrix with all digits use
        `funm_hermitian`.

    Cost:
        O(n^3); the rule adds three products of n x n matrices per tangent. Reverse mode keeps a few
        arrays of the size of `V`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg import linalg
        >>> def exp_entry(a):
        ...     w, v = linalg.eigh(a)
        ...     return ((v * jnp.exp(w)) @ v.T)[0, 0]
        >>> print(jax.grad(exp_entry)(jnp.eye(2)).round(2))
        [[2.72 0.  ]
         [0.   0.  ]]

    References:
        Giles, "An extended collection of matrix derivative results" (2008), section 3.1.
        Magnus, "On differentiating eigenvalues and eigenvectors" (1985), theorem 1.
    """
    matrix = checks.as_square("eigh", a, sequences=False)
    lower = dense_checks.is_lower("eigh", UPLO)
    symmetrize_input = checks.check_flag("eigh", "symmetrize_input", symmetrize_input)
    checks.refuse_nonfinite("eigh", matrix)
    cluster_rtol = checks.check_tolerance("eigh", "cluster_rtol", cluster_rtol)
    return EighResult(*_eigh(matrix, lower, symmetrize_input, cluster_rtol))


def eigvalsh(
    a: ArrayLike,
    UPLO: str | None = "L",
    *,
    symmetrize_input: bool = True,
    cluster_rtol: float | None = None,
) -> Array:
    """Eigenvalues of Hermitian matrices, ascending.

    Args:
        a: shape `(..., n, n)`, real or complex.
        UPLO: as in `eigh`.
        symmetrize_input: as in `eigh`.
        cluster_rtol: as in `eigh`.

    Returns:
        The eigenvalues, shape `(..., n)`, real.

    Raises:
        TypeError: as `eigh`.
        ValueError: as `eigh`.

    Derivatives:
        As `eigh`. A single member of a repeated eigenvalue has one-sided derivatives only;
        symmetric functions of the members, such as their sum, are right to every order.

    Cost:
        O(n^3); differentiated, that of `eigh`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg import linalg
        >>> print(jax.grad(lambda a: linalg.eigvalsh(a)[0])(jnp.diag(jnp.array([1.0, 2.0]))))
        [[1. 0.]
         [0. 0.]]

    References:
        Magnus, "On differentiating eigenvalues and eigenvectors" (1985), theorem 1.
    """
    matrix = checks.as_square("eigvalsh", a, sequences=False)
    lower = dense_checks.is_lower("eigvalsh", UPLO)
    symmetrize_input = checks.check_flag("eigvalsh", "symmetrize_input", symmetrize_input)
    checks.refuse_nonfinite("eigvalsh", matrix)
    cluster_rtol = checks.check_tolerance("eigvalsh", "cluster_rtol", cluster_rtol)
    return _eigvalsh(matrix, lower, symmetrize_input, cluster_rtol)


@partial(jax.jit, static_argnums=(1, 2, 3))
def _eigh(
    a: Array, lower: bool, symmetrize_input: bool, cluster_rtol: float | None
) -> tuple[Array, Array]:
    centred, mean = _centred(hermitian_input(a, lower, symmetrize_input))
    w, v = eigh_core(centred, lax.stop_gradient(jnp.abs(mean)), 0, cluster_rtol)
    return w + mean, v


@partial(jax.jit, static_argnums=(1, 2, 3))
def _eigvalsh(a: Array, lower: bool, symmetrize_input: bool, cluster_rtol: float | None) -> Array:
    centred, mean = _centred(hermitian_input(a, lower, symmetrize_input))
    return eigvalsh_core(centred, lax.stop_gradient(jnp.abs(mean)), cluster_rtol) + mean


def hermitian_input(a: Array, lower: bool, symmetrize_input: bool) -> Array:
    """The Hermitian matrix that `eigh` decomposes: the Hermitian part, or one triangle of `a`."""
    if symmetrize_input:
        return herm(a)
    strict = jnp.tril(a, -1) if lower else jnp.triu(a, 1)
    return strict + adjoint(strict) + diagonal_matrix(real_diagonal(a)).astype(a.dtype)


def _centred(a: Array) -> tuple[Array, Array]:
    """`a - (tr a / n) I` and the mean eigenvalue, shape `(..., 1)`."""
    n = a.shape[-1]
    mean = jnp.sum(real_diagonal(a) / max(n, 1), axis=-1, keepdims=True)
    return a - mean[..., None] * jnp.eye(n, dtype=a.dtype), mean


@operation(statics=2)
def eigh_core(
    a: Array, anchor: Array, level: int, cluster_rtol: float | None
) -> tuple[Array, Array]:
    """Eigendecomposition of a centred Hermitian matrix, with the rule of one spread level.

    Args:
        a: shape `(..., n, n)`, Hermitian, of zero trace.
        anchor: shape `(..., 1)`, the magnitude of the mean eigenvalue that was taken out.
        level: the number of rules above this one, see `spread`.
        cluster_rtol: see `spread`.
    """
    del anchor, level, cluster_rtol
    return lapack.eigh(a)


@eigh_core.defjvp
def _eigh_core_jvp(level, cluster_rtol, primals, tangents):
    (a, anchor), (a_dot, _) = primals, tangents
    w, v = eigh_core(a, anchor, level + 1, cluster_rtol)
    w = spread(w, gap_scale(w, a, anchor, level, cluster_rtol), level, cluster_rtol)
    return (w, v), jax.checkpoint(eigh_tangents)(w, v, a_dot)


@operation(statics=1)
def eigvalsh_core(a: Array, anchor: Array, cluster_rtol: float | None) -> Array:
    """Eigenvalues of a centred Hermitian matrix; the arguments are those of `eigh_core`."""
    del anchor, cluster_rtol
    return jnp.linalg.eigvalsh(a, UPLO="L", symmetrize_input=False)


@eigvalsh_core.defjvp
def _eigvalsh_core_jvp(cluster_rtol, primals, tangents):
    (a, anchor), (a_dot, _) = primals, tangents
    w, v = eigh_core(a, anchor, 0, cluster_rtol)
    return w, jax.checkpoint(eigvalsh_tangents)(v, a_dot)


def gap_scale(w: Array, a: Array, anchor: Array, level: int, cluster_rtol: float | None) -> Array:
    """The scale on which gaps are measured, shape `(..., 1)`: the width of the spectrum.

    For a multiple of the identity it is the norm. The entries of a dense matrix carry the
    rounding of its mean, so there a spectrum counts as one value if it is no wider than that, or
    than a cluster on the scale of the mean; those of a diagonal matrix are exact, and
    diag(2^24, 2^24 + 2) is not degenerate in float32 for a first derivative. For a second it is:
    the diagonal matrix may be what another `eigh` has made of a multiple of the identity.
    """
    w, a = lax.stop_gradient((w, a))
    n = w.shape[-1]
    if n == 0:
        return anchor
    width = w[..., -1:] - w[..., :1]
    off_diagonal = jnp.any((a != 0) & ~jnp.eye(n, dtype=bool), axis=(-1, -2))[..., None]
    if cluster_rtol is None:
        cluster_rtol = tolerances.cluster_rtol(w.dtype, level)
    rtol = max(tolerances.identity_rtol(w.dtype, n), cluster_rtol)
    rounding = jnp.where(off_diagonal, rtol, cluster_rtol if level else 0.0) * anchor
    return jnp.where(width > rounding, width, jnp.where(anchor > 0.0, anchor, 1.0))


def eigh_tangents(w: Array, v: Array, a_dot: Array) -> tuple[Array, Array]:
    """`w_dot` and `v_dot` from the factors and a Hermitian tangent."""
    k = mm(adjoint(v), a_dot, v)
    gap = w[..., None, :] - w[..., :, None]
    return real_diagonal(k), mm(v, inv0(gap, 0.0).astype(k.dtype) * k)


def eigvalsh_tangents(v: Array, a_dot: Array) -> Array:
    """`w_dot` alone: the diagonal of `V^H A_dot V`."""
    return jnp.sum(jnp.real(jnp.conj(v) * mm(a_dot, v)), axis=-2)
