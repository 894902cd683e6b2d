"""Momentum in exact arithmetic: bit-exact round trips, and derivatives of the real recursion."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from difflinalg import memory
from difflinalg._memory.momentum import DENOMINATOR, FRACTION_BITS, _exchange

MATRIX = np.asarray(jax.random.normal(jax.random.key(0), (5, 5), jnp.float64))


def energy(w, target):
    r = MATRIX @ (w - target)
    return jnp.sum(jnp.log1p(jnp.exp(r)) + 0.05 * r**2)


def schedules(steps):
    t = np.arange(steps)
    rates, decays = 0.05 + 0.04 * np.sin(t), 0.85 + 0.1 * np.cos(0.7 * t)
    return memory.MomentumInput(rates, decays, np.cos(t[:, None] + np.arange(5.0)))


STEP = memory.momentum(jax.grad(energy))
STEP_OF_SQUARES = memory.momentum(lambda w, _: w)


def test_long_integers_follow_python():
    """The products, quotients and remainders of Python's integers, negative ones included."""
    rng = np.random.default_rng(0)
    unit = 2.0**FRACTION_BITS
    values = rng.integers(-(2**44), 2**44, 40)
    expected, stored, kept = list(map(int, values)), [0] * 40, []
    v, buffer = jnp.asarray(values / unit), jnp.zeros((30, 40), jnp.uint32)
    exchange = jax.jit(_exchange)
    for n in rng.integers(1, DENOMINATOR, 25):
        v, buffer = exchange(v, jnp.uint32(n), jnp.uint32(DENOMINATOR), buffer)
        kept.append(n)
        for j, c in enumerate(expected):
            i = stored[j] * DENOMINATOR + c % DENOMINATOR
            expected[j], stored[j] = (c // DENOMINATOR) * int(n) + i % int(n), i // int(n)
    np.testing.assert_array_equal(v, np.array(expected) / unit)
    digits = [sum(int(d) << (16 * k) for k, d in enumerate(column)) for column in buffer.T]
    assert digits == stored
    assert max(stored).bit_length() > 25
    for n in kept[::-1]:
        v, buffer = exchange(v, jnp.uint32(DENOMINATOR), jnp.uint32(n), buffer)
    np.testing.assert_array_equal(v, values / unit)
    assert not np.any(buffer)


@partial(jax.jit, static_argnums=1)
def there_and_back(w, steps, xs):
    start = memory.momentum_start(w, steps, 0.75)
    end, _ = lax.scan(STEP.step, start, xs)
    return start, end, lax.scan(lambda s, x: (STEP.inverse(s, x), None), end, xs, reverse=True)[0]


def test_a_thousand_steps_come_back_to_the_last_bit():
    w, xs = jnp.linspace(-1.0, 1.0, 5), schedules(1000)
    start, end, back = there_and_back(w, 1000, xs)
    for a, b in zip(back, start, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype
    assert np.all(np.isfinite(end.position))
    lost = sum(np.log2(1.0 / np.asarray(xs.decay, float)))
    used = max(int(d).bit_length() + 16 * k for (k, _), d in np.ndenumerate(end.buffer) if d)
    assert abs(used - lost) < 17  # formulas of the paper: log2(1 / g) bits a step, nothing else


def train(w, xs, reversible):
    steps = xs.rate.shape[0]
    start = memory.momentum_start(w, steps, 0.75)
    if reversible:
        end = memory.reversible_scan(*STEP, start, xs, rtol=0.0)[0]
    else:
        end = lax.scan(STEP.step, start, xs)[0]
    return energy(end.position, jnp.ones(5))


def real_train(w, xs):
    def step(carry, x):
        w, v = carry
        v = x.decay * v - (1 - x.decay) * jax.grad(energy)(w, x.data)
        return (w + x.rate * v, v), None

    return energy(lax.scan(step, (w, jnp.zeros(5)), xs)[0][0], jnp.ones(5))


def test_hypergradients_are_those_of_scan_and_of_real_arithmetic():
    w = np.linspace(-1.0, 1.0, 5)
    xs = schedules(200)
    gradient = jax.jit(jax.grad(train, (0, 1), allow_int=False), static_argnums=2)
    got, plain = gradient(w, xs, True), gradient(w, xs, False)
    real = jax.jit(jax.grad(real_train, (0, 1)))(w, xs)
    for a, b, c in zip(*map(jax.tree.leaves, (got, plain, real)), strict=True):
        scale = np.max(np.abs(b))
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * scale)
        np.testing.assert_allclose(a, c, rtol=0, atol=1e-3 * scale)  # decay is rounded to 2^-15


def test_second_derivative_agrees_with_real_arithmetic():
    w, d = np.linspace(-1.0, 1.0, 5), np.cos(np.arange(5.0))
    xs = schedules(20)
    hessian = lambda f: jax.jvp(jax.grad(f), (w,), (d,))[1]  # noqa: E731
    got = jax.jit(lambda: hessian(lambda w: train(w, xs, True)))()
    expected = jax.jit(lambda: hessian(lambda w: real_train(w, xs)))()
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-3 * np.max(np.abs(expected)))


