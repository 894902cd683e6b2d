"""ODE options, hypergradients and orders of derivatives: short runs and committed results."""

import numpy as np
from smoke import committed_results, smoke_results

from paper_figures import derivative_order, hypergradient, ode_adjoints


def check_ode(results, parameters):
    options = ode_adjoints.chosen(parameters)
    for option in options:
        for rtol in parameters["rtol"]:
            # The interpolant has a lower order than the steps.
            bound = 20 * rtol**0.7 if option == "Interpolating" else 100 * rtol
            assert results[f"{option}, {rtol:g}"]["error"] < bound
    few, many = parameters["steps"][0], parameters["steps"][-1]
    growth = {
        option: results[f"bytes, {option}, {many}"] / results[f"bytes, {option}, {few}"]
        for option in ("plain AD", *options)
    }
    assert growth["plain AD"] > 0.5 * many / few
    assert growth.get("Backsolve", 1.0) == 1.0
    assert growth["Checkpointed"] < 10
    assert results[f"bytes, Checkpointed, {many}"] < results[f"bytes, plain AD, {many}"] / 4


def test_smoke_run_of_the_ode_options(tmp_path):
    check_ode(smoke_results(ode_adjoints.FIGURE, tmp_path), ode_adjoints.FIGURE.smoke)


def test_committed_ode_options():
    check_ode(committed_results(ode_adjoints.FIGURE), ode_adjoints.FIGURE.full)


def check_hypergradient(results):
    for how in hypergradient.FITS:
        if how not in results:
            continue
        names = [name for name in results[how] if name.startswith("error")]
        assert len(names) == (6 if how == "descent" else 3)
        assert all(results[how][name] < 1e-10 for name in names), (how, results[how])
    for row in (row for name, row in results.items() if name.startswith("quotients")):
        best = min(min(row[key]) for key in row if "central" in key)
        assert row["AD"] < 1e-10 < max(best, 1e-9)
        assert row["AD"] < best


def test_smoke_run_of_the_hypergradient(tmp_path):
    check_hypergradient(smoke_results(hypergradient.FIGURE, tmp_path))


def test_committed_hypergradient():
    results = committed_results(hypergradient.FIGURE)
    assert {*hypergradient.FITS} < results.keys()
    check_hypergradient(results)
    distance, exact = (results["unrolled"][k] for k in ("distance", "exact distance"))
    np.testing.assert_allclose(distance, exact, rtol=1e-9, atol=1e-12)


def check_orders(results, parameters):
    exact = {"Taylor, eigh", "Taylor, funm_hermitian", "nested, funm_hermitian"}
    for method in exact & {*derivative_order.chosen(parameters)}:
        for order in derivative_order.orders(method, parameters):
            row = results[f"{method}, {order}"]
            # Each order costs a digit: f is entire, the eigenvectors are not.
            bound = 1e-13 * 10.0**order
            assert max(row["distinct"], row["repeated"]) < bound, (method, order, row)
    theirs = results["nested, jnp.linalg.eigh, 1"]["repeated"]
    assert theirs is None or theirs > 1e-3


def test_smoke_run_of_the_orders(tmp_path):
    results = smoke_results(derivative_order.FIGURE, tmp_path)
    check_orders(results, derivative_order.FIGURE.smoke)


def test_committed_orders():
    figure = derivative_order.FIGURE
    results = committed_results(figure)
    check_orders(results, figure.full)
    highest = figure.full["nested"]
    nested, taylor = (
        results[f"{mode}, funm_hermitian, {highest}"] for mode in ("nested", "Taylor")
    )
    assert nested["compile seconds"] > 2 * taylor["compile seconds"]
    assert nested["run seconds"] > 100 * taylor["run seconds"]
    assert results["nested, eigh, 1"]["repeated"] < 1e-6
