"""The circuit example: exact states, the gradient in three ways, the ground state, the CLI."""

import importlib.util
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

SCRIPT = Path(__file__).parents[2] / "examples" / "vqe_circuit.py"


def load():
    spec = importlib.util.spec_from_file_location("vqe_circuit_example", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


vqe = load()
SITES = 4


def pauli_sums():
    """`sum Z Z` and `sum X` on the ring as matrices; site 0 is the fastest index."""
    x, z, one = np.array([[0, 1], [1, 0]]), np.diag([1, -1]), np.eye(2)

    def on(ops):
        total = np.eye(1)
        for site in reversed(range(SITES)):
            total = np.kron(total, ops.get(site, one))
        return total

    zz = sum(on({j: z, (j + 1) % SITES: z}) for j in range(SITES))
    return zz, sum(on({j: x}) for j in range(SITES))


def test_state_and_energy_are_those_of_matrix_exponentials():
    zz, xs = pauli_sums()
    angles = np.random.default_rng(0).uniform(-1.0, 1.0, (3, 2))
    psi = np.full(2**SITES, 2.0 ** (-SITES / 2), complex)
    for gamma, beta in angles:
        psi = expm(-1j * beta * xs) @ (expm(-1j * gamma * zz) @ psi)
    np.testing.assert_allclose(vqe.state(jnp.asarray(angles), SITES), psi, atol=1e-13)
    expected = np.real(psi.conj() @ (-(zz + 0.7 * xs)) @ psi)
    np.testing.assert_allclose(vqe.energy(jnp.asarray(angles), 0.7, SITES), expected, rtol=1e-13)
    exact = np.linalg.eigvalsh(-(zz + 0.7 * xs))[0]
    np.testing.assert_allclose(vqe.exact_energy(0.7, SITES), exact, rtol=1e-12)


def test_gradient_agrees_with_plain_differentiation_and_with_the_shift_of_all_angles():
    angles = jnp.asarray(np.random.default_rng(1).uniform(-1.0, 1.0, (40, 2)))
    f = partial(vqe.energy, field=1.0, sites=SITES)
    got = jax.jit(jax.grad(f))(angles)
    plain = jax.jit(jax.grad(partial(f, reversible=False)))(angles)
    np.testing.assert_allclose(got, plain, rtol=0, atol=1e-11 * np.max(np.abs(plain)))
    d = jnp.cos(jnp.arange(80.0)).reshape(40, 2)
    value = jax.jit(f)
    h = 1e-4
    slope = (8 * (value(angles + h * d) - value(angles - h * d))
             - (value(angles + 2 * h * d) - value(angles - 2 * h * d))) / (12 * h)  # fmt: skip
    np.testing.assert_allclose(jnp.sum(got * d), slope, rtol=1e-8)


def test_memory_of_the_gradient_does_not_grow_with_depth():
    short, long = vqe.compare(SITES, [10, 1000], 1.0, 1)
    angles_kB = 990 * 2 * 8 / 1e3
    assert long["uncompute_kB"] < short["uncompute_kB"] + 3 * angles_kB * (SITES + 1)
    assert long["plain_kB"] > 20 * short["plain_kB"]
    assert max(short["difference"], long["difference"]) < 1e-11


def test_command_finds_the_ground_state_and_draws(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib").use("Agg")
    path = tmp_path / "vqe.png"
    monkeypatch.setattr(sys, "argv", ["vqe_circuit.py", "--smoke", "--output", str(path)])
    vqe.main()
    line = capsys.readouterr().out.splitlines()[1]
    assert abs(float(line.split("difference")[1])) < 1e-8
    assert path.stat().st_size > 1000


@pytest.mark.parametrize("bad", [["--sites", "5"], ["--layers", "0"], ["--depths", "0"]])
def test_command_refuses_bad_numbers(bad, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["vqe_circuit.py", *bad])
    with pytest.raises(SystemExit):
        vqe.main()
