"""Heisenberg antiferromagnet on the square lattice by iPEPS, optimised by gradient.

One tensor of bond dimension D with the symmetry of the lattice; the gradient is that of the
converged corner transfer matrix (Liao, Liu, Wang and Xiang 2019, Phys. Rev. X 9, 031041,
arXiv:1903.09650, figure 5). For D = 3 the best of four starts, each grown from an optimised tensor
of D = 2 with a small environment, goes on with the full one. The optimised tensors are measured
with larger environments. Beside them the optimised states of Hasik
(https://github.com/jurajHasik/j1j2_ipeps_states) and quantum Monte Carlo (Sandvik and Evertz 2010,
Phys. Rev. B 82, 024407).

    python -m paper_figures.heisenberg
"""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from paper_figures.common import Figure, Store, caption, example, shared_legend

ipeps = example("heisenberg_ctmrg")
lattice = example("ipeps_c4v")
network = example("ctmrg_c4v")
record = example("ipeps_run")
MONTE_CARLO = {"energy": -0.669442, "magnetisation": 0.30743}
# Bond dimension: energy and staggered magnetisation of the published states.
PUBLISHED = {
    2: (-0.6602310935, 0.3911236795),
    3: (-0.6681273940, 0.34774107),
    4: (-0.6689673179, 0.335928725),
    5: (-0.6694037800, 0.318788),
    6: (-0.6694212480, 0.316441),
    7: (-0.6694309780, 0.315416),
}


def descent(size: int, setup: dict[str, Any], seed: int, log: Path) -> dict[str, Any]:
    """Minimise the energy; every evaluation is in the log, from which a stopped run continues."""
    settings = {"model": "heisenberg", "D": size, "delta": 1.0, "J2": 0.0, "g": 0.0}
    settings |= {name: setup[name] for name in ("chi", "starts", "start_chi")}
    settings |= {"seed": seed, "float32": False}
    log.parent.mkdir(parents=True, exist_ok=True)
    run = record.restored(record.load(log), log) if log.exists() else record.Run(settings, log)
    ipeps.optimise(run, setup["iterations"], 1e-6)
    best = run.best()
    found = {
        "energies": run.energies,
        "gradient norms": np.linalg.norm(run.gradients, axis=1),
        "seconds of all evaluations": sum(run.seconds),
        "seconds per evaluation": float(np.median(run.seconds[1:])),
        "begin": run.begin,  # of the descent from the best start
        "best": best,
        "point": run.points[best],
    }
    log.unlink()
    return found


