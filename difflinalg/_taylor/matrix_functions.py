"""Series of functions of matrices.

General. The block upper triangular Toeplitz matrix of a series is a faithful image of it: a matrix
function of that is the image of the series of the function, at every spectrum, also a defective
one. It costs `(K + 1)^3` times the function.

The exponential. Scaling and squaring with Pade approximants, all in arithmetic of series: K^2 / 2
times its products. The Frechet derivative is that of the same algorithm. For the derivatives of a
result the exponential of a series is an operation of its own, with its Frechet derivative: both are
closed under differentiation as in `_dense.matrix_function`, and the transpose of the derivative
with respect to its direction is the derivative at `A(t)^T`, with the order of the coefficients
reversed before and after.

The polar decomposition `A = W P`. With `R = A[k] - sum over 1 <= j < k of W[j] P[k - j]`, S as in
`hermitian`, and `T = W[0]^H R`,

    P[0] K + K P[0] = T - T^H - (S P[0] - P[0] S),    K = -K^H
    P[k] = T - (K + S) P[0]
    W[k] = W[0] (K + S) + (R - W[0] T) P[0]^-1
"""

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core.algebra import adjoint, herm, inv0, mm, skew
from difflinalg._core.linear_operation import LinearOperation
from difflinalg._core.operation import operation
from difflinalg._core.refuse import refuse_where
from difflinalg._core.tolerances import rank_rtol
from difflinalg._dense import expm, sqrtm
from difflinalg._dense.matrix_function import MatrixFunction, frechet_derivative, matrix_function
from difflinalg._dense.sylvester import SchurFactors, sylvester
from difflinalg._taylor.convolution import (
    each_order,
    inner_sum,
    overlap,
    past,
    product,
    set_order,
    start,
)
from difflinalg._taylor.linear import solve_orders


def toeplitz(a: Array) -> Array:
    """The block upper triangular Toeplitz matrix of a series of matrices `(K + 1, n, n)`."""
    columns = [jnp.moveaxis(past(a, k), 0, -3) for k in range(a.shape[0])]
    return jnp.concatenate([c.reshape(-1, c.shape[-1]) for c in columns], axis=-1)


def of_toeplitz(x: Array, order: int) -> Array:
    """The series of which `x` is the block Toeplitz matrix, from its first row."""
    n = x.shape[-1] // (order + 1)
    return jnp.moveaxis(x[:n].reshape(n, order + 1, n), 1, 0)


def _of_blocks(f: MatrixFunction, order: int) -> MatrixFunction:
    """`f` for matrices whose eigenvalues are `order + 1` times as many."""
    for _ in range(order.bit_length()):
        f = f.of_blocks()
    return f


def matrix_function_series(a: Array, f: MatrixFunction) -> Array:
    """The series of `f(A(t))`, shape `(K + 1, n, n)`."""
    if isinstance(f, expm.Exponential):
        return series_exponential(a, f)
    order = a.shape[0] - 1
    return of_toeplitz(matrix_function(toeplitz(a), _of_blocks(f, order)), order)


def frechet_series(a: Array, e: Array, f: MatrixFunction) -> Array:
    """The series of the Frechet derivative `L(A(t), E(t))`."""
    if isinstance(f, expm.Exponential):
        return series_frechet(a, e, f)
    order = a.shape[0] - 1
    blocks = _of_blocks(f, order)
    return of_toeplitz(frechet_derivative(toeplitz(a), toeplitz(e), blocks), order)


def _series_exponential(a: Array, f: expm.Exponential) -> Array:
    """The series of `exp(A(t))`, shape `(K + 1, n, n)`."""
    if a.shape[-1] == 0:
        return a
    scale, norm = expm.balancing(lax.stop_gradient(a[0]))
    ratio = (scale[None, :] / scale[:, None]).astype(a.dtype)
    balanced = a * ratio
    # One more than the value needs: derivatives of the approximant are less accurate.
    squarings = expm.count_squarings(norm) + 1
    power = _pade(expm.scaled(balanced, -squarings))
    power = lax.fori_loop(0, squarings, lambda _, x: product(x, x), power) / ratio
    if f.max_squarings is not None:
        power = jnp.where(squarings - 1 > f.max_squarings, jnp.nan, 1.0) * power
    return power.astype(a.dtype)


series_exponential = operation(statics=1)(_series_exponential)


@series_exponential.defjvp
def _series_exponential_jvp(f, primals, tangents):
    (a,), (a_dot,) = primals, tangents
    return series_exponential(a, f), series_frechet(a, a_dot, f)


