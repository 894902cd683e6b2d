"""The equations of an implicit stage, `Y = start + d f(Y, t)` with `d = h a[i, i]`.

They are solved by Newton's method with dense Jacobians on the state as one real vector, so that
complex states and right-hand sides that are not holomorphic are covered.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import tolerances
from difflinalg._ode.system import Leaves, System

MAX_ITERATIONS = 12


def to_real(leaves: Leaves) -> Array:
    """All leaves as one real vector."""
    parts = []
    for x in leaves:
        parts += [x.real.ravel(), x.imag.ravel()] if jnp.iscomplexobj(x) else [x.ravel()]
    return jnp.concatenate(parts)


def from_real(vector: Array, like: Leaves) -> Leaves:
    """The inverse of `to_real`."""
    leaves, start = [], 0
    for x in like:
        part = vector[start : start + x.size].reshape(x.shape)
        start += x.size
        if jnp.iscomplexobj(x):
            part = lax.complex(part, vector[start : start + x.size].reshape(x.shape))
            start += x.size
        leaves.append(part.astype(x.dtype))
    return leaves


def _real_field(
    system: System, time: Array, p: Leaves, q: Leaves, like: Leaves
) -> Callable[[Array], Array]:
    return lambda z: to_real(system.field(from_real(z, like), time, p, q))


def stage(
    system: System, start: Leaves, time: Array, d: Array, p: Leaves, q: Leaves, scale: Leaves
) -> tuple[Leaves, Array]:
    """The stage value, and whether Newton's method converged."""
    f = _real_field(system, time, p, q, start)
    constant = to_real(start)
    d = d.astype(constant.dtype)
    size = jnp.max(jnp.abs(to_real(scale))) + jnp.max(jnp.abs(constant))
    enough = tolerances.stage_rtol(constant.dtype) * size

    def unfinished(state: tuple) -> Array:
        _, update, iteration = state
        return (update > enough) & (iteration < MAX_ITERATIONS)

    def improve(state: tuple) -> tuple:
        z, _, iteration = state
        matrix = jnp.eye(z.size, dtype=z.dtype) - d * jax.jacfwd(f)(z)
        step = jnp.linalg.solve(matrix, constant + d * f(z) - z)
        return z + step, jnp.max(jnp.abs(step)), iteration + 1

    infinite = jnp.array(jnp.inf, constant.dtype)
    z, update, _ = lax.while_loop(unfinished, improve, (constant, infinite, 0))
    return from_real(z, start), update <= enough


def transposed_seed(
    system: System, at: Leaves, time: Array, d: Array, p: Leaves, q: Leaves, seed: Leaves
) -> Leaves:
    """`(I - d J^T)^-1 k_bar`, so that `J^T` of it is the cotangent of the stage's start.

    A cotangent of JAX pairs with the real and the negative imaginary part, hence the conjugates.
    """
    f = _real_field(system, time, p, q, at)
    z = to_real(at)
    matrix = jnp.eye(z.size, dtype=z.dtype) - d.astype(z.dtype) * jax.jacfwd(f)(z)
    right = to_real([jnp.conj(x) for x in seed])
    solved = from_real(jnp.linalg.solve(matrix.T, right), seed)
    return [jnp.conj(x) for x in solved]
