"""Products with matrices, of which all solvers are made."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from jax.experimental.sparse import BCOO, BCSR
from scipy.sparse.linalg import aslinearoperator

from difflinalg._krylov.operator import matrix_product
from difflinalg.scipy.sparse.linalg import cg, eigs, eigsh, expm_multiply, lsmr, svds


def test_adjoint_of_a_sparse_product_has_a_gradient_under_vmap(rng):
    a = jnp.asarray(rng.standard_normal((4, 3)))
    sparse = BCOO.fromdense(a, nse=14)  # with padding
    x, y = rng.standard_normal((2, 3)), rng.standard_normal((2, 4))

    def loss(data):
        product = matrix_product(BCOO((data, sparse.indices), shape=a.shape))
        transpose = jax.linear_transpose(product, jax.ShapeDtypeStruct((3,), a.dtype))
        return jnp.sum(x * jax.vmap(lambda row: transpose(row)[0])(y))

    slope = jax.jit(jax.grad(loss))(sparse.data)
    np.testing.assert_allclose(slope[:12].reshape(4, 3), y.T @ x, rtol=1e-12)


@pytest.mark.parametrize("convert", [scipy.sparse.csr_array, aslinearoperator])
def test_matrices_of_scipy_are_refused_with_a_remedy(convert):
    a, b = convert(np.eye(3)), np.ones(3)
    calls = (lambda f: f(a, 1), lambda f: f(a, b))
    for call, functions in zip(
        calls, ((eigsh, eigs, svds), (cg, lsmr, expm_multiply)), strict=True
    ):
        for f in functions:
            with pytest.raises(TypeError, match="from_scipy_sparse"):
                call(f)


def test_compressed_rows_are_a_matrix_too():
    a, b = np.diag(np.arange(1.0, 5.0)) + np.eye(4, k=1), np.ones(4)
    a = a.T @ a
    sparse, w = BCSR.fromdense(jnp.asarray(a)), np.linalg.eigvalsh(a)
    np.testing.assert_allclose(eigsh(sparse, 4, return_eigenvectors=False), w, rtol=1e-12)
    np.testing.assert_allclose(svds(sparse, 4, return_singular_vectors=False), w, rtol=1e-12)
    np.testing.assert_allclose(np.sort(eigs(sparse, 4)[0].real), w, rtol=1e-12)
    np.testing.assert_allclose(cg(sparse, b, tol=1e-12)[0], np.linalg.solve(a, b), rtol=1e-9)
    want = scipy.linalg.expm(a) @ b
    np.testing.assert_allclose(expm_multiply(sparse, b), want, rtol=1e-11)


def test_numbers_that_are_not_finite_are_named():
    with pytest.raises(ValueError, match="sigma is not an eigenvalue"):
        eigsh(jnp.full((3, 3), jnp.nan), 1)


def test_one_side_of_the_singular_vectors_can_be_asked_for():
    a = jnp.diag(jnp.array([1.0, 2.0, 3.0]))
    u, _, nothing = svds(a, 1, return_singular_vectors="u")
    assert u.shape == (3, 1)
    assert nothing is None
    nothing, _, vh = svds(a, 1, return_singular_vectors="vh")
    assert vh.shape == (1, 3)
    assert nothing is None