def _series_frechet(a: Array, e: Array, f: expm.Exponential) -> Array:
    """The series of the Frechet derivative of the exponential."""
    general = expm.Exponential(False, f.max_squarings)
    return jax.jvp(lambda x: _series_exponential(x, general), (a,), (e,))[1]


series_frechet = LinearOperation(_series_frechet, statics=1)


@series_frechet.defjvp
def _series_frechet_jvp(f, primals, tangents):
    (a, e), (a_dot, e_dot) = primals, tangents
    n, zero = a.shape[-1], jnp.zeros_like(a)
    block = jnp.block([[a, e], [zero, a]])
    direction = jnp.block([[a_dot, zero], [zero, a_dot]])
    second = series_frechet(block, direction, f)[:, :n, n:]
    return series_frechet(a, e, f), second + series_frechet(a, e_dot, f)


@series_frechet.deftranspose
def _series_frechet_transpose(f, a, cotangent):
    return series_frechet(jnp.swapaxes(a, -1, -2), cotangent[::-1], f)[::-1]


def _pade(a: Array) -> Array:
    """The [13/13] approximant of the exponential of a series."""
    b = expm.PADE_13
    identity = start(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape[0] - 1)
    a2 = product(a, a)
    a4 = product(a2, a2)
    a6 = product(a4, a2)
    u = product(a6, b[13] * a6 + b[11] * a4 + b[9] * a2)
    u = product(a, u + b[7] * a6 + b[5] * a4 + b[3] * a2 + b[1] * identity)
    v = product(a6, b[12] * a6 + b[10] * a4 + b[8] * a2)
    v = v + b[6] * a6 + b[4] * a4 + b[2] * a2 + b[0] * identity
    return solve_series(v - u, v + u)


def solve_series(a: Array, b: Array) -> Array:
    """The series of `A(t)^-1 B(t)`, with one factorisation."""
    factors = jax.scipy.linalg.lu_factor(a[0])

    def solve(b: list[Array]) -> list[Array]:
        return [jax.scipy.linalg.lu_solve(factors, b[0])]

    return solve_orders(solve, lambda x: [mm(a, x[0])], [b])[0]


def sqrtm_series(a: Array) -> tuple[Array, Array, Array]:
    """The series of the square root; its Schur factors are constants.

    `X[0] X[k] + X[k] X[0] = A[k] - sum over 1 <= j < k of X[j] X[k - j]`.
    """
    order = a.shape[0] - 1
    x_0, u, z = sqrtm.sqrtm_core(a[0])
    schur = SchurFactors(u, z)

    def one_order(x: Array, k: Array | int) -> Array:
        rest = a[k] - inner_sum(mm, x, x, k)
        return set_order(x, k, sylvester(x_0, x_0, rest, schur, schur))

    return each_order(one_order, start(x_0, order), order), u, z


def polar_series(a: Array, w_0: Array, p_0: Array) -> tuple[Array, Array]:
    """Series of the polar factors of a tall or square series, from the factors at t = 0.

    Args:
        a: shape `(K + 1, ..., m, n)`, m >= n.
        w_0: shape `(..., m, n)`, orthonormal columns.
        p_0: shape `(..., n, n)`, Hermitian; where it is singular `W` is NaN beyond order 0, and
            `P` beyond order 1.
    """
    order = a.shape[0] - 1
    values, vectors = jnp.linalg.eigh(p_0)
    largest = jnp.max(jnp.abs(values), axis=-1, keepdims=True, initial=0.0)
    tolerance = rank_rtol(p_0.dtype, p_0.shape[-1]) * largest
    singular = jnp.any(values <= tolerance, axis=-1)[..., None, None]
    sums = inv0(values[..., :, None] + values[..., None, :], tolerance[..., None])
    inverse = inv0(values, tolerance)[..., None, :]

    def one_order(state, k):
        w, p = state
        r = a[k] - inner_sum(mm, w, p, k)
        t = mm(adjoint(w_0), r)
        s = overlap(adjoint(w), k)
        rhs = t - adjoint(t) - (mm(s, p_0) - mm(p_0, s))
        k_k = skew(mm(vectors, mm(adjoint(vectors), rhs, vectors) * sums, adjoint(vectors)))
        p_k = herm(t - mm(k_k + s, p_0))
        w_k = mm(w_0, k_k + s)
        if w_0.shape[-2] > w_0.shape[-1]:
            w_k += mm(mm(r - mm(w_0, t), vectors) * inverse, adjoint(vectors))
        return set_order(w, k, refuse_where(w_k, singular)), set_order(p, k, p_k)

    return each_order(one_order, (start(w_0, order), start(p_0, order)), order)
