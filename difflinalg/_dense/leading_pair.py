"""The largest singular value with its vectors, for the spectral norm.

Value. The leading eigenvector of the smaller Gram matrix G, by power iteration with G^8 and, as
long as it has not converged, with higher powers. It has converged when its residual is what a
full decomposition leaves; where the gap to the next value is too small for that, the full
decomposition takes over. Of all singular values only the largest may be taken from a Gram matrix:
it loses nothing by the square.

Rule. The leading columns of the rule of the singular value decomposition (`_dense.svd`).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from difflinalg._core import lapack, tolerances
from difflinalg._core.algebra import adjoint, mm
from difflinalg._core.operation import operation
from difflinalg._core.repair import repair_where
from difflinalg._dense.svd import svd_core, svd_tangents

SMALL = 32  # up to this size a full decomposition is as fast
PRODUCTS = 64  # with one power of G, between two tests
ROUNDS = 10  # the last one multiplies with G^(8 * 2^9)


@operation()
def leading_pair_core(a: Array) -> tuple[Array, Array, Array]:
    """`u`, `s`, `v` of the largest singular value, shapes `(..., m)`, `(...)`, `(..., n)`.

    The vectors of a zero matrix are zero.
    """
    if min(a.shape[-2:]) <= SMALL:
        return _by_svd(a)
    if a.shape[-2] > a.shape[-1]:
        v, s, u, converged = _by_powers(adjoint(a))
    else:
        u, s, v, converged = _by_powers(a)
    return repair_where(_by_svd, ~converged, (u, s, v), a)


def _by_svd(a: Array) -> tuple[Array, Array, Array]:
    return _first(*lapack.svd(a))


def _by_powers(a: Array) -> tuple[Array, Array, Array, Array]:
    """The leading triplet of wide matrices and whether it has converged."""
    flat = a.reshape(-1, *a.shape[-2:])
    result = jax.vmap(_one_by_powers)(flat)
    return jax.tree.map(lambda x: x.reshape(*a.shape[:-2], *x.shape[1:]), result)


def _one_by_powers(a: Array) -> tuple[Array, Array, Array, Array]:
    size = jnp.max(jnp.abs(a))
    scaled = a / jnp.where(size > 0, size, 1.0)
    gram = _normalised(mm(scaled, adjoint(scaled)))
    start = np.random.default_rng(0).standard_normal(a.shape[-2])
    rtol = tolerances.subspace_rtol(size.dtype)

    def converged(u: Array) -> Array:
        image = mm(gram, u[:, None])[:, 0]
        value = jnp.real(jnp.vdot(u, image))
        return _length(image - value * u) <= rtol * value

    def one_round(state):
        power, u, _, rounds = state
        power = lax.cond(rounds > 0, _squared, lambda p: p, power)
        u = lax.fori_loop(0, PRODUCTS, lambda _, x: _unit(mm(power, x[:, None])[:, 0]), u)
        return power, u, converged(u), rounds + 1

    def unfinished(state):
        return ~state[2] & (state[3] < ROUNDS)

    power = _squared(_squared(_squared(gram)))
    first = (power, jnp.asarray(start, a.dtype), jnp.array(False), 0)
    _, u, done, _ = lax.while_loop(unfinished, one_round, first)
    image = mm(u[None, :].conj(), scaled)[0].conj()
    length = _length(image)
    return u, length * size, image / length, done


def _squared(x: Array) -> Array:
    return _normalised(mm(x, x))


def _normalised(x: Array) -> Array:
    return x / jnp.trace(x)


def _unit(x: Array) -> Array:
    return x / _length(x)


def _length(x: Array) -> Array:
    return jnp.sqrt(jnp.real(jnp.vdot(x, x)))


def _first(u: Array, s: Array, vh: Array) -> tuple[Array, Array, Array]:
    s_1 = s[..., 0]
    alive = jnp.where(s_1 == 0, 0.0, 1.0).astype(s.dtype)[..., None]
    return u[..., :, 0] * alive, s_1, jnp.conj(vh[..., 0, :]) * alive


@leading_pair_core.defjvp
def _leading_pair_core_jvp(primals, tangents):
    (a,), (a_dot,) = primals, tangents
    factors = svd_core(a, False, 0, None)
    u_dot, s_dot, vh_dot = jax.checkpoint(svd_tangents)(*factors, a_dot)
    u, s, v = _first(*factors)
    # At zero the norm has a kink: no second derivative.
    defined = jnp.where(jnp.linalg.norm(a, axis=(-2, -1)) == 0, jnp.nan, 1.0)[..., None]
    v_dot = adjoint(vh_dot)[..., :, 0]
    return (u, s, v), (u_dot[..., :, 0] * defined, s_dot[..., 0], v_dot * defined)
