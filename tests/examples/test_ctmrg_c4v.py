"""The symmetric corner transfer matrix: exact models, gradients, gauge, failures, the programs."""

import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import ctmrg_c4v as ctmrg
import heisenberg_ctmrg as program
import ipeps_c4v as ipeps
import ipeps_run as log
import ising_ctmrg as ising

from difflinalg.implicit import NotConvergedError

DTYPES = (jnp.float64, jnp.complex128)
HEISENBERG = ipeps.model("j1j2", j2=0.3)
# Random tensors have no multiplets; a finite difference must not meet a change of their number.
OPTIONS = ctmrg.DEFAULTS._replace(multiplet_rtol=1e-8)


def random_tensor(dtype, seed=0):
    rng = np.random.default_rng(seed)
    tensor = rng.uniform(-0.3, 1.0, (2, 2, 2, 2, 2))
    if dtype == jnp.complex128:
        tensor = tensor * np.exp(0.7j * rng.standard_normal(tensor.shape))
    return tensor


def energy(tensor, chi=5, steps=None):
    tensor = ctmrg.symmetrized(tensor)
    a = ipeps.double_layer(tensor)
    a = a / jnp.linalg.norm(a)
    initial = ctmrg.start(ipeps.trace_boundary(2, a.dtype), chi)
    if steps is None:
        env, _ = ctmrg.environment(a, initial, OPTIONS)
    else:
        filled, _ = ctmrg.environment(jax.lax.stop_gradient(a), initial, OPTIONS)
        env = ctmrg.unrolled(a, filled, steps, OPTIONS)
    return ipeps.energy_per_site(tensor, env, HEISENBERG)


value_and_grad = jax.jit(jax.value_and_grad(energy))
unrolled_gradient = jax.jit(jax.grad(partial(energy, steps=60)))


def along(gradient, direction):
    return np.real(np.sum(gradient * direction))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient_agrees_with_differences_and_with_the_unrolled_iteration(dtype):
    tensor = random_tensor(dtype)
    direction = random_tensor(dtype, 1) - 0.4
    direction /= np.linalg.norm(direction)
    _, gradient = value_and_grad(tensor)

    def value(t):
        return float(value_and_grad(tensor + t * direction)[0])

    h = 1e-2
    slope = 45 * (value(h) - value(-h)) - 9 * (value(2 * h) - value(-2 * h))
    slope = (slope + value(3 * h) - value(-3 * h)) / (60 * h)
    np.testing.assert_allclose(along(gradient, direction), slope, rtol=1e-9)
    if dtype == jnp.float64:
        np.testing.assert_allclose(unrolled_gradient(tensor), gradient, rtol=0, atol=1e-11)


@pytest.mark.parametrize("dtype", DTYPES)
def test_energy_does_not_depend_on_the_basis_of_the_bonds(dtype):
    tensor = ctmrg.symmetrized(random_tensor(dtype))
    generator = random_tensor(dtype, 2)[0, 0, 0]
    turn = np.linalg.qr(generator)[0]
    turned = jnp.einsum("suldr,uU,lL,dD,rR->sULDR", tensor, turn, turn, turn, turn)
    want, gradient = value_and_grad(tensor)
    got, turned_gradient = value_and_grad(turned)
    np.testing.assert_allclose(got, want, rtol=1e-12)
    back = jnp.einsum("sULDR,uU,lL,dD,rR->suldr", turned_gradient, turn, turn, turn, turn)
    np.testing.assert_allclose(back, gradient, rtol=0, atol=1e-10)


def test_product_states_have_their_energies_in_closed_form():
    env = ctmrg.start(jnp.ones(1), 1)
    up = jnp.array([1.0, 0.0]).reshape(2, 1, 1, 1, 1)
    neel = ipeps.energy_per_site(up, env, ipeps.model("j1j2", j2=0.3))
    np.testing.assert_allclose(neel, -0.5 + 0.15, rtol=1e-14)
    np.testing.assert_allclose(
        ipeps.energy_per_site(up, env, ipeps.model("xxz", delta=1.7)), -0.85, rtol=1e-14
    )
    tilted = jnp.array([np.cos(0.3), np.sin(0.3)]).reshape(2, 1, 1, 1, 1)
    tfim = ipeps.energy_per_site(tilted, env, ipeps.model("tfim", g=3.1))
    np.testing.assert_allclose(tfim, -2 * np.cos(0.6) ** 2 - 3.1 * np.sin(0.6), rtol=1e-14)
    np.testing.assert_allclose(ipeps.expectation(tilted, env, ipeps.X), np.sin(0.6), rtol=1e-14)


def test_wave_function_of_boltzmann_weights_has_the_exact_energy_of_the_ising_model():
    coupling = 0.35

    @jax.jit
    def found(coupling):
        w = ising.bond_factor(coupling / 2)
        tensor = jnp.einsum("su,sl,sd,sr->suldr", w, w, w, w)
        a = ipeps.double_layer(tensor)
        initial = ctmrg.start(ipeps.trace_boundary(2, a.dtype), 10)
        env, info = ctmrg.environment(a / jnp.linalg.norm(a), initial)
        return ipeps.energy_per_site(tensor, env, ipeps.model("tfim", g=0.0)), info

    got, info = found(coupling)
    assert info.converged
    # The corner spectrum ends at 2.3e-4 at chi = 10: a truncation weight of 5e-8.
    np.testing.assert_allclose(got, ising.exact(coupling)[1], rtol=1e-7)


