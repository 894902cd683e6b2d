"""Energy of a wave function on the square lattice whose tensors have no symmetry.

The unit cell is a pattern of tensors `A[n, s, u, l, d, r]`, real or complex. The double layer is
written in a basis of Hermitian matrices on the pairs of bonds above and to the left, and in the
conjugate basis below and to the right; there it is real, also for complex `A`.
"""

from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
import numpy as np
from ctmrg import Cell, Environment, enlarged_corners, patches
from ipeps_c4v import Model, hermitian_basis
from jax import Array


def trace_boundary(n: int, size: int, dtype) -> Array:
    """The boundary on which bra and ket are joined, shape `(4, n, size^2)`."""
    trace = np.einsum("mkk->m", hermitian_basis(size)).real
    return jnp.broadcast_to(jnp.asarray(trace, dtype), (4, n, size**2))


def double_layers(tensors: Array, operator: np.ndarray | None = None) -> Array:
    """`<A| O |A>` without the sums over bonds, real, shape `(n, D^2, D^2, D^2, D^2)`."""
    real = jnp.finfo(tensors.dtype).dtype
    work = jnp.result_type(tensors, jnp.complex64)
    ket = tensors if operator is None else jnp.einsum("ts,ns...->nt...", operator, tensors)
    basis = jnp.asarray(hermitian_basis(tensors.shape[-1]), work)
    bra = jnp.conj(tensors).astype(work)
    layers = jnp.einsum("nsuldr,nsULDR->nuUlLdDrR", ket.astype(work), bra)
    for legs in (basis, basis, jnp.conj(basis), jnp.conj(basis)):  # the first pair to the end
        layers = jnp.tensordot(layers, legs, ((1, 2), (1, 2)))
    return jnp.real(layers).astype(real)


def energy_per_site(tensors: Array, env: Environment, cell: Cell, hamiltonian: Model) -> Array:
    """The energy per site."""
    return energy_of_layers(partial(double_layers, tensors), env, cell, hamiltonian)


def energy_of_layers(
    layers: Callable[..., Array], env: Environment, cell: Cell, hamiltonian: Model
) -> Array:
    """The energy per site of double layers, `layers()` and `layers(operator)`.

    From 2 x 2 sites around each point: view 0 has the horizontal bonds and one diagonal, view 1
    the vertical bonds and the other.
    """
    a = layers()
    plain = enlarged_corners(env, a, cell)
    norm = patches((plain, plain, plain, plain), cell, a)[:2]
    total = jnp.zeros_like(norm)
    for operator, one, two, diagonal in zip(*hamiltonian, strict=True):
        if not (one or two or diagonal):
            continue
        corner = enlarged_corners(env, layers(operator), cell)
        if one:
            total += 0.5 * one * patches((corner, plain, plain, plain), cell, a)[:2]
        if two:
            total += two * patches((corner, plain, plain, corner), cell, a)[:2]
        if diagonal:
            total += diagonal * patches((corner, plain, corner, plain), cell, a)[:2]
    return jnp.sum(jnp.mean(total / norm, axis=1))
