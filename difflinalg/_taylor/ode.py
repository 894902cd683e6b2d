"""The rule of an integration: the coefficients of the solution are integrated together.

Let everything depend on `e`: `y' = f(y, t, p(e))`, from `y0(e)` at `t_0(e)`, to `t_j(e)`.

Coefficients. With fixed times the coefficients of `y(t; e)` in `e` are the state of one larger
system, `y_k' = [f(sum_j y_j e^j, t, p(e))]_k`, which is integrated with its own error control.

Times. `t(e) = t + d(e)` with `d(0) = 0`. The solution at `t + s d(e)`, `0 <= s <= 1`, is

    v(s; e) = y(t; e) + integral_0^s d(e) f(v(r; e), t + r d(e), p(e)) dr

As `d` begins at order 1, the k-th coefficient of `v` is a polynomial in `s` of degree k, and k
iterations of this equation make it exact. The integrals are those of the polynomial through the
values at K Gauss points, exact as well, so that derivatives with respect to the times are as exact
as the state (Hairer, Norsett and Wanner, "Solving Ordinary Differential Equations I" (1993),
sections I.8 and II.7).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.core import JaxprEqn

from difflinalg._ode.lift import Lift
from difflinalg._ode.operations import Data, Meta, as_solution, bind, solve_p
from difflinalg._ode.stages import real_dtype
from difflinalg._ode.system import Leaves, System
from difflinalg._taylor import arithmetic as ta
from difflinalg._taylor.rules import rule
from difflinalg._taylor.series import Series, Value, full, is_series, primals
from difflinalg._taylor.structural import composite

Flags = tuple[bool, ...]


@rule(solve_p)
def _solve(equation: JaxprEqn, inputs: list[Value], order: int) -> list[Value]:
    meta: Meta = equation.params["meta"]
    data, _ = jax.tree.unflatten(equation.params["treedef"], inputs)
    batch, m, n = primals(data.ts).ndim - 1, primals(data.ts).shape[-1], len(data.y0)
    moving = tuple(is_series(x) for x in data.p)
    counts = [sum(flags[i] for flags, _ in meta.levels) for i in range(len(data.p))]
    p = [_inward(x, count) for x, count in zip(data.p, counts, strict=True)]
    lift = Lift(meta.levels, p, data.q)
    field = _series_field(meta.system, moving, order)
    y0: list[Value] = data.y0
    ts = data.ts
    if is_series(ts):
        start = lift(
            _moved(field, order, back=True), _all_inward(y0, batch, order), _first(ts, batch, 0)
        )
        y0 = [Series(jnp.moveaxis(x, batch, 0)) for x in start]
    times = primals(ts)
    if any(moving) or any(is_series(x) for x in y0):
        system = _augmented(meta.system, moving, order)
        inner_meta = replace(meta, system=system)
        augmented = Data(_all_inward(y0, batch, order), p, data.q, times)
        solution = as_solution(augmented, bind(solve_p, inner_meta, augmented, None))
        inner, final = solution.inner, solution.final
    else:
        plain = Data(y0, data.p, data.q, times)
        solution = as_solution(plain, bind(solve_p, meta, plain, None))
        inner = [_zeros_behind(x, batch + 1, order) for x in solution.inner]
        final = [_zeros_behind(x, batch, order) for x in solution.final]
    if is_series(ts):
        move = _moved(field, order, back=False)
        final = lift(move, final, _first(ts, batch, m - 1))
        if inner:
            between = jnp.moveaxis(ts.coefficients[..., 1:-1], 0, -1)  # (..., m - 2, K + 1)
            inner = lift(
                lambda p, q, y, t: jax.vmap(lambda y, t: move(p, q, y, t))(y, t), inner, between
            )
    out: list[Value] = [Series(jnp.moveaxis(x, batch + 1, 0)) for x in inner]
    out += [Series(jnp.moveaxis(x, batch, 0)) for x in final]
    assert len(out) == (2 * n if m > 2 else n)
    return out + jax.tree.leaves(tuple(solution)[2:])


def _inward(x: Value, batch: int) -> Array:
    """The coefficients, with their axis behind the batch axes."""
    return jnp.moveaxis(x.coefficients, 0, batch) if isinstance(x, Series) else x


def _all_inward(values: Sequence[Value], batch: int, order: int) -> Leaves:
    return [_inward(Series(full(x, order)), batch) for x in values]


def _zeros_behind(x: Array, axis: int, order: int) -> Array:
    return jnp.moveaxis(full(x, order), 0, axis)


def _first(ts: Series, batch: int, index: int) -> Array:
    """The coefficients of one of the times, behind the batch axes."""
    return jnp.moveaxis(ts.coefficients[..., index], 0, batch)


def _series_field(system: System, moving: Flags, order: int) -> Callable[..., Leaves]:
    """The coefficients of the right-hand side from those of the state, time and parameters."""

    def field(y: Leaves, t: Value, p: Leaves, q: Leaves) -> Leaves:
        n, k = len(y), len(p)
        parameters = [Series(x) if flag else x for x, flag in zip(p, moving, strict=True)]

        def flat(*leaves: Array) -> Leaves:
            return system.field(
                list(leaves[:n]), leaves[n], list(leaves[n + 1 : n + 1 + k]),
                list(leaves[n + 1 + k :]),
            )  # fmt: skip

        slopes = composite(flat, *(Series(x) for x in y), t, *parameters, *q, order=order)
        return [full(x, order) for x in slopes]

    return field


@lru_cache(maxsize=256)
def _augmented(system: System, moving: Flags, order: int) -> System:
    """The system of the coefficients; kept, so that what is compiled for it is found again."""
    return System(_series_field(system, moving, order))


def _moved(field: Callable[..., Leaves], order: int, back: bool) -> Callable[..., Leaves]:
    """The state at `t(e)` from that at `t(0)`, or the other way round, for one member of a batch.

    A function of the parameters, the coefficients of the state, and those of the time.
    """
    nodes, weights, to_nodes = _gauss_integrals(order)

    def move(p: Leaves, q: Leaves, y: Leaves, t: Array) -> Leaves:
        d = t.at[0].set(0.0) * (-1.0 if back else 1.0)
        begin = t if back else t.at[1:].set(0.0)

        def rate(v: Leaves, node: Array) -> Leaves:
            slopes = field(v, Series(begin + node * d), p, q)
            return [_scaled(d, x) for x in slopes]

        def rates(v: Leaves) -> Leaves:
            return jax.vmap(rate)(v, jnp.asarray(nodes, t.dtype))

        def integrate(matrix: np.ndarray, slopes: Leaves) -> Leaves:
            return [
                x + jnp.tensordot(jnp.asarray(matrix, real_dtype(x)), s, 1)
                for x, s in zip(y, slopes, strict=True)
            ]

        def iterate(v: Leaves, _: None) -> tuple[Leaves, None]:
            return integrate(to_nodes, rates(v)), None

        v = [jnp.broadcast_to(x, (order, *x.shape)) for x in y]
        v, _ = lax.scan(iterate, v, None, length=order - 1)
        return integrate(weights, rates(v))

    return move


def _scaled(d: Array, x: Array) -> Array:
    """The product of a real scalar series and a series."""
    factor = d.astype(real_dtype(x)).reshape((-1,) + (1,) * (x.ndim - 1))
    return ta.product(factor, x)


@lru_cache(maxsize=64)
def _gauss_integrals(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gauss points on [0, 1], and the weights of integrals from 0 to 1 and to each point."""
    x, w = np.polynomial.legendre.leggauss(count)
    # By Legendre polynomials: the coefficients of an interpolant are sums at the points.
    degree = np.arange(count)
    values = np.polynomial.legendre.legvander(x, count)
    project = (degree + 0.5)[:, None] * (values[:, :count] * w[:, None]).T
    # The integral of P_n from -1 is (P_{n+1} - P_{n-1}) / (2 n + 1), and x + 1 for n = 0.
    integrals = np.empty((count, count))
    integrals[:, 0] = x + 1.0
    for n in range(1, count):
        integrals[:, n] = (values[:, n + 1] - values[:, n - 1]) / (2 * n + 1)
    return (x + 1.0) / 2.0, w / 2.0, integrals @ project / 2.0
