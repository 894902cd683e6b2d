"""Variational ground states of quantum magnets on the infinite square lattice.

The energy of an infinite projected entangled-pair state (one tensor, bond dimension D) is computed
with a corner transfer matrix (dimension chi) and minimised by L-BFGS. The gradient is that of the
converged environment.

    python examples/heisenberg_ctmrg.py --D 2 --chi 20
    python examples/heisenberg_ctmrg.py --D 3 --chi 30 --output run.npz
    python examples/heisenberg_ctmrg.py --model j1j2 --J2 0.5 --output run.npz
    python examples/heisenberg_ctmrg.py --resume run.npz

From D = 3 on there are local minima, and a random tensor may end in one: several starts are made
with a smaller environment, and the best is continued with the full one.

The file holds every evaluation. A run that is resumed gives them to the optimiser again, without
computing them, and continues where it was stopped, with the same steps as if it had not been.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ctmrg_c4v import DEFAULTS, Environment, environment, start, symmetrized
from ipeps_c4v import double_layer, energy_per_site, model, trace_boundary
from jax import Array
from scipy.optimize import minimize

# The number of states must not change along a line search: only exact multiplets are kept whole.
DOUBLE = DEFAULTS._replace(multiplet_rtol=1e-6, fixed_point_rtol=1e-9, solver_rtol=1e-9)
SINGLE = DEFAULTS._replace(
    spectrum_tol=3e-6, fixed_point_rtol=3e-5, solver_rtol=3e-5, multiplet_rtol=1e-3
)
SETTINGS = ("model", "D", "chi", "starts", "start_chi", "delta", "J2", "g", "seed", "float32")
START_EVALUATIONS = 180
SHORT = 0.02  # the first trial step from a point near a minimum
RESTARTS = 3  # of the optimiser, where a step led to an environment that does not converge


def wave_function(parameters: Array, size: int) -> Array:
    """The tensor of norm 1 and full symmetry that belongs to free parameters."""
    tensor = symmetrized(parameters.reshape(2, size, size, size, size))
    return tensor / jnp.linalg.norm(tensor)


@lru_cache
def objective(items: tuple[tuple[str, Any], ...]):
    """A compiled function: `(parameters, environment) -> ((energy, (environment, info)), grad)`."""
    settings = dict(items)
    couplings = {"delta": settings["delta"], "j2": settings["J2"], "g": settings["g"]}
    hamiltonian = model(settings["model"], **couplings)
    options = SINGLE if settings["float32"] else DOUBLE

    def energy(parameters, initial):
        tensor = wave_function(parameters, settings["D"])
        a = double_layer(tensor)
        scaled = a / jnp.linalg.norm(a)
        env, info = environment(scaled, initial, options)
        value = energy_per_site(tensor, env, hamiltonian)
        return value, (jax.lax.stop_gradient(env), info)

    return jax.jit(jax.value_and_grad(energy, has_aux=True))


class Unconverged(RuntimeError):
    """An environment did not converge, also from its simplest start."""


class Run:
    """The evaluations of a run, in order; what the optimiser calls.

    Attributes:
        points, energies, gradients, seconds: one entry for each evaluation; energy and gradient
            are NaN where the environment did not converge.
        begin: the first evaluation of the current stage.
    """

    def __init__(self, settings: dict[str, Any], path: Path | None):
        self.settings, self.path = settings, path
        self.points: list[np.ndarray] = []
        self.energies: list[float] = []
        self.gradients: list[np.ndarray] = []
        self.seconds: list[float] = []
        self.replayed = 0
        self._dtype = jnp.float32 if settings["float32"] else jnp.float64
        self.stage(settings["chi"])
        self.environment = self.simplest()

    def stage(self, chi: int) -> None:
        """A new descent, with environments of dimension `chi`."""
        self.chi, self.begin, self._is_new = chi, self.replayed, True
        self._evaluate = objective(tuple(sorted({**self.settings, "chi": chi}.items())))

    def simplest(self) -> Environment:
        """The environment of a boundary where bra and ket are joined."""
        return start(trace_boundary(self.settings["D"], self._dtype), self.chi)

    def best(self) -> int:
        """The evaluation of the current stage with the lowest energy."""
        return self.begin + int(np.nanargmin(self.energies[self.begin : self.replayed]))

    def __call__(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """Energy and gradient, from the log as long as the optimiser repeats it."""
        index = self.replayed
        if index < len(self.points) and not np.array_equal(self.points[index], point):
            print("\nthe optimiser leaves the recorded path here; recomputing", file=sys.stderr)
            for log in (self.points, self.energies, self.gradients, self.seconds):
                del log[index:]
        if index == len(self.points):
            self._compute(point)
        self.replayed, self._is_new = index + 1, False
        if np.isnan(self.energies[index]):
            msg = "an environment has not converged; try another --chi or --seed"
            raise Unconverged(msg)
        return self.energies[index], self.gradients[index]

    def _compute(self, point: np.ndarray) -> None:
        begin = time.perf_counter()
        for initial in (self.simplest(),) if self._is_new else (self.environment, self.simplest()):
            (energy, (env, info)), gradient = self._evaluate(
                jnp.asarray(point, self._dtype), initial
            )
            if info.converged and np.isfinite(energy) and np.all(np.isfinite(gradient)):
                self.environment = env
                break
        else:
            energy, gradient = np.nan, np.full(point.shape, np.nan)
            print(
                f"\nenvironment not converged after {int(info.steps)} steps: spectrum changes by "
                f"{float(info.change):.1e}, residual {float(info.residual):.1e}",
                file=sys.stderr,
            )
        self.points.append(np.array(point, float))
        self.energies.append(float(energy))
        self.gradients.append(np.asarray(gradient, float))
        self.seconds.append(time.perf_counter() - begin)
        self.report()
        if self.path is not None:
            save(self, self.path)

    def report(self) -> None:
        """The progress line."""
        norm = np.linalg.norm(self.gradients[-1])
        print(
            f"\rchi {self.chi}, evaluation {len(self.energies):4d}  E = {self.energies[-1]:.10f}  "
            f"|gradient| = {norm:.1e}  {self.seconds[-1]:.2f} s",
            end="",
            file=sys.stderr,
            flush=True,
        )


def save(run: Run, path: Path) -> None:
    """Write the log; the file is either the old or the new one, never a part of one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(
                file,
                settings=json.dumps(run.settings),
                points=np.array(run.points),
                energies=np.array(run.energies),
                gradients=np.array(run.gradients),
                seconds=np.array(run.seconds),
                corner=np.asarray(run.environment.corner),
                edge=np.asarray(run.environment.edge),
            )
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(path: Path) -> dict[str, Any]:
    """The contents of a log, checked; `ValueError` if it is none."""
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            data = {name: file[name] for name in file.files}
        settings = json.loads(str(data["settings"]))
        count, size = data["points"].shape
        chi, d = data["corner"].shape[0], settings["D"] ** 2
        shapes = {
            "energies": (count,),
            "seconds": (count,),
            "gradients": (count, size),
            "corner": (chi, chi),
            "edge": (chi, chi, d),
        }
        wrong = [name for name, shape in shapes.items() if data[name].shape != shape]
        known = np.isfinite(data["energies"])
        logs = {name: data[name][known] for name in ("energies", "gradients", "seconds")}
        logs.update(corner=data["corner"], edge=data["edge"])
        wrong += [name for name, values in logs.items() if not np.all(np.isfinite(values))]
        wrong += [name for name in SETTINGS if name not in settings]
        if wrong or size != 2 * d**2 or not count or chi not in _dimensions(settings):
            msg = f"unexpected contents: {', '.join(wrong) or 'points'}"
            raise ValueError(msg)
    except Exception as error:
        msg = f"{path} is not a readable log of this program ({error}); it is left as it is"
        raise ValueError(msg) from error
    return {**data, "settings": settings}


