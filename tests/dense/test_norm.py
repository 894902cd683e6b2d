"""Norms: values of NumPy, derivatives against differences, subgradients where there is a kink."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg import linalg
from difflinalg._dense import leading_pair
from difflinalg.testing import check_derivatives

DTYPES = [jnp.float32, jnp.float64, jnp.complex64, jnp.complex128]
VECTOR = [None, 2, 1, np.inf, -np.inf, 0, 3, 1.5, 0.5, -1]
MATRIX = [None, "fro", "nuc", 2, -2, 1, -1, np.inf, -np.inf]


def random_array(seed, shape, dtype=np.float64):
    return np.asarray(jax.random.normal(jax.random.key(seed), shape, dtype))


def rtol(dtype):
    return 1e-5 if jnp.finfo(dtype).bits == 32 else 1e-13


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("keepdims", [False, True])
def test_values_and_dtypes_are_those_of_numpy_on_any_axes(dtype, keepdims):
    x = random_array(0, (3, 4, 2), dtype)
    cases = [(ord, 1) for ord in VECTOR] + [(ord, (2, 0)) for ord in MATRIX] + [(None, None)]
    for ord, axis in cases:
        got = linalg.norm(x, ord, axis, keepdims)
        expected = np.linalg.norm(x, ord, axis, keepdims)
        assert got.dtype == x.real.dtype
        np.testing.assert_allclose(got, expected, rtol=rtol(dtype))
    for ord in (2, 1, 3):
        got = linalg.vector_norm(x, axis=(0, 2), ord=ord, keepdims=keepdims)
        expected = np.linalg.vector_norm(x, axis=(0, 2), ord=ord, keepdims=keepdims)
        np.testing.assert_allclose(got, expected, rtol=rtol(dtype))
    got = linalg.matrix_norm(x, ord="nuc", keepdims=keepdims)
    np.testing.assert_allclose(got, np.linalg.norm(x, "nuc", (1, 2), keepdims), rtol=rtol(dtype))


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_all_smooth_norms_have_the_derivatives_of_their_differences(dtype):
    x = random_array(1, (3, 4), dtype)

    def norms(x):
        vectors = [linalg.norm(x, ord, axis=1) for ord in (2, 3, 1.5, -1)]
        return vectors, [linalg.norm(x, ord) for ord in ("fro", "nuc", 2, -2)]

    check_derivatives(norms, (x,), order=2)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_piecewise_linear_norms_have_the_slopes_of_their_differences(dtype):
    x = random_array(2, (3, 4), dtype)

    def norms(x):
        vectors = [linalg.norm(x, ord, axis=1) for ord in (1, np.inf, -np.inf)]
        return vectors, [linalg.norm(x, ord) for ord in (1, -1, np.inf, -np.inf)]

    check_derivatives(norms, (x,), order=1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient_of_every_norm_at_zero_is_zero(dtype):
    x = jnp.zeros((2, 3), dtype)

    @jax.jit
    def gradients(x):
        vector = [jax.grad(linalg.norm)(x[0], ord) for ord in VECTOR if ord is None or ord > 0]
        return vector, [jax.grad(linalg.norm)(x, ord) for ord in MATRIX if ord not in (-2,)]

    for gradient in jax.tree.leaves(gradients(x)):
        np.testing.assert_array_equal(gradient, np.zeros_like(gradient))
    np.testing.assert_array_equal(jax.jvp(linalg.norm, (x,), (x + 1,))[1], 0.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_square_of_the_norm_is_right_to_second_order_at_zero_in_all_nestings(dtype):
    x = jnp.zeros(3, dtype)
    d = random_array(3, (3,), dtype)
    expected = 2 * np.sum(np.abs(d) ** 2)
    square = lambda t: linalg.norm(x + t * d) ** 2  # noqa: E731
    along = lambda f: lambda t: jax.jvp(f, (t,), (jnp.ones_like(t),))[1]  # noqa: E731
    zero = jnp.zeros((), x.real.dtype)
    nestings = [along(along(square)), along(jax.grad(square)), jax.grad(along(square))]
    for second in [*nestings, jax.grad(jax.grad(square))]:
        np.testing.assert_allclose(second(zero), expected, rtol=1e-5)
    # The first derivative leaves the value as it is.
    assert jax.value_and_grad(linalg.norm)(x)[0] == 0.0


def test_complex_modulus_of_one_entry_is_right_at_zero():
    z = jnp.zeros(2, complex)
    for ord in (1, np.inf, 3):
        np.testing.assert_array_equal(jax.grad(linalg.norm)(z, ord), 0.0)
    square = jax.hessian(lambda t: linalg.norm(t * (1 + 1j), 1, axis=None) ** 2)
    np.testing.assert_allclose(square(jnp.zeros(1))[0, 0], 4.0)


def test_second_derivatives_that_do_not_exist_are_not_finite():
    zero = jnp.zeros(2)
    assert np.all(np.isnan(jax.hessian(lambda x: linalg.norm(x, 3))(zero)))
    assert np.all(np.isnan(jax.hessian(lambda x: linalg.norm(x, 2))(jnp.zeros((2, 2)))))
    assert np.all(np.isnan(jax.hessian(lambda x: linalg.norm(x, "nuc"))(jnp.ones((2, 2)))))
    kinked = jax.hessian(lambda x: linalg.norm(x, 1.5))(jnp.array([1.0, 0.0]))
    assert not np.isfinite(kinked[1, 1])
    np.testing.assert_allclose(
        jax.hessian(lambda x: linalg.norm(x, 3))(jnp.array([1.0, 0.0])), np.zeros((2, 2))
    )


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e30])
def test_badly_scaled_single_precision_neither_overflows_nor_underflows(scale):
    x = np.float32(scale) * np.array([3.0, 4.0], np.float32)
    for ord in (2, 3):
        expected = scale * np.linalg.norm([3.0, 4.0], ord)
        np.testing.assert_allclose(linalg.norm(jnp.asarray(x), ord), expected, rtol=1e-5)
    np.testing.assert_allclose(jax.grad(linalg.norm)(x), [0.6, 0.8], rtol=1e-5)
    curvature = np.array([[0.64, -0.48], [-0.48, 0.36]]) / 5
    np.testing.assert_allclose(jax.hessian(linalg.norm)(x) * scale, curvature, rtol=1e-4)


def test_nuclear_norm_is_exact_at_equal_values_and_has_the_least_subgradient_at_low_rank():
    u = np.linalg.qr(random_array(4, (4, 4)))[0]
    equal = u[:, :3] @ np.diag([2.0, 2.0, 2.0]) @ u[:3, :3]
    check_derivatives(lambda x: linalg.norm(x, "nuc"), (random_array(5, (2, 3)),), order=2)
    gradient = jax.grad(lambda x: linalg.norm(x, "nuc"))
    np.testing.assert_allclose(gradient(equal @ np.eye(3)), _isometry(equal), atol=1e-13)
    low = np.outer(u[0], u[1])
    np.testing.assert_allclose(gradient(low), low, atol=1e-13)
    scaled = jax.hessian(lambda x: linalg.norm(x, "nuc"))(2.0 * jnp.eye(2))
    # Of tr P at P = 2: the antisymmetric part of the tangent, squared, over p_1 + p_2.
    expected = np.zeros((2, 2, 2, 2))
    expected[0, 1] = [[0, 0.25], [-0.25, 0]]
    expected[1, 0] = -expected[0, 1]
    np.testing.assert_allclose(scaled, expected, atol=1e-14)


def _isometry(a):
    u, _, vh = np.linalg.svd(a, full_matrices=False)
    return u @ vh


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(40, 50), (50, 40)])
def test_gradient_of_a_large_spectral_norm_is_the_leading_pair(shape, dtype):
    a = np.array(random_array(6, (2, *shape), dtype))
    a[1] = 0.0
    a[1, 3, 5] = 2.0
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(linalg.norm(x, 2, axis=(1, 2)))))(a)
    for got, matrix in zip(gradient, a, strict=True):
        u, _, vh = np.linalg.svd(matrix)
        # JAX's gradient is the conjugate.
        expected = np.outer(u[:, 0], vh[0]).conj()
        np.testing.assert_allclose(got, expected, atol=1e-3 if rtol(dtype) > 1e-9 else 1e-11)


def test_power_iteration_hands_over_to_the_decomposition_where_the_gap_is_too_small(monkeypatch):
    u = np.linalg.qr(random_array(7, (40, 40)))[0]
    values = np.concatenate([[1.0, 1.0 - 1e-6], np.linspace(0.9, 0.1, 38)])
    a = jnp.asarray((u * values) @ u[::-1].T)
    monkeypatch.setattr(leading_pair, "ROUNDS", 2)
    assert not leading_pair._by_powers(a)[3]
    monkeypatch.undo()
    left, s, _ = leading_pair.leading_pair_core(a)
    np.testing.assert_allclose(s, 1.0, rtol=1e-14)
    np.testing.assert_allclose(abs(left @ u[:, 0]), 1.0, rtol=1e-8)
    zero = leading_pair.leading_pair_core(jnp.zeros((2, 40, 50)))
    for part in zero:
        np.testing.assert_array_equal(part, np.zeros_like(part))


def test_rules_hold_under_vmap_and_in_a_loop():
    x = random_array(8, (3, 4))
    mapped = jax.vmap(jax.grad(linalg.norm), in_axes=1)(x)
    np.testing.assert_allclose(mapped, (x / np.linalg.norm(x, axis=0)).T, rtol=1e-14)

    def carried(x):
        return jax.lax.scan(lambda c, _: (c * linalg.norm(c), None), x, length=1)[0]

    squares = jax.jvp(jax.grad(lambda x: jnp.sum(carried(x))), (jnp.zeros(2),), (jnp.ones(2),))
    assert np.all(np.isfinite(squares[1]))


def test_empty_arrays_and_wrong_arguments():
    assert linalg.norm(jnp.zeros(0)) == 0.0
    assert linalg.norm(jnp.zeros((0, 3)), 2) == 0.0
    assert linalg.norm(jnp.array([3, 4])).dtype == jnp.float64
    wrong = [
        (jnp.ones(2), "nuc", None),
        (jnp.ones((2, 2)), 3, None),
        (jnp.ones((2, 2, 2)), 2, None),
        (jnp.ones((2, 2)), None, 2),
        (jnp.ones((2, 2)), None, (1, 1)),
    ]
    for x, ord, axis in wrong:
        with pytest.raises(ValueError, match="norm"):
            linalg.norm(x, ord, axis)
