"""The example runs, and its derivatives are Onsager's where the truncation is exact enough."""

import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import ising_cumulants as program


def test_smoke_run_prints_the_table_and_draws(tmp_path, capsys):
    picture = tmp_path / "cumulants.png"
    assert program.main(["--smoke", "--output", str(picture)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 2 * 5
    assert picture.stat().st_size > 10_000


def test_many_steps_do_not_cost_the_high_derivatives_their_digits():
    """Twelve steps, 4096 sites, at high temperature, where four bond states are nearly enough."""
    found = np.asarray(program.cumulants(jnp.array([0.05]), 4, 12, 4))[0]
    np.testing.assert_allclose(found[:3], program.onsager(0.05, 4)[:3], rtol=1e-6)
    np.testing.assert_allclose(found[3:], program.onsager(0.05, 4)[3:], rtol=1e-3)


def test_exact_derivatives_are_those_of_the_high_temperature_series():
    """`lnZ / N = ln(2 cosh^2 K) + t^4 + 2 t^6 + 9 t^8 / 2 + ..`, `t = tanh K`, square lattice."""
    value, first, second, *_ = program.onsager(0.02, 4)
    t = np.tanh(0.02)
    expected = np.log(2.0 * np.cosh(0.02) ** 2) + t**4 + 2 * t**6 + 4.5 * t**8
    np.testing.assert_allclose(value, expected, rtol=1e-14)
    slope = (1 - t * t) * (4 * t**3 + 12 * t**5 + 36 * t**7)
    np.testing.assert_allclose(first, 2 * t + slope, rtol=1e-11)
    np.testing.assert_allclose(second, 2.0 + 10 * t * t, rtol=1e-5)
