"""The evaluations of a variational ground state: energies, gradients, and a file that keeps them.

The file is written after each evaluation, atomically. A run that is restored from it gives the
optimiser the recorded evaluations again, one by one, without computing them.
"""

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

# The number of states must not change along a line search: only exact multiplets are kept whole.
DOUBLE = DEFAULTS._replace(
    spectrum_tol=1e-10,
    max_steps=1000,
    fixed_point_rtol=1e-9,
    solver_rtol=1e-9,
    multiplet_rtol=1e-6,
)
SINGLE = DEFAULTS._replace(
    spectrum_tol=3e-6,
    max_steps=1000,
    fixed_point_rtol=3e-5,
    solver_rtol=3e-5,
    multiplet_rtol=1e-3,
)
SETTINGS = ("model", "D", "chi", "starts", "start_chi", "delta", "J2", "g", "seed", "float32")


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
        label: of the current stage, for the progress line.
    """

    def __init__(self, settings: dict[str, Any], path: Path | None):
        self.settings, self.path = settings, path
        self.points: list[np.ndarray] = []
        self.energies: list[float] = []
        self.gradients: list[np.ndarray] = []
        self.seconds: list[float] = []
        self.replayed = 0
        self.label = ""
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
            f"\r{self.label}chi {self.chi}, evaluation {len(self.energies):4d}  "
            f"E = {self.energies[-1]:.10f}  |gradient| = {norm:.1e}  {self.seconds[-1]:.2f} s",
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
