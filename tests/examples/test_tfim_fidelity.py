"""The example runs, and its numbers are those of free fermions."""

import importlib.util
from pathlib import Path

import numpy as np

PATH = Path(__file__).parents[2] / "examples" / "tfim_fidelity.py"
spec = importlib.util.spec_from_file_location("tfim_fidelity", PATH)
tfim_fidelity = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tfim_fidelity)


def test_smoke_run_prints_the_table_and_draws(tmp_path, capsys):
    picture = tmp_path / "tfim.png"
    assert tfim_fidelity.main(["--smoke", "--output", str(picture)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert picture.stat().st_size > 10_000


def test_exact_results_are_those_of_the_literature():
    """At g = 1 the fidelity susceptibility is N (N - 1) / 32."""
    energy, slope, curvature, chi = tfim_fidelity.exact(1.0, 10)
    np.testing.assert_allclose(energy, -12.784906442999324, rtol=1e-15)
    np.testing.assert_allclose(slope, -6.392453221499663, rtol=1e-14)
    np.testing.assert_allclose(curvature, -8.947920801130552, rtol=1e-14)
    np.testing.assert_allclose(chi, 90 / 32, rtol=1e-14)
