"""funm_hermitian against high precision, block matrices, closed forms and its own transpose."""

import functools
import itertools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.linalg
from jax import lax

from difflinalg._dense.funm_hermitian import form_of_matrices, funm_hermitian

KINK = 1e-10
FUNCTIONS = {
    "exp": (jnp.exp, mpmath.exp),
    "sin": (jnp.sin, mpmath.sin),
    "cube": (lambda x: x**3, lambda x: x**3),
    "log": (jnp.log, mpmath.log),
    "sqrt": (jnp.sqrt, mpmath.sqrt),
    "root of a root": (
        lambda x: (x**2 + KINK**2) ** 0.25,
        lambda x: mpmath.root(x**2 + mpmath.mpf(KINK) ** 2, 4),
    ),
}
SPECTRA = {
    "identity": [1.0, 1.0, 1.0, 1.0],
    "pairs": [1.0, 1.0, 2.0, 2.0],
    "close": [1.0, 1.0 + 1e-3, 2.0, 2.0 + 1e-6],
    "closer": [1.0, 1.0 + 1e-10, 1.0 + 1e-13, 3.0],
    "generic": [0.3, 1.0, 2.0, 4.0],
}


def unitary(rng, n, dtype=complex):
    x = rng.normal(size=(n, n)) + 1j * rng.normal(size=(n, n))
    return np.linalg.qr(x if np.issubdtype(dtype, np.complexfloating) else x.real)[0].astype(dtype)


def hermitian(rng, n, dtype=complex):
    x = rng.normal(size=(n, n)) + 1j * rng.normal(size=(n, n))
    x = x if np.issubdtype(dtype, np.complexfloating) else x.real
    return ((x + x.conj().T) / 2).astype(dtype)


def with_spectrum(rng, values, dtype=complex):
    q = unitary(rng, len(values), dtype)
    a = (q * np.asarray(values)) @ q.conj().T
    return ((a + a.conj().T) / 2).astype(dtype)


def relative(x, y):
    return np.max(np.abs(np.asarray(x) - y)) / np.max(np.abs(y))


# Oracles ------------------------------------------------------------------------------------


def precise_differences(f, a, e, order):
    """The derivative of t -> f(a + t e) by central differences in 150 digits."""
    stencil = {
        0: {0: 1},
        1: {1: 0.5, -1: -0.5},
        2: {1: 1, 0: -2, -1: 1},
        3: {2: 0.5, 1: -1, -1: 1, -2: -0.5},
    }[order]
    with mpmath.workdps(150):
        h = mpmath.mpf(10) ** -30
        total = mpmath.zeros(len(a))
        for step, weight in stencil.items():
            w, v = mpmath.eighe(mpmath.matrix(a.tolist()) + step * h * mpmath.matrix(e.tolist()))
            total += weight * v * mpmath.diag([f(x) for x in w]) * v.H
        return np.array((total / h**order).tolist(), dtype=complex)


def block_derivative(a, *directions):
    """The derivative of expm in all directions: a corner of expm of a block triangular matrix."""
    m = np.asarray(a, complex)
    for e in directions:
        blocks = len(m) // len(a)
        e = np.kron(np.eye(blocks), e)
        m = np.block([[m, e], [np.zeros_like(m), m]])
    with mpmath.workdps(30):
        exact = np.array(mpmath.expm(mpmath.matrix(m.tolist())).tolist(), dtype=complex)
    return exact[: len(a), -len(a) :]


def plain_exp(a):
    """JAX's own expm, which has derivatives of every order."""
    return jax.scipy.linalg.expm((a + jnp.conj(a.T)) / 2)


# Values and derivatives against the oracles -----------------------------------------------------


def along(g, e):
    return lambda a: jax.jvp(g, (a,), (e,))[1]


@jax.jit
def derivatives_of(index, a, e):
    """Value and three derivatives along `e`, of the function with this index in FUNCTIONS."""
    branches = [f for f, _ in FUNCTIONS.values()]

    def g(x):
        return funm_hermitian(x, lambda s: lax.switch(index, branches, s))

    first = along(g, e)
    second = along(first, e)
    return g(a), first(a), second(a), along(second, e)(a)


def test_value_and_three_derivatives_are_exact_at_every_spectrum(rng):
    for spectrum, name in itertools.product(SPECTRA, FUNCTIONS):
        a, e = with_spectrum(rng, SPECTRA[spectrum]), hermitian(rng, 4)
        computed = derivatives_of(list(FUNCTIONS).index(name), a, e)
        for order, x in enumerate(computed):
            expected = precise_differences(FUNCTIONS[name][1], a, e, order)
            # Of log at the identity, which is 0, the absolute error counts.
            error = np.max(np.abs(x - expected)) / max(1.0, np.max(np.abs(expected)))
            assert error < [1e-14, 1e-13, 1e-12, 1e-11][order], (spectrum, name, order)


