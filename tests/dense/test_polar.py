"""Polar decomposition: SciPy for values, Newton's iteration and differences for derivatives."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from difflinalg.scipy import linalg
from difflinalg.testing import random_matrix, random_unitary

SHAPES = {"tall": (4, 3), "square": (3, 3), "wide": (3, 4)}
SIDES = ("right", "left")
BOTH = (jnp.float64, jnp.complex128)
VALUES = {
    "generic": [2.0, 1.1, 0.6],
    "pair": [2.0, 2.0, 0.7],
    "isometry": [1.0, 1.0, 1.0],
}


def random_array(seed, shape, dtype=jnp.float64):
    return np.asarray(jax.random.normal(jax.random.key(seed), shape, dtype))


def example(kind, shape, dtype=jnp.float64):
    return np.asarray(random_matrix(jax.random.key(0), jnp.array(VALUES[kind]), shape, dtype))


def adjoint(x):
    return jnp.conj(x.T)


def along(gradient, d):
    return jnp.real(jnp.sum(gradient * d))


def difference(f, h=2e-3):
    """The derivative of a function of one number at zero, to the sixth order."""
    return (45 * (f(h) - f(-h)) - 9 * (f(2 * h) - f(-2 * h)) + f(3 * h) - f(-3 * h)) / (60 * h)


def newton(a, side):
    """The factors by Newton's iteration, which JAX differentiates without trouble."""
    if a.shape[0] < a.shape[1]:
        u, p = newton(adjoint(a), "left" if side == "right" else "right")
        return adjoint(u), p
    u = a
    for _ in range(7):
        u = (u + u @ jnp.linalg.inv(adjoint(u) @ u)) / 2
    p = adjoint(u) @ a if side == "right" else a @ adjoint(u)
    return u, (p + adjoint(p)) / 2


def loss_of(factors, weights):
    """Linear in `U` and quadratic in `P`."""
    (u, p), (weight_u, weight_p) = factors, weights
    return jnp.real(jnp.sum(weight_u * u) + jnp.sum(weight_p * (p @ p)) + jnp.sum(weight_p.T * p))


def scipy_loss(a, weights, side):
    return float(loss_of(scipy.linalg.polar(a, side=side), weights))


@partial(jax.jit, static_argnames=("side",))
def every_nesting(a, weights, d, e, side):
    def f(x):
        return loss_of(linalg.polar(x, side), weights)

    def forward(x):
        return jax.jvp(f, (x,), (d,))[1]

    def reverse(x):
        return along(jax.grad(f)(x), d)

    second = jnp.stack(
        [
            jax.jvp(forward, (a,), (e,))[1],
            jax.jvp(reverse, (a,), (e,))[1],
            along(jax.grad(forward)(a), e),
            along(jax.grad(reverse)(a), e),
        ]
    )
    return jax.grad(f)(a), forward(a), second


@partial(jax.jit, static_argnames=("side",))
def by_newton(a, weights, d, e, side):
    gradient, hessian_e = jax.jvp(jax.grad(lambda x: loss_of(newton(x, side), weights)), (a,), (e,))
    return gradient, along(hessian_e, d)


def check(a, side):
    size = a.shape[1] if side == "right" else a.shape[0]
    weights = (random_array(1, a.shape, a.dtype), random_array(2, (size, size), a.dtype))
    d, e = (random_array(seed, a.shape, a.dtype) for seed in (3, 4))
    gradient, forward, second = every_nesting(a, weights, d, e, side)
    expected, expected_second = by_newton(a, weights, d, e, side)
    scale = np.linalg.norm(expected)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(along(gradient, d), forward, rtol=0, atol=1e-12 * scale)
    slope = difference(lambda t: scipy_loss(a + t * d, weights, side))
    np.testing.assert_allclose(forward, slope, rtol=0, atol=1e-9 * scale)
    np.testing.assert_allclose(second, expected_second, rtol=0, atol=1e-11 * scale)


@pytest.mark.parametrize("dtype", [*BOTH, jnp.float32])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shape", SHAPES)
def test_factors_agree_with_scipy(shape, side, dtype):
    eps = jnp.finfo(dtype).eps
    a = example("generic", SHAPES[shape], dtype)
    u, p = linalg.polar(a, side)
    assert u.dtype == p.dtype == a.dtype
    wide_precision = jnp.complex128 if jnp.iscomplexobj(a) else jnp.float64
    expected_u, expected_p = scipy.linalg.polar(a.astype(wide_precision), side=side)
    np.testing.assert_allclose(u, expected_u, rtol=0, atol=100 * eps)
    np.testing.assert_allclose(p, expected_p, rtol=0, atol=100 * eps)
    np.testing.assert_array_equal(p, adjoint(p))
    np.testing.assert_allclose(u @ p if side == "right" else p @ u, a, rtol=0, atol=100 * eps)


def test_both_methods_give_the_same_factors():
    a = example("generic", (4, 3), jnp.complex128)
    for x, y in zip(linalg.polar(a), linalg.polar(a, method="svd"), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-13)


def test_vmap_gives_the_factors_of_each_member():
    stack = np.stack([random_array(seed, (4, 3)) for seed in range(3)])
    u, p = jax.vmap(linalg.polar)(stack)
    for index in range(3):
        expected_u, expected_p = scipy.linalg.polar(stack[index])
        np.testing.assert_allclose(u[index], expected_u, rtol=0, atol=1e-13)
        np.testing.assert_allclose(p[index], expected_p, rtol=0, atol=1e-13)


