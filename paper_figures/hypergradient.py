"""Hypergradients: the derivative of a validation loss with respect to ridge and learning rate.

Weights of a linear model are fitted to training data with a ridge `exp(theta)`, by `lstsq` of the
extended matrix, by `cg` of the normal equations, or by N steps of gradient descent with learning
rate `exp(phi)`. The validation loss of the fit is differentiated with respect to `theta` and
`phi`, to first and second order, through the whole fit (Pedregosa 2016, arXiv:1602.02355;
Franceschi et al. 2017, arXiv:1703.01785), and by difference quotients. The exact derivatives come
from the eigenvalues of the normal equations, at 50 digits.

    python -m paper_figures.hypergradient
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
from jax import Array, lax

from difflinalg import linalg
from difflinalg.scipy.sparse.linalg import cg
from paper_figures.common import Figure, Store, caption, shared_legend

POINTS, FEATURES = 40, 12
RATE = 0.4  # of gradient descent, where it is not differentiated
FITS = ("lstsq", "cg", "descent")
NAMES = ("theta", "phi", "theta theta", "phi phi")
QUOTIENTS = ("forward difference", "central difference", "difference of AD")


def data_of(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training matrix and values, validation matrix and values; the noise makes a ridge useful."""
    rng = np.random.default_rng(seed)
    scales = np.logspace(0, -1, FEATURES)
    weights = rng.standard_normal(FEATURES)
    train, valid = (rng.standard_normal((POINTS, FEATURES)) * scales for _ in range(2))
    noise = 1.5 * rng.standard_normal((2, POINTS))
    return train, train @ weights + noise[0], valid, valid @ weights + noise[1]


def by_lstsq(theta: Array, x: Array, y: Array) -> Array:
    """The fit with `|x w - y|^2 / n + exp(theta) |w|^2`, from an extended matrix."""
    root = jnp.exp(0.5 * theta) * np.sqrt(POINTS)
    extended = jnp.concatenate([x, root * jnp.eye(FEATURES)])
    return linalg.lstsq(extended, jnp.concatenate([y, jnp.zeros(FEATURES)]))[0]


def by_cg(theta: Array, x: Array, y: Array) -> Array:
    """The same from the normal equations, which are applied to vectors only."""
    return cg(lambda w: x.T @ (x @ w) / POINTS + jnp.exp(theta) * w, x.T @ y / POINTS, tol=1e-14)[0]


def by_descent(theta: Array, x: Array, y: Array, rate: Array | float, steps: int) -> Array:
    """The same by gradient descent from zero."""

    def step(w: Array, _: None) -> tuple[Array, None]:
        slope = x.T @ (x @ w - y) / POINTS + jnp.exp(theta) * w
        return w - rate * slope, None

    return lax.scan(step, jnp.zeros(FEATURES), length=steps)[0]


def validation(how: str, seed: int, steps: int) -> Callable[[Array], Array]:
    """The validation loss as a function of `(theta, phi)`."""
    x, y, x_valid, y_valid = map(jnp.asarray, data_of(seed))

    def loss(point: Array) -> Array:
        theta, phi = point
        if how == "descent":
            w = by_descent(theta, x, y, jnp.exp(phi), steps)
        else:
            w = {"lstsq": by_lstsq, "cg": by_cg}[how](theta, x, y)
        return jnp.mean((x_valid @ w - y_valid) ** 2)

    return loss


def exact_loss(seed: int, steps: int | None) -> Callable[[Any, Any], Any]:
    """The validation loss in mpmath; `steps` is None for the minimum.

    In the basis of the eigenvectors of `x^T x / n` each component decouples: after N steps it is
    its limit times `1 - (1 - rate (value + ridge))^N`.
    """
    x, y, x_valid, y_valid = (mpmath.matrix(array.tolist()) for array in data_of(seed))
    values, vectors = mpmath.eigsy(x.T * x / POINTS)
    right, out = vectors.T * (x.T * y / POINTS), x_valid * vectors

    def loss(theta: Any, phi: Any) -> Any:
        ridge, rate = mpmath.exp(theta), mpmath.exp(phi)
        w = [b / (value + ridge) for b, value in zip(right, values, strict=True)]
        if steps is not None:
            w = [
                c * (1 - (1 - rate * (value + ridge)) ** steps)
                for c, value in zip(w, values, strict=True)
            ]
        residual = out * mpmath.matrix(w) - y_valid
        return sum(r * r for r in residual) / POINTS

    return loss


