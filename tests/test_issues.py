"""Inputs from public bug reports on derivatives of linear algebra, each with its right value.

The reports are cited as `owner/repository#number`. Next to the reported input stand neighbours:
another dtype, a batch, the other mode, the second order.
"""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.linalg

from difflinalg import linalg
from difflinalg.scipy import linalg as scipy_linalg

DTYPES = [jnp.float32, jnp.float64, jnp.complex64, jnp.complex128]


def weights(seed, shape, dtype=jnp.float64):
    return np.asarray(jax.random.normal(jax.random.key(seed), shape, dtype))


def herm(x):
    return (x + np.conj(np.swapaxes(x, -1, -2))) / 2


def rtol(dtype):
    return 5e-3 if jnp.finfo(dtype).bits == 32 else 1e-6


def close(got, expected, tolerance, scale=None):
    got, expected = np.asarray(got), np.asarray(expected)
    scale = np.max(np.abs(expected)) if scale is None else scale
    assert got.shape == expected.shape
    assert np.all(np.isfinite(got)), got
    assert np.max(np.abs(got - expected)) <= tolerance * scale, (got, expected)


def differences(f, x, h=1e-3):
    """The gradient of a real function of a real array, by differences of fourth order."""
    gradient = np.zeros_like(x)
    for index in np.ndindex(*x.shape):
        step = np.zeros_like(x)
        step[index] = h
        near, far = f(x + step) - f(x - step), f(x + 2 * step) - f(x - 2 * step)
        gradient[index] = (8 * near - far) / (12 * h)
    return gradient


# Singular value decomposition.


@pytest.mark.parametrize("dtype", DTYPES)
def test_norm_of_a_matrix_rebuilt_from_its_svd_is_smooth_at_equal_values(dtype):
    """jax-ml/jax#8732: NaN at diag(1, 1, 2, 3)."""
    a, d = jnp.diag(jnp.array([1.0, 1.0, 2.0, 3.0])).astype(dtype), weights(1, (4, 4), dtype)

    def norm(x):
        u, s, vh = linalg.svd(x, full_matrices=False)
        return jnp.sqrt(jnp.sum(jnp.abs((u * s) @ vh) ** 2))

    gradient = np.asarray(a) / np.sqrt(15.0)
    close(jax.grad(norm)(a), gradient, rtol(dtype))
    slope = np.sum(gradient * d).real
    close(jax.jvp(norm, (a,), (jnp.asarray(d),))[1], slope, rtol(dtype), scale=1.0)
    batch = jnp.stack([a, 2 * a, a.T])
    close(jax.vmap(jax.grad(norm))(batch), np.stack([gradient] * 3), rtol(dtype))


def test_second_derivative_of_a_rebuilt_norm_is_right_at_equal_values():
    """jax-ml/jax#8732, one order further."""
    a, d = np.diag([1.0, 1.0, 2.0, 3.0]), weights(1, (4, 4))

    def norm(x):
        u, s, vh = linalg.svd(x, full_matrices=False)
        return jnp.sqrt(jnp.sum(((u * s) @ vh) ** 2))

    hessian_d = (d - a * np.sum(a * d) / 15.0) / np.sqrt(15.0)
    close(jax.jvp(jax.grad(norm), (a,), (d,))[1], hessian_d, 1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sum_of_a_matrix_rebuilt_from_many_zero_values_has_gradient_one(dtype):
    """pytorch/pytorch#49886, pytorch/pytorch#72061: a 6 x 6 matrix of rank 2."""
    a = np.zeros((6, 6))
    a[0, :3], a[1, 3:] = 1.0, 2.0
    a, weight = jnp.asarray(a, dtype), weights(2, (6, 6), dtype)

    def total(x, w):
        u, s, vh = linalg.svd(x, full_matrices=False)
        return jnp.real(jnp.sum(w * ((u * s) @ vh)))

    close(jax.grad(total)(a, jnp.ones_like(a)), np.ones((6, 6)), rtol(dtype))
    close(jax.grad(total)(a, weight), weight, rtol(dtype))


@pytest.mark.parametrize("transpose", [False, True])
def test_null_space_projector_from_the_full_factor_has_the_gradient_of_its_closed_form(transpose):
    """jax-ml/jax#508, jax-ml/jax#2011, jax-ml/jax#17518: `full_matrices=True`."""
    a = np.array([[1.0, 2.0], [0.0, 1.0], [1.0, 0.0]])
    weight = weights(3, (3, 3))

    def overlap(x):
        null = linalg.svd(x).Vh[2:].T if transpose else linalg.svd(x).U[:, 2:]
        return jnp.sum(weight * (null @ null.T))

    # d(1 - A A^+) = -(1 - A A^+) dA A^+ - its transpose
    pseudo_inverse = np.linalg.pinv(a)
    rest = np.eye(3) - a @ pseudo_inverse
    gradient = -rest @ (weight + weight.T) @ pseudo_inverse.T
    x = a.T if transpose else a
    close(jax.grad(overlap)(x), gradient.T if transpose else gradient, 1e-12)


def sum_of_values_hessian(a):
    """Of the nuclear norm: `d(U V^T) = U C V^T`, `C = 2 skew(U^T dA V) / (s_i + s_j)`."""
    u, s, vh = np.linalg.svd(a)
    t = np.einsum("ki,lj->klij", u, vh.T)
    skew = (t - np.swapaxes(t, -1, -2)) / 2
    return np.einsum("klij,pqij,ij->klpq", skew, skew, 2 / np.add.outer(s, s))


def second_difference_of_the_sum_of_values(a, d, h):
    with mpmath.workdps(60):

        def f(t):
            x = mpmath.matrix(a.tolist()) + mpmath.mpf(t) * mpmath.matrix(d.tolist())
            return sum(mpmath.svd_r(x, compute_uv=False))

        return float((f(h) - 2 * f(0) + f(-h)) / mpmath.mpf(h) ** 2)


@pytest.mark.parametrize("scale", [1e-20, 1e-10, 1.0, 1e19])
def test_single_precision_hessian_of_the_sum_of_singular_values_survives_bad_scales(scale):
    """jax-ml/jax#40185, pytorch/pytorch#194705: squares of singular values over- or underflow."""
    a, d = np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]]), weights(1, (3, 3))
    expected = sum_of_values_hessian(a)
    confirmed = second_difference_of_the_sum_of_values(a, d, 1e-15)
    close(np.einsum("klpq,kl,pq->", expected, d, d), confirmed, 1e-8)
    single = np.float32(scale)
    hessian = jax.hessian(lambda x: jnp.sum(linalg.svd(x, compute_uv=False)))
    got = np.asarray(hessian(jnp.asarray(a, jnp.float32) * single), np.float64)
    close(got * float(single), expected, 1e-4)


