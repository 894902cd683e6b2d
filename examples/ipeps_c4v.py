"""Energy of a wave function on the square lattice: double layers, models, expectation values.

The wave function has one tensor `A[s, u, l, d, r]` with the symmetry of the lattice. On one
sublattice it stands as it is, on the other one complex conjugate. The double layer is written in
a basis of Hermitian matrices on every pair of bonds; there it is real, also for complex `A`.

Spin models with antiferromagnetic exchange turn the spins of one sublattice by pi about y (their
x and z components change sign). Together with the conjugation, which changes the sign of y, all
three components do: a bond `S S'` between the sublattices becomes `-S S`.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from ctmrg_c4v import Environment, enlarged_corner
from jax import Array

X = np.array([[0.0, 1.0], [1.0, 0.0]])
Y = np.array([[0.0, -1.0j], [1.0j, 0.0]])
Z = np.diag([1.0, -1.0])


class Model(NamedTuple):
    """A sum over sites, neighbours and diagonals of `coefficient O` and `coefficient O O`."""

    operators: tuple[np.ndarray, ...]  # Hermitian
    field: tuple[float, ...]  # one coefficient for each operator
    neighbours: tuple[float, ...]  # between the sublattices
    diagonals: tuple[float, ...]  # inside of a sublattice


def model(
    name: str, *, delta: float = 1.0, j2: float = 0.0, g: float = 3.1, turned: bool = True
) -> Model:
    """The Hamiltonian of a name.

    `heisenberg`: sum of `S.S` over neighbours; `xxz`: with `delta` times the z component;
    `j1j2`: with `j2` times `S.S` over diagonals; `tfim`: `-Z Z - g X` in Pauli matrices.
    With `turned` the spins of one sublattice are turned as above.
    """
    spin = (0.5 * X, 0.5 * Y, 0.5 * Z)
    zero = (0.0, 0.0, 0.0)
    one = -1.0 if turned else 1.0
    if name == "heisenberg":
        return Model(spin, zero, (one, one, one), zero)
    if name == "xxz":
        return Model(spin, zero, (one, one, one * delta), zero)
    if name == "j1j2":
        return Model(spin, zero, (one, one, one), (j2, j2, j2))
    if name == "tfim":
        return Model((X, Z), (-g, 0.0), (0.0, -1.0), (0.0, 0.0))
    msg = f"model is one of heisenberg, xxz, j1j2, tfim, got {name!r}"
    raise ValueError(msg)


def hermitian_basis(size: int) -> np.ndarray:
    """Orthonormal Hermitian matrices, shape `(size^2, size, size)`."""
    basis = []
    for i in range(size):
        for j in range(size):
            matrix = np.zeros((size, size), complex)
            if i <= j:
                matrix[i, j] = matrix[j, i] = 1.0 if i == j else np.sqrt(0.5)
            else:
                matrix[i, j], matrix[j, i] = 1j * np.sqrt(0.5), -1j * np.sqrt(0.5)
            basis.append(matrix)
    return np.stack(basis)


def trace_boundary(size: int, dtype) -> Array:
    """The boundary on which bra and ket are joined, a vector of the double layer."""
    return jnp.asarray(np.einsum("mkk->m", hermitian_basis(size)).real, dtype)


def double_layer(tensor: Array, operator: Array | np.ndarray | None = None) -> Array:
    """`<A| O |A>` without the sums over bonds, real, shape `(D^2, D^2, D^2, D^2)`."""
    real = jnp.finfo(tensor.dtype).dtype
    work = jnp.result_type(tensor, jnp.complex64)
    ket = tensor if operator is None else jnp.einsum("ts,s...->t...", operator, tensor)
    basis = jnp.asarray(hermitian_basis(tensor.shape[-1]), work)
    layers = jnp.einsum("suldr,sULDR->uUlLdDrR", ket.astype(work), jnp.conj(tensor).astype(work))
    for _ in range(4):  # the first pair of legs becomes the last leg
        layers = jnp.tensordot(layers, basis, ((0, 1), (1, 2)))
    return jnp.real(layers).astype(real)


def energy_per_site(tensor: Array, env: Environment, hamiltonian: Model) -> Array:
    """The energy per site, from 2 x 2 sites: four enlarged corners around a point."""
    plain = enlarged_corner(env, double_layer(tensor))
    square = plain @ plain
    norm = jnp.sum(square * square)
    total = jnp.zeros((), norm.dtype)
    for operator, one, two, diagonal in zip(*hamiltonian, strict=True):
        if not (one or two or diagonal):
            continue
        corner = enlarged_corner(env, double_layer(tensor, operator))
        first = corner @ plain
        if one:
            total += one * jnp.sum(first * square.T)
        if two:
            total += 2.0 * two * jnp.sum((corner @ corner) * square.T)
        if diagonal:
            total += 2.0 * diagonal * jnp.sum(first * first.T)
    return total / norm


def expectation(tensor: Array, env: Environment, operator: np.ndarray) -> Array:
    """The expectation value of an operator on one site."""
    plain = enlarged_corner(env, double_layer(tensor))
    square = plain @ plain
    corner = enlarged_corner(env, double_layer(tensor, operator))
    return jnp.sum((corner @ plain) * square.T) / jnp.sum(square * square)
