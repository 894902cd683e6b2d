"""Singular value decomposition and its derivative.

Rule. With `A = U diag(s) V^H`, `T = U^H A_dot V`, and elementwise products `*`:

    s_dot   = Re diag(T)
    U^H U_dot = herm(T) * E + skew(T) * F,    E[i, j] = 1 / (s[j] - s[i]),  E[i, i] = 0
    V^H V_dot = herm(T) * E - skew(T) * F,    F[i, j] = 1 / (s[i] + s[j])

The diagonal of `skew(T) * F` is `i Im(T[i, i]) / (2 s[i])`: only the difference of the phases of
`u_i` and `v_i` is fixed by `A`, and this choice moves both by the same amount. Outside of the
span of the factors, with `C = U_2^H A_dot V / s` for the columns `U_2` that complete `U`,

    U_dot gains U_2 C = (I - U U^H) A_dot V / s,    U_2_dot = -U C^H

and the same for `V` with `A^H`. The differences `s[j] - s[i]` and sums `s[i] + s[j]` are divided
by one at a time, never their product, which would overflow. Repeated and zero singular values
are spread (`_core.spread`), the zero ones upwards from zero.
"""

from functools import partial
from typing import Literal, overload

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from difflinalg._core import checks, dense_checks, lapack
from difflinalg._core.algebra import adjoint, adjoint_mm, inv0, mm, mm_adjoint, skew
from difflinalg._core.operation import operation
from difflinalg._core.results import SVDResult
from difflinalg._core.spread import spread
from difflinalg._dense.eigh import eigh


@overload
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: Literal[True] = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
    *,
    cluster_rtol: float | None = None,
) -> SVDResult: ...
@overload
def svd(
    a: ArrayLike,
    full_matrices: bool,
    compute_uv: Literal[False],
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
    *,
    cluster_rtol: float | None = None,
) -> Array: ...
@overload
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    *,
    compute_uv: Literal[False],
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
    cluster_rtol: float | None = None,
) -> Array: ...
@overload
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
    *,
    cluster_rtol: float | None = None,
) -> SVDResult | Array: ...
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
    *,
    cluster_rtol: float | None = None,
) -> SVDResult | Array:
    """Decompose matrices as `A = U diag(s) Vh`.

    Args:
        a: shape `(..., m, n)`, real or complex; integers are converted to the default float.
        full_matrices: complete `U` and `Vh` to square unitary matrices.
        compute_uv: if false, return the singular values only.
        hermitian: take `a` as Hermitian and decompose it by `eigh`, which is cheaper.
        subset_by_index: `(start, end)`, the singular values to return, counted from the largest.
            Needs `full_matrices=False` or `compute_uv=False`.
        cluster_rtol: singular values closer than this (and closer to 0), relative to the largest,
            are treated as one cluster where the result is differentiated. By default `eps^(3/4)`
            for a first derivative and `eps^(3/8)` for a second.

    Returns:
        `SVDResult(U, S, Vh)` with shapes `(..., m, r)`, `(..., r)`, `(..., r, n)`, where
        `r = min(m, n)`, and `(..., m, m)`, `(..., n, n)` for the factors if `full_matrices`;
        `S` is real and descending. With `compute_uv=False` only `S`.

    Raises:
        TypeError: if `a` is not an array of numbers, in half precision, or a flag or the subset
            is not static.
        ValueError: if `a` is not a matrix, not square with `hermitian`, the subset does not fit,
            or (outside jit and other transformations) `a` contains NaN or inf; under jit the
            result is NaN.

    Derivatives:
        Forward and reverse mode in any nesting, to every order. A derivative of order k is exact
        for every loss where singular values, and their gaps, relative to the largest, exceed
        `cluster_rtol` (2e-12 for k = 1, 1.3e-6 for k = 2, eps^(1/(k+1)) beyond, in float64).
        Values that coincide or vanish within it are moved apart, by `(eps / m)^(1/(k+1))` for m
        of them, in the value that is returned too. The derivative is then right for every loss
        that is a smooth function of the matrix, such as `U f(s) Vh` with odd `f`, `U Vh` of a
        regular matrix, or the projector on a whole cluster or null space, to about 1e-8 (first
        order) and 1e-4 (second order) in float64, and the more values a cluster has, the less;
        and wrong for a loss that resolves the cluster: give `cluster_rtol=0` where the gap itself
        matters. These errors are in units of the loss over the k-th power of the largest value.
        For the leading values of a long tail use `svd_trunc`. Undefined for single
        vectors of a degenerate cluster, for `U Vh` of a singular matrix, and for the phases of
        single columns, which are gauge (`testing.check_gauge`).

    Cost:
        O(m n min(m, n)); the rule adds four products of that size per tangent. Reverse mode
        keeps `U`, `s` and `Vh` only.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg import linalg
        >>> def nearest_rotation_entry(a):
        ...     u, _, vh = linalg.svd(a)
        ...     return (u @ vh)[0, 1]
        >>> print(jax.grad(nearest_rotation_entry)(jnp.eye(2)).round(2))
        [[ 0.   0.5]
         [-0.5  0. ]]

    References:
        Giles, "An extended collection of matrix derivative results" (2008), section 3.2.
        Wan and Zhang, "Automatic differentiation for complex valued SVD" (2019),
        arXiv:1909.02659, equation 9 (the phase term).
    """
    full_matrices = checks.check_flag("svd", "full_matrices", full_matrices)
    compute_uv = checks.check_flag("svd", "compute_uv", compute_uv)
    hermitian = checks.check_flag("svd", "hermitian", hermitian)
    matrix = (checks.as_square if hermitian else checks.as_matrix)("svd", a, sequences=False)
    checks.refuse_nonfinite("svd", matrix)
    cluster_rtol = checks.check_tolerance("svd", "cluster_rtol", cluster_rtol)
    keep = slice(None)
    if subset_by_index is not None:
        keep = dense_checks.as_subset(
            "svd", subset_by_index, min(matrix.shape[-2:]), full_matrices and compute_uv
        )
    if hermitian:
        u, s, vh = _svd_hermitian(matrix, cluster_rtol)
    elif compute_uv:
        u, s, vh = _svd(matrix, full_matrices, cluster_rtol)
    else:
        return _svdvals(matrix, cluster_rtol)[..., keep]
    if not compute_uv:
        return s[..., keep]
    if subset_by_index is not None:
        u, s, vh = u[..., keep], s[..., keep], vh[..., keep, :]
    return SVDResult(u, s, vh)


