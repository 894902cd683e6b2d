"""svds against dense decompositions: values, multiplets, derivatives, failures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.sparse import BCOO

from difflinalg.scipy.sparse.linalg import svds


def matrix(rng, m, n, s, is_complex):
    def isometry(rows):
        a = rng.standard_normal((rows, len(s))) + 1j * is_complex * rng.standard_normal(
            (rows, len(s))
        )
        return np.linalg.qr(a if is_complex else a.real)[0]

    return jnp.asarray((isometry(m) * s) @ isometry(n).conj().T)


@pytest.mark.parametrize(("shape", "is_complex"), [((40, 25), True), ((20, 30), False)])
def test_triplets_with_a_multiplet(rng, shape, is_complex):
    values = np.r_[5.0, 4.0, 4.0, 3.0, np.linspace(2.0, 0.1, min(shape) - 4)]
    a = matrix(rng, *shape, values, is_complex)
    u, s, vh = svds(a, 4)
    np.testing.assert_allclose(s, [3.0, 4.0, 4.0, 5.0], atol=1e-12)
    np.testing.assert_allclose(a @ vh.conj().T, u * s, atol=1e-11)
    np.testing.assert_allclose(u.conj().T @ u, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(vh @ vh.conj().T, np.eye(4), atol=1e-12)
    like = jax.ShapeDtypeStruct((shape[1],), a.dtype)
    s = svds(lambda x: a @ x, 3, v0=like, return_singular_vectors=False)
    np.testing.assert_allclose(s, [4.0, 4.0, 5.0], atol=1e-12)


@pytest.mark.parametrize("is_complex", [True, False])
def test_derivatives_agree_with_the_dense_ones(rng, is_complex):
    a = matrix(rng, 30, 20, np.r_[5.0, 4.0, 3.0, np.linspace(2.0, 0.1, 17)], is_complex)
    b = 0.1 * matrix(rng, 30, 20, np.ones(20), is_complex)
    c = jnp.asarray(rng.standard_normal((30, 20)))

    def loss(u, s, vh):
        return jnp.sum(jnp.sin(s)) + jnp.real(jnp.sum(c * ((u * s**2) @ vh)))

    def dense(t):
        u, s, vh = jnp.linalg.svd(a + t * b, full_matrices=False)
        return loss(u[:, :3], s[:3], vh[:3])

    def krylov(t):
        return loss(*svds(a + t * b, 3))

    @jax.jit
    def compute(t):
        return [(f(t), *jax.jvp(jax.grad(f), (t,), (1.0,))) for f in (krylov, dense)]

    got, want = compute(0.1)
    np.testing.assert_allclose(got, want, rtol=1e-8)


@pytest.mark.parametrize(("shape", "is_complex"), [((60, 40), True), ((40, 60), False)])
def test_smallest_triplets_and_their_derivatives(rng, shape, is_complex):
    """Of functions, which the iteration decomposes; the doublet is found complete."""
    values = np.r_[0.1, 0.3, 0.3, 0.6, np.linspace(1.0, 2.0, 36)]
    a = matrix(rng, *shape, values, is_complex)
    b = 0.1 * matrix(rng, *shape, np.ones(40), is_complex)
    c = jnp.asarray(rng.standard_normal(shape))
    like = jax.ShapeDtypeStruct((shape[1],), a.dtype)

    def iterated(t):
        return svds(lambda x: (a + t * b) @ x, 3, which="SM", v0=like, return_info=True)

    def loss(u, s, vh):
        return jnp.sum(jnp.sin(s)) + jnp.real(jnp.sum(c * ((u * s**2) @ vh)))

    def dense(t):
        u, s, vh = jnp.linalg.svd(a + t * b, full_matrices=False)
        return loss(u[:, -3:], s[-3:], vh[-3:])

    def of_function(t):
        return loss(*iterated(t)[:3])

    def of_array(t):
        return loss(*svds(a + t * b, 3, which="SM"))

    f = of_function if is_complex else of_array

    @jax.jit
    def compute(t):
        return iterated(0.0), (f(t), *jax.jvp(jax.grad(f), (t,), (1.0,)))

    (u, s, vh, info), got = compute(0.1)
    np.testing.assert_allclose(s, [0.1, 0.3, 0.3], atol=1e-12)
    np.testing.assert_allclose(a @ vh.conj().T, u * s, atol=1e-11)
    np.testing.assert_allclose(vh @ vh.conj().T, np.eye(3), atol=1e-11)
    assert info.restarts > 1
    want = jax.jit(lambda t: (dense(t), *jax.jvp(jax.grad(dense), (t,), (1.0,))))(0.1)
    np.testing.assert_allclose(got, want, rtol=1e-7)


def test_gradient_of_a_sparse_matrix(rng):
    a = jnp.asarray(rng.standard_normal((40, 30)) * (rng.uniform(size=(40, 30)) < 0.3))
    sparse = BCOO.fromdense(a, nse=400)  # with padding

    @jax.jit
    def compute(data):
        def loss(data):
            return jnp.sum(svds(BCOO((data, sparse.indices), shape=a.shape), 2)[1] ** 2)

        return jax.value_and_grad(loss)(data)

    u, s, vh = np.linalg.svd(a)
    value, slope = compute(sparse.data)
    np.testing.assert_allclose(value, np.sum(s[:2] ** 2), rtol=1e-12)
    count = int(jnp.sum(a != 0.0))
    i, j = np.asarray(sparse.indices[:count]).T
    want = ((u[:, :2] * (2 * s[:2])) @ vh[:2])[i, j]
    np.testing.assert_allclose(slope[:count], want, atol=1e-10)


def test_a_zero_singular_value_has_no_derivative():
    a = jnp.diag(jnp.arange(4.0))
    ones = jnp.ones_like(a)
    s, slope = jax.jit(lambda a: jax.jvp(lambda a: svds(a, 2, which="SM")[1], (a,), (ones,)))(a)
    np.testing.assert_allclose(s, [0.0, 1.0], atol=1e-15)
    np.testing.assert_array_equal(np.isnan(slope), [True, False])


def test_more_triplets_than_the_rank_are_undefined(rng):
    a = matrix(rng, 40, 30, np.r_[3.0, 2.0], False)
    _, s, vh = svds(a, 3)
    np.testing.assert_allclose(s[1:], [2.0, 3.0], atol=1e-12)
    assert np.isnan(s[0])
    assert np.all(np.isnan(vh[0]))


def test_arguments_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="which as one of"):
        svds(jnp.eye(3), 1, which="LA")
    with pytest.raises(ValueError, match="needs 1 <= k <= 3"):
        svds(jnp.ones((3, 5)), 4)
    with pytest.raises(ValueError, match="give v0"):
        svds(lambda x: x, 1)
