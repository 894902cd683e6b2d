"""pinv and lstsq: truncated, rank deficient and repeated values, against two oracles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg import linalg
from difflinalg.testing import check_derivatives

DTYPES = [jnp.float32, jnp.float64, jnp.complex64, jnp.complex128]
SHAPES = {"tall": (4, 3), "square": (3, 3), "wide": (3, 4)}


def random_array(seed, shape, dtype=np.float64):
    return np.asarray(jax.random.normal(jax.random.key(seed), shape, dtype))


def with_values(values, shape, dtype=np.float64):
    u, _, vh = np.linalg.svd(random_array(0, shape, dtype), full_matrices=False)
    return ((u * np.asarray(values)) @ vh).astype(dtype)


def golub_pereyra(a, a_dot):
    p, h = np.linalg.pinv(a), lambda x: np.conj(x.T)
    m, n = a.shape
    first = p @ h(p) @ h(a_dot) @ (np.eye(m) - a @ p)
    return -p @ a_dot @ p + first + (np.eye(n) - p @ a) @ h(a_dot) @ h(p) @ p


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_value_and_tangent_at_full_rank_are_those_of_golub_and_pereyra(shape, dtype):
    values = [2.0, 2.0, 1.0]
    a, a_dot = with_values(values, SHAPES[shape], dtype), random_array(1, SHAPES[shape], dtype)
    p, p_dot = jax.jit(lambda x, t: jax.jvp(linalg.pinv, (x,), (t,)))(a, a_dot)
    rtol = 1e-5 if jnp.finfo(dtype).bits == 32 else 1e-13
    assert p.dtype == p_dot.dtype == dtype
    np.testing.assert_allclose(p, np.linalg.pinv(a), atol=rtol)
    np.testing.assert_allclose(p_dot, golub_pereyra(a, a_dot), atol=10 * rtol)


@pytest.mark.parametrize(
    ("shape", "rtol", "dtype"),
    [("tall", None, float), ("square", 0.7, float), ("wide", 0.7, complex)],
)
def test_derivatives_are_those_of_differences_with_and_without_truncation(shape, rtol, dtype):
    a = with_values([2.0, 2.0, 1.0], SHAPES[shape], dtype)
    check_derivatives(lambda x: linalg.pinv(x, rtol), (a,), order=2)


def test_rank_deficient_matrix_follows_perturbations_that_keep_the_rank():
    x, y = random_array(2, (4, 2)), random_array(3, (2, 3))

    def f(x, y):
        return linalg.pinv(x @ y)

    expected = np.linalg.pinv(y) @ np.linalg.pinv(x)
    np.testing.assert_allclose(f(x, y), expected, atol=1e-13)
    check_derivatives(f, (x, y), order=2)


def test_hermitian_input_is_symmetrised_in_value_and_gradient():
    a = random_array(4, (3, 3))
    half = (a + a.T) / 2
    value, gradient = jax.value_and_grad(lambda x: linalg.pinv(x, hermitian=True)[0, 1])(a)
    np.testing.assert_allclose(value, np.linalg.inv(half)[0, 1], rtol=1e-12)
    full = jax.grad(lambda x: jnp.linalg.inv(x)[0, 1])(half)
    np.testing.assert_allclose(gradient, (full + full.T) / 2, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_badly_scaled_single_precision_keeps_its_derivative(scale):
    a = with_values([2.0, 2.0, 1.0], (4, 3), np.float32)
    a_dot = random_array(5, (4, 3), np.float32)
    got = jax.jvp(linalg.pinv, (a * np.float32(scale),), (a_dot * np.float32(scale),))[1]
    np.testing.assert_allclose(got * np.float32(scale), golub_pereyra(a, a_dot), atol=1e-4)


def test_gradient_is_finite_at_a_cut_between_equal_values_and_zero_at_the_zero_matrix():
    a = jnp.diag(jnp.array([2.0, 1.0, 1.0]))
    cut = jax.grad(lambda x: jnp.sum(linalg.pinv(x, jnp.array(0.5 - 1e-16))))(a)
    kept = jax.grad(lambda x: jnp.sum(linalg.pinv(x, 0.5)))(a)
    assert np.all(np.isfinite(cut))
    assert np.all(np.isfinite(kept))
    np.testing.assert_array_equal(jax.grad(lambda x: linalg.pinv(x)[0, 0])(jnp.zeros((2, 3))), 0.0)


@pytest.mark.parametrize("shape", SHAPES)
def test_least_squares_value_and_derivatives_with_respect_to_both_arguments(shape):
    dtype = np.complex128 if shape == "square" else np.float64
    a = with_values([2.0, 2.0, 1.0], SHAPES[shape], dtype)
    b = random_array(6, (a.shape[0], 2), dtype)
    x, resid, rank, s = linalg.lstsq(a, b)
    expected = np.linalg.lstsq(a, b, rcond=None)
    np.testing.assert_allclose(x, expected[0], atol=1e-13)
    np.testing.assert_allclose(s, expected[3], rtol=1e-13)
    np.testing.assert_allclose(resid, np.sum(np.abs(b - a @ x) ** 2, axis=0), atol=1e-13)
    assert rank == 3
    check_derivatives(lambda a, b: linalg.lstsq(a, b)[:2], (a, b), order=1 + (shape != "square"))


def test_least_squares_of_low_rank_is_of_least_norm_with_and_without_a_cutoff():
    u, v, b = random_array(7, (4, 1)), random_array(8, (1, 3)), random_array(9, (4,))
    a = u @ v + 1e-3 * random_array(10, (4, 3))
    for rcond, matrix in ((None, u @ v), (0.1, a)):
        x, _, rank, _ = linalg.lstsq(matrix, b, rcond)
        expected = np.linalg.pinv(matrix, 1e-10 if rcond is None else rcond) @ b
        np.testing.assert_allclose(x, expected, rtol=1e-11)
        assert rank == 1
    check_derivatives(lambda u, v, b: linalg.lstsq(u @ v, b)[0], (u, v, b), order=2)
    check_derivatives(lambda a, b: linalg.lstsq(a, b, 0.1)[0], (a, b), order=1)


def test_singular_values_of_least_squares_are_differentiable():
    a, b = random_array(11, (4, 3)), random_array(12, (4,))
    gradient = jax.grad(lambda x: linalg.lstsq(x, b)[3][0])(a)
    u, _, vh = np.linalg.svd(a)
    np.testing.assert_allclose(gradient, np.outer(u[:, 0], vh[0]), atol=1e-12)


def test_stacks_vmap_and_array_valued_cutoffs():
    a = np.stack([with_values([2.0, 1.0, 0.1], (3, 4)), with_values([1.0, 0.5, 0.0], (3, 4))])
    rtol = np.array([0.3, 1e-10])
    expected = np.linalg.pinv(a, rcond=rtol)
    np.testing.assert_allclose(linalg.pinv(a, rtol), expected, atol=1e-13)
    np.testing.assert_allclose(jax.vmap(linalg.pinv)(a, rtol), expected, atol=1e-13)
    gradient = jax.grad(lambda x: jnp.sum(linalg.pinv(x, rtol)))(a)
    mapped = jax.vmap(jax.grad(lambda x, r: jnp.sum(linalg.pinv(x, r))))(a, rtol)
    np.testing.assert_allclose(gradient, mapped, atol=1e-12)


def test_numpy_residuals_empty_input_and_wrong_arguments():
    a, b = random_array(13, (4, 3)), random_array(14, (4,))
    assert linalg.lstsq(a, b, numpy_resid=True)[1].shape == (1,)
    assert linalg.lstsq(a.T, b[:3], numpy_resid=True)[1].shape == (0,)
    assert linalg.pinv(jnp.zeros((2, 0, 3))).shape == (2, 3, 0)
    x, resid, rank, s = linalg.lstsq(jnp.zeros((3, 0)), jnp.ones(3))
    assert (x.shape, float(resid[0]), int(rank), s.shape) == ((0,), 3.0, 0, (0,))
    with pytest.raises(ValueError, match="rows"):
        linalg.lstsq(a, b[:3])
    with pytest.raises(TypeError, match=r"jax\.vmap"):
        linalg.lstsq(a[None], b[None])
    with pytest.raises(ValueError, match="rtol or rcond"):
        linalg.pinv(a, 1e-3, rcond=1e-3)