def test_full_buffer_and_left_range_are_nan():
    step = memory.momentum(lambda w, _: jnp.ones_like(w) / 3.0)
    xs = memory.MomentumInput(jnp.full(40, 0.1), jnp.full(40, 0.6))
    room = memory.momentum_start(jnp.zeros(2), 40, 0.59)
    assert np.all(np.isfinite(lax.scan(step.step, room, xs)[0].position))
    small = memory.momentum_start(jnp.zeros(2), 1)
    assert np.all(np.isnan(lax.scan(step.step, small, xs)[0].position))
    far = memory.momentum_start(jnp.array([4095.9999]), 40, 0.59)
    assert np.all(np.isnan(lax.scan(memory.momentum(lambda w, _: -w).step, far, xs)[0].position))
    assert np.all(np.isnan(memory.momentum_start(jnp.array([4096.0]), 1).position))


def test_pytrees_of_parameters():
    step, inverse = memory.momentum(lambda w, _: {"a": w["a"] * 2.0, "b": jnp.sin(w["b"])})
    start = memory.momentum_start({"a": jnp.ones(2), "b": jnp.array(0.3)}, 3)
    x = memory.MomentumInput(0.1, 0.7)
    back = jax.jit(lambda state: inverse(step(state, x)[0], x))(start)
    for a, b in zip(*map(jax.tree.leaves, (back, start)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_arguments_are_checked():
    with pytest.raises(TypeError, match="needs float64, got complex128"):
        memory.momentum_start(jnp.ones(2, complex), 1)
    with pytest.raises(ValueError, match="0 < least_decay <= 1, got 0"):
        memory.momentum_start(jnp.ones(2), 1, 0.0)
    with pytest.raises(ValueError, match="steps >= 1"):
        memory.momentum_start(jnp.ones(2), 0)
    with pytest.raises(TypeError, match="needs float64, got float32; enable jax_enable_x64"):
        memory.momentum_start(jnp.ones(2, jnp.float32), 1)
    start = memory.momentum_start(jnp.ones(2), 3)
    for slope in (lambda w, _: jnp.sum(w), lambda w, _: (w,)):
        with pytest.raises(TypeError, match="momentum needs a gradient with the structure and"):
            memory.momentum(slope).step(start, (0.1, 0.9))


def test_steps_are_those_of_real_arithmetic_and_a_bad_decay_is_nan():
    start = memory.momentum_start(jnp.array([0.7, -0.3]), 20)
    w, v, decay = np.array([0.7, -0.3]), np.zeros(2), round(0.9 * 2**15) / 2**15
    state = start
    for _ in range(20):
        state, _ = STEP_OF_SQUARES.step(state, (0.1, 0.9))
        v = decay * v - (1 - decay) * w
        w = w + 0.1 * v
    np.testing.assert_allclose(state.position, w, rtol=0, atol=1e-6)
    for bad in (-0.5, 0.0, 1.5, np.nan):
        state, _ = STEP_OF_SQUARES.step(start, (0.1, bad))
        assert np.all(np.isnan(state.position))


def test_second_derivatives_in_a_plain_loop_agree_in_every_nesting():
    start, xs = jnp.linspace(-0.5, 0.7, 5), schedules(4)

    def loss(shift):
        state = memory.momentum_start(start + shift, 4, 0.7)
        state, _ = lax.scan(STEP.step, state, xs)
        return jnp.sum(state.position**3)

    def real(shift):
        """The same recursion in real arithmetic."""

        def step(carry, x):
            w, v = carry
            v = x.decay * v - (1.0 - x.decay) * jax.grad(energy)(w, x.data)
            return (w + x.rate * v, v), None

        (w, _), _ = lax.scan(step, (start + shift, jnp.zeros(5)), xs)
        return jnp.sum(w**3)

    @jax.jit
    def nestings(x):
        slope = jax.grad(loss)
        along = lambda x: jax.jvp(loss, (x,), (1.0,))[1]  # noqa: E731
        got = [jax.grad(slope), jax.jacfwd(slope), jax.grad(along), jax.jacfwd(along)]
        return jnp.stack([f(x) for f in got]), jax.hessian(real)(x)

    got, expected = nestings(0.1)
    np.testing.assert_allclose(got, np.full(4, expected), rtol=2e-4)
    np.testing.assert_allclose(got, np.full(4, got[0]), rtol=1e-12)
