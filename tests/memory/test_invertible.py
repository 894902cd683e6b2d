"""Ready-made invertible steps: round trips, gradients against `lax.scan`, orders of convergence."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scipy.linalg import expm

from difflinalg import memory
from difflinalg.testing import check_derivatives


def random_array(seed, shape, dtype=jnp.float64):
    return np.asarray(jax.random.normal(jax.random.key(seed), shape, dtype))


def close(got, expected, rtol=1e-12):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * np.max(np.abs(b), initial=1e-300))


COUNT = 6
WEIGHTS = 0.3 * random_array(1, (COUNT, 3, 3))
TIMES = (0.1 * np.arange(COUNT), np.full(COUNT, 0.1))
PAIR = (random_array(2, (3,)), random_array(3, (3,)))
STATE = random_array(4, (8,), jnp.complex128)
ANGLES = random_array(5, (COUNT, 3))
PAULI_X, PAULI_Z = np.array([[0, 1], [1, 0]]), np.diag([1, -1])
FIELD = random_array(6, (3, 3))


def field(t, y):
    return jnp.sin(FIELD @ y) + jnp.cos(t)


def rk4(t, y, h):
    k1 = field(t, y)
    k2 = field(t + h / 2, y + h / 2 * k1)
    k3 = field(t + h / 2, y + h / 2 * k2)
    return h / 6 * (k1 + 2 * k2 + 2 * k3 + field(t + h, y + h * k3))


def flip(psi):
    """Pauli X on the first of three sites."""
    return psi.reshape(2, 4)[::-1].reshape(-1)


def gates():
    zz = np.array([[1, 1, -1, -1, -1, -1, 1, 1], [1, -1, -1, 1, 1, -1, -1, 1]])
    hop = np.kron(PAULI_X, PAULI_Z) + 0.5 * np.eye(4)
    members = memory.involution_gate(flip), memory.diagonal_gate(zz), memory.local_gate(hop, [2, 0])
    return memory.chain(*members), STATE, (ANGLES[:, 0], ANGLES[:, 1:], ANGLES[:, 2])


def nested_chain():
    inner = memory.chain(
        memory.additive_coupling(lambda c, w: jnp.sin(w @ c), lambda c, w: w @ c),
        memory.additive_coupling(lambda c, w: w @ c, lambda c, w: jnp.cos(w @ c)),
    )
    outer = memory.chain(memory.leapfrog(lambda t, q: jnp.sin(q) * t), inner)
    return outer, PAIR, (TIMES, (WEIGHTS, WEIGHTS[::-1]))


def repeated_chain():
    """A repetition inside of a chain inside of a repetition; the input takes part in each."""
    couple = memory.additive_coupling(lambda c, w: jnp.sin(w @ c), lambda c, w: w @ c)
    emit = memory.Invertible(lambda c, _: (c, c), lambda c, _: c)
    inner = memory.chain(memory.repeat(couple, 3), emit, shared=True)
    return memory.repeat(inner, 2), PAIR, WEIGHTS


CASES = {
    "additive coupling": lambda: (
        memory.additive_coupling(lambda c, w: jnp.tanh(w @ c), lambda c, w: jnp.sin(w @ c)),
        PAIR,
        WEIGHTS,
    ),
    "affine coupling": lambda: (
        memory.affine_coupling(*[lambda c, w: (jnp.tanh(w @ c), jnp.sin(w.T @ c))] * 2),
        PAIR,
        WEIGHTS,
    ),
    "residual block": lambda: (
        memory.residual_block(lambda c, w: 0.4 * jnp.sin(w @ c / jnp.linalg.norm(w)), 0.4),
        PAIR[0],
        WEIGHTS,
    ),
    "leapfrog": lambda: (
        memory.leapfrog(lambda t, q: jnp.sin(FIELD @ q) * t, lambda t, p: p**3 + t),
        PAIR,
        TIMES,
    ),
    "yoshida4": lambda: (memory.yoshida4(lambda t, q: jnp.sin(FIELD @ q) * t), PAIR, TIMES),
    "reversible Heun": lambda: (
        memory.reversible_heun(field),
        memory.reversible_heun_start(field, 0.0, PAIR[0]),
        TIMES,
    ),
    "McCallum-Foster": lambda: (memory.mccallum_foster(rk4), (PAIR[0], PAIR[0]), TIMES),
    "gates": gates,
    "chain in a chain": nested_chain,
    "repeated chain": repeated_chain,
}


@pytest.mark.parametrize("name", CASES)
def test_round_trip_and_gradient_agree_with_scan(name):
    (step, inverse), start, xs = CASES[name]()

    def size(tree):
        weights = jnp.arange(1.0, 1.0 + sum(leaf.size for leaf in jax.tree.leaves(tree)))
        flat = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])
        return jnp.sum(weights * (jnp.real(flat) + 0.5 * jnp.imag(flat)))

    def both(start, xs):
        run = partial(memory.reversible_scan, step, inverse, return_error=True)
        reversible = jax.grad(lambda *args: size(run(*args)[:2]), (0, 1))(start, xs)
        plain = jax.grad(lambda *args: size(lax.scan(step, *args)), (0, 1))(start, xs)
        return reversible, plain, run(start, xs)[2]

    reversible, plain, error = jax.jit(both)(start, xs)
    close(reversible, plain)
    assert error < 1e-13


def solve(method, start, steps, end=1.0):
    h = end / steps
    xs = (h * jnp.arange(steps), jnp.full(steps, h))
    return lax.scan(method.step, start, xs)[0][0]


def oscillator(t, y):
    """Driven: `y = (sin t, cos t) exp(sin t)` solves it."""
    return jnp.array([[0.0, 1.0], [-1.0, 0.0]]) @ y + jnp.cos(t) * y


EXACT = np.exp(np.sin(1.0)) * np.array([np.sin(1.0), np.cos(1.0)])


def rk4_step(t, y, h):
    k1 = oscillator(t, y)
    k2 = oscillator(t + h / 2, y + h / 2 * k1)
    k3 = oscillator(t + h / 2, y + h / 2 * k2)
    return h / 6 * (k1 + 2 * k2 + 2 * k3 + oscillator(t + h, y + h * k3))


def convergence():
    y0 = np.array([0.0, 1.0])
    heun = memory.reversible_heun(oscillator)
    pair = memory.mccallum_foster(rk4_step)
    # q' = p + t, p' = -q + t has the solution q = cos t + t + 1, p = 1 - t - sin t.
    force, velocity = lambda t, q: -q + t, lambda t, p: p + t
    start = (np.array([2.0]), np.array([1.0]))
    exact = np.array([np.cos(1.0) + 2.0])
    return {
        "reversible Heun": (heun, memory.reversible_heun_start(oscillator, 0.0, y0), EXACT, 2),
        "McCallum-Foster": (pair, (y0, y0), EXACT, 4),
        "leapfrog": (memory.leapfrog(force, velocity), start, exact, 2),
        "yoshida4": (memory.yoshida4(force, velocity), start, exact, 4),
    }


@pytest.mark.parametrize("name", convergence())
def test_integrators_converge_with_their_order(name):
    method, start, exact, order = convergence()[name]
    coarse, fine = (np.linalg.norm(solve(method, start, n) - exact) for n in (20, 40))
    assert abs(np.log2(coarse / fine) - order) < 0.3, (coarse, fine)
    assert fine < 1e-3


def on_sites(matrix, sites, count):
    """The matrix on the whole register, by summing over its entries."""
    k, total = len(sites), np.zeros((2**count,) * 2, complex)
    for row in range(2**count):
        bits = [(row >> (count - 1 - site)) & 1 for site in range(count)]
        local = int("".join(str(bits[site]) for site in sites), 2)
        for other in range(2**k):
            target = list(bits)
            for i, site in enumerate(sites):
                target[site] = (other >> (k - 1 - i)) & 1
            column = int("".join(map(str, target)), 2)
            total[row, column] += matrix[local, other]
    return total


def test_gates_are_the_exponentials_of_their_generators():
    angle = 0.7
    x_0 = on_sites(PAULI_X, [0], 3)
    close(memory.involution_gate(flip).step(STATE, angle)[0], expm(-1j * angle * x_0) @ STATE)
    z = np.diag(on_sites(PAULI_Z, [1], 3)).real
    got = memory.diagonal_gate(z).step(STATE, angle)[0]
    close(got, expm(-1j * angle * np.diag(z)) @ STATE)
    generator = random_array(7, (4, 4), jnp.complex128)
    generator = generator + generator.conj().T
    for sites in ([0, 1], [2, 0], [1, 2]):
        got = memory.local_gate(generator, sites).step(STATE, angle)[0]
        close(got, expm(-1j * angle * on_sites(generator, sites, 3)) @ STATE)


def test_gates_that_close_over_traced_values_have_their_derivative_too():
    weight = np.arange(8.0)

    def f(table, phase, run):
        swap = lambda psi: psi[::-1] * jnp.exp(1j * phase * np.r_[np.ones(4), -np.ones(4)])  # noqa: E731
        gates = memory.chain(memory.diagonal_gate(table), memory.involution_gate(swap))
        psi = run(*gates, STATE, (ANGLES[:, :2], ANGLES[:, 2]))[0]
        return jnp.sum(weight * jnp.abs(psi) ** 2)

    args = (random_array(8, (2, 8)), 0.3)
    plain = lambda step, _, c, x: lax.scan(step, c, x)  # noqa: E731
    gradient = jax.jit(jax.grad(f, (0, 1)), static_argnums=2)
    close(gradient(*args, memory.reversible_scan), gradient(*args, plain))


def test_affine_coupling_is_its_formula():
    half = lambda c, x: (0.1 * c, x * c)  # noqa: E731
    y, _ = memory.affine_coupling(half, half).step((1.0, 2.0), 3.0)
    first = np.exp(0.2) + 6.0
    close(y, (first, 2.0 * np.exp(0.1 * first) + 3.0 * first))


def test_inverse_of_a_residual_block_has_derivatives_of_any_order():
    inverse = memory.residual_block(lambda c, w: 0.4 * jnp.sin(w * c), 0.4).inverse
    check_derivatives(lambda y, w: inverse(y, w), (PAIR[0], jnp.array(0.9)), order=2)


def test_inverse_of_a_residual_block_takes_a_bound_near_one_and_refuses_a_false_one():
    def block(scale, bound):
        return memory.residual_block(lambda c, _: scale * c, bound)

    y = jnp.array([1.0, -2.0])
    close(block(0.99, 0.99).inverse(y, None), y / 1.99, 1e-13)
    close(block(-0.99, 0.99).inverse(y, None), y / 0.01, 1e-11)
    close(block(0.0, 0.0).inverse(y, None), y, 0.0)
    assert np.all(np.isnan(block(0.9, 0.5).inverse(y, None)))
    with pytest.raises(memory.ReconstructionError):
        jax.grad(lambda c: jnp.sum(memory.reversible_scan(*block(0.9, 0.5), c, length=2)[0]))(y)


def test_chain_refuses_inputs_that_do_not_fit():
    shift = memory.Invertible(lambda c, x: (c + x, None), lambda c, x: c - x)
    with pytest.raises(ValueError, match="chain of 2 steps needs x as a tuple of 2 entries, got 3"):
        memory.chain(shift, shift).step(1.0, (1.0, 2.0, 3.0))
    shared = memory.chain(shift, shift, shared=True)
    assert shared.step(1.0, 2.0)[0] == 5.0
    assert jax.grad(lambda x: memory.reversible_scan(*shared, 1.0, x)[0])(jnp.ones(1))[0] == 2.0


def test_repeated_step_has_the_derivative_of_what_it_closes_over():
    def end(rate, step_of):
        times = memory.Invertible(lambda c, x: (c * rate, x), lambda c, _: c / rate)
        return memory.reversible_scan(*step_of(times), 1.0, length=2)[0]

    slope = jax.grad(end)(1.1, lambda step: memory.repeat(step, 5))
    np.testing.assert_allclose(slope, 10 * 1.1**9, rtol=1e-13)


def test_program_of_a_repeated_step_does_not_grow_with_its_count():
    def size(count):
        step, inverse = memory.repeat(memory.leapfrog(lambda t, q: -q * t), count)
        loss = lambda q: memory.reversible_scan(step, inverse, (q, 0.0), TIMES)[0][0]  # noqa: E731
        return len(str(jax.make_jaxpr(jax.grad(loss))(1.0)).splitlines())

    assert size(10_000) == size(10)


def test_arguments_of_steps_are_checked():
    with pytest.raises(ValueError, match="repeat needs count >= 1, got count=0"):
        memory.repeat(memory.drift(), 0)
    with pytest.raises(ValueError, match="0 <= lipschitz < 1, got 1"):
        memory.residual_block(lambda c, _: c, 1.0)
    with pytest.raises(ValueError, match="0 < coupling <= 1"):
        memory.mccallum_foster(rk4, 0.0)
    with pytest.raises(ValueError, match="2 kicks and 2 drifts"):
        memory.splitting(field, kicks=(0.5, 0.5), drifts=(1.0, 0.0))
    with pytest.raises(ValueError, match="Hermitian"):
        memory.local_gate(np.array([[0, 1], [0, 0]]), [0])
    with pytest.raises(ValueError, match=r"shape \(4, 4\), got \(2, 2\)"):
        memory.local_gate(np.eye(2), [0, 1])
    with pytest.raises(ValueError, match="distinct sites from 0 to 2"):
        memory.local_gate(np.eye(2), [3]).step(STATE, 0.1)
    with pytest.raises(ValueError, match=r"got \(6,\)"):
        memory.local_gate(np.eye(2), [0]).step(STATE[:6], 0.1)
    with pytest.raises(ValueError, match="NaN or inf"):
        memory.local_gate(np.full((2, 2), np.nan), [0])
    with pytest.raises(TypeError, match=r"sequence of integers, such as \[1\], got 1\."):
        memory.local_gate(np.eye(2), 1)
    with pytest.raises(TypeError, match="known matrix, got a traced one"):
        jax.jit(lambda g: memory.local_gate(g, [0]).step(STATE, 0.1)[0])(np.eye(2))
    with pytest.raises(TypeError, match=r"real diagonals.*got complex128\[8\]"):
        memory.diagonal_gate(1j * np.arange(8))
    with pytest.raises(ValueError, match=r"shape \(n,\) or \(K, n\), got float64\[\]"):
        memory.diagonal_gate(1.0)
    for gate in (memory.diagonal_gate(np.arange(8)), memory.involution_gate(lambda s: s[::-1])):
        with pytest.raises(TypeError, match=r"real angle, got complex128\[\]"):
            gate.step(STATE, 1j)
    with pytest.raises(ValueError, match=r"kicks that sum to 1, got the sum 0\.75"):
        memory.splitting(field, kicks=(0.5, 0.25), drifts=(1.0,))
    with pytest.raises(ValueError, match="drifts that sum to 1"):
        memory.splitting(field, kicks=(0.5, 0.5), drifts=(0.5,))
    with pytest.raises(TypeError, match=r"affine_coupling needs.*pair \(s, t\), got one"):
        memory.affine_coupling(lambda c, _: c, lambda c, _: c).step((np.ones(2), np.ones(2)), None)
    with pytest.raises(ValueError, match="chain needs at least one step"):
        memory.chain()
    pair = (lambda c, x: (c + x, None), lambda c, x: c - x)
    assert memory.chain(pair, pair, shared=True).inverse(3.0, 1.0) == 1.0
    with pytest.raises(TypeError, match=r"reversible_scan \(step\) needs.*pair \(carry, y\)"):
        memory.reversible_scan(pair[1], pair[0], 1.0, np.ones(2))
