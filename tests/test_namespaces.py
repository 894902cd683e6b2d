"""The namespace, signatures, results and errors of `jax.numpy.linalg`, name for name."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg import linalg
from difflinalg.testing import check_derivatives

NAMES = sorted(name for name in dir(jnp.linalg) if not name.startswith("_"))
A = np.random.default_rng(0).standard_normal((3, 3)) + 3 * np.eye(3)


@pytest.mark.parametrize("name", NAMES)
def test_name_exists_with_the_signature_of_jax_and_extra_keywords_only(name):
    ours = inspect.signature(getattr(linalg, name)).parameters
    theirs = inspect.signature(getattr(jnp.linalg, name)).parameters
    for key, parameter in theirs.items():
        assert ours[key].kind == parameter.kind, key
        assert ours[key].default == parameter.default, key
    positional = [key for key, p in ours.items() if p.kind != inspect.Parameter.KEYWORD_ONLY]
    expected = [key for key, p in theirs.items() if p.kind != inspect.Parameter.KEYWORD_ONLY]
    assert positional == expected
    for key in set(ours) - set(theirs):
        assert ours[key].default is not inspect.Parameter.empty, key


CALLS = {
    "cholesky": lambda la, a: la.cholesky(a @ a.T),
    "cond": lambda la, a: [la.cond(a, p) for p in (None, 2, -2, 1, "fro", np.inf)],
    "cross": lambda la, a: la.cross(a, a[::-1]),
    "det": lambda la, a: la.det(a),
    "diagonal": lambda la, a: la.diagonal(a),
    "eig": lambda la, a: la.eig(a),
    "eigh": lambda la, a: la.eigh(a)._replace(eigenvectors=jnp.abs(la.eigh(a)[1])),
    "eigvals": lambda la, a: la.eigvals(a),
    "eigvalsh": lambda la, a: la.eigvalsh(a),
    "inv": lambda la, a: la.inv(a),
    "lstsq": lambda la, a: la.lstsq(a, a[0]),
    "matmul": lambda la, a: la.matmul(a, a),
    "matrix_norm": lambda la, a: la.matrix_norm(a),
    "matrix_power": lambda la, a: la.matrix_power(a, -2),
    "matrix_rank": lambda la, a: la.matrix_rank(a),
    "matrix_transpose": lambda la, a: la.matrix_transpose(a),
    "multi_dot": lambda la, a: la.multi_dot([a, a, a[0]]),
    "norm": lambda la, a: [la.norm(a, p) for p in (None, "nuc", 2, -2, 1, -np.inf)],
    "outer": lambda la, a: la.outer(a[0], a[1]),
    "pinv": lambda la, a: la.pinv(a[:2]),
    "qr": lambda la, a: [la.qr(a, mode) for mode in ("reduced", "complete", "r", "raw")],
    "slogdet": lambda la, a: la.slogdet(a),
    "solve": lambda la, a: la.solve(a, a[0]),
    "svd": lambda la, a: la.svd(a),
    "svdvals": lambda la, a: la.svdvals(a),
    "tensordot": lambda la, a: la.tensordot(a, a, axes=1),
    "tensorinv": lambda la, a: la.tensorinv(a, ind=1),
    "tensorsolve": lambda la, a: la.tensorsolve(a, a[0]),
    "trace": lambda la, a: la.trace(a),
    "vecdot": lambda la, a: la.vecdot(a, a),
    "vector_norm": lambda la, a: [la.vector_norm(a, ord=p) for p in (2, 1, np.inf, 3)],
}


def test_every_name_is_compared():
    assert sorted(CALLS) == NAMES


# JAX's vector_norm does not convert integers: its 1-norm is an integer, its 3-norm is wrong.
INTEGERS = [(name, np.int32) for name in NAMES if name != "vector_norm"]
FLOATS = [(name, dtype) for name in NAMES for dtype in (np.float32, np.complex128)]


@pytest.mark.parametrize(("name", "dtype"), FLOATS + INTEGERS)
def test_values_dtypes_shapes_and_fields_are_those_of_jax(name, dtype):
    a = A.astype(dtype) if np.issubdtype(dtype, np.inexact) else np.diag([3, 2, 1]).astype(dtype)
    if np.iscomplexobj(a):
        a = a + 1j * A[::-1]
    got, expected = (CALLS[name](la, jnp.asarray(a)) for la in (linalg, jnp.linalg))
    assert getattr(got, "_fields", None) == getattr(expected, "_fields", None)
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_allclose(x, y, rtol=2e-4 if dtype == np.float32 else 1e-12, atol=1e-5)


WRONG = {
    "cholesky": [lambda la: la.cholesky(jnp.ones((2, 3)))],
    "cond": [lambda la: la.cond(jnp.ones(3)), lambda la: la.cond(jnp.ones((2, 3)), 1)],
    "det": [lambda la: la.det(jnp.ones((2, 3))), lambda la: la.det("a")],
    "eig": [lambda la: la.eig(jnp.ones((2, 3)))],
    "eigvals": [lambda la: la.eigvals(jnp.ones((2, 3)))],
    "inv": [lambda la: la.inv(jnp.ones((2, 3)))],
    "lstsq": [
        lambda la: la.lstsq(jnp.ones((2, 3)), jnp.ones(3)),
        lambda la: la.lstsq(jnp.ones((2, 2, 2)), jnp.ones(2)),
    ],
    "matrix_norm": [lambda la: la.matrix_norm(jnp.ones((2, 2)), ord="no")],
    "norm": [
        lambda la: la.norm(jnp.ones((2, 2, 2)), 2),
        lambda la: la.norm(jnp.ones(2), "nuc"),
        lambda la: la.norm("a"),
    ],
    "pinv": [lambda la: la.pinv(jnp.ones((2, 2)), 1e-3, rcond=1e-3)],
    "qr": [lambda la: la.qr(jnp.ones((2, 2)), "no"), lambda la: la.qr(jnp.ones(2))],
    "slogdet": [
        lambda la: la.slogdet(jnp.ones((2, 3))),
        lambda la: la.slogdet(jnp.ones((2, 2)), method="no"),
        lambda la: la.slogdet(jnp.ones((2, 2), complex), method="qr"),
    ],
    "solve": [lambda la: la.solve(jnp.ones((2, 3)), jnp.ones(2))],
    "vector_norm": [lambda la: la.vector_norm(jnp.ones(2), ord="no")],
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_raises_the_exception_of_jax(name):
    for call in WRONG[name]:
        with pytest.raises(Exception) as expected:  # noqa: PT011  any: it is JAX's that counts
            call(jnp.linalg)
        with pytest.raises(expected.type):
            call(linalg)


def quotients(a, b):
    """The functions that are JAX's own, and `cond`, which is composed of ours."""
    return (
        linalg.inv(a),
        linalg.solve(a, b),
        linalg.matrix_power(a, -2),
        linalg.matrix_power(a, 5),
        linalg.multi_dot([a, b, a[0]]),
        linalg.tensorinv(a, ind=1),
        linalg.tensorsolve(a, b[:, 0]),
        linalg.vecdot(a, b),
        linalg.cond(a),
        linalg.cond(a, "fro"),
        linalg.cond(a, -2),
    )


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_names_that_are_taken_over_from_jax_have_right_derivatives(dtype):
    a = A.astype(dtype) + (1j * A[::-1] if dtype is np.complex128 else 0.0)
    check_derivatives(quotients, (a, a[::-1].T * 0.5), order=2)


def test_inverse_and_solution_are_right_for_stacks_in_both_modes():
    a, b = np.stack([A, 2 * A.T]), np.ones((2, 3, 1))
    a_dot = np.stack([A.T, A @ A])
    inverse = np.linalg.inv(a)
    tangent = jax.jvp(linalg.inv, (a,), (a_dot,))[1]
    np.testing.assert_allclose(tangent, -inverse @ a_dot @ inverse, atol=1e-12)
    gradient = jax.vmap(jax.grad(lambda x, y: jnp.sum(linalg.solve(x, y))))(a, b)
    left = np.swapaxes(inverse, 1, 2) @ np.ones((2, 3, 1))
    np.testing.assert_allclose(gradient, -left @ np.swapaxes(inverse @ b, 1, 2), atol=1e-12)
    assert not np.any(np.isfinite(linalg.inv(jnp.zeros((2, 2)))))


def test_condition_number_of_a_singular_matrix_is_infinite():
    singular = jnp.diag(jnp.array([1.0, 0.0]))
    for p in (None, 2, 1, "fro"):
        assert linalg.cond(singular, p) == np.inf
