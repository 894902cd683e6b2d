"""The TRG example: exact lattices, Onsager's solution, derivatives of the approximant, the CLI."""

import argparse
import importlib.util
import itertools
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "ising_trg.py"
TABLE = [
    (0.20, 0.73453081227633, -0.428228833240, 0.0976521776),
    (0.30, 0.79055907095126, -0.704499070832, 0.2862902029),
    (0.40, 0.87936382077495, -1.106079203746, 0.8616983568),
    (0.42, 0.90263921909621, -1.226054840281, 1.1974677850),
    (0.44, 0.92872854045689, -1.402226960032, 2.8896870923),
    (0.45, 0.94338377309879, -1.513045805998, 1.6079529376),
    (0.50, 1.02579281269492, -1.745564575313, 0.7248714486),
    (0.60, 1.21013238828841, -1.909086177684, 0.3134453581),
]


def load():
    spec = importlib.util.spec_from_file_location("ising_trg_example", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


trg = load()


def random_array(seed, shape, dtype=jnp.float64):
    return np.asarray(jax.random.normal(jax.random.key(seed), shape, dtype))


def difference(f, h=2e-3):
    """The derivative of a function of one number at zero, to the sixth order."""
    return (45 * (f(h) - f(-h)) - 9 * (f(2 * h) - f(-2 * h)) + f(3 * h) - f(-3 * h)) / (60 * h)


def contracted_lattice(tensor):
    """The network of four tensors to which two steps belong, leg by leg.

    A step joins two tensors to one that is turned by 45 degrees: two steps, two of each kind of
    neighbour, make the 2 x 2 torus. Legs are up, left, down, right.
    """
    # Vertical bonds a, b (first column) and c, d; horizontal bonds e, f (first row) and g, h.
    return np.einsum("aebf,cfde,bgah,dhcg->", tensor, tensor, tensor, tensor)


@pytest.mark.parametrize("coupling", [0.0, 0.3, 0.44, -0.3])
def test_tensor_of_a_site_sums_to_its_boltzmann_weights(coupling):
    tensor = np.asarray(trg.ising_tensor(coupling))
    c, s = np.cosh(coupling), np.sinh(coupling)
    # One site whose bonds lead back to it: the spin agrees with itself.
    np.testing.assert_allclose(np.einsum("abab->", tensor), 2 * np.exp(2 * coupling), rtol=1e-14)
    if coupling >= 0:
        half = np.stack([np.full(2, np.sqrt(c)), np.sqrt(s) * np.array([1.0, -1.0])])
        expected = np.einsum("as,bs,cs,ds->abcd", half, half, half, half)
        np.testing.assert_allclose(tensor, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("coupling", [0.2, 0.44, 0.7])
def test_four_sites_without_truncation_are_the_enumerated_lattice(coupling):
    energies = []
    for spins in itertools.product([-1, 1], repeat=4):
        s = np.array(spins).reshape(2, 2)
        energies.append(np.sum(s * np.roll(s, 1, 0) + s * np.roll(s, 1, 1)))
    exact = np.log(np.sum(np.exp(coupling * np.array(energies)))) / 4
    got = trg.log_partition_per_site(trg.ising_tensor(coupling), 64, 2)
    np.testing.assert_allclose(got, exact, rtol=1e-13)


def random_tensor(dtype):
    """Positive, generic, without a symmetry; complex phases are small."""
    tensor = np.exp(0.4 * random_array(0, (2, 2, 2, 2)))
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return tensor * np.exp(0.3j * random_array(1, (2, 2, 2, 2)))
    return tensor


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.complex128])
def test_any_tensor_is_contracted_exactly_without_truncation(dtype):
    tensor = random_tensor(dtype)
    got = trg.log_partition_per_site(jnp.asarray(tensor), 64, 2)
    np.testing.assert_allclose(np.exp(4 * got), contracted_lattice(tensor), rtol=1e-12)


@pytest.mark.parametrize(
    ("chi", "expected", "rtol"), [(4, 6.034553996, 1e-8), (8, 5.937114437, 2e-9)]
)
def test_second_derivative_is_that_of_the_approximant(chi, expected, rtol):
    coupling = 0.44
    _, _, heat = trg.thermodynamics(jnp.array([coupling]), chi, 6)
    np.testing.assert_allclose(heat[0] / coupling**2, expected, rtol=rtol)


