"""The two-dimensional Ising model by a tensor renormalisation that is differentiated twice.

Free energy, energy and specific heat of the square lattice against the coupling K = beta J, from
one function and its Taylor coefficients for several bond dimensions, with Onsager's exact curves
and, below, the differences from them (Liao, Liu, Wang and Xiang 2019, Phys. Rev. X 9, 031041,
arXiv:1903.09650, figure 3). The specific heat needs the second derivative through the truncated
singular value decompositions of all steps.

    python -m paper_figures.ising
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from paper_figures.common import Figure, Store, caption, example, shared_legend

trg = example("ising_trg")
CRITICAL = float(np.log(1.0 + np.sqrt(2.0)) / 2.0)


def couplings(first: float, last: float, count: int) -> np.ndarray:
    """Evenly spaced; none of them is the critical one, where the exact specific heat diverges."""
    return np.linspace(first, last, count)


def rows(grid: np.ndarray, chi: int, steps: int) -> list[Any]:
    """`lnZ/N`, `E/N` and `C/N` for each coupling, shape `(couplings, 3)`."""
    return [
        [float(value[0]) for value in trg.thermodynamics(jnp.array([k]), chi, steps)] for k in grid
    ]


def compute(store: Store, parameters: dict[str, Any]) -> None:
    """One result for a bond dimension and a few couplings, so that a long run can be continued."""
    grid = couplings(*parameters["couplings"])
    for chi in parameters["chi"]:
        for part, piece in enumerate(np.array_split(grid, parameters["parts"])):
            store.get(
                f"chi = {chi}, part {part}",
                lambda chi=chi, piece=piece: rows(piece, chi, parameters["steps"]),
            )


def gathered(data: dict[str, Any], chi: int) -> np.ndarray:
    """All couplings of one bond dimension."""
    parts = range(data["parameters"]["parts"])
    return np.array([row for i in parts for row in data["results"][f"chi = {chi}, part {i}"]])


def plot(data: dict[str, Any]) -> Any:
    """Three quantities, their differences from the exact ones below."""
    import matplotlib.pyplot as plt

    parameters = data["parameters"]
    grid = couplings(*parameters["couplings"])
    exact = np.array([trg.onsager(k) for k in grid])
    fine = np.linspace(grid[0], grid[-1], 400)
    curves = np.array([trg.onsager(k) for k in fine])
    figure, axes = plt.subplots(
        2, 3, figsize=(9.6, 5.6), sharex=True, layout="constrained", height_ratios=(1.4, 1.0)
    )
    labels = ("ln Z / N (dimensionless)", "energy E / N [J]", "specific heat C / N [$k_B$]")
    for column in range(3):
        above, below = axes[:, column]
        above.plot(fine, curves[:, column], "k-", lw=1, label="exact (Onsager)")
        for chi, style in zip(parameters["chi"], ("C1^", "C0s", "C2o"), strict=False):
            found = gathered(data, chi)
            above.plot(grid, found[:, column], style, ms=3.5, label=f"TRG, χ = {chi}")
            error = np.abs(found[:, column] - exact[:, column])
            below.semilogy(grid, error, style + "-", ms=3, lw=0.8)
        above.set_ylabel(labels[column])
        below.set_ylabel("absolute error, same unit")
        below.set_xlabel("coupling K = J / ($k_B$T)")
        for axis in (above, below):
            axis.axvline(CRITICAL, color="0.6", lw=0.8, ls=":")
    shared_legend(figure, 4)
    caption(
        figure,
        "After Liao et al. (2019), arXiv:1903.09650, figure 3; method of Levin and Nave (2007), "
        f"$2^{{{parameters['steps']}}}$ sites. E and C are first and second derivative of ln Z\n"
        "from one pass of Taylor mode; exact: Onsager (1944). Dotted: critical coupling.",
    )
    return figure


def rounding(at: str, _: dict[str, Any]) -> float:
    """What a specific heat may differ by: rounding over the square of the gap at the cut.

    At some couplings the last kept and the first dropped weight agree to 1e-6.
    """
    return 2.0**-52 / 1e-6**2 if at.endswith("/2") else 0.0


FIGURE = Figure(
    "ising",
    compute,
    plot,
    count=lambda parameters: len(parameters["chi"]) * parameters["parts"],
    full={"couplings": [0.30, 0.60, 25], "chi": [4, 8, 16], "steps": 20, "parts": 5, "seed": None},
    smoke={"couplings": [0.35, 0.55, 3], "chi": [4], "steps": 6, "parts": 1, "seed": None},
    noise=rounding,
)

if __name__ == "__main__":
    raise SystemExit(FIGURE.main())