def exact(seed: int, steps: int | None, point: tuple[float, float]) -> dict[str, float]:
    """Loss, both first derivatives, and the second ones, from values at 50 digits."""
    with mpmath.workdps(50):
        loss, at = exact_loss(seed, steps), tuple(map(mpmath.mpf, point))
        orders = {"loss": (0, 0), "theta": (1, 0), "theta theta": (2, 0)}
        if steps is not None:
            orders |= {"phi": (0, 1), "theta phi": (1, 1), "phi phi": (0, 2)}
        return {
            name: float(mpmath.diff(loss, at, order) if any(order) else loss(*at))
            for name, order in orders.items()
        }


def derivatives(how: str, seed: int, steps: int) -> Callable[[Array], dict[str, Array]]:
    """The same by automatic differentiation: reverse mode, and forward over reverse."""
    loss = validation(how, seed, steps)

    def numbers(point: Array) -> dict[str, Array]:
        value, slope = jax.value_and_grad(loss)(point)
        curvature = jax.hessian(loss)(point)
        found = {"loss": value, "theta": slope[0], "theta theta": curvature[0, 0]}
        if how == "descent":
            found |= {"phi": slope[1], "theta phi": curvature[0, 1], "phi phi": curvature[1, 1]}
        return found

    return numbers


def along_ridge(how: str, parameters: dict[str, Any]) -> dict[str, list[float]]:
    """Loss and derivatives for every ridge, with the exact ones and the largest errors."""
    seed, steps = parameters["seed"], parameters["steps"]
    thetas = np.linspace(*parameters["thetas"])
    points = jnp.stack([jnp.asarray(thetas), jnp.full(thetas.shape, np.log(RATE))], axis=1)
    got = jax.jit(lambda points: lax.map(derivatives(how, seed, steps), points))(points)
    known = [exact(seed, steps if how == "descent" else None, tuple(p)) for p in points.tolist()]
    rows: dict[str, Any] = {}
    for name, column in got.items():
        right = np.array([row[name] for row in known])
        rows[name] = np.asarray(column)
        rows[f"exact {name}"] = right
        rows[f"error {name}"] = float(np.max(np.abs(column - right)) / np.max(np.abs(right)))
    return rows