def observables(point: list[float], size: int, chi: int) -> dict[str, float]:
    """Energy per site and staggered magnetisation in an environment of dimension `chi`."""
    hamiltonian = lattice.model("heisenberg")

    def measured(point: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        tensor = record.wave_function(point, size)
        a = lattice.double_layer(tensor)
        first = network.start(lattice.trace_boundary(size, a.dtype), chi)
        env, info = network.environment(a / jnp.linalg.norm(a), first, record.DOUBLE)
        spin = jnp.stack([lattice.expectation(tensor, env, s) for s in hamiltonian.operators])
        energy = lattice.energy_per_site(tensor, env, hamiltonian)
        return energy, jnp.linalg.norm(spin), info.converged

    energy, magnetisation, converged = jax.jit(measured)(jnp.asarray(point))
    if not converged:
        msg = f"the environment of D = {size} does not converge at chi = {chi}"
        raise RuntimeError(msg)
    return {"energy": float(energy), "magnetisation": float(magnetisation)}


def compute(store: Store, parameters: dict[str, Any]) -> None:
    """A descent for each bond dimension, then its observables for each environment."""
    seed = parameters["seed"]
    for name, setup in parameters["runs"].items():
        size = int(name)
        log = store.path.with_name(f"heisenberg_D{size}_chi{setup['chi']}.partial.npz")
        point = store.get(f"D = {size}", partial(descent, size, setup, seed, log))["point"]
        for larger in setup["measured"]:
            label = f"D = {size}, chi = {larger}"
            store.get(label, partial(observables, point, size, larger))


def plot(data: dict[str, Any]) -> Any:
    """Energy error and staggered magnetisation against D, energy against the evaluation."""
    import matplotlib.pyplot as plt

    results, runs = data["results"], data["parameters"]["runs"]
    figure, axes = plt.subplots(1, 3, figsize=(9.9, 4.3), layout="constrained")
    best = MONTE_CARLO["energy"]
    sizes = list(PUBLISHED)
    for axis, column in zip(axes, (0, 1), strict=False):
        values = np.array([PUBLISHED[size][column] for size in sizes])
        shown = values - best if column == 0 else values
        axis.plot(sizes, shown, "ko", mfc="none", ms=6, label="published states (Hasik)")
        name = "energy" if column == 0 else "magnetisation"
        ours = np.array(
            [results[f"D = {n}, chi = {run['measured'][-1]}"][name] for n, run in runs.items()]
        )
        shown = ours - best if column == 0 else ours
        axis.plot([int(n) for n in runs], shown, "C3x", ms=6, mew=1.6, label="this run")
        axis.set_xlabel("bond dimension D")
        axis.set_xticks(sizes)
    axes[0].set_yscale("log")
    axes[0].set_ylabel("energy per site above Monte Carlo [J]")
    axes[1].axhline(MONTE_CARLO["magnetisation"], color="C2", lw=1, label="Monte Carlo")
    axes[1].set_ylabel("staggered magnetisation per site [ħ]")
    for (name, setup), colour in zip(runs.items(), ("C0", "C1", "C4"), strict=False):
        row = results[f"D = {name}"]
        shown = np.maximum(np.array(row["energies"], float) - best, 1e-6)
        label = f"descent, D = {name}, χ = {setup['chi']}"
        last = np.arange(row["begin"], len(shown))
        axes[2].semilogy(last, shown[last], colour + "-", lw=1.6, label=label, zorder=3)
        if row["begin"]:
            label = f"its {setup['starts']} starts, χ = {setup['start_chi']}"
            axes[2].semilogy(shown[: last[0]], "-", color="0.65", lw=0.8, label=label)
    axes[2].set_xlabel("evaluation of energy and gradient")
    axes[2].set_ylabel("energy per site above Monte Carlo [J]")
    shared_legend(figure, 6)
    caption(
        figure,
        "After Liao et al. (2019), arXiv:1903.09650, figure 5. Monte Carlo: Sandvik and Evertz "
        "(2010), Phys. Rev. B 82, 024407 (E = -0.669442 J, m = 0.30743).\nPublished states: Hasik, "
        "github.com/jurajHasik/j1j2_ipeps_states. Energies of this run in environments of χ = "
        + ", ".join(f"{run['measured'][-1]} (D = {n})" for n, run in runs.items())
        + ".",
    )
    return figure


FIGURE = Figure(
    "heisenberg",
    compute,
    plot,
    count=lambda parameters: sum(1 + len(run["measured"]) for run in parameters["runs"].values()),
    full={
        "runs": {
            "2": {"chi": 20, "iterations": 100, "starts": 1, "start_chi": 6}
            | {"measured": [20, 40]},
            "3": {"chi": 30, "iterations": 250, "starts": 4, "start_chi": 14}
            | {"measured": [30, 60]},
        },
        "seed": 0,
    },
    smoke={
        "runs": {"2": {"chi": 8, "iterations": 4, "starts": 1, "start_chi": 6, "measured": [8]}},
        "seed": 0,
    },
    # A descent follows rounding: its path differs, its end less.
    rtol=1e-4,
    atol=1e-6,
    skip=lambda name: (
        name.startswith("seconds")
        or name in ("gradient norms", "point", "begin", "best", "energies")
    ),
)

if __name__ == "__main__":
    raise SystemExit(FIGURE.main())
