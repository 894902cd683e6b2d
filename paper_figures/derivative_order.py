"""Time, compile time and error against the order of a derivative: nested AD and Taylor mode.

The k-th derivative of `f(t) = tr(W exp(A + t B))` for symmetric 6 x 6 matrices, with the matrix
function by an eigendecomposition, `V diag(exp(w)) V^T`, or by `funm_hermitian`. K nested first
derivatives double the program K times, Taylor mode carries K + 1 coefficients through it once
(Bettencourt, Johnson and Duvenaud 2019, https://openreview.net/forum?id=SkxEF3FNPH, figure 1).
`A` has distinct eigenvalues, or one of multiplicity three; there the eigenvectors depend on `t`
without a limit, while `f` is smooth. The reference sums the exponential series of the polynomial
`A + t B` at 50 digits.

    python -m paper_figures.derivative_order
"""

import math
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
from jax import Array

from difflinalg import linalg, taylor
from paper_figures.common import Figure, Store, caption, least_seconds, shared_legend

SPECTRA = {
    "distinct": [-0.9, -0.4, 0.1, 0.5, 1.1, 1.6],
    "repeated": [-0.9, 0.1, 0.1, 0.1, 1.1, 1.6],
}
TERMS = 90  # of the exponential series; the norms below stay under 8