def quotients(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Errors of quotients of the derivative `name` of the descent, for every step size, and of AD.

    Relative to the exact number: quotients of losses, and for the second derivative also of first
    derivatives by AD.
    """
    seed, steps = parameters["seed"], parameters["steps"]
    axis = 0 if name.startswith("theta") else 1
    start = np.array([parameters["thetas"][0] / 2, np.log(RATE)])
    right = exact(seed, steps, tuple(start))[name]
    first = " " not in name
    loss = validation("descent", seed, steps)

    def values(shifts: Array) -> tuple[Array, Array]:
        def one(shift: Array) -> tuple[Array, Array]:
            value, slope = jax.value_and_grad(loss)(jnp.asarray(start).at[axis].add(shift))
            return value, slope[axis]

        return lax.map(one, shifts)

    h = np.logspace(*parameters["sizes"])
    (f0, g0), (fp, gp), (fm, gm) = (
        tuple(map(np.asarray, pair))
        for pair in map(jax.jit(values), (jnp.zeros(1), jnp.asarray(h), jnp.asarray(-h)))
    )
    if first:
        found = {"forward difference": (fp - f0) / h, "central difference": (fp - fm) / (2 * h)}
        ad = g0[0]
    else:
        found = {
            "central difference": (fp - 2 * f0 + fm) / h**2,
            "difference of AD": (gp - gm) / (2 * h),
        }
        ad = jax.jit(derivatives("descent", seed, steps))(jnp.asarray(start))[name]
    errors: dict[str, Any] = {k: np.abs(v - right) / abs(right) for k, v in found.items()}
    return {**errors, "AD": float(abs(ad - right) / abs(right)), "exact": right}


def unrolled(parameters: dict[str, Any]) -> dict[str, list[float]]:
    """The derivative with respect to the ridge after N steps, beside that of the minimum."""
    seed, point = parameters["seed"], (parameters["thetas"][0] / 2, float(np.log(RATE)))
    limit = exact(seed, None, point)["theta"]
    rows: dict[str, list[float]] = {"distance": [], "exact distance": []}
    for steps in parameters["lengths"]:
        got = jax.jit(jax.grad(validation("descent", seed, steps)))(jnp.asarray(point))[0]
        rows["distance"].append(abs(float(got) - limit) / abs(limit))
        known = exact(seed, steps, point)["theta"]
        rows["exact distance"].append(abs(known - limit) / abs(limit))
    return rows


def compute(store: Store, parameters: dict[str, Any]) -> None:
    """One result for each way to fit, for each quotient, and for the number of steps."""
    for how in parameters.get("fits", FITS):
        store.get(how, partial(along_ridge, how, parameters))
    for name in parameters.get("names", NAMES):
        store.get(f"quotients, {name}", partial(quotients, name, parameters))
    store.get("unrolled", partial(unrolled, parameters))


def plot(data: dict[str, Any]) -> Any:
    """Loss and derivative against the ridge, quotients of first and second order, steps."""
    import matplotlib.pyplot as plt

    results, parameters = data["results"], data["parameters"]
    figure, grid = plt.subplots(2, 2, figsize=(9.9, 7.0), layout="constrained")
    loss, steps, first, second = grid.flat
    ridge = np.exp(np.linspace(*parameters["thetas"]))
    for how, style in zip(FITS, ("C0s", "C1x", "C2^"), strict=True):
        if how not in results:
            continue
        row = results[how]
        label = f"{how}, N = {parameters['steps']}" if how == "descent" else how
        loss.semilogx(ridge, row["theta"], style, ms=4.5, label=label)
    for how in {"lstsq", "descent"} & results.keys():
        loss.semilogx(ridge, results[how]["exact theta"], "k-", lw=0.8, label="exact")
    loss.axhline(0, color="0.6", lw=0.8)
    loss.set_xlabel("ridge (dimensionless)")
    loss.set_ylabel("d(validation loss) / d(log ridge)")
    loss.set_title("hypergradient: its zero is the best ridge", fontsize=10)
    row = results["unrolled"]
    shown = np.maximum(row["distance"], 1e-16), np.maximum(row["exact distance"], 1e-16)
    steps.loglog(parameters["lengths"], shown[1], "k-", lw=0.8, label="exact")
    steps.loglog(parameters["lengths"], shown[0], "C2^", ms=4.5, label="descent, AD")
    steps.set_xlabel("steps N of gradient descent")
    steps.set_ylabel("relative distance from the derivative\nof the minimum")
    steps.set_ylim(1e-17, 10)
    steps.set_title("unrolled descent against the implicit derivative", fontsize=10)
    sizes = np.logspace(*parameters["sizes"])
    styles = dict(zip(QUOTIENTS, ("-", "--", ":"), strict=True))
    for axis, names in ((first, ("theta", "phi")), (second, ("theta theta", "phi phi"))):
        for name, colour in zip(names, ("C0", "C3"), strict=True):
            if f"quotients, {name}" not in results:
                continue
            row, what = results[f"quotients, {name}"], "ridge" if name[0] == "t" else "rate"
            for kind, line in styles.items():
                if kind in row:
                    label = f"{what}, {kind}"
                    axis.loglog(sizes, np.maximum(row[kind], 1e-17), colour + line, label=label)
            at, marker = max(row["AD"], 1e-17), colour + ("o" if what == "ridge" else "D")
            axis.plot(sizes[-1] * 3, at, marker, ms=6, clip_on=False, label=f"{what}, AD")
        axis.set_xlabel("step of the quotient in log ridge or log rate (dimensionless)")
        axis.set_ylabel("relative error (dimensionless)")
        axis.set_ylim(1e-17, 1e4)
    first.set_title("first derivatives through the descent", fontsize=10)
    second.set_title("second derivatives through the descent", fontsize=10)
    shared_legend(figure, 5)
    caption(
        figure,
        "After Pedregosa (2016), arXiv:1602.02355, and Franceschi et al. (2017), arXiv:1703.01785. "
        "Ridge regression of made-up data, 40 x 12; exact: eigenvalues of\nthe normal equations "
        "at 50 digits. Marks at the right of the lower panels: automatic differentiation, which "
        "has no step.",
    )
    return figure


FIGURE = Figure(
    "hypergradient",
    compute,
    plot,
    count=lambda p: len(p.get("fits", FITS)) + len(p.get("names", NAMES)) + 1,
    full={
        "thetas": [-8.0, 0.5, 18],
        "steps": 300,
        "lengths": [1, 3, 10, 30, 100, 300, 1000, 3000, 10_000],
        "sizes": [-12.0, 0.0, 49],
        "seed": 5,
    },
    smoke={
        "thetas": [-8.0, 0.5, 3],
        "steps": 30,
        "lengths": [10],
        "sizes": [-8.0, -2.0, 4],
        "fits": ["lstsq"],
        "names": ["theta theta"],
        "seed": 5,
    },
    libraries=("mpmath",),
    rtol=1e-6,
    atol=1e-9,
    skip=lambda name: "difference" in name,  # dominated by rounding at small steps
)

if __name__ == "__main__":
    raise SystemExit(FIGURE.main())