def svdvals(x: ArrayLike, /, *, cluster_rtol: float | None = None) -> Array:
    """Singular values of matrices, descending.

    Args:
        x: shape `(..., m, n)`, real or complex.
        cluster_rtol: as in `svd`.

    Returns:
        The singular values, shape `(..., min(m, n))`, real.

    Raises:
        TypeError: as `svd`.
        ValueError: as `svd`.

    Derivatives:
        As `svd`. A single member of a repeated singular value, and a zero singular value, have
        one-sided derivatives only; symmetric functions of the members, even ones at zero, are
        right to every order.

    Cost:
        O(m n min(m, n)); differentiated, that of `svd`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg import linalg
        >>> print(jax.grad(lambda a: linalg.svdvals(a)[0])(jnp.diag(jnp.array([2.0, 1.0]))))
        [[1. 0.]
         [0. 0.]]

    References:
        Giles, "An extended collection of matrix derivative results" (2008), section 3.2.
    """
    matrix = checks.as_matrix("svdvals", x, sequences=False)
    checks.refuse_nonfinite("svdvals", matrix)
    return _svdvals(matrix, checks.check_tolerance("svdvals", "cluster_rtol", cluster_rtol))


@partial(jax.jit, static_argnums=(1, 2))
def _svd(a: Array, full_matrices: bool, cluster_rtol: float | None) -> tuple[Array, Array, Array]:
    return svd_core(a, full_matrices, 0, cluster_rtol)


@partial(jax.jit, static_argnums=1)
def _svdvals(a: Array, cluster_rtol: float | None) -> Array:
    return svdvals_core(a, cluster_rtol)


@partial(jax.jit, static_argnums=1)
def _svd_hermitian(a: Array, cluster_rtol: float | None) -> tuple[Array, Array, Array]:
    """`A = V diag(w) V^H` with the signs of `w` moved into the right factor."""
    w, v = eigh(a, cluster_rtol=cluster_rtol)
    sign = lax.stop_gradient(jnp.where(w < 0.0, -1.0, 1.0).astype(w.dtype))
    order = jnp.argsort(-lax.stop_gradient(jnp.abs(w)), axis=-1)
    s, sign = (jnp.take_along_axis(x, order, axis=-1) for x in (sign * w, sign))
    u = jnp.take_along_axis(v, order[..., None, :], axis=-1)
    return u, s, sign[..., :, None] * adjoint(u)


