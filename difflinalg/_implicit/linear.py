"""Linear solvers for the derivatives of implicit functions.

The unknown is a real vector (real and imaginary parts of complex numbers apart, so that functions
that are not holomorphic are differentiated rightly), the matrix a function. Every solver is a
frozen dataclass of its options; `linear_solve` checks the residual of what it returns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.linalg import solve_triangular
from jax.scipy.sparse.linalg import bicgstab

from difflinalg._core import tolerances

Operator = Callable[[Array], Array]
SLACK = 8.0  # between the residual that a solver keeps up to date and the true one


class LinearSolver(Protocol):
    """What `fixed_point` and `root` need of a solver; it must be hashable."""

    @property
    def rtol(self) -> float | None:
        """Relative residual at which to stop; `eps^(3/4)` if `None`."""
        ...

    def solve(self, matvec: Operator, b: Array, allowed: Operator) -> Array:
        """`x` with `|b - matvec(x)| <= allowed(x)`, as far as the solver gets."""
        ...


@dataclass(frozen=True)
class GMRES:
    """Restarted GMRES with full reorthogonalisation; the default.

    Args:
        rtol: relative residual at which to stop; `eps^(3/4)` by default.
        restart: dimension of the Krylov space, hence memory in vectors.
        max_restarts: after which the result is NaN.
    """

    rtol: float | None = None
    restart: int = 40
    max_restarts: int = 25

    def solve(self, matvec: Operator, b: Array, allowed: Operator) -> Array:
        """See `LinearSolver`."""
        restart = min(self.restart, b.size)

        def unfinished(state):
            x, r, cycle = state
            return (jnp.linalg.norm(r) > allowed(x)) & (cycle < self.max_restarts)

        def improve(state):
            x, r, cycle = state
            x = x + _gmres_cycle(matvec, r, restart, allowed(x))
            return x, b - matvec(x), cycle + 1

        start = (jnp.zeros_like(b), b, jnp.zeros((), jnp.int32))
        return lax.while_loop(unfinished, improve, start)[0]


@dataclass(frozen=True)
class BiCGStab:
    """Stabilised biconjugate gradients: memory of a few vectors, convergence not guaranteed.

    Args:
        rtol: relative residual at which to stop; `eps^(3/4)` by default.
        max_steps: after which the result is NaN.
    """

    rtol: float | None = None
    max_steps: int = 1000

    def solve(self, matvec: Operator, b: Array, allowed: Operator) -> Array:
        """See `LinearSolver`."""
        rtol = allowed(jnp.zeros_like(b)) / jnp.linalg.norm(b)
        return bicgstab(matvec, b, tol=rtol, maxiter=self.max_steps)[0]


@dataclass(frozen=True)
class Dense:
    """The matrix, column by column, and its LU factors: for a few hundred unknowns.

    Args:
        rtol: relative residual above which the result is NaN; `eps^(3/4)` by default.
    """

    rtol: float | None = None

    def solve(self, matvec: Operator, b: Array, allowed: Operator) -> Array:
        """See `LinearSolver`."""
        del allowed
        matrix = jax.vmap(matvec)(jnp.eye(b.size, dtype=b.dtype)).T
        return jnp.linalg.solve(matrix, b)


@dataclass(frozen=True)
class Neumann:
    """The series `x = b + J b + J^2 b + ...`, for fixed points of contractions.

    Args:
        rtol: relative residual at which to stop; `eps^(3/4)` by default.
        max_terms: after which the result is NaN.
    """

    rtol: float | None = None
    max_terms: int = 1000

    def solve(self, matvec: Operator, b: Array, allowed: Operator) -> Array:
        """See `LinearSolver`."""

        def unfinished(state):
            x, r, term = state
            return (jnp.linalg.norm(r) > allowed(x)) & (term < self.max_terms)

        def add(state):
            x, r, term = state
            return x + r, r - matvec(r), term + 1

        start = (jnp.zeros_like(b), b, jnp.zeros((), jnp.int32))
        return lax.while_loop(unfinished, add, start)[0]


def linear_solve(matvec: Operator, b: Array, solver: LinearSolver) -> Array:
    """Solve `matvec(x) = b`, differentiable to any order through `matvec` and `b`.

    NaN where the residual is larger than the tolerance of the solver times `|b| + |A| |x|`, with
    the growth of `b` as a lower bound of `|A|`.
    """
    rtol = tolerances.implicit_rtol(b.dtype) if solver.rtol is None else solver.rtol

    def solve(operator: Operator, rhs: Array) -> Array:
        largest = jnp.max(jnp.abs(rhs), initial=0.0)
        size = jnp.where(largest > 0.0, largest, 1.0)
        scaled = rhs / size
        norm = jnp.linalg.norm(scaled)
        growth = jnp.linalg.norm(operator(scaled)) / jnp.where(norm > 0.0, norm, 1.0)

        def allowed(x: Array) -> Array:
            return rtol * (norm + growth * jnp.linalg.norm(x))

        x = solver.solve(operator, scaled, allowed)
        residual = jnp.linalg.norm(scaled - operator(x))
        # The right-hand side zero has the solution zero, also where a solver divides by its norm.
        x = jnp.where(norm == 0.0, 0.0, jnp.where(residual <= SLACK * allowed(x), x, jnp.nan))
        return x * size

    return lax.custom_linear_solve(matvec, b, solve, transpose_solve=solve)


class _Arnoldi(NamedTuple):
    basis: Array  # (m + 1, n)
    triangle: Array  # (m, m), of the QR decomposition of the Hessenberg matrix
    rotation: Array  # (m + 1, m + 1), its Q^T
    step: Array


def _gmres_cycle(matvec: Operator, r: Array, m: int, target: Array) -> Array:
    """The correction of one cycle of GMRES to a residual `r` that is not zero."""
    beta = jnp.linalg.norm(r)

    def unfinished(state: _Arnoldi) -> Array:
        residual = beta * jnp.abs(state.rotation[state.step, 0])
        return (state.step < m) & (residual > target)

    def extend(state: _Arnoldi) -> _Arnoldi:
        basis, triangle, rotation, j = state
        w = matvec(basis[j])
        h = jnp.zeros(m + 1, w.dtype)
        for _ in range(2):  # the second time for orthogonality to rounding
            overlap = basis @ w
            w, h = w - overlap @ basis, h + overlap
        norm = jnp.linalg.norm(w)
        column = rotation @ h.at[j + 1].set(norm)
        rho = jnp.hypot(column[j], column[j + 1])
        c, s = column[j] / rho, column[j + 1] / rho
        upper, lower = rotation[j], rotation[j + 1]
        rotation = rotation.at[j].set(c * upper + s * lower)
        rotation = rotation.at[j + 1].set(c * lower - s * upper)
        kept = jnp.where(jnp.arange(m) < j, column[:m], 0.0).at[j].set(rho)
        basis = basis.at[j + 1].set(jnp.where(norm > 0.0, w / norm, 0.0))
        return _Arnoldi(basis, triangle.at[:, j].set(kept), rotation, j + 1)

    first = _Arnoldi(
        jnp.zeros((m + 1, r.size), r.dtype).at[0].set(r / beta),
        jnp.eye(m, dtype=r.dtype),
        jnp.eye(m + 1, dtype=r.dtype),
        jnp.zeros((), jnp.int32),
    )
    last = lax.while_loop(unfinished, extend, first)
    used = jnp.arange(m) < last.step
    g = jnp.where(used, beta * last.rotation[:m, 0], 0.0)
    return solve_triangular(last.triangle, g) @ last.basis[:m]
