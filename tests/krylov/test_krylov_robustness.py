"""Operators and arguments at the limits: extreme scales, nearly full bases, wrong inverses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg.scipy.sparse.linalg import NotConverged, cg, eigs, eigsh, lobpcg, lsmr, minres, svds

N = 40


def symmetric(rng):
    a = rng.standard_normal((N, N)) + np.diag(np.linspace(-20.0, 20.0, N))
    return jnp.asarray((a + a.T) / 2)


def test_identity_little_larger_than_the_basis():
    """All that a product leaves is rounding error, most of it in the span of the basis."""
    for n, k in ((28, 2), (50, 6)):
        w, v, info = jax.jit(lambda a, k=k: eigsh(a, k, return_info=True))(jnp.eye(n))
        np.testing.assert_allclose(w, 1.0, rtol=1e-14)
        np.testing.assert_allclose(v.T @ v, np.eye(k), atol=1e-14)
        assert info.converged


@pytest.mark.parametrize(("dtype", "size", "digits"), [("f4", 1e30, 4), ("f8", 1e200, 12)])
def test_scales_whose_squares_overflow_or_underflow(rng, dtype, size, digits):
    a, b = symmetric(rng).astype(dtype), symmetric(rng).astype(dtype)
    x = jnp.asarray(rng.standard_normal((N, 2)), dtype)

    @jax.jit
    def compute(scale):
        c = scale * a

        def loss(t):
            w, v = eigsh(c + scale * t * b, 2, which="SA")
            return scale * jnp.abs(v[0, 0]), w

        slope, w = jax.grad(loss, has_aux=True)(jnp.zeros((), dtype))
        single = [lobpcg(c, x)[0]] if dtype == "f4" else []  # that one squares its scale
        return jnp.stack([w, svds(c, 2)[1], *single]), slope

    values, slope = compute(np.dtype(dtype).type(1.0))
    np.testing.assert_allclose(values[0], np.linalg.eigvalsh(a)[:2], rtol=10.0**-digits)
    for scale in np.asarray([1.0 / size, size], dtype):
        scaled_values, scaled_slope = compute(scale)
        np.testing.assert_allclose(scaled_values / scale, values, rtol=10.0**-digits)
        np.testing.assert_allclose(scaled_slope / scale, slope, rtol=10.0 ** (1 - digits))


def test_an_inverse_that_is_not_one_is_found_out(rng):
    a = symmetric(rng)
    wrong = jnp.linalg.inv(a - 0.5 * jnp.eye(N))
    with pytest.raises(NotConverged, match="0 of 2 pairs are accurate"):
        eigsh(a, 2, sigma=3.0, OPinv=wrong)


def test_metrics_that_are_none_are_found_out():
    a, x = jnp.diag(jnp.arange(6.0)), jnp.ones((6, 1))
    skew = jnp.eye(6) + 0.3 * jnp.eye(6, k=1)
    for f in (lambda m: eigsh(a, 1, m), lambda m: lobpcg(a, x[:, :1], m)):
        with pytest.raises(ValueError, match="Hermitian positive definite metric"):
            f(skew)
    with pytest.raises(ValueError, match="metric is positive definite"):
        eigsh(a, 1, -jnp.eye(6))


def test_dependent_vectors_to_start_from_are_replaced(rng):
    a = symmetric(rng)
    w, v = lobpcg(a, jnp.ones((N, 2)))
    np.testing.assert_allclose(w, np.linalg.eigvalsh(a)[:-3:-1], atol=1e-12)
    np.testing.assert_allclose(v.T @ v, np.eye(2), atol=1e-13)


def test_degenerate_ground_state_has_no_derivative_of_its_vector(rng):
    a, b = jnp.diag(jnp.r_[-3.0, -3.0, jnp.linspace(0.0, 5.0, N - 2)]), symmetric(rng)

    @jax.jit
    def compute(t):
        def lowest(t):
            return eigsh(a + t * b, 1, which="SA", verify=True, return_info=True)

        return lowest(t)[2], jax.jvp(lambda t: lowest(t)[:2], (t,), (1.0,))

    info, ((w, _), (w_dot, v_dot)) = compute(0.0)
    assert info.cut
    np.testing.assert_allclose(w, -3.0, rtol=1e-14)
    low, high = np.linalg.eigvalsh(b[:2, :2])
    assert low <= w_dot[0] <= high
    assert np.all(np.isnan(v_dot))


def under_jit(f):
    return lambda: jax.jit(f)(1e-8)


EYE, ONES = jnp.eye(3), jnp.ones(3)
BAD = [
    (under_jit(lambda t: eigsh(EYE, 1, tol=t)), TypeError, "tolerances as Python numbers"),
    (under_jit(lambda t: lsmr(EYE, ONES, atol=t)), TypeError, "tolerances as Python numbers"),
    (under_jit(lambda t: eigs(EYE, 1, maxiter=t)), TypeError, "`maxiter` as a Python integer"),
    (under_jit(lambda t: cg(EYE, ONES, maxiter=t)), TypeError, "`maxiter` as a Python integer"),
    (lambda: eigsh(EYE, 1, sigma=0.1j), ValueError, "complex sigma"),
    (lambda: eigsh(EYE.astype(jnp.float16), 1), TypeError, "got float16"),
    (lambda: svds(EYE.astype(jnp.bfloat16), 1), TypeError, "got bfloat16"),
    (lambda: lobpcg(lambda x: x, jnp.ones((3, 1), jnp.float16)), TypeError, "got float16"),
    (lambda: cg(EYE, ONES, M=jnp.eye(2)), ValueError, "matrices of shape"),
    (lambda: minres(EYE, ONES, jnp.ones(2)), ValueError, "x0 like b"),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_arguments_that_do_not_fit_are_refused(case):
    call, error, message = BAD[case]
    with pytest.raises(error, match=message):
        call()
