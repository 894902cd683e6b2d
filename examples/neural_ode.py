"""A small neural ODE learns a spiral, with three ways to compute its gradient.

The right-hand side is a network of two layers. It is trained on short pieces of the trajectory, one
from each data point, all in one batch; trained on the whole of it from random weights, the network
ends near the centre. The table shows what one gradient costs with each derivative option: time, and
memory beyond arguments and results as XLA reports it.

    python examples/neural_ode.py --iterations 400 --output spiral.png   (extra: figures)
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from difflinalg.ode import Adjoint, Backsolve, Checkpointed, Forward, odeint

Network = list[Array]
PIECE = 10  # points; times are equidistant
OPTIONS = {"checkpointed": Checkpointed(), "backsolve": Backsolve(), "forward": Forward()}


def spiral(y: Array, _t: Array) -> Array:
    """The system to learn: a cubic spiral (Chen et al. 2018)."""
    matrix = jnp.array([[-0.1, 2.0], [-2.0, -0.1]])
    return (y**3) @ matrix


def network(y: Array, _t: Array, weights: Network) -> Array:
    """Two layers on the cubes of the state."""
    w1, b1, w2, b2 = weights
    return jnp.tanh((y**3) @ w1 + b1) @ w2 + b2


def draw(seed: int, width: int) -> Network:
    """First weights."""
    rng = np.random.default_rng(seed)
    normal = lambda *shape: jnp.asarray(0.3 * rng.standard_normal(shape))  # noqa: E731
    return [normal(2, width), jnp.zeros(width), normal(width, 2), jnp.zeros(2)]


def loss(weights: Network, t: Array, data: Array, adjoint: Adjoint) -> Array:
    """Mean squared distance of all pieces of `PIECE` points from the data."""
    starts = data[: len(data) - PIECE + 1]

    def piece(y0: Array) -> Array:
        options = {"rtol": 1e-5, "atol": 1e-5, "adjoint": adjoint}
        return odeint(network, y0, t[:PIECE], weights, **options)

    where = np.arange(len(starts))[:, None] + np.arange(PIECE)
    return jnp.mean((jax.vmap(piece)(starts) - data[where]) ** 2)


def distance(weights: Network, t: Array, data: Array) -> float:
    """Mean squared distance of the whole trajectory, relative to the mean square of the data."""
    y = odeint(network, data[0], t, weights)
    return float(jnp.mean((y - data) ** 2) / jnp.mean(data**2))


def table(weights: Network, t: Array, data: Array) -> dict[str, tuple[float, float]]:
    """Milliseconds and kilobytes of one gradient with each derivative option."""
    rows = {}
    for name, adjoint in OPTIONS.items():
        gradient = jax.jit(lambda w, a=adjoint: jax.grad(loss)(w, t, data, a))
        compiled = gradient.lower(weights).compile()
        jax.block_until_ready(compiled(weights))
        start = time.perf_counter()
        jax.block_until_ready(compiled(weights))
        spent = 1e3 * (time.perf_counter() - start)
        memory = compiled.memory_analysis().temp_size_in_bytes / 1024
        rows[name] = (spent, memory)
        print(f"{name:14s} {spent:9.2f} ms {memory:10.1f} kB")
    return rows


def train(weights: Network, t: Array, data: Array, iterations: int) -> tuple[Network, list[float]]:
    """Adam with a constant rate."""

    @jax.jit
    def improve(weights, m, v, count):
        value, gradient = jax.value_and_grad(loss)(weights, t, data, Checkpointed())
        m = [0.9 * x + 0.1 * g for x, g in zip(m, gradient, strict=True)]
        v = [0.999 * x + 0.001 * g**2 for x, g in zip(v, gradient, strict=True)]
        scale = 0.02 * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        moved = zip(weights, m, v, strict=True)
        return [w - scale * x / (jnp.sqrt(y) + 1e-8) for w, x, y in moved], m, v, value

    m = v = [jnp.zeros_like(w) for w in weights]
    losses = []
    for i in range(iterations):
        weights, m, v, value = improve(weights, m, v, i + 1.0)
        losses.append(float(value))
        if i % 50 == 0:
            print(f"{i:5d}  loss {losses[-1]:.3e}")
    return weights, losses


def plot(path: str, t: Array, data: Array, weights: Network, losses: list[float]) -> None:
    """Data and learnt trajectory; the loss."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    learnt = odeint(network, data[0], t, weights)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4))
    left.plot(*np.asarray(data).T, ".", label="data")
    left.plot(*np.asarray(learnt).T, label="neural ODE")
    left.set(xlabel="$y_1$", ylabel="$y_2$", aspect="equal")
    left.legend()
    right.semilogy(losses)
    right.set(xlabel="iteration", ylabel="mean squared error")
    figure.tight_layout()
    figure.savefig(path)


def main(arguments: list[str] | None = None) -> tuple[list[float], float]:
    """Compare the derivative options, and train; the losses and the final distance."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--output", help="a picture, for example spiral.png")
    parser.add_argument("--smoke", action="store_true", help="a short run")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    t = jnp.linspace(0.0, 3.0 if options.smoke else 10.0, 30 if options.smoke else 100)
    data = odeint(spiral, jnp.array([2.0, 0.0]), t)
    weights = draw(0, options.width)
    table(weights, t, data)
    first = distance(weights, t, data)
    weights, losses = train(weights, t, data, 200 if options.smoke else options.iterations)
    last = distance(weights, t, data)
    print(f"final loss {losses[-1]:.3e}")
    print(f"whole trajectory: relative squared distance {first:.1e} before, {last:.1e} after")
    if options.output:
        plot(options.output, t, data, weights, losses)
    return losses, last


if __name__ == "__main__":
    main()
