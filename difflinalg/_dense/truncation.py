"""What truncated decompositions share: options, the choice of the kept columns, the info."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from difflinalg._core import checks, dense_checks, tolerances
from difflinalg._dense.subspace import Block

LAPACK_SERIAL = 64  # matrices up to this size are not worth a second thread to LAPACK


class TruncationInfo(NamedTuple):
    """What a truncation dropped, and how it was computed; arrays of shape `(...)`."""

    error: Array  # Frobenius norm of the dropped part
    kept: Array  # number of values kept; below the rank where `keep_multiplets` dropped some
    gap: Array  # (last kept - first dropped magnitude) / largest
    cut: Array  # whether a multiplet was cut: then the derivative of the vectors is NaN
    rounds: Array  # rounds of subspace iteration; 0 for a full decomposition, also as a fallback


@dataclass(frozen=True)
class Truncation:
    """Static options of a truncated decomposition."""

    rank: int
    width: int  # of the block, kept and leading dropped vectors together
    max_products: int  # in a round of subspace iteration; 0 chooses the full decomposition
    keep_multiplets: bool
    multiplet_rtol: float | None = None
    cluster_rtol: float | None = None


class Deflation(NamedTuple):
    """The block that preconditions a rule, and masks; never differentiated, all floating."""

    uh: Array  # (b, m)
    s: Array  # (b,), sorted by decreasing magnitude
    vh: Array  # (b, n)
    dropped: Array  # (b,), 1 for the accurate dropped vectors
    kept: Array  # (k,), 1 for the kept ones
    guard: Array  # (k,), NaN for the kept members of a cut multiplet, else 1
    floor: Array  # (), the magnitude below which a value counts as zero
    cluster: Array  # (), the gap up to which kept values are one cluster
    rounds: Array  # ()


def truncation(
    name: str,
    rank: int,
    limit: int,
    full: bool | None,
    keep_multiplets: bool,
    multiplet_rtol: float | None,
    cluster_rtol: float | None = None,
) -> Truncation:
    """Options for keeping `rank` of `limit` values, in a block of up to three times as many.

    The width trades the cost of a product for convergence: the error of the iteration, and of
    the solve in its rule, falls by the ratio of the last value in the block to the last kept.
    A block beyond `LAPACK_SERIAL` makes the small decompositions wait for threads.
    """
    rank = dense_checks.check_rank(name, rank, limit)
    if full is None:
        full = limit < 64 or 9 * rank > limit
    width = min(limit, 3 * rank if 3 * rank <= LAPACK_SERIAL else max(LAPACK_SERIAL, 2 * rank))
    products = 0 if full else max(8, limit // width)
    multiplet_rtol = checks.check_tolerance(name, "multiplet_rtol", multiplet_rtol)
    cluster_rtol = checks.check_tolerance(name, "cluster_rtol", cluster_rtol)
    return Truncation(rank, width, products, bool(keep_multiplets), multiplet_rtol, cluster_rtol)


def truncate(block: Block, spec: Truncation, level: int, size: int, limit: int) -> Deflation:
    """Decide what a truncation of `block` keeps.

    `level` is the number of rules above, `limit` the number of values that the matrix has, `size`
    sets the scale of rounding. A
    multiplet is cut if the value that follows the last kept one equals it. The kept part then
    ends at the last boundary between unequal values, or the derivative is guarded with NaN.
    """
    k, dtype = spec.rank, block.s.dtype
    magnitude = jnp.abs(block.s)
    floor = tolerances.rank_rtol(dtype, size) * magnitude[0]
    rtol = spec.multiplet_rtol
    if rtol is None:
        rtol = tolerances.multiplet_rtol(dtype)
    cluster = spec.cluster_rtol
    if cluster is None:
        cluster = tolerances.cluster_rtol(dtype, max(level - 1, 0))
    following = jnp.concatenate([magnitude[1:], jnp.full((1,), -jnp.inf, dtype)])
    bound = (magnitude - following > rtol * magnitude[0]) | (magnitude <= floor)
    if k == limit:
        bound = bound.at[k - 1].set(True)
    index = jnp.arange(k)
    is_cut = (index >= jnp.max(jnp.where(bound[:k], index + 1, 0))) & ~bound[k - 1]
    kept = ~is_cut if spec.keep_multiplets else jnp.ones_like(is_cut)
    guard = jnp.where(is_cut & kept, jnp.nan, 1.0).astype(dtype)
    dropped = jnp.concatenate([~kept, jnp.ones((spec.width - k,), bool)]) & (magnitude > floor)
    return Deflation(
        block.uh,
        block.s,
        block.vh,
        dropped.astype(dtype),
        kept.astype(dtype),
        guard,
        floor,
        cluster * magnitude[0],
        block.rounds,
    )


def truncation_info(rest: Array, values: Array, deflation: Deflation) -> TruncationInfo:
    """Info of a truncation from the dropped part `rest` and the kept `values`."""
    size = jnp.abs(lax.stop_gradient(values))
    last_kept = jnp.min(jnp.where(deflation.kept > 0.0, size, jnp.inf))
    first_dropped = jnp.max(jnp.abs(deflation.s) * deflation.dropped)
    scale = jnp.abs(deflation.s[0])
    rest = lax.stop_gradient(rest)
    largest = jnp.maximum(jnp.max(jnp.abs(rest)), jnp.finfo(scale.dtype).tiny)
    return TruncationInfo(
        error=largest * jnp.linalg.norm(rest / largest),  # no square out of range
        kept=jnp.sum(deflation.kept).astype(jnp.int32),
        gap=(last_kept - first_dropped) / jnp.where(scale > 0.0, scale, 1.0),
        cut=jnp.any(jnp.isnan(deflation.guard)),
        rounds=deflation.rounds.astype(jnp.int32),
    )
