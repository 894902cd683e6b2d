"""The problems of Hull, Enright, Fellen and Sedgwick (1972), classes A to E, without C5.

They are integrated together as one pytree over the battery's interval 0..20, and compared with
SciPy's DOP853 on each.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

from difflinalg.ode import odeint

CHAIN = np.diag(-np.ones(10)) + np.diag(np.ones(9), -1)
CHAIN[-1, -1] = 0.0
CASCADE = np.diag(-np.arange(1.0, 11.0)) + np.diag(np.arange(1.0, 10.0), -1)
CASCADE[-1, -1] = 0.0
DIFFUSION = -2 * np.eye(10) + np.eye(10, k=1) + np.eye(10, k=-1)
REACTION = np.array([[-1.0, 1.0, 0.0], [1.0, -2.0, 1.0], [0.0, 1.0, -1.0]])


def torus(y, xp):
    r = xp.sqrt(y[0] ** 2 + y[1] ** 2)
    return [-y[1] - y[0] * y[2] / r, y[0] - y[1] * y[2] / r, y[0] / r]


def orbit(y):
    r3 = (y[0] ** 2 + y[1] ** 2) ** 1.5
    return [y[2], y[3], -y[0] / r3, -y[1] / r3]


def unit(n):
    return np.eye(n)[0]


# name: (right-hand side of t, y and the numerical library; first state)
PROBLEMS = {
    "A1": (lambda _t, y, _: [-y[0]], [1.0]),
    "A2": (lambda _t, y, _: [-(y[0] ** 3) / 2], [1.0]),
    "A3": (lambda t, y, xp: [y[0] * xp.cos(t)], [1.0]),
    "A4": (lambda _t, y, _: [y[0] / 4 * (1 - y[0] / 20)], [1.0]),
    "A5": (lambda t, y, _: [(y[0] - t) / (y[0] + t)], [4.0]),
    "B1": (lambda _t, y, _: [2 * (y[0] - y[0] * y[1]), -(y[1] - y[0] * y[1])], [1.0, 3.0]),
    "B2": (lambda _t, y, _: REACTION @ y, [2.0, 0.0, 1.0]),
    "B3": (lambda _t, y, _: [-y[0], y[0] - y[1] ** 2, y[1] ** 2], [1.0, 0.0, 0.0]),
    "B4": (lambda _t, y, xp: torus(y, xp), [3.0, 0.0, 0.0]),
    "B5": (lambda _t, y, _: [y[1] * y[2], -y[0] * y[2], -0.51 * y[0] * y[1]], [0.0, 1.0, 1.0]),
    "C1": (lambda _t, y, _: CHAIN @ y, unit(10)),
    "C2": (lambda _t, y, _: CASCADE @ y, unit(10)),
    "C3": (lambda _t, y, _: DIFFUSION @ y, unit(10)),
    "E1": (lambda t, y, _: [y[1], -(y[1] / (t + 1) + (1 - 0.25 / (t + 1) ** 2) * y[0])],
           [0.6713967071418030, 0.09540051444747446]),
    "E2": (lambda _t, y, _: [y[1], (1 - y[0] ** 2) * y[1] - y[0]], [2.0, 0.0]),
    "E3": (lambda t, y, xp: [y[1], y[0] ** 3 / 6 - y[0] + 2 * xp.sin(2.78535 * t)], [0.0, 0.0]),
    "E4": (lambda _t, y, _: [y[1], 0.032 - 0.4 * y[1] ** 2], [30.0, 0.0]),
    "E5": (lambda t, y, xp: [y[1], xp.sqrt(1 + y[1] ** 2) / (25 - t)], [0.0, 0.0]),
}  # fmt: skip
for index, e in enumerate((0.1, 0.3, 0.5, 0.7, 0.9)):
    start = [1 - e, 0.0, 0.0, np.sqrt((1 + e) / (1 - e))]
    PROBLEMS[f"D{index + 1}"] = (lambda _t, y, _: orbit(y), start)


def together(y, t):
    return {k: jnp.stack(list(f(t, y[k], jnp))) for k, (f, _) in PROBLEMS.items()}


@pytest.mark.parametrize("method", ["Dopri5", "Dopri8"])
def test_battery_agrees_with_scipy(method):
    run = jax.jit(partial(odeint, together, rtol=1e-11, atol=1e-12, method=method))
    y0 = {k: jnp.asarray(y) for k, (_, y) in PROBLEMS.items()}
    got = run(y0, jnp.array([0.0, 7.0, 20.0]))
    for name, (f, y) in PROBLEMS.items():
        reference = scipy.integrate.solve_ivp(
            lambda t, y, f=f: f(t, y, np), (0.0, 20.0), y, "DOP853", [7.0, 20.0],
            rtol=1e-13, atol=1e-14,
        )  # fmt: skip
        error = np.max(np.abs(np.asarray(got[name])[1:] - reference.y.T))
        assert error < 3e-8, (name, error)


def test_global_error_has_the_order_of_the_method_by_regression():
    """Fixed steps: tolerances so wide that hmax alone decides."""
    t, exact = jnp.array([0.0, 2.0]), np.exp(np.sin(2.0))
    for method, order, counts in (("Dopri5", 5, (8, 12, 18)), ("Dopri8", 8, (4, 6, 8))):
        errors = []
        for n in counts:
            field = lambda y, t: y * jnp.cos(t)  # noqa: E731
            y = odeint(field, 1.0, t, rtol=1e3, atol=1e3, hmax=2.0 / n, method=method)
            errors.append(abs(float(y[-1]) - exact))
        slope = np.polyfit(np.log(counts), np.log(errors), 1)[0]
        assert -order - 1.2 < slope < -order + 0.7, (method, slope, errors)