@operation(statics=3)
def svd_core(
    a: Array, full_matrices: bool, level: int, cluster_rtol: float | None
) -> tuple[Array, Array, Array]:
    """Singular value decomposition with the rule of one spread level, see `spread`."""
    del level, cluster_rtol
    return lapack.svd(a, full_matrices)


@svd_core.defjvp
def _svd_core_jvp(full_matrices, level, cluster_rtol, primals, tangents):
    (a,), (a_dot,) = primals, tangents
    u, s, vh = svd_core(a, full_matrices, level + 1, cluster_rtol)
    s = spread(s[..., ::-1], gap_scale(s), level, cluster_rtol, from_zero=True)[..., ::-1]
    return (u, s, vh), jax.checkpoint(svd_tangents)(u, s, vh, a_dot)


@operation(statics=1)
def svdvals_core(a: Array, cluster_rtol: float | None) -> Array:
    """Singular values; the arguments are those of `svd_core`."""
    del cluster_rtol
    return jnp.linalg.svd(a, compute_uv=False)


@svdvals_core.defjvp
def _svdvals_core_jvp(cluster_rtol, primals, tangents):
    (a,), (a_dot,) = primals, tangents
    u, s, vh = svd_core(a, False, 0, cluster_rtol)
    return s, jax.checkpoint(svdvals_tangents)(u, vh, a_dot)


def gap_scale(s: Array) -> Array:
    """The scale on which gaps are measured, shape `(..., 1)`: the largest singular value."""
    largest = lax.stop_gradient(s[..., :1])
    return jnp.where(largest > 0.0, largest, 1.0)


def svd_tangents(u: Array, s: Array, vh: Array, a_dot: Array) -> tuple[Array, Array, Array]:
    """`u_dot`, `s_dot` and `vh_dot` from the factors, thin or full, and the tangent of `A`."""
    rank = s.shape[-1]
    u_1, vh_1 = u[..., :rank], vh[..., :rank, :]
    a_dot_v = mm_adjoint(a_dot, vh_1)
    t = adjoint_mm(u_1, a_dot_v)
    s_row, s_column = s[..., None, :], s[..., :, None]
    # E is antisymmetric and F symmetric: herm(T) * E = skew(E * T), skew(T) * F = skew(F * T).
    # In reverse mode what cancels in skew then cancels before it is divided by a gap or a sum.
    even = skew(inv0(s_row - s_column, 0.0) * t)
    odd = skew(inv0(s_row + s_column, 0.0) * t)
    # Behind a barrier the cotangent of `u` is transposed by itself, and not by the product that
    # reads it in reverse mode: a product with a transposed left factor is slow on a CPU.
    u_dot = adjoint(lax.optimization_barrier(-mm_adjoint(even + odd, u_1)))
    v_dot = adjoint(-mm(even - odd, vh_1))
    if a_dot.shape[-2] > rank:
        u_dot = _with_complement(u, u_dot, a_dot_v, t, s_row)
    if a_dot.shape[-1] > rank:
        a_dot_h_u = adjoint_mm(a_dot, u_1)
        v_dot = _with_complement(adjoint(vh), v_dot, a_dot_h_u, adjoint(t), s_row)
    s_dot = jnp.real(jnp.diagonal(t, axis1=-2, axis2=-1))
    return u_dot, s_dot, adjoint(v_dot)


def _with_complement(q: Array, q_1_dot: Array, y: Array, t: Array, s_row: Array) -> Array:
    """Add what leaves the span of `q_1`: `y` is `A_dot V_1` (or its mirror), `t = q_1^H y`."""
    rank = s_row.shape[-1]
    q_1, q_2 = q[..., :rank], q[..., rank:]
    inv_s = inv0(s_row, 0.0)
    if q_2.shape[-1] == 0:
        return q_1_dot + (y - mm(q_1, t)) * inv_s
    c = adjoint_mm(q_2, y) * inv_s
    return jnp.concatenate([q_1_dot + mm(q_2, c), -mm_adjoint(q_1, c)], axis=-1)


def svdvals_tangents(u: Array, vh: Array, a_dot: Array) -> Array:
    """`s_dot` alone: the diagonal of `Re(U^H A_dot V)`."""
    return jnp.sum(jnp.real(jnp.conj(u) * mm_adjoint(a_dot, vh)), axis=-2)
