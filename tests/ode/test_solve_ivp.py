"""`solve_ivp`: results against SciPy and closed forms, events and their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from problems import PARAMETERS, TIMES, Y0, close, logistic, logistic_solution

from difflinalg.ode import OdeResult, solve_ivp

SPAN = (TIMES[0], TIMES[-1])


def field(t, y, p):
    return logistic(y, t, p)


@pytest.mark.parametrize("method", ["Tsit5", "Dopri5", "Dopri8", "Esdirk43", "RK4"])
def test_every_method_agrees_with_the_closed_form_also_in_its_gradient(method):
    options = {"first_step": 0.01} if method == "RK4" else {}

    def solve(y0, t, p):
        span = (t[0], t[-1])
        result = solve_ivp(field, span, y0, method, t, args=(p,), rtol=1e-9, atol=1e-9, **options)
        return jnp.sum(result.ys**2, axis=1)

    exact = lambda y0, t, p: jnp.sum(logistic_solution(y0, t, p) ** 2, axis=1)  # noqa: E731
    got, expected = (
        jax.jit(lambda *x, f=f: (f(*x), jax.jacrev(f, (0, 1, 2))(*x)))(
            jnp.asarray(Y0), jnp.asarray(TIMES), jnp.asarray(PARAMETERS)
        )
        for f in (solve, exact)
    )
    close(got, expected, 1e-6, scale=1.0)


def test_result_has_the_ends_by_default_and_counts_steps():
    result = solve_ivp(field, SPAN, Y0, args=(PARAMETERS,))
    assert isinstance(result, OdeResult)
    assert result.success
    assert result.message == "The integration reached the end of the interval."
    close(result.ts, np.array(SPAN), 0.0)
    close(result.ys, logistic_solution(Y0, np.array(SPAN), PARAMETERS), 1e-6)
    assert int(result.stats["num_accepted"]) > 3
    assert result.t_events is result.y_events is result.sol is None


def test_dense_output_is_the_solution_at_any_times_and_its_derivative_the_field():
    result = solve_ivp(field, SPAN, Y0, args=(PARAMETERS,), rtol=1e-9, dense_output=True)
    t = np.array([[1.2, 0.3], [0.1, 0.77]])
    expected = logistic_solution(Y0, np.sort(np.append(0.1, t.ravel())), PARAMETERS)[1:]
    close(result.sol(t).reshape(4, 2)[np.argsort(t.ravel())], expected, 1e-7)
    value, slope = jax.jit(lambda t: jax.jvp(result.sol, (t,), (1.0,)))(0.5)
    close(slope, field(0.5, value, PARAMETERS), 1e-12)


# Events.


def fall(t, y, gravity, drag):
    del t
    return jnp.array([y[1], -gravity - drag * y[1]])


def ground(t, y, gravity, drag):
    del t, gravity, drag
    return y[0]


ground.terminal = True
ground.direction = -1


def time_of_fall(height, gravity):
    result = solve_ivp(
        fall,
        (0.0, 20.0),
        jnp.array([height, 0.0]),
        t_eval=jnp.array([0.0, 0.5, 3.0]),
        args=(gravity, 0.0),
        events=ground,
        rtol=1e-9,
    )
    return result.t_events[0][0], result


def test_terminal_event_stops_and_its_time_has_three_derivatives():
    def orders(function):
        """Value and rest of the result, gradient, and the second and third order along a line."""
        first = jax.grad(lambda h, g: function(h, g)[0], (0, 1))
        along = lambda f: lambda h, g: jax.jvp(f, (h, g), (0.3, 1.0))[1]  # noqa: E731
        return jax.jit(lambda h, g: (function(h, g), first(h, g), along(along(first))(h, g)))(
            5.0, 9.8
        )

    (time, result), *derivatives = orders(time_of_fall)
    _, *expected = orders(lambda h, g: (jnp.sqrt(2 * h / g), None))
    close(time, np.sqrt(10 / 9.8), 1e-10)
    close(derivatives, expected, 1e-8)
    assert int(result.status) == 1
    assert result.message == "A terminal event occurred."
    close(result.y_events[0][0], np.array([0.0, -np.sqrt(98.0)]), 1e-9)
    assert np.all(np.isnan(result.t_events[0][1:]))
    close(result.ys[:2, 0], np.array([5.0, 5.0 - 9.8 / 8]), 1e-9)
    assert np.all(np.isnan(result.ys[2]))
    assert np.isnan(result.ts[2])


def test_all_crossings_of_an_oscillator_are_found_with_direction_and_count():
    def up(t, y):
        del t
        return y[0]

    def second(t, y):
        del t
        return y[1] - 0.5

    up.direction = 1
    second.terminal = 3

    def oscillator(t, y):
        del t
        return jnp.array([y[1], -y[0]])

    y0 = jnp.array([1.0, 0.0])
    run = lambda y: solve_ivp(oscillator, (0.0, 50.0), y, events=[up, second], rtol=1e-9)  # noqa: E731
    batch = jax.jit(jax.vmap(run))(jnp.stack([y0, 2 * y0]))
    result = jax.tree.map(lambda x: x[0], batch)
    reference = scipy.integrate.solve_ivp(
        oscillator, (0.0, 50.0), y0, events=[up, second], rtol=1e-10, atol=1e-10
    )
    ups, seconds = result.t_events
    close(ups[:1], reference.t_events[0][:1], 1e-7)
    assert np.all(np.isnan(ups[1:2])) or ups[1] <= seconds[2]
    close(seconds[:3], reference.t_events[1][:3], 1e-7)
    assert np.all(np.isnan(seconds[3:]))
    close(batch.t_events[0][0, :1], ups[:1], 1e-8)
    close(batch.t_events[1][1, :1], np.array([np.pi + np.arcsin(0.25)]), 1e-7)


def test_event_that_depends_on_a_closed_over_parameter_is_differentiated_in_it():
    def time(level):
        event = lambda _t, y: y - level  # noqa: E731
        growth = lambda _t, y: y  # noqa: E731
        result = solve_ivp(growth, (0.0, 5.0), 1.0, events=event, rtol=1e-9, max_events=2)
        return result.t_events[0][0]

    close(jax.jit(jax.grad(time))(3.0), 1 / 3, 1e-7)


def test_zero_at_the_first_time_is_no_event():
    thrown = lambda _t, y: jnp.stack([y[1], -2.0 + 0.0 * y[1]])  # noqa: E731
    event = lambda _t, y: y[0]  # noqa: E731
    event.terminal = True
    run = jax.jit(lambda y: solve_ivp(thrown, (0.0, 9.0), y, events=event, max_events=1))
    result = run(jnp.array([0.0, 3.0]))
    close(result.t_events[0], np.array([3.0]), 1e-6)


def test_backwards_integration_finds_events_too():
    event = lambda t, _y: t - 0.25  # noqa: E731
    result = solve_ivp(lambda _t, y: y, (1.0, 0.0), 1.0, t_eval=[0.5], events=event)
    close(result.t_events[0][0], 0.25, 1e-14)
    close(result.ys, np.exp([-0.5]), 1e-6)


# Failure.


def test_failure_is_an_exception_and_a_status_under_jit():
    run = lambda y: solve_ivp(lambda _t, y: y**2, (0.0, 2.0), y, max_steps=40)  # noqa: E731
    with pytest.raises(RuntimeError, match=r"solve_ivp stopped at t = 0\.9\d+.*budget of steps"):
        run(1.0)
    result = jax.jit(run)(1.0)
    assert int(result.status) == -1
    assert "budget" in result.message
    assert np.isnan(result.ys[-1])


def test_errors_name_the_function_the_argument_and_the_remedy():
    f = lambda _t, y: y  # noqa: E731
    with pytest.raises(ValueError, match="first_step, the size of all steps"):
        solve_ivp(f, (0.0, 1.0), 1.0, "RK4")
    with pytest.raises(ValueError, match="first_step > 0"):
        solve_ivp(f, (0.0, 1.0), 1.0, first_step=-0.1)
    with pytest.raises(ValueError, match="t_span as a pair"):
        solve_ivp(f, 1.0, 1.0)
    with pytest.raises(ValueError, match="t_eval inside of t_span"):
        solve_ivp(f, (0.0, 1.0), 1.0, t_eval=[0.5, 1.5])
    with pytest.raises(ValueError, match=r"one real number, got shape \(2,\)"):
        solve_ivp(f, (0.0, 1.0), jnp.ones(2), events=lambda _t, y: y)
    with pytest.raises(TypeError, match=r"args as a tuple, got float; write args=\(x,\)"):
        solve_ivp(f, (0.0, 1.0), 1.0, args=2.0)
    with pytest.raises(ValueError, match="solve_ivp needs max_step > 0"):
        solve_ivp(f, (0.0, 1.0), 1.0, max_step=-1.0)
    with pytest.raises(ValueError, match="method as one of 'Dopri5'"):
        solve_ivp(f, (0.0, 1.0), 1.0, "RK45")
