"""Every derivative option against closed forms, in every mode that matters for it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import PARAMETERS, TIMES, Y0, D, close, logistic, logistic_solution

from difflinalg import linalg
from difflinalg.ode import Backsolve, Checkpointed, Forward, Interpolating, odeint

ARGUMENTS = tuple(map(jnp.asarray, (Y0, TIMES, PARAMETERS)))
DIRECTIONS = tuple(jnp.asarray(D[name]) for name in ("y0", "t", "p"))
OPTIONS = {"backsolve": Backsolve(), "interpolating": Interpolating(), "forward": Forward()}
RTOL = {"backsolve": 1e-8, "interpolating": 1e-5, "forward": 1e-8}


@pytest.mark.parametrize("name", OPTIONS)
def test_first_and_second_derivatives_agree_with_the_closed_form(name):
    def solve(*x):
        return odeint(logistic, *x, rtol=1e-11, atol=1e-11, adjoint=OPTIONS[name])

    def derivatives(solution):
        loss = lambda *x: jnp.sum(jnp.sin(solution(*x)) ** 2)  # noqa: E731
        gradient = jax.grad(loss, (0, 1, 2))
        forward = lambda *x: jax.jvp(loss, x, DIRECTIONS)[1]  # noqa: E731
        return jax.jit(
            lambda: (
                jax.jvp(gradient, ARGUMENTS, DIRECTIONS),
                jax.grad(forward, (0, 1, 2))(*ARGUMENTS),
            )
        )()

    close(derivatives(solve), derivatives(logistic_solution), RTOL[name], scale=1.0)


@pytest.mark.parametrize("name", ["backsolve", "forward"])
def test_gradient_of_a_complex_state_is_that_of_its_real_form(name):
    t = jnp.array([0.0, 0.6, 1.0])

    def loss(z, p, adjoint):
        field = lambda z, _t, p: p * z - jnp.abs(z) ** 2 * z  # noqa: E731
        z = odeint(field, z, t, p, rtol=1e-10, atol=1e-10, adjoint=adjoint)
        return jnp.sum(z.real**3 + z.imag * z.real)

    z, p = jnp.array(0.6 - 0.3j), jnp.array(0.4 + 1.1j)
    got, expected = (
        jax.jit(jax.grad(lambda *x, a=a: loss(*x, a), (0, 1)))(z, p)
        for a in (OPTIONS[name], Checkpointed())
    )
    close(got, expected, 1e-7)


def test_memory_of_the_backward_adjoint_is_constant_and_it_needs_no_record():
    def compiled(hmax):
        def loss(y):
            t = jnp.array([0.0, 1.0])
            return jnp.sum(odeint(lambda y, _t: -(y**3), y, t, hmax=hmax, adjoint=Backsolve())[-1])

        return jax.jit(jax.grad(loss)).lower(jnp.ones(1000)).compile()

    program = compiled(1 / 500)
    assert program.memory_analysis().temp_size_in_bytes < 100 * 1000 * 8
    close(program(jnp.ones(1000)), np.full(1000, 3.0**-1.5), 1e-7)


def test_batches_with_different_steps_have_the_gradients_of_their_members():
    def gradients(solution):
        gradient = jax.grad(lambda y, p: jnp.sum(solution(y, TIMES, p)), (0, 1))
        return jax.jit(jax.vmap(lambda y: gradient(y, PARAMETERS)))(jnp.stack([Y0, 0.01 * Y0]))

    expected = gradients(logistic_solution)
    for adjoint in OPTIONS.values():
        solve = lambda y, t, p, a=adjoint: odeint(logistic, y, t, p, adjoint=a)  # noqa: E731
        close(gradients(solve), expected, 1e-5)


def stiff(y, t, k):
    return -k * (y - jnp.cos(t))


def stiff_solution(y0, t, k):
    wave = (k**2 * jnp.cos(t) + k * jnp.sin(t)) / (k**2 + 1)
    return wave + (y0 - k**2 / (k**2 + 1)) * jnp.exp(-k * t)


@pytest.mark.parametrize("adjoint", [Checkpointed(), Interpolating()])
def test_stiff_problem_has_the_small_gradient_in_its_rate_constant(adjoint):
    """The derivative in k is of order 1e-6, below a careless absolute tolerance."""
    t = jnp.array([0.0, 0.5, 1.5])

    def solve(y0, k):
        options = {"rtol": 1e-8, "atol": 1e-10, "method": "Esdirk43", "adjoint": adjoint}
        return odeint(stiff, y0, t, k, **options)[-1]

    exact = lambda y0, k: stiff_solution(y0, t[-1], k)  # noqa: E731
    (value, slope), (expected, exact_slope) = (
        jax.jit(jax.value_and_grad(f, 1))(0.3, 1e3) for f in (solve, exact)
    )
    close(value, expected, 1e-7)
    close(slope, exact_slope, 2e-3)


def test_explicit_method_on_a_stiff_problem_reports_the_spent_budget():
    with pytest.raises(RuntimeError, match=r"use a stiff method"):
        odeint(stiff, 0.3, jnp.array([0.0, 50.0]), 1e3, mxstep=1000)


@pytest.mark.parametrize("adjoint", [Checkpointed(), Backsolve()], ids=repr)
def test_second_derivative_of_eigh_in_the_equation_at_coinciding_values(adjoint):
    """Along `y0 = a + s d` all states commute, and each eigenvalue solves `y' = 0.3 exp(y)`."""
    weight, d = jnp.array([[0.2, -0.5], [0.1, 0.7]]), jnp.array([[1.0, 0.4], [0.4, -0.3]])

    def field(y, _t):
        w, v = linalg.eigh(y)
        return 0.3 * (v * jnp.exp(w)) @ v.T

    def loss(y):
        return jnp.sum(weight * odeint(field, y, jnp.array([0.0, 1.0]), adjoint=adjoint)[-1])

    along = jax.jit(lambda y: jnp.sum(jax.jvp(jax.grad(loss), (y,), (d,))[1] * d))
    u = jnp.exp(-0.5)
    close(along(0.5 * jnp.eye(2)), 0.3 * u / (u - 0.3) ** 2 * jnp.sum(weight * (d @ d)), 1e-4)
