"""funm_multiply: against dense matrix functions and closed forms, derivatives, failures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse.linalg
from jax.scipy.linalg import expm

from difflinalg.scipy.sparse.linalg import NotConverged, funm_multiply

N = 12


def inverse_cube(x):
    eye = jnp.eye(x.shape[0], dtype=x.dtype)
    inverse = jnp.linalg.inv(x + 6.0 * eye)
    return inverse @ inverse @ inverse


FUNCTIONS = {"exp": expm, "inverse cube": inverse_cube}


@pytest.mark.parametrize(
    ("name", "is_complex", "assume_a"), [("inverse cube", True, "general"), ("exp", False, "her")]
)
def test_values_and_nested_derivatives_agree_with_dense_functions(rng, name, is_complex, assume_a):
    def normal(*shape):
        x = rng.standard_normal(shape)
        x = x + 1j * rng.standard_normal(shape) if is_complex else x
        if assume_a == "her" and len(shape) == 2:
            x = x + x.conj().T
        return jnp.asarray(x)

    f, a, move, b, c = FUNCTIONS[name], normal(N, N), normal(N, N), normal(N), normal(N)

    def loss(apply, p):
        y = apply(0.3 * a + p[0] * move, b * jnp.exp(p[1]), 1.0 + p[0] * p[1])
        return jnp.real(jnp.vdot(c, y)) + jnp.sum(jnp.abs(y) ** 2)

    def krylov(a, b, t):
        return funm_multiply(f, a, b, t=t, rtol=1e-13, assume_a=assume_a)

    def dense(a, b, t):
        return f(t * a) @ b

    p, direction = jnp.array([0.1, 0.2]), jnp.array([1.0, -0.5])

    def derivatives(apply, p):
        def value(p):
            return loss(apply, p)

        gradient = jax.grad(value)
        both = jax.jvp(gradient, (p,), (direction,))
        return value(p), jax.jvp(value, (p,), (direction,))[1], both, jax.jacrev(gradient)(p)

    got, want = jax.jit(lambda p: [derivatives(g, p) for g in (krylov, dense)])(p)
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


def test_a_large_operator_has_values_of_scipy_and_gradients_of_the_closed_form(rng):
    d = jnp.linspace(-20.0, 0.0, 400)
    b = jnp.asarray(rng.standard_normal(400))
    c = jnp.asarray(rng.standard_normal(400))

    def value(d, b):
        return funm_multiply(expm, lambda x: d * x, b, assume_a="her", rtol=1e-12, return_info=True)

    @jax.jit
    def compute(d, b):
        y, info = value(d, b)
        return y, info, jax.grad(lambda d, b: c @ value(d, b)[0], (0, 1))(d, b)

    y, info, (d_bar, b_bar) = compute(d, b)
    operator = scipy.sparse.diags_array(np.asarray(d)).tocsr()
    want = scipy.sparse.linalg.expm_multiply(operator, np.asarray(b))
    np.testing.assert_allclose(y, want, atol=1e-10)
    assert info.converged
    assert info.products < 64
    np.testing.assert_allclose(d_bar, c * jnp.exp(d) * b, atol=1e-10)
    np.testing.assert_allclose(b_bar, c * jnp.exp(d), atol=1e-10)


def test_breakdown_batches_and_complex_functions_of_real_operators(rng):
    a = jnp.asarray(rng.standard_normal((N, N)))

    def turned(x):
        return expm(-1j * x)

    solve = jax.jit(jax.vmap(lambda b: funm_multiply(turned, a, b, rtol=1e-12)))
    b = jnp.concatenate([jnp.asarray(rng.standard_normal((2, N))), jnp.zeros((1, N))])
    np.testing.assert_allclose(solve(b), b @ turned(a).T, atol=1e-10)
    # An eigenvector spans an invariant space, on which the logarithm exists.
    w, v = jnp.linalg.eigh(a @ a.T)
    y = funm_multiply(lambda x: inverse_cube(x - 6.0 * jnp.eye(len(x))), a @ a.T, v[:, -1])
    np.testing.assert_allclose(y, v[:, -1] / w[-1] ** 3, rtol=1e-9)


def test_what_cannot_be_computed_is_loud(rng):
    d, b = jnp.linspace(-300.0, 0.0, 400), jnp.asarray(rng.standard_normal(400))
    with pytest.raises(NotConverged, match="Increase ncv"):
        funm_multiply(expm, lambda x: d * x, b, ncv=16)
    y, slope = jax.jit(
        lambda b: jax.jvp(lambda d: funm_multiply(expm, lambda x: d * x, b, ncv=16), (d,), (d,))
    )(b)
    assert np.all(np.isnan(y))
    assert np.all(np.isnan(slope))
    with pytest.raises(NotImplementedError, match="what the function f closes over"):
        jax.grad(lambda s: funm_multiply(lambda x: expm(s * x), jnp.eye(2), jnp.ones(2))[0])(1.0)
    with pytest.raises(ValueError, match="maps a matrix"):
        funm_multiply(jnp.trace, jnp.eye(2), jnp.ones(2))
    with pytest.raises(ValueError, match="b of shape"):
        funm_multiply(expm, jnp.eye(2), jnp.ones(3))
