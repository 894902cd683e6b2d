"""The differentiated models are near their exact curves, and nearer for larger bond dimension."""

import numpy as np
from smoke import committed_results, smoke_results

from paper_figures import ising, ising_chain


def errors(data, chi):
    grid = ising.couplings(*data["parameters"]["couplings"])
    exact = np.array([ising.trg.onsager(k) for k in grid])
    return grid, np.abs(ising.gathered(data, chi) - exact)


def test_smoke_run_of_the_square_lattice_is_near_onsager(tmp_path):
    results = smoke_results(ising.FIGURE, tmp_path)
    # 64 sites are not the infinite lattice: 0.02 at K = 0.45.
    _, error = errors({"parameters": ising.FIGURE.smoke, "results": results}, 4)
    assert np.all(error[:, 0] < 0.05)
    assert np.all(error > 0.0)


def test_committed_square_lattice_is_near_onsager_away_from_the_transition():
    data = {"parameters": ising.FIGURE.full, "results": committed_results(ising.FIGURE)}
    grid, error = errors(data, 16)
    away = np.abs(grid - ising.CRITICAL) > 0.03
    assert np.all(error[away] < np.array([2e-6, 1e-4, 2e-3]))
    _, coarse = errors(data, 4)
    assert np.all(np.mean(coarse[away], axis=0) > 10 * np.mean(error[away], axis=0))


def check_chain(results, parameters):
    for sites in parameters["sites"]:
        for g in np.linspace(*parameters["fields"]):
            got = results[f"N = {sites}, g = {g:.3f}"]
            np.testing.assert_allclose(got, ising_chain.chain.exact(g, sites), rtol=1e-9)


def test_smoke_run_of_the_chain_agrees_with_free_fermions(tmp_path):
    check_chain(smoke_results(ising_chain.FIGURE, tmp_path), ising_chain.FIGURE.smoke)


def test_committed_chain_agrees_with_free_fermions():
    check_chain(committed_results(ising_chain.FIGURE), ising_chain.FIGURE.full)