def test_complex_matrix_of_rank_one_can_be_rebuilt_along_a_line():
    """jax-ml/jax#5225: the entry (0, 0) of A + x B moves with slope one, in its real part."""
    a, b = jnp.array([[1j, 0.5j], [0.0, 0.0]]), jnp.array([[1.0, 0.0], [0.0, 0.0]])

    def entry(x):
        u, s, vh = linalg.svd(a + x * b, full_matrices=False)
        return ((u * s) @ vh)[0, 0].real

    close(jax.grad(entry)(1.0), 1.0, 1e-12)
    close(jax.jvp(entry, (0.0,), (1.0,))[1], 1.0, 1e-7)


@pytest.mark.parametrize("shape", [(3, 2), (2, 3), (3, 3)])
def test_leading_term_of_a_matrix_of_rank_one_moves_in_the_tangent_space(shape):
    """pytorch/pytorch#72061, jax-ml/jax#2311: the rule divides by the zero singular value."""
    a, weight = np.zeros(shape), weights(4, shape)
    a[0, 0] = 2.0

    def leading(x):
        u, s, vh = linalg.svd(x, full_matrices=False)
        return jnp.sum(weight * s[0] * jnp.outer(u[:, 0], vh[0]))

    gradient = np.zeros(shape)
    gradient[0], gradient[:, 0] = weight[0], weight[:, 0]
    close(jax.grad(leading)(a), gradient, 1e-6)


# Hermitian eigendecomposition.


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrix_exponential_from_eigh_is_smooth_at_repeated_eigenvalues(dtype):
    """jax-ml/jax#669, tatopenn-cell/Dense-Evolution#286: at diag(1, 1, 2)."""
    a, weight = np.diag([1.0, 1.0, 2.0]).astype(dtype), weights(5, (3, 3), dtype)

    def loss(x):
        w, v = linalg.eigh(x)
        return jnp.real(jnp.sum(jnp.conj(weight) * ((v * jnp.exp(w)) @ jnp.conj(v.T))))

    double = np.complex128 if np.iscomplexobj(weight) else np.float64
    left = np.conj(weight.T).astype(double)
    expected = herm(scipy.linalg.expm_frechet(a.astype(double), left)[1]).T
    close(jax.grad(loss)(a), expected, rtol(dtype))
    slope = jax.jvp(loss, (jnp.asarray(a),), (jnp.asarray(weight),))[1]
    close(slope, np.sum(expected * weight).real, rtol(dtype), scale=np.linalg.norm(expected))


@pytest.mark.parametrize("dtype", DTYPES)
def test_vector_of_a_simple_eigenvalue_is_smooth_beside_a_repeated_one(dtype):
    """jax-ml/jax#4646: v[0] v[1] of the eigenvalue 4 of diag(4, 1, 1)."""

    def product(x):
        v = linalg.eigh(x).eigenvectors[:, 2]
        return jnp.real(v[0] * jnp.conj(v[1]))

    expected = np.zeros((3, 3))
    expected[0, 1] = expected[1, 0] = 0.5 / (4.0 - 1.0)
    a = jnp.diag(jnp.array([4.0, 1.0, 1.0])).astype(dtype)
    close(jax.grad(product)(a), expected, rtol(dtype))


