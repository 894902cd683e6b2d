"""Automatic differentiation is at rounding where no difference quotient is."""

import mpmath
import numpy as np
import pytest
from smoke import committed_results, smoke_results

from paper_figures import finite_differences as script


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return smoke_results(script.FIGURE, tmp_path_factory.mktemp("figure"))


def check(results):
    rows = results["logistic map"]
    assert max(rows["AD, forward"], rows["AD, reverse"]) < 1e-14
    assert min(rows["forward difference"]) > 1e-9
    assert min(rows["central difference"]) > 1e-11
    assert rows["complex step"][0] < 1e-14  # a tiny step is as good as AD
    rows = results["free energy"]
    assert rows["nested AD"] < 1e-10
    # At a single step the rounding of a quotient can be small by chance; never like that of AD.
    for quotient in ("central difference", "central difference of AD"):
        assert min(rows[quotient]) > 10 * rows["nested AD"]


def test_smoke_run_shows_it(results):
    check(results)


def test_committed_results_show_it():
    results = committed_results(script.FIGURE)
    check(results)
    np.testing.assert_allclose(results["free energy"]["exact"], 6.034553996, rtol=1e-9)


def test_free_energy_at_fifty_digits_is_that_of_the_example():
    with mpmath.workdps(30):
        precise = float(script.precise_free_energy(mpmath.mpf(0.44), 4, 3))
    got = script.trg.log_partition_per_site(script.trg.ising_tensor(0.44), 4, 3)
    np.testing.assert_allclose(got, precise, rtol=1e-14)


def test_the_check_allows_rounding_of_a_quotient_and_no_more():
    """At `h = 1e-8` a change of 1e-7 is rounding of the slopes, at `1e-1` it is none."""
    results = {"free energy": {"step": [1e-8, 1e-1]}}
    small, large = (
        script.rounding(f"/free energy/central difference of AD/{i}", results) for i in (0, 1)
    )
    assert 1e-7 < small < 1e-6
    assert large < 1e-13
    assert script.rounding("/free energy/nested AD", results) == 0.0
    assert script.rounding("/logistic map/central difference/0", results) == 0.0
