"""`odeint`: values and derivatives against closed forms, and against JAX's own integrator."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental.ode import odeint as jax_odeint
from problems import (
    PARAMETERS,
    TIMES,
    Y0,
    D,
    close,
    every_nesting,
    logistic,
    logistic_solution,
)

from difflinalg.ode import Checkpointed, odeint

WEIGHT = np.array([[0.3, 1.0], [0.5, -0.7], [1.1, 0.2], [-0.4, 0.9]])
ARGUMENTS = tuple(map(jnp.asarray, (Y0, TIMES, PARAMETERS)))
DIRECTIONS = tuple(jnp.asarray(D[name]) for name in ("y0", "t", "p"))
tight = partial(odeint, rtol=1e-11, atol=1e-11)


def loss_of(solution):
    return lambda y0, t, p: jnp.sum(jnp.sin(WEIGHT * solution(y0, t, p)))


@jax.jit
def reference_derivatives():
    return every_nesting(loss_of(logistic_solution), ARGUMENTS, DIRECTIONS)


def test_every_nesting_of_modes_agrees_with_the_closed_form_in_state_times_and_parameters():
    solve = lambda y0, t, p: tight(logistic, y0, t, p)  # noqa: E731
    got = jax.jit(lambda: every_nesting(loss_of(solve), ARGUMENTS, DIRECTIONS))()
    close(got, reference_derivatives(), 1e-8, scale=1.0)


def test_third_derivative_by_reverse_mode_alone_agrees_with_the_closed_form():
    t = jnp.array([0.0, 0.5])
    solve = lambda p: tight(lambda y, _t, p: p * y**2, 0.8, t, p)[-1]  # noqa: E731
    third = lambda f: jax.jit(jax.grad(jax.grad(jax.grad(f))))(0.9)  # noqa: E731
    close(third(solve), third(lambda p: 0.8 / (1 - 0.4 * p)), 1e-8)


@pytest.mark.parametrize("method", ["Dopri8", "Esdirk43"])
def test_gradient_and_hessian_of_every_method_agree_with_the_closed_form(method):
    rtol = 1e-9 if method == "Esdirk43" else 1e-11

    def solve(y0, t, p):
        return odeint(logistic, y0, t, p, method=method, rtol=rtol, atol=rtol)

    def derivatives(solution):
        gradient = jax.grad(loss_of(solution), (0, 1, 2))
        return jax.jit(lambda: jax.jvp(gradient, ARGUMENTS, DIRECTIONS))()

    close(derivatives(solve), derivatives(logistic_solution), 1e-6, scale=1.0)


# What JAX's own integrator accepts.


def pendulum(y, t, a, b):
    theta, omega = y
    return [omega, -a * jnp.sin(theta) - b * omega + 0.1 * t]


def test_list_returned_by_the_right_hand_side_and_python_scalars_as_in_jax():
    t = jnp.linspace(0.0, 2.0, 5)

    def loss(integrate, y0, t, a):
        return jnp.sum(integrate(pendulum, y0, t, a, 0.3, rtol=1e-10, atol=1e-10, hmax=0.3) ** 2)

    y0 = jnp.array([1.0, 0.2])
    got, expected = (
        jax.jit(jax.value_and_grad(partial(loss, f), (0, 1, 2)))(y0, t, 2.0)
        for f in (odeint, jax_odeint)
    )
    close(got, expected, 1e-7)
    scalar = odeint(lambda y, _t: -y, 1.0, t)
    close(scalar, np.exp(-t), 1e-7)


def test_pytrees_closures_and_integers_are_differentiated_where_they_can_be():
    t = jnp.array([0.0, 0.7])

    def loss(theta, z):
        def field(y, _t, scale, flags):
            k = jnp.where(flags["on"], flags["power"] * 1.0, 0.0)
            return {"a": theta * y["a"], "b": (-scale[0] * y["b"][0] * k, y["b"][1] * 0.0)}

        y0 = {"a": z, "b": (jnp.ones(2), jnp.zeros(()))}
        flags = {"on": True, "power": jnp.array([1, 2])}
        y = tight(field, y0, t, (jnp.array([0.5, 0.5]),), flags)
        return jnp.sum(y["a"][-1]) * jnp.prod(y["b"][0][-1])

    theta, z = jnp.array(0.4), jnp.array([1.0, 2.0])
    value, (theta_bar, z_bar) = jax.value_and_grad(loss, (0, 1))(theta, z)
    damp = np.exp(-0.5 * 0.7 * 3)
    close(value, 3.0 * np.exp(0.28) * damp, 1e-9)
    close(theta_bar, 0.7 * 3.0 * np.exp(0.28) * damp, 1e-9)
    close(z_bar, np.exp(0.28) * damp * np.ones(2), 1e-9)


def test_complex_state_that_is_not_holomorphic_has_the_gradient_of_its_real_form():
    """`z' = (a + i b) z - c |z|^2 z`, against JAX on two real components."""
    t = jnp.linspace(0.0, 1.0, 3)

    def complex_loss(z, p):
        field = lambda z, _t, p: (p[0] + 1j * p[1]) * z - p[2] * jnp.abs(z) ** 2 * z  # noqa: E731
        z = tight(field, z, t, p)
        return jnp.sum(z.real**3) - z.imag[1:] ** 2 @ z.real[1:]

    def real_loss(x, p):
        def field(x, _t, p):
            r = p[2] * (x[0] ** 2 + x[1] ** 2)
            return jnp.array(
                [p[0] * x[0] - p[1] * x[1] - r * x[0], p[1] * x[0] + p[0] * x[1] - r * x[1]]
            )

        x = jax_odeint(field, x, t, p, rtol=1e-12, atol=1e-12)
        return jnp.sum(x[:, 0] ** 3) - x[1:, 1] ** 2 @ x[1:, 0]

    z, p = jnp.array(0.6 - 0.3j), jnp.array([0.4, 1.1, 0.5])
    z_bar, p_bar = jax.jit(jax.grad(complex_loss, (0, 1)))(z, p)
    x_bar, p_real = jax.jit(jax.grad(real_loss, (0, 1)))(jnp.array([0.6, -0.3]), p)
    close(z_bar, x_bar[0] - 1j * x_bar[1], 1e-8)
    close(p_bar, p_real, 1e-8)
    d = 0.3 + 0.8j
    twice = jax.jvp(lambda z: jax.grad(complex_loss)(z, p), (z,), (jnp.array(d),))[1]
    step = 1e-5
    ahead, behind = (jax.grad(complex_loss)(z + s * d, p) for s in (step, -step))
    close(twice, (ahead - behind) / (2 * step), 1e-7)


def test_decreasing_times_integrate_backwards():
    t = jnp.asarray(TIMES[::-1])
    y0 = logistic_solution(Y0, jnp.asarray(TIMES), PARAMETERS)[-1]
    solve = lambda y0, t, p: tight(logistic, y0, t, p)  # noqa: E731
    got, expected = (
        jax.jit(jax.value_and_grad(loss_of(f), (0, 1, 2)))(y0, t, PARAMETERS)
        for f in (solve, logistic_solution)
    )
    close(got, expected, 1e-8, scale=1.0)


def test_equal_times_and_single_times_have_values_and_gradients():
    t = jnp.array([0.0, 0.0, 0.5, 0.5])
    solve = lambda y0, t: tight(lambda y, s: -y * s, y0, t)  # noqa: E731
    exact = lambda y0, t: y0 * jnp.exp(-(t**2 - t[0] ** 2) / 2)  # noqa: E731
    got, expected = (jax.jit(jax.jacrev(f, (0, 1))) for f in (solve, exact))
    for times in (t, jnp.zeros(4), jnp.array([0.4])):
        close(got(2.0, times), expected(2.0, times), 1e-9, scale=1.0)


def test_many_times_are_interpolated_with_the_same_derivatives():
    """More outputs than steps: they lie inside of steps."""
    t = jnp.linspace(0.1, 1.3, 40)
    weight = jnp.cos(jnp.arange(80.0)).reshape(40, 2)

    def derivatives(solution):
        loss = lambda *x: jnp.sum(jnp.sin(weight * solution(*x)))  # noqa: E731
        gradient = jax.grad(loss, (0, 1, 2))
        arguments, d = (Y0, t, PARAMETERS), (D["y0"], jnp.sin(t), D["p"])
        return jax.jit(lambda: jax.jvp(gradient, arguments, d))()

    solve = lambda y0, t, p: tight(logistic, y0, t, p)  # noqa: E731
    close(derivatives(solve), derivatives(logistic_solution), 1e-8, scale=10.0)
    backwards = jax.vmap(lambda s: tight(logistic, Y0, s * t, PARAMETERS))(jnp.array([1.0, -1.0]))
    for sign, rows in zip((1.0, -1.0), backwards, strict=True):
        close(rows, logistic_solution(Y0, sign * t, PARAMETERS), 1e-8)


def test_vmap_of_everything_equals_a_loop():
    def gradient(y0, t, p):
        return jax.value_and_grad(loss_of(lambda *x: tight(logistic, x[0], x[1], x[2])))(y0, t, p)

    y0 = jnp.stack([Y0, 0.5 * Y0, 1.7 * Y0])
    t = jnp.stack([TIMES, 3.0 * TIMES, -TIMES])
    for axes in ((0, None, None), (0, 0, None)):
        arguments = (y0, t if axes[1] == 0 else t[0], PARAMETERS)
        together = jax.jit(jax.vmap(gradient, axes))(*arguments)
        for i in range(3):
            alone = gradient(y0[i], t[i] if axes[1] == 0 else t[0], PARAMETERS)
            close(jax.tree.map(lambda x, i=i: x[i], together), alone, 1e-9, scale=1.0)


def test_jacobians_and_vmap_of_vmap_agree_with_the_closed_form():
    p = jnp.stack([PARAMETERS, 2 * PARAMETERS])
    y0 = jnp.stack([Y0, 0.5 * Y0, 0.2 * Y0])

    def both(solution):
        f = lambda y0, p: solution(y0, jnp.asarray(TIMES), p)[-1]  # noqa: E731
        outer = jax.vmap(jax.vmap(jax.jacrev(f, (0, 1)), (0, None)), (None, 0))
        return jax.jit(lambda: (outer(y0, p), jax.jacfwd(f, (0, 1))(y0[0], p[0])))()

    close(both(lambda *x: tight(logistic, *x)), both(logistic_solution), 1e-8, scale=1.0)


def test_second_derivative_through_a_loop_keeps_the_rules():
    def loss(y):
        step = lambda y, _: (tight(lambda y, _t: y**2, y, jnp.array([0.0, 0.1]))[-1], None)  # noqa: E731
        return lax.scan(step, y, None, length=2)[0]

    exact = lambda y: y / (1 - 0.2 * y)  # noqa: E731
    twice = jax.jit(lambda y: (jax.grad(jax.grad(loss))(y), jax.jacfwd(jax.grad(loss))(y)))
    expected = jax.grad(jax.grad(exact))(0.5)
    close(twice(0.5), (expected, expected), 1e-8)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.complex64])
def test_single_precision_is_kept(dtype):
    t = jnp.array([0.0, 0.5, 1.0], jnp.float32)
    y0 = jnp.array([1.0, 0.5], dtype)
    k = jnp.array(0.8, jnp.float32)

    def loss(y0, t, k):
        y = odeint(lambda y, _t, k: -k * y, y0, t, k, rtol=1e-5, atol=1e-6)
        assert y.dtype == dtype
        return jnp.sum(jnp.real(y[-1]))

    y_bar, t_bar, k_bar = jax.jit(jax.grad(loss, (0, 1, 2)))(y0, t, k)
    assert (y_bar.dtype, t_bar.dtype, k_bar.dtype) == (dtype, jnp.float32, jnp.float32)
    close(np.real(y_bar), np.exp(-0.8) * np.ones(2), 1e-4)
    close(t_bar[::2], 1.2 * np.exp(-0.8) * np.array([1, -1]), 1e-4)
    close(k_bar, -1.5 * np.exp(-0.8), 1e-4)


def test_checkpoints_change_memory_and_not_the_gradient():
    def gradient(adjoint):
        def loss(y0, p):
            y = odeint(logistic, y0, jnp.asarray(TIMES), p, adjoint=adjoint, hmax=0.02)
            return jnp.sum(WEIGHT * y)

        return jax.jit(jax.grad(loss, (0, 1)))(Y0, PARAMETERS)

    reference = gradient(Checkpointed(segment=128))
    for segment, slots in ((1, 64), (3, 2), (5, 1)):
        close(gradient(Checkpointed(segment=segment, slots=slots)), reference, 1e-13)


def test_memory_of_the_gradient_does_not_grow_with_the_number_of_steps():
    size = 1000

    def compiled(hmax):
        def loss(y):
            y = odeint(lambda y, _t: -(y**3), y, jnp.array([0.0, 1.0]), hmax=hmax)
            return jnp.sum(y[-1])

        return jax.jit(jax.grad(loss)).lower(jnp.ones(size)).compile()

    program = compiled(1 / 600)
    temporary = program.memory_analysis().temp_size_in_bytes
    assert temporary < 300 * size * 8
    close(program(jnp.ones(size)), np.full(size, 3.0**-1.5), 1e-7)


# Failure.

FAILURES = {
    "max steps": (lambda y, _t: -y, {"mxstep": 3}, r"budget of steps is spent"),
    "nan": (lambda y, t: jnp.where(t > 0.5, jnp.nan, -y), {}, r"stopped at t = 0\.\d+.*not finite"),
    "singular": (lambda y, _t: y**2, {}, r"stopped at t = (0\.99|1\.00).*underflows"),
    "record": (lambda y, _t: -y, {"adjoint": Checkpointed(max_steps=2)}, "max_steps"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failure_is_an_exception_and_nan_under_jit_in_every_mode(name):
    field, options, message = FAILURES[name]
    t = jnp.array([0.0, 0.3, 3.0])

    def last(y):
        return odeint(field, y, t, **options)[-1]

    if name != "record":
        with pytest.raises(RuntimeError, match=message):
            last(1.0)
        assert np.isnan(jax.jit(last)(1.0))
    with pytest.raises(RuntimeError, match=message):
        jax.grad(last)(1.0)
    both = jax.jit(lambda y: (jax.grad(last)(y), jax.jvp(last, (y,), (1.0,))[1]))
    assert np.all(np.isnan(both(1.0)))


def test_one_failed_member_of_a_batch_leaves_the_others_alone():
    f = lambda y: odeint(lambda y, _t: y**2, y, jnp.array([0.0, 1.0]))[-1]  # noqa: E731
    got = jax.vmap(jax.value_and_grad(f))(jnp.array([0.5, 2.0]))
    close([x[0] for x in got], [np.array(1.0), np.array(4.0)], 1e-6)
    assert np.all(np.isnan([x[1] for x in got]))


def test_times_that_turn_back_are_refused_and_nan_under_jit():
    t = jnp.array([0.0, 1.0, 0.5])
    run = lambda t: odeint(lambda y, _t: -y, 1.0, t)  # noqa: E731
    with pytest.raises(ValueError, match=r"t\[1\] = 1\.0 and t\[2\] = 0\.5 turn back"):
        run(t)
    assert np.all(np.isnan(jax.jit(run)(t)[1:]))


def test_errors_name_the_function_the_shape_and_the_remedy():
    t = jnp.array([0.0, 1.0])
    with pytest.raises(ValueError, match=r"shapes \(3,\); got shapes \(2,\)"):
        odeint(lambda y, _t: y[:2], jnp.ones(3), t)
    with pytest.raises(TypeError, match=r"dtype complex128 for a state of dtype float64"):
        odeint(lambda y, _t: 1j * y, 1.0, t)
    with pytest.raises(TypeError, match=r"dtype float64 for a state of dtype float32"):
        odeint(lambda y, t: y * t, jnp.float32(1.0), t)
    with pytest.raises(TypeError, match=r"times of a floating dtype, got int"):
        odeint(lambda y, _t: y, 1.0, jnp.arange(3))
    with pytest.raises(TypeError, match=r"got str; let the function close over"):
        odeint(lambda y, _t, _s: y, 1.0, t, "a")
    with pytest.raises(ValueError, match=r"method as one of 'Dopri5'"):
        odeint(lambda y, _t: y, 1.0, t, method="RK4")
    with pytest.raises(ValueError, match=r"Checkpointed needs segment >= 1, got segment=0"):
        Checkpointed(segment=0)
    for options in ({"rtol": -1.0}, {"rtol": 0.0, "atol": 0.0}, {"atol": float("nan")}):
        with pytest.raises(ValueError, match=r"odeint needs rtol and atol >= 0"):
            odeint(lambda y, _t: y, 1.0, t, **options)
    with pytest.raises(ValueError, match=r"odeint needs hmax > 0 .* got 0\.0"):
        odeint(lambda y, _t: y, 1.0, t, hmax=0.0)
    with pytest.raises(TypeError, match=r"for example adjoint=Backsolve\(\), got <class"):
        odeint(lambda y, _t: y, 1.0, t, adjoint=Checkpointed)


def test_interpreted_without_jit_it_gives_the_same():
    t = jnp.array([0.0, 0.1])
    f = lambda y: odeint(lambda y, _t: -y, y, t, rtol=1e-3, atol=1e-3)[-1]  # noqa: E731
    with jax.disable_jit():
        got = jax.value_and_grad(f)(1.0)
    close(got, jax.value_and_grad(f)(1.0), 1e-14)
