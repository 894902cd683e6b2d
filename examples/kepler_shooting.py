"""Aim at a point of a Kepler orbit: a boundary-value problem by Newton's method.

A body starts at a given place and must be at another one after a given time (Lambert's problem).
The unknown is its first velocity; Newton's method takes the Jacobian of the end point with
respect to it from forward mode, through the symplectic integrator.

    python examples/kepler_shooting.py --steps 2000
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from difflinalg.ode import symplectic


def gravity(q: Array) -> Array:
    """The force of a unit mass at the origin."""
    return -q / jnp.sum(q**2) ** 1.5


def fly(velocity: Array, place: Array, time: float, steps: int) -> Array:
    """Where the body is after `time`."""
    t = jnp.array([0.0, time])
    q, _ = symplectic(lambda p: p, gravity, (place, velocity), t, steps=steps, method="Yoshida4")
    return q[-1]


def shoot(place: Array, target: Array, time: float, guess: Array, steps: int) -> list[Array]:
    """Newton's iterates of the first velocity, until they do not change."""

    @jax.jit
    def improve(velocity: Array) -> tuple[Array, Array]:
        miss = fly(velocity, place, time, steps) - target
        jacobian = jax.jacfwd(fly)(velocity, place, time, steps)
        return velocity - jnp.linalg.solve(jacobian, miss), jnp.linalg.norm(miss)

    iterates, misses = [guess], []
    for _ in range(20):
        velocity, miss = improve(iterates[-1])
        iterates.append(velocity)
        misses.append(float(miss))
        print(f"{len(misses):3d}  miss {misses[-1]:.3e}  velocity {np.asarray(iterates[-2])}")
        if misses[-1] < 1e-12:
            break
    return iterates


def main(arguments: list[str] | None = None) -> Array:
    """Solve the problem whose answer is an ellipse of eccentricity 0.6."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=2000, help="steps of the integrator")
    parser.add_argument("--smoke", action="store_true", help="a short run")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    eccentricity, anomaly = 0.6, 2.0
    # the orbit with semi-axis 1, from the pericentre to eccentric anomaly 2
    place = jnp.array([1.0 - eccentricity, 0.0])
    target = jnp.array(
        [np.cos(anomaly) - eccentricity, np.sqrt(1 - eccentricity**2) * np.sin(anomaly)]
    )
    time = anomaly - eccentricity * np.sin(anomaly)
    exact = jnp.array([0.0, np.sqrt((1 + eccentricity) / (1 - eccentricity))])
    steps = 1000 if options.smoke else options.steps
    velocity = shoot(place, target, time, exact + jnp.array([0.1, -0.1]), steps)[-1]
    print(f"exact velocity {np.asarray(exact)}, error {float(jnp.max(abs(velocity - exact))):.1e}")
    return velocity


if __name__ == "__main__":
    main()
