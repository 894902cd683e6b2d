"""Variational ground states of quantum magnets on the infinite square lattice.

The energy of an infinite projected entangled-pair state (one tensor, bond dimension D) is computed
with a corner transfer matrix (dimension chi) and minimised by L-BFGS. The gradient is that of the
converged environment.

    python examples/heisenberg_ctmrg.py --D 2 --chi 20
    python examples/heisenberg_ctmrg.py --D 3 --chi 30 --output run.npz
    python examples/heisenberg_ctmrg.py --model j1j2 --J2 0.5 --output run.npz
    python examples/heisenberg_ctmrg.py --resume run.npz

From D = 3 on there are local minima, and a random tensor mostly ends in one. A start is a tensor of
bond dimension 2 that is optimised, filled up with noise to D and optimised again, both with a small
environment. Several are made, with seeds `--seed`, `--seed` + 1 and so on; the best goes on with
the full environment.

The file holds every evaluation. A run that is resumed gives them to the optimiser again, without
computing them, and continues where it was stopped, with the same steps as if it had not been.
"""

import argparse
import contextlib
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ipeps_run import SETTINGS, Run, Unconverged, load, restored, wave_function
from scipy.optimize import minimize

SMALL_EVALUATIONS, START_EVALUATIONS = 80, 160  # of a start, at bond dimension 2 and D
NOISE = 0.1  # norm of what fills a tensor of norm 1 up to D
SHORT = 0.02  # the first trial step from a point near a minimum
RESTARTS = 3  # of the optimiser, where a step led to an environment that does not converge


def optimise(run: Run, iterations: int, gtol: float) -> Any:
    """L-BFGS from a random tensor of the seed, or from the best of several starts."""
    settings = run.settings
    if settings["D"] == 2 and settings["starts"] == 1:
        first = _random_point(settings, settings["seed"])
        return descend(run, first, maxiter=iterations, gtol=gtol)
    found = []
    for count in range(settings["starts"]):
        run.label = f"start {count + 1} of {settings['starts']}, "
        with contextlib.suppress(Unconverged):
            found.append(_start(run, settings["seed"] + count))
            print(f"\n{run.label}E = {run.energies[found[-1]]:.8f}", file=sys.stderr)
    if not found:
        msg = "no start has an environment that converges; try another --start-chi or --seed"
        raise Unconverged(msg)
    best = min(found, key=lambda index: run.energies[index])
    run.label = ""
    run.stage(settings["chi"])
    return descend(run, run.points[best], maxiter=iterations, gtol=gtol, length=SHORT)


def _start(run: Run, seed: int) -> int:
    """The best evaluation of a start: from bond dimension 2 to D, with the small environment."""
    settings, first, length = run.settings, _random_point(run.settings, seed), 1.0
    run.stage(settings["start_chi"])
    if settings["D"] > 2:
        descend(run, first, maxfun=SMALL_EVALUATIONS, gtol=1e-5)
        small = np.asarray(wave_function(jnp.asarray(run.points[run.best()]), settings["D"]))
        noise = np.random.default_rng(seed).standard_normal(small.size)
        first = _stored(settings, small.ravel() + NOISE * noise / np.sqrt(noise.size))
        length = SHORT
        run.stage(settings["start_chi"])
    descend(run, first, maxfun=START_EVALUATIONS, gtol=1e-5, length=length)
    return run.best()


def _random_point(settings: dict[str, Any], seed: int) -> np.ndarray:
    """A random tensor of bond dimension 2. In the corner of a larger one it stays one.

    Every change of the other entries alone leaves the energy as it is to first order.
    """
    tensor = np.zeros((2, *[settings["D"]] * 4))
    tensor[:, :2, :2, :2, :2] = np.random.default_rng(seed).uniform(-0.5, 1.0, [2] * 5)
    return _stored(settings, tensor.ravel())


def _stored(settings: dict[str, Any], point: np.ndarray) -> np.ndarray:
    """The numbers that the precision of the run has."""
    return point.astype(np.float32).astype(float) if settings["float32"] else point


def descend(run: Run, first: np.ndarray, gtol: float, length: float = 1.0, **limits) -> Any:
    """L-BFGS with a memory of about as many steps as there are free parameters.

    The unknown is the way from `first`, in units of `length`, which is that of the first trial.
    """
    attempts = 0
    while True:
        options = {"ftol": 1e-15, "maxcor": 100, "gtol": gtol * length, **limits}
        function, way = _along(run, first, length), np.zeros_like(first)
        try:
            return minimize(function, way, jac=True, method="L-BFGS-B", options=options)
        except Unconverged:
            attempts += 1
            if attempts > RESTARTS or np.all(np.isnan(run.energies[run.begin : run.replayed])):
                raise
            first, length = run.points[run.best()], SHORT


