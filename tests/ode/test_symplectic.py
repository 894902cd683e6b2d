"""Symplectic integrators: order, energy, reversibility and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import close

from difflinalg.ode import Backsolve, Checkpointed, Reversible, symplectic

ORDER = {"Leapfrog": 2, "Yoshida4": 4}
oscillator = (lambda p, w: p, lambda q, w: -(w**2) * q)  # noqa: ARG005
pendulum = (lambda p: p, lambda q: -jnp.sin(q))


def exact(q, p, t, w):
    angle = w * (t[-1] - t[0])
    return q * jnp.cos(angle) + p / w * jnp.sin(angle)


@pytest.mark.parametrize("method", ORDER)
def test_global_error_has_the_order_of_the_method_by_regression(method):
    t, counts = jnp.array([0.0, 2.0]), np.array([20, 40, 80, 160])
    errors = []
    for steps in counts:
        q, _ = symplectic(*oscillator, (1.0, 0.3), t, 1.3, steps=int(steps), method=method)
        errors.append(abs(float(q[-1] - exact(1.0, 0.3, t, 1.3))))
    slope = np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert abs(slope + ORDER[method]) < 0.05


def test_energy_of_a_pendulum_does_not_drift():
    """Oscillates with the step size squared; a drift would grow with the time."""
    t = jnp.linspace(0.0, 1000.0, 201)
    q, p = symplectic(*pendulum, (1.0, 0.0), t, steps=50)
    error = np.abs(p**2 / 2 - jnp.cos(q) + np.cos(1.0))
    assert np.max(error) < 2e-3
    assert np.max(error[-50:]) < 1.2 * np.max(error[:50])


@pytest.mark.parametrize("method", ORDER)
@pytest.mark.parametrize("adjoint", [Checkpointed(), Reversible()])
def test_gradients_in_state_times_and_parameters_agree_with_the_closed_form(method, adjoint):
    def loss(q, p, t, w):
        q, _ = symplectic(*oscillator, (q, p), t, w, steps=300, method=method, adjoint=adjoint)
        return q[-1]

    arguments = (1.0, 0.3, jnp.array([0.2, 0.9, 1.7]), 1.3)
    got, expected = (jax.jit(jax.grad(f, (0, 1, 2, 3)))(*arguments) for f in (loss, exact))
    close(got, expected, 1e-4, scale=1.0)
    if method == "Yoshida4":
        close(got, expected, 1e-8, scale=1.0)


def test_both_derivative_options_give_the_same_gradient():
    def loss(q, adjoint):
        q, p = symplectic(*pendulum, (q, 0.5), jnp.linspace(0.0, 3.0, 4), steps=7, adjoint=adjoint)
        return jnp.sum(jnp.sin(q) * p)

    close(jax.grad(loss)(1.0, Reversible()), jax.grad(loss)(1.0, Checkpointed()), 1e-12)


def test_second_derivatives_agree_in_all_four_nestings():
    def loss(w):
        t = jnp.array([0.2, 1.7])
        return symplectic(*oscillator, (1.0, 0.3), t, w, steps=100, method="Yoshida4")[0][-1]

    f, r = jax.jacfwd, jax.grad
    got = jax.jit(lambda w: [f(f(loss))(w), f(r(loss))(w), r(f(loss))(w), r(r(loss))(w)])(1.3)
    expected = r(r(lambda w: exact(1.0, 0.3, jnp.array([0.2, 1.7]), w)))(1.3)
    close(got, [expected] * 4, 1e-5)


def test_reverse_pass_that_misses_the_first_state_is_loud():
    def loss(q):
        options = {"steps": 50, "adjoint": Reversible(rtol=1e-18)}
        return symplectic(*pendulum, (q, 0.5), jnp.array([0.0, 3.0]), **options)[0][-1]

    with pytest.raises(RuntimeError, match=r"rebuilt the first state with a relative error"):
        jax.grad(loss)(1.0)
    assert np.isnan(jax.jit(jax.grad(loss))(1.0))


def test_error_of_the_rebuilt_first_state_is_returned_if_wanted():
    def run(adjoint, t=jnp.linspace(0.0, 3.0, 4)):  # noqa: B008
        return symplectic(*pendulum, (1.0, 0.5), t, steps=50, adjoint=adjoint)

    *state, error = run(Reversible(return_error=True))
    assert 0.0 < error < 1e-13
    close(state, list(run(Reversible())), 1e-15)
    assert run(Reversible(return_error=True), jnp.zeros(1))[2] == 0.0


def test_forward_over_reverse_of_the_reversible_option_is_that_of_the_checkpoints():
    def loss(q, adjoint):
        q, p = symplectic(*pendulum, (q, 0.5), jnp.linspace(0.0, 3.0, 3), steps=5, adjoint=adjoint)
        return jnp.sum(jnp.sin(q) * p)

    hessian = jax.jacfwd(jax.grad(loss))
    close(hessian(1.0, Reversible()), hessian(1.0, Checkpointed()), 1e-12)


@pytest.mark.parametrize("adjoint", [Checkpointed(), Reversible()])
def test_complex_states_in_pytrees_with_integer_arguments_and_closures(adjoint):
    """`q'' = -w^2 q` for each entry, with `w^2 = 2 a` closed over and the power an integer."""
    t = jnp.linspace(0.0, 1.0, 7)

    def loss(a, z):
        velocity = lambda p, n: jax.tree.map(lambda x: x**n, p)  # noqa: E731
        force = lambda q, n: jax.tree.map(lambda x: -2.0 * a * x**n, q)  # noqa: E731
        y0 = ({"u": z, "v": jnp.ones(2)}, {"u": 0.0 * z, "v": jnp.zeros(2)})
        options = {"steps": 37, "method": "Yoshida4", "adjoint": adjoint}
        q, _ = symplectic(velocity, force, y0, t, 1, **options)
        return jnp.abs(q["u"][-1] - 1j) ** 2 + jnp.sum(q["v"][-1])

    def expected(a, z):
        c = jnp.cos(jnp.sqrt(2.0 * a))
        return jnp.abs(z * c - 1j) ** 2 + 2.0 * c

    arguments = (0.8, 0.3 + 0.4j)
    got, wanted = (jax.jit(jax.grad(f, (0, 1)))(*arguments) for f in (loss, expected))
    close(got, wanted, 1e-8, scale=1.0)


def test_memory_of_the_reversible_pass_does_not_grow_with_the_steps():
    def compiled(steps):
        def loss(q):
            t = jnp.array([0.0, 1.0])
            q, _ = symplectic(*pendulum, (q, jnp.zeros(1000)), t, steps=steps, adjoint=Reversible())
            return jnp.sum(q[-1])

        return jax.jit(jax.grad(loss)).lower(jnp.ones(1000)).compile().memory_analysis()

    # a state takes 16 kB
    short, long = (compiled(steps).temp_size_in_bytes for steps in (100, 4000))
    assert long < short + 4_000 < 100_000


def test_errors_name_the_function_and_the_argument():
    with pytest.raises(ValueError, match=r"symplectic needs steps >= 1, got steps=0"):
        symplectic(*pendulum, (1.0, 0.0), jnp.array([0.0, 1.0]), steps=0)
    with pytest.raises(ValueError, match=r"method as one of 'Leapfrog', 'Yoshida4'"):
        symplectic(*pendulum, (1.0, 0.0), jnp.array([0.0, 1.0]), steps=1, method="Euler")
    with pytest.raises(
        TypeError, match=r"symplectic needs adjoint as Checkpointed\(\) or Reversible"
    ):
        symplectic(*pendulum, (1.0, 0.0), jnp.array([0.0, 1.0]), steps=1, adjoint=Backsolve())


@pytest.mark.parametrize("y0", [1.0, (1.0,), jnp.ones(2), (1.0, 0.0, 0.0)])
def test_a_state_that_is_no_pair_is_refused(y0):
    with pytest.raises(ValueError, match=r"symplectic needs y0 as the pair \(q, p\)"):
        symplectic(*pendulum, y0, jnp.array([0.0, 1.0]), steps=1)


@pytest.mark.parametrize(
    "y0", [(jnp.ones(3), jnp.ones(2)), (jnp.ones(2), 0.0), ({"x": 1.0}, {"y": 1.0}), ([1.0], 1.0)]
)
def test_halves_of_other_shapes_or_structure_are_refused(y0):
    with pytest.raises(ValueError, match=r"needs q and p of one structure and the same shapes"):
        symplectic(*pendulum, y0, jnp.array([0.0, 1.0]), steps=1)


@pytest.mark.parametrize("times", [[0.0], [0.0, 0.5]])
def test_integers_are_converted_whatever_the_number_of_times(times):
    rows = symplectic(*pendulum, (1, 0), jnp.array(times), steps=1)
    assert all(x.dtype == jnp.float64 and x.shape == (len(times),) for x in rows)
