"""Ways to differentiate an integration: error, time and memory of the gradient.

First two panels: a loss of the state of the Lotka-Volterra equations at t = 10, differentiated
with respect to four rates and two first values by each derivative option, against the tolerance of
the integration. The reference integrates the equations and their variational equations by SciPy
(DOP853). Third panel: memory of the compiled gradient for a ring of oscillators against the
number of steps of RK4, beside plain AD of the same steps. After Chen et al. 2018
(arXiv:1806.07366, section 2 and figure 3) and Zhuang et al. 2020 (arXiv:2006.02493, table 1).

    python -m paper_figures.ode_adjoints
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from scipy.integrate import solve_ivp as scipy_solve_ivp

from difflinalg import ode
from paper_figures.common import Figure, Store, caption, least_seconds, shared_legend

RATES, START, END = np.array([1.5, 1.0, 3.0, 1.0]), np.array([1.0, 1.0]), 10.0
WEIGHTS = np.array([1.0, -0.5])
METHOD = "Tsit5"
OPTIONS: dict[str, ode.Adjoint] = {
    "Checkpointed": ode.Checkpointed(),
    "Interpolating": ode.Interpolating(),
    "Backsolve": ode.Backsolve(),
    "Forward": ode.Forward(),
}


def chosen(parameters: dict[str, Any]) -> list[str]:
    """The options of a run: all, or those that a short run names."""
    return parameters.get("options", list(OPTIONS))


def lotka_volterra(_: Any, y: Array, rates: Array) -> Array:
    """Prey and predators."""
    a, b, c, d = rates
    return jnp.stack([a * y[0] - b * y[0] * y[1], d * y[0] * y[1] - c * y[1]])


def gradient(option: str, rtol: float) -> Callable[[Array], Array]:
    """The derivative of the loss with respect to the rates and the first state, six numbers."""

    def loss(x: Array) -> Array:
        solution = ode.solve_ivp(
            lotka_volterra,
            (0.0, END),
            x[4:],
            METHOD,
            args=(x[:4],),
            rtol=rtol,
            atol=1e-3 * rtol,
            adjoint=OPTIONS[option],
        )
        return jnp.asarray(WEIGHTS) @ solution.ys[-1] ** 2

    return jax.jacfwd(loss) if option == "Forward" else jax.grad(loss)


def reference() -> list[float]:
    """The same by the variational equations, in SciPy."""

    def field(_: float, z: np.ndarray) -> np.ndarray:
        (a, b, c, d), (u, v), s = RATES, z[:2], z[2:].reshape(2, 6)
        jacobian = np.array([[a - b * v, -b * u], [d * v, d * u - c]])
        inhomogeneous = np.zeros((2, 6))
        inhomogeneous[0, :2], inhomogeneous[1, 2:4] = (u, -u * v), (-v, u * v)
        slope = np.array([a * u - b * u * v, d * u * v - c * v])
        return np.concatenate([slope, (jacobian @ s + inhomogeneous).ravel()])

    first = np.concatenate([START, np.eye(2, 6, 4).ravel()])
    end = scipy_solve_ivp(field, (0, END), first, "DOP853", rtol=3e-14, atol=1e-15).y[:, -1]
    return (2 * WEIGHTS * end[:2] @ end[2:].reshape(2, 6)).tolist()


def measured(option: str, rtol: float, exact: list[float]) -> dict[str, float | str]:
    """Error of the gradient relative to its norm, and the least time of a run."""
    x = jnp.concatenate([jnp.asarray(RATES), jnp.asarray(START)])
    run = jax.jit(gradient(option, rtol))
    got = np.asarray(run(x))
    error = np.linalg.norm(got - exact) / np.linalg.norm(exact)
    return {"error": float(error), "seconds": least_seconds(lambda: run(x))}


def ring(_: Any, y: Array, strength: Array) -> Array:
    """Anharmonic oscillators on a ring; the state holds positions and momenta."""
    q, p = y
    return jnp.stack([p, strength * (jnp.roll(q, 1) + jnp.roll(q, -1) - 2 * q) - q**3])


def gradient_bytes(option: str, steps: int, size: int) -> int:
    """Temporary memory of a gradient over so many steps of RK4; it is compiled, not run."""
    h = 1.0 / 64
    q = jnp.sin(2 * jnp.pi * jnp.arange(size) / size)
    room = {"Checkpointed": ode.Checkpointed, "Interpolating": ode.Interpolating}

    def plain(y: Array, strength: Array) -> Array:
        def step(y: Array, _: None) -> tuple[Array, None]:
            k1 = ring(0, y, strength)
            k2 = ring(0, y + h / 2 * k1, strength)
            k3 = ring(0, y + h / 2 * k2, strength)
            k4 = ring(0, y + h * k3, strength)
            return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

        return lax.scan(step, y, length=steps)[0]

    def integrated(y: Array, strength: Array) -> Array:
        adjoint = room[option](max_steps=steps + 8) if option in room else OPTIONS[option]
        return ode.solve_ivp(
            ring,
            (0.0, h * steps),
            y,
            "RK4",
            args=(strength,),
            first_step=h,
            max_steps=steps + 8,
            adjoint=adjoint,
        ).ys[-1]

    def loss(strength: Array) -> Array:
        end = (plain if option == "plain AD" else integrated)(
            jnp.stack([q, jnp.zeros_like(q)]), strength
        )
        return jnp.sum(end**2)

    program = jax.jacfwd(loss) if option == "Forward" else jax.grad(loss)
    analysis = jax.jit(program).lower(jnp.asarray(0.7)).compile().memory_analysis()
    if analysis is None:
        msg = "this backend of JAX does not say how much memory a program needs"
        raise RuntimeError(msg)
    return analysis.temp_size_in_bytes


def compute(store: Store, parameters: dict[str, Any]) -> None:
    """Memory of each option and length; then errors and times."""
    for option in ("plain AD", *chosen(parameters)):
        for steps in parameters["steps"]:
            store.get(
                f"bytes, {option}, {steps}",
                lambda o=option, n=steps: gradient_bytes(o, n, parameters["size"]),
            )
    exact = store.get("reference", reference)
    for option in chosen(parameters):
        for rtol in parameters["rtol"]:
            store.get(f"{option}, {rtol:g}", lambda o=option, r=rtol: measured(o, r, exact))


def plot(data: dict[str, Any]) -> Any:
    """Error and time against the tolerance, memory against the number of steps."""
    import matplotlib.pyplot as plt

    results, parameters = data["results"], data["parameters"]
    figure, axes = plt.subplots(1, 3, figsize=(9.9, 4.3), layout="constrained")
    rtol, steps = parameters["rtol"], parameters["steps"]
    styles = dict(
        zip((*OPTIONS, "plain AD"), ("C0s-", "C2d-", "C1v-", "C4^--", "C3o-"), strict=True)
    )
    for option in chosen(parameters):
        rows = [results[f"{option}, {r:g}"] for r in rtol]
        line: dict[str, Any] = {"ms": 4, "lw": 1, "label": option}
        axes[0].loglog(rtol, [row["error"] for row in rows], styles[option], **line)
        axes[1].loglog(rtol, [1e3 * row["seconds"] for row in rows], styles[option], **line)
    for option in (*chosen(parameters), "plain AD"):
        style = styles[option]
        used = [results[f"bytes, {option}, {n}"] / 1e3 for n in steps]
        axes[2].loglog(steps, used, style, ms=4, lw=1, label=option)
    axes[0].loglog(rtol, rtol, "k:", lw=1, label="error = tolerance")
    axes[0].set_ylabel("error of the gradient / its norm")
    axes[1].set_ylabel("time of a gradient [ms]")
    axes[2].set_ylabel("temporary memory of the gradient [kB]")
    for axis in axes[:2]:
        axis.set_xlabel("relative tolerance (dimensionless)")
        axis.invert_xaxis()
    axes[2].set_xlabel("number of steps of RK4")
    axes[0].set_title(f"Lotka-Volterra, {METHOD}", fontsize=10)
    axes[1].set_title(f"Lotka-Volterra, {METHOD}", fontsize=10)
    axes[2].set_title(f"{parameters['size']} oscillators", fontsize=10)
    shared_legend(figure, 6)
    caption(
        figure,
        "After Chen et al. (2018), arXiv:1806.07366, section 2 and figure 3, and Zhuang et al. "
        "(2020), arXiv:2006.02493, table 1. Reference: variational equations by\nSciPy's DOP853. "
        "Time: least of many runs, compiled. Memory is what XLA allocates for the compiled "
        "gradient with respect to one parameter.",
    )
    return figure


def count(parameters: dict[str, Any]) -> int:
    """The number of results."""
    options = len(chosen(parameters))
    return (options + 1) * len(parameters["steps"]) + 1 + options * len(parameters["rtol"])


FIGURE = Figure(
    "ode_adjoints",
    compute,
    plot,
    count=count,
    full={
        "rtol": [10.0**-k for k in range(3, 13)],
        "steps": [10, 100, 1000, 10_000, 100_000],
        "size": 256,
        "seed": None,
    },
    smoke={
        "rtol": [1e-6],
        "steps": [10, 2000],
        "size": 16,
        "options": ["Checkpointed"],
        "seed": None,
    },
    rtol=1e-3,
    atol=1e-11,
    skip=lambda name: name == "seconds",
)

if __name__ == "__main__":
    raise SystemExit(FIGURE.main())
