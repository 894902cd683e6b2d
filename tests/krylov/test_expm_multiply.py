"""expm_multiply: values against SciPy, derivatives against dense exponentials and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse.linalg
from jax.experimental.sparse import BCOO
from jax.scipy.linalg import expm

from difflinalg.scipy.sparse.linalg import NotConverged, expm_multiply

N = 7


def problem(rng, is_complex, count=3):
    def normal(*shape):
        x = rng.standard_normal(shape)
        return jnp.asarray(x + 1j * rng.standard_normal(shape) if is_complex else x)

    return [normal(N, N) for _ in range(count)], normal(N, 2), normal(N, 2)


def nestings(f, t, direction, third):
    """The value, derivatives in both modes, and their nestings."""

    def along(g):
        return lambda t: jax.jvp(g, (t,), (direction,))[1]

    def dot(g):
        return lambda t: jax.grad(g)(t) @ direction

    functions = [f, along(f), dot(f), along(dot(f)), dot(dot(f))]
    return jnp.stack([g(t) for g in functions + third * [along(along(dot(f)))]])


@pytest.mark.parametrize("is_complex", [False, True])
def test_derivatives_of_every_order_agree_with_dense_exponentials(rng, is_complex):
    (a0, a1, a2), b, c = problem(rng, is_complex)

    def matrix(p):
        return a0 + p[0] * a1 + jnp.sin(p[1]) * a2

    def loss(y):
        return jnp.real(jnp.vdot(c, y)) + jnp.sum(jnp.abs(y) ** 2)

    def krylov(p):  # a function that closes over what is differentiated
        a = matrix(p)
        columns = [expm_multiply(lambda x: p[2] * (a @ x), (1 + p[1]) * b[:, i]) for i in range(2)]
        return loss(jnp.stack(columns, axis=1))

    def array(p):
        return loss(expm_multiply(p[2] * matrix(p), (1 + p[1]) * b))

    def dense(p):
        return loss(expm(p[2] * matrix(p)) @ ((1 + p[1]) * b))

    p, direction = jnp.array([0.2, 0.3, 0.4]), jnp.array([1.0, -0.5, 0.7])
    got = jax.jit(lambda p: nestings(array, p, direction, not is_complex))(p)
    want = jax.jit(lambda p: nestings(dense, p, direction, not is_complex))(p)
    np.testing.assert_allclose(got, want, rtol=1e-10)
    value, slope = jax.jit(jax.value_and_grad(krylov))(p)
    np.testing.assert_allclose([value, slope @ direction], want[0:3:2], rtol=1e-10)


def test_times_of_a_sparse_matrix_are_those_of_scipy(rng):
    n = 60
    near = np.ones(n - 1)
    laplacian = np.diag(-2.0 * np.ones(n)) + np.diag(near, 1) + np.diag(near, -1)
    b = rng.standard_normal((n, 3))
    a = BCOO.fromdense(jnp.asarray(laplacian))
    times = dict(start=0.5, stop=30.0, num=4)
    got, info = expm_multiply(a, jnp.asarray(b), **times, return_info=True)
    want = scipy.sparse.linalg.expm_multiply(laplacian, b, **times)
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
    assert info.converged
    # Backwards in time SciPy 1.17 is wrong.
    got = expm_multiply(a, jnp.asarray(b), 1.0, -1.0, 2, endpoint=False, traceA=-2.0 * n)
    want = [scipy.linalg.expm(t * laplacian) @ b for t in (1.0, 0.0)]
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def test_a_long_evolution_has_the_gradient_of_the_closed_form(rng):
    """Steps of time beyond those that are kept: exp(t d) of a diagonal operator, t |A| = 300."""
    d = jnp.asarray(1j * rng.uniform(-1.0, 1.0, 20))
    v = jnp.asarray(rng.standard_normal(20) + 0j)
    c = jnp.asarray(rng.standard_normal(20))

    @jax.jit
    def compute(d, t):
        def loss(d, t):
            return c @ jnp.real(expm_multiply(lambda x: t * d * x, v))

        return jax.value_and_grad(loss, (0, 1))(d, t)

    t = 300.0
    value, (d_bar, t_bar) = compute(d, t)
    y = jnp.exp(t * d) * v
    np.testing.assert_allclose(value, c @ y.real, rtol=1e-10)
    np.testing.assert_allclose(d_bar, c * t * y, rtol=1e-9)
    np.testing.assert_allclose(t_bar, c @ (d * y).real, rtol=1e-9)


def test_times_are_differentiated_and_operators_batched(rng):
    (a, _, _), b, _ = problem(rng, False)
    tree = {"x": b[:3, 0], "y": b[3:, 0].reshape(2, 2)}

    def apply(s, x):
        y = s * (a @ jnp.concatenate([x["x"], x["y"].reshape(-1)]))
        return {"x": y[:3], "y": y[3:].reshape(2, 2)}

    def last(s, stop):
        return expm_multiply(lambda x: apply(s, x), tree, 0.0, stop, 3)["y"][-1, 1, 1]

    s = jnp.array([0.1, 0.3])
    got = jax.jit(jax.vmap(jax.value_and_grad(last, (0, 1)), (0, None)))(s, 0.5)

    def exact(s, stop):
        return (expm(stop * s * a) @ b[:, 0])[-1]

    want = jax.vmap(jax.value_and_grad(exact, (0, 1)), (0, None))(s, 0.5)
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10)


def test_tiny_tangents_and_cotangents_in_single_precision(rng):
    (a, move, _), b, _ = problem(rng, False)
    a, move, b = (x.astype(jnp.float32) for x in (a, move, b[:, 0]))

    @jax.jit
    def compute(scale):
        def loss(a):
            return scale * jnp.sum(expm_multiply(a, b))

        tangent = jax.jvp(lambda a: expm_multiply(a, b), (a,), (scale * move,))[1]
        return jax.grad(loss)(a), tangent

    for tiny, unit in zip(compute(1e-30), compute(1.0), strict=True):
        np.testing.assert_allclose(tiny * 1e30, unit, rtol=1e-3, atol=1e-3)


def test_what_cannot_be_computed_is_loud(rng):
    (a, _, _), b, _ = problem(rng, False)
    with pytest.raises(NotConverged, match="expm_multiply has not converged"):
        expm_multiply(jnp.inf * a, b)
    y, info = jax.jit(lambda a: expm_multiply(a, b, return_info=True))(1e30 * a)
    assert np.all(np.isnan(y))
    assert not info.converged
    with pytest.raises(ValueError, match="B of shape"):
        expm_multiply(a, b[:-1])
    with pytest.raises(ValueError, match="structure of the vector"):
        expm_multiply(lambda x: x[:2], b)
