"""General eigendecomposition: identities, gauge, repeated and defective eigenvalues."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from difflinalg import linalg
from difflinalg.testing import check_derivatives

DTYPES = [jnp.float32, jnp.float64, jnp.complex64, jnp.complex128]


def random_array(seed, shape, dtype=np.float64):
    return np.asarray(jax.random.normal(jax.random.key(seed), shape, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_tangents_satisfy_the_differentiated_identities_and_the_normalisation(dtype):
    a, a_dot = random_array(1, (2, 4, 4), dtype), random_array(2, (2, 4, 4), dtype)
    (w, u, v), (w_dot, u_dot, v_dot) = jax.jvp(lambda x: linalg.eig(x, left=True), (a,), (a_dot,))
    tolerance = 1e-3 if jnp.finfo(dtype).bits == 32 else 1e-11
    assert w.dtype == v.dtype == jnp.result_type(dtype, jnp.complex64)
    h = lambda x: np.conj(np.swapaxes(x, -1, -2))  # noqa: E731
    np.testing.assert_allclose(a @ v, v * w[:, None], atol=tolerance)
    np.testing.assert_allclose(h(u) @ a, w[..., None] * h(u), atol=tolerance)
    right = a_dot @ v + a @ v_dot - v_dot * w[:, None] - v * w_dot[:, None]
    np.testing.assert_allclose(right, np.zeros_like(right), atol=tolerance)
    left = h(u_dot) @ a + h(u) @ a_dot - w_dot[..., None] * h(u) - w[..., None] * h(u_dot)
    np.testing.assert_allclose(left, np.zeros_like(left), atol=tolerance)
    np.testing.assert_allclose(np.sum(v.conj() * v_dot, axis=-2).real, 0.0, atol=tolerance)
    largest = np.argmax(np.abs(v), axis=-2, keepdims=True)
    turn = np.take_along_axis(np.asarray(v_dot), largest, axis=-2).imag
    np.testing.assert_allclose(turn, 0.0, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_derivatives_are_those_of_differences_in_the_gauge_of_lapack(dtype):
    check_derivatives(linalg.eig, (random_array(3, (3, 3), dtype),), order=2)


def matrix_function(a):
    w, v = linalg.eig(a)
    return jnp.real((v * jnp.exp(w)) @ jnp.linalg.inv(v))


MATRICES = {
    "identity": np.eye(3),
    "repeated": np.diag([1.0, 1.0, 2.0]),
    "zero": np.zeros((3, 3)),
    "jordan block": np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 2.0]]),
    "nearly defective": np.array([[1.0, 1.0, 0.0], [1e-12, 1.0, 0.0], [0.0, 0.0, 2.0]]),
}


def test_matrix_function_is_right_at_repeated_and_defective_eigenvalues():
    weight = random_array(4, (3, 3))
    stack = np.stack(list(MATRICES.values()))
    gradient = jax.jit(jax.vmap(jax.grad(lambda x: jnp.sum(weight * matrix_function(x)))))(stack)
    for name, a, got in zip(MATRICES, stack, gradient, strict=True):
        expected = scipy.linalg.expm_frechet(a.T, weight, compute_expm=False)
        error = np.max(np.abs(got - expected)) / np.max(np.abs(expected))
        assert error < (1e-3 if "defective" in name or "jordan" in name else 1e-6), (name, error)


def test_power_sums_of_eigenvalues_are_right_to_second_order_or_not_finite():
    d = random_array(5, (3, 3))
    stack = np.stack(list(MATRICES.values()))

    @jax.jit
    @jax.vmap
    def derivatives(a):
        cubes = lambda x: jnp.sum(linalg.eigvals(x) ** 3).real  # noqa: E731
        return jax.grad(cubes)(a), jax.jvp(jax.grad(cubes), (a,), (d,))[1]

    first, second = derivatives(stack)
    for name, a, got, curvature in zip(MATRICES, stack, first, second, strict=True):
        np.testing.assert_allclose(got, 3 * (a @ a).T, atol=2e-6, err_msg=name)
        expected = 3 * (a @ d + d @ a).T
        np.testing.assert_allclose(curvature, expected, atol=2e-2, err_msg=name)


def test_repeated_eigenvalues_do_not_move_the_value_of_an_undifferentiated_call():
    np.testing.assert_array_equal(linalg.eigvals(jnp.eye(3)), np.ones(3))
    np.testing.assert_array_equal(linalg.eig(jnp.eye(3)).eigenvalues, np.ones(3))


def test_trace_of_the_square_is_exact_at_well_conditioned_repeated_eigenvalues():
    gradient = jax.grad(lambda x: jnp.sum(linalg.eigvals(x) ** 2).real)(random_array(6, (4, 4)))
    np.testing.assert_allclose(gradient, 2 * random_array(6, (4, 4)).T, atol=1e-12)


@pytest.mark.parametrize("f", [linalg.eig, linalg.eigvals])
def test_empty_small_and_wrong_input(f):
    assert jax.tree.leaves(f(jnp.zeros((2, 0, 0))))[0].shape == (2, 0)
    gradient = jax.grad(lambda x: jax.tree.leaves(f(x))[0][0].real)(jnp.array([[3.0]]))
    np.testing.assert_array_equal(gradient, [[1.0]])
    with pytest.raises(ValueError, match="square"):
        f(jnp.zeros((2, 3)))
