"""difflinalg beside `jax.numpy.linalg` and `jax.scipy.linalg`, for the README.

The entries of the tests' table of cases, which are written for difflinalg, are computed once more
with JAX's functions of the same names in their place: the same invariants of the same matrices,
against the same differences in NumPy.

    python -m paper_figures.jax_comparison            # computes, draws, writes the table
    python -m paper_figures.jax_comparison --plot     # draws and writes from the results
"""

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from paper_figures.case_table import write
from paper_figures.common import (
    FOLDER,
    Figure,
    Store,
    caption,
    shared_legend,
    source_of_test,
)

LIBRARIES = ("difflinalg", "JAX")
DTYPES = ("float64", "complex128")
ORDERS = {"first": ("jvp", "vjp", "transpose"), "second": ("jvp of vjp",)}


def cases_of(library: str) -> ModuleType:
    """The tests' table of cases, with the functions of this library."""
    module: Any = source_of_test("test_cross_product")
    if library == "JAX":
        module.linalg, module.scipy_linalg = jnp.linalg, jax.scipy.linalg
    return module


REFUSALS = (AttributeError, NotImplementedError, TypeError, ValueError)


def refusal(library: str, error: Exception) -> str:
    """Why there is no number: the name is not in JAX, or what is raised."""
    if library != "JAX":
        raise error
    missing = isinstance(error, AttributeError)
    return "no such name" if missing else f"raises {type(error).__name__}"


def errors(library: str, name: str, dtype: str) -> dict[str, Any] | str:
    """For each spectrum of a square matrix the errors of first and second derivatives.

    Each is `[error, whether the tests allow it]`, relative to the size that the tests use; the
    error is NaN where a derivative is not finite.
    """
    cases = cases_of(library)
    operation = cases.OPERATIONS[name]
    try:
        kinds, stack = cases.spectra(operation, (3, 3), jnp.dtype(dtype))
        d, e = cases.random_like(1, stack[0]), cases.random_like(2, stack[0])
        outputs = jax.eval_shape(operation.outputs, stack[0])
        cotangents = tuple(cases.random_like(10 + i, x) for i, x in enumerate(outputs))
        invariants = jax.eval_shape(operation.invariants, stack[0], *outputs)
        weights = tuple(cases.random_like(20 + i, x) for i, x in enumerate(invariants))
        numbers = cases.program(operation, weights, cotangents)
        together = cases.compiled(jax.vmap(numbers, (0, None, None)))(stack, d, e)
    except REFUSALS as error:
        return refusal(library, error)
    together, found = jax.tree.map(np.asarray, together), {}
    for i, (kind, a) in enumerate(zip(kinds, stack, strict=True)):
        if kind in operation.undefined:
            continue
        got = jax.tree.map(lambda x, i=i: x[i], together)
        rows = {
            what: (error, allowed)
            for what, error, allowed in cases.comparisons(operation, kind, got, weights, a, d, e)
        }
        rtol = dict(zip(ORDERS, cases.tolerances(got["vjp"].dtype, kind)[1:], strict=True))
        found[kind] = {
            order: [
                max(float(rows[w][0] / rows[w][1]) for w in names) * rtol[order],
                bool(all(rows[w][0] <= rows[w][1] for w in names)),
            ]
            for order, names in ORDERS.items()
        }
    return found


def compute(store: Store, parameters: dict[str, Any]) -> None:
    """One result for each operation, library and data type."""
    for name in parameters["operations"]:
        for dtype in DTYPES:
            for library in LIBRARIES:
                label = f"{name}, {dtype}, {library}"
                store.get(label, lambda x=(library, name, dtype): errors(*x))


def worst(results: dict[str, Any], name: str, library: str, kind: str) -> str:
    """A cell: the largest errors of both data types, or what is wrong."""
    cells = [results[f"{name}, {dtype}, {library}"] for dtype in DTYPES]
    refused = [cell for cell in cells if isinstance(cell, str)]
    if refused:
        return refused[0]
    if kind not in cells[0]:
        return "none exists"
    parts = []
    for order in ORDERS:
        values = [cell[kind][order] for cell in cells]
        if any(error is None for error, _ in values):
            parts.append("**NaN**")
        else:
            text = f"{max(error for error, _ in values):.0e}"
            parts.append(text if all(right for _, right in values) else f"**{text}**")
    return ", ".join(parts)


