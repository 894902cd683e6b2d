"""Parametrised unitary gates `exp(-i theta G)` on state vectors; the inverse is `-theta`.

An involution, `S^2 = 1`, gives `cos(theta) - i sin(theta) S`; a diagonal generator gives phases;
any small Hermitian matrix on a few sites is diagonalised once, when the gate is made.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from difflinalg._core import checks
from difflinalg._memory.invertible import Invertible


def _unitary(apply: Callable[[Array, Array], Array]) -> Invertible:
    return Invertible(
        lambda psi, theta: (apply(psi, theta), None), lambda psi, theta: apply(psi, -theta)
    )


def involution_gate(involution: Callable[[Array], Array]) -> Invertible:
    """The gate `exp(-i theta S) = cos(theta) - i sin(theta) S` with `S^2 = 1`.

    Args:
        involution: the action of S on a state, linear, Hermitian and its own inverse; for
            example a string of Pauli matrices.

    Returns:
        The step and its inverse, for `reversible_scan`; the carry is a complex state, `x` the
        angle.

    Derivatives:
        Those of its arguments; as a function of the angle it is entire.

    Cost:
        One call of `involution`, each way. The error is that of rounding, without growth.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg import memory
        >>> step, _ = memory.involution_gate(lambda psi: psi[::-1])      # Pauli X
        >>> print(step(jnp.array([1.0 + 0j, 0.0]), jnp.pi / 2)[0].round(3) + 0.0)
        [0.+0.j 0.-1.j]

    References:
        Luo, Liu, Zhang and Wang, "Yao.jl: extensible, efficient framework for quantum algorithm
        design" (2020), section 3.2; arXiv:1912.10877.
    """

    def turn(psi: Array, theta: Array) -> Array:
        c, s = jnp.cos(theta), jnp.sin(theta)
        return c.astype(psi.dtype) * psi - (1j * s).astype(psi.dtype) * involution(psi)

    @jax.custom_jvp
    def apply(psi: Array, theta: Array) -> Array:
        return turn(psi, theta)

    @apply.defjvp
    def _apply_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
        # A quarter turn is the derivative: one sum over the state in reverse mode, not two.
        (psi, theta), (psi_dot, theta_dot) = primals, tangents
        slope = apply(psi, theta + jnp.pi / 2)
        change = turn(psi_dot, theta) + theta_dot.astype(psi.dtype) * slope
        return apply(psi, theta), change

    return _unitary(lambda psi, theta: apply(psi, jnp.asarray(theta)))


def diagonal_gate(diagonals: ArrayLike) -> Invertible:
    """The gate `exp(-i sum_k theta_k D_k)` of commuting diagonal generators.

    Args:
        diagonals: the real diagonals `D_k`, shape `(K, n)`, or one of shape `(n,)`.

    Returns:
        The step and its inverse, for `reversible_scan`; the carry is a complex state of shape
        `(n,)`, `x` the angles of shape `(K,)`, or one angle.

    Derivatives:
        Those of its arguments.

    Cost:
        O(K n), each way. The error is that of rounding, without growth.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg import memory
        >>> step, _ = memory.diagonal_gate(jnp.array([1.0, -1.0]))       # Pauli Z
        >>> print(step(jnp.array([1.0 + 0j, 1.0]), jnp.pi / 2)[0].round(3) + 0.0)
        [0.-1.j 0.+1.j]

    References:
        Luo, Liu, Zhang and Wang, "Yao.jl: extensible, efficient framework for quantum algorithm
        design" (2020), section 3.2; arXiv:1912.10877.
    """
    table = jnp.asarray(diagonals)

    def apply(psi: Array, theta: Array) -> Array:
        angle = jnp.tensordot(theta, table, 1) if table.ndim == 2 else theta * table
        return psi * jnp.exp(-1j * angle).astype(psi.dtype)

    return _unitary(lambda psi, theta: apply(psi, jnp.asarray(theta)))


def local_gate(generator: ArrayLike, sites: Sequence[int], dim: int = 2) -> Invertible:
    """The gate `exp(-i theta G)` of a Hermitian matrix on a few sites of a register.

    Args:
        generator: the Hermitian matrix G, shape `(dim^k, dim^k)`, known to Python; the first site
            is the slowest index.
        sites: the k sites on which G acts, counted from the slowest index of the state.
        dim: the dimension of a site.

    Returns:
        The step and its inverse, for `reversible_scan`; the carry is a complex state of shape
        `(dim^n,)`, `x` the angle.

    Raises:
        ValueError: if `generator` is not Hermitian or does not have the shape of the sites.

    Derivatives:
        Those of the state and the angle.

    Cost:
        O(dim^(n + k)), each way. The error is that of rounding, without growth.

    Example:
        >>> import jax.numpy as jnp, numpy as np
        >>> from difflinalg import memory
        >>> x = np.array([[0.0, 1.0], [1.0, 0.0]])
        >>> step, _ = memory.local_gate(x, [1])
        >>> print(step(jnp.array([1.0 + 0j, 0.0, 0.0, 0.0]), jnp.pi / 2)[0].round(3) + 0.0)
        [0.+0.j 0.-1.j 0.+0.j 0.+0.j]

    References:
        Luo, Liu, Zhang and Wang, "Yao.jl: extensible, efficient framework for quantum algorithm
        design" (2020), section 3.2; arXiv:1912.10877.
    """
    matrix = np.asarray(generator)
    k = len(sites)
    checks.check_generator(matrix, dim**k)
    w, v = np.linalg.eigh(matrix)

    def apply(psi: Array, theta: Array) -> Array:
        count = checks.register_size(psi.shape, dim, sites)
        frame = jnp.asarray(v, psi.dtype)
        phases = jnp.exp(-1j * theta * w).astype(psi.dtype)
        gate = (frame * phases) @ frame.conj().T
        folded = jnp.moveaxis(psi.reshape((dim,) * count), tuple(sites), tuple(range(k)))
        turned = (gate @ folded.reshape(dim**k, -1)).reshape(folded.shape)
        return jnp.moveaxis(turned, tuple(range(k)), tuple(sites)).reshape(psi.shape)

    return _unitary(lambda psi, theta: apply(psi, jnp.asarray(theta)))
