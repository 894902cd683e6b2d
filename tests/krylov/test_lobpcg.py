"""lobpcg against dense decompositions: values, constraints, failures and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from difflinalg.scipy.sparse.linalg import NotConverged, lobpcg, lobpcg_standard

N = 40


def hermitian(rng, is_complex=True, n=N):
    a = rng.standard_normal((n, n)) + 1j * is_complex * rng.standard_normal((n, n))
    a = a if is_complex else a.real
    return (a + a.conj().T) / 2


def test_derivatives_with_a_metric_and_constraints(rng):
    """First and second derivatives with respect to A, B and Y, against finite differences."""
    a, b, c = (hermitian(rng) for _ in range(3))
    a = a + np.diag(np.linspace(-20.0, 20.0, N))
    metric, x = 2.0 * np.eye(N) + 0.02 * c @ c, rng.standard_normal((N, 2))
    y, y_dot = rng.standard_normal((2, N, 2))
    weights = rng.standard_normal((2, N))

    def loss(w, v):
        return jnp.sum(jnp.sin(w)) + jnp.sum(jnp.abs(weights @ v) ** 2 @ jnp.array([1.0, 2.0]))

    def pencil(t):
        return a + t * b, metric + 0.1 * t * c, y + t * y_dot

    def krylov(t):
        a, m, y = map(jnp.asarray, pencil(t))
        return loss(*lobpcg(a, x, lambda v: m @ v, None, y, largest=False))

    def plain(t):
        a, m, y = pencil(t)
        q = scipy.linalg.null_space(y.T @ m)
        w, v = scipy.linalg.eigh(q.conj().T @ a @ q, q.conj().T @ m @ q)
        return float(loss(w[:2], q @ v[:, :2]))

    @jax.jit
    def compute(t):
        return jax.jvp(jax.value_and_grad(krylov), (t,), (1.0,))

    h = 2e-3
    points = np.array([plain(i * h) for i in range(-3, 4)])
    first = np.dot(points, [-1, 9, -45, 0, 45, -9, 1]) / (60 * h)
    second = np.dot(points, [2, -27, 270, -490, 270, -27, 2]) / (180 * h * h)
    (value, slope), (forward, curvature) = compute(0.0)
    np.testing.assert_allclose([value, slope, forward], [points[3], first, first], rtol=1e-9)
    np.testing.assert_allclose(curvature, second, rtol=1e-6)


def test_derivatives_agree_with_the_dense_ones_at_the_top(rng):
    a, b = jnp.asarray(hermitian(rng, False)), jnp.asarray(hermitian(rng, False))
    x, weight = jnp.asarray(rng.standard_normal((N, 2))), jnp.asarray(rng.standard_normal(N))

    def loss(w, v):
        return jnp.sum(w**2) + (weight @ v[:, 0]) ** 2 - 2.0 * (weight @ v[:, 1]) ** 2

    def dense(t):
        w, v = jnp.linalg.eigh(a + t * b)
        return loss(w[:-3:-1], v[:, :-3:-1])

    @jax.jit
    def compute(t):
        functions = (lambda t: loss(*lobpcg(a + t * b, x)), dense)
        return [jax.jvp(jax.value_and_grad(f), (t,), (1.0,)) for f in functions]

    got, want = compute(0.1)
    np.testing.assert_allclose(got, want, rtol=1e-9)


def test_gradient_of_the_top_value_as_in_jax(rng):
    """`lobpcg_standard` has JAX's signature, and a derivative: v v^H."""
    a = jnp.diag(jnp.arange(1.0, 13.0)) + 0.1 * jnp.asarray(hermitian(rng, False, 12))
    x = jnp.asarray(rng.standard_normal((12, 1)))

    @jax.jit
    def compute(a):
        return jax.value_and_grad(lambda a: lobpcg_standard(a, x, m=200)[0][0])(a)

    value, slope = compute(a)
    w, v = np.linalg.eigh(a)
    np.testing.assert_allclose(value, w[-1], rtol=1e-13)
    np.testing.assert_allclose(slope, np.outer(v[:, -1], v[:, -1]), atol=1e-12)


def test_preconditioner_history_and_multiplets_of_a_stack_in_single_precision(rng):
    levels = np.concatenate([[1.0, 1.0, 1.0, 3.0], np.linspace(200.0, 2000.0, N - 4)])

    def lowest(scale):
        diagonal = jnp.asarray(levels, jnp.float32)[:, None] * scale
        x = jnp.asarray(rng.standard_normal((N, 4)), jnp.complex64)
        return lobpcg(
            lambda v: diagonal * v, x, None, lambda v: v / diagonal, largest=False, maxiter=40,
            retLambdaHistory=True, retResidualNormsHistory=True, return_info=True,
        )  # fmt: skip

    scales = np.array([1.0, 2.0], np.float32)
    w, v, values, residuals, info = jax.vmap(lowest)(scales)
    assert (w.dtype, v.dtype) == (jnp.float32, jnp.complex64)
    np.testing.assert_allclose(w, np.outer(scales, levels[:4]), rtol=1e-3, atol=1e-3)
    gram = np.einsum("sni,snj->sij", v.conj(), v)
    np.testing.assert_allclose(gram, np.stack([np.eye(4)] * 2), atol=1e-5)
    assert values.shape == residuals.shape == (2, 41, 4)
    for s in range(2):
        last = int(info.restarts[s])
        assert last < 40
        np.testing.assert_array_equal(values[s, last], w[s])
        assert np.all(np.isnan(values[s, last + 1 :]))
        assert np.all(residuals[s, last] < 0.2 * residuals[s, 0])


def test_large_block_is_decomposed_densely(rng):
    a, y = hermitian(rng, True, 6), rng.standard_normal((6, 1))
    for largest in (True, False):
        w, v = lobpcg(jnp.asarray(a), rng.standard_normal((6, 3)), Y=y, largest=largest)
        q = scipy.linalg.null_space(y.T)
        want = np.linalg.eigvalsh(q.T @ a @ q)
        np.testing.assert_allclose(w, want[::-1][:3] if largest else want[:3], atol=1e-12)
        np.testing.assert_allclose(y.T @ v, 0.0, atol=1e-12)


def test_failures_are_reported(rng):
    x = jnp.asarray(rng.standard_normal((N, 2)))
    solve = jax.jit(lambda a: lobpcg(lambda v: a @ v, x, maxiter=3, return_info=True))
    a = jnp.asarray(hermitian(rng, False))
    w, v, info = solve(a)
    assert not info.converged
    assert np.all(np.isnan(w))
    assert np.all(np.isnan(v))
    _, _, info = solve(jnp.asarray(rng.standard_normal((N, N))))
    assert info.hermitian_defect > 1e-3
    with pytest.raises(NotConverged, match="of 2 pairs are accurate") as caught:
        lobpcg(a, x, maxiter=3)
    assert caught.value.found[1].shape == (N, 2)


BAD = [
    (lambda a, x: lobpcg(a, x[:, 0]), ValueError, r"X of shape \(n, k\)"),
    (lambda a, x: lobpcg(a[:3, :3], x), ValueError, "matrices of shape"),
    (lambda a, x: lobpcg(a, x, Y=x[:3]), ValueError, r"Y of shape \(40, c\)"),
    (lambda _, x: lobpcg(lambda v: v[:3], x), ValueError, "structure of the vector"),
    (lambda _, x: lobpcg("a", x), TypeError, "got str"),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_arguments_that_do_not_fit_are_refused(case):
    call, error, message = BAD[case]
    with pytest.raises(error, match=message):
        call(jnp.eye(N), jnp.ones((N, 2)))
