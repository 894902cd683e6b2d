"""The corner transfer matrix of a unit cell: exact models, gradients, gauge, failures."""

import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import ctmrg
import ipeps_c4v
import ipeps_cell as ipeps
import ising_ctmrg as ising

from difflinalg.implicit import NotConvergedError

CHECKERBOARD = ((0, 1), (1, 0))
STRIPES = ((0, 1, 2), (1, 2, 0), (2, 0, 1))
HAMILTONIAN = ipeps_c4v.model("j1j2", j2=0.3, turned=False)
OPTIONS = ctmrg.DEFAULTS._replace(fixed_point_rtol=1e-11, solver_rtol=1e-11)


def unitary(rng, size, dtype):
    x = rng.standard_normal((size, size))
    if jnp.issubdtype(dtype, jnp.complexfloating):
        x = x + 1j * rng.standard_normal((size, size))
    return np.linalg.qr(x)[0]


def checkerboard_turned(a, across, down):
    """Tensors of a checkerboard with matrices and their inverses on the bonds.

    `across[s]`, `down[s]` stand on the bonds to the right of and below site `s`.
    """
    b, c = np.linalg.inv(across)[::-1], np.linalg.inv(down)[::-1]
    return jnp.einsum("n...uldr,nUu,nLl,ndD,nrR->n...ULDR", a, c, b, down, across)


def random_tensors(dtype, seed=0):
    rng = np.random.default_rng(seed)
    tensors = rng.uniform(-0.3, 1.0, (2, 2, 2, 2, 2, 2))
    if dtype == jnp.complex128:
        tensors = tensors * np.exp(0.7j * rng.standard_normal(tensors.shape))
    return tensors


@partial(jax.jit, static_argnames="dtype")
def energy(tensors, dtype):
    """The energy per site; for a complex dtype from a complex network."""
    rng = np.random.default_rng(3)
    bonds = [np.stack([unitary(rng, 4, dtype) for _ in range(2)]) for _ in range(2)]
    boundary = ipeps.trace_boundary(2, 2, dtype)

    def layers(operator=None):
        return checkerboard_turned(ipeps.double_layers(tensors, operator), *bonds)

    a = layers()
    a = a / jnp.sqrt(jnp.sum(jnp.abs(a) ** 2, (1, 2, 3, 4), keepdims=True))
    env, info = ctmrg.environment(a, ctmrg.start(a, boundary, 5), CHECKERBOARD, OPTIONS)
    total = ipeps.energy_of_layers(layers, env, CHECKERBOARD, HAMILTONIAN)
    return jnp.real(total), (info, jnp.imag(total))


value_and_grad = jax.jit(jax.value_and_grad(energy, has_aux=True), static_argnames="dtype")


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.complex128])
def test_gradient_agrees_with_differences_and_does_not_depend_on_the_gauge(dtype):
    tensors = random_tensors(dtype)
    direction = random_tensors(dtype, 1) - 0.4
    direction /= np.linalg.norm(direction)
    (want, (info, imaginary)), gradient = value_and_grad(tensors, dtype)
    assert info.converged
    assert abs(imaginary) < 1e-11  # the tolerance of the fixed point

    def value(t):
        return float(value_and_grad(tensors + t * direction, dtype)[0][0])

    h = 1e-2
    slope = 45 * (value(h) - value(-h)) - 9 * (value(2 * h) - value(-2 * h))
    slope = (slope + value(3 * h) - value(-3 * h)) / (60 * h)
    np.testing.assert_allclose(np.real(np.sum(gradient * direction)), slope, rtol=1e-9)

    rng = np.random.default_rng(5)
    bonds = [np.stack([unitary(rng, 2, dtype) for _ in range(2)]) for _ in range(2)]
    (got, _), turned = value_and_grad(checkerboard_turned(tensors, *bonds), dtype)
    np.testing.assert_allclose(got, want, rtol=1e-12)
    back = checkerboard_turned(turned, *(np.swapaxes(x, 1, 2) for x in bonds))
    np.testing.assert_allclose(back, gradient, rtol=0, atol=1e-10)


