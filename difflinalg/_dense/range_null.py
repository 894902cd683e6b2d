"""Bases of the range and the null space, angles between subspaces, and their derivatives.

Value. The singular vectors: `A = U S V^H`, of which the first r columns of U span the range of A
and the last n - r columns of V its null space, r being the rank.

Rule. With U = (Q, U_2) and V = (W, V_2) split after r columns, `B = Q^H A W`, `C = U_2^H A V_2`,
and no rotation within any of the four, `Q_dot = U_2 X`, `W_dot = V_2 Y`,

    U_2_dot = -Q X^H,    V_2_dot = -W Y^H

The blocks `U_2^H A W` and `Q^H A V_2` stay zero, so that

    X B - C Y = U_2^H A_dot W,    Y B^H - C^H X = V_2^H A_dot^H Q

In the singular vectors B and C are diagonal, and each pair of entries solves a 2 x 2 system with
the determinant `b^2 - c^2`: gaps within the range do not enter. This is the derivative of the
subspaces along changes of A that keep the rank, and of the dominant subspaces otherwise.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from difflinalg._core import checks, dense_checks, lapack
from difflinalg._core.algebra import adjoint, mm
from difflinalg._core.operation import operation
from difflinalg._core.tolerances import rank_rtol
from difflinalg._dense.svd import svdvals


class Subspaces(NamedTuple):
    """Bases of the dominant left and right subspaces and of their complements."""

    q: Array
    u_2: Array
    w: Array
    v_2: Array


def null_space(
    A: ArrayLike,
    rcond: float | None = None,
    *,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
    rank: int | None = None,
) -> Array:
    """Compute an orthonormal basis of the null space.

    Args:
        A: shape `(..., m, n)`, real or complex.
        rcond: singular values below `rcond` times the largest count as zero; by default
            `eps max(m, n)`.
        overwrite_a: ignored.
        check_finite: ignored.
        lapack_driver: ignored.
        rank: the rank, where it is known. It fixes the shape of the result, so under `jit` and
            `vmap` it must be given.

    Returns:
        Shape `(..., n, n - rank)`, orthonormal columns.

    Raises:
        TypeError: under `jit` or `vmap` without `rank`.
        ValueError: if `A` is not a matrix, or the matrices of a stack differ in rank.

    Derivatives:
        All orders, both modes in any nesting, for the functions of the subspace (of the
        projector). The basis itself is arbitrary; it is carried along without rotation. `A` is
        taken to keep its rank.

    Cost:
        One full singular value decomposition; the rule adds 8 products per tangent.

    Example:
        >>> import jax.numpy as jnp
        >>> basis = null_space(jnp.array([[3.0, 4.0]]))
        >>> bool(jnp.allclose(jnp.abs(basis), jnp.array([[0.8], [0.6]]), atol=1e-5))
        True

    References:
        Golub and Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares
        problems whose variables separate" (1973), equation (4.11) (the projector).
    """
    del overwrite_a, check_finite, lapack_driver
    matrix = checks.as_matrix("null_space", A)
    known = _rank("null_space", matrix, rcond, rank)
    return _subspaces(matrix, known).v_2


def orth(A: ArrayLike, rcond: float | None = None, *, rank: int | None = None) -> Array:
    """Compute an orthonormal basis of the range.

    Args:
        A: shape `(..., m, n)`, real or complex.
        rcond: as in `null_space`.
        rank: as in `null_space`.

    Returns:
        Shape `(..., m, rank)`, orthonormal columns, in the order of the singular values.

    Raises:
        TypeError: as `null_space`.
        ValueError: as `null_space`.

    Derivatives:
        As `null_space`.

    Cost:
        As `null_space`.

    Example:
        >>> import jax.numpy as jnp
        >>> basis = orth(jnp.array([[3.0], [4.0]]))
        >>> bool(jnp.allclose(jnp.abs(basis), jnp.array([[0.6], [0.8]]), atol=1e-5))
        True

    References:
        As `null_space`.
    """
    matrix = checks.as_matrix("orth", A)
    return _subspaces(matrix, _rank("orth", matrix, rcond, rank)).q


def subspace_angles(
    A: ArrayLike, B: ArrayLike, *, rank_a: int | None = None, rank_b: int | None = None
) -> Array:
    """Compute the principal angles between the ranges of two matrices.

    Args:
        A: shape `(..., m, n)`, real or complex.
        B: shape `(..., m, k)`.
        rank_a: the rank of `A`; needed under `jit` and `vmap`.
        rank_b: the rank of `B`; needed under `jit` and `vmap`.

    Returns:
        The angles, descending, shape `(..., min(rank_a, rank_b))`, in radians.

    Raises:
        TypeError: under `jit` or `vmap` without ranks.
        ValueError: if the numbers of rows differ, or the matrices of a stack differ in rank.

    Derivatives:
        All orders, both modes in any nesting, for an angle that is simple and neither 0 nor
        pi / 2, where it has a kink; symmetric functions of equal angles have the accuracy that
        `svdvals` states.

    Cost:
        Three singular value decompositions.

    Example:
        >>> import jax.numpy as jnp
        >>> a, b = jnp.array([[1.0], [0.0]]), jnp.array([[1.0], [1.0]])
        >>> print(jnp.rad2deg(subspace_angles(a, b)).round(2))
        [45.]

    References:
        Knyazev and Argentati, "Principal angles between subspaces in an A-based scalar product"
        (2002), algorithm 3.1.
    """
    name = "subspace_angles"
    a, b = checks.as_matrix(name, A), checks.as_matrix(name, B)
    if a.shape[-2] != b.shape[-2]:
        checks.refuse_shapes(name, a.shape, b.shape)
    q_a = _subspaces(a, _rank(name, a, None, rank_a)).q
    q_b = _subspaces(b, _rank(name, b, None, rank_b)).q
    if q_a.shape[-1] < q_b.shape[-1]:
        q_a, q_b = q_b, q_a
    overlap = mm(adjoint(q_a), q_b)
    cosines = jnp.clip(svdvals(overlap), 0.0, 1.0)[..., ::-1]
    sines = jnp.clip(svdvals(q_b - mm(q_a, overlap)), 0.0, 1.0)
    # Each function where it is well conditioned, and at a harmless point elsewhere.
    flat = cosines**2 >= 0.5
    small = jnp.arcsin(jnp.where(flat, sines, 0.0))
    large = jnp.arccos(jnp.where(flat, 0.0, cosines))
    return jnp.where(flat, small, large)


def _rank(name: str, a: Array, rcond: float | None, rank: int | None) -> int:
    """The rank that is given, or the numerical one where the values can be seen."""
    limit = min(a.shape[-2:])
    if rank is not None:
        return dense_checks.check_given_rank(name, rank, limit)
    values = lax.stop_gradient(a)
    dense_checks.refuse_unknown_rank(name, values)
    if a.size == 0:
        return 0
    s = np.linalg.svd(np.asarray(values), compute_uv=False)
    tolerance = rank_rtol(a.dtype, max(a.shape[-2:])) if rcond is None else rcond
    ranks = np.sum(s > tolerance * s[..., :1], axis=-1)
    return dense_checks.common_rank(name, ranks)


@partial(jax.jit, static_argnums=1)
def _subspaces(a: Array, rank: int) -> Subspaces:
    core = jnp.vectorize(
        lambda a: tuple(subspaces_core(a, rank)), signature="(m,n)->(m,r),(m,p),(n,r),(n,q)"
    )
    return Subspaces(*core(a))


@operation(statics=1)
def subspaces_core(a: Array, rank: int) -> Subspaces:
    """The four bases of a single matrix."""
    u, _, vh = lapack.svd(a, full_matrices=True)
    v = adjoint(vh)
    return Subspaces(u[:, :rank], u[:, rank:], v[:, :rank], v[:, rank:])


@subspaces_core.defjvp
def _subspaces_core_jvp(rank, primals, tangents):
    (a,), (a_dot,) = primals, tangents
    bases = subspaces_core(a, rank)
    return bases, Subspaces(*jax.checkpoint(subspaces_tangents)(bases, a, a_dot))


def subspaces_tangents(bases: Subspaces, a: Array, a_dot: Array) -> Subspaces:
    """Tangents of the four bases, by the rule of this module."""
    q, u_2, w, v_2 = bases
    b, c = mm(adjoint(q), a, w), mm(adjoint(u_2), a, v_2)
    right = (mm(adjoint(u_2), a_dot, w), mm(adjoint(v_2), adjoint(a_dot), q))
    kept, dropped = (lax.stop_gradient(jnp.diagonal(x)).real for x in (b, c))
    s_x, s_y = (_padded(dropped, x.shape[1]) for x in (u_2, v_2))

    def operator(xy):
        x, y = xy
        return mm(x, b) - mm(c, y), mm(y, adjoint(b)) - mm(adjoint(c), x)

    def solve(_, rhs):
        e, f = rhs
        scaled = s_x[:, None] * _fit(f, e.shape[0]), s_y[:, None] * _fit(e, f.shape[0])
        # The factors apart: squares would over- or underflow.
        x = (kept * e + scaled[0]) / (kept - s_x[:, None]) / (kept + s_x[:, None])
        y = (kept * f + scaled[1]) / (kept - s_y[:, None]) / (kept + s_y[:, None])
        return x, y

    def transpose_solve(_, rhs):
        return jax.linear_transpose(lambda r: solve(operator, r), rhs)(rhs)[0]

    x, y = lax.custom_linear_solve(operator, right, solve, transpose_solve)
    return Subspaces(mm(u_2, x), -mm(q, adjoint(x)), mm(v_2, y), -mm(w, adjoint(y)))


def _padded(values: Array, size: int) -> Array:
    return jnp.concatenate([values, jnp.zeros(size - values.shape[0], values.dtype)])


def _fit(x: Array, rows: int) -> Array:
    """`x` cut or filled with zero rows to a number of rows."""
    if x.shape[0] >= rows:
        return x[:rows]
    return jnp.concatenate([x, jnp.zeros((rows - x.shape[0], x.shape[1]), x.dtype)])
