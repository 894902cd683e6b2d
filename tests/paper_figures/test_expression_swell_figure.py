"""The expression grows exponentially, the program linearly; the traces are those of the book."""

import math

import pytest

pytest.importorskip("sympy")

import itertools

from smoke import committed_results, smoke_results

from paper_figures import expression_swell as script


def check(results):
    rows = [value for name, value in results.items() if name != "traces"]
    for name in ("AD, forward", "AD, reverse"):
        counts = [row[name] for row in rows]
        steps = [b - a for a, b in itertools.pairwise(counts)]
        assert steps == [steps[0]] * len(steps)  # linear
        assert steps[0] <= 4 * rows[1]["function alone"]
    symbolic = [row["symbolic"] for row in rows]
    assert all(b > 2 * a for a, b in itertools.pairwise(symbolic))
    horner = [row["symbolic, Horner form"] for row in rows]
    assert horner == [2**n - 2 for n in range(1, len(rows) + 1)]


def test_smoke_run_shows_it(tmp_path):
    check(smoke_results(script.FIGURE, tmp_path))


def test_committed_results_show_it():
    check(committed_results(script.FIGURE))


def test_traces_end_at_value_and_gradient():
    """`y = 11.652`, `dy/dx1 = 5.5`, `dy/dx2 = 1.716` (Baydin et al. 2018, tables 2 and 3)."""
    traces = script.traces()
    name, _, value, tangent = traces["forward"][-1]
    assert name == "v5"
    assert float(value) == pytest.approx(math.log(2) + 10 - math.sin(5), rel=1e-15)
    assert float(tangent) == pytest.approx(5.5, rel=1e-15)
    adjoints = {name: float(value) for name, _, value in traces["reverse"]}
    assert adjoints["x1"] == pytest.approx(5.5, rel=1e-15)
    assert adjoints["x2"] == pytest.approx(2 - math.cos(5), rel=1e-15)
    assert [row[0] for row in traces["reverse"]] == ["v5", "v4", "v3", "v2", "v1", "x1", "x2"]