def test_stack_is_decomposed_member_by_member():
    stack = np.stack([random_array(seed, (4, 3)) for seed in range(3)])
    for method in ("svd", "qdwh"):
        u, p = linalg.polar(stack, method=method)
        np.testing.assert_allclose(u @ p, stack, rtol=0, atol=1e-13)
        np.testing.assert_allclose(u[1], scipy.linalg.polar(stack[1])[0], rtol=0, atol=1e-13)


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize(
    ("shape", "side"), [("tall", "right"), ("square", "left"), ("wide", "right"), ("wide", "left")]
)
def test_derivatives_agree_in_every_nesting_at_distinct_and_repeated_values(shape, side, dtype):
    for kind in VALUES:
        check(example(kind, SHAPES[shape], dtype), side)


def test_derivatives_at_the_identity_and_rotations_agree_in_every_nesting():
    rotation = np.asarray(random_unitary(jax.random.key(7), 3))
    for a in (np.eye(3), 2.5 * np.eye(3), np.diag([1.0, 1.0, -2.0]), rotation, 0.3 * rotation):
        check(a, "left")


@jax.jit
def pushforward(a, d):
    return jax.jvp(linalg.polar, (a,), (d,))


@pytest.mark.parametrize("dtype", BOTH)
def test_derivative_at_the_identity_splits_into_hermitian_and_skew_parts(dtype):
    d = random_array(3, (3, 3), dtype)
    _, (u_dot, p_dot) = pushforward(jnp.eye(3, dtype=dtype), d)
    np.testing.assert_allclose(u_dot, (d - adjoint(d)) / 2, rtol=0, atol=1e-14)
    np.testing.assert_allclose(p_dot, (d + adjoint(d)) / 2, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", BOTH)
def test_derivative_at_a_unitary_matrix_is_the_rotated_one_of_the_identity(dtype):
    q = np.asarray(random_unitary(jax.random.key(7), 3, dtype))
    d = random_array(3, (3, 3), dtype)
    _, (u_dot, p_dot) = pushforward(q, d)
    b = adjoint(q) @ d
    np.testing.assert_allclose(u_dot, q @ (b - adjoint(b)) / 2, rtol=0, atol=1e-14)
    np.testing.assert_allclose(p_dot, (b + adjoint(b)) / 2, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", BOTH)
def test_derivative_divides_by_sums_of_singular_values(dtype):
    s = np.array([2.0, 1.1, 0.6])
    d = random_array(3, (4, 3), dtype)
    a = np.zeros((4, 3), dtype)
    a[:3] = np.diag(s)
    _, (u_dot, p_dot) = pushforward(a, d)
    k = (d[:3] - adjoint(d[:3])) / (s[:, None] + s[None, :])
    np.testing.assert_allclose(u_dot[:3], k, rtol=0, atol=1e-14)
    np.testing.assert_allclose(u_dot[3], d[3] / s, rtol=0, atol=1e-14)
    np.testing.assert_allclose(p_dot, d[:3] - k * s, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("shape", SHAPES)
def test_reverse_mode_is_the_transpose_of_forward_mode(shape, dtype):
    a = example("pair", SHAPES[shape], dtype)
    d = random_array(3, a.shape, dtype)

    @jax.jit
    def both(a, d, cotangents):
        _, tangents = jax.jvp(linalg.polar, (a,), (d,))
        (pulled,) = jax.vjp(linalg.polar, a)[1](cotangents)
        return tangents, pulled

    cotangents = tuple(
        random_array(seed, x.shape, dtype) for seed, x in enumerate(linalg.polar(a), 5)
    )
    tangents, pulled = both(a, d, cotangents)
    left = sum(along(c, t) for c, t in zip(cotangents, tangents, strict=True))
    np.testing.assert_allclose(along(pulled, d), left, rtol=1e-12, atol=1e-12)


def test_float32_gradient_has_the_digits_of_float32():
    a = example("generic", (4, 3))
    weights = (random_array(1, (4, 3)), random_array(2, (3, 3)))
    gradient = jax.jit(jax.grad(lambda x, w: loss_of(linalg.polar(x), w)))
    exact = gradient(a, weights)
    single = gradient(a.astype(np.float32), tuple(w.astype(np.float32) for w in weights))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, exact, rtol=0, atol=1e-5 * np.linalg.norm(exact))


@pytest.mark.parametrize("shape", SHAPES)
def test_derivative_of_a_rank_deficient_matrix_is_nan(shape):
    a = np.asarray(random_matrix(jax.random.key(0), jnp.array([2.0, 1.0, 0.0]), SHAPES[shape]))
    u, p = linalg.polar(a)
    np.testing.assert_allclose(u @ p, a, rtol=0, atol=1e-13)
    _, (u_dot, p_dot) = pushforward(a, random_array(3, a.shape))
    assert np.all(np.isnan(u_dot))
    assert np.all(np.isnan(p_dot))


def test_unknown_side_and_method_are_refused():
    with pytest.raises(ValueError, match="side as one of 'right', 'left'"):
        linalg.polar(jnp.eye(2), "up")
    with pytest.raises(ValueError, match="method as one of 'qdwh', 'svd'"):
        linalg.polar(jnp.eye(2), method="newton")


@pytest.mark.parametrize("shape", [(), (3,)])
def test_array_that_is_no_matrix_is_refused(shape):
    with pytest.raises(ValueError, match="needs a matrix"):
        linalg.polar(jnp.zeros(shape))


def test_matrix_that_is_not_finite_is_refused_outside_of_jit_and_nan_inside():
    bad = jnp.eye(2).at[0, 1].set(jnp.nan)
    with pytest.raises(ValueError, match="NaN or inf"):
        linalg.polar(bad)
    for factor in jax.jit(linalg.polar)(bad):
        assert np.all(np.isnan(factor))


def test_something_that_is_no_array_is_refused():
    with pytest.raises(TypeError, match="needs an array"):
        linalg.polar({"a": 1})