def _dimensions(settings: dict[str, Any]) -> tuple[int, int]:
    return settings["start_chi"], settings["chi"]


def restored(data: dict[str, Any], path: Path) -> Run:
    """The run of a log."""
    run = Run(data["settings"], path)
    run.points, run.gradients = list(data["points"]), list(data["gradients"])
    run.energies, run.seconds = data["energies"].tolist(), data["seconds"].tolist()
    run.environment = Environment(jnp.asarray(data["corner"]), jnp.asarray(data["edge"]))
    return run


def optimise(run: Run, iterations: int, gtol: float) -> Any:
    """L-BFGS from a random tensor of the seed, or from the best of several descents."""
    settings = run.settings
    firsts = [_random_point(settings, settings["seed"] + i) for i in range(settings["starts"])]
    if len(firsts) == 1:
        return _descend(run, firsts[0], maxiter=iterations, gtol=gtol)
    found = []
    for first in firsts:
        run.stage(settings["start_chi"])
        with contextlib.suppress(Unconverged):
            _descend(run, first, maxfun=START_EVALUATIONS, gtol=1e-5)
        if not np.all(np.isnan(run.energies[run.begin : run.replayed])):
            found.append(run.best())
    if not found:
        msg = "no start has an environment that converges; try another --start-chi or --seed"
        raise Unconverged(msg)
    best = min(found, key=lambda index: run.energies[index])
    run.stage(settings["chi"])
    return _descend(run, run.points[best], maxiter=iterations, gtol=gtol, length=SHORT)


def _random_point(settings: dict[str, Any], seed: int) -> np.ndarray:
    first = np.random.default_rng(seed).uniform(-0.5, 1.0, 2 * settings["D"] ** 4)
    return first.astype(np.float32).astype(float) if settings["float32"] else first


def _descend(run: Run, first: np.ndarray, gtol: float, length: float = 1.0, **limits) -> Any:
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
        "--start-chi", type=int, help="chi of several starts (default: 2 D^2 + 2, at most --chi)"
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
        options.start_chi = min(options.chi, 2 * options.D**2 + 2)
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