def _along(run: Run, first: np.ndarray, length: float):
    def function(way: np.ndarray) -> tuple[float, np.ndarray]:
        energy, gradient = run(first + length * way)
        return energy, length * gradient

    return function


def picture(path: str, run: Run) -> None:
    """Energy above the lowest one, and gradient norm, against the evaluations."""
    import matplotlib.pyplot as plt

    energies = np.array(run.energies[run.begin :])
    norms = np.linalg.norm(run.gradients[run.begin :], axis=1)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    left.semilogy(np.maximum(energies - np.nanmin(energies), 1e-15), ".-")
    left.set_ylabel("energy per site above the lowest")
    right.semilogy(norms, ".-")
    right.set_ylabel("norm of the gradient")
    for axis in (left, right):
        axis.set_xlabel("evaluation")
    figure.suptitle(f"{run.settings['model']}, D = {run.settings['D']}: {np.nanmin(energies):.8f}")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line; also refuses what would overwrite a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    choices = ("heisenberg", "xxz", "j1j2", "tfim")
    parser.add_argument("--model", choices=choices, default="heisenberg")
    parser.add_argument("--D", type=int, default=2, help="bond dimension of the wave function")
    parser.add_argument("--chi", type=int, default=20, help="dimension of the environment")
    parser.add_argument("--starts", type=int, help="random starts (default: 1 for D = 2, else 4)")
    parser.add_argument(
        "--start-chi", type=int, help="chi of the starts (default: 3 D^2 / 2, at most --chi)"
    )
    parser.add_argument("--delta", type=float, default=1.0, help="anisotropy (xxz)")
    parser.add_argument("--J2", type=float, default=0.5, help="diagonal coupling (j1j2)")
    parser.add_argument("--g", type=float, default=3.1, help="transverse field (tfim)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--float32", action="store_true", help="single precision")
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument(
        "--gtol", type=float, default=1e-6, help="largest gradient entry at the end"
    )
    parser.add_argument("--output", type=Path, help="a new .npz file for the log")
    parser.add_argument("--resume", type=Path, help="a log to continue, with its settings")
    parser.add_argument("--picture", help="an image file for the convergence")
    parser.add_argument("--smoke", action="store_true", help="a minute: D = 2, chi = 8")
    options = parser.parse_args(arguments)
    limits = (options.chi, options.iterations, options.starts or 1, options.start_chi or 1)
    if options.D < 2 or min(limits) < 1:
        parser.error("--D is at least 2, --chi, --iterations, --starts and --start-chi at least 1")
    if options.output is not None and options.output.exists():
        parser.error(f"{options.output} exists; continue it with --resume, or name another file")
    if options.smoke:
        options.D, options.chi, options.iterations = 2, 8, min(options.iterations, 15)
    if options.starts is None:
        options.starts = 1 if options.D == 2 else 4
    if options.start_chi is None:
        options.start_chi = min(options.chi, (3 * options.D**2 + 1) // 2)
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run and print the result; 1 if it ended early, 2 if a file cannot be used."""
    options = parse(arguments)
    data = None
    if options.resume is not None:
        try:
            data = load(options.resume)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
    settings = data["settings"] if data else {name: getattr(options, name) for name in SETTINGS}
    jax.config.update("jax_enable_x64", not settings["float32"])
    path = options.output or options.resume
    run = restored(data, path) if data else Run(settings, path)
    begin = time.perf_counter()
    try:
        result = optimise(run, options.iterations, options.gtol)
    except Unconverged as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    print(file=sys.stderr)
    best = run.best()
    names = {"heisenberg": (), "xxz": ("delta",), "j1j2": ("J2",), "tfim": ("g",)}
    shown = [*names[settings["model"]], "D", "chi"]
    print(f"{settings['model']}, " + ", ".join(f"{name} = {settings[name]}" for name in shown))
    print(f"energy per site   {run.energies[best]:.10f}")
    print(f"gradient norm     {np.linalg.norm(run.gradients[best]):.1e}")
    print(
        f"{len(run.energies)} evaluations, the first {run.seconds[0]:.1f} s, the median of the "
        f"others {np.median(run.seconds[1:] or run.seconds):.3f} s; "
        f"this run {time.perf_counter() - begin:.1f} s; {result.message}"
    )
    if options.picture:
        picture(options.picture, run)
    return 0


if __name__ == "__main__":
    sys.exit(main())
