"""The rule of eigsh against dense decompositions, finite differences and its own transpose."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.sparse import BCOO

from difflinalg.scipy.sparse.linalg import eigsh

N = 50
OPTIONS = {  # arguments, the pairs that are wanted, whether of a complex matrix
    "LA": (dict(k=3, which="LA"), lambda w: np.argsort(-w)[:3], False),
    "SA": (dict(k=2, which="SA"), lambda w: np.argsort(w)[:2], True),
    "LM": (dict(k=4, which="LM"), lambda w: np.argsort(-np.abs(w))[:4], True),
    "BE": (dict(k=3, which="BE"), lambda w: np.r_[0, len(w) - 2, len(w) - 1], False),
    "SM": (dict(k=3, which="SM"), lambda w: np.argsort(np.abs(w))[:3], False),
    "sigma": (dict(k=2, sigma=0.7), lambda w: np.argsort(np.abs(w - 0.7))[:2], True),
}


def matrices(rng, count, is_complex, n=N):
    a = rng.standard_normal((count, n, n)) + 1j * is_complex * rng.standard_normal((count, n, n))
    a = a if is_complex else a.real
    return [jnp.asarray(x + x.conj().T) / 2 for x in a]


def loss_of(weights, w, v):
    """Of values and projectors, with a phase-invariant weight for each pair."""
    overlaps = jnp.abs(weights.conj() @ v) ** 2
    return jnp.sum(jnp.sin(w)) + jnp.sum(overlaps @ jnp.arange(1.0, w.shape[0] + 1.0))


@jax.jit
def dense_derivatives(a, b, weights, chosen, order, t):
    """As `loss_of` with pairs that an array says, so that all cases share one program."""

    def loss(t):
        w, v = jnp.linalg.eigh(a + t * b)
        return jnp.sum(chosen * jnp.sin(w)) + jnp.sum(jnp.abs(weights.conj() @ v) ** 2 @ order)

    return jax.jvp(jax.value_and_grad(loss), (t,), (1.0,))


@pytest.mark.parametrize("case", OPTIONS)
def test_first_and_second_derivatives_agree_with_the_dense_ones(rng, case):
    options, choose, is_complex = OPTIONS[case]
    a, b = matrices(rng, 2, is_complex)
    a = a + jnp.diag(jnp.linspace(-20.0, 20.0, N))  # gaps of order 1
    pairs = np.sort(choose(np.linalg.eigvalsh(a)))
    chosen, order = np.zeros((2, N))
    chosen[pairs], order[pairs] = 1.0, np.arange(1.0, len(pairs) + 1.0)
    weights = jnp.asarray(rng.standard_normal((2, N)))

    @jax.jit
    def compute(t):
        f = jax.value_and_grad(lambda t: loss_of(weights, *eigsh(a + t * b, **options)))
        return jax.jvp(f, (t,), (1.0,))

    want = dense_derivatives(a, b, weights, chosen, order, 0.1)
    np.testing.assert_allclose(compute(0.1), want, rtol=1e-8)


def test_gradient_of_a_matrix_is_hermitian_and_right(rng):
    a, b = matrices(rng, 2, True)
    weights = jnp.asarray(rng.standard_normal((2, N)))

    @jax.jit
    def compute(a):
        def f(a):
            return loss_of(weights, *eigsh(a, 2, which="SA"))

        return jax.grad(f)(a), jax.jvp(f, (a,), (b,))[1]

    gradient, slope = compute(a)
    np.testing.assert_allclose(gradient, gradient.conj().T, atol=1e-12)
    # JAX's cotangents are conjugate: dL = Re sum(gradient * a_dot).
    np.testing.assert_allclose(jnp.sum(gradient * b).real, slope, rtol=1e-10)


def test_projector_of_a_cluster_is_differentiated_twice(rng):
    """A doublet that the perturbation splits: the projector on it is smooth."""
    (b,) = matrices(rng, 1, False)
    q = np.linalg.qr(rng.standard_normal((N, N)))[0]
    a = jnp.asarray((q * np.r_[-4.0, -4.0, np.linspace(-1.0, 3.0, N - 2)]) @ q.T)
    c = jnp.asarray(rng.standard_normal((2, N)))

    def krylov(t):
        w, v = eigsh(a + t * b * 0.1, 2, which="SA")
        return c[0] @ v @ v.T @ c[1] + jnp.sum(w)

    def dense(t):  # by a polynomial filter on exact eigenvalues: no division by the doublet's gap
        matrix = a + t * b * 0.1

        def newton(x, _):  # the sign function, whose negative part is the projector
            return 1.5 * x - 0.5 * x @ x @ x, None

        x = (matrix + 2.5 * jnp.eye(N)) / 8.0
        sign = jax.lax.scan(newton, x, length=40)[0]
        projector = (jnp.eye(N) - sign) / 2.0
        return c[0] @ projector @ c[1] + jnp.trace(projector @ matrix)

    @jax.jit
    def compute(t):
        return [jax.jvp(jax.grad(f), (t,), (1.0,)) for f in (krylov, dense)]

    got, want = compute(0.0)
    np.testing.assert_allclose(got, want, rtol=1e-8)


def test_cut_multiplet_has_no_derivative_of_its_vector(rng):
    (b,) = matrices(rng, 1, False)
    a = jnp.diag(jnp.r_[-3.0, -2.0, -2.0, jnp.linspace(0.0, 1.0, N - 3)])

    @jax.jit
    def compute(a):
        w, _, info = eigsh(a, 2, which="SA", return_info=True)
        moving = jax.jvp(lambda a: eigsh(a, 2, which="SA"), (a,), (b,))[1]
        return w, info, moving

    w, info, (w_dot, v_dot) = compute(a)
    np.testing.assert_allclose(w, [-3.0, -2.0], atol=1e-13)
    assert info.cut
    assert np.all(np.isnan(v_dot[:, 1]))
    assert np.all(np.isfinite(v_dot[:, 0]))
    np.testing.assert_allclose(w_dot[0], b[0, 0], atol=1e-12)


def test_generalised_problem_with_a_moving_metric(rng):
    import scipy.linalg

    a, b, c = matrices(rng, 3, True)
    m = 3.0 * jnp.eye(N) + 0.05 * (c @ c) / 10
    weights = jnp.asarray(rng.standard_normal((2, N)))

    def krylov(t, s):
        def metric(x):
            return m @ x + s * (c @ x) * 0.1

        return loss_of(weights, *eigsh(a + t * b, 2, metric, which="SA", v0=jnp.ones(N)))

    def dense(t, s):
        w, v = scipy.linalg.eigh(a + t * b, m + s * c * 0.1)
        return loss_of(weights, w[:2], v[:, :2])

    slope, curvature = jax.jit(
        lambda t, s: (jax.grad(krylov, (0, 1))(t, s), jax.jvp(
            lambda s: jax.grad(krylov, 1)(t, s), (s,), (1.0,))[1])
    )(0.1, 0.2)  # fmt: skip
    h = 1e-4
    want = [(dense(0.1 + h, 0.2) - dense(0.1 - h, 0.2)) / (2 * h)]
    want.append((dense(0.1, 0.2 + h) - dense(0.1, 0.2 - h)) / (2 * h))
    np.testing.assert_allclose(slope, want, rtol=1e-6)
    second = (dense(0.1, 0.2 + h) - 2 * dense(0.1, 0.2) + dense(0.1, 0.2 - h)) / h**2
    np.testing.assert_allclose(curvature, second, rtol=1e-4)


def test_gradient_of_the_entries_of_a_sparse_matrix(rng):
    dense = np.asarray(matrices(rng, 1, False)[0]) * (rng.random((N, N)) < 0.2)
    dense = dense + dense.T
    a = BCOO.fromdense(jnp.asarray(dense))

    def lowest(data):
        return eigsh(BCOO((data, a.indices), shape=a.shape), 1, which="SA")[0][0]

    _, v = np.linalg.eigh(dense)
    want = v[a.indices[:, 0], 0] * v[a.indices[:, 1], 0]
    np.testing.assert_allclose(jax.jit(jax.grad(lowest))(a.data), want, atol=1e-10)


def test_second_derivative_after_reverse_mode_through_a_scan(rng):
    """The rule survives where JAX takes a custom_jvp function apart."""
    a, b = matrices(rng, 2, False)

    def lowest(t):
        return eigsh(a + t * b, 1, which="SA", return_eigenvectors=False)[0]

    def looped(t):
        return jax.lax.scan(lambda c, _: (0.01 * lowest(c), None), t, length=2)[0]

    def unrolled(t):
        return 0.01 * lowest(0.01 * lowest(t))

    @jax.jit
    def compute(t):
        return [jax.jvp(jax.grad(f), (t,), (1.0,)) for f in (looped, unrolled)]

    got, want = compute(0.3)
    np.testing.assert_allclose(got, want, rtol=1e-9)


def test_second_derivative_of_a_projector_has_digits_left_at_a_small_kept_gap(rng):
    b, weight = matrices(rng, 2, False)
    q = np.linalg.qr(rng.standard_normal((N, N)))[0]

    @jax.jit
    def compute(a):
        def loss(t):
            v = eigsh(a + t * b, k=2, which="SA")[1]
            return jnp.sum(weight * (v @ v.T))

        return jax.jvp(jax.grad(loss), (0.0,), (1.0,))[1]

    for gap in (0.0, 1e-10, 1e-8, 1e-6):
        values = np.concatenate([[-30.0, -30.0 + 60.0 * gap], np.linspace(-20.0, 30.0, N - 2)])
        a = (q * values) @ q.T
        a = (a + a.T) / 2

        def plain(t, a=a):
            v = np.linalg.eigh(a + t * np.asarray(b))[1][:, :2]
            return np.sum(np.asarray(weight) * (v @ v.T))

        h = 0.05
        stencil = ((0, -490), (1, 270), (2, -27), (3, 2))  # sixth order, times 180
        want = sum(c * (plain(i * h) + plain(-i * h)) / (2 if i == 0 else 1) for i, c in stencil)
        np.testing.assert_allclose(compute(a), want / (180 * h * h), rtol=1e-5, err_msg=str(gap))
