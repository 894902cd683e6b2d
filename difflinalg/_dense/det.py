"""Determinants and their derivatives, singular matrices included.

Rule. With the adjugate (the transposed matrix of cofactors) and, for a regular matrix,

    det_dot = tr(adj(A) A_dot)
    sign_dot = i Im(t) sign,   logabsdet_dot = Re t,   t = tr(A^-1 A_dot)

The determinant is a polynomial in the entries, so `adj(A)` exists for every matrix. It is
`det(A) A^-1` where A is well conditioned, and otherwise, from `A = U diag(s) V^H`,

    adj(A) = det(U) det(V^H) V diag(p) U^H,    p[i] = product of s[j], j != i

Higher orders differentiate the determinant in blocks. In the singular bases of the point of
differentiation, held fixed, `M = U^H A V` is diagonal. Let its last block belong to the q = 4
smallest singular values, and `C = M22 - M21 M11^-1 M12`:

    det M = det M11 det C
    adj M = det M11 [[det C M11^-1 + Z adj(C) W, -Z adj(C)], [-adj(C) W, adj(C)]]

with `Z = M11^-1 M12` and `W = M21 M11^-1`. The small block enters through polynomials only. Where
more than q singular values vanish, so do `det M11` and every derivative up to order q. The next
orders need `M11^-1`: there the zeros in M11 are lifted, by epsilon, and further for every order
above q + 1, whose rounding errors have one more factor `1 / M11`.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from difflinalg._core import checks, lapack, tolerances
from difflinalg._core.algebra import adjoint, diagonal_matrix, mm
from difflinalg._core.operation import operation
from difflinalg._core.repair import repair_where
from difflinalg._core.results import SlogdetResult

BLOCK = 4  # q of the module docstring; matrices up to this size are polynomials throughout


def det(a: ArrayLike) -> Array:
    """Determinants of square matrices.

    Args:
        a: shape `(..., n, n)`, real or complex; integers are converted to the default float.

    Returns:
        The determinants, shape `(...)`.

    Raises:
        TypeError: if `a` is not an array of numbers.
        ValueError: if `a` is not square.

    Derivatives:
        Forward and reverse mode in any nesting, to every order, for regular and singular matrices
        alike. If more than four singular values vanish, the order k = 5 has all digits, and
        higher ones are those of a matrix that is moved by `eps^(1/(k - 4))` of its norm. Use
        `slogdet` where a determinant over- or underflows.

    Cost:
        O(n^3), one LU factorisation; a gradient takes the inverse as well, and an SVD if a matrix
        of the stack is singular or its condition number exceeds 1/sqrt(eps). Higher orders always
        take an SVD. Reverse mode keeps the cofactors only.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg import linalg
        >>> print(jax.grad(linalg.det)(jnp.diag(jnp.array([0.0, 2.0]))))
        [[2. 0.]
         [0. 0.]]

    References:
        Magnus and Neudecker, "Matrix Differential Calculus" (2019), chapter 8, theorem 8.1.
        Stewart, "On the adjugate matrix" (1998), equation (2.1): from the SVD.
    """
    matrix = checks.as_square("det", a, sequences=False, half=True)
    if matrix.shape[-1] > BLOCK:  # smaller ones are polynomials
        checks.refuse_half("det", matrix.dtype)
    return _det(matrix)


def slogdet(a: ArrayLike, *, method: str | None = None) -> SlogdetResult:
    """Sign and logarithm of the modulus of determinants.

    Args:
        a: shape `(..., n, n)`, real or complex; integers are converted to the default float.
        method: `'lu'` (also `None`) or `'qr'` (real matrices only).

    Returns:
        `SlogdetResult(sign, logabsdet)`, both of shape `(...)`: the sign (complex: the phase) and
        the logarithm, real. A singular matrix has sign 0 and logarithm `-inf`.

    Raises:
        TypeError: if `a` is not an array of numbers.
        ValueError: if `a` is not square or `method` is unknown.
        NotImplementedError: for `'qr'` with a complex matrix.

    Derivatives:
        Forward and reverse mode in any nesting, to every order, at regular matrices. The
        logarithm diverges at singular ones: its derivative is not finite. For the determinant
        itself at singular matrices use `det`.

    Cost:
        O(n^3); a gradient takes the inverse as well, and reverse mode keeps it.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg import linalg
        >>> print(jax.grad(lambda a: linalg.slogdet(a)[1])(jnp.diag(jnp.array([4.0, 2.0]))))
        [[0.25 0.  ]
         [0.   0.5 ]]

    References:
        Giles, "An extended collection of matrix derivative results" (2008), section 2.2.3.
    """
    matrix = checks.as_square("slogdet", a, sequences=False)
    checks.check_choice("slogdet", "method", method, (None, "lu", "qr"))
    return SlogdetResult(*slogdet_core(matrix, method == "qr"))


@jax.jit
def _det(a: Array) -> Array:
    return small_det(a) if a.shape[-1] <= BLOCK else det_core(a)


@jax.jit
def _sign(a: Array) -> Array:
    return sign_log_of_lu(*lax.linalg.lu(a)[:2])[0]


@operation()
def det_core(a: Array) -> Array:
    """The determinant by LU factorisation."""
    sign, log = sign_log_of_lu(*lax.linalg.lu(a)[:2])
    return sign * jnp.exp(log).astype(sign.dtype)


@det_core.defjvp
def _det_core_jvp(primals, tangents):
    (a,), (a_dot,) = primals, tangents
    value, cofactors = det_cofactors_core(a)
    return value, jnp.sum(cofactors * a_dot, axis=(-1, -2))


@operation()
def det_cofactors_core(a: Array) -> tuple[Array, Array]:
    """The determinant and the cofactors, `adj(A)^T`, of matrices that need not be regular.

    The transpose of a column-major inverse is row-major: it costs nothing, and what is added to
    the factorisation and the two solves is little more than one pass over the matrix.
    """
    lu, pivots, permutation = lax.linalg.lu(a)
    sign, log = sign_log_of_lu(lu, pivots)
    permuted = (permutation[..., :, None] == jnp.arange(a.shape[-1])).astype(a.dtype)
    half = lax.linalg.triangular_solve(lu, permuted, left_side=True, lower=True, unit_diagonal=True)
    inverse = lax.linalg.triangular_solve(lu, half, left_side=True, lower=False)
    # But for the factor det(A). The barrier keeps XLA from summing over the inverse, by columns.
    cofactors = lax.optimization_barrier(jnp.swapaxes(inverse, -1, -2))
    size, norm = (jnp.sum(jnp.real(x * jnp.conj(x)), axis=(-1, -2)) for x in (cofactors, a))
    # Not finite, because a square overflows, is not regular either.
    regular = jnp.sqrt(size) * jnp.sqrt(norm) < tolerances.regular_limit(a.dtype)
    # det(A) may underflow where the product with the inverse does not.
    root = jnp.exp(0.5 * log).astype(a.dtype)
    cofactors = (cofactors * root[..., None, None]) * (sign * root)[..., None, None]
    cofactors = repair_where(cofactors_by_svd, ~regular, cofactors, a)
    return sign * jnp.exp(log).astype(sign.dtype), cofactors


@det_cofactors_core.defjvp
def _det_cofactors_core_jvp(primals, tangents):
    return jax.jvp(det_cofactors_in_blocks, primals, tangents)


@operation(statics=1)
def slogdet_core(a: Array, by_qr: bool) -> tuple[Array, Array]:
    """Sign and logarithm of the modulus of the determinant."""
    if by_qr:
        sign, log = jnp.linalg.slogdet(a, method="qr")
        return sign, log
    return sign_log_of_lu(*lax.linalg.lu(a)[:2])


@slogdet_core.defjvp
def _slogdet_core_jvp(by_qr, primals, tangents):
    (a,), (a_dot,) = primals, tangents
    sign, log = slogdet_core(a, by_qr)
    t = jnp.sum(jnp.swapaxes(jnp.linalg.inv(a), -1, -2) * a_dot, axis=(-1, -2))
    turn = lax.complex(jnp.zeros_like(log), t.imag) * sign if jnp.iscomplexobj(a) else 0.0 * sign
    return (sign, log), (turn, jnp.real(t))


def sign_log_of_lu(lu: Array, pivots: Array) -> tuple[Array, Array]:
    """Sign and logarithm of the modulus of a determinant from LAPACK's factors."""
    diagonal = jnp.diagonal(lu, axis1=-2, axis2=-1)
    swapped = pivots != jnp.arange(pivots.shape[-1], dtype=pivots.dtype)
    signs = jnp.sign(diagonal) * jnp.where(swapped, -1.0, 1.0).astype(lu.dtype)
    return jnp.prod(signs, axis=-1), jnp.sum(jnp.log(jnp.abs(diagonal)), axis=-1)