def matrices(spectrum: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`A` of this spectrum, `B` and `W`, symmetric."""
    rng = np.random.default_rng(seed)
    q = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    b, w = (x + x.T for x in rng.standard_normal((2, 6, 6)) / 4)
    return (q * SPECTRA[spectrum]) @ q.T, b, w


def exact(spectrum: str, order: int, seed: int) -> list[float]:
    """The derivatives of order 0 to `order`, from the powers of a polynomial of matrices."""
    with mpmath.workdps(50):
        a, b, w = (mpmath.matrix(x.tolist()) for x in matrices(spectrum, seed))
        zero = mpmath.zeros(6)
        power = [mpmath.eye(6)] + [zero] * order
        total = list(power)
        for m in range(1, TERMS):
            lower = [zero, *power[:-1]]
            power = [(p * a + q * b) / m for p, q in zip(power, lower, strict=True)]
            total = [x + p for x, p in zip(total, power, strict=True)]
        traces = [sum((w * x)[i, i] for i in range(6)) for x in total]
        return [float(trace * math.factorial(k)) for k, trace in enumerate(traces)]


def by_eigh(eigh: Callable[[Array], Any]) -> Callable[[Array], Array]:
    """The exponential by this eigendecomposition."""

    def exponential(a: Array) -> Array:
        w, v = eigh(a)
        return (v * jnp.exp(w)) @ v.T

    return exponential


def nested(f: Callable[[Array], Array], t: Array, order: int) -> Array:
    """The derivative of this order by so many forward derivatives inside of one another."""
    if order == 0:
        return f(t)
    inner = lambda t: nested(f, t, order - 1)  # noqa: E731
    return jax.jvp(inner, (t,), (jnp.ones_like(t),))[1]


def by_taylor(f: Callable[[Array], Array], t: Array, order: int) -> Array:
    """The same from one pass."""
    return taylor.derivatives(f, t, order)[order]


FUNCTIONS = {
    "eigh": by_eigh(linalg.eigh),
    "funm_hermitian": lambda a: linalg.funm_hermitian(a, jnp.exp),
    "jnp.linalg.eigh": by_eigh(jnp.linalg.eigh),
}
METHODS = {
    "nested, eigh": (nested, "eigh"),
    "nested, funm_hermitian": (nested, "funm_hermitian"),
    "Taylor, eigh": (by_taylor, "eigh"),
    "Taylor, funm_hermitian": (by_taylor, "funm_hermitian"),
    "nested, jnp.linalg.eigh": (nested, "jnp.linalg.eigh"),
}
STYLES = dict(zip(METHODS, ("C0s-", "C4D-", "C3o-", "C1^-", "kx:"), strict=True))


def measured(method: str, order: int, known: dict[str, list[float]], seed: int) -> dict[str, Any]:
    """Seconds to trace and compile and to run, and the relative error for both spectra."""
    mode, function = METHODS[method]

    def program(a: Array, b: Array, w: Array) -> Array:
        return mode(lambda t: jnp.sum(w * FUNCTIONS[function](a + t * b)), jnp.zeros(()), order)

    arguments = {name: matrices(name, seed) for name in SPECTRA}
    begin = time.perf_counter()
    run = jax.jit(program).lower(*arguments["distinct"]).compile()
    found: dict[str, Any] = {"compile seconds": time.perf_counter() - begin}
    for name, values in arguments.items():
        error = abs(float(run(*values)) - known[name][order])
        found[name] = error / abs(known[name][order])
    values = arguments["distinct"]
    return found | {"run seconds": least_seconds(lambda: run(*values))}


def chosen(parameters: dict[str, Any]) -> list[str]:
    """The methods of a run: all, or those that a short run names."""
    return parameters.get("methods", list(METHODS))


def orders(method: str, parameters: dict[str, Any]) -> range:
    """From the first to the highest of this mode."""
    return range(1, 1 + parameters["nested" if method.startswith("nested") else "taylor"])


def compute(store: Store, parameters: dict[str, Any]) -> None:
    """The exact derivatives, then one result for each method and order."""
    seed, highest = parameters["seed"], max(parameters["nested"], parameters["taylor"])
    known = {
        name: store.get(f"exact, {name}", lambda n=name: exact(n, highest, seed))
        for name in SPECTRA
    }
    for method in chosen(parameters):
        for order in orders(method, parameters):
            store.get(f"{method}, {order}", lambda m=method, k=order: measured(m, k, known, seed))


def plot(data: dict[str, Any]) -> Any:
    """Compile time and time, errors for distinct and for repeated eigenvalues."""
    import matplotlib.pyplot as plt

    results, parameters = data["results"], data["parameters"]
    panels = {
        "compile seconds": ("tracing and compilation", "time [s]"),
        "run seconds": ("one evaluation", "time [s]"),
        "distinct": ("distinct eigenvalues", "relative error (dimensionless)"),
        "repeated": ("an eigenvalue three times", "relative error (dimensionless)"),
    }
    figure, grid = plt.subplots(2, 2, figsize=(9.9, 7.0), layout="constrained")
    for axis, (what, (title, label)) in zip(grid.flat, panels.items(), strict=True):
        for method in chosen(parameters):
            style = STYLES[method]
            steps = orders(method, parameters)
            y = [results[f"{method}, {k}"][what] for k in steps]
            finite = [np.nan if v is None else max(v, 1e-17) for v in y]
            axis.semilogy(steps, finite, style, ms=4.5, lw=1, label=method)
        axis.set_xlabel("order of the derivative")
        axis.set_ylabel(label)
        axis.set_title(title, fontsize=10)
        axis.set_xticks(range(1, 1 + max(parameters["nested"], parameters["taylor"])))
    for axis in grid.flat[2:]:
        axis.set_ylim(1e-17, 1e6)
    shared_legend(figure, 3)
    caption(
        figure,
        "After Bettencourt, Johnson and Duvenaud (2019), openreview.net/forum?id=SkxEF3FNPH, "
        "figure 1. Derivatives of tr(W exp(A + t B)) at t = 0, 6 x 6;\nreference: the exponential "
        "series of the polynomial at 50 digits. The time of an evaluation is the least of many.\n"
        "jnp.linalg.eigh leaves the last panel at order 2.",
    )
    return figure


def rounding(at: str, _: dict[str, Any]) -> float:
    """What Taylor mode loses to rounding, a digit with every order; it differs between programs."""
    method, _comma, order = at.split("/")[1].rpartition(", ")
    return 1e-15 * 10.0 ** int(order) if method.startswith("Taylor") else 0.0


FIGURE = Figure(
    "derivative_order",
    compute,
    plot,
    count=lambda parameters: (
        len(SPECTRA) + sum(len(orders(m, parameters)) for m in chosen(parameters))
    ),
    full={"nested": 6, "taylor": 12, "seed": 11},
    smoke={
        "nested": 1,
        "taylor": 2,
        "methods": ["nested, jnp.linalg.eigh", "Taylor, funm_hermitian"],
        "seed": 11,
    },
    libraries=("mpmath",),
    rtol=0.5,
    atol=1e-9,
    noise=rounding,
    skip=lambda name: name.endswith("seconds"),
)

if __name__ == "__main__":
    raise SystemExit(FIGURE.main())