def test_derivatives_are_right_where_the_function_has_a_kink_between_the_eigenvalues(rng):
    f = FUNCTIONS["root of a root"][1]
    a = np.diag([-2e-10, 1e-11, 0.5, 1.0]).astype(complex)
    e = hermitian(rng, 4)
    computed = derivatives_of(list(FUNCTIONS).index("root of a root"), a, e)
    for order in (1, 2):
        exact = precise_differences(f, a, e, order)
        # Entry by entry: they differ by many orders of magnitude.
        assert np.max(np.abs(computed[order] - exact) / np.abs(exact)) < 1e-13


@jax.jit
def mixed_derivatives(a, directions):
    g = functools.partial(funm_hermitian, f=jnp.exp)
    return [(g := along(g, e))(a) for e in directions]


def test_derivatives_in_different_directions_are_corners_of_a_block_exponential(rng):
    for spectrum in SPECTRA.values():
        a = with_spectrum(rng, spectrum)
        directions = [hermitian(rng, 4) for _ in range(3)]
        for order, x in enumerate(mixed_derivatives(a, directions), 1):
            assert relative(x, block_derivative(a, *directions[:order])) < 1e-13


def test_values_are_those_of_scipy_for_stacks_of_real_matrices(rng):
    stack = np.stack([with_spectrum(rng, [1.0, 1.0, 2.5], float) for _ in range(3)])
    for f, reference in (
        (jnp.exp, scipy.linalg.expm),
        (jnp.log, scipy.linalg.logm),
        (jnp.sqrt, scipy.linalg.sqrtm),
    ):
        expected = np.stack([reference(x) for x in stack])
        assert relative(funm_hermitian(stack, f), expected) < 1e-13


def test_gradient_of_a_complex_function_agrees_with_daleckii_krein(rng):
    w = np.array([0.5, 0.5, 2.0])
    q = unitary(rng, 3, float)
    a, e = (q * w) @ q.T, hermitian(rng, 3, float)
    table = np.where(
        np.eye(3, dtype=bool) | (w[:, None] == w),
        -2j * np.exp(-2j * w),
        np.subtract.outer(np.exp(-2j * w), np.exp(-2j * w))
        / np.where(w[:, None] == w, 1, np.subtract.outer(w, w)),
    )

    def evolve(x):
        return funm_hermitian(x, lambda s: jnp.exp(-2j * s))

    tangent = jax.jit(along(evolve, e))(a)
    assert evolve(a).dtype == tangent.dtype == np.complex128
    assert relative(tangent, q @ (table * (q.T @ e @ q)) @ q.T) < 1e-14
    pure = jax.jit(jax.grad(lambda x: jnp.abs(evolve(x)[0, 1]) ** 2))(a)
    h = 1e-5
    probability = lambda x: np.abs(scipy.linalg.expm(-2j * x)[0, 1]) ** 2  # noqa: E731
    difference = (probability(a + h * e) - probability(a - h * e)) / (2 * h)
    assert abs(np.sum(pure * e) - difference) < 1e-9


# Modes ----------------------------------------------------------------------------------------


def forward(g, d):
    return lambda x: jax.jvp(g, (x,), (d,))[1]


def reverse(g, d):
    def directional(x):
        slopes = jax.tree.leaves(jax.grad(g)(x))
        return sum(jnp.sum(s * t) for s, t in zip(slopes, jax.tree.leaves(d), strict=True))

    return directional


A2 = np.diag([1.0, 1.0])
W2 = np.array([[0.3, -1.2], [0.7, 0.4]])
DIRECTIONS = [np.array(d) for d in ([[1.0, 0.2], [0.2, -0.4]], [[0.1, -1], [-1, 0.3]])] + [
    W2 + W2.T
]


@pytest.mark.parametrize("modes", list(itertools.product((forward, reverse), repeat=3)))
def test_every_nesting_of_modes_to_third_order_is_exact_at_the_identity(modes):
    def nest(g):
        for mode, d in zip(modes, DIRECTIONS, strict=True):
            g = mode(g, d)
        return jax.jit(g)(A2)

    computed = nest(lambda a: jnp.sum(W2 * funm_hermitian(a, jnp.exp)))
    expected = np.sum(W2 * block_derivative(A2, *DIRECTIONS).real)
    assert abs(computed / expected - 1.0) < 1e-13


