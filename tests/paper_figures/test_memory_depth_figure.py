"""Plain AD grows with the depth, a reversible loop hardly; checkpoints recompute optimally."""

from smoke import committed_results, smoke_results

from paper_figures import memory_depth as script


def check(results, parameters):
    depths = parameters["depths"]
    for problem in parameters["sizes"]:
        for method, most in (("plain AD", 1.0), ("Nested(2)", 0.7), ("reversible", 0.1)):
            few, many = (results[f"{problem}, {method}, {n}"] for n in (depths[0], depths[-1]))
            assert many / few <= 1.5 * most * depths[-1] / depths[0]
        plain = results[f"{problem}, plain AD, {depths[-1]}"]
        for method in script.METHODS:
            assert method == "plain AD" or results[f"{problem}, {method}, {depths[-1]}"] < plain / 3
    for steps in parameters["counted"]:
        assert results[f"evaluations, {steps}"] == results["least evaluations"][steps]


def test_smoke_run_shows_it(tmp_path):
    check(smoke_results(script.FIGURE, tmp_path), script.FIGURE.smoke)


def test_committed_results_show_it():
    check(committed_results(script.FIGURE), script.FIGURE.full)


def test_least_numbers_are_those_of_the_closed_form():
    """Griewank and Walther (2000): 25 for 10 steps in 3 slots, 264 for 64 in 4."""
    assert script.least_evaluations(10, 3)[10] == 25
    assert script.least_evaluations(64, 4)[64] == 264
