"""The rule of implicit functions: the equation solved order by order.

`F(z(t), p(t)) = 0`. With the coefficients of z below order k known and zero in the place of the
k-th, the k-th coefficient of F is what that of z has to cancel,

    F_z z_k = -[F(z_0 + ... + z_{k-1} t^{k-1}, p(t))]_k

with the same matrix in each order (Griewank and Walther, "Evaluating Derivatives" (2008), section
13.4; Krantz and Parks, "The implicit function theorem" (2013), section 3.2).
"""

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._implicit.linear import linear_solve
from difflinalg._implicit.problem import Arguments, Function
from difflinalg._implicit.solution import Settings, implicit_solution, trusted_or_nan
from difflinalg._taylor.rules import operation_rule
from difflinalg._taylor.series import Series, Value, full, primals
from difflinalg._taylor.structural import composite


@operation_rule(implicit_solution)
def _implicit_solution(
    z0: Value, arguments: Arguments, function: Function, settings: Settings, *, order: int
) -> tuple[Value, Array]:
    start, fixed = primals((z0, arguments))
    z, stats = implicit_solution(start, fixed, function, settings)

    def error(z: Array, *smooth: Array) -> Array:
        return settings.error(function, z, fixed._replace(smooth=smooth))

    value, matvec = jax.linearize(lambda z: error(z, *fixed.smooth), z)

    def step(known: Array, k: Array) -> tuple[Array, None]:
        (missed,) = composite(error, Series(known), *arguments.smooth, order=order)
        z_k = linear_solve(matvec, -full(missed, order)[k], settings.solver)
        return known.at[k].set(z_k), None

    known = jnp.zeros((order + 1, *z.shape), z.dtype).at[0].set(z)
    known, _ = lax.scan(step, known, jnp.arange(1, order + 1))
    factor = trusted_or_nan(z, value, stats, matvec, settings)
    return Series(jnp.concatenate([z[None], factor * known[1:]])), stats
