"""What the figures share: results on disk, progress, the command line, the look of a picture."""

import argparse
import importlib.util
import json
import math
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import jax

FOLDER = Path(__file__).parent
LIBRARIES = ("jax", "jaxlib", "numpy", "scipy", "matplotlib")


def example(name: str) -> ModuleType:
    """The module of a script in `examples/`, which is not a package."""
    folder = FOLDER.parent / "examples"
    if str(folder) not in sys.path:
        sys.path.append(str(folder))  # examples import one another
    return _module(name, folder / f"{name}.py")


def source_of_test(name: str) -> ModuleType:
    """A fresh copy of a module in `tests/`, where the table of cases is; it imports pytest."""
    return _module(name, FOLDER.parent / "tests" / f"{name}.py")


def _module(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"paper_figures_{name}", path)
    if spec is None or spec.loader is None or not path.exists():
        msg = f"there is no {path}: the figures need the whole source tree"
        raise ImportError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def versions(extra: tuple[str, ...] = ()) -> dict[str, str]:
    """Of Python and of the libraries that a result depends on."""
    return {"python": platform.python_version()} | {
        name: version(name) for name in (*LIBRARIES, *extra)
    }


def plain(value: Any) -> Any:
    """Numbers and lists of Python; what is not finite becomes `None`, which JSON can hold."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(plain(data), file, indent=1, allow_nan=False)
            file.write("\n")
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def least_seconds(run: Callable[[], Any], budget: float = 0.4) -> float:
    """The least time of a call; calls are repeated for `budget` seconds, at least three times."""
    times: list[float] = []
    while len(times) < 3 or sum(times) < budget:
        begin = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - begin)
    return min(times)


class Paused(Exception):
    """As many results as were asked for have been computed."""


def deviations(
    committed: Any,
    fresh: Any,
    rtol: float,
    atol: Callable[[str], float],
    skip: Callable[[str], bool],
    at: str = "",
) -> list[str]:
    """What differs between two trees of results, beyond `atol + rtol * |committed|`.

    Args:
        committed: the expected results.
        fresh: those of a new run.
        rtol: relative tolerance of every number.
        atol: absolute tolerance of the number at a place, as in `/name/0`.
        skip: whether a name in the tree belongs to times, which are not compared.
        at: where in the tree this is.

    Returns:
        A line for each difference.
    """
    if isinstance(committed, dict) and isinstance(fresh, dict):
        names = [name for name in committed.keys() | fresh.keys() if not skip(name)]
        missing = [f"{at}/{name} is only in one" for name in {*committed} ^ {*fresh}]
        pairs = [(committed[n], fresh[n], n) for n in names if n in committed and n in fresh]
    elif isinstance(committed, list) and isinstance(fresh, list):
        missing = [] if len(committed) == len(fresh) else [f"{at} differs in length"]
        pairs = [(x, y, str(i)) for i, (x, y) in enumerate(zip(committed, fresh, strict=False))]
    else:
        same = committed == fresh
        if not same and isinstance(committed, int | float) and isinstance(fresh, int | float):
            same = abs(committed - fresh) <= atol(at) + rtol * abs(committed)
        return [] if same else [f"{at}: {committed} is committed, now {fresh}"]
    return missing + [
        line for x, y, n in pairs for line in deviations(x, y, rtol, atol, skip, f"{at}/{n}")
    ]


@dataclass
class Store:
    """Results by name; what an interrupted run has computed is found again.

    Args:
        path: the file of the complete results; `<name>.partial.json` beside it holds the others.
        head: parameters, seed and versions; a partial file with another head is not continued.
        total: how many results there will be, for the progress.
        most: how many new ones are computed before `Paused` is raised.
    """

    path: Path
    head: dict[str, Any]
    total: int
    most: float = math.inf
    results: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.partial = self.path.with_suffix(".partial.json")
        self.head = plain(self.head)
        if self.partial.exists():
            found = json.loads(self.partial.read_text())
            if all(found.get(key) == value for key, value in self.head.items()):
                self.results, self.seconds = found["results"], found["seconds"]
                print(f"continuing after {len(self.results)} results", file=sys.stderr)
            else:
                print(f"{self.partial} has other parameters: starting again", file=sys.stderr)

    def get(self, name: str, compute: Callable[[], Any]) -> Any:
        """The result of this name, computed and written if it is not known yet."""
        if name not in self.results:
            if self.most <= 0:
                raise Paused
            self.most -= 1
            start = time.perf_counter()
            self.results[name] = plain(compute())
            self.seconds += time.perf_counter() - start
            write_json(self.partial, self.data())
            done = f"{len(self.results)}/{self.total} {name}, {self.seconds:.1f} s"
            print(done, file=sys.stderr, flush=True)
        return self.results[name]

    def data(self) -> dict[str, Any]:
        """What the file holds."""
        return {**self.head, "seconds": round(self.seconds, 1), "results": self.results}

    def finish(self) -> None:
        """Write the complete results; a later run computes them again."""
        if len(self.results) != self.total:
            msg = f"{self.path.name}: {len(self.results)} results, expected {self.total}"
            raise RuntimeError(msg)
        write_json(self.path, self.data())
        self.partial.unlink(missing_ok=True)


@dataclass(frozen=True)
class Figure:
    """One figure: `compute` fills a store, `plot` draws what the file holds.

    Args:
        name: of the module and of the files.
        compute: called with the store and the parameters.
        plot: called with the content of the JSON file, returns a matplotlib figure.
        count: the number of results for given parameters.
        full: parameters of the committed results.
        smoke: parameters of a run of a few seconds.
        libraries: whose versions are written besides the common ones.
        rtol: relative tolerance of `--check`, for every number of the results.
        atol: absolute one; errors at rounding are no more alike than that.
        noise: what is added to it for the number at a place of the given results, `/name/0`:
            the bound of a rounding error that the figure shows, which no two programs share.
        skip: whether results of this name are times, which `--check` leaves out.
    """

    name: str
    compute: Callable[[Store, dict[str, Any]], None]
    plot: Callable[[dict[str, Any]], Any]
    count: Callable[[dict[str, Any]], int]
    full: dict[str, Any]
    smoke: dict[str, Any]
    libraries: tuple[str, ...] = ()
    rtol: float = 1e-6
    atol: float = 1e-9
    noise: Callable[[str, dict[str, Any]], float] = lambda *_: 0.0
    skip: Callable[[str], bool] = lambda _: False

    def draw(self, folder: Path) -> Path:
        """Read the JSON file and write the picture."""
        data = json.loads((folder / "results" / f"{self.name}.json").read_text())
        picture = folder / "pictures" / f"{self.name}.png"
        picture.parent.mkdir(parents=True, exist_ok=True)
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        settings: dict[Any, Any] = {
            "font.size": 9.5,
            "legend.fontsize": 8.0,
            "axes.grid": True,
            "grid.alpha": 0.3,
        }
        with plt.rc_context(settings):
            drawn = self.plot(data)
            drawn.savefig(picture, dpi=110)
            plt.close(drawn)
        _reduce_colours(picture)
        return picture

    def check(self, folder: Path) -> int:
        """Compare the results in a folder with the committed ones; 1 if they differ."""
        name = f"{self.name}.json"
        old, new = (json.loads((at / "results" / name).read_text()) for at in (FOLDER, folder))
        found = [] if old["parameters"] == new["parameters"] else ["other parameters"]
        results = old["results"]

        def atol(at: str) -> float:
            return self.atol + self.noise(at, results)

        found += deviations(results, new["results"], self.rtol, atol, self.skip)
        tolerances = f"rtol {self.rtol:g}, atol {self.atol:g}, times left out"
        print(*found, sep="\n", end="\n" if found else "")
        print(f"{self.name}: {len(found) or 'no'} differences from the committed ({tolerances})")
        return 1 if found else 0

    def main(self, arguments: list[str] | None = None) -> int:
        """The command line: compute, then draw."""
        options = self._parse(arguments)
        jax.config.update("jax_enable_x64", True)
        folder = options.folder
        if folder is None:
            apart = options.smoke or options.check
            folder = Path(tempfile.mkdtemp(prefix="figures-")) if apart else FOLDER
        if not options.plot:
            parameters = self.smoke if options.smoke else self.full
            head = {"figure": self.name, "parameters": parameters}
            head["versions"] = versions(self.libraries)
            path = folder / "results" / f"{self.name}.json"
            store = Store(path, head, self.count(parameters), options.results or math.inf)
            try:
                self.compute(store, parameters)
            except Paused:
                print(f"paused; the next run continues {store.partial}", file=sys.stderr)
                return 3
            store.finish()
            print(path)
        if options.check:
            return self.check(folder)
        print(self.draw(folder))
        return 0

    def _parse(self, arguments: list[str] | None) -> argparse.Namespace:
        parser = argparse.ArgumentParser(prog=f"python -m paper_figures.{self.name}")
        parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes")
        parser.add_argument("--plot", action="store_true", help="draw the results that are there")
        parser.add_argument(
            "--check",
            action="store_true",
            help="compute again, elsewhere, and compare with the committed results",
        )
        parser.add_argument(
            "--results", type=int, help="pause after so many new ones; the next run continues"
        )
        parser.add_argument(
            "--folder",
            type=Path,
            help="where results/ and pictures/ are written: beside this script by default, "
            "a new temporary folder with --smoke or --check",
        )
        options = parser.parse_args(arguments)
        if options.smoke + options.plot + options.check > 1:
            parser.error("--smoke, --plot and --check exclude one another")
        if options.results is not None and options.results < 1:
            parser.error("--results is at least 1")
        if options.check and options.folder == FOLDER:
            parser.error("--check does not overwrite the committed results")
        return options


def _reduce_colours(picture: Path) -> None:
    """A palette instead of three bytes for each point: a third of the size."""
    from PIL import Image

    with Image.open(picture) as image:
        small = image.convert("RGB").quantize(255, Image.Quantize.MAXCOVERAGE)
    small.save(picture, optimize=True)


def shared_legend(figure: Any, columns: int) -> None:
    """One legend above all panels, each name once."""
    found = {}
    for axis in figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.legend(found.values(), found.keys(), loc="outside upper center", ncols=columns)


def caption(figure: Any, text: str) -> None:
    """The source and what is seen, below the panels."""
    figure.supxlabel(text, fontsize=7.5, color="0.3", x=0.01, ha="left")