@pytest.mark.parametrize("n", [3, 5])
def test_top_projector_of_a_gram_matrix_is_a_smooth_function_of_the_vector(n):
    """jax-ml/jax#10527, jax-ml/jax#10844: x x^T has n - 1 zero eigenvalues."""
    x, weight = np.arange(1.0, n + 1), weights(6, (n, n))

    def loss(y):
        v = linalg.eigh(jnp.outer(y, y)).eigenvectors[:, -1]
        return v @ weight @ v

    square = x @ x
    gradient = (weight + weight.T) @ x / square - 2 * (x @ weight @ x) * x / square**2
    close(jax.grad(loss)(x), gradient, 1e-6)


@pytest.mark.parametrize("uplo", ["L", "U"])
def test_gradient_is_zero_in_the_triangle_that_is_not_read(uplo):
    """jax-ml/jax#12795: `symmetrize_input=False` reads one triangle only."""
    lower = np.array([[1.0, 0.0, 0.0], [0.5, 2.0, 0.0], [-0.3, 0.7, 4.0]])
    a = lower if uplo == "L" else lower.T
    v = np.linalg.eigh(a, UPLO=uplo)[1][:, 0]
    triangle = np.tril(2 * np.outer(v, v)) - np.diag(v**2)

    def lowest(x):
        return linalg.eigh(x, UPLO=uplo, symmetrize_input=False).eigenvalues[0]

    close(jax.grad(lowest)(a), triangle if uplo == "L" else triangle.T, 1e-12)


# The names of `scipy.linalg`.


def test_generalized_eigenvalues_have_the_gradient_of_their_power_sum():
    """jax-ml/jax#5461, XanaduAI/GradDFT#25, jax-ml/jax#31267: `eigh(a, b)`."""
    a, square = herm(weights(7, (3, 3))), weights(8, (3, 3))
    b = square @ square.T + 3 * np.eye(3)

    def power_sum(x, y):
        return jnp.sum(scipy_linalg.eigh(x, y, eigvals_only=True) ** 2)

    # tr (B^-1 A)^2
    inverse = np.linalg.inv(b)
    close(jax.grad(power_sum)(a, b), 2 * inverse @ a @ inverse, 1e-10)
    by_b = -2 * inverse @ a @ inverse @ a @ inverse
    close(jax.grad(power_sum, argnums=1)(a, b), by_b, 1e-10)


def test_eigenvalues_of_a_tridiagonal_matrix_have_reverse_mode():
    """jax-ml/jax#14019: the rule was missing."""
    d, e, weight = (np.array(x) for x in ([1.0, 2.0, 4.0], [0.5, 0.25], [1.0, 2.0, 3.0]))

    def loss(x, y):
        return jnp.sum(weight * scipy_linalg.eigh_tridiagonal(x, y, eigvals_only=True))

    v = scipy.linalg.eigh_tridiagonal(d, e)[1]
    close(jax.grad(loss)(d, e), v**2 @ weight, 1e-10)
    close(jax.grad(loss, argnums=1)(d, e), 2 * (v[1:] * v[:-1]) @ weight, 1e-10)


def test_eigenvectors_of_a_tridiagonal_matrix_are_returned():
    """jax-ml/jax#14019: `eigvals_only=False` was not implemented."""
    d, e = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.25])
    w, v = scipy_linalg.eigh_tridiagonal(jnp.asarray(d), jnp.asarray(e), eigvals_only=False)
    expected_w, expected_v = scipy.linalg.eigh_tridiagonal(d, e)
    close(w, expected_w, 1e-12)
    close(np.abs(v), np.abs(expected_v), 1e-12)

    def entry(x):
        return scipy_linalg.eigh_tridiagonal(x, e, eigvals_only=False)[1][0, 0] ** 2

    def reference(x):
        return scipy.linalg.eigh_tridiagonal(x, e)[1][0, 0] ** 2

    close(jax.grad(entry)(d), differences(reference, d), 1e-8)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_polar_factor_has_the_gradient_of_its_sylvester_equation(dtype, side):
    """pytorch/pytorch#189732: the default method has no reverse mode."""
    a, weight = weights(9, (3, 3), dtype), weights(10, (3, 3), dtype)

    def loss(x):
        return jnp.real(jnp.sum(jnp.conj(weight) * scipy_linalg.polar(x, side=side)[0]))

    # dU = U C with C P + P C = U^H dA - dA^H U; the map from U^H dA to C is its own adjoint.
    double = np.complex128 if np.iscomplexobj(weight) else np.float64
    u, p = scipy.linalg.polar(a.astype(double))
    overlap = np.conj(u.T) @ weight
    c = scipy.linalg.solve_sylvester(p, p, overlap - np.conj(overlap.T))
    close(jax.grad(loss)(a), np.conj(u @ c), 2e-4 if rtol(dtype) > 1e-4 else 1e-10)
