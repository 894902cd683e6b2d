"""Eigendecomposition of general matrices and its derivative.

Rule. `A V = V diag(w)`, columns of V of unit length with a real largest entry, as LAPACK returns
them. With `K = V^-1 A_dot V`:

    w_dot = diag(K)
    U = V (K * F),   F[i, j] = 1 / (w[j] - w[i]),   F[i, i] = 0
    V_dot = U + V diag(c),   c = -Re(v^H u) - i Im(u[p]) / v[p],   p the largest entry of v

The left vectors, `L^H A = diag(w) L^H`, follow the same rule with `A^H` and `conj(w)`.

Where eigenvalues coincide or V is nearly singular (a defective matrix) the rule breaks down. There
the matrix is moved, by a fixed matrix of small norm that knows the order of differentiation: each
rule tells the decomposition that it calls how sensitive its tangents are. Value and derivative
that are returned belong to the moved matrix. A smooth function of the matrix, such as a symmetric
function of the eigenvalues, so keeps most of its digits, as where the Hermitian rule spreads.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from difflinalg._core import checks, tolerances
from difflinalg._core.algebra import adjoint, mm
from difflinalg._core.operation import operation
from difflinalg._core.repair import repair_where
from difflinalg._core.results import EigLeftResult, EigResult

VALUES, VECTORS = 2, 3  # powers of `defective_limit` in the first derivative


def eig(a: ArrayLike, *, left: bool = False) -> EigResult | EigLeftResult:
    """Decompose general square matrices as `A V = V diag(w)`.

    Args:
        a: shape `(..., n, n)`, real or complex; integers are converted to the default float.
        left: return the left eigenvectors too, `L^H A = diag(w) L^H`, as `scipy.linalg.eig`.

    Returns:
        `EigResult(eigenvalues, eigenvectors)`, complex, shapes `(..., n)` and `(..., n, n)`, in no
        particular order; columns have unit length and a real largest entry. With `left`
        `EigLeftResult(eigenvalues, left_eigenvectors, eigenvectors)`.

    Raises:
        TypeError: if `a` is not an array of numbers.
        ValueError: if `a` is not square.

    Derivatives:
        Forward and reverse mode in any nesting, to every order, where eigenvalues are distinct,
        in the gauge named above (which jumps where two entries of a column are equally large).
        Where eigenvalues coincide, the result is that of a matrix moved by `sqrt(eps)` of its
        norm (first order; more for higher ones), and by `eps^(2/5)` where eigenvectors are
        nearly dependent. Smooth functions of the matrix, such as `V f(w) V^-1` or symmetric
        functions of the eigenvalues, are then right to about 1e-6 for a repeated eigenvalue and
        1e-4 for a Jordan block of two (float64), and less for larger ones; single eigenvalues of
        a defective matrix have no derivative and single vectors of a repeated eigenvalue neither.

    Cost:
        O(n^3), on the CPU; a tangent takes a solve and two products (twice with `left`).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg import linalg
        >>> a = jnp.array([[1.0, 1.0], [0.0, 2.0]])
        >>> print(jax.grad(lambda a: linalg.eig(a).eigenvalues[1].real)(a).round(6))
        [[0. 0.]
         [1. 1.]]

    References:
        Giles, "An extended collection of matrix derivative results" (2008), section 3.1.
        Boeddeker et al., "On the computation of complex-valued gradients with application to
        statistically optimum beamforming" (2017), section 4.2 (the normalisation).
    """
    matrix = checks.as_square("eig", a, sequences=False)
    if left:
        return EigLeftResult(*_eig_left(matrix))
    return EigResult(*_eig(matrix))


def eigvals(a: ArrayLike) -> Array:
    """Eigenvalues of general square matrices.

    Args:
        a: shape `(..., n, n)`, real or complex.

    Returns:
        The eigenvalues, shape `(..., n)`, complex, in no particular order.

    Raises:
        TypeError: if `a` is not an array of numbers.
        ValueError: if `a` is not square.

    Derivatives:
        As `eig`. Symmetric functions of the eigenvalues, such as their sum of squares, are right
        for repeated eigenvalues too.

    Cost:
        O(n^3), on the CPU; differentiated, that of `eig`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg import linalg
        >>> jordan = jnp.array([[1.0, 1.0], [0.0, 1.0]])
        >>> print(jax.grad(lambda a: jnp.sum(linalg.eigvals(a) ** 2).real)(jordan).round(3) + 0.0)
        [[2. 0.]
         [2. 2.]]

    References:
        Giles, "An extended collection of matrix derivative results" (2008), section 3.1.
    """
    return _eigvals(checks.as_square("eigvals", a, sequences=False))


@jax.jit
def _eig(a: Array) -> tuple[Array, Array]:
    w, v = _empty(a)[:2] if a.shape[-1] == 0 else eig_core(a, False, 0)
    return w, v


@jax.jit
def _eig_left(a: Array) -> tuple[Array, Array, Array]:
    return _empty(a) if a.shape[-1] == 0 else eig_core(a, True, 0)


@jax.jit
def _eigvals(a: Array) -> Array:
    return _empty(a)[0] if a.shape[-1] == 0 else eigvals_core(a)


def _empty(a: Array) -> tuple[Array, Array, Array]:
    dtype = jnp.result_type(a, jnp.complex64)
    return jnp.zeros(a.shape[:-1], dtype), jnp.zeros(a.shape, dtype), jnp.zeros(a.shape, dtype)


@operation(statics=2)
def eig_core(a: Array, left: bool, power: int) -> tuple[Array, ...]:
    """Eigenvalues, left vectors if asked for, and right vectors.

    Args:
        a: shape `(..., n, n)`.
        left: return left vectors.
        power: how the derivative at hand depends on the condition of an eigenvalue, see
            `tolerances.defective_limit`; a matrix that is nearly degenerate or defective is moved
            as it needs. 0 if nothing is differentiated.
    """
    factors = _decompose(a, left)
    if power == 0:
        return factors
    shift = _shift(factors[0], factors[-1], a, power)
    return repair_where(partial(_moved, left=left), shift > 0, factors, a, shift)


@eig_core.defjvp
def _eig_core_jvp(left, power, primals, tangents):
    (a,), (a_dot,) = primals, tangents
    factors = eig_core(a, left, max(power + 1, VECTORS))
    w, v = factors[0], factors[-1]
    w_dot, v_dot = jax.checkpoint(eig_tangents)(w, v, a_dot)
    if not left:
        return factors, (w_dot, v_dot)
    _, l_dot = jax.checkpoint(eig_tangents)(jnp.conj(w), factors[1], adjoint(a_dot))
    return factors, (w_dot, l_dot, v_dot)


@operation()
def eigvals_core(a: Array) -> Array:
    """Eigenvalues."""
    return jnp.linalg.eigvals(a)


@eigvals_core.defjvp
def _eigvals_core_jvp(primals, tangents):
    (a,), (a_dot,) = primals, tangents
    w, v = eig_core(a, False, VALUES)
    return w, jax.checkpoint(eigvals_tangents)(v, a_dot)


def _decompose(a: Array, left: bool) -> tuple[Array, ...]:
    return tuple(lax.linalg.eig(a, compute_left_eigenvectors=left))


def _moved(a: Array, shift: Array, left: bool) -> tuple[Array, ...]:
    n = a.shape[-1]
    direction = np.random.default_rng(0).standard_normal((n, n)) / n
    return _decompose(a + shift[..., None, None] * jnp.asarray(direction, a.dtype), left)


def _shift(w: Array, v: Array, a: Array, power: int) -> Array:
    """By how much each matrix has to be moved, shape `(...)`; 0 where the rule holds."""
    shift = jnp.zeros(a.shape[:-2], a.real.dtype)
    if power >= VECTORS:  # the derivative of an eigenvalue has no gaps in it
        level = power - VECTORS
        close = _degenerate(w, a, level)
        shift = jnp.where(close, tolerances.degenerate_shift(a.dtype, level), shift)
    far = tolerances.defective_shift(a.dtype, power)
    return _scale(a) * jnp.where(_defective(v, power), far, shift).astype(shift.dtype)


def _scale(a: Array) -> Array:
    norm = jnp.sqrt(jnp.sum(jnp.real(jnp.conj(a) * a), axis=(-1, -2)))
    return jnp.where(norm > 0, norm, 1.0)


def _defective(v: Array, power: int) -> Array:
    """Whether an eigenvalue is too sensitive: the largest row of `V^-1`, columns of length 1."""
    rows = jnp.linalg.inv(v)
    condition = jnp.sqrt(jnp.max(jnp.sum(jnp.real(jnp.conj(rows) * rows), axis=-1), axis=-1))
    return ~(condition <= tolerances.defective_limit(v.dtype, power))


def _degenerate(w: Array, a: Array, level: int) -> Array:
    gaps = jnp.abs(w[..., :, None] - w[..., None, :])
    gaps = jnp.where(jnp.eye(w.shape[-1], dtype=bool), jnp.inf, gaps)
    smallest = jnp.min(gaps, axis=(-1, -2))
    return smallest <= tolerances.cluster_rtol(w.dtype, level) * _scale(a)


def eig_tangents(w: Array, v: Array, a_dot: Array) -> tuple[Array, Array]:
    """`w_dot` and `v_dot` from the factors and the tangent of `A`."""
    n = w.shape[-1]
    k = jnp.linalg.solve(v, mm(a_dot.astype(v.dtype), v))
    gaps = w[..., None, :] - w[..., :, None] + jnp.eye(n, dtype=w.dtype)
    u = mm(v, jnp.where(jnp.eye(n, dtype=bool), 0.0, k / gaps))
    largest = jnp.argmax(jnp.abs(v), axis=-2, keepdims=True)
    turn = jnp.take_along_axis(u, largest, axis=-2).imag
    turn = turn / jnp.take_along_axis(v, largest, axis=-2).real
    stretch = jnp.sum(jnp.real(jnp.conj(v) * u), axis=-2, keepdims=True)
    w_dot = jnp.diagonal(k, axis1=-2, axis2=-1)
    return w_dot, u - v * lax.complex(stretch, turn)


def eigvals_tangents(v: Array, a_dot: Array) -> Array:
    """`w_dot` alone: the diagonal of `V^-1 A_dot V`."""
    left = jnp.linalg.inv(v)
    return jnp.sum(jnp.swapaxes(left, -1, -2) * mm(a_dot.astype(v.dtype), v), axis=-2)
