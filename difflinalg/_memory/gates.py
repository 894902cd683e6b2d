"""Parametrised unitary gates `exp(-i theta G)` on state vectors; the inverse is `-theta`.

An involution, `S^2 = 1`, gives `cos(theta) - i sin(theta) S`; a diagonal generator gives phases;
any small Hermitian matrix on a few sites is diagonalised once, when the gate is made.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import Tracer
from jax.typing import ArrayLike

from difflinalg._core import loop_checks
from difflinalg._memory.invertible import Invertible, UndoableStep


def _unitary(
    apply: Callable[[Array, Array], Array], undo: Callable[..., Any] | None = None
) -> Invertible:
    """The gate `apply(psi, theta)`; `undo(psi, theta, psi_bar)` if it has a short way back."""

    def step(psi: Array, theta: ArrayLike) -> tuple[Array, None]:
        return apply(psi, loop_checks.as_angle(theta)), None

    def inverse(psi: Array, theta: ArrayLike) -> Array:
        return apply(psi, -loop_checks.as_angle(theta))

    return Invertible(step if undo is None else UndoableStep(step, undo), inverse)


def involution_gate(involution: Callable[[Array], Array]) -> Invertible:
    """The gate `exp(-i theta S) = cos(theta) - i sin(theta) S` with `S^2 = 1`.

    Args:
        involution: the action of S on a state, linear, Hermitian and its own inverse; for
            example a string of Pauli matrices.

    Returns:
        The step and its inverse, for `reversible_scan`; the carry is a complex state, `x` the
        angle.

    Raises:
        TypeError: when called, if the angle is complex.

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

    def combine(psi: Array, image: Array, theta: Array, sign: float) -> Array:
        """`cos(theta) psi - sign i sin(theta) image`."""
        c, s = (f(theta).astype(psi.real.dtype) for f in (jnp.cos, jnp.sin))
        s = sign * s
        return lax.complex(c * psi.real + s * image.imag, c * psi.imag - s * image.real)

    def apply(psi: Array, theta: Array) -> Array:
        # Without the barrier the compiler merges gates and computes each entry many times.
        psi = lax.optimization_barrier(psi)
        return combine(psi, involution(psi), theta, 1.0)

    def undo(psi: Array, theta: Array, psi_bar: Array) -> tuple[Array, Array, Array]:
        # dU/dtheta at the old state is -i S at the new one; the transpose of S is its conjugate.
        psi, psi_bar = lax.optimization_barrier((psi, psi_bar))
        image = lax.optimization_barrier(involution(psi))
        theta_bar = jnp.sum(psi_bar.real * image.imag + psi_bar.imag * image.real)
        image_bar = jnp.conj(involution(jnp.conj(psi_bar)))
        new_bar = combine(psi_bar, image_bar, theta, 1.0)
        return combine(psi, image, theta, -1.0), new_bar, theta_bar.astype(theta.dtype)

    return _unitary(apply, undo)


def diagonal_gate(diagonals: ArrayLike) -> Invertible:
    """The gate `exp(-i sum_k theta_k D_k)` of commuting diagonal generators.

    Args:
        diagonals: the real diagonals `D_k`, shape `(K, n)`, or one of shape `(n,)`.

    Returns:
        The step and its inverse, for `reversible_scan`; the carry is a complex state of shape
        `(n,)`, `x` the angles of shape `(K,)`, or one angle.

    Raises:
        TypeError: if `diagonals` or, when called, an angle is complex.
        ValueError: if `diagonals` is neither a vector nor a matrix.

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
    table = loop_checks.as_diagonals(diagonals)
    values, places = _distinct(table)

    def factor(psi: Array, theta: Array) -> Array:
        angle = jnp.tensordot(jnp.atleast_1d(theta), values, 1).astype(psi.real.dtype)
        phases = lax.complex(jnp.cos(angle), -jnp.sin(angle))
        return phases if places is None else phases[places]

    def undo(psi: Array, theta: Array, psi_bar: Array) -> tuple[Array, Array, Array]:
        # dU/dtheta at the old state is -i D at the new one.
        phases = lax.optimization_barrier(factor(psi, theta))
        weight = psi_bar.real * psi.imag + psi_bar.imag * psi.real
        theta_bar = jnp.tensordot(table, weight, 1).astype(theta.dtype)
        return psi * jnp.conj(phases), psi_bar * phases, theta_bar

    return _unitary(lambda psi, theta: psi * factor(psi, theta), undo)


def _distinct(table: Array | np.ndarray) -> tuple[Array | np.ndarray, np.ndarray | None]:
    """The distinct columns and where they stand, if that saves most of the phases."""
    if isinstance(table, Tracer):
        return jnp.atleast_2d(table), None
    rows = np.atleast_2d(table)
    values, places = np.unique(rows, axis=1, return_inverse=True)
    if 4 * values.shape[1] > rows.shape[1]:
        return rows, None
    return values, places.ravel().astype(np.int32)


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
        TypeError: if `generator` is traced, `sites` is not a sequence or, when called, the angle
            is complex.
        ValueError: if `generator` is not finite and Hermitian, or does not have the shape of the
            sites.

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
    sites = loop_checks.as_sites(sites)
    matrix, k = loop_checks.as_generator(generator), len(sites)
    loop_checks.check_generator(matrix, dim**k)
    w, v = np.linalg.eigh(matrix)

    def apply(psi: Array, theta: Array) -> Array:
        count = loop_checks.register_size(psi.shape, dim, sites)
        frame = jnp.asarray(v, psi.dtype)
        phases = jnp.exp(-1j * theta * w).astype(psi.dtype)
        gate = (frame * phases) @ frame.conj().T
        folded = jnp.moveaxis(psi.reshape((dim,) * count), sites, tuple(range(k)))
        turned = (gate @ folded.reshape(dim**k, -1)).reshape(folded.shape)
        return jnp.moveaxis(turned, tuple(range(k)), sites).reshape(psi.shape)

    return _unitary(apply)