@pytest.mark.parametrize("modes", list(itertools.product((forward, reverse), repeat=2)))
def test_mixed_derivatives_with_a_closed_over_parameter_are_exact_in_every_nesting(modes):
    directions = [(DIRECTIONS[0], 0.3), (DIRECTIONS[1], -0.7)]

    def nest(g, modes):
        for mode, d in zip(modes, directions, strict=True):
            g = mode(g, d)
        return jax.jit(g)((A2, 0.7))

    computed = nest(
        lambda x: jnp.sum(W2 * funm_hermitian(x[0], lambda s: jnp.exp(-x[1] * s))), modes
    )
    expected = nest(lambda x: jnp.sum(W2 * plain_exp(-x[1] * x[0])), (forward, forward))
    assert abs(computed / expected - 1.0) < 1e-13


def test_tangent_and_cotangent_maps_are_transposes_of_each_other(rng):
    a = with_spectrum(rng, [1.0, 1.0, 2.0, 2.0 + 1e-9])
    e, b_dot = hermitian(rng, 4), np.array([0.3, -1.1])

    def g(a, b):
        return funm_hermitian(a, lambda s: jnp.exp(-b[0] * s) + b[1] * s)

    @jax.jit
    def both_maps(b, c):
        tangent = jax.jvp(g, (a, b), (e, b_dot))[1]
        return tangent, *jax.vjp(g, a, b)[1](c)

    c = rng.normal(size=(4, 4)) + 1j * rng.normal(size=(4, 4))
    tangent, a_bar, b_bar = both_maps(np.array([0.5, 0.0]), c)
    left, right = np.sum(c * tangent), np.sum(a_bar * e) + np.sum(b_bar * b_dot)
    assert abs(left.real - right.real) < 1e-12 * abs(left)


def test_heat_capacity_of_a_degenerate_hamiltonian_is_its_energy_variance(rng):
    levels = np.array([0.0, 0.0, 1.0, 1.0, 1.0])
    h = with_spectrum(rng, levels)

    def log_z(b):
        return jnp.log(jnp.real(jnp.trace(funm_hermitian(h, lambda x: jnp.exp(-b * x)))))

    p = np.exp(-0.8 * levels) / np.sum(np.exp(-0.8 * levels))
    variance = p @ levels**2 - (p @ levels) ** 2
    assert abs(jax.jit(jax.grad(jax.grad(log_z)))(0.8) - variance) < 1e-14


def test_derivative_at_a_vanishing_coefficient_is_that_of_the_companion(rng):
    # sqrt is singular next to the small eigenvalues; sin, all there is in the value, is not.
    a = np.diag([1e-10, 1.1e-10, 0.5, 1.0])
    c = hermitian(rng, 4, float)

    def loss(b, a):
        return jnp.sum(c * funm_hermitian(a, lambda x: jnp.sin(x) + b * jnp.sqrt(x)))

    of_root = jax.jit(jax.grad(lambda x: jnp.sum(c * funm_hermitian(x, jnp.sqrt))))(a)
    assert relative(jax.jit(jax.grad(lambda x: jax.grad(loss)(0.0, x)))(a), of_root) < 1e-13
    assert relative(jax.jit(jax.jacfwd(jax.grad(loss, 1)))(0.0, a), of_root) < 1e-13


def test_second_derivatives_through_a_scan_are_those_of_the_unrolled_loop(rng):
    a = hermitian(rng, 2, float)
    step = functools.partial(funm_hermitian, f=jnp.cos)

    def scanned(x):
        return jnp.sum(W2 * lax.scan(lambda c, _: (step(c), None), x, length=2)[0])

    def unrolled(x):
        return jnp.sum(W2 * step(step(x)))

    e = W2 + W2.T
    expected = jax.jit(forward(forward(unrolled, e), e))(a)
    for mode in (forward, reverse):
        assert abs(jax.jit(mode(reverse(scanned, e), e))(a) / expected - 1) < 1e-13


