"""Names of SciPy that lead to the rules of `difflinalg.linalg`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from difflinalg.scipy import linalg
from difflinalg.testing import check_derivatives

BOTH = [jnp.float64, jnp.complex128]


def random_array(seed, shape, dtype=jnp.float64):
    return np.asarray(jax.random.normal(jax.random.key(seed), shape, dtype))


def definite(seed, n, dtype):
    a = random_array(seed, (n, n), dtype)
    return a @ a.conj().T + np.eye(n)


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("dtype", BOTH)
def test_definite_solve_reads_one_triangle_and_is_right_in_every_nesting(dtype, lower):
    a, b = definite(1, 3, dtype), random_array(2, (3, 2), dtype)
    garbage = random_array(3, (3, 3), dtype)
    read = np.tril(a) + np.triu(garbage, 1) if lower else np.triu(a) + np.tril(garbage, -1)
    x = linalg.solve(read, b, lower=lower, assume_a="pos")
    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-12)
    weight = random_array(4, (3, 2), dtype)

    def loss(a, b):
        x = linalg.solve(a, b, lower=lower, assume_a="pos")
        return jnp.sum(jnp.real(weight * x) + jnp.abs(x) ** 2)

    check_derivatives(loss, (read, b), order=2)
    unread = np.triu(np.ones((3, 3)), 1) if lower else np.tril(np.ones((3, 3)), -1)
    assert not np.any(jax.grad(loss)(read, b) * unread)


def test_definite_solve_takes_vectors_and_stacks():
    a = np.stack([definite(seed, 3, jnp.float64) for seed in (1, 2)])
    b = random_array(3, (3,))
    want = np.stack([np.linalg.solve(m, b) for m in a])
    np.testing.assert_allclose(linalg.solve(a[0], b, assume_a="pos"), want[0], rtol=1e-12)
    both = linalg.solve(a, np.stack([b, b]), assume_a="pos")
    np.testing.assert_allclose(both, want, rtol=1e-12)
    mapped = jax.vmap(lambda m: linalg.solve(m, b, assume_a="pos"))(a)
    np.testing.assert_allclose(mapped, want, rtol=1e-12)
    with pytest.raises(ValueError, match="solve got shapes that do not fit"):
        linalg.solve(a[0], np.ones(4), assume_a="pos")


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("dtype", BOTH)
def test_cholesky_has_the_gradient_of_the_triangle_it_reads(dtype, lower):
    a = definite(1, 3, dtype)
    np.testing.assert_allclose(
        linalg.cholesky(a, lower=lower), scipy.linalg.cholesky(a, lower=lower), rtol=1e-12
    )
    weight = random_array(2, (3, 3), dtype)
    loss = lambda a: jnp.sum(jnp.real(weight * linalg.cho_factor(a, lower)[0] ** 2))  # noqa: E731
    check_derivatives(loss, (a,), order=2)
    gradient = jax.grad(loss)(jnp.asarray(a))
    assert not np.any(np.triu(gradient, 1) if lower else np.tril(gradient, -1))


@pytest.mark.parametrize("mode", ["full", "economic", "r"])
@pytest.mark.parametrize("dtype", BOTH)
def test_pivoted_qr_of_a_stack_has_values_of_scipy_and_derivatives(dtype, mode):
    stack = random_array(1, (2, 4, 3), dtype)
    got = linalg.qr(stack, mode=mode, pivoting=True)
    for index, a in enumerate(stack):
        want = scipy.linalg.qr(a, mode=mode, pivoting=True)
        np.testing.assert_array_equal(got[-1][index], want[-1])
        np.testing.assert_allclose(np.abs(got[-2][index]), np.abs(want[-2]), atol=1e-12)
    weight = random_array(2, (3, 3), dtype)

    def loss(stack):
        r = linalg.qr(stack, mode=mode, pivoting=True)[-2][..., :3, :]
        return jnp.sum(
            jnp.real(weight * r * jnp.conj(jnp.diagonal(r, axis1=-2, axis2=-1))[..., None])
        )

    check_derivatives(loss, (stack,), order=2)


def test_names_that_are_not_a_mode_are_refused():
    with pytest.raises(ValueError, match="mode"):
        linalg.qr(np.eye(2), mode="reduced")


def test_determinant_of_a_singular_matrix_has_its_gradient():
    gradient = jax.grad(linalg.det)(jnp.diag(jnp.array([0.0, 2.0, 3.0])))
    np.testing.assert_allclose(gradient, np.diag([6.0, 0.0, 0.0]), atol=1e-14)