@pytest.mark.parametrize("coupling", [0.40, 0.50])
def test_ising_thermodynamics_are_exact(coupling):
    *found, info = ising.thermodynamics(jnp.asarray(coupling), 16)
    assert info.converged
    known = ising.exact(coupling)
    for value, want, tolerance in zip(found, known, (1e-12, 1e-10, 1e-8, 1e-8), strict=True):
        np.testing.assert_allclose(value, want, rtol=0, atol=tolerance)


def test_environment_that_has_not_converged_is_reported():
    a, _ = ising.tensors(jnp.asarray(0.44))
    initial = ctmrg.start(ising.bond_factor(jnp.asarray(0.44))[0], 4)
    few = ctmrg.DEFAULTS._replace(max_steps=5)
    with pytest.raises(NotConvergedError, match=r"still changes by .* after 5 steps"):
        ctmrg.environment(a, initial, few)
    env, info = jax.jit(lambda a: ctmrg.environment(a, initial, few))(a)
    assert not info.converged
    assert info.change > few.spectrum_tol
    assert np.all(np.isnan(env.corner))


def test_tensor_without_the_symmetry_is_refused():
    initial = ctmrg.start(jnp.ones(4), 4)
    a = ipeps.double_layer(jnp.asarray(random_tensor(jnp.float64)))
    with pytest.raises(ValueError, match="not symmetric under rotations"):
        ctmrg.environment(a, initial)
    with pytest.raises(ValueError, match="real tensor of shape"):
        ctmrg.environment(a[0], initial)


SMALL = ("--D", "2", "--chi", "8")


def test_heisenberg_run_reaches_the_known_energy_and_resumes_with_the_same_steps(tmp_path, capsys):
    whole, part = tmp_path / "whole.npz", tmp_path / "part.npz"
    image = tmp_path / "convergence.png"
    assert program.main([*SMALL, "--output", str(whole), "--picture", str(image)]) == 0
    assert image.stat().st_size > 0
    out = capsys.readouterr().out
    assert "energy per site   -0.66023109" in out
    data = log.load(whole)
    assert -0.6602311 < np.nanmin(data["energies"]) < -0.660231
    assert program.main([*SMALL, "--output", str(part), "--iterations", "4"]) == 0
    short = len(log.load(part)["energies"])
    assert program.main(["--resume", str(part), "--iterations", "7"]) == 0
    resumed = log.load(part)
    count = len(resumed["energies"])
    assert short < count
    assert list(tmp_path.glob("*.part")) == []
    np.testing.assert_array_equal(resumed["points"][:short], data["points"][:short])
    np.testing.assert_allclose(resumed["energies"], data["energies"][:count], rtol=1e-9)


def test_starts_grow_from_bond_dimension_two_and_resume_in_each_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(program, "SMALL_EVALUATIONS", 3)
    monkeypatch.setattr(program, "START_EVALUATIONS", 2)
    whole, part = tmp_path / "whole.npz", tmp_path / "part.npz"
    command = ["--D", "3", "--chi", "6", "--starts", "2", "--iterations", "2", "--output"]
    assert program.main([*command, str(whole)]) == 0
    data = log.load(whole)
    points = data["points"].reshape(-1, 2, 3, 3, 3, 3)
    small = np.array([np.max(np.abs(point[:, 2])) < 1e-6 for point in points])
    changes = np.flatnonzero(small[1:] != small[:-1]) + 1
    assert len(changes) == 3  # from 2 to 3, back for the second start, and from 2 to 3 again
    outside = data["gradients"].reshape(points.shape)[small][:, :, 2]
    np.testing.assert_allclose(outside, 0.0, atol=1e-9)  # the solver's tolerance
    count = len(points)
    for kept in (2, changes[0] + 1, changes[1] + 1, count - 1):
        run = log.restored(data, part)
        run.points, run.energies = run.points[:kept], run.energies[:kept]
        run.gradients, run.seconds = run.gradients[:kept], run.seconds[:kept]
        log.save(run, part)
        assert program.main(["--resume", str(part), "--iterations", "2"]) == 0
        resumed = log.load(part)
        # The environment that was saved last is another one; both are exact to 1e-9.
        np.testing.assert_allclose(resumed["energies"], data["energies"], rtol=1e-7)


@pytest.mark.parametrize("damage", ["truncated", "other", "missing"])
def test_file_that_cannot_be_read_is_refused_and_left_as_it_is(damage, tmp_path, capsys):
    path = tmp_path / "log.npz"
    if damage == "truncated":
        run = log.Run({**{name: 0 for name in log.SETTINGS}, **SETTINGS}, None)
        run.points, run.gradients = [np.ones(32)], [np.ones(32)]
        run.energies, run.seconds = [0.0], [1.0]
        log.save(run, path)
        assert log.load(path)["points"].shape == (1, 32)
        path.write_bytes(path.read_bytes()[:-200])
    elif damage == "other":
        np.savez(path, points=np.ones((2, 3)))
    before = path.read_bytes() if path.exists() else None
    assert program.main(["--resume", str(path)]) == 2
    assert "is not a readable log" in capsys.readouterr().err
    assert (path.read_bytes() if path.exists() else None) == before


SETTINGS = {"model": "heisenberg", "D": 2, "chi": 4, "float32": False}


def test_existing_output_is_not_overwritten(tmp_path, capsys):
    path = tmp_path / "log.npz"
    path.write_bytes(b"something else")
    with pytest.raises(SystemExit):
        program.main([*SMALL, "--output", str(path)])
    assert "continue it with --resume" in capsys.readouterr().err
    assert path.read_bytes() == b"something else"
