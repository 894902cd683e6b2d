"""Gradients through integrations against `jax.experimental.ode.odeint` and diffrax, in one run.

Everything is compiled before it is timed; float64, rtol = atol = 1e-8. diffrax is measured where
it is installed. The errors are compared by a plain test, which `--benchmark-only` leaves out.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.ode import odeint as jax_odeint

from difflinalg.ode import Backsolve, odeint

jax.config.update("jax_enable_x64", True)

TOLERANCES = {"rtol": 1e-8, "atol": 1e-8}


def diffrax_odeint(func, y0, t, *args, rtol, atol):
    diffrax = pytest.importorskip("diffrax")
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, args: func(y, t, *args)),
        diffrax.Tsit5(),
        t[0],
        t[-1],
        None,
        y0,
        args,
        saveat=diffrax.SaveAt(ts=t),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol),
        max_steps=4096,
    )
    return solution.ys


INTEGRATORS = {
    "difflinalg": odeint,
    "difflinalg, Backsolve": partial(odeint, adjoint=Backsolve()),
    "difflinalg, Dopri5": partial(odeint, method="Dopri5"),
    "difflinalg, Dopri8": partial(odeint, method="Dopri8"),
    "jax": jax_odeint,
    "diffrax": diffrax_odeint,
}


def lotka_volterra(y, _t, a, b, c, d):
    return jnp.array([a * y[0] - b * y[0] * y[1], -c * y[1] + d * y[0] * y[1]])


def network(y, _t, w1, b1, w2, b2):
    return jnp.tanh(y @ w1 + b1) @ w2 + b2


def predators():
    return lotka_volterra, jnp.array([1.0, 1.0]), (1.5, 1.0, 3.0, 1.0)


def neural():
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape) / np.sqrt(shape[0]))  # noqa: E731
    return network, draw(32, 64), (draw(64, 64), draw(64), draw(64, 64), draw(64))


PROBLEMS = {
    "Lotka-Volterra, 2 times": (predators, np.linspace(0.0, 10.0, 2)),
    "Lotka-Volterra, 11 times": (predators, np.linspace(0.0, 10.0, 11)),
    "Lotka-Volterra, 101 times": (predators, np.linspace(0.0, 10.0, 101)),
    "network": (neural, np.linspace(0.0, 1.0, 2)),
}


def gradient_of(problem, integrate, **tolerances):
    """The compiled gradient in state and parameters, and its arguments."""
    make, times = PROBLEMS[problem]
    field, y0, args = make()
    t = jnp.asarray(times)

    def loss(y0, args):
        return jnp.sum(jnp.sin(integrate(field, y0, t, *args, **(tolerances or TOLERANCES))))

    return jax.jit(jax.grad(loss, (0, 1))), (y0, tuple(map(jnp.asarray, args)))


@pytest.mark.parametrize("name", INTEGRATORS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_gradient(benchmark, problem, name):
    benchmark.group = f"gradient, {problem}"
    gradient, arguments = gradient_of(problem, INTEGRATORS[name])
    jax.block_until_ready(gradient(*arguments))
    benchmark(lambda: jax.block_until_ready(gradient(*arguments)))


MANY_OUTPUTS = pytest.mark.xfail(
    strict=True, reason="the interpolant of order 4: the error is 16 % above that of diffrax"
)


@pytest.mark.parametrize(
    "problem",
    [pytest.param(p, marks=MANY_OUTPUTS if "101" in p else ()) for p in PROBLEMS],
)
def test_error_of_the_gradient_is_no_larger_than_that_of_the_peers(problem):
    """At equal tolerance: the largest difference from a gradient that is converged."""
    converged = {"rtol": 1e-13, "atol": 1e-13}
    gradient, arguments = gradient_of(problem, partial(odeint, method="Dopri8"), **converged)
    reference = jax.tree.leaves(gradient(*arguments))
    errors = {}
    for name in ("difflinalg", "jax", "diffrax"):
        gradient, arguments = gradient_of(problem, INTEGRATORS[name])
        got = jax.tree.leaves(gradient(*arguments))
        errors[name] = max(
            float(jnp.max(jnp.abs(x - y))) for x, y in zip(got, reference, strict=True)
        )
    print(problem, errors)
    assert errors["difflinalg"] <= min(errors["jax"], errors["diffrax"]), errors


@pytest.mark.parametrize("name", INTEGRATORS)
def test_compilation(benchmark, name):
    benchmark.group = "compilation of the gradient, Lotka-Volterra, 2 times"

    def compile_once():
        jax.clear_caches()
        gradient, arguments = gradient_of("Lotka-Volterra, 2 times", INTEGRATORS[name])
        gradient.lower(*arguments).compile()

    enabled = jax.config.jax_enable_compilation_cache
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        benchmark.pedantic(compile_once, rounds=3)
    finally:
        jax.config.update("jax_enable_compilation_cache", enabled)
