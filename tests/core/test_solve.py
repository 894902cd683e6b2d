"""Conjugate gradients for blocks: solutions by NumPy, derivatives in closed form."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg._core.solve import hermitian_solve
from difflinalg.testing import random_hermitian

N, COLUMNS = 5, 3
SHIFTS = np.array([0.0, 0.3, 1.0])
DTYPES = (jnp.float64, jnp.complex128)


def random_array(seed, shape, dtype=jnp.float64):
    return np.asarray(jax.random.normal(jax.random.key(seed), shape, dtype))


def problem(dtype=jnp.float64):
    values = jnp.array([1.0, 0.8, 0.5, 0.3, 0.2])
    return (
        np.asarray(random_hermitian(jax.random.key(0), values, dtype)),
        random_array(1, (N, COLUMNS), dtype).copy(),
    )


def along(gradient, d):
    return jnp.real(jnp.sum(gradient * d))


@partial(jax.jit, static_argnames=("max_steps",))
def solve(a, b, shifts=SHIFTS, max_steps=50):
    """Column j of the solution belongs to the operator `a + shifts[j]`."""
    return hermitian_solve(lambda x: a @ x + shifts * x, b, lambda r: r, max_steps)


def by_numpy(a, b, shifts=SHIFTS):
    columns = [np.linalg.solve(a + shifts[j] * np.eye(N), b[:, j]) for j in range(COLUMNS)]
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_column_is_solved_with_its_own_operator(dtype):
    a, b = problem(dtype)
    np.testing.assert_allclose(solve(a, b), by_numpy(a, b), rtol=0, atol=1e-13)


def test_single_precision_is_solved_to_single_precision():
    a, b = problem()
    x = solve(a.astype(np.float32), b.astype(np.float32), SHIFTS.astype(np.float32))
    assert x.dtype == jnp.float32
    np.testing.assert_allclose(x, by_numpy(a, b), rtol=0, atol=1e-4)


def test_zero_right_hand_sides_have_zero_solutions():
    a, b = problem()
    np.testing.assert_array_equal(solve(a, 0 * b), np.zeros((N, COLUMNS)))
    b[:, 1] = 0.0
    x = solve(a, b)
    np.testing.assert_array_equal(x[:, 1], np.zeros(N))
    np.testing.assert_allclose(x, by_numpy(a, b), rtol=0, atol=1e-13)


@pytest.mark.parametrize("size", [1e-200, 1e-300, 1e200])
def test_right_hand_sides_of_any_size_keep_their_digits(size):
    a, b = problem()
    np.testing.assert_allclose(solve(a, size * b) / size, solve(a, b), rtol=1e-12)


def test_columns_of_very_different_size_keep_their_digits():
    a, b = problem()
    scale = np.array([1.0, 1e-200, 1e100])
    np.testing.assert_allclose(solve(a, scale * b) / scale, solve(a, b), rtol=1e-12)


def test_column_that_does_not_converge_in_time_is_nan_and_the_others_are_not():
    a, b = problem()
    b[:, 2] = np.linalg.eigh(a)[1][:, 0]
    x = solve(a, b, max_steps=1)
    assert np.all(np.isnan(x[:, :2]))
    np.testing.assert_allclose(x[:, 2], by_numpy(a, b)[:, 2], rtol=0, atol=1e-13)


def test_right_hand_side_that_is_not_finite_gives_nan_in_its_column():
    a, b = problem()
    b[1, 1] = np.nan
    x = solve(a, b)
    assert np.all(np.isnan(x[:, 1]))
    np.testing.assert_allclose(x[:, [0, 2]], by_numpy(a, b)[:, [0, 2]], rtol=0, atol=1e-13)


def test_exact_preconditioner_converges_in_one_step():
    a, b = problem()
    inverse = np.linalg.inv(a)
    x = hermitian_solve(lambda x: a @ x, b, lambda r: inverse @ r, 2)
    np.testing.assert_allclose(x, inverse @ b, rtol=0, atol=1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
def test_derivatives_with_respect_to_the_operator_have_their_closed_form(dtype):
    a, b = problem(dtype)
    a_dot = np.asarray(random_hermitian(jax.random.key(2), jnp.linspace(-0.3, 0.4, N), dtype))
    b_dot = random_array(3, b.shape, dtype)
    shifts_dot = random_array(4, (COLUMNS,))
    tangents = (a_dot, b_dot, shifts_dot)

    @jax.jit
    def forward(a, b, shifts):
        return jax.jvp(solve, (a, b, shifts), tangents)[1]

    x = by_numpy(a, b)
    x_dot = by_numpy(a, b_dot - a_dot @ x - x * shifts_dot)
    np.testing.assert_allclose(forward(a, b, SHIFTS), x_dot, rtol=0, atol=1e-12)
    # Once more along the same direction: (A x)'' = 0 gives A x'' = -2 A' x'.
    twice = jax.jit(lambda *p: jax.jvp(forward, p, tangents)[1])(a, b, SHIFTS)
    expected = by_numpy(a, -2 * (a_dot @ x_dot + x_dot * shifts_dot))
    np.testing.assert_allclose(twice, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("dtype", DTYPES)
def test_reverse_mode_has_its_closed_form(dtype):
    a, b = problem(dtype)
    weight = random_array(5, b.shape, dtype)

    def loss(a, b):
        return jnp.real(jnp.sum(weight * solve(a, b)))

    grad_a, grad_b = jax.jit(jax.grad(loss, argnums=(0, 1)))(a, b)
    y = by_numpy(a.T, weight)
    np.testing.assert_allclose(grad_b, y, rtol=0, atol=1e-12)
    np.testing.assert_allclose(grad_a, -y @ by_numpy(a, b).T, rtol=0, atol=1e-12)


def test_transpose_of_a_complex_solve_is_the_solve_with_the_transpose():
    a, b = problem(jnp.complex128)
    cotangent = random_array(6, b.shape, jnp.complex128)
    (transposed,) = jax.linear_transpose(lambda r: solve(a, r), b)(cotangent)
    np.testing.assert_allclose(transposed, by_numpy(a.T, cotangent), rtol=0, atol=1e-13)
    np.testing.assert_allclose(np.sum(cotangent * solve(a, b)), np.sum(transposed * b), rtol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_nesting_of_two_modes_gives_the_same_second_derivative(dtype):
    a, b = problem(dtype)
    d = np.asarray(random_hermitian(jax.random.key(2), jnp.linspace(-0.3, 0.4, N), dtype))
    weight = random_array(5, b.shape, dtype)

    @jax.jit
    def second(a):
        def f(x):
            return jnp.real(jnp.sum(weight * solve(x, b)))

        def forward(x):
            return jax.jvp(f, (x,), (d,))[1]

        def reverse(x):
            return along(jax.grad(f)(x), d)

        return jnp.stack(
            [
                jax.jvp(forward, (a,), (d,))[1],
                jax.jvp(reverse, (a,), (d,))[1],
                along(jax.grad(forward)(a), d),
                along(jax.grad(reverse)(a), d),
            ]
        )

    x = by_numpy(a, b)
    expected = np.real(np.sum(weight * by_numpy(a, 2 * d @ by_numpy(a, d @ x))))
    np.testing.assert_allclose(second(a), expected, rtol=1e-11)


def test_vmap_solves_a_stack():
    a, b = problem()
    stack = np.stack([a, a @ a, np.eye(N)])
    x = jax.vmap(solve, in_axes=(0, None))(stack, b)
    for index in range(3):
        np.testing.assert_allclose(x[index], by_numpy(stack[index], b), rtol=0, atol=1e-12)
