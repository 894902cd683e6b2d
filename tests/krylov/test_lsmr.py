"""lsmr: against SciPy and NumPy, derivatives against a dense pseudoinverse, failures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse.linalg
from jax.experimental.sparse import BCOO

from difflinalg.scipy.sparse.linalg import NotConverged, lsmr

TIGHT = dict(atol=1e-14, btol=1e-14, conlim=0.0)
KINDS = {"tall": (14, 9, 9), "deficient": (14, 9, 6), "wide": (9, 14, 9)}  # rows, columns, rank


def problem(rng, kind, is_complex):
    """A matrix, two generators of a curve of its rank, and a vector on either side."""
    m, n, rank = KINDS[kind]

    def normal(*shape):
        x = rng.standard_normal(shape)
        return x + 1j * rng.standard_normal(shape) if is_complex else x

    def frame(n):
        return np.linalg.qr(normal(n, n))[0][:, :9]

    s = np.linspace(1.0, 2.0, 9) * (np.arange(9) < rank)
    u, v = frame(m), frame(n)
    return (u * s) @ v.conj().T, normal(m, m), normal(n, n), normal(m), normal(n)


def loss_on_the_curve(solve, data, t, jnp=jnp):
    a, left, right, b, c = data
    m, n = a.shape
    curve = (jnp.eye(m) + 0.1 * t * left) @ a @ (jnp.eye(n) + 0.1 * jnp.sin(t) * right)
    x = solve(curve, b * jnp.exp(0.3 * t))
    return jnp.real(jnp.vdot(c, x)) + jnp.sum(jnp.abs(x) ** 4)


@pytest.mark.parametrize(
    ("kinds", "is_complex"), [(("tall", "deficient"), True), (("wide",), False)]
)
def test_solution_and_nested_derivatives_agree_with_a_pseudoinverse(rng, kinds, is_complex):
    @jax.jit
    def compute(data, t):
        def value(t):
            return loss_on_the_curve(lambda a, b: lsmr(a, b, **TIGHT).x, data, t)

        return jax.jvp(jax.value_and_grad(value), (t,), (1.0,))

    for kind in kinds:
        data, h = problem(rng, kind, is_complex), 0.01

        def plain(t, data=data):
            return loss_on_the_curve(lambda a, b: np.linalg.pinv(a, 1e-10) @ b, data, t, np)

        points = np.array([plain(0.2 + i * h) for i in range(-3, 4)])
        first = np.dot(points, [-1, 9, -45, 0, 45, -9, 1]) / (60 * h)
        second = np.dot(points, [2, -27, 270, -490, 270, -27, 2]) / (180 * h * h)
        (value, slope), (forward, curvature) = compute(data, 0.2)
        np.testing.assert_allclose(value, points[3], rtol=1e-11)
        np.testing.assert_allclose([slope, forward], [first, first], rtol=1e-8)
        np.testing.assert_allclose(curvature, second, rtol=1e-6)


def test_results_are_those_of_scipy(rng):
    a, _, _, b, c = problem(rng, "tall", False)
    sparse = BCOO.fromdense(jnp.asarray(a))

    @jax.jit
    def compute(damp, x0):
        return [lsmr(matrix, b, damp, x0=x0, **TIGHT) for matrix in (a, sparse)]

    for damp, x0 in ((0.0, 0.0 * c), (0.3, 0.0 * c), (0.0, c), (0.3, c)):
        want = scipy.sparse.linalg.lsmr(a, b, damp, x0=x0, **TIGHT)
        for got in compute(damp, x0):
            np.testing.assert_allclose(got.x, want[0], rtol=1e-10)
            for name, place in (("normr", 3), ("norma", 5), ("conda", 6), ("normx", 7)):
                np.testing.assert_allclose(getattr(got, name), want[place], rtol=0.3, err_msg=name)
            np.testing.assert_allclose(got.normr, want[3], rtol=1e-9)
            assert got.istop in (1, 2, 4, 5)
    assert lsmr(a, b).istop == scipy.sparse.linalg.lsmr(a, b)[1] == 2
    zero = lsmr(a, 0.0 * b)
    assert zero.istop == 0
    np.testing.assert_array_equal(zero.x, 0.0)


def test_damping_and_starting_vector_have_derivatives(rng):
    a, _, _, b, c = (jnp.asarray(x) for x in problem(rng, "wide", True))

    def krylov(damp, x0):
        return lsmr(a, b, damp, x0=x0, **TIGHT).x

    def dense(damp, x0):
        normal = a.conj().T @ a + damp**2 * jnp.eye(14)
        return x0 + jnp.linalg.solve(normal, a.conj().T @ (b - a @ x0))

    @jax.jit
    def compute(damp, x0):
        def gradient(f):
            return jax.value_and_grad(lambda *at: jnp.sum(jnp.abs(f(*at)) ** 2), (0, 1))

        at = damp, x0
        return [jax.jvp(gradient(f), at, (1.0, jnp.sin(x0))) for f in (krylov, dense)]

    got, want = compute(0.4, c)
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-9)


def test_functions_on_pytrees_and_batches(rng):
    a, _, _, b, _ = (jnp.asarray(x) for x in problem(rng, "tall", False))
    like = {"p": jax.ShapeDtypeStruct((2, 3), float), "q": jax.ShapeDtypeStruct((3,), float)}

    def solve(scale):
        def apply(x):
            y = scale * (a @ jnp.concatenate([x["p"].reshape(-1), x["q"]]))
            return (y[:4], y[4:].reshape(2, 5))

        return lsmr(apply, (b[:4], b[4:].reshape(2, 5)), x0=like, **TIGHT).x

    scales = jnp.array([1.0, 2.0, 4.0])
    want = np.linalg.pinv(a) @ b
    got, slope = jax.jit(jax.vmap(lambda s: jax.jvp(solve, (s,), (1.0,))))(scales)
    for i, s in enumerate(scales):
        flat = np.r_[got["p"][i].ravel(), got["q"][i]]
        np.testing.assert_allclose(flat, want / s, atol=1e-11)
        np.testing.assert_allclose(slope["q"][i], -want[6:] / s**2, atol=1e-10)


def test_tiny_cotangents_in_single_precision_do_not_underflow(rng):
    a, _, _, b, _ = (jnp.asarray(x, jnp.float32) for x in problem(rng, "tall", False))

    @jax.jit
    def gradient(scale):
        return jax.grad(lambda a, b: scale * jnp.sum(lsmr(a, b).x), (0, 1))(a, b)

    for tiny, unit in zip(gradient(1e-30), gradient(1.0), strict=True):
        np.testing.assert_allclose(tiny * 1e30, unit, rtol=1e-3, atol=1e-3)


def test_missing_convergence_is_loud(rng):
    a, _, _, b, c = (jnp.asarray(x) for x in problem(rng, "tall", False))
    with pytest.raises(NotConverged, match=r"lsmr has not converged.*istop=7") as error:
        lsmr(a, b, maxiter=2)
    assert np.all(np.isfinite(error.value.found.x))
    with pytest.raises(NotConverged, match="istop=3"):
        lsmr(a, b, conlim=1.2)
    # One step solves for a singular vector, but not for the right-hand side of the derivative.
    d = jnp.linspace(1.0, 2.0, 9)
    found, tangent, gradient = jax.jit(
        lambda b: (
            lsmr(jnp.diag(d), b, maxiter=1).x,
            jax.jvp(lambda b: lsmr(jnp.diag(d), b, maxiter=1).x, (b,), (c,))[1],
            jax.grad(lambda b: lsmr(jnp.diag(d), b, maxiter=1).x @ c)(b),
        )
    )(jnp.eye(9)[0])
    np.testing.assert_allclose(found, jnp.eye(9)[0])
    assert np.all(np.isnan(tangent))
    assert np.all(np.isnan(gradient))


def test_arguments_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="b of shape"):
        lsmr(jnp.ones((3, 2)), jnp.ones(2))
    with pytest.raises(ValueError, match="give x0"):
        lsmr(lambda x: x, jnp.ones(2))
    with pytest.raises(ValueError, match="show=True"):
        lsmr(jnp.eye(2), jnp.ones(2), show=True)
