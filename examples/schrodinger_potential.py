"""Find the potential whose ground state is a given function, by gradient descent through `eigsh`.

A particle on a grid of spacing h, H = -1/2 d^2/dx^2 + V(x) in second differences, psi = 0 outside.
The loss is 1 - <psi|target>^2 for the ground state psi of H; its gradient with respect to all
values of V comes from one deflated solve (Xie, Liu and Wang 2020, arXiv:2001.04121, equation 9).
The exact answer on the grid is beside it: V = E + (1/2) target'' / target, with the same second
differences, up to a constant, where the target is not too small to matter.

    python examples/schrodinger_potential.py --points 100 --steps 300 --output potential.png
"""

import argparse
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from difflinalg.scipy.sparse.linalg import eigsh


def second_difference(psi: Array, h: float) -> Array:
    """`psi''` with zeros beyond both ends."""
    padded = jnp.pad(psi, 1)
    return (padded[2:] - 2.0 * psi + padded[:-2]) / h**2


def ground_state(potential: Array, h: float) -> tuple[Array, Array]:
    """Energy and normalised ground state of `H = -1/2 d^2/dx^2 + V`."""

    def hamiltonian(psi):
        return -0.5 * second_difference(psi, h) + potential * psi

    like = jax.ShapeDtypeStruct(potential.shape, potential.dtype)
    w, v = eigsh(hamiltonian, 1, which="SA", v0=like, ncv=40)
    return w[0], v[:, 0]


def loss(potential: Array, target: Array, h: float) -> Array:
    """One minus the squared overlap of the ground state with the target."""
    return 1.0 - (ground_state(potential, h)[1] @ target) ** 2


def target_state(x: Array) -> Array:
    """Two bumps of different height, normalised."""
    psi = jnp.exp(-((x + 1.2) ** 2)) + 0.6 * jnp.exp(-1.5 * (x - 1.3) ** 2)
    return psi / jnp.linalg.norm(psi)


def descend(potential: Array, target: Array, h: float, steps: int) -> tuple[Array, list[float]]:
    """Gradient descent with steps that grow while the loss falls and shrink when it does not."""
    evaluate = jax.jit(partial(jax.value_and_grad(loss), target=target, h=h))
    (value, slope), rate, history = evaluate(potential), 10.0, []
    for _ in range(steps):
        trial = potential - rate * slope
        new_value, new_slope = evaluate(trial)
        if new_value < value:
            potential, value, slope, rate = trial, new_value, new_slope, 1.3 * rate
        else:
            rate *= 0.4
        history.append(float(value))
    return potential, history


def draw(path: str, x, potential, exact, target, psi, history) -> None:
    """The potentials, the states and the loss."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    seen = np.asarray(target) > 0.02 * np.max(target)
    axes[0].plot(x[seen], exact[seen], color="0.5", label="exact")
    axes[0].plot(x[seen], potential[seen], "--", color="C3", label="found")
    axes[0].set(xlabel="x", ylabel="V")
    axes[1].plot(x, target, color="0.5", label="target")
    axes[1].plot(x, np.abs(psi), "--", color="C3", label="ground state")
    axes[1].set(xlabel="x", ylabel="psi")
    axes[2].semilogy(history)
    axes[2].set(xlabel="step", ylabel="1 - overlap^2")
    for axis in axes[:2]:
        axis.legend(frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> int:
    """Descend, compare with the exact potential, and fail if the loss does not fall."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--output", help="picture to write, needs matplotlib")
    parser.add_argument("--smoke", action="store_true", help="few points and steps")
    options = parser.parse_args(arguments)
    if options.smoke:
        options.points, options.steps = 50, 20
    jax.config.update("jax_enable_x64", True)
    x = jnp.linspace(-4.0, 4.0, options.points)
    h = float(x[1] - x[0])
    target = target_state(x)
    start = 0.5 * x**2
    potential, history = descend(start, target, h, options.steps)
    first = float(loss(start, target, h))
    _, psi = ground_state(potential, h)
    exact = 0.5 * second_difference(target, h) / target
    exact = exact - target**2 @ exact  # constants are not determined
    found = potential - target**2 @ potential
    deviation = float(jnp.sqrt(target**2 @ (found - exact) ** 2))
    print(f"loss {first:.3e} -> {history[-1]:.3e} in {options.steps} steps")
    print(f"rms deviation from the exact potential, weighted by |psi|^2: {deviation:.3f}")
    if options.output:
        arrays = (np.asarray(a) for a in (x, found, exact, target, psi))
        draw(options.output, *arrays, history)
    if not history[-1] < 0.2 * first:
        print("the loss has not fallen", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
