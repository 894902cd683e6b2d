"""The reversible scan: gradients against `lax.scan`, and what makes it loud."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from difflinalg import linalg, memory

MATRIX = 0.3 * np.asarray(jax.random.normal(jax.random.key(0), (3, 3), jnp.float64))
START = (np.ones(3), np.arange(3.0), np.int32(0))
INPUTS = np.linspace(0.1, 1.0, 7)


def close(got, expected, rtol=1e-12):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        scale = np.max(np.abs(b), initial=1e-300)
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * scale)


def program(matrix, shift):
    """A step on two halves and a counter, which closes over an array and a number."""

    def step(carry, x):
        q, p, n = carry
        q = q + jnp.sin(matrix @ p) * x + shift
        p = p + jnp.cos(q * x)
        return (q, p, n + 1), (jnp.sum(q) * n, n)

    def inverse(carry, x):
        q, p, n = carry
        p = p - jnp.cos(q * x)
        return q - jnp.sin(matrix @ p) * x - shift, p, n - 1

    return step, inverse


def loss(matrix, shift, q, xs, reversible, **options):
    step, inverse = program(matrix, shift)
    carry = (q, *START[1:])
    if reversible:
        (q, p, n), (ys, ns) = memory.reversible_scan(step, inverse, carry, xs, **options)
    else:
        (q, p, n), (ys, ns) = lax.scan(step, carry, xs)
    return jnp.sum(q * p) * n + jnp.sum(jnp.sin(ys) * ns)


def gradient(reversible, **options):
    return jax.grad(lambda *args: loss(*args, reversible, **options), (0, 1, 2, 3))


ARGS = (MATRIX, 0.2, START[0], INPUTS)


@pytest.mark.parametrize("every", [None, 1, 3, 7, 20])
def test_gradient_agrees_with_scan_for_carry_inputs_and_closures(every):
    close(jax.jit(gradient(True, refresh_every=every))(*ARGS), gradient(False)(*ARGS))


def test_value_and_trajectory_agree_with_scan_and_are_never_stored_twice():
    step, inverse = program(MATRIX, 0.2)
    close(memory.reversible_scan(step, inverse, START, INPUTS), lax.scan(step, START, INPUTS), 0.0)


def test_second_derivatives_agree_with_scan_in_both_nestings():
    def nested(reversible):
        g = gradient(reversible)
        forward = jax.jvp(g, ARGS, ARGS)[1]
        reverse = jax.grad(lambda m: sum(jnp.sum(x**2) for x in g(m, *ARGS[1:])))(MATRIX)
        return forward, reverse

    close(jax.jit(partial(nested, True))(), jax.jit(partial(nested, False))(), 1e-10)


def test_vmap_over_carry_inputs_and_closures():
    args = jax.tree.map(lambda leaf: np.stack([leaf, 0.5 * leaf]), ARGS)
    close(jax.vmap(gradient(True))(*args), jax.vmap(gradient(False))(*args))


def test_a_compiled_function_can_be_differentiated_from_outside():
    def run(reversible):
        f = jax.jit(partial(loss, reversible=reversible))
        return jax.grad(f, (0, 1, 2, 3))(*ARGS)

    close(run(True), run(False))


def test_complex_carry_has_the_gradient_of_scan():
    def f(z, w, how):
        step, inverse = lambda c, x: (c * w + x, None), lambda c, x: (c - x) / w
        xs = jnp.arange(4.0) * (1 + 0.5j)
        end = how(step, inverse, z, xs)[0]
        return jnp.abs(end) ** 2 + jnp.imag(end)

    args = (0.3 + 0.1j, 0.9 - 0.4j)
    expected = jax.grad(f, (0, 1))(*args, lambda s, _, c, x: lax.scan(s, c, x))
    close(jax.grad(f, (0, 1))(*args, memory.reversible_scan), expected)


def test_zero_steps_return_the_start_and_its_gradient():
    step, inverse = program(MATRIX, 0.2)
    end, (ys, _), error = memory.reversible_scan(
        step, inverse, START, INPUTS[:0], return_error=True
    )
    close(end, START, 0.0)
    assert ys.shape == (0,)
    assert error == 0.0
    close(jax.grad(lambda q: loss(MATRIX, 0.2, q, INPUTS[:0], True))(START[0]), np.zeros(3))


def decay(rate, wrong=0.0):
    return lambda c, _: (c * rate, None), lambda c, _: c / rate + wrong


def test_error_of_the_way_back_is_returned_and_grows_with_contraction():
    def error(every):
        step = lambda c, _: (0.05 * c + 1.0, None)  # noqa: E731
        inverse = lambda c, _: (c - 1.0) / 0.05  # noqa: E731
        start = jnp.array([1.0, 2.0])
        return memory.reversible_scan(
            step, inverse, start, length=12, refresh_every=every, return_error=True
        )[2]

    assert error(None) > 1e-3
    assert error(3) < 1e-9
    rotation = lambda c, _: (c[::-1], None), lambda c, _: c[::-1]
    assert memory.reversible_scan(*rotation, jnp.arange(2.0), length=5, return_error=True)[2] == 0


def test_refreshed_carries_keep_the_gradient_of_contracting_dynamics():
    def f(c, **options):
        step = lambda c, x: (0.05 * c + x, c**2)  # noqa: E731
        inverse = lambda c, x: (c - x) / 0.05  # noqa: E731
        xs = jnp.linspace(1.0, 2.0, 12)
        if options:
            return jnp.sum(memory.reversible_scan(step, inverse, c, xs, **options)[1])
        return jnp.sum(lax.scan(step, c, xs)[1])

    with pytest.raises(memory.ReconstructionError, match="refresh_every") as caught:
        jax.grad(partial(f, rtol=1e-8))(0.7)
    assert caught.value.error > 1e-3
    close(jax.grad(partial(f, refresh_every=2))(0.7), jax.grad(f)(0.7), 1e-11)


def test_wrong_inverse_is_loud():
    def f(c, wrong):
        return memory.reversible_scan(*decay(1.1, wrong), c, length=5)[0]

    close(jax.grad(f)(1.0, 0.0), 1.1**5)
    with pytest.raises(memory.ReconstructionError, match="not the inverse") as caught:
        jax.grad(f)(1.0, 1e-6)
    assert 1e-6 < caught.value.error < 1e-5
    assert np.isnan(jax.jit(jax.grad(f))(1.0, 1e-6))
    mixed = jax.vmap(jax.grad(f), (None, 0))(1.0, jnp.array([0.0, 1e-6]))
    close(mixed[0], 1.1**5)
    assert np.isnan(mixed[1])


def test_integer_that_does_not_come_back_is_loud():
    def f(c):
        step = lambda c, _: ((c[0] * 2.0, c[1] + 1), None)  # noqa: E731
        inverse = lambda c, _: (c[0] / 2.0, c[1])  # noqa: E731
        return memory.reversible_scan(step, inverse, (c, 0), length=3)[0][0]

    with pytest.raises(memory.ReconstructionError, match="inf"):
        jax.grad(f)(1.0)


def test_nan_in_the_middle_is_loud():
    def f(c):
        step, inverse = lambda c, x: (c + x, None), lambda c, x: c - x
        xs = jnp.array([1.0, np.nan, 1.0])
        return memory.reversible_scan(step, inverse, c, xs)[0]

    assert np.isnan(f(1.0))
    with pytest.raises(memory.ReconstructionError, match="nan"):
        jax.grad(f)(1.0)
    assert np.isnan(jax.jit(jax.grad(f))(1.0))


def test_zero_start_is_measured_on_the_whole_carry():
    def f(c, shift):
        step = lambda c, _: ((c[0], c[1] + 0.1), None)  # noqa: E731
        inverse = lambda c, _: (c[0], c[1] - 0.1 + shift)  # noqa: E731
        return jnp.sum(memory.reversible_scan(step, inverse, (c, jnp.zeros(())), length=7)[0][1])

    assert jax.grad(f)(1.0, 0.0) == 0.0
    with pytest.raises(memory.ReconstructionError):
        jax.grad(f)(1.0, 1e-7)


def test_backward_pass_holds_no_carry_of_the_loop():
    step, inverse = program(MATRIX, 0.2)
    xs = np.linspace(0.1, 1.0, 50)

    def kept(**options):
        pull = jax.vjp(
            lambda x: memory.reversible_scan(step, inverse, START, x, **options)[0][0], xs
        )
        return sum(leaf.size for leaf in jax.tree.leaves(pull[1])) - xs.size

    assert kept() < 60
    assert kept() < kept(refresh_every=10) < 100


def test_body_that_raises_is_heard():
    def step(_carry, _x):
        msg = "from the body"
        raise RuntimeError(msg)

    with pytest.raises(RuntimeError, match="from the body"):
        memory.reversible_scan(step, lambda c, _: c, 1.0, length=2)


def test_errors_name_the_function_and_the_remedy():
    run = memory.reversible_scan
    with pytest.raises(TypeError, match=r"reversible_scan \(step\).*float64\[2\] for float64\[\]"):
        run(lambda c, _: (jnp.stack([c, c]), None), lambda c, _: c, jnp.array(1.0), length=2)
    with pytest.raises(TypeError, match=r"reversible_scan \(inverse\).*structure"):
        run(lambda c, _: (c, None), lambda c, _: (c,), 1.0, length=2)
    with pytest.raises(ValueError, match=r"leading axes of xs or from length, got \[\]"):
        run(*decay(2.0), 1.0)
    with pytest.raises(ValueError, match=r"got \[2, 3\]"):
        run(*decay(2.0), 1.0, jnp.ones(2), length=3)
    with pytest.raises(ValueError, match="refresh_every >= 1"):
        run(*decay(2.0), 1.0, length=3, refresh_every=0)
    with pytest.raises(ValueError, match="scalar in it"):
        run(*decay(2.0), 1.0, 3.0)


def test_second_derivative_of_eigh_in_a_coupling_at_coinciding_values():
    d = MATRIX + MATRIX.T

    def by_eigh(c, _):
        w, v = linalg.eigh(c)
        return 0.1 * (v * jnp.exp(w)) @ v.T

    def result(a, f, scan):
        (p, q), _ = scan(memory.additive_coupling(f, f), (a, 0.5 * a))
        return jnp.sum(MATRIX * (p + q @ q))

    def along(f, scan):
        curve = jax.jvp(jax.grad(lambda a: result(a, f, scan)), (0.5 * jnp.eye(3),), (d,))[1]
        return jnp.sum(curve * d)

    backwards = lambda pair, c: memory.reversible_scan(*pair, c, length=3)  # noqa: E731
    stored = lambda pair, c: lax.scan(pair.step, c, length=3)  # noqa: E731
    along = jax.jit(along, static_argnums=(0, 1))
    exact = along(lambda c, _: 0.1 * jax.scipy.linalg.expm(c), stored)
    np.testing.assert_allclose(along(by_eigh, backwards), exact, rtol=1e-4)
    np.testing.assert_allclose(along(by_eigh, stored), exact, rtol=1e-4)
