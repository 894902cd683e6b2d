"""Generalised and tridiagonal eigenproblems: SciPy for values, differences for derivatives."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from difflinalg.scipy import linalg
from difflinalg.testing import random_hermitian

N = 4
TYPES = (1, 2, 3)
DTYPES = (jnp.float64, jnp.complex128)


def random_array(seed, shape, dtype=jnp.float64):
    return np.asarray(jax.random.normal(jax.random.key(seed), shape, dtype))


def pair(dtype=jnp.float64, values=(2.0, 0.7, -0.4, -1.5), metric=(2.0, 1.4, 0.9, 0.5)):
    a = random_hermitian(jax.random.key(1), jnp.array(values), dtype)
    b = random_hermitian(jax.random.key(2), jnp.array(metric), dtype)
    return np.asarray(a), np.asarray(b)


def herm(a):
    return (a + a.conj().T) / 2


def along(gradient, d):
    return jnp.real(jnp.sum(gradient * d))


def difference(f, h=2e-3):
    """The derivative of a function of one number at zero, to the sixth order."""
    return (45 * (f(h) - f(-h)) - 9 * (f(2 * h) - f(-2 * h)) + f(3 * h) - f(-3 * h)) / (60 * h)


def loss_of(w, v, weight):
    """Smooth in both matrices: a function of the pencil, free of phases."""
    return jnp.real(jnp.sum(weight * ((v * jnp.sin(w)) @ v.conj().T)) + jnp.sum(w**3))


@partial(jax.jit, static_argnames=("kind",))
def loss(a, b, weight, kind):
    return loss_of(*linalg.eigh(a, b, type=kind), weight)


@partial(jax.jit, static_argnames=("kind",))
def gradients(a, b, weight, kind):
    return jax.grad(loss, argnums=(0, 1))(a, b, weight, kind)


def scipy_loss(a, b, weight, kind):
    return float(loss_of(*scipy.linalg.eigh(herm(a), herm(b), type=kind), weight))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", TYPES)
def test_values_and_vectors_agree_with_scipy(kind, dtype):
    a, b = pair(dtype)
    w, v = linalg.eigh(a, b, type=kind)
    expected, vectors = scipy.linalg.eigh(a, b, type=kind)
    np.testing.assert_allclose(w, expected, rtol=1e-12)
    overlap = np.abs(np.sum(vectors.conj() * v, axis=0)) / np.linalg.norm(v, axis=0)
    np.testing.assert_allclose(overlap, np.linalg.norm(vectors, axis=0), rtol=1e-12)
    left = {1: a @ v, 2: a @ b @ v, 3: b @ a @ v}[kind]
    right = b @ v * w if kind == 1 else v * w
    np.testing.assert_allclose(left, right, atol=1e-13)
    metric = np.linalg.inv(b) if kind == 3 else b
    np.testing.assert_allclose(v.conj().T @ metric @ v, np.eye(N), atol=1e-13)


@pytest.mark.parametrize("kind", TYPES)
def test_only_eigenvalues_are_returned_on_request(kind):
    a, b = pair(jnp.complex128)
    w = linalg.eigh(a, b, eigvals_only=True, type=kind)
    np.testing.assert_allclose(w, scipy.linalg.eigh(a, b, eigvals_only=True, type=kind), rtol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_missing_second_matrix_is_the_identity(dtype):
    a, _ = pair(dtype)
    w, v = linalg.eigh(a)
    np.testing.assert_allclose(w, scipy.linalg.eigh(a, eigvals_only=True), rtol=1e-13)
    np.testing.assert_allclose(a @ v, v * w, atol=1e-14)
    np.testing.assert_allclose(linalg.eigh(a, eigvals_only=True), w, rtol=1e-13)


def test_both_triangles_are_read():
    a, b = pair()
    skew = np.triu(np.ones((N, N)), 1) - np.tril(np.ones((N, N)), -1)
    expected = linalg.eigh(a, b, eigvals_only=True)
    for lower in (True, False):
        w = linalg.eigh(a + skew, b - skew, lower=lower, eigvals_only=True)
        np.testing.assert_allclose(w, expected, rtol=1e-13)


@pytest.mark.parametrize("kind", TYPES)
def test_stack_of_pairs_equals_its_members(kind):
    a, b = pair(jnp.complex128)
    w, v = linalg.eigh(np.stack([a, b, -a]), np.stack([b, a @ a.conj().T, b]), type=kind)
    for index, (x, y) in enumerate([(a, b), (b, a @ a.conj().T), (-a, b)]):
        expected = scipy.linalg.eigh(x, y, eigvals_only=True, type=kind)
        np.testing.assert_allclose(w[index], expected, rtol=1e-11)
        metric = np.linalg.inv(y) if kind == 3 else y
        np.testing.assert_allclose(v[index].conj().T @ metric @ v[index], np.eye(N), atol=1e-12)


def test_single_precision_stays_single():
    a, b = (x.astype(np.complex64) for x in pair(jnp.complex128))
    w, v = linalg.eigh(a, b)
    assert w.dtype == jnp.float32
    assert v.dtype == jnp.complex64
    np.testing.assert_allclose(w, scipy.linalg.eigh(a, b, eigvals_only=True), rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", TYPES)
def test_gradient_with_respect_to_both_matrices_agrees_with_differences(kind, dtype):
    a, b = pair(dtype)
    weight, d, e = (random_array(seed, (N, N), dtype) for seed in (3, 4, 5))
    grad_a, grad_b = gradients(a, b, weight, kind)
    e = e / 4
    by_a = difference(lambda t: scipy_loss(a + t * d, b, weight, kind))
    by_b = difference(lambda t: scipy_loss(a, b + t * e, weight, kind))
    np.testing.assert_allclose(along(grad_a, d), by_a, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(along(grad_b, e), by_b, rtol=1e-8, atol=1e-9)


def test_forward_and_reverse_mode_agree():
    a, b = pair(jnp.complex128)
    weight, d, e = (random_array(seed, (N, N), jnp.complex128) for seed in (3, 4, 5))
    grad_a, grad_b = gradients(a, b, weight, 1)
    _, forward = jax.jit(lambda *p: jax.jvp(lambda x, y: loss(x, y, weight, 1), p, (d, e)))(a, b)
    np.testing.assert_allclose(forward, along(grad_a, d) + along(grad_b, e), rtol=1e-11)


@jax.jit
def square_sum(a, b):
    """`tr((B^-1 A)^2)` from the eigenvalues."""
    return jnp.sum(linalg.eigh(a, b, eigvals_only=True) ** 2)


@jax.jit
def square_sum_derivatives(a, b, d, e):
    """Gradient and the Hessian times (d, e)."""
    return jax.jvp(jax.grad(square_sum, argnums=(0, 1)), (a, b), (d, e))


@jax.jit
def closed_derivatives(a, b, d, e):
    def closed(x, y):
        x, y = (x + x.conj().T) / 2, (y + y.conj().T) / 2
        c = jnp.linalg.solve(y, x)
        return jnp.real(jnp.trace(c @ c))

    return jax.jvp(jax.grad(closed, argnums=(0, 1)), (a, b), (d, e))


@pytest.mark.parametrize("dtype", DTYPES)
def test_derivatives_of_the_trace_of_the_square_have_their_closed_form(dtype):
    a, b = pair(dtype)
    c = np.linalg.solve(b, a)
    inverse = np.linalg.inv(b)
    (grad_a, grad_b), hessian = square_sum_derivatives(a, b, herm(a @ b), herm(a @ a))
    np.testing.assert_allclose(grad_a, 2 * (c @ inverse).T, atol=1e-12)
    np.testing.assert_allclose(grad_b, -2 * (c @ c @ inverse).T, atol=1e-11)
    _, expected = closed_derivatives(a, b, herm(a @ b), herm(a @ a))
    for got, wanted in zip(hessian, expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
def test_derivatives_are_right_where_eigenvalues_of_the_pencil_coincide(dtype):
    _, b = pair(dtype)
    d, e = (herm(random_array(seed, (N, N), dtype)) for seed in (4, 5))
    for first in (2.0 * b, 0.0 * b, b @ b):
        got, got_hessian = square_sum_derivatives(first, b, d, e)
        wanted, wanted_hessian = closed_derivatives(first, b, d, e)
        for x, y in zip(got, wanted, strict=True):
            np.testing.assert_allclose(x, y, atol=1e-6)
        for x, y in zip(got_hessian, wanted_hessian, strict=True):
            np.testing.assert_allclose(x, y, atol=1e-4)


@pytest.mark.parametrize("kind", TYPES)
def test_gradient_is_right_where_every_eigenvalue_is_the_same(kind):
    _, b = pair()
    weight, d, e = (random_array(seed, (N, N)) for seed in (3, 4, 5))
    a = 1.5 * b if kind == 1 else 1.5 * np.linalg.inv(b)
    grad_a, grad_b = gradients(a, b, weight, kind)
    by_a = difference(lambda t: scipy_loss(a + t * d, b, weight, kind))
    by_b = difference(lambda t: scipy_loss(a, b + t * e / 4, weight, kind))
    np.testing.assert_allclose(along(grad_a, d), by_a, rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(along(grad_b, e / 4), by_b, rtol=2e-6, atol=2e-6)


def test_second_matrix_that_is_not_positive_gives_nan():
    a, b = pair()
    assert np.all(np.isnan(linalg.eigh(a, -b, eigvals_only=True)))
    grad_a, grad_b = jax.grad(square_sum, argnums=(0, 1))(a, -b)
    assert np.any(np.isnan(grad_a))
    assert np.any(np.isnan(grad_b))


def test_unknown_type_is_refused():
    with pytest.raises(ValueError, match="type as one of 1, 2, 3, got 4"):
        linalg.eigh(jnp.eye(2), jnp.eye(2), type=4)


def test_index_range_is_refused():
    with pytest.raises(NotImplementedError, match="does not support eigvals"):
        linalg.eigh(jnp.eye(2), eigvals=(0, 1))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"do not fit: \(2, 2\), \(3, 3\)"):
        linalg.eigh(jnp.eye(2), jnp.eye(3))
    with pytest.raises(ValueError, match="square"):
        linalg.eigh(jnp.zeros((2, 3)))
    with pytest.raises(ValueError, match="square"):
        linalg.eigh(jnp.eye(2), jnp.zeros((2, 3)))


def test_matrices_that_are_not_finite_are_refused_unless_the_check_is_off():
    bad = jnp.eye(2).at[0, 0].set(jnp.nan)
    for arguments in ((bad,), (bad, jnp.eye(2)), (jnp.eye(2), bad)):
        with pytest.raises(ValueError, match="NaN or inf"):
            linalg.eigh(*arguments)
        w = linalg.eigh(*arguments, eigvals_only=True, check_finite=False)
        assert np.all(np.isnan(w))


def test_something_that_is_no_array_is_refused():
    with pytest.raises(TypeError, match="needs an array"):
        linalg.eigh({"a": 1})
    with pytest.raises(TypeError, match="needs an array"):
        linalg.eigh(jnp.eye(2), {"a": 1})


D = np.array([0.9, -0.3, 0.4, 1.6])
OFF = {
    "real": np.array([0.7, -0.5, 0.3]),
    "complex": np.array([0.7 + 0.2j, -0.5j, 0.3 - 0.4j]),
}


def tridiagonal(d, e):
    return np.diag(d) + np.diag(e, -1) + np.diag(np.conj(e), 1)


@pytest.mark.parametrize("kind", OFF)
def test_tridiagonal_values_and_vectors_agree_with_scipy(kind):
    e = OFF[kind]
    w, v = linalg.eigh_tridiagonal(D, e)
    matrix = tridiagonal(D, e)
    expected = scipy.linalg.eigh_tridiagonal(D, np.abs(e), eigvals_only=True)
    np.testing.assert_allclose(w, expected, rtol=1e-12)
    np.testing.assert_allclose(w, scipy.linalg.eigvalsh(matrix), rtol=1e-12)
    np.testing.assert_allclose(matrix @ v, v * w, atol=1e-14)
    np.testing.assert_allclose(linalg.eigh_tridiagonal(D, e, eigvals_only=True), w, rtol=1e-14)


@pytest.mark.parametrize(("first", "last"), [(0, 0), (1, 2), (0, 3), (3, 3)])
def test_tridiagonal_selection_by_index_includes_both_ends(first, last):
    w, v = linalg.eigh_tridiagonal(D, OFF["real"], select="i", select_range=(first, last))
    expected, vectors = scipy.linalg.eigh_tridiagonal(
        D, OFF["real"], select="i", select_range=(first, last)
    )
    assert v.shape == (N, last - first + 1)
    np.testing.assert_allclose(w, expected, rtol=1e-12)
    np.testing.assert_allclose(np.abs(np.sum(v * vectors, axis=0)), 1.0, rtol=1e-12)


@pytest.mark.parametrize("index", range(N))
def test_tridiagonal_gradient_of_an_eigenvalue_has_its_closed_form(index):
    def value(d, e):
        chosen = (index, index)
        return linalg.eigh_tridiagonal(d, e, eigvals_only=True, select="i", select_range=chosen)[0]

    grad_d, grad_e = jax.grad(value, argnums=(0, 1))(D, OFF["real"])
    v = scipy.linalg.eigh_tridiagonal(D, OFF["real"])[1][:, index]
    np.testing.assert_allclose(grad_d, v**2, atol=1e-13)
    np.testing.assert_allclose(grad_e, 2 * v[:-1] * v[1:], atol=1e-13)


def test_tridiagonal_gradient_for_a_complex_off_diagonal_has_its_closed_form():
    e = OFF["complex"]

    def value(d, x):
        return linalg.eigh_tridiagonal(d, x, eigvals_only=True)[0]

    grad_d, grad_e = jax.grad(value, argnums=(0, 1))(D, e)
    v = scipy.linalg.eigh(tridiagonal(D, e))[1][:, 0]
    np.testing.assert_allclose(grad_d, np.abs(v) ** 2, atol=1e-13)
    np.testing.assert_allclose(grad_e, 2 * np.conj(v[1:]) * v[:-1], atol=1e-13)


@pytest.mark.parametrize("kind", OFF)
def test_tridiagonal_gradient_of_vectors_agrees_with_differences(kind):
    e = OFF[kind]
    weight = random_array(3, (N, N), e.dtype)
    d_dot, e_dot = random_array(4, (N,)), random_array(5, (N - 1,), e.dtype)

    def value(d, x):
        return loss_of(*linalg.eigh_tridiagonal(d, x), weight)

    def reference(t):
        return float(loss_of(*np.linalg.eigh(tridiagonal(D + t * d_dot, e + t * e_dot)), weight))

    grad_d, grad_e = jax.jit(jax.grad(value, argnums=(0, 1)))(D, e)
    got = along(grad_d, d_dot) + along(grad_e, e_dot)
    np.testing.assert_allclose(got, difference(reference), rtol=1e-9)


def test_tridiagonal_matrix_of_one_row_is_its_entry():
    w, v = linalg.eigh_tridiagonal(jnp.array([3.0]), jnp.zeros((0,)))
    np.testing.assert_array_equal(w, [3.0])
    np.testing.assert_array_equal(np.abs(v), [[1.0]])


@pytest.mark.parametrize("e", [jnp.ones(3), jnp.ones(1), jnp.ones((2, 1))])
def test_tridiagonal_shapes_that_do_not_fit_are_refused(e):
    with pytest.raises(ValueError, match="needs shapes"):
        linalg.eigh_tridiagonal(jnp.ones(3), e)


def test_tridiagonal_complex_diagonal_is_refused():
    with pytest.raises(TypeError, match="real diagonal"):
        linalg.eigh_tridiagonal(jnp.ones(3) * 1j, jnp.ones(2))


def test_tridiagonal_selections_that_make_no_sense_are_refused():
    call = partial(linalg.eigh_tridiagonal, D, OFF["real"])
    with pytest.raises(ValueError, match="select as one of"):
        call(select="x")
    with pytest.raises(NotImplementedError, match="no static shape"):
        call(select="v", select_range=(0.0, 1.0))
    with pytest.raises(ValueError, match="needs select_range"):
        call(select="i")
    for bounds in ((2, 1), (-1, 2), (0, 4)):
        with pytest.raises(ValueError, match="first <= last < 4"):
            call(select="i", select_range=bounds)


def test_tridiagonal_entries_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="NaN or inf"):
        linalg.eigh_tridiagonal(D, np.array([0.1, np.nan, 0.2]))
