"""Memory of a gradient against depth: plain AD, checkpoints and reversible execution.

Two problems of growing depth: layers of a quantum circuit (Luo et al. 2020, arXiv:1912.10877,
section 3.2) and leapfrog steps of a chain of nonlinear oscillators. Beside them the number of
evaluations of the step that a schedule of checkpoints costs, counted while it runs, and the least
possible one, by dynamic programming over all schedules (Griewank and Walther 2000, ACM TOMS 26,
19, equation 3).

    python -m paper_figures.memory_depth
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from difflinalg import memory
from paper_figures.common import Figure, Store, caption, example, shared_legend

circuit = example("vqe_circuit")
SLOTS = 10


def circuit_problem(depth: int, sites: int) -> tuple[memory.Invertible, Any, Any]:
    """Step, state and inputs of a circuit on a ring; a layer has `sites + 1` gates."""
    psi = jnp.full(2**sites, 2.0 ** (-sites / 2), complex)
    angles = jnp.linspace(-1.0, 1.0, depth)
    return circuit.layer(sites), psi, (angles,) * (sites + 1)


def oscillator_problem(depth: int, size: int) -> tuple[memory.Invertible, Any, Any]:
    """Step, state and inputs of leapfrog for a ring of coupled anharmonic oscillators."""

    def force(_: Any, q: jax.Array) -> jax.Array:
        return jnp.roll(q, 1) + jnp.roll(q, -1) - 2 * q - q**3

    q = jnp.sin(2 * jnp.pi * jnp.arange(size) / size)
    times = 0.01 * jnp.arange(depth)
    step = memory.leapfrog(force, lambda _, p: p)
    return step, (q, jnp.zeros_like(q)), (times, jnp.full(depth, 0.01))


PROBLEMS = {"circuit": circuit_problem, "oscillators": oscillator_problem}
METHODS: dict[str, Callable] = {
    "plain AD": lambda pair, state, xs: lax.scan(pair.step, state, xs)[0],
    "Nested(2)": lambda pair, state, xs: memory.scan(
        pair.step, state, xs, checkpoints=memory.Nested(2)
    )[0],
    f"Revolve({SLOTS})": lambda pair, state, xs: memory.scan(
        pair.step, state, xs, checkpoints=memory.Revolve(SLOTS)
    )[0],
    "reversible": lambda pair, state, xs: memory.reversible_scan(
        pair.step, pair.inverse, state, xs
    )[0],
}


def gradient_bytes(problem: str, method: str, depth: int, size: int) -> int:
    """Temporary memory of the compiled gradient with respect to one shift, which is not run.

    It shifts the first angles of a circuit, or the first state of the oscillators.
    """
    pair, state, xs = PROBLEMS[problem](depth, size)

    def loss(shift: jax.Array) -> Any:
        moved = (xs[0] + shift, *xs[1:]) if problem == "circuit" else xs
        start = state if problem == "circuit" else jax.tree.map(lambda x: x + shift, state)
        leaves = jax.tree.leaves(METHODS[method](pair, start, moved))
        return sum(jnp.sum(jnp.abs(x) ** 4) for x in leaves)

    compiled = jax.jit(jax.grad(loss)).lower(jnp.zeros(())).compile()
    analysis = compiled.memory_analysis()
    if analysis is None:
        msg = "this backend of JAX does not say how much memory a program needs"
        raise RuntimeError(msg)
    return analysis.temp_size_in_bytes


def counted_evaluations(steps: int) -> int:
    """Evaluations of the step in a gradient by `Revolve`, counted by the step itself."""
    calls = []

    def step(c: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
        jax.debug.callback(lambda: calls.append(1))
        return c + 0.1 * jnp.sin(c * x), None

    def loss(c: jax.Array) -> jax.Array:
        xs = jnp.linspace(0.0, 1.0, steps)
        return memory.scan(step, c, xs, checkpoints=memory.Revolve(SLOTS))[0]

    jax.block_until_ready(jax.jit(jax.grad(loss))(0.3))
    jax.effects_barrier()
    return len(calls)


def least_evaluations(steps: int, slots: int) -> np.ndarray:
    """The least number for every length up to `steps`, by trying every first checkpoint."""
    length = np.arange(steps + 1)
    cost = np.maximum(length * (length - 1) // 2, 0)  # one slot: always from the start
    for _ in range(slots - 1):
        fewer, cost = cost, np.zeros(steps + 1, int)
        for n in range(2, steps + 1):
            m = length[1:n]
            cost[n] = np.min(m + fewer[n - m] + cost[m])
    return cost + length


def compute(store: Store, parameters: dict[str, Any]) -> None:
    """Memory of each problem, method and depth; then the counts."""
    for problem, size in parameters["sizes"].items():
        for method in METHODS:
            for depth in parameters["depths"]:
                store.get(
                    f"{problem}, {method}, {depth}",
                    lambda p=problem, m=method, d=depth, s=size: gradient_bytes(p, m, d, s),
                )
    for steps in parameters["counted"]:
        store.get(f"evaluations, {steps}", lambda n=steps: counted_evaluations(n))
    longest = max(parameters["counted"])
    store.get("least evaluations", lambda: least_evaluations(longest, SLOTS))


def plot(data: dict[str, Any]) -> Any:
    """Memory of both problems, and evaluations per step."""
    import matplotlib.pyplot as plt

    results, parameters = data["results"], data["parameters"]
    figure, axes = plt.subplots(1, 3, figsize=(9.9, 4.3), layout="constrained")
    titles = {
        "circuit": "circuit, {} qubits",
        "oscillators": "leapfrog, {} oscillators",
    }
    for axis, (problem, size) in zip(axes, parameters["sizes"].items(), strict=False):
        for method, style in zip(METHODS, ("C3o-", "C0s-", "C4^-", "C2d-"), strict=True):
            used = [results[f"{problem}, {method}, {n}"] / 1e3 for n in parameters["depths"]]
            axis.loglog(parameters["depths"], used, style, ms=4, lw=1, label=method)
        axis.set_title(titles[problem].format(size), fontsize=10)
        axis.set_xlabel("depth (layers)" if problem == "circuit" else "depth (steps)")
        axis.set_ylabel("temporary memory of the gradient [kB]")
    least = np.array(results["least evaluations"][1:], float)
    steps = np.arange(1, len(least) + 1)
    axes[2].semilogx(steps, least / steps, "k-", lw=1, label=f"least possible, {SLOTS} slots")
    counted = parameters["counted"]
    ratio = [results[f"evaluations, {n}"] / n for n in counted]
    axes[2].semilogx(counted, ratio, "C4^", ms=5, label=f"Revolve({SLOTS}), counted")
    axes[2].set_title("recomputation", fontsize=10)
    axes[2].set_xlabel("depth (steps)")
    axes[2].set_ylabel("evaluations of the step / depth")
    shared_legend(figure, 6)
    caption(
        figure,
        "After Luo et al. (2020), arXiv:1912.10877, section 3.2, and Griewank and Walther (2000), "
        "ACM TOMS 26, 19, equation 3. Memory is what XLA\nallocates for the compiled gradient; "
        "the least number of evaluations is found by dynamic programming.",
    )
    return figure


def count(parameters: dict[str, Any]) -> int:
    """The number of results."""
    memories = len(parameters["sizes"]) * len(METHODS) * len(parameters["depths"])
    return memories + len(parameters["counted"]) + 1


FIGURE = Figure(
    "memory_depth",
    compute,
    plot,
    count=count,
    full={
        "sizes": {"circuit": 8, "oscillators": 256},
        "depths": [10, 100, 1000, 10000],
        "counted": [10, 30, 100, 300, 1000],
        "seed": None,
    },
    smoke={"sizes": {"oscillators": 64}, "depths": [10, 400], "counted": [30], "seed": None},
)

if __name__ == "__main__":
    raise SystemExit(FIGURE.main())
