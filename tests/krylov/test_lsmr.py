"""lsmr: against SciPy and NumPy, derivatives against a dense pseudoinverse, failures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse.linalg
from jax.experimental.sparse import BCOO

from difflinalg.scipy.sparse.linalg import NotConverged, lsmr

TIGHT = dict(atol=1e-14, btol=1e-14, conlim=0.0)
SHAPES = {"tall": (14, 9), "wide": (9, 14), "deficient": (14, 9)}


def problem(rng, kind, is_complex):
    m, n = SHAPES[kind]

    def normal(*shape):
        x = rng.standard_normal(shape)
        return x + 1j * rng.standard_normal(shape) if is_complex else x

    def frame(n):
        return np.linalg.qr(normal(n, n))[0][:, :9]

    s = np.linspace(1.0, 2.0, 9) * (np.arange(9) < (6 if kind == "deficient" else 9))
    u, v, left, right = frame(m), frame(n), normal(m, m), normal(n, n)
    a = jnp.asarray((u * s) @ v.conj().T)

    def curve(t):  # of constant rank
        return (jnp.eye(m) + 0.1 * t * left) @ a @ (jnp.eye(n) + 0.1 * jnp.sin(t) * right)

    return curve, jnp.asarray(normal(m)), jnp.asarray(normal(n))


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("kind", SHAPES)
def test_solution_and_nested_derivatives_agree_with_a_dense_pseudoinverse(rng, kind, is_complex):
    curve, b, c = problem(rng, kind, is_complex)
    rank = 6 if kind == "deficient" else 9

    def dense(a, b):
        """`A^+ b` of a matrix of known rank, from smooth products only."""
        basis = a @ a.conj().T @ (a @ jnp.eye(a.shape[1])[:, :rank])
        rows = a.conj().T @ basis
        inner = basis.conj().T @ a @ rows
        return rows @ jnp.linalg.solve(inner, basis.conj().T @ b)

    def loss(solve, t):
        x = solve(curve(t), b * jnp.exp(0.3 * t))
        return jnp.real(jnp.vdot(c, x)) + jnp.sum(jnp.abs(x) ** 4)

    def krylov(a, b):
        return lsmr(a, b, **TIGHT).x

    @jax.jit
    def compute(t):
        return [
            (f(t), jax.jvp(f, (t,), (1.0,))[1], *jax.jvp(jax.grad(f), (t,), (1.0,)))
            for f in (lambda t: loss(krylov, t), lambda t: loss(dense, t))
        ]

    got, want = compute(0.2)
    np.testing.assert_allclose(got, want, rtol=1e-7)
    a = curve(0.2)
    np.testing.assert_allclose(krylov(a, b), np.linalg.pinv(a, rcond=1e-10) @ b, atol=1e-11)


def test_results_are_those_of_scipy(rng):
    curve, b, c = problem(rng, "tall", False)
    a = curve(0.0)
    for options in ({}, dict(damp=0.3), dict(x0=c), dict(damp=0.3, x0=c)):
        plain = jax.tree.map(np.asarray, (a, b, options))
        want = scipy.sparse.linalg.lsmr(*plain[:2], **TIGHT, **plain[2])
        for matrix in (a, BCOO.fromdense(a)):
            got = lsmr(matrix, b, **TIGHT, **options)
            np.testing.assert_allclose(got.x, want[0], rtol=1e-10)
            for name, place in (("normr", 3), ("norma", 5), ("conda", 6), ("normx", 7)):
                np.testing.assert_allclose(getattr(got, name), want[place], rtol=0.3, err_msg=name)
            np.testing.assert_allclose(got.normr, want[3], rtol=1e-9)
            assert got.istop in (1, 2, 4, 5)
    assert lsmr(a, b).istop == scipy.sparse.linalg.lsmr(np.asarray(a), np.asarray(b))[1] == 2
    zero = lsmr(a, 0.0 * b)
    assert zero.istop == 0
    np.testing.assert_array_equal(zero.x, 0.0)


def test_damping_and_starting_vector_have_derivatives(rng):
    curve, b, c = problem(rng, "wide", True)
    a = curve(0.0)

    def krylov(damp, x0):
        return lsmr(a, b, damp, x0=x0, **TIGHT).x

    def dense(damp, x0):
        normal = a.conj().T @ a + damp**2 * jnp.eye(14)
        return x0 + jnp.linalg.solve(normal, a.conj().T @ (b - a @ x0))

    @jax.jit
    def compute(damp, x0):
        def loss(f):
            return lambda damp, x0: jnp.sum(jnp.abs(f(damp, x0)) ** 2)

        return [
            (f(damp, x0), jax.grad(loss(f), (0, 1))(damp, x0), jax.hessian(loss(f))(damp, x0))
            for f in (krylov, dense)
        ]

    got, want = compute(0.4, c)
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-9)


def test_functions_on_pytrees_and_batches(rng):
    curve, b, _ = problem(rng, "tall", False)
    a = curve(0.0)
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
    curve, b, _ = problem(rng, "tall", False)
    a, b = curve(0.0).astype(jnp.float32), b.astype(jnp.float32)

    @jax.jit
    def gradient(scale):
        return jax.grad(lambda a, b: scale * jnp.sum(lsmr(a, b).x), (0, 1))(a, b)

    for tiny, unit in zip(gradient(1e-30), gradient(1.0), strict=True):
        np.testing.assert_allclose(tiny * 1e30, unit, rtol=1e-3, atol=1e-3)


def test_missing_convergence_is_loud(rng):
    curve, b, c = problem(rng, "tall", False)
    a = curve(0.0)
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
