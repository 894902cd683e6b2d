"""A function of pytrees, seen along fixed directions and through one fixed covector.

With `<c, y> = Re sum(c * y)`, the pairing of JAX's cotangents (they are conjugated, so nothing is
conjugated here), the probe of f at x is the real function `g(t) = <c, f(x + sum_i t_i d_i)>`. It
is kept as a list of *terms* whose sum is g. Differentiating in forward mode gives terms again,

    fwd:  terms'(x) = d terms(x) . d_i                    (sum: <c, J d>)
    rev:  terms'(x) = Re(J^T c * d_i)                     (sum: <J^T c, d>)

so modes can be nested in any order, the transpose test is the comparison of two nestings, and
the sum of |terms| is the scale against which rounding is to be measured.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from difflinalg._testing.differences import Evaluation

BALANCE = 1e-3
"""Outputs are weighted by the inverse of their size, those below this fraction of the largest as
if they had that size: an output that is zero but for rounding must not drown the others."""

FIRST_STEP = 0.25
"""The largest step for one entry; times `N^(1/4)` for N. A random direction of unit 2-norm moves
each entry by `N^(-1/2)`, the norm of a square matrix by `2 N^(-1/4)`; so the latter by one half."""

Leaves = list[Array]
Terms = Callable[[Leaves], Leaves]


class Probe(NamedTuple):
    """`terms` at `leaves` (the inexact leaves of the arguments), one direction for each order.

    `largest` is the largest step along a direction.
    """

    terms: Terms
    leaves: Leaves
    directions: list[Leaves]
    epsilon: float
    largest: float


def _is_inexact(leaf: Any) -> bool:
    return not isinstance(leaf, str) and jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)


def _inexact_leaves(tree: Any) -> Leaves:
    return [jnp.asarray(leaf) for leaf in jax.tree.leaves(tree) if _is_inexact(leaf)]


def _normals(rng: np.random.Generator, leaves: Leaves) -> list[np.ndarray]:
    """Normal entries, complex where the leaf is, with unit 2-norm over all leaves together."""
    draws = []
    for leaf in leaves:
        draw = rng.standard_normal(leaf.shape)
        if jnp.iscomplexobj(leaf):
            draw = draw + 1j * rng.standard_normal(leaf.shape)
        draws.append(np.asarray(draw))
    norm = np.sqrt(sum(np.sum(abs(draw) ** 2) for draw in draws))
    return [draw / max(norm, np.finfo(float).tiny) for draw in draws]


def _magnitude(leaf: Array) -> float:
    return float(np.max(abs(np.asarray(leaf)), initial=0.0))


def _length(leaf: Array) -> float:
    """The scale on which an argument is moved; what is zero or mere rounding is moved by one."""
    magnitude = _magnitude(leaf)
    return magnitude if magnitude > float(jnp.finfo(leaf.dtype).eps) else 1.0


def _scaled(draws: Sequence[np.ndarray], leaves: Leaves, scales: Sequence[float]) -> Leaves:
    return [
        jnp.asarray((draw * scale).astype(leaf.dtype))
        for draw, leaf, scale in zip(draws, leaves, scales, strict=True)
    ]


def make_probe(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    order: int,
    seed: int,
    step: float | None,
    jit: bool,
) -> Probe:
    """The probe of `f` at `args`; leaves that are not floating or complex are held constant.

    A direction has the size of the largest entry of each argument (one, where that is below
    epsilon), so that steps are relative; the covector is inverse to the size of each output.
    Another `step` than the default rescales the directions, hence all that is measured in them.
    """
    given, structure = jax.tree.flatten(args)
    moving = [index for index, leaf in enumerate(given) if _is_inexact(leaf)]
    leaves = [jnp.asarray(given[index]) for index in moving]
    if not leaves:
        msg = (
            "check_derivatives needs at least one floating or complex array in args; "
            f"got leaves {[type(leaf).__name__ for leaf in given]}."
        )
        raise ValueError(msg)

    def outputs(leaves: Leaves) -> Leaves:
        filled = list(given)
        for index, leaf in zip(moving, leaves, strict=True):
            filled[index] = leaf
        return _inexact_leaves(f(*jax.tree.unflatten(structure, filled)))

    results = (jax.jit(outputs) if jit else outputs)(leaves)
    if not results:
        msg = "check_derivatives needs a function that returns a floating or complex array."
        raise ValueError(msg)
    rng = np.random.default_rng(seed)
    sizes = [_magnitude(leaf) for leaf in results]
    floor = BALANCE * max(sizes) or 1.0
    weights = [1.0 / max(size, floor) for size in sizes]
    covector = _scaled(_normals(rng, results), results, weights)
    largest = FIRST_STEP * max(sum(leaf.size for leaf in leaves), 1) ** 0.25
    stretch = 1.0 if step is None else step / largest
    scales = [stretch * _length(leaf) for leaf in leaves]
    directions = [_scaled(_normals(rng, leaves), leaves, scales) for _ in range(order)]

    def terms(leaves: Leaves) -> Leaves:
        pairs = zip(covector, outputs(leaves), strict=True)
        return [jnp.real(weight * output) for weight, output in pairs]

    epsilon = max(float(jnp.finfo(leaf.dtype).eps) for leaf in leaves + results)
    return Probe(terms, leaves, directions, epsilon, largest)


def differentiate(mode: str, terms: Terms, direction: Leaves) -> Terms:
    """The terms of the derivative along `direction`, in forward or in reverse mode."""
    if mode == "fwd":
        return lambda leaves: jax.jvp(terms, (leaves,), (direction,))[1]

    def reverse(leaves: Leaves) -> Leaves:
        values, pullback = jax.vjp(terms, leaves)
        (gradient,) = pullback([jnp.ones_like(value) for value in values])
        return [jnp.real(g * d) for g, d in zip(gradient, direction, strict=True)]

    return reverse


def evaluation(probe: Probe, functions: Sequence[Terms], jit: bool) -> Evaluation:
    """One program for the sums and the sizes of several lists of terms at displaced arguments."""

    def displaced(offsets: Array) -> Leaves:
        leaves = list(probe.leaves)
        for t, direction in zip(offsets, probe.directions, strict=True):
            leaves = [
                x + t.astype(jnp.real(x).dtype) * d for x, d in zip(leaves, direction, strict=True)
            ]
        joined = [function(leaves) for function in functions]
        return [jnp.concatenate([jnp.ravel(term) for term in terms]) for terms in joined]

    program = jax.jit(displaced) if jit else displaced

    def evaluate(offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        vectors = [np.asarray(vector, dtype=float) for vector in program(jnp.asarray(offsets))]
        with np.errstate(invalid="ignore", over="ignore"):
            sums = np.array([np.sum(vector) for vector in vectors])
            sizes = np.array([np.sum(abs(vector)) for vector in vectors])
        return sums, sizes

    return evaluate