def table(data: dict[str, Any]) -> str:
    """The lines of the table in the README; the sentence above them says what the cells are."""
    results, parameters = data["results"], data["parameters"]
    kinds = parameters["kinds"]
    heads = [kind.replace("_", " ") for kind in kinds]
    lines = [
        f"Cells: the errors of the first and the second derivative, the larger of {DTYPES[0]} and "
        f"{DTYPES[1]}, against differences",
        f"of values by NumPy; bold where the tests do not allow it. JAX {data['versions']['jax']}.",
        "",
        "| operation | library | " + " | ".join(heads) + " |",
        "|---" * (len(kinds) + 2) + "|",
    ]
    for name in parameters["operations"]:
        for library in LIBRARIES:
            cells = [worst(results, name, library, kind) for kind in kinds]
            first = f"`{name}`" if library == LIBRARIES[0] else ""
            if len(set(cells)) == 1 and cells[0] == "no such name":
                continue
            lines.append(f"| {first} | {library} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def plot(data: dict[str, Any]) -> Any:
    """Errors of the first and second derivative of each operation, one panel for each library."""
    import matplotlib.pyplot as plt

    results, parameters = data["results"], data["parameters"]
    names, none, largest = parameters["operations"], 1e3, 10.0
    figure, axes = plt.subplots(2, 2, figsize=(9.9, 7.0), layout="constrained", sharey=True)
    styles = dict(zip(parameters["kinds"], ("C2o", "C0s", "C3D", "C1^", "C4v"), strict=False))
    for column, order in zip(axes.T, ORDERS, strict=True):
        for axis, library in zip(column, LIBRARIES, strict=True):
            for number, (kind, style) in enumerate(styles.items()):
                for i, name in enumerate(names):
                    cells = [results[f"{name}, {dtype}, {library}"] for dtype in DTYPES]
                    if any(isinstance(cell, str) or kind not in cell for cell in cells):
                        continue
                    values = [cell[kind][order][0] for cell in cells]
                    y = none if None in values else min(largest, max(1e-16, *values))
                    at = i + 0.15 * (number - 2)
                    axis.semilogy(at, y, style, ms=4, label=kind.replace("_", " "))
            axis.axhline(60, color="0.4", lw=0.8)
            axis.text(len(names) - 0.6, 90, "not finite", fontsize=7.5, ha="right", va="bottom")
            axis.set_xlim(-0.7, len(names) - 0.3)
            axis.set_title(f"{library}, {order} derivative", fontsize=10)
            axis.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=7.5)
            axis.set_ylim(1e-17, 1e4)
    for axis in axes[:, 0]:
        axis.set_ylabel("relative error (dimensionless)")
    shared_legend(figure, 5)
    caption(
        figure,
        "Own measurement: the entries of tests/test_cross_product.py for 3 x 3 matrices, computed "
        "with difflinalg and with jax.numpy.linalg and jax.scipy.linalg;\nthe larger error of "
        "float64 and complex128, against differences of fourth order of values by NumPy. At 10: 10 "
        "or more. No mark: no such function, or no derivative exists.",
    )
    return figure


FIGURE = Figure(
    "jax_comparison",
    compute,
    plot,
    count=lambda parameters: len(parameters["operations"]) * len(LIBRARIES) * len(DTYPES),
    full={
        "operations": [
            *("svd", "svdvals", "eigh", "eigvalsh", "det", "slogdet", "inv", "cholesky", "qr"),
            *("pinv", "norm", "expm", "sqrtm", "polar", "svd_trunc", "eigh_trunc"),
            "funm_hermitian",
        ],
        "kinds": ["generic", "clustered", "degenerate", "rank_deficient", "zero"],
        "seed": 3,
    },
    smoke={
        "operations": ["eigvalsh"],
        "kinds": ["generic", "degenerate", "zero"],
        "seed": 3,
    },
    # Errors at rounding, and those of differences, are alike to a few of their own size.
    rtol=0.5,
    atol=1e-6,
)


def main(arguments: list[str] | None = None) -> int:
    """As for a figure; the table goes into the README when the committed results are drawn."""
    code = FIGURE.main(arguments)
    import json

    if code == 0 and not {"--smoke", "--check", "--folder"} & set(arguments or []):
        data = json.loads((FOLDER / "results" / f"{FIGURE.name}.json").read_text())
        write("jax_comparison", table(data))
    return code


if __name__ == "__main__":
    import sys

    raise SystemExit(main(sys.argv[1:]))