def test_thermodynamics_are_nested_derivatives_of_one_function():
    def f(coupling):
        return trg.log_partition_per_site(trg.ising_tensor(coupling), 4, 6)

    def nested(k):
        return f(k), jax.jacfwd(f)(k), jax.jacfwd(jax.jacfwd(f))(k)

    value, first, second = jax.jit(nested)(0.44)
    got = np.concatenate(trg.thermodynamics(jnp.array([0.44]), 4, 6))
    np.testing.assert_allclose(got, [value, -first, 0.44**2 * second], rtol=1e-10)


def test_second_derivatives_agree_in_every_nesting_through_the_compiled_loop():
    """Reverse mode takes a loop apart, and a rule that is no primitive is lost there."""

    def f(coupling):
        return trg.log_partition_per_site(trg.ising_tensor(coupling), 2, 3)

    slope, one = jax.grad(f), jnp.ones(())

    def nestings(k):
        forward = jax.jvp(lambda k: jax.jvp(f, (k,), (one,))[1], (k,), (one,))[1]
        over_reverse = jax.jvp(slope, (k,), (one,))[1]
        return forward, over_reverse, jax.grad(slope)(k), f(k), slope(k)

    forward, *others, value, first = jax.jit(nestings)(jnp.asarray(0.44))
    np.testing.assert_allclose(others, [forward, forward], rtol=1e-10)
    heat = trg.thermodynamics(jnp.array([0.44]), 2, 3)
    np.testing.assert_allclose(np.ravel(heat), [value, -first, 0.44**2 * forward], rtol=1e-10)


@partial(jax.jit, static_argnames=("chi", "steps"))
def log_z(tensor, chi, steps):
    return trg.log_partition_per_site(tensor, chi, steps)


def test_forward_and_reverse_gradient_agree_with_each_other_and_with_differences():
    def f(coupling):
        return log_z(trg.ising_tensor(coupling), 4, 6)

    forward = jax.jit(jax.jacfwd(f))(0.44)
    reverse = jax.jit(jax.grad(f))(0.44)
    np.testing.assert_allclose(forward, reverse, rtol=1e-12)
    np.testing.assert_allclose(forward, difference(lambda t: f(0.44 + t), 1e-3), rtol=1e-9)
    _, energy, _ = trg.thermodynamics(jnp.array([0.44]), 4, 6)
    np.testing.assert_allclose(-energy[0], forward, rtol=1e-12)


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.complex128])
def test_gradient_with_respect_to_tensor_entries_agrees_with_differences(dtype):
    tensor = random_tensor(dtype)
    directions = random_array(2, (3, *tensor.shape), tensor.dtype).copy()
    directions[0] = tensor  # a scale: the derivative of the logarithm is 1
    gradient = jax.jit(jax.grad(lambda x: jnp.real(log_z(x, 3, 4))))(jnp.asarray(tensor))
    for d in directions:
        slope = difference(lambda t, d=d: float(np.real(log_z(tensor + t * d, 3, 4))), 1e-3)
        np.testing.assert_allclose(np.real(np.sum(gradient * d)), slope, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(np.real(np.sum(gradient * tensor)), 1.0, rtol=1e-11)


@pytest.mark.parametrize(("coupling", "log_z", "energy", "heat"), TABLE)
def test_exact_solution_agrees_with_the_table(coupling, log_z, energy, heat):
    got = trg.onsager(coupling)
    np.testing.assert_allclose(got[0], log_z, rtol=1e-11)
    np.testing.assert_allclose(got[1], energy, rtol=1e-11)
    np.testing.assert_allclose(got[2], heat, rtol=1e-9)


def test_exact_solution_at_the_critical_coupling_has_its_closed_form():
    catalan = 0.915965594177219
    log_z, _, _ = trg.onsager(np.log(1 + np.sqrt(2)) / 2 - 1e-12)
    np.testing.assert_allclose(log_z, np.log(2) / 2 + 2 * catalan / np.pi, rtol=1e-7)


def test_exact_energy_and_heat_are_the_derivatives_of_the_exact_logarithm():
    for coupling in (0.3, 0.6):
        _, energy, heat = trg.onsager(coupling)
        slope = difference(lambda t, k=coupling: trg.onsager(k + t)[0])
        curve = difference(lambda t, k=coupling: -trg.onsager(k + t)[1])
        np.testing.assert_allclose(-energy, slope, rtol=1e-9)
        np.testing.assert_allclose(heat, coupling**2 * curve, rtol=1e-9)


def test_couplings_are_a_range_with_both_ends_or_one_number():
    np.testing.assert_allclose(trg.parse_couplings("0.4:0.5:3"), [0.4, 0.45, 0.5])
    np.testing.assert_array_equal(trg.parse_couplings("0.44"), [0.44])


@pytest.mark.parametrize("text", ["", "x", "0.4:0.5", "0.4:0.5:x", "1:2:3:4", "0.4:0.5:-1"])
def test_couplings_that_cannot_be_read_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected start:stop:count"):
        trg.parse_couplings(text)


@pytest.mark.parametrize("text", ["0", "-0.4", "nan", "0.4:0.5:0", "-0.1:0.1:3"])
def test_couplings_that_are_not_positive_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="must be positive"):
        trg.parse_couplings(text)


