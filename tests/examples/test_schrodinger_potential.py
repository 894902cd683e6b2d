"""The example runs, lowers its loss, and its exact potential has the target as ground state."""

import importlib.util
from pathlib import Path

import jax.numpy as jnp
import numpy as np

PATH = Path(__file__).parents[2] / "examples" / "schrodinger_potential.py"
spec = importlib.util.spec_from_file_location("schrodinger_potential", PATH)
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)


def test_smoke_run_lowers_the_loss_and_draws(tmp_path, capsys):
    picture = tmp_path / "potential.png"
    assert example.main(["--smoke", "--output", str(picture)]) == 0
    assert "loss" in capsys.readouterr().out
    assert picture.stat().st_size > 10_000


def test_exact_potential_has_the_target_as_its_ground_state():
    x = jnp.linspace(-4.0, 4.0, 60)
    h = float(x[1] - x[0])
    target = example.target_state(x)
    potential = 0.5 * example.second_difference(target, h) / target
    energy, psi = example.ground_state(potential, h)
    np.testing.assert_allclose(energy, 0.0, atol=1e-9)
    np.testing.assert_allclose(jnp.abs(psi), target, atol=1e-9)