def cofactors_by_svd(a: Array) -> Array:
    """`adj(A)^T` from the singular value decomposition, for any A."""
    u, s, vh = lapack.svd(a)
    log = jnp.log(s)
    # Sums over all other members: what stands before a member and what stands after it.
    zero = jnp.zeros_like(log[..., :1])
    before = jnp.concatenate([zero, jnp.cumsum(log, axis=-1)[..., :-1]], axis=-1)
    after = jnp.cumsum(log[..., ::-1], axis=-1)[..., ::-1]
    after = jnp.concatenate([after[..., 1:], zero], axis=-1)
    products = _phase(u, vh)[..., None] * jnp.exp(before + after).astype(a.dtype)
    return mm(jnp.conj(u) * products[..., None, :], jnp.conj(vh))


def det_cofactors_in_blocks(a: Array) -> tuple[Array, Array]:
    """`det(A)` and `adj(A)^T` by the formulas in blocks, differentiable where A is singular."""
    point = lax.stop_gradient(a)
    u, s, vh = lapack.svd(point)
    head = lax.stop_gradient(lifted(s[..., :-BLOCK], a, 0))
    tail = s[..., -BLOCK:]
    moved = mm(adjoint(u), a - point, adjoint(vh))
    x11, x12 = moved[..., :-BLOCK, :-BLOCK], moved[..., :-BLOCK, -BLOCK:]
    x21, x22 = moved[..., -BLOCK:, :-BLOCK], moved[..., -BLOCK:, -BLOCK:]
    inverse_head = 1.0 / head
    identity = jnp.eye(head.shape[-1], dtype=a.dtype)
    # M11 = diag(head) (1 + Y); the determinant of 1 + Y is near 1 and needs no care.
    k = identity + inverse_head[..., :, None] * x11
    k_inverse = jnp.linalg.inv(k)
    sign, log = slogdet_core(k, False)
    det_11 = jnp.exp(jnp.sum(jnp.log(head), axis=-1) + log).astype(a.dtype) * sign
    m11_inverse = k_inverse * inverse_head[..., None, :]
    z, w = mm(m11_inverse, x12), mm(x21, m11_inverse)
    c = diagonal_matrix(tail).astype(a.dtype) + x22 - mm(x21, z)
    det_c, adj_c = small_det(c), small_adjugate(c)
    z_adj = mm(z, adj_c)
    upper = [det_c[..., None, None] * m11_inverse + mm(z_adj, w), -z_adj]
    lower = [-mm(adj_c, w), adj_c]
    rows = [jnp.concatenate(row, axis=-1) for row in (upper, lower)]
    factor = _phase(u, vh) * det_11
    adj_m = factor[..., None, None] * jnp.concatenate(rows, axis=-2)
    return factor * det_c, jnp.swapaxes(mm(adjoint(vh), adj_m, adjoint(u)), -1, -2)


