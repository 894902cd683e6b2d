"""Each term of the rule is needed; broadening is worse than moving values apart at every gap."""

import numpy as np
from smoke import committed_results, smoke_results

from paper_figures import svd_rules as script


def check(results, parameters):
    for ratio in parameters["ratios"]:
        errors = results[f"ratio {ratio:g}"]
        assert max(errors["svd_trunc"], errors["both terms"]) < 1e-12
        assert errors["no gauge term"] > 1e-3
        assert errors["no truncation term"] > ratio
    gaps = np.array(parameters["gaps"])
    moved, broadened = (np.array(results[name], float) for name in ("moved apart", "broadened"))
    assert np.all(moved <= np.array([2e-4, 1e-3]))  # a gap just above the tolerance is worst
    assert np.all(moved[gaps < 1e-12] <= np.array([1e-7, 1e-4]))
    close = (gaps > 1e-12) & (gaps < 1e-2)
    assert np.all(broadened[close] > moved[close])


def test_smoke_run_shows_it(tmp_path):
    check(smoke_results(script.FIGURE, tmp_path), script.FIGURE.smoke)


def test_committed_results_show_it():
    check(committed_results(script.FIGURE), script.FIGURE.full)
