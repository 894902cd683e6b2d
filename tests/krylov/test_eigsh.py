"""eigsh on matrices, functions and pytrees: values, multiplets, failures and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.sparse import BCOO

from difflinalg.scipy.sparse.linalg import NotConverged, eigsh

N = 60


def unitary(rng, n=N, is_complex=True):
    a = rng.standard_normal((n, n)) + 1j * is_complex * rng.standard_normal((n, n))
    return np.linalg.qr(a if is_complex else a.real)[0]


def hermitian(rng, w, is_complex=True):
    q = unitary(rng, len(w), is_complex)
    a = (q * w) @ q.conj().T
    return jnp.asarray((a + a.conj().T) / 2)


def spectrum(rng):
    """Doublets, triplets and quadruplets among single values, at both ends."""
    ends = [-9.0, -8.0, -8.0, -8.0, -7.0, -7.0, 6.5, 6.5, 6.5, 6.5, 8.5, 10.0]
    return np.sort(np.concatenate([ends, rng.uniform(-5, 5, N - len(ends))]))


def wanted(w, which, k):
    orders = {
        "LA": np.argsort(-w),
        "SA": np.argsort(w),
        "LM": np.argsort(-np.abs(w)),
        "SM": np.argsort(np.abs(w)),
        "BE": np.argsort([min(2 * (len(w) - 1 - i), 2 * i + 1) for i in range(len(w))]),
    }
    return np.sort(w[orders[which][:k]])


@pytest.mark.parametrize(
    ("which", "k"), [("LA", 6), ("SA", 4), ("LM", 5), ("BE", 5), ("BE", 2), ("SM", 3)]
)
def test_pairs_of_a_matrix_with_multiplets(rng, which, k):
    w = spectrum(rng)
    a = hermitian(rng, w)
    values, vectors, info = eigsh(a, k, which=which, return_info=True)
    np.testing.assert_allclose(values, wanted(w, which, k), atol=1e-12)
    np.testing.assert_allclose(a @ vectors, vectors * values, atol=1e-12)
    np.testing.assert_allclose(vectors.conj().T @ vectors, np.eye(k), atol=1e-13)
    assert info.converged
    assert np.all(info.residual_norms < 1e-12)


def test_interior_values_of_a_function(rng):
    w = np.concatenate([[0.1, -0.2, 0.35], np.linspace(1.0, 2.0, 30), -np.linspace(1, 2, 27)])
    a = hermitian(rng, w)
    like = jax.ShapeDtypeStruct((N,), a.dtype)
    values = eigsh(lambda x: a @ x, 3, which="SM", v0=like, return_eigenvectors=False)
    np.testing.assert_allclose(values, [-0.2, 0.1, 0.35], atol=1e-12)


@pytest.mark.parametrize("block_size", [1, 2, 3])
def test_triplet_is_complete_with_any_block(rng, block_size):
    w = np.concatenate([[-9, -8, -8, -8, -7.5, -7.5, -7], np.linspace(-5, 5, 73)])
    a = hermitian(rng, w, is_complex=False)
    values = eigsh(a, 6, which="SA", block_size=block_size, return_eigenvectors=False)
    np.testing.assert_allclose(values, w[:6], atol=1e-12)


CASES = {
    "identity": np.eye(N),
    "zero": np.zeros((N, N)),
    "rank one": np.outer(np.arange(N), np.arange(N)) / N,
    "diagonal with breakdown": np.diag([5.0, 4.0] + [1.0] * (N - 2)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("k", [1, 3])
def test_breakdown_is_survived(case, k):
    a = CASES[case]
    values, vectors = eigsh(jnp.asarray(a), k, which="LA")
    np.testing.assert_allclose(values, np.linalg.eigvalsh(a)[-k:], atol=1e-11)
    np.testing.assert_allclose(a @ vectors, vectors * values, atol=1e-11)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(k), atol=1e-13)


@pytest.mark.parametrize("n", [1, 2, 5, 23])
def test_matrix_smaller_than_the_basis(rng, n):
    a = hermitian(rng, np.arange(1.0, n + 1.0))
    for k in {1, n}:
        values, vectors = eigsh(a, k, which="SA")
        np.testing.assert_allclose(values, np.arange(1.0, k + 1.0), atol=1e-12)
        np.testing.assert_allclose(a @ vectors, vectors * values, atol=1e-12)


def test_single_precision(rng):
    w = np.concatenate([[-9, -8, -8], np.linspace(-5, 5, 57)])
    a = hermitian(rng, w).astype(jnp.complex64)
    values, vectors = eigsh(a, 3, which="SA")
    assert (values.dtype, vectors.dtype) == (jnp.float32, jnp.complex64)
    np.testing.assert_allclose(values, w[:3], rtol=5e-6)


def test_sparse_matrix_function_and_pytree_agree(rng):
    a = jnp.asarray(hermitian(rng, np.linspace(-3, 3, N) ** 3, is_complex=False))
    want = eigsh(a, 2, which="LA")[0]

    def on_tree(x):
        y = a @ jnp.concatenate([x["left"].reshape(-1), x["right"]])
        return {"left": y[:20].reshape(4, 5), "right": y[20:]}

    shapes = {
        "left": jax.ShapeDtypeStruct((4, 5), a.dtype),
        "right": jax.ShapeDtypeStruct((N - 20,), a.dtype),
    }
    values, vectors = eigsh(on_tree, 2, which="LA", v0=shapes)
    np.testing.assert_allclose(values, want, atol=1e-12)
    assert (vectors["left"].shape, vectors["right"].shape) == ((4, 5, 2), (N - 20, 2))
    last = jax.tree.map(lambda x: x[..., 1], vectors)
    image = on_tree(last)
    np.testing.assert_allclose(image["left"], values[1] * last["left"], atol=1e-11)
    sparse = eigsh(BCOO.fromdense(a), 2, which="LA", return_eigenvectors=False)
    np.testing.assert_allclose(sparse, want, atol=1e-12)


def test_vmap_over_operators(rng):
    stack = jnp.stack([hermitian(rng, np.linspace(-1, c, N) ** 3) for c in (2.0, 3.0)])
    got = jax.vmap(lambda a: eigsh(a, 2, which="LA")[0])(stack)
    np.testing.assert_allclose(got, jnp.linalg.eigvalsh(stack)[:, -2:], atol=1e-11)


def test_shift_finds_interior_values(rng):
    w = np.linspace(-3.0, 3.0, N)
    a = hermitian(rng, w)
    nearest = np.sort(w[np.argsort(np.abs(w - 0.4))[:3]])
    got, v, info = eigsh(a, 3, sigma=0.4, return_info=True)
    np.testing.assert_allclose(got, nearest, atol=1e-12)
    np.testing.assert_allclose(a @ v, v * got, atol=1e-11)
    assert not info.cut
    like = jax.ShapeDtypeStruct((N,), a.dtype)
    got = eigsh(lambda x: a @ x, 3, sigma=0.4, v0=like, return_eigenvectors=False)
    np.testing.assert_allclose(got, nearest, atol=1e-11)


@pytest.mark.parametrize("kind", ["array", "function"])
def test_generalised_problem(rng, kind):
    import scipy.linalg

    a, m = hermitian(rng, np.linspace(-3, 3, N)), hermitian(rng, np.linspace(1.0, 2.0, N))
    w = scipy.linalg.eigh(a, m, eigvals_only=True)
    if kind == "array":
        got, v = eigsh(a, 3, m, which="SA")
    else:
        like = jax.ShapeDtypeStruct((N,), a.dtype)
        got, v = eigsh(lambda x: a @ x, 3, lambda x: m @ x, which="SA", v0=like)
    np.testing.assert_allclose(got, w[:3], atol=1e-12)
    np.testing.assert_allclose(v.conj().T @ m @ v, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(a @ v, m @ v * got, atol=1e-11)


def test_shifted_generalised_problem_with_a_given_inverse(rng):
    import scipy.linalg

    a, m = hermitian(rng, np.linspace(-3, 3, N)), hermitian(rng, np.linspace(1.0, 2.0, N))
    w = scipy.linalg.eigh(a, m, eigvals_only=True)
    inverse = jnp.linalg.inv(a - 0.4 * m)
    got, v = eigsh(a, 3, m, sigma=0.4, OPinv=lambda x: inverse @ x)
    np.testing.assert_allclose(got, np.sort(w[np.argsort(np.abs(w - 0.4))[:3]]), atol=1e-11)
    np.testing.assert_allclose(v.conj().T @ m @ v, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(a @ v, m @ v * got, atol=1e-10)


def test_operator_that_is_not_hermitian_is_detected(rng):
    a = jnp.asarray(rng.standard_normal((N, N)))
    calls = (lambda a: eigsh(a, 2)[0], lambda a: eigsh(lambda x: a @ x, 2, v0=jnp.ones(N))[0])
    for call in calls:
        with pytest.raises(ValueError, match="eigsh needs a Hermitian operator"):
            call(a)
    assert np.all(np.isnan(jax.jit(calls[1])(a)))


def test_missing_convergence_is_reported(rng):
    a = hermitian(rng, np.linspace(-1, 1, 100))
    with pytest.raises(NotConverged, match="of 2 pairs are accurate") as caught:
        eigsh(a, 2, which="SA", maxiter=1)
    w, v, info = caught.value.found
    assert w.shape == (2,)
    assert v.shape == (100, 2)
    assert not info.converged

    @jax.jit
    def compute(t):
        def lowest(t):
            w, v, info = eigsh(a * t, 2, which="SA", maxiter=1, return_info=True)
            return w[0], (w, v, info)

        return jax.grad(lowest, has_aux=True)(t)

    slope, (w, v, info) = compute(1.0)
    assert not info.converged
    assert np.all(np.isnan(w))
    assert np.all(np.isnan(v))
    assert np.isnan(slope)


def test_nan_in_the_operator_ends_the_iteration():
    w = jax.jit(lambda x: eigsh(jnp.full((N, N), x), 2)[0])(jnp.nan)
    assert np.all(np.isnan(w))


BAD = [
    (lambda a: eigsh(a[:, :3], 2), ValueError, "needs one square matrix"),
    (lambda a: eigsh(a, 0), ValueError, "needs 1 <= k <= 60"),
    (lambda a: eigsh(a, N + 1), ValueError, "needs 1 <= k <= 60"),
    (lambda a: eigsh(a, 2, which="XX"), ValueError, "takes which as one of"),
    (lambda a: eigsh(a, 2, v0=jnp.ones(N - 1)), ValueError, r"v0 of shape \(60,\)"),
    (lambda a: eigsh(lambda x: a @ x, 2), ValueError, "give v0"),
    (lambda a: eigsh(lambda x: x[:3], 2, v0=a[0]), ValueError, "structure of the vector"),
    (lambda a: eigsh(a, 2, a[:3, :3]), ValueError, "matrices of shape"),
    (lambda _: eigsh("a", 2), TypeError, "got str"),
    (lambda a: jax.jit(lambda k: eigsh(a, k))(2), TypeError, "Python integer"),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_arguments_that_do_not_fit_are_refused(case):
    call, error, message = BAD[case]
    with pytest.raises(error, match=message):
        call(jnp.eye(N))
