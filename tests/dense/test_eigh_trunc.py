"""Truncated eigendecomposition: NumPy for values, the full decomposition and differences after."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg import linalg
from difflinalg.testing import random_hermitian

N, RANK = 5, 2
ENDS = ("LM", "LA", "SA")
DTYPES = (jnp.float64, jnp.complex128)
VALUES = [-2.0, 1.7, -0.9, 0.4, 0.1]
KEYS = {"LM": lambda w: -abs(w), "LA": lambda w: -w, "SA": lambda w: w}


def hermitian(values=VALUES, dtype=jnp.float64, seed=0):
    return np.asarray(random_hermitian(jax.random.key(seed), jnp.asarray(values), dtype))


def random_array(seed, shape, dtype=jnp.float64):
    return np.asarray(jax.random.normal(jax.random.key(seed), shape, dtype))


def along(gradient, d):
    return jnp.real(jnp.sum(gradient * d))


def loss_of(w, v, weight):
    """Smooth in the matrix, and free of phases."""
    projector = v @ v.conj().T
    part = (v * w) @ v.conj().T
    return jnp.sum(w**3) + jnp.real(jnp.sum(weight * projector) + jnp.sum(weight.T * part))


def truncated(a, weight, which="LM", rank=RANK, **options):
    w, v, _ = linalg.eigh_trunc(a, rank, which=which, **options)
    return loss_of(w, v, weight)


def sliced(a, weight, which="LM", rank=RANK):
    w, v = linalg.eigh(a)
    kept = jnp.argsort(KEYS[which](w))[:rank]
    return loss_of(w[kept], v[:, kept], weight)


def numpy_loss(a, weight, which="LM", rank=RANK):
    w, v = np.linalg.eigh((a + a.conj().T) / 2)
    kept = np.argsort(KEYS[which](w))[:rank]
    return float(loss_of(w[kept], v[:, kept], weight))


def difference(f, h=2e-3):
    """The derivative of a function of one number at zero, to the sixth order."""
    return (45 * (f(h) - f(-h)) - 9 * (f(2 * h) - f(-2 * h)) + f(3 * h) - f(-3 * h)) / (60 * h)


@partial(jax.jit, static_argnames=("which",))
def every_nesting(a, weight, d, e, which):
    """Gradient and Hessian; one end of the spectrum shares the rule, one nesting will do."""

    def f(x):
        return truncated(x, weight, which)

    def forward(x):
        return jax.jvp(f, (x,), (d,))[1]

    def reverse(x):
        return along(jax.grad(f)(x), d)

    gradient, hessian_e = jax.jvp(jax.grad(f), (a,), (e,))
    first = jnp.stack([forward(a), along(gradient, d)])
    second = [along(hessian_e, d)]
    if which == "LM":
        second.append(jax.jvp(forward, (a,), (e,))[1])
        second.append(along(jax.grad(forward)(a), e))
        second.append(along(jax.grad(reverse)(a), e))
    return gradient, first, jnp.stack(second)


@partial(jax.jit, static_argnames=("which",))
def by_full_decomposition(a, weight, d, e, which):
    gradient, hessian_e = jax.jvp(
        jax.grad(lambda x: sliced(x, weight, which)), (jnp.asarray(a),), (jnp.asarray(e),)
    )
    return gradient, along(hessian_e, d)


def arguments(values, dtype):
    weight, d, e = (random_array(seed, (N, N), dtype) for seed in (1, 2, 3))
    return hermitian(values, dtype), weight, d, e


def compare(values, dtype, which, rtol, hessian_rtol):
    a, weight, d, e = arguments(values, dtype)
    gradient, first, second = every_nesting(a, weight, d, e, which)
    expected, expected_second = by_full_decomposition(a, weight, d, e, which)
    size = np.linalg.norm(expected)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=rtol * size)
    by_difference = difference(lambda t: numpy_loss(a + t * d, weight, which))
    np.testing.assert_allclose(first, by_difference, rtol=0, atol=1e-9 * size)
    np.testing.assert_allclose(second, expected_second, rtol=0, atol=hessian_rtol * size)
    slopes = difference(
        lambda t: difference(lambda s: numpy_loss(a + t * e + s * d, weight, which), 5e-3), 5e-3
    )
    np.testing.assert_allclose(second, slopes, rtol=0, atol=1e-6 * size)


@pytest.mark.parametrize("dtype", [*DTYPES, jnp.float32, jnp.complex64])
@pytest.mark.parametrize("which", ENDS)
def test_values_and_vectors_agree_with_numpy(which, dtype):
    eps = jnp.finfo(dtype).eps
    a = hermitian(VALUES, dtype)
    w, v, info = linalg.eigh_trunc(a, RANK, which=which)
    expected = np.array(sorted(VALUES, key=KEYS[which]))
    assert w.dtype == jnp.finfo(dtype).dtype
    assert v.dtype == a.dtype
    np.testing.assert_allclose(w, expected[:RANK], rtol=20 * eps)
    np.testing.assert_allclose(v.conj().T @ v, np.eye(RANK), atol=20 * eps)
    np.testing.assert_allclose(a @ v, v * w, atol=40 * eps)
    np.testing.assert_allclose(info.error, np.linalg.norm(expected[RANK:]), rtol=50 * eps)
    assert info.kept == RANK
    assert not info.cut
    assert info.rounds == 0


def test_info_measures_the_gap_relative_to_the_largest_magnitude():
    info = linalg.eigh_trunc(hermitian(), RANK).info
    np.testing.assert_allclose(info.gap, (1.7 - 0.9) / 2.0, rtol=1e-13)


def test_full_rank_drops_nothing():
    w, v, info = linalg.eigh_trunc(hermitian(), N)
    np.testing.assert_allclose(v * w @ v.T, hermitian(), atol=1e-14)
    np.testing.assert_allclose(info.error, 0.0, atol=1e-14)
    assert not info.cut


def test_only_the_hermitian_part_is_decomposed():
    skew = np.triu(np.ones((N, N)), 1) - np.tril(np.ones((N, N)), -1)
    w, _, _ = linalg.eigh_trunc(hermitian() + skew, RANK)
    np.testing.assert_allclose(w, VALUES[:RANK], rtol=1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
def test_stack_of_matrices_equals_its_members(dtype):
    stack = np.stack([hermitian(VALUES, dtype, seed) for seed in range(6)]).reshape(2, 3, N, N)
    w, v, info = linalg.eigh_trunc(stack, RANK)
    assert w.shape == (2, 3, RANK)
    assert v.shape == (2, 3, N, RANK)
    assert info.error.shape == info.cut.shape == (2, 3)
    np.testing.assert_allclose(w, np.broadcast_to(VALUES[:RANK], w.shape), rtol=1e-13)
    np.testing.assert_allclose(stack @ v, v * w[..., None, :], atol=1e-13)


def test_vmap_and_jit_give_the_same_as_a_stack():
    stack = np.stack([hermitian(seed=seed) for seed in range(3)])
    mapped = jax.jit(jax.vmap(lambda a: linalg.eigh_trunc(a, RANK)))(stack)
    direct = linalg.eigh_trunc(stack, RANK)
    np.testing.assert_allclose(mapped.eigenvalues, direct.eigenvalues, rtol=1e-13)
    np.testing.assert_allclose(mapped.info.error, direct.info.error, rtol=1e-13)


@pytest.mark.parametrize(
    ("which", "dtype"), [("LM", jnp.float64), ("LM", jnp.complex128), ("SA", jnp.float64)]
)
def test_gradient_and_hessian_agree_with_full_decomposition_and_differences(which, dtype):
    compare(VALUES, dtype, which, 1e-12, 1e-11)


def test_derivatives_of_a_projector_are_right_where_kept_values_coincide():
    a, weight, d, e = arguments([2.0, 2.0, 0.9, 0.4, 0.1], jnp.float64)

    def f(x):
        v = linalg.eigh_trunc(x, RANK).eigenvectors
        return jnp.sum(weight * (v @ v.T))

    def by_numpy(x):
        v = np.linalg.eigh((x + x.T) / 2)[1][:, -RANK:]
        return float(np.sum(weight * (v @ v.T)))

    gradient, hessian_e = jax.jit(lambda x: jax.jvp(jax.grad(f), (x,), (e,)))(a)
    slope = difference(lambda t: by_numpy(a + t * d))
    np.testing.assert_allclose(along(gradient, d), slope, rtol=1e-9)
    curve = difference(lambda t: difference(lambda s: by_numpy(a + t * e + s * d), 5e-3), 5e-3)
    np.testing.assert_allclose(along(hessian_e, d), curve, rtol=1e-6)


# There the full decomposition is the less accurate one: it moves the members of a cluster apart.
@pytest.mark.parametrize("rest", [0.5, 0.0])
def test_derivatives_are_right_where_dropped_values_coincide_or_vanish(rest):
    compare([2.0, -1.2, rest, rest, rest], jnp.float64, "LM", 1e-5, 1e-4)


def test_truncation_term_is_not_the_one_that_drops_the_rest():
    a, weight, d, _ = arguments([2.0, 1.5, 1.3, 1.2, 1.1], jnp.float64)
    gradient = jax.grad(truncated)(jnp.asarray(a), weight)
    by_difference = difference(lambda t: numpy_loss(a + t * d, weight), 2e-3)
    np.testing.assert_allclose(along(gradient, d), by_difference, rtol=1e-8)


def test_gradient_of_a_stack_is_the_stack_of_gradients():
    stack = jnp.stack([jnp.asarray(hermitian(seed=seed)) for seed in range(2)])
    weight = random_array(1, (N, N))

    def total(x):
        w, v, _ = linalg.eigh_trunc(x, RANK)
        return sum(loss_of(w[i], v[i], weight) for i in range(2))

    single = jax.jit(jax.grad(truncated))
    expected = np.stack([single(a, weight) for a in stack])
    np.testing.assert_allclose(jax.jit(jax.grad(total))(stack), expected, rtol=1e-10, atol=1e-11)


def test_float32_gradient_has_the_digits_of_float32():
    a, weight, _, _ = arguments(VALUES, jnp.float64)
    exact = jax.grad(truncated)(jnp.asarray(a), weight)
    single = jax.grad(truncated)(jnp.asarray(a, jnp.float32), weight.astype(np.float32))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, exact, rtol=0, atol=1e-5 * np.linalg.norm(exact))


def test_derivative_of_the_error_is_zero_by_definition():
    a = jnp.asarray(hermitian())
    gradient = jax.grad(lambda x: linalg.eigh_trunc(x, RANK).info.error)(a)
    np.testing.assert_array_equal(gradient, np.zeros((N, N)))


@pytest.mark.parametrize(
    ("which", "values"),
    [
        ("LM", [2.0, 1.0, 1.0, 0.4, 0.1]),
        ("LM", [2.0, 1.0, -1.0, 0.4, 0.1]),
        ("LA", [2.0, 1.0, 1.0, 0.4, -3.0]),
        ("SA", [-2.0, -1.0, -1.0, 0.4, 3.0]),
    ],
)
def test_rank_that_cuts_a_multiplet_has_nan_derivatives_of_vectors(which, values):
    a, weight = jnp.asarray(hermitian(values)), random_array(1, (N, N))
    w, _, info = linalg.eigh_trunc(a, RANK, which=which)
    assert info.cut
    assert info.kept == RANK
    np.testing.assert_allclose(np.abs(w), np.abs(values[:RANK]), rtol=1e-13)
    assert np.all(np.isnan(jax.grad(truncated)(a, weight, which)))


def test_equal_values_of_opposite_sign_are_no_multiplet_of_one_end():
    info = linalg.eigh_trunc(hermitian([2.0, 1.0, 0.4, 0.1, -1.0]), RANK, which="LA").info
    assert not info.cut


@pytest.mark.parametrize(
    ("which", "values"),
    [("LM", [2.0, 1.0, -1.0, 0.4, 0.1]), ("LA", [2.0, 1.0, 1.0, 0.4, -3.0])],
)
def test_keep_multiplets_drops_the_members_inside_of_the_rank(which, values):
    a, weight, d, _ = arguments(values, jnp.float64)
    w, v, info = linalg.eigh_trunc(a, RANK, which=which, keep_multiplets=True)
    np.testing.assert_allclose(w, [2.0, 0.0], rtol=1e-13)
    np.testing.assert_array_equal(v[:, 1], np.zeros(N))
    assert info.kept == 1
    assert not info.cut
    np.testing.assert_allclose(info.error, np.linalg.norm(values[1:]), rtol=1e-13)
    gradient = jax.grad(partial(truncated, which=which, keep_multiplets=True))(
        jnp.asarray(a), weight
    )
    by_difference = difference(lambda t: numpy_loss(a + t * d, weight, which, rank=1))
    np.testing.assert_allclose(along(gradient, d), by_difference, rtol=1e-9)


def test_keep_multiplets_changes_nothing_where_no_multiplet_is_cut():
    plain = linalg.eigh_trunc(hermitian(), RANK)
    careful = linalg.eigh_trunc(hermitian(), RANK, keep_multiplets=True)
    np.testing.assert_array_equal(plain.eigenvalues, careful.eigenvalues)
    assert careful.info.kept == RANK


def test_multiplet_tolerance_decides_what_is_equal():
    a = hermitian([2.0, 1.0, 1.0 - 1e-4, 0.4, 0.1])
    assert not linalg.eigh_trunc(a, RANK).info.cut
    assert linalg.eigh_trunc(a, RANK, multiplet_rtol=1e-3).info.cut


@pytest.fixture(scope="module")
def large():
    """A matrix of 80 rows with decaying values of both signs, and a weight."""
    values = np.array([(-1.0) ** i * 0.6**i for i in range(80)])
    return jnp.asarray(hermitian(values, seed=5)), random_array(6, (80, 80)) / 80


@partial(jax.jit, static_argnames=("full",))
def value_gradient_hessian(a, weight, d, full):
    def f(x):
        return truncated(x, weight, rank=5, full=full)

    result = linalg.eigh_trunc(a, 5, full=full)
    return result, jax.jvp(jax.grad(f), (a,), (d,))


def test_iteration_and_full_decomposition_agree_in_value_gradient_and_hessian(large):
    a, weight = large
    d = jnp.asarray(random_array(7, (80, 80))) / 80
    iterated, iterated_derivatives = value_gradient_hessian(a, weight, d, full=False)
    full, full_derivatives = value_gradient_hessian(a, weight, d, full=True)
    assert iterated.info.rounds > 0
    assert full.info.rounds == 0
    np.testing.assert_allclose(iterated.eigenvalues, full.eigenvalues, rtol=1e-13)
    np.testing.assert_allclose(iterated.info.error, full.info.error, rtol=1e-12)
    for got, expected in zip(iterated_derivatives, full_derivatives, strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-11 * np.linalg.norm(expected))


def test_iteration_is_the_default_where_it_is_cheaper(large):
    a, _ = large
    assert linalg.eigh_trunc(a, 5).info.rounds > 0
    assert linalg.eigh_trunc(a, 20).info.rounds == 0


def test_iteration_falls_back_where_the_spectrum_is_flat():
    values = np.linspace(1.0, 0.99, 80) * np.where(np.arange(80) % 2, -1.0, 1.0)
    w, v, info = linalg.eigh_trunc(a := hermitian(values, seed=8), 5, full=False)
    np.testing.assert_allclose(w, values[:5], rtol=1e-13)
    np.testing.assert_allclose(a @ v, v * w, atol=1e-13)
    assert not info.cut


@pytest.mark.parametrize("full", [True, False])
def test_zero_matrix_has_zero_values_and_orthonormal_vectors(full):
    w, v, info = linalg.eigh_trunc(jnp.zeros((N, N)), RANK, full=full)
    np.testing.assert_array_equal(w, np.zeros(RANK))
    np.testing.assert_allclose(v.T @ v, np.eye(RANK), atol=1e-14)
    assert info.error == 0.0


@pytest.mark.parametrize("rank", [0, -1, N + 1])
def test_rank_out_of_range_is_refused(rank):
    with pytest.raises(ValueError, match="1 <= rank <= 5"):
        linalg.eigh_trunc(hermitian(), rank)


@pytest.mark.parametrize("rank", [2.0, True, None, "2"])
def test_rank_that_is_no_integer_is_refused(rank):
    with pytest.raises(TypeError, match="Python integer"):
        linalg.eigh_trunc(hermitian(), rank)


def test_rank_may_be_a_numpy_integer():
    assert linalg.eigh_trunc(hermitian(), np.int64(2)).eigenvalues.shape == (2,)


def test_unknown_end_is_refused():
    with pytest.raises(ValueError, match="'LM', 'LA', 'SA', got 'SM'"):
        linalg.eigh_trunc(hermitian(), RANK, which="SM")


@pytest.mark.parametrize("which", ["LA", "SA"])
def test_iteration_for_one_end_is_refused(which):
    with pytest.raises(ValueError, match="leave out full=False"):
        linalg.eigh_trunc(hermitian(), RANK, which=which, full=False)


@pytest.mark.parametrize("shape", [(3, 4), (3,), ()])
def test_array_that_is_not_square_is_refused(shape):
    with pytest.raises(ValueError, match="eigh_trunc needs"):
        linalg.eigh_trunc(jnp.zeros(shape), 1)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_matrix_that_is_not_finite_is_refused_outside_of_jit_and_nan_inside(bad):
    a = jnp.eye(N).at[1, 2].set(bad)
    with pytest.raises(ValueError, match="NaN or inf"):
        linalg.eigh_trunc(a, RANK)
    for full in (True, False):
        w, _, _ = jax.jit(partial(linalg.eigh_trunc, rank=RANK, full=full))(a)
        assert np.all(np.isnan(w))


def test_something_that_is_no_array_is_refused():
    with pytest.raises(TypeError, match="needs an array"):
        linalg.eigh_trunc({"a": 1}, 1)