@operation(statics=1)
def lifted(values: Array, a: Array, level: int) -> Array:
    """Descending singular values of `a` without zeros; `level` is the order of differentiation."""
    del a  # an argument so that differentiation is noticed
    largest = values[..., :1]
    scale = jnp.where(largest > 0.0, largest, 1.0)
    return jnp.maximum(values, tolerances.lift_rtol(values.dtype, level - BLOCK) * scale)


@lifted.defjvp
def _lifted_jvp(level, primals, tangents):
    del tangents
    values = lifted(*primals, level + 1)
    return values, jnp.zeros_like(values)


def _phase(u: Array, vh: Array) -> Array:
    """`det(U) det(V^H)`, of modulus one."""
    return _sign(u) * _sign(vh)


def small_det(a: Array) -> Array:
    """The determinant of matrices up to 4 x 4 as a polynomial of their entries."""
    n = a.shape[-1]
    if n == 0:
        return jnp.ones(a.shape[:-2], a.dtype)
    entry = {(i, j): a[..., i, j] for i in range(n) for j in range(n)}

    def minor(i: int, k: int, j: int, m: int) -> Array:
        return entry[i, j] * entry[k, m] - entry[i, m] * entry[k, j]

    if n == 1:
        return entry[0, 0]
    if n == 2:
        return minor(0, 1, 0, 1)
    if n == 3:
        first, second, third = minor(1, 2, 1, 2), minor(1, 2, 0, 2), minor(1, 2, 0, 1)
        return entry[0, 0] * first - entry[0, 1] * second + entry[0, 2] * third
    # Laplace expansion by the first two rows.
    pairs = [((0, 1), (2, 3)), ((0, 3), (1, 2)), ((1, 2), (0, 3)), ((2, 3), (0, 1))]
    odd = [((0, 2), (1, 3)), ((1, 3), (0, 2))]
    even_terms = [minor(0, 1, *left) * minor(2, 3, *right) for left, right in pairs]
    odd_terms = [minor(0, 1, *left) * minor(2, 3, *right) for left, right in odd]
    return sum(even_terms[1:], even_terms[0]) - sum(odd_terms[1:], odd_terms[0])


def small_adjugate(a: Array) -> Array:
    """The adjugate of matrices up to 4 x 4: the transposed gradient of `small_det`."""
    value, pull_back = jax.vjp(small_det, a)
    return jnp.swapaxes(pull_back(jnp.ones_like(value))[0], -1, -2)
