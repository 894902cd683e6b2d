"""QR: identities of the decomposition differentiated, differences, vanishing pivots."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg import linalg
from difflinalg.testing import check_derivatives

DTYPES = [jnp.float32, jnp.float64, jnp.complex64, jnp.complex128]
SHAPES = {"tall": (4, 2), "square": (3, 3), "wide": (2, 4), "row": (1, 3)}


def random_array(seed, shape, dtype=np.float64):
    return np.asarray(jax.random.normal(jax.random.key(seed), shape, dtype))


def h(x):
    return np.conj(np.swapaxes(x, -1, -2))


@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_tangents_satisfy_the_differentiated_identities_for_every_shape(mode, dtype):
    rtol = 1e-5 if jnp.finfo(dtype).bits == 32 else 1e-13

    @jax.jit
    def all_tangents(inputs):
        return [jax.jvp(lambda a: linalg.qr(a, mode), (a,), (d,)) for a, d in inputs]

    inputs = [(random_array(1, s, dtype), random_array(2, s, dtype)) for s in SHAPES.values()]
    for (a, a_dot), ((q, r), (q_dot, r_dot)) in zip(inputs, all_tangents(inputs), strict=True):
        np.testing.assert_allclose(q @ r, a, atol=20 * rtol)
        np.testing.assert_allclose(q_dot @ r + q @ r_dot, a_dot, atol=20 * rtol)
        np.testing.assert_allclose(h(q) @ q_dot, -h(h(q) @ q_dot), atol=20 * rtol)
        np.testing.assert_array_equal(r_dot, np.triu(r_dot))
        np.testing.assert_allclose(np.diagonal(r_dot).imag, 0.0, atol=20 * rtol)


@pytest.mark.parametrize("shape", ["tall", "square", "wide"])
def test_derivatives_are_those_of_differences(shape):
    dtype = np.complex128 if shape == "tall" else np.float64
    check_derivatives(linalg.qr, (random_array(3, SHAPES[shape], dtype),), order=2)


@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_lq_is_the_adjoint_of_qr_and_has_right_derivatives(mode):
    a = random_array(3, (2, 3, 4), np.complex128)
    lower, q = linalg.lq(a, mode)
    assert (lower.shape, q.shape) == ((2, 3, q.shape[1]), (2, 3 if mode == "reduced" else 4, 4))
    np.testing.assert_allclose(lower @ q, a, atol=1e-13)
    np.testing.assert_allclose(q @ h(q), np.stack([np.eye(q.shape[1])] * 2), atol=1e-13)
    np.testing.assert_array_equal(lower, np.tril(lower))
    if mode == "reduced":
        check_derivatives(linalg.lq, (random_array(3, (2, 3)),), order=2)
    with pytest.raises(ValueError, match="lq takes mode"):
        linalg.lq(a, "raw")


@pytest.mark.parametrize("start", ["generic", "columns of the identity"])
def test_projector_on_the_complement_of_a_complete_decomposition(start):
    a = random_array(4, (4, 2)) if start == "generic" else np.eye(4)[:, :2]
    weight = random_array(5, (4, 4))

    def overlap(x):
        rest = linalg.qr(x, mode="complete").Q[:, 2:]
        return jnp.sum(weight * (rest @ rest.T))

    inverse = np.linalg.pinv(a)
    rest = np.eye(4) - a @ inverse
    expected = -rest @ (weight + weight.T) @ inverse.T
    np.testing.assert_allclose(jax.grad(overlap)(a), expected, atol=1e-12)
    check_derivatives(overlap, (a,), order=2)


def test_last_pivot_of_a_square_or_wide_real_matrix_may_vanish():
    a = random_array(6, (3, 3)) @ np.diag([1.0, 1.0, 0.0]) @ random_array(7, (3, 3))
    a = np.concatenate([a, random_array(8, (3, 1))], axis=1)
    a_dot = random_array(9, (3, 4))
    for matrix, tangent in ((a, a_dot), (a[:, :3], a_dot[:, :3])):
        (q, r), (q_dot, r_dot) = jax.jvp(linalg.qr, (matrix,), (tangent,))
        assert abs(r[2, 2]) < 1e-14
        np.testing.assert_allclose(q_dot @ r + q @ r_dot, tangent, atol=1e-12)
        np.testing.assert_allclose(q.T @ q_dot, -(q.T @ q_dot).T, atol=1e-12)
        product = jax.grad(lambda x: linalg.qr(x).R[2, 2])(matrix)
        assert np.all(np.isfinite(product))


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_columns_before_a_vanishing_pivot_are_exact_and_the_others_refused(dtype):
    a = random_array(10, (4, 2), dtype)
    a = np.concatenate([a, a @ random_array(11, (2, 1), dtype)], axis=1)
    a_dot = random_array(12, (4, 3), dtype)
    q_dot, r_dot = jax.jvp(linalg.qr, (a,), (a_dot,))[1]
    (q_2, _), (q_2_dot, _) = jax.jvp(linalg.qr, (a[:, :2],), (a_dot[:, :2],))
    np.testing.assert_allclose(q_dot[:, :2], q_2_dot, atol=1e-12)
    row = h(q_2_dot) @ a[:, 2] + h(q_2) @ a_dot[:, 2]
    np.testing.assert_allclose(r_dot[:2, 2], row, atol=1e-12)
    assert np.all(np.isnan(q_dot[:, 2]))
    assert np.isnan(r_dot[2, 2])
    assert np.all(np.isfinite(jax.grad(lambda x: jnp.sum(jnp.abs(linalg.qr(x).R[:2])))(a)))
    assert not np.all(np.isfinite(jax.grad(lambda x: linalg.qr(x).Q[0, 2].real)(a)))


def test_zero_matrix_and_small_pivots_of_a_graded_matrix():
    assert np.any(np.isnan(jax.grad(lambda x: jnp.sum(linalg.qr(x).Q))(jnp.zeros((3, 2)))))
    graded = np.diag([1.0, 1e-20, 1e-30])
    gradient = jax.grad(lambda x: linalg.qr(x).R[2, 2])(graded)
    np.testing.assert_allclose(abs(gradient), np.diag([0.0, 0.0, 1.0]), atol=1e-9)


def test_stacks_modes_empty_and_wrong_input():
    a = random_array(13, (2, 3, 2))
    q, r = linalg.qr(a)
    np.testing.assert_allclose(q @ r, a, atol=1e-14)
    np.testing.assert_array_equal(linalg.qr(a, "r"), r)
    np.testing.assert_array_equal(linalg.qr(a, "full").Q, q)
    for got, expected in zip(linalg.qr(a, "raw"), jnp.linalg.qr(a, "raw"), strict=True):
        np.testing.assert_array_equal(got, expected)
    loss = lambda x: jnp.sum(linalg.qr(x).R ** 3)  # noqa: E731
    np.testing.assert_allclose(
        jax.grad(lambda x: loss(x))(a), jax.vmap(jax.grad(loss))(a), atol=1e-12
    )
    for shape in ((0, 0), (0, 3), (3, 0)):
        assert linalg.qr(jnp.zeros(shape)).R.shape == (0, shape[1])
        assert jax.grad(lambda x: jnp.sum(linalg.qr(x).R))(jnp.zeros(shape)).shape == shape
    with pytest.raises(ValueError, match="mode"):
        linalg.qr(a, "economic")
    with pytest.raises(ValueError, match="matrix"):
        linalg.qr(a[0, 0])
