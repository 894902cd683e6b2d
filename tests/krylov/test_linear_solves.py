"""Linear solves: values, derivatives by a second solve, preconditioners, tiny right-hand sides."""

import inspect

import jax
import jax.numpy as jnp
import jax.scipy.sparse.linalg as reference
import numpy as np
import pytest

from difflinalg.scipy.sparse import linalg
from difflinalg.scipy.sparse.linalg import NotConverged, bicgstab, cg, gmres, minres

N = 30
HERMITIAN = {"cg": cg, "minres": minres}
GENERAL = {"bicgstab": bicgstab, "gmres": gmres}
ALL = HERMITIAN | GENERAL


def problem(rng, name, is_complex):
    a = rng.standard_normal((3, N, N)) + 1j * is_complex * rng.standard_normal((3, N, N))
    a = a if is_complex else a.real
    herm = (a + a.conj().swapaxes(1, 2)) / 2
    if name == "cg":
        matrix, move = a[0] @ a[0].conj().T / N + np.eye(N), herm[1]
    elif name == "minres":
        matrix, move = herm[0] + np.diag(np.where(np.arange(N) % 2, 9.0, -9.0)), herm[1]
    else:
        matrix, move = a[0] + 9.0 * np.eye(N), a[1]
    return jnp.asarray(matrix), jnp.asarray(0.1 * move), jnp.asarray(a[2][0])


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_solution_and_derivatives_agree_with_dense_solves(rng, name, is_complex):
    a, move, b = problem(rng, name, is_complex)
    weights = jnp.asarray(rng.standard_normal(N))
    diagonal = jnp.abs(jnp.diag(a)) if name in HERMITIAN else jnp.diag(a)

    def loss(solve, t):
        x = solve(a + t * move, b * jnp.exp(0.3 * t))
        return jnp.sum(weights * jnp.abs(x) ** 2) + jnp.sum(jnp.real(x))

    def krylov(matrix, rhs, precondition=None):
        return ALL[name](lambda x: matrix @ x, rhs, tol=1e-13, M=precondition)[0]

    def preconditioned(matrix, rhs):
        return krylov(matrix, rhs, lambda x: x / diagonal)

    @jax.jit
    def compute(t):
        return [
            (f(t), *jax.jvp(jax.grad(f), (t,), (1.0,)), jax.jacfwd(f)(t))
            for f in (
                lambda t: loss(krylov, t),
                lambda t: loss(preconditioned, t),
                lambda t: loss(jnp.linalg.solve, t),
            )
        ]

    plain, with_m, want = compute(0.2)
    np.testing.assert_allclose(plain, want, rtol=1e-9)
    np.testing.assert_allclose(with_m, want, rtol=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_tiny_cotangents_in_single_precision_do_not_underflow(rng, name):
    a, _, b = (x.astype(jnp.float32) for x in problem(rng, name, False))

    @jax.jit
    def derivatives(b, scale):
        def loss(b):
            return scale * jnp.sum(ALL[name](a, b, tol=1e-6)[0])

        def tangent(s):
            return jax.jvp(lambda t: ALL[name](a + t * a, b, tol=1e-6)[0], (0.0,), (s,))[1]

        def cubic(t):
            return loss(b * t**3)

        return jax.grad(loss)(b), tangent(scale), jax.jvp(jax.grad(cubic), (1.0,), (1.0,))[1]

    for tiny, unit in zip(derivatives(b, 1e-30), derivatives(b, 1.0), strict=True):
        np.testing.assert_allclose(tiny * 1e30, unit, rtol=1e-3, atol=1e-5)
    assert np.all(np.isfinite(ALL[name](a, b * 1e-30, tol=1e-6)[0]))
    np.testing.assert_allclose(ALL[name](a, 0.0 * b)[0], 0.0)


@pytest.mark.parametrize("name", ALL)
def test_pytrees_starting_vector_and_info(rng, name):
    a, _, b = problem(rng, name, False)

    def on_tree(x):
        y = a @ jnp.concatenate([x[0].reshape(-1), x[1]])
        return [y[:20].reshape(4, 5), y[20:]]

    tree = [b[:20].reshape(4, 5), b[20:]]
    want = jnp.linalg.solve(a, b)
    x, info = ALL[name](on_tree, tree, tol=1e-12, return_info=True)
    np.testing.assert_allclose(x[0].reshape(-1), want[:20], atol=1e-9)
    assert info.converged
    assert info.steps > 1
    assert info.residual_norm < 1e-11 * jnp.linalg.norm(b)
    near, fewer = ALL[name](on_tree, tree, x, tol=1e-10, return_info=True)
    assert fewer.steps <= 1
    np.testing.assert_allclose(near[1], want[20:], atol=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_missing_convergence_is_reported(rng, name):
    a, _, b = problem(rng, name, False)
    options = dict(tol=1e-12, maxiter=1) | (dict(restart=3) if name == "gmres" else {})
    with pytest.raises(NotConverged, match=f"{name} has not converged"):
        ALL[name](a, b, **options)
    x, info = jax.jit(lambda a: ALL[name](a, b, **options, return_info=True))(a)
    assert not info.converged
    assert np.all(np.isnan(x))


def test_signatures_begin_with_those_of_jax():
    for name in ("cg", "bicgstab", "gmres"):
        ours = inspect.signature(getattr(linalg, name)).parameters
        theirs = inspect.signature(getattr(reference, name)).parameters
        assert list(ours)[: len(theirs)] == list(theirs)
        for key, parameter in theirs.items():
            assert ours[key].default == parameter.default or key in ("tol", "atol"), key


def test_arguments_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="b of shape"):
        cg(jnp.eye(3), jnp.ones(4))
    with pytest.raises(ValueError, match="structure of the vector"):
        gmres(lambda x: x[:2], jnp.ones(3))
    with pytest.raises(TypeError, match="got str"):
        minres("a", jnp.ones(3))


@pytest.mark.parametrize("name", ALL)
def test_a_solve_inside_of_a_derivative_that_does_not_converge_is_nan(rng, name):
    """One step solves for an eigenvector, but not for the right-hand side of the derivative."""
    d = jnp.asarray(rng.uniform(1.0, 9.0, N))
    b, c = jnp.eye(N)[0], jnp.asarray(rng.standard_normal(N))
    x0 = 0.5 * b / d[0]

    def found(d, b, maxiter):
        restart = dict(restart=3) if name == "gmres" else {}
        return ALL[name](lambda x: d * x, b, x0, tol=1e-10, maxiter=maxiter, **restart)[0]

    def loss(d, maxiter):
        return jnp.sum(c * found(d, b, maxiter))

    def derivatives(d, maxiter):
        return (
            found(d, b, maxiter),
            jax.jvp(lambda b: found(d, b, maxiter), (b,), (c,))[1],
            jax.grad(loss)(d, maxiter),
            jax.jvp(lambda d: jax.grad(loss)(d, maxiter), (d,), (c,))[1][0],
        )

    few, many = jax.jit(lambda d: [derivatives(d, maxiter) for maxiter in (1, 100)])(d)
    np.testing.assert_allclose(few[0], b / d, rtol=1e-12)
    assert all(np.any(np.isnan(x)) for x in few[1:])
    want = (b / d, c / d, jnp.zeros(N).at[0].set(-c[0] / d[0] ** 2), 2 * c[0] ** 2 / d[0] ** 3)
    for got, exact in zip(many, want, strict=True):
        np.testing.assert_allclose(got, exact, atol=1e-9)
