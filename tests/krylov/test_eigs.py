"""eigs against dense decompositions: values, left vectors, multiplets, failures, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax.experimental.sparse import BCOO

from difflinalg import linalg
from difflinalg._krylov.krylov_schur import order_by_targets, order_of
from difflinalg._krylov.ordered_schur import leading_basis, ordered_schur
from difflinalg.scipy.sparse.linalg import NotConverged, eigs

N, K = 40, 5


def similar(rng, blocks, n=N):
    """A real matrix with these diagonal blocks, in a random well-conditioned basis."""
    x = np.eye(n) + 0.1 * rng.standard_normal((n, n))
    return x @ scipy.linalg.block_diag(*blocks) @ np.linalg.inv(x)


def rotation(real, imag):
    return np.array([[real, imag], [-imag, real]])


def inner_values(rng, count):
    return list(rng.uniform(-1.0, 1.0, count))


def left_right(a):
    return eigs(a, K, left=True, return_info=True)


compiled = jax.jit(left_right)
slope_of_values = jax.jit(jax.grad(lambda a: jnp.sum(jnp.cos(eigs(a, K)[0])).real))


def matrices(rng):
    """Real matrices of one shape, with the five values of largest magnitude."""
    cut = [5.0, rotation(3.0, 3.0), -4.0, rotation(0.0, 3.0), *inner_values(rng, N - 6)]
    doublets = [5.0, 4.0, 4.0, -3.0, -3.0, *inner_values(rng, N - 5)]
    pairs = [rotation(3.0, 1.0), rotation(3.0, 1.0), 2.0, *inner_values(rng, N - 5)]
    return {
        "a pair that is cut": (similar(rng, cut), [5.0, 3 + 3j, 3 - 3j, -4.0, 3j]),
        "doublets": (similar(rng, doublets), [5.0, 4.0, 4.0, -3.0, -3.0]),
        "a doublet of pairs": (similar(rng, pairs), [3 + 1j, 3 - 1j, 3 + 1j, 3 - 1j, 2.0]),
        "identity": (np.eye(N), np.ones(K)),
        "zero": (np.zeros((N, N)), np.zeros(K)),
        "rank one": (np.outer(np.ones(N), np.arange(N)) / N, [19.5, 0.0, 0.0, 0.0, 0.0]),
    }


def test_values_and_both_vectors_of_matrices_with_multiplets_and_breakdown(rng):
    for name, (a, want) in matrices(rng).items():
        w, left, right, info = compiled(jnp.asarray(a))
        assert info.converged, name
        want = np.sort_complex(np.asarray(want, complex))
        np.testing.assert_allclose(np.sort_complex(np.round(w, 8)), want, atol=1e-7, err_msg=name)
        scale = 1e-13 * max(np.linalg.norm(a, 2), 1.0)
        np.testing.assert_allclose(a @ right, right * w, atol=20 * scale, err_msg=name)
        np.testing.assert_allclose(left.conj().T @ a, w[:, None] * left.conj().T, atol=20 * scale)
        np.testing.assert_allclose(np.linalg.norm(right, axis=0), 1.0, atol=1e-13)
        assert np.linalg.matrix_rank(left.conj().T @ right) == K, name
        largest = np.take_along_axis(right, np.argmax(np.abs(right), axis=0)[None], axis=0)
        assert np.all(largest.real > 0.0)
        np.testing.assert_allclose(largest.imag, 0.0, atol=1e-15)
    assert np.all(np.isnan(compiled(jnp.asarray(np.full((N, N), np.nan)))[0]))


def test_condition_of_an_eigenvalue_and_the_cut_of_a_multiplet_are_reported(rng):
    a = similar(rng, [4.0, 3.0, 2.5, -2.0, 1.5, 1.5, *inner_values(rng, N - 6)])
    _, left, right, info = compiled(jnp.asarray(a))
    assert info.cut
    product = np.abs(np.sum(left.conj() * right, axis=0))
    np.testing.assert_allclose(info.condition[:4], 1.0 / product[:4], rtol=1e-8)


def test_gradient_of_values_is_right_or_nan(rng):
    """Functions of the values are smooth at whole multiplets, not at a cut or a Jordan block."""
    cases = matrices(rng)
    for name in ("a pair that is cut", "doublets", "a doublet of pairs"):
        a, want = cases[name]
        w, v = np.linalg.eig(a)
        chosen = [int(np.argmin(np.abs(w - x))) for x in dict.fromkeys(map(complex, want))]
        members = np.any(np.abs(w[:, None] - w[chosen]) < 1e-8, axis=1)
        expected = np.linalg.inv(v).T @ np.diag(np.where(members, -np.sin(w), 0.0)) @ v.T
        got = slope_of_values(jnp.asarray(a))
        np.testing.assert_allclose(got, expected.real, atol=1e-10, err_msg=name)
    cut = similar(rng, [5.0, 4.0, 3.0, -4.5, 2.0, 2.0, *inner_values(rng, N - 6)])
    jordan = [np.array([[4.0, 1.0], [0.0, 4.0]]), 3.0, 2.5, 2.0, *inner_values(rng, N - 5)]
    assert np.all(np.isnan(slope_of_values(jnp.asarray(cut))))
    assert np.all(np.isnan(slope_of_values(jnp.asarray(similar(rng, jordan)))))


@pytest.mark.parametrize("is_complex", [False, True])
def test_leading_schur_vectors_span_the_invariant_subspace(rng, is_complex):
    h = rng.standard_normal((12, 12)) + 1j * is_complex * rng.standard_normal((12, 12))
    h = jnp.asarray(h if is_complex else h.real)
    order = order_of("LM", not is_complex)

    @jax.jit
    def compute(h):
        form = ordered_schur(h, order, 6)
        count = jnp.where(form.opens_pair[4], 6, 5)
        return form, count, leading_basis(form, count, 6, not is_complex)

    form, count, basis = compute(h)
    want = np.linalg.eigvals(h)
    want = want[np.argsort(-np.abs(want), kind="stable")][:5]
    np.testing.assert_allclose(np.abs(np.diagonal(form.t)[:5]), np.abs(want), rtol=1e-12)
    np.testing.assert_allclose(form.z @ form.t @ form.z.conj().T, h, atol=1e-13)
    basis = basis[:, :count]
    assert jnp.iscomplexobj(basis) == is_complex
    projected = basis.conj().T @ h @ basis
    np.testing.assert_allclose(h @ basis, basis @ projected, atol=1e-12)


def test_orders_of_eigenvalues():
    w = jnp.array([1 + 1j, 1 - 1j, -3.0 + 0j, 0.1 - 2j])
    firsts = {"LM": 2, "SM": 0, "LR": 0, "SR": 2, "LI": 3, "SI": 2}
    for which, first in firsts.items():
        assert order_of(which, True)(w)[0] == first, which
    assert order_of("LI", False)(w)[0] == 0
    assert order_of("SI", False)(w)[0] == 3
    targets = jnp.array([0.1 - 1.9j, 1 - 0.9j])
    assert list(order_by_targets(targets, order_of("LM", True))(w)) == [3, 1, 2, 0]


def loss_of(weights, w, v):
    """Of values and vectors, whatever the phases of the vectors."""
    overlaps = jnp.abs(weights @ v) ** 2
    return jnp.sum(jnp.sin(w.real) + w.imag**2) + jnp.sum(
        overlaps @ jnp.arange(1.0, v.shape[1] + 1)
    )


def test_derivatives_agree_with_the_dense_ones(rng):
    """Of a real matrix, with one member of a conjugate pair, first and second, in both modes."""
    blocks = [5.0, rotation(4.0, 1.0), *inner_values(rng, N - 3)]
    a, b = jnp.asarray(similar(rng, blocks)), jnp.asarray(rng.standard_normal((N, N)) / 5)
    weights = jnp.asarray(rng.standard_normal((2, N)))
    w = np.linalg.eigvals(a)
    chosen = [int(np.argmin(np.abs(w - x))) for x in (5.0, 4.0 + 1.0j)]

    def krylov(t):
        return loss_of(weights, *eigs(a + t * b, 2, which="LR"))

    def dense(t):
        w, v = linalg.eig(a + t * b)
        return loss_of(weights, w[jnp.array(chosen)], v[:, jnp.array(chosen)])

    @jax.jit
    def compute(t):
        return [jax.jvp(jax.value_and_grad(f), (t,), (1.0,)) for f in (krylov, dense)]

    got, want = compute(0.0)
    np.testing.assert_allclose(got, want, rtol=1e-9)


def test_shifted_generalised_complex_problem_against_finite_differences(rng):
    shape = (4, N, N)
    a, b, c, d = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    m = 3.0 * np.eye(N) + 0.1 * c
    weights = rng.standard_normal((2, N))
    sigma, k = 0.3 + 0.2j, 2

    def plain(t, s):
        w, v = scipy.linalg.eig(a + t * b, m + s * d)
        first = np.argsort(np.abs(w - sigma))[:k]
        v = v[:, first] / np.linalg.norm(v[:, first], axis=0)
        return loss_of(weights, jnp.asarray(w[first]), jnp.asarray(v))

    def krylov(t, s):
        pencil = jnp.asarray(a) + t * b, jnp.asarray(m) + s * d
        return loss_of(weights, *eigs(pencil[0], k, pencil[1], sigma))

    value, slope = jax.jit(jax.value_and_grad(krylov, (0, 1)))(0.0, 0.0)
    h = 1e-4
    want = [
        (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)
        for f in (lambda t: plain(t, 0.0), lambda s: plain(0.0, s))
    ]
    np.testing.assert_allclose(value, plain(0.0, 0.0), rtol=1e-10)
    np.testing.assert_allclose(slope, want, rtol=1e-7)


def test_spectral_projector_of_a_doublet_is_differentiated_twice(rng):
    """The perturbation splits the doublet, but its projector is smooth."""
    a = similar(rng, [3.0, 3.0, *inner_values(rng, N - 2)])
    b = rng.standard_normal((N, N)) / 10
    x, y = rng.standard_normal((2, N))

    def krylov(t):
        _, left, right = eigs(jnp.asarray(a) + t * b, 2, left=True)
        coefficients = jnp.linalg.solve(left.conj().T @ right, left.conj().T @ y)
        return (x @ right @ coefficients).real

    def plain(t):
        w, v = np.linalg.eig(a + t * b)
        kept = w.real > 2.0
        return (x @ v[:, kept] @ np.linalg.inv(v)[kept] @ y).real

    got = jax.jit(lambda t: jax.jvp(jax.value_and_grad(krylov), (t,), (1.0,)))(0.0)
    h = 1e-2
    points = np.array([plain(i * h) for i in range(-3, 4)])
    first = np.dot(points, [-1, 9, -45, 0, 45, -9, 1]) / (60 * h)
    second = np.dot(points, [2, -27, 270, -490, 270, -27, 2]) / (180 * h * h)
    np.testing.assert_allclose(got, [[plain(0.0), first], [first, second]], rtol=1e-6)


def test_vmap_over_functions_of_pytrees_in_single_precision(rng):
    a = similar(rng, [3.0, rotation(2.0, 1.0), *inner_values(rng, N - 3)]).astype(np.float32)
    sparse = BCOO.fromdense(jnp.asarray(a))
    like = {
        "x": jax.ShapeDtypeStruct((4, 5), a.dtype),
        "y": jax.ShapeDtypeStruct((N - 20,), a.dtype),
    }

    def value(scale):
        def apply(tree):
            image = scale * (sparse @ jnp.concatenate([tree["x"].reshape(-1), tree["y"]]))
            return {"x": image[:20].reshape(4, 5), "y": image[20:]}

        return eigs(apply, 2, v0=like)

    scales = np.array([1.0, -2.0], np.float32)
    w, v = jax.vmap(value)(scales)
    assert (w.dtype, v["x"].dtype) == (jnp.complex64, jnp.complex64)
    assert (v["x"].shape, v["y"].shape) == ((2, 4, 5, 2), (2, N - 20, 2))
    # Of each pair the value with positive imaginary part comes first.
    np.testing.assert_allclose(w, [[3.0, 2 + 1j], [-6.0, -4 + 2j]], rtol=1e-5)
    flat = jnp.concatenate([v["x"].reshape(2, 20, 2), v["y"]], axis=1)
    np.testing.assert_allclose(scales[:, None, None] * (a @ flat), flat * w[:, None], atol=2e-5)


@pytest.mark.parametrize("n", [1, 4])
def test_matrix_smaller_than_the_basis(rng, n):
    a = rng.standard_normal((n, n))
    w, v = eigs(jnp.asarray(a), n, which="SR")
    want = np.sort_complex(np.linalg.eigvals(a))
    np.testing.assert_allclose(np.sort_complex(w), want, atol=1e-12)
    np.testing.assert_allclose(a @ v, v * w, atol=1e-12)


def test_missing_convergence_is_reported(rng):
    a = jnp.asarray(rng.standard_normal((200, 200)))
    w, v, info = jax.jit(lambda a: eigs(a, 2, maxiter=1, ncv=8, return_info=True))(a)
    assert not info.converged
    assert np.all(np.isnan(w))
    assert np.all(np.isnan(v))
    with pytest.raises(NotConverged, match="0 of 2 pairs are accurate") as caught:
        eigs(jnp.full((4, 4), jnp.nan), 2)
    w, v, info = caught.value.found
    assert (w.shape, v.shape, bool(info.converged)) == ((2,), (4, 2), False)


BAD = [
    (lambda a: eigs(a[:, :3], 2), ValueError, "needs one square matrix"),
    (lambda a: eigs(a, N + 1), ValueError, "needs 1 <= k <= 40"),
    (lambda a: eigs(a, 2, which="LA"), ValueError, "takes which as one of"),
    (lambda a: eigs(a, 2, v0=jnp.ones(N - 1)), ValueError, r"v0 of shape \(40,\)"),
    (lambda a: eigs(lambda x: a @ x, 2), ValueError, "give v0"),
    (lambda a: eigs(a, 2, a[:3, :3]), ValueError, "matrices of shape"),
    (lambda a: eigs(a, 2, sigma=1j, OPpart="r"), ValueError, "cannot take OPpart"),
    (lambda _: eigs("a", 2), TypeError, "got str"),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_arguments_that_do_not_fit_are_refused(case):
    call, error, message = BAD[case]
    with pytest.raises(error, match=message):
        call(jnp.eye(N))


def test_functions_with_a_shift_and_a_metric_are_inverted_iteratively(rng):
    a = similar(rng, [2.0, -1.0, 0.4, *inner_values(rng, N - 3)]) + 0.1 * np.eye(N)
    x = 0.05 * rng.standard_normal((N, N))
    m = np.eye(N) + x @ x.T
    like = jax.ShapeDtypeStruct((N,), jnp.float64)

    def by_functions(a):
        w, left, right = eigs(lambda x: a @ x, 1, lambda x: m @ x, sigma=2.1, v0=like, left=True)
        return jnp.real(w[0]) + jnp.abs(jnp.vdot(left[:, 0], right[:, 0])) ** 2

    def by_arrays(a):
        w, left, right = eigs(a, 1, m, sigma=2.1, left=True)
        return jnp.real(w[0]) + jnp.abs(jnp.vdot(left[:, 0], right[:, 0])) ** 2

    found, wanted = (
        jax.jit(jax.value_and_grad(f))(jnp.asarray(a)) for f in (by_functions, by_arrays)
    )
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-11)
    np.testing.assert_allclose(found[1], wanted[1], atol=1e-9)
