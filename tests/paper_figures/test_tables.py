"""The tables in the README are those that the scripts make."""

import json

import pytest
from smoke import committed_results, smoke_results

from paper_figures import case_table, jax_comparison
from paper_figures.common import FOLDER


def test_table_of_cases_is_that_of_the_script():
    assert case_table.main(["--check"]) == 0


def test_another_table_in_the_readme_is_found(tmp_path, monkeypatch, capsys):
    text = case_table.README.read_text().replace("| `det` | yes |", "| `det` | no |")
    (tmp_path / "README.md").write_text(text)
    monkeypatch.setattr(case_table, "README", tmp_path / "README.md")
    assert case_table.main(["--check"]) == 1
    assert "another table" in capsys.readouterr().err
    with pytest.raises(ValueError, match="exactly one pair"):
        case_table.replace_block("no marks", "case_table", "")


def test_an_entry_without_a_derivative_or_a_type_is_seen():
    """The table follows the cases; it is not typed."""
    cases = case_table.source_of_test("test_cross_product")
    cases.OPERATIONS = {"inv": cases.OPERATIONS["inv"], "svd_trunc": cases.OPERATIONS["svd_trunc"]}
    cases.CASES = [
        case
        for case in cases.CASES
        if case.values[0] in cases.OPERATIONS and case.values[2].__name__ != "complex64"
    ]
    rows = case_table.table(cases).splitlines()
    assert rows[2:] == [
        "| `inv` | yes | yes | 2 | no | yes | yes |",
        "| `svd_trunc` | yes | yes | 2 | no | except zero | yes |",
    ]


def test_comparison_with_jax_is_that_of_the_committed_results():
    results = committed_results(jax_comparison.FIGURE)
    data = json.loads((FOLDER / "results" / "jax_comparison.json").read_text())
    text = case_table.README.read_text()
    block = jax_comparison.table(data)
    assert case_table.replace_block(text, "jax_comparison", block) == text
    for name in jax_comparison.FIGURE.full["operations"]:
        for dtype in jax_comparison.DTYPES:
            for orders in results[f"{name}, {dtype}, difflinalg"].values():
                assert all(right for _, right in orders.values()), (name, dtype, orders)


def test_smoke_run_of_the_comparison(tmp_path):
    results = smoke_results(jax_comparison.FIGURE, tmp_path)
    for dtype in jax_comparison.DTYPES:
        ours, theirs = (
            results[f"eigvalsh, {dtype}, {library}"] for library in ("difflinalg", "JAX")
        )
        assert all(ours[kind][order][1] for kind in ours for order in jax_comparison.ORDERS)
        assert not theirs["degenerate"]["second"][1]
        assert theirs["zero"]["second"][0] is None  # not finite
