"""Second derivative of a ground-state energy and fidelity susceptibility of a spin chain.

H = -sum_i (g X_i + Z_i Z_{i+1}), periodic: both quantities have a peak that grows with the number
of sites and moves towards the phase transition at g = 1. They come from the derivative of the
ground state through a matrix-free eigensolver (Xie, Liu and Wang 2020, Phys. Rev. B 101, 245139,
arXiv:2001.04121, figures 2 and 3), beside the exact ones of free fermions for the same N.

    python -m paper_figures.ising_chain
"""

from typing import Any

import jax
import numpy as np

from paper_figures.common import Figure, Store, caption, example, shared_legend

chain = example("tfim_fidelity")
QUANTITIES = {
    1: ("first derivative", "$(1/N)\\; dE_0/dg$ (dimensionless)"),
    2: ("second derivative", "$(1/N)\\; d^2E_0/dg^2$ (dimensionless)"),
    3: ("fidelity susceptibility", "$χ_F / N$ (dimensionless)"),
}


def compute(store: Store, parameters: dict[str, Any]) -> None:
    """One result for each length and field."""
    run = jax.jit(chain.observables, static_argnums=1)
    for sites in parameters["sites"]:
        for g in np.linspace(*parameters["fields"]):
            store.get(f"N = {sites}, g = {g:.3f}", lambda g=g, n=sites: run(float(g), n))


def plot(data: dict[str, Any]) -> Any:
    """Points on the exact curves, and the relative differences."""
    import matplotlib.pyplot as plt

    parameters = data["parameters"]
    fields = np.linspace(*parameters["fields"])
    fine = np.linspace(fields[0], fields[-1], 300)
    figure, axes = plt.subplots(1, 3, figsize=(9.9, 4.3), layout="constrained")
    for sites, style in zip(parameters["sites"], ("C0s", "C3o", "C2^"), strict=False):
        got = np.array([data["results"][f"N = {sites}, g = {g:.3f}"] for g in fields])
        exact = np.array([chain.exact(g, sites) for g in fields])
        curve = np.array([chain.exact(g, sites) for g in fine])
        for axis, column in zip(axes, (2, 3), strict=False):
            axis.plot(fine, curve[:, column] / sites, "k-", lw=0.9)
            axis.plot(fields, got[:, column] / sites, style, ms=3.5, label=f"eigsh, N = {sites}")
        for column, line in ((2, "-"), (3, "--")):
            error = np.maximum(np.abs(got[:, column] / exact[:, column] - 1.0), 1e-17)
            label = f"error of the {QUANTITIES[column][0]}, N = {sites}"
            axes[2].semilogy(fields, error, style + line, ms=3, lw=0.8, label=label)
    for axis, column in zip(axes, (2, 3), strict=False):
        axis.plot([], [], "k-", lw=0.9, label="exact (free fermions)")
        axis.set_title(QUANTITIES[column][0], fontsize=10)
        axis.set_ylabel(QUANTITIES[column][1])
    axes[2].set_ylabel("relative difference from the exact value")
    axes[2].set_ylim(1e-17, 1e-9)
    for axis in axes:
        axis.axvline(1.0, color="0.6", lw=0.8, ls=":")
        axis.set_xlabel("field g [bond energy]")
    shared_legend(figure, 4)
    caption(
        figure,
        "After Xie, Liu and Wang (2020), arXiv:2001.04121, figures 2 and 3; exact: Pfeuty (1970), "
        "Ann. Phys. 57, 79. Both quantities follow from one JVP\nof the ground state. "
        "Dotted: transition of the infinite chain.",
    )
    return figure


FIGURE = Figure(
    "ising_chain",
    compute,
    plot,
    count=lambda parameters: len(parameters["sites"]) * int(parameters["fields"][2]),
    full={"sites": [10, 16, 18], "fields": [0.5, 1.5, 21], "seed": None},
    smoke={"sites": [8], "fields": [0.8, 1.2, 3], "seed": None},
)

if __name__ == "__main__":
    raise SystemExit(FIGURE.main())
