"""The corner transfer matrix of a unit cell of tensors without any symmetry.

The network repeats a pattern of numbers, row by row: `cell = ((0, 1), (1, 0))` is a checkerboard
of two tensors. Number `s` stands for the tensor `a[s]`, real or complex, with legs `u, l, d, r` of
one dimension (smaller ones are filled up with zeros). Each has an environment of its own,

    C_0 - E_0 - C_3
     |     |     |
    E_1 -  a  - E_3
     |     |     |
    C_1 - E_2 - C_2

with the legs of corners and edges in the order of the circle E_0, C_0, E_1, C_1, ... View `k` is
the network turned such that `E_k` is on top; what is said about view 0 holds in all of them, and
every array has the views as its first axis and the sites as its second.

A step cuts the network above each site and to its right: the corner `M_0` to the left of a cut
(an enlarged corner: corner, two edges and site) and `M_3` to the right are joined in a matrix
`A = M_3 M_0`, or with the two below them in `A = (M_2 M_3) (M_0 M_1)`. With its leading singular
triplets, `P = M_0 V S^(-1/2)` and `Q = S^(-1/2) U^H M_3` are the two halves of a projector `P Q` at
the cut (Corboz, Rice and Troyer 2014; Fishman, Vanderstraeten, Zauner-Stauber, Haegeman and
Verstraete 2018). All sites are absorbed in all directions at once.

Derivatives are those of the fixed point. The frames `U` and `V` follow the leading spaces without
turning inside of them, so that no gap between kept values matters. Every bond of the environment
is turned by a unitary matrix, and every tensor multiplied by a number, such that a step reproduces
its input; both are constant in the derivative.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ctmrg_c4v import Info, closest_solution, converged
from ising_trg import square_root
from jax import Array, lax

from difflinalg import linalg

Cell = tuple[tuple[int, ...], ...]


class Environment(NamedTuple):
    """Corners and edges, each of norm 1; rows and columns that are not needed are zero."""

    corner: Array  # (4, n, chi, chi)
    edge: Array  # (4, n, chi, d, chi)


class Options(NamedTuple):
    """Of the iteration and its derivative; hashable."""

    spectrum_tol: float = 1e-12
    max_steps: int = 3000
    multiplet_rtol: float = 1e-11  # of the singular values of a cut, relative to the largest
    fixed_point_rtol: float = 1e-10
    fixed_point_steps: int = 100
    # The projectors of a state of singular value s, relative, have an error of eps / s.
    smallest: float = 1e-8
    solver_rtol: float = 1e-8
    four_corners: bool = False  # in the matrix that is cut, or the two next to the cut


DEFAULTS = Options()


def neighbours(cell: Cell) -> np.ndarray:
    """The sites above, left, below and right of each, shape `(4, n)`; `ValueError` if ambiguous."""
    pattern = np.asarray(cell)
    count = pattern.max() + 1
    table = np.full((4, count), -1)
    for k, (shift, axis) in enumerate(((1, 0), (1, 1), (-1, 0), (-1, 1))):
        table[k, pattern] = np.roll(pattern, shift, axis)
        if np.any(table[k, pattern] != np.roll(pattern, shift, axis)):
            msg = f"a site of the cell {cell} has different neighbours in different places"
            raise ValueError(msg)
    if np.any(table < 0) or pattern.min() < 0:
        msg = f"the cell {cell} does not contain all numbers from 0 to {count - 1}"
        raise ValueError(msg)
    return table


class _Lattice(NamedTuple):
    table: np.ndarray  # of `neighbours`

    def turned(self, x: Array, by: int) -> Array:
        """What view `k + by` has, in view `k`."""
        return jnp.roll(x, -by, axis=0)

    def at(self, x: Array, *directions: int) -> Array:
        """What the neighbour has: 0 above, 1 left, 2 below, 3 right as seen in each view."""
        for direction in directions:
            x = x[np.arange(4)[:, None], np.roll(self.table, -direction, axis=0)]
        return x

    def views(self, a: Array) -> Array:
        """Tensors of shape `(n, d, d, d, d)` in all views."""
        turns = [tuple(1 + (k + leg) % 4 for leg in range(4)) for k in range(4)]
        return jnp.stack([a.transpose(0, *turn) for turn in turns])


def lattice(cell: Cell, a: Array) -> _Lattice:
    """The lattice of a cell; `ValueError` if the tensors do not fit."""
    table = neighbours(cell)
    if a.ndim != 5 or a.shape[0] != table.shape[1] or len(set(a.shape[1:])) != 1:
        msg = (
            f"needs {table.shape[1]} tensors, an array of shape ({table.shape[1]}, d, d, d, d), "
            f"got {a.shape}"
        )
        raise ValueError(msg)
    return _Lattice(table)


def start(a: Array, boundary: Array, chi: int) -> Environment:
    """The environment of a lattice that ends in `boundary` on every leg; grows to `chi`.

    Args:
        a: the tensors, shape `(n, d, d, d, d)`.
        boundary: a vector, shape `(d,)`, or one for each direction and site, shape `(4, n, d)`.
        chi: dimension of the environment.
    """
    n, d = a.shape[:2]
    dtype = jnp.result_type(a, boundary)
    vectors = jnp.broadcast_to(boundary, (4, n, d))
    vectors = vectors / jnp.linalg.norm(vectors, axis=-1, keepdims=True)
    return Environment(
        jnp.zeros((4, n, chi, chi), dtype).at[:, :, 0, 0].set(1.0),
        jnp.zeros((4, n, chi, d, chi), dtype).at[:, :, 0, :, 0].set(vectors),
    )


def enlarged_corners(env: Environment, a: Array, cell: Cell) -> Array:
    """`M`, shape `(4, n, chi d, chi d)`: a corner, its two edges and the site.

    Rows are the cut to the right: environment leg and leg `r`; columns the cut below.
    """
    here = lattice(cell, a)
    _, n, chi, d, _ = env.edge.shape
    top = jnp.einsum("zsiuj,zsjk->zsiuk", env.edge, env.corner)
    around = jnp.einsum("zsiuk,zsklm->zsiulm", top, here.turned(env.edge, 1))
    m = jnp.einsum("zsiulm,zsuldr->zsirmd", around, here.views(a))
    return m.reshape(4, n, chi * d, chi * d)


def projectors(m: Array, here: _Lattice, chi: int, options: Options):
    """`P`, `Q` of the cut to the right of each site, its singular values, and how many are kept."""
    left, right = m, here.at(here.turned(m, 3), 3)
    if options.four_corners:
        left = left @ here.at(here.turned(m, 1), 2)
        right = here.at(here.turned(m, 2), 3, 2) @ right
    u, s, vh, _ = linalg.svd_trunc(
        (right, left),
        chi,
        full=True,
        keep_multiplets=True,
        multiplet_rtol=options.multiplet_rtol,
        cluster_rtol=np.inf,
    )
    s = lax.stop_gradient(s)
    live = s > options.smallest * s[..., :1]
    both = live[..., :, None] & live[..., None, :]
    u, v = jnp.where(live[..., None, :], u, 0.0), jnp.where(live[..., None, :], _adjoint(vh), 0.0)
    from_right, from_left = _adjoint(u) @ right, left @ v
    core = (from_right @ from_left) / s[..., :1, None]
    core = jnp.where(both, core, jnp.eye(chi, dtype=core.dtype))
    inverse = jnp.linalg.inv(jax.vmap(jax.vmap(square_root))(core))
    return from_left @ inverse, inverse @ from_right, s, jnp.sum(live, -1).astype(jnp.int32)


def step(env: Environment, a: Array, cell: Cell, options: Options):
    """One step: the new environment, the spectra of its cuts, and the numbers of states kept."""
    here = lattice(cell, a)
    _, n, chi, d, _ = env.edge.shape
    m = enlarged_corners(env, a, cell)
    p, q, s, kept = projectors(m, here, chi, options)
    corner = q @ m @ here.at(here.turned(p, 1), 2)
    q = q.reshape(4, n, chi, chi, d)
    p = here.at(p, 1).reshape(4, n, chi, d, chi)
    half = jnp.einsum("zspir,zsiuj->zsprju", q, env.edge)
    half = jnp.einsum("zsprju,zsuldr->zspdjl", half, here.views(a))
    edge = jnp.einsum("zspdjl,zsjlq->zspdq", half, p)
    new = Environment(here.at(corner, 1, 0), here.at(edge, 0))
    new = Environment(*(x / _norm(x, 2) for x in new))
    return new, s / _norm(s, 2), kept


def _norm(x: Array, first: int) -> Array:
    """The norms over the axes from `first` on, which remain with length 1."""
    axes = tuple(range(first, x.ndim))
    return jnp.sqrt(jnp.sum(jnp.abs(x) ** 2, axes, keepdims=True))


def _overlap(x: Array, y: Array) -> Array:
    """The inner products of the tensors of two environments."""
    return jnp.sum(jnp.conj(x) * y, tuple(range(2, x.ndim)), keepdims=True)


def _adjoint(x: Array) -> Array:
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def gauge(old: Environment, new: Environment, here: _Lattice) -> Array:
    """Unitary `g[k, s]`, at the right end of each edge, that turn `new` into `old`.

    Where that is possible, `E g_left = g E'` holds for all edges, up to a factor. The iteration
    `g = E g_left E'^H` converges to a positive matrix times the solution; the least-squares
    solution next to that is found by conjugate gradients. No two values are compared, so that
    degenerate spectra are no difficulty.
    """
    e, f = old.edge, new.edge

    def amplify(_, g):
        g = jnp.einsum("zsiuj,zsjk,zsluk->zsil", e, here.at(g, 1), jnp.conj(f))
        return g / _norm(g, 2)

    def closest(_, guess):
        g = _unitary_factor(guess)
        factor = _overlap(e, _turned_edges(f, g, here))
        scaled = f * jnp.conj(factor / jnp.abs(factor))

        def mismatch(g):
            before = jnp.einsum("zsiuj,zsjk->zsiuk", e, here.at(g, 1))
            return before - jnp.einsum("zsij,zsjuk->zsiuk", g, scaled)

        def adjoint(r):
            before = here.at(jnp.einsum("zsiuj,zsiuk->zsjk", jnp.conj(e), r), 3)
            return before - jnp.einsum("zsiuk,zsjuk->zsij", r, jnp.conj(scaled))

        rows = here.at(jnp.sum(jnp.abs(e) ** 2, (2, 3)), 3)
        squares = rows[..., :, None] + jnp.sum(jnp.abs(f) ** 2, (3, 4))[..., None, :]
        return closest_solution(mismatch, adjoint, squares, g)

    one = jnp.broadcast_to(jnp.eye(e.shape[-1], dtype=e.dtype), old.corner.shape)
    guess = lax.fori_loop(0, 10, amplify, one)
    return _unitary_factor(lax.fori_loop(0, 2, closest, guess))


def _unitary_factor(x: Array) -> Array:
    left, _, right = jnp.linalg.svd(x)
    return left @ right


def _turned_edges(edge: Array, g: Array, here: _Lattice) -> Array:
    return jnp.einsum("zsij,zsjuk,zslk->zsiul", g, edge, jnp.conj(here.at(g, 1)))


def aligned_step(env: Environment, a: Array, cell: Cell, options: Options) -> Environment:
    """A step whose result is turned into the gauge of `env`: a converged one is a fixed point.

    The factor of each tensor, in modulus and phase, makes its overlap with that of `env` 1.
    """
    here = lattice(cell, a)
    new, _, _ = step(env, a, cell, options)
    old = lax.stop_gradient(env)
    g = lax.stop_gradient(gauge(old, new, here))
    corner = here.at(g, 1) @ new.corner @ _adjoint(here.turned(g, 1))
    turned = Environment(corner, _turned_edges(new.edge, g, here))
    return Environment(
        *(y * (_overlap(x, x) / _overlap(x, y)) for x, y in zip(old, turned, strict=True))
    )


def environment(
    a: Array, initial: Environment, cell: Cell = ((0,),), options: Options = DEFAULTS
) -> tuple[Environment, Info]:
    """The converged environment of a unit cell, differentiable with respect to `a` to any order.

    Args:
        a: shape `(n, d, d, d, d)`, real or complex, legs up, left, down and right.
        initial: what the iteration starts from: `start(a, boundary, chi)`, or the environment of
            similar tensors. It is not differentiated.
        cell: rows of numbers from 0 to `n - 1`, the pattern that fills the plane.
        options: tolerances and limits.

    Returns:
        The environment, and `Info`; `kept` has shape `(4, n)`. An environment that has not
        converged is NaN, and outside of jit an exception (`implicit.NotConvergedError`).
    """
    lattice(cell, a)
    fixed = lax.stop_gradient(a)

    def advance(env):
        return step(env, fixed, cell, options)

    def aligned(env, a):
        return aligned_step(env, a, cell, options)

    return converged(advance, aligned, initial, a, options)


def site(env: Environment, a: Array, cell: Cell = ((0,),)) -> Array:
    """The contraction of each site with its environment, shape `(n,)`.

    Ratios are expectation values: `site(env, impurity, cell) / site(env, a, cell)`.
    """
    m = enlarged_corners(env, a, cell)[0]
    _, n, chi, d, _ = env.edge.shape
    (_, c1, c2, c3), (_, _, e2, e3) = env.corner, env.edge
    left = jnp.einsum("smn,sndx,sxy->smdy", c1, e2, c2)
    rest = jnp.einsum("smdy,syrz,szi->smdir", left, e3, c3).reshape(n, chi * d, chi * d)
    return jnp.einsum("sij,sji->s", m, rest)


def log_partition(env: Environment, a: Array, cell: Cell = ((0,),)) -> Array:
    """The logarithm of the partition function per site."""
    here = lattice(cell, a)
    c, e = env
    c1, c2, c3 = (here.turned(c, k) for k in (1, 2, 3))
    top = jnp.einsum("zsiuj,zsjk->zsiuk", e, c)
    bottom = jnp.einsum("zsnux,zsxy->zsnuy", here.turned(e, 2), c2)
    bottom = here.at(jnp.einsum("zskn,zsnuy->zskuy", c1, bottom), 0)
    bonds = jnp.einsum("zsiuk,zskuy,zsyi->zs", top, bottom, c3)
    points = jnp.einsum(
        "sij,sjk,skl,sli->s",
        *(x[0] for x in (c, here.at(c1, 0), here.at(c2, 0, 1), here.at(c3, 1))),
    )
    values = site(env, a, cell) * points / (bonds[0] * bonds[1])
    return jnp.mean(jnp.log(values))


def patches(corners: tuple[Array, Array, Array, Array], cell: Cell, a: Array) -> Array:
    """The contraction of 2 x 2 sites from enlarged corners, shape `(4, n)`.

    Args:
        corners: `enlarged_corners` of tensors or impurities: of each site, and of those below it,
            below and to the right, and to the right, as seen in each view.
        cell: the pattern.
        a: the tensors.
    """
    here = lattice(cell, a)
    m0, m1, m2, m3 = (here.turned(m, k) for k, m in enumerate(corners))
    left = m0 @ here.at(m1, 2)
    right = here.at(m2, 2, 3) @ here.at(m3, 3)
    return jnp.einsum("zsij,zsji->zs", left, right)