def test_batches_and_vmap_agree_with_single_matrices(rng):
    stack = jnp.stack([hermitian(rng, 2) for _ in range(3)])
    betas = jnp.array([0.1, 0.5, 2.0])

    def loss(a, b):
        return jnp.sum(jnp.abs(funm_hermitian(a, lambda x: jnp.exp(-b * x))) ** 2)

    both = jax.jit(jax.grad(loss, (0, 1)))
    mapped = jax.jit(jax.vmap(jax.grad(loss, (0, 1))))(stack, betas)
    for i, (a, b) in enumerate(zip(stack, betas, strict=True)):
        a_bar, b_bar = both(a, b)
        np.testing.assert_allclose(mapped[0][i], a_bar, rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(mapped[1][i], b_bar, rtol=1e-13)
    assert abs(both(stack, 0.5)[1] - sum(both(a, 0.5)[1] for a in stack)) < 1e-12


def test_an_integer_that_jit_traces_can_be_closed_over():
    def loss(a, power, c):
        return jnp.trace(funm_hermitian(a, lambda x: c * x**power))

    a_bar, c_bar = jax.jit(jax.grad(jax.jit(loss), (0, 2)))(np.diag([2.0, 2.0]), 3, 0.5)
    np.testing.assert_allclose(a_bar, 6.0 * np.eye(2), rtol=1e-14)
    np.testing.assert_allclose(c_bar, 16.0, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_single_precision_keeps_its_digits_far_from_zero_and_when_degenerate(dtype, rng):
    a = with_spectrum(rng, [0.0, 0.0, 1.0], dtype) + 100 * np.eye(3, dtype=dtype)
    e = hermitian(rng, 3, dtype)

    def g(x):
        return funm_hermitian(x, lambda s: jnp.exp((s - 100) / 2))

    both = jax.jit(lambda a, e: jax.jvp(g, (a,), (e,)))
    value, tangent = both(a, e)
    assert value.dtype == tangent.dtype == dtype
    wide = np.complex128 if np.issubdtype(dtype, np.complexfloating) else np.float64
    exact = both(a.astype(wide), e.astype(wide))
    assert relative(value, exact[0]) < 2e-5  # the eigenvalues have 7 digits of 100
    assert relative(tangent, exact[1]) < 2e-5


@pytest.mark.parametrize("n", [0, 1])
def test_sizes_zero_and_one_have_values_gradients_and_hessians(n):
    a = jnp.full((n, n), 0.3)

    def loss(x):
        return jnp.sum(funm_hermitian(x, jnp.exp))

    value, gradient, hessian = jax.jit(
        lambda x: (loss(x), jax.grad(loss)(x), jax.hessian(loss)(x))
    )(a)
    assert value == pytest.approx(n * np.exp(0.3))
    np.testing.assert_allclose(gradient, np.full((n, n), np.exp(0.3)), rtol=1e-14)
    np.testing.assert_allclose(hessian, np.full((n,) * 4, np.exp(0.3)), rtol=1e-14)
    assert funm_hermitian(jnp.zeros((0, 2, 2)), jnp.exp).shape == (0, 2, 2)


def test_tangent_is_finite_where_jax_differentiates_eigh_to_nan():
    def through_eigh(a):
        w, v = jnp.linalg.eigh(a)
        return jnp.sum((v * jnp.exp(w)) @ v.T)

    assert not np.all(np.isfinite(jax.grad(through_eigh)(jnp.eye(2))))
    gradient = jax.jit(jax.grad(lambda a: jnp.sum(funm_hermitian(a, jnp.exp))))
    np.testing.assert_allclose(gradient(jnp.eye(2)), np.full((2, 2), np.e), rtol=1e-14)
    assert "difflinalg_inserted" in str(jax.make_jaxpr(gradient)(jnp.eye(2)))


def test_input_is_symmetrised_unless_it_is_trusted(rng):
    a = hermitian(rng, 3, float)
    lopsided = a + np.triu(np.ones((3, 3)), 1) - np.tril(np.ones((3, 3)), -1)
    np.testing.assert_allclose(funm_hermitian(lopsided, jnp.exp), scipy.linalg.expm(a), atol=1e-13)
    trusted = funm_hermitian(a, jnp.exp, symmetrize_input=False)
    np.testing.assert_allclose(trusted, scipy.linalg.expm(a), atol=1e-13)


def test_bad_arguments_are_refused_with_a_remedy():
    with pytest.raises(ValueError, match="square"):
        funm_hermitian(np.ones((2, 3)), jnp.exp)
    with pytest.raises(TypeError, match="function of one number"):
        funm_hermitian(np.eye(2), 3.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"jax\.vmap"):
        funm_hermitian(np.eye(2), lambda x: jnp.stack([x, x]))


# The parts ------------------------------------------------------------------------------------


def test_third_order_form_is_the_sum_over_all_orders_of_the_directions(rng):
    table = jnp.asarray(rng.normal(size=(2, 2, 2)))
    v, e, g = unitary(rng, 2), hermitian(rng, 2), hermitian(rng, 2)
    x, y = v.conj().T @ e @ v, v.conj().T @ g @ v
    inner = np.einsum("abc,ab,bc->ac", table, x, y) + np.einsum("abc,ab,bc->ac", table, y, x)
    computed = form_of_matrices(table, jnp.asarray(v), (jnp.asarray(e), jnp.asarray(g)))
    np.testing.assert_allclose(computed, (v @ inner @ v.conj().T).T, atol=1e-13)