def test_ising_model_agrees_with_the_exact_solution():
    coupling, chi = jnp.asarray(0.4), 8
    boundary = ising.bond_factor(coupling).sum(0)
    rng = np.random.default_rng(4)
    bonds = [np.stack([unitary(rng, 2, jnp.float64) for _ in range(2)]) for _ in range(2)]

    @jax.jit
    def general(coupling):
        a = checkerboard_turned(jnp.stack([ising.tensors(coupling)[0]] * 2), *bonds)
        ends = jnp.broadcast_to(boundary, (4, 2, 2))
        env, info = ctmrg.environment(a, ctmrg.start(a, ends, chi), CHECKERBOARD)
        return ctmrg.log_partition(env, a, CHECKERBOARD), info

    one = (jnp.ones(()),)
    log_z, slope, info = jax.jvp(general, (coupling,), one, has_aux=True)
    assert info.converged
    exact = ising.exact(0.4)
    np.testing.assert_allclose(log_z, exact[0], rtol=0, atol=1e-9)
    np.testing.assert_allclose(-slope, exact[1], rtol=0, atol=1e-7)


def test_projectors_of_four_corners_give_the_magnetisation_of_the_ising_model():
    coupling = jnp.asarray(0.5)
    a, impurity = (x[None] for x in ising.tensors(coupling))
    initial = ctmrg.start(a, ising.bond_factor(coupling)[0], 8)
    options = ctmrg.DEFAULTS._replace(four_corners=True, smallest=1e-12)
    env, info = jax.jit(lambda: ctmrg.environment(a, initial, options=options))()
    assert info.converged
    spin = ctmrg.site(env, impurity) / ctmrg.site(env, a)
    np.testing.assert_allclose(spin, ising.exact(0.5)[3], rtol=1e-7)


def test_environment_that_has_not_converged_is_reported():
    a = ising.tensors(jnp.asarray(0.44))[0][None]
    initial = ctmrg.start(a, ising.bond_factor(jnp.asarray(0.44))[0], 4)
    few = ctmrg.DEFAULTS._replace(max_steps=5)
    with pytest.raises(NotConvergedError, match=r"still changes by .* after 5 steps"):
        ctmrg.environment(a, initial, options=few)


def test_product_states_on_a_cell_of_stripes_have_the_energy_of_the_sum_over_bonds():
    rng = np.random.default_rng(2)
    spinors = rng.standard_normal((3, 2)) + 1j * rng.standard_normal((3, 2))
    tensors = jnp.asarray(spinors).reshape(3, 2, 1, 1, 1, 1)
    env = ctmrg.start(jnp.ones((3, 1, 1, 1, 1)), jnp.ones(1), 1)
    hamiltonian = ipeps_c4v.Model((ipeps_c4v.Y, ipeps_c4v.Z), (0.3, 0.0), (0.5, -1.0), (0.2, 0.7))
    norms = np.sum(np.abs(spinors) ** 2, 1)
    want = 0.0
    for operator, one, two, diagonal in zip(*hamiltonian, strict=True):
        s = np.real(np.einsum("ns,st,nt->n", spinors.conj(), operator, spinors)) / norms
        following, second = np.roll(s, -1), np.roll(s, -2)
        want += np.mean(one * s + two * 2 * s * following + diagonal * (s * s + s * second))
    got = jax.jit(lambda t, e: ipeps.energy_per_site(t, e, STRIPES, hamiltonian))(tensors, env)
    np.testing.assert_allclose(got, want, rtol=1e-13)


def test_cells_and_tensors_that_do_not_fit_are_refused():
    assert ctmrg.neighbours(CHECKERBOARD).tolist() == [[1, 0]] * 4
    assert ctmrg.neighbours(STRIPES)[3].tolist() == [1, 2, 0]
    with pytest.raises(ValueError, match="different neighbours"):
        ctmrg.neighbours(((0, 1), (0, 0)))
    with pytest.raises(ValueError, match="all numbers from 0 to 2"):
        ctmrg.neighbours(((0, 2),))
    with pytest.raises(ValueError, match=r"an array of shape \(2, d, d, d, d\)"):
        ctmrg.lattice(CHECKERBOARD, jnp.ones((1, 2, 2, 2, 2)))
