"""Fixed points and roots: solutions, derivatives in every nesting, solvers, failures."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from difflinalg import implicit
from difflinalg.implicit import (
    GMRES,
    BiCGStab,
    Dense,
    Neumann,
    NotConvergedError,
    fixed_point,
    root,
)

N = 4
RNG = np.random.default_rng(3)
MATRIX = 0.4 * RNG.standard_normal((N, N)) / np.sqrt(N)
MIXED = 0.3 * (RNG.standard_normal((N, N)) + 1j * RNG.standard_normal((N, N))) / np.sqrt(N)
P0, DIRECTION, WEIGHT = RNG.standard_normal((3, N))


def cell(x, p):
    """A contraction in a pytree with a real and a complex leaf, not holomorphic."""
    a, b = x["a"], x["b"]
    return {
        "a": jnp.tanh(MATRIX @ a + p) + 0.1 * jnp.real(b),
        "b": 0.3 * MIXED @ jnp.conj(b) + 0.2 * jnp.sin(a + 1j * p) * b + p * a,
    }


DEFAULT = GMRES()
X0 = {"a": jnp.zeros(N), "b": jnp.zeros(N, complex)}


def loss(x):
    return jnp.sum(WEIGHT * x["a"]) + jnp.sum(jnp.cos(WEIGHT * jnp.abs(x["b"]) ** 2))


def iterated(p, steps=120):
    """The same by brute force: differentiated through all steps."""
    return loss(lax.fori_loop(0, steps, lambda _, x: cell(x, p), X0))


def by_fixed_point(p, solver=DEFAULT):
    return loss(fixed_point(cell, X0, p, rtol=1e-15, solver=solver, trust_rtol=1e-12).x)


def by_root(p, solver=DEFAULT):
    def f(x, p):
        return jax.tree.map(jnp.subtract, x, cell(x, p))

    return loss(root(f, X0, p, solver=solver).x)


def along(f):
    """`f` on a line through `P0`."""
    return lambda t: f(P0 + t * DIRECTION)


def nestings(f):
    """First and second derivatives in every nesting of both modes."""
    fwd, rev = jax.jacfwd, jax.grad
    return jnp.stack(
        [fwd(f)(0.1), rev(f)(0.1)]
        + [outer(inner(f))(0.1) for outer in (fwd, rev) for inner in (fwd, rev)]
    )


ORDER = np.array([1, 1, 2, 2, 2, 2])


@pytest.mark.parametrize("solution", [by_fixed_point, by_root])
def test_every_nesting_gives_the_derivatives_of_the_iteration(solution):
    forward = [along(iterated)]
    for _ in range(2):
        forward.append(jax.jacfwd(forward[-1]))
    want = jax.jit(lambda t: jnp.stack([g(t) for g in forward]))(0.1)
    np.testing.assert_allclose(solution(P0 + 0.1 * DIRECTION), want[0], rtol=1e-13)
    got = jax.jit(lambda: nestings(along(solution)))()
    np.testing.assert_allclose(got, want[ORDER], rtol=1e-9)


@pytest.mark.parametrize("solver", [GMRES(restart=3), BiCGStab(), Dense(), Neumann()])
def test_every_solver_gives_the_gradient_of_differences(solver):
    def f(t):
        return along(partial(by_fixed_point, solver=solver))(t)

    value = jax.jit(f)
    h = 1e-3
    slope = (8 * (value(h) - value(-h)) - value(2 * h) + value(-2 * h)) / (12 * h)
    got = jax.jit(lambda: jnp.stack([jax.grad(f)(0.0), jax.jacfwd(f)(0.0)]))()
    np.testing.assert_allclose(got, slope, rtol=1e-9)


def test_derivative_of_a_linear_fixed_point_has_its_closed_form():
    def f(x, p):
        return MIXED @ x + p

    p = P0 + 1j * WEIGHT
    inverse = np.linalg.inv(np.eye(N) - MIXED)
    x, vjp = jax.vjp(lambda p: fixed_point(f, jnp.zeros(N, complex), p).x, p)
    np.testing.assert_allclose(x, inverse @ p, rtol=1e-11)
    (got,) = vjp(DIRECTION.astype(complex))
    np.testing.assert_allclose(got, inverse.T @ DIRECTION, rtol=1e-10)


def test_values_the_function_closes_over_are_differentiated():
    def solution(a, b):
        return root(lambda x, p: x**2 * a - p * b, 1.0, 3.0).x  # sqrt(3 b / a)

    got = jax.jit(jax.grad(solution, argnums=(0, 1)))(2.0, 5.0)
    np.testing.assert_allclose(got, [-np.sqrt(7.5) / 4.0, np.sqrt(7.5) / 10.0], rtol=1e-12)
    mixed = jax.grad(lambda b: jax.grad(lambda a: solution(a, b))(2.0))(5.0)
    np.testing.assert_allclose(mixed, -np.sqrt(7.5) / 40.0, rtol=1e-11)


def test_third_derivative_is_right_forward_over_reverse_over_forward():
    def solution(p):
        return root(lambda x, p: x**3 - p, 1.0, p, solver=Dense()).x

    third = jax.jit(jax.jacfwd(jax.grad(jax.jacfwd(solution))))(2.0)
    np.testing.assert_allclose(third, 10.0 / 27.0 * 2.0 ** (-8.0 / 3.0), rtol=1e-11)


def test_rule_survives_reverse_mode_through_the_carry_of_a_scan():
    def once(p):
        return fixed_point(lambda x, p: jnp.cos(x) * 0.5 + p, 0.0, p, rtol=1e-15).x

    def f(p):
        return lax.scan(lambda c, _: (once(c), None), p, length=2)[0]

    def unrolled(p):
        return lax.fori_loop(
            0, 2, lambda _, c: lax.fori_loop(0, 80, lambda _, x: 0.5 * jnp.cos(x) + c, 0.0), p
        )

    want = jax.jacfwd(jax.jacfwd(unrolled))(0.3)
    for outer in (jax.jacfwd, jax.grad):
        np.testing.assert_allclose(outer(jax.grad(f))(0.3), want, rtol=1e-10)


def test_vmap_maps_solution_derivative_and_integer_parameters():
    def f(x, p):
        a, power = p
        return x**power - a

    def solution(a, power):
        return root(f, 1.0, (a, power)).x

    a, power = jnp.array([2.0, 3.0, 5.0]), jnp.array([2, 3, 4])
    got = jax.vmap(jax.value_and_grad(solution))(a, power)
    np.testing.assert_allclose(got[0], a ** (1 / power), rtol=1e-13)
    np.testing.assert_allclose(got[1], a ** (1 / power - 1) / power, rtol=1e-12)
    gradient = jax.grad(lambda a: jnp.sum(jax.vmap(solution)(a, power)))(a)
    np.testing.assert_allclose(gradient, got[1], rtol=1e-13)


def test_info_tells_steps_and_residual_and_a_solution_is_accepted_at_once():
    first = fixed_point(cell, X0, P0)
    assert first.info.converged
    again = fixed_point(cell, first.x, P0)
    assert (int(first.info.steps), int(again.info.steps)) >= (5, 1)
    assert int(again.info.steps) == 1
    difference = jax.tree.map(jnp.subtract, cell(first.x, P0), first.x)
    norms = [
        np.sqrt(sum(np.sum(np.abs(y) ** 2) for y in t.values())) for t in (difference, first.x)
    ]
    np.testing.assert_allclose(first.info.residual, norms[0] / norms[1], rtol=1e-3)


def test_damped_newton_converges_where_the_full_step_diverges():
    result = root(lambda x, p: jnp.arctan(x) - p, 3.0, 0.1)
    np.testing.assert_allclose(result.x, np.tan(0.1), rtol=1e-13)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.complex64])
def test_single_precision_stays_single(dtype):
    a = jnp.asarray(2.0, dtype)
    x, slope = jax.value_and_grad(
        lambda a: jnp.real(fixed_point(lambda x, a: 0.5 * (x + a / x), jnp.ones((), dtype), a).x)
    )(a)
    assert (x.dtype, slope.dtype) == (jnp.float32, dtype)
    np.testing.assert_allclose([x, slope.real], [np.sqrt(2), 0.5 / np.sqrt(2)], rtol=1e-5)


def diverging(x, p):
    return 2.0 * x + p


def test_failure_outside_of_jit_is_an_exception_that_carries_what_was_found():
    with pytest.raises(NotConvergedError, match="fixed_point has not converged after 7 steps") as e:
        fixed_point(diverging, 1.0, 1.0, max_steps=7)
    assert not e.value.info.converged
    np.testing.assert_allclose(e.value.x, 2.0**7 - 1.0)
    with pytest.raises(NotConvergedError):
        jax.grad(lambda p: fixed_point(diverging, 1.0, p, max_steps=7).x)(1.0)
    with pytest.raises(NotConvergedError, match="root"):
        root(lambda x, p: x**2 + p, 1.0, 1.0)


def test_failure_under_jit_and_vmap_is_nan_where_it_happens():
    def f(x, p):
        return p * x + 1.0

    def solution(p):
        return fixed_point(f, 0.0, p, max_steps=200)

    p = jnp.array([0.5, 2.0])
    result, slope = jax.jit(
        jax.vmap(lambda p: (solution(p), jax.grad(lambda p: solution(p).x)(p)))
    )(p)
    np.testing.assert_allclose(result.x, [2.0, np.nan], rtol=1e-11)
    np.testing.assert_allclose(slope, [4.0, np.nan], rtol=1e-10)
    np.testing.assert_array_equal(result.info.converged, [True, False])


@pytest.mark.parametrize(
    "solver", [GMRES(max_restarts=1, restart=2), BiCGStab(max_steps=1), Neumann(max_terms=3)]
)
def test_linear_solve_that_does_not_converge_gives_nan(solver):
    value, gradient = jax.value_and_grad(partial(by_fixed_point, solver=solver))(P0)
    assert np.isfinite(value)
    assert np.all(np.isnan(gradient))


def test_singular_equation_has_no_derivative():
    def turned(x, p):  # a circle of solutions: no gauge is fixed
        return x / jnp.linalg.norm(x) * p

    result, _ = jax.vjp(lambda p: fixed_point(turned, jnp.array([0.6, 0.8]), p).x, 1.0)
    np.testing.assert_allclose(result, [0.6, 0.8])
    double = jax.grad(lambda p: root(lambda x, p: (x - p) ** 2, 1.0, p).x)
    assert np.isnan(double(1.0))


def test_derivative_is_refused_where_the_function_misses_the_solution():
    def f(x, p):
        return 0.5 * x + p

    def slope(**options):
        return jax.jit(jax.grad(lambda p: fixed_point(f, 1.9, p, rtol=0.1, **options).x))(1.0)

    np.testing.assert_allclose(slope(), 2.0)
    assert np.isnan(slope(trust_rtol=1e-3))


def test_same_function_is_compiled_once_and_a_changed_constant_is_seen():
    scale, calls = 2.0, []

    def f(x, p):
        calls.append(None)
        return x * scale - p

    np.testing.assert_allclose(root(f, 1.0, 6.0).x, 3.0)
    scale = 3.0
    np.testing.assert_allclose(root(f, 1.0, 6.0).x, 2.0)
    before = len(calls)
    root(f, 1.0, 9.0)
    assert len(calls) == before + 1


def test_bad_arguments_are_refused_with_a_remedy():
    with pytest.raises(TypeError, match="structure, shapes and dtypes of x0"):
        fixed_point(lambda x, _: x[:2], jnp.ones(3))
    with pytest.raises(TypeError, match="floating or complex leaves in x0, got dtype int"):
        fixed_point(lambda x, _: x, 1)
    with pytest.raises(TypeError, match="leaves of params, got str"):
        fixed_point(lambda x, _: x, 1.0, "a")
    with pytest.raises(ValueError, match="rtol >= 0"):
        implicit.fixed_point(lambda x, _: x, 1.0, rtol=-1.0)
    with pytest.raises(ValueError, match="max_steps"):
        implicit.root(lambda x, _: x, 1.0, max_steps=0)
    with pytest.raises(TypeError, match="needs a function"):
        implicit.root(3.0, 1.0)


def test_empty_unknown_is_a_solution():
    assert fixed_point(lambda x, _: x, jnp.zeros((0,)), atol=1.0).x.shape == (0,)
