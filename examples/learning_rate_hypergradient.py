"""The derivative of a validation loss with respect to a whole schedule of learning rates.

A small network is trained by a thousand steps of gradient descent with momentum, in exact
arithmetic, so that the training can be run backwards (Maclaurin, Duvenaud and Adams 2015,
arXiv:1502.03492, algorithm 2). One backward run gives the derivative with respect to the learning
rate and the momentum of every single step, without storing any of the weights on the way. It is
checked against checkpointed automatic differentiation, and used to improve the schedule.

    python examples/learning_rate_hypergradient.py --steps 1000 --updates 5
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from difflinalg import memory

HIDDEN, POINTS, BATCH = 16, 256, 64
LOWEST_DECAY = 0.5
Weights = dict[str, Array]


def spirals(seed: int) -> tuple[Array, Array]:
    """Two noisy spirals: points, shape `(POINTS, 2)`, and labels -1 or 1."""
    rng = np.random.default_rng(seed)
    labels = np.where(np.arange(POINTS) % 2, 1.0, -1.0)
    angle = np.sqrt(rng.uniform(0.05, 1.0, POINTS)) * 2.0 * np.pi
    points = (labels * angle / 6.0)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return jnp.asarray(points + 0.05 * rng.standard_normal((POINTS, 2))), jnp.asarray(labels)


def first_weights(seed: int) -> Weights:
    """Random weights of a network with one hidden layer."""
    rng = np.random.default_rng(seed)
    shapes = {"w1": (2, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN,), "b2": ()}
    scales = {"w1": 1.5, "b1": 1.0, "w2": HIDDEN**-0.5, "b2": 0.0}
    return {name: jnp.asarray(scales[name] * rng.standard_normal(shape))
            for name, shape in shapes.items()}  # fmt: skip


def loss(weights: Weights, points: Array, labels: Array) -> Array:
    """The mean logistic loss and a little weight decay."""
    hidden = jnp.tanh(points @ weights["w1"] + weights["b1"])
    score = hidden @ weights["w2"] + weights["b2"]
    decay = sum(jnp.sum(w**2) for w in weights.values())
    return jnp.mean(jnp.logaddexp(0.0, -labels * score)) + 1e-4 * decay


def training_step(points: Array, labels: Array) -> memory.Invertible:
    """One step of momentum on a batch; the data of a step are the indices of its batch."""

    def gradient(weights: Weights, batch: Array) -> Weights:
        return jax.grad(loss)(weights, points[batch], labels[batch])

    return memory.momentum(gradient)


def batches(steps: int, seed: int) -> Array:
    """The indices of the batch of each step, shape `(steps, BATCH)`."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.integers(0, POINTS, (steps, BATCH)))


def validation_loss(rates: Array, decays: Array, seed: int, how: str = "reversible") -> Array:
    """The loss on other points after training with these schedules, each of shape `(steps,)`.

    `how` tells what reverse mode does: "reversible", "nested" (checkpoints) or "plain".
    """
    steps = rates.shape[0]
    start = memory.momentum_start(first_weights(seed), steps, LOWEST_DECAY)
    step, inverse = training_step(*spirals(seed))
    xs = memory.MomentumInput(rates, decays, batches(steps, seed))
    if how == "reversible":
        end = memory.reversible_scan(step, inverse, start, xs, rtol=0.0)[0]
    elif how == "nested":
        end = memory.scan(step, start, xs)[0]
    else:
        end = lax.scan(step, start, xs)[0]
    return loss(end.position, *spirals(seed + 1))


def hypergradient(seed: int, how: str = "reversible") -> Callable[..., Any]:
    """`(rates, decays) -> (validation loss, its derivatives)`."""
    return jax.value_and_grad(partial(validation_loss, seed=seed, how=how), (0, 1))


def improve(
    run: Callable[..., Any], rates: Array, decays: Array, updates: int
) -> tuple[Array, list[float], list[Array]]:
    """Descend along the normalised derivative with respect to the logarithms of the rates."""
    losses, slopes = [], []
    for _ in range(updates):
        value, (slope, _) = run(rates, decays)
        losses.append(float(value))
        slopes.append(slope)
        along = rates * slope
        rates = rates * jnp.exp(-0.3 * along / jnp.max(jnp.abs(along)))
    value, (slope, _) = run(rates, decays)
    return rates, [*losses, float(value)], [*slopes, slope]


def picture(path: str, slope: Array, rates: Array, first: Array) -> None:
    """Write the derivative and the schedule that it led to."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    left.plot(slope)
    left.set_xlabel("step")
    left.set_ylabel("d(validation loss) / d(learning rate)")
    right.plot(first, label="first")
    right.plot(rates, label="improved")
    right.set_xlabel("step")
    right.set_ylabel("learning rate")
    right.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    """Check the derivative, print memory, improve the schedule."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000, help="steps of the training")
    parser.add_argument("--updates", type=int, default=5, help="updates of the schedule")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", help="an image file")
    parser.add_argument("--smoke", action="store_true", help="a few seconds: 20 steps, 1 update")
    options = parser.parse_args()
    if options.steps < 1 or options.updates < 0:
        parser.error("--steps is at least 1, --updates at least 0")
    jax.config.update("jax_enable_x64", True)
    steps, updates = (20, 1) if options.smoke else (options.steps, options.updates)
    rates, decays = jnp.full(steps, 0.5), jnp.full(steps, 0.9)
    compiled = {
        how: jax.jit(hypergradient(options.seed, how)).lower(rates, decays).compile()
        for how in ("reversible", "nested", *(() if options.smoke else ("plain",)))
    }
    got, expected = (compiled[how](rates, decays)[1] for how in ("reversible", "nested"))
    print(f"{steps} steps of momentum, derivatives by running backwards and by checkpoints:")
    for name, a, b in zip(("rates", "decays"), got, expected, strict=True):
        largest = float(jnp.max(jnp.abs(b)))
        error = float(jnp.max(jnp.abs(a - b))) / largest
        print(f"  {name:7s} largest {largest:.3e}, relative difference {error:.1e}")
    for how, run in compiled.items():
        used = run.memory_analysis().temp_size_in_bytes / 1e3
        print(f"  temporary memory, {how:10s} {used:12.1f} kB")
    better, losses, slopes = improve(compiled["reversible"], rates, decays, updates)
    print("validation loss: " + " -> ".join(f"{value:.5f}" for value in losses))
    if options.output:
        picture(options.output, slopes[0], better, rates)


if __name__ == "__main__":
    main()
