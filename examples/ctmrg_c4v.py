"""The corner transfer matrix of one tensor with the symmetry of the square lattice.

A network of one real tensor `a[u, l, d, r]`, the same under rotations and reflections of its legs
(a Boltzmann weight, or the double layer of a wave function), is surrounded by four corners
`C[i, j]` and four edges `E[i, j, u]`, both symmetric in their environment legs `i, j`:

    C - E - C
    |   |   |
    E - a - E
    |   |   |
    C - E - C

A step joins a corner, two edges and a tensor to `M`, keeps the leading space of `M`, frame `P`, and
renormalises: `C = P^T M P`, `E = P^T (E a) P`. It is repeated until the spectrum of `C` stands
still (Nishino and Okunishi 1996; Orus and Vidal 2009).

Derivatives are those of the fixed point, not of the iteration. Three things make them exact:
the derivative of the projector with its truncation term (`linalg.leading_space`); a gauge, an
orthogonal `u` with `u E' u^T = E`, computed from the very `E'` that is differentiated, and constant
in the derivative; and `implicit.fixed_point`, which checks that the fixed point is one.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from difflinalg import implicit, linalg


class Environment(NamedTuple):
    """Corner and edge, each of norm 1; rows and columns that are not needed are zero."""

    corner: Array  # (chi, chi)
    edge: Array  # (chi, chi, d)


class Info(NamedTuple):
    """How an environment was found."""

    converged: Array  # whether the spectrum stands still and the fixed point is one
    steps: Array  # of the corner transfer matrix
    change: Array  # of the corner spectrum in the last step
    residual: Array  # |f(x) - x| / |x| of the environment in its gauge
    kept: Array  # states kept, at most chi


class Options(NamedTuple):
    """Of the iteration and its derivative; hashable."""

    spectrum_tol: float = 1e-12
    max_steps: int = 3000
    # States closer than this, relative, are a multiplet: kept or dropped together. Multiplets
    # of the infinite lattice are split by the truncation itself, hence the size.
    multiplet_rtol: float = 1e-2
    fixed_point_rtol: float = 1e-11
    fixed_point_steps: int = 100
    solver_rtol: float = 1e-11


DEFAULTS = Options()
Step = Callable[[Any], tuple[Any, Array, Array]]  # an environment, its spectrum, states kept


def start(boundary: Array, chi: int) -> Environment:
    """The environment of a lattice that ends in `boundary` on every leg; grows to `chi`."""
    dtype, d = boundary.dtype, boundary.size
    edge = boundary / jnp.linalg.norm(boundary)
    return Environment(
        jnp.zeros((chi, chi), dtype).at[0, 0].set(1.0),
        jnp.zeros((chi, chi, d), dtype).at[0, 0].set(edge),
    )


def enlarged_corner(env: Environment, a: Array) -> Array:
    """`M`, shape `(chi d, chi d)`: a corner, its two edges and the tensor, `a` or an impurity.

    Rows are the cut below: environment leg and leg `d` of the tensor; columns the cut to the right.
    """
    chi, _, d = env.edge.shape
    top = jnp.einsum("ij,jku->iku", env.corner, env.edge)
    around = jnp.einsum("ilm,iku->lkmu", env.edge, top)
    return jnp.einsum("lkmu,umce->lcke", around, a).reshape(chi * d, chi * d)


def step(env: Environment, a: Array, multiplet_rtol: float) -> tuple[Environment, Array, Array]:
    """One step: the new environment, its corner spectrum, and the number of states kept."""
    chi, _, d = env.edge.shape
    m = enlarged_corner(env, a)
    space = linalg.leading_space(m, chi, keep_multiplets=True, multiplet_rtol=multiplet_rtol)
    frame = space.frame.reshape(chi, d, chi)
    half = jnp.einsum("jmp,jku->pmku", frame, env.edge)
    half = jnp.einsum("pmku,umce->pkce", half, a)
    edge = jnp.einsum("pkce,keq->pqc", half, frame)
    new = _normalised(Environment(space.frame.T @ m @ space.frame, edge))
    return new, space.values / jnp.linalg.norm(space.values), space.kept


def _normalised(env: Environment) -> Environment:
    """Symmetric to the last digit, and of norm 1."""
    corner, edge = (0.5 * (x + jnp.swapaxes(x, 0, 1)) for x in env)
    return Environment(corner / jnp.linalg.norm(corner), edge / jnp.linalg.norm(edge))


def gauge(old: Environment, new: Environment) -> Array:
    """The orthogonal `u` that turns `new` into `old`, where that is possible.

    `u` solves the linear equations `K u = u K'` for all matrices `K` of the environment. Their
    least-squares solution next to a first guess is found by conjugate gradients; no eigenvalue
    is compared with another, so that a degenerate corner is no difficulty.
    """
    olds, news = (jnp.concatenate([x.corner[None], x.edge.transpose(2, 0, 1)]) for x in (old, new))

    def amplify(_, g):
        g = jnp.einsum("aij,jk,alk->il", olds, g, news)
        return g / jnp.linalg.norm(g)

    guess = lax.fori_loop(0, 5, amplify, jnp.eye(old.corner.shape[0], dtype=old.corner.dtype))
    return lax.fori_loop(0, 2, lambda _, g: _intertwiner(olds, news, g), guess)


def _intertwiner(olds: Array, news: Array, guess: Array) -> Array:
    """The orthogonal factor of the solution of `K g = g K'` that is closest to `guess`."""
    diagonal = partial(jnp.diagonal, axis1=1, axis2=2)
    squares = jnp.sum(olds**2, (0, 1))[:, None] + jnp.sum(news**2, (0, 2))
    squares = squares - 2.0 * diagonal(olds).T @ diagonal(news)

    def mismatch(g):
        return olds @ g - g @ news

    def transposed(r):
        return jnp.einsum("aji,ajk->ik", olds, r) - jnp.einsum("aij,akj->ik", r, news)

    left, _, right = jnp.linalg.svd(closest_solution(mismatch, transposed, squares, guess))
    return left @ right


def closest_solution(mismatch, adjoint, squares: Array, guess: Array) -> Array:
    """The solution of `mismatch(g) = 0` closest to `guess`, by conjugate gradients.

    `squares` scales the unknowns: the squares of the columns of the matrix, or nearly so.
    """
    scale = jnp.where(squares > 0.0, 1.0 / jnp.sqrt(jnp.where(squares > 0.0, squares, 1.0)), 1.0)
    tiny = jnp.finfo(guess.dtype).eps

    def unfinished(state):
        h, r, _, slope, count = state
        norm = jnp.linalg.norm(r)
        return (norm > tiny * jnp.linalg.norm(h)) & (slope > 1e-16 * norm**2) & (count < 500)

    def descend(state):
        h, r, p, slope, count = state
        q = mismatch(scale * p)
        alpha = slope / jnp.sum(jnp.abs(q) ** 2)
        h, r = h + alpha * p, r - alpha * q
        z = scale * adjoint(r)
        new_slope = jnp.sum(jnp.abs(z) ** 2)
        return h, r, z + new_slope / slope * p, new_slope, count + 1

    r = -mismatch(guess)
    z = scale * adjoint(r)
    first = (guess / scale, r, z, jnp.sum(jnp.abs(z) ** 2), 0)
    return lax.while_loop(unfinished, descend, first)[0] * scale


def aligned_step(env: Environment, a: Array, multiplet_rtol: float) -> Environment:
    """A step whose result is turned into the gauge of `env`: a converged one is a fixed point."""
    new, _, _ = step(env, a, multiplet_rtol)
    u = lax.stop_gradient(gauge(env, new))
    turned = (u @ new.corner @ u.T, jnp.einsum("ip,pqc,jq->ijc", u, new.edge, u))
    return _normalised(Environment(*turned))


class _State(NamedTuple):
    env: Any
    spectrum: Array
    change: Array
    kept: Array
    steps: Array


def _iterate(step: Step, env: Any, options: Options) -> _State:
    """Steps until the corner spectrum stands still; not differentiated."""

    def unfinished(state: _State):
        return (state.change > options.spectrum_tol) & (state.steps < options.max_steps)

    def advance(state: _State) -> _State:
        env, spectrum, kept = step(state.env)
        change = jnp.linalg.norm(jnp.abs(spectrum) - jnp.abs(state.spectrum))
        return _State(env, spectrum, change, kept, state.steps + 1)

    nothing = jnp.zeros_like(env.corner[..., 0], jnp.finfo(env.corner.dtype).dtype)
    infinite = jnp.full((), jnp.inf, nothing.dtype)
    kept = jnp.zeros(env.corner.shape[:-2], jnp.int32)
    first = _State(env, nothing, infinite, kept, jnp.zeros((), jnp.int32))
    return lax.while_loop(unfinished, advance, first)


def converged(step: Step, aligned: Any, initial: Any, a: Array, options: Options):
    """The fixed point of `aligned(env, a)`, found with `step(env)`, and how it was found."""
    found = _iterate(step, lax.stop_gradient(initial), options)
    _raise_unless_still(found, options)
    still = found.change <= options.spectrum_tol
    # Of no use, and slow to be found out by a gauge that does not exist.
    last = jax.tree.map(lambda x: x * jnp.where(still, 1.0, jnp.nan), found.env)
    fixed = implicit.fixed_point(
        aligned,
        last,
        a,
        rtol=options.fixed_point_rtol,
        max_steps=options.fixed_point_steps,
        solver=implicit.GMRES(rtol=options.solver_rtol),
    )
    info = Info(
        still & fixed.info.converged,
        found.steps + fixed.info.steps,
        found.change,
        fixed.info.residual,
        found.kept,
    )
    return fixed.x, info


def _raise_unless_still(found: _State, options: Options) -> None:
    """An exception where the outcome is known, that is outside of jit."""
    if isinstance(found.change, jax.core.Tracer) or found.change <= options.spectrum_tol:
        return
    msg = (
        f"the corner spectrum still changes by {float(found.change):.1e} after {found.steps} "
        "steps; allow more max_steps"
    )
    raise implicit.NotConvergedError(msg, found.env, found)


def environment(
    a: Array, initial: Environment, options: Options = DEFAULTS
) -> tuple[Environment, Info]:
    """The converged environment of `a`, differentiable with respect to `a` to any order.

    Args:
        a: shape `(d, d, d, d)`, real, symmetric under rotations and reflections of its legs.
        initial: what the iteration starts from: `start(boundary, chi)`, or the environment of
            a similar tensor. It is not differentiated.
        options: tolerances and limits.

    Returns:
        The environment, and `Info`. An environment that has not converged is NaN, and outside
        of jit an exception (`implicit.NotConvergedError`).
    """
    check_symmetric(a)
    fixed = lax.stop_gradient(a)

    def advance(env):
        return step(env, fixed, options.multiplet_rtol)

    def aligned(env, a):
        return aligned_step(env, a, options.multiplet_rtol)

    return converged(advance, aligned, initial, a, options)


def unrolled(a: Array, initial: Environment, steps: int, options: Options = DEFAULTS):
    """The environment after `steps` steps, differentiated through every one of them.

    For comparison. `initial` is a converged environment: one that has not grown to its full size
    has values that are zero, which have no derivative.
    """

    def advance(env, _):
        return step(env, a, options.multiplet_rtol)[0], None

    return lax.scan(advance, initial, length=steps)[0]


def check_symmetric(a: Array) -> None:
    """Refuse a tensor without the symmetry of the square lattice, where its values are known."""
    if a.ndim != 4 or len(set(a.shape)) != 1 or jnp.iscomplexobj(a):
        msg = f"needs a real tensor of shape (d, d, d, d), got {a.shape} of {a.dtype}"
        raise ValueError(msg)
    if isinstance(a, jax.core.Tracer):
        return
    values = np.asarray(a)
    for axes in ((1, 2, 3, 0), (0, 3, 2, 1)):
        if np.max(np.abs(values - values.transpose(axes))) > 1e-6 * np.max(np.abs(values)):
            msg = (
                "the tensor is not symmetric under rotations and reflections of its legs; average "
                "it over them (symmetrized), or use the code for a general unit cell"
            )
            raise ValueError(msg)


def symmetrized(a: Array) -> Array:
    """The average over rotations and reflections of the last four legs (up, left, down, right)."""
    *front, u, _, _, _ = range(a.ndim)
    turns = [tuple((s * k + n) % 4 for k in range(4)) for s in (1, -1) for n in range(4)]
    return sum(a.transpose(*front, *(u + leg for leg in turn)) for turn in turns) / 8.0


def log_partition(env: Environment, a: Array) -> Array:
    """The logarithm of the partition function per site."""
    corner, edge = env
    two = corner @ corner
    row = jnp.einsum("ij,jku->iku", two, edge)
    bond = jnp.einsum("iku,kiu->", row, row)
    return jnp.log(site(env, a)) + jnp.log(jnp.sum(two**2)) - 2.0 * jnp.log(bond)


def site(env: Environment, a: Array) -> Array:
    """The contraction of one site `a` with its environment; ratios are expectation values."""
    chi, _, d = env.edge.shape
    m = enlarged_corner(env, a).reshape(chi, d, chi, d)
    half = jnp.einsum("ki,ije->kje", env.corner, env.edge)
    rest = jnp.einsum("kje,jmc->kemc", half, half)
    rest = jnp.einsum("kemc,ml->kelc", rest, env.corner)
    return jnp.einsum("lcke,kelc->", m, rest)