@pytest.mark.parametrize("shape", [(2, 2, 2), (2, 3, 3, 2), (2, 2, 2, 3)])
def test_tensors_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match="needs the shape"):
        trg.log_partition_per_site(jnp.ones(shape), 4, 2)


@pytest.mark.parametrize(("chi", "steps"), [(0, 2), (4, 0)])
def test_sizes_below_one_are_refused(chi, steps):
    with pytest.raises(ValueError, match="at least 1"):
        trg.log_partition_per_site(jnp.ones((2, 2, 2, 2)), chi, steps)


def run(*arguments):
    root = str(SCRIPT.parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )


def test_smoke_run_prints_a_table_and_writes_it(tmp_path):
    path = tmp_path / "table.csv"
    result = run("--smoke", "--output", str(path))
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "chi = 4, 2^6 sites" in lines[0]
    assert len(lines) == 4
    printed = np.array([[float(x) for x in line.split()] for line in lines[2:]])
    np.testing.assert_array_equal(printed[:, 0], [0.40, 0.44])
    assert path.read_text().splitlines()[0] == "K,lnZ,E,C,lnZ_exact,E_exact,C_exact"
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    assert table.shape == (2, 7)
    np.testing.assert_allclose(printed[:, 1], table[:, 1], atol=1e-10)
    np.testing.assert_allclose(table[1, 3] / 0.44**2, 6.034553996, rtol=1e-8)
    np.testing.assert_allclose(table[:, 4:], [row[1:] for row in TABLE if row[0] in table[:, 0]])


def test_command_line_refuses_bad_sizes_and_couplings():
    result = run("--couplings", "0:1:3")
    assert result.returncode == 2
    assert "couplings must be positive" in result.stderr


def test_output_that_cannot_be_written_is_refused_before_the_sweep(tmp_path):
    folder, table, link = (tmp_path / name for name in ("d.csv", "X.CSV", "link.csv"))
    folder.mkdir()
    for path in (str(folder), "/proc/x.csv", str(tmp_path / ("x" * 300 + ".csv"))):
        with pytest.raises(argparse.ArgumentTypeError, match="cannot write"):
            trg.parse_output(path)
    result = run("--output", str(folder))
    assert (result.returncode, result.stdout) == (2, "")
    assert "cannot write" in result.stderr
    link.symlink_to(table)
    for path in (table, link):  # neither made nor removed by the check
        assert trg.parse_output(str(path)) == str(path)
    assert sorted(tmp_path.iterdir()) == [folder, link]
    table.write_text("kept")
    table.chmod(0o444)
    if not os.access(table, os.W_OK):  # the superuser may write anywhere
        with pytest.raises(argparse.ArgumentTypeError, match="cannot write"):
            trg.parse_output(str(table))
    table.chmod(0o644)
    trg.parse_output(str(table))
    assert table.read_text() == "kept"


def test_table_is_written_for_any_case_of_its_ending(tmp_path, monkeypatch):
    path = tmp_path / "X.CSV"
    monkeypatch.setattr(sys, "argv", ["ising_trg.py", "--smoke", "--output", str(path)])
    monkeypatch.setattr(trg, "sweep", lambda couplings, *_: np.zeros((len(couplings), 3)))
    trg.main()
    assert np.loadtxt(path, delimiter=",", skiprows=1).shape == (2, 7)
