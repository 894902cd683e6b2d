"""Taylor mode: derivatives of high order along a curve, from one pass through the program.

A power series in one parameter is carried through every operation of the program. The K-th
derivative costs some K^2 operations, where K nested first derivatives cost 2^K.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from difflinalg._core import taylor_checks
from difflinalg._core.program import Program, hoist
from difflinalg._taylor import control as _control  # noqa: F401  (the rules register themselves)
from difflinalg._taylor import decompositions as _decompositions  # noqa: F401
from difflinalg._taylor import elementwise as _elementwise  # noqa: F401
from difflinalg._taylor import factorisations as _factorisations  # noqa: F401
from difflinalg._taylor import implicit as _implicit  # noqa: F401
from difflinalg._taylor import linear as _linear  # noqa: F401
from difflinalg._taylor import ode as _ode  # noqa: F401
from difflinalg._taylor import structural as _structural  # noqa: F401
from difflinalg._taylor.interpreter import interpret
from difflinalg._taylor.series import Series, full


def jet(
    fun: Callable[..., Any], primals: Any, series: Any, factorial_scaled: bool = True
) -> tuple[Any, Any]:
    """Propagate truncated Taylor series through a function; the signature is that of JAX.

    Args:
        fun: takes and returns pytrees of arrays.
        primals: the arguments at `t = 0`, a tuple or list.
        series: for each argument its derivatives at `t = 0`, the list `[x', x'', ...]` of `K`
            arrays. An argument that is a pytree has such a list in the place of each array. None
            in the place of a list means a constant, which is cheaper than zeros.
        factorial_scaled: whether the terms, given and returned, are derivatives, or else the
            coefficients `x_k` of `t^k`.

    Returns:
        `(primals_out, series_out)`: what `fun` returns for the primals, and the same tree with the
        list of the `K` derivatives of `fun(x(t))` in the place of each array.

    Raises:
        NotImplementedError: if an operation has no rule, with its name.
        TypeError: if `primals` or `series` is not a tuple or list.
        ValueError: if the structures, shapes or numbers of terms disagree.

    Derivatives:
        The result can be differentiated in both modes, mapped and compiled. Branches and loops are
        followed as the primal values decide: at a kink (`abs` at zero) the derivatives are those
        of one side. A function with a rule of its own is
        differentiated by it (`jax.custom_jvp`), or followed through its body (`jax.custom_vjp`).

    Cost:
        About `K^2 / 2` times the products of `fun`, and one decomposition for each of `fun`.
        `fun` is traced, as by jit; its size after compilation grows like `K` times its own.

    Example:
        >>> import jax.numpy as jnp
        >>> from difflinalg.taylor import jet
        >>> value, terms = jet(jnp.exp, (0.0,), ([1.0, 0.0, 0.0],))
        >>> print(value, *terms)
        1.0 1.0 1.0 1.0

    References:
        Griewank and Walther, "Evaluating Derivatives" (2008), chapter 13 (tables 13.1 and 13.2).
        Bettencourt, Johnson and Duvenaud, "Taylor-mode automatic differentiation for higher-order
        derivatives in JAX" (2019), section 2.
    """
    leaves, treedef, terms, order = taylor_checks.split_series(primals, series)
    scale = [math.factorial(k) if factorial_scaled else 1 for k in range(order + 1)]
    inputs = [_as_value(x, own, scale) for x, own in zip(leaves, terms, strict=True)]
    program, consts = hoist(lambda *leaves: fun(*jax.tree.unflatten(treedef, leaves)), *leaves)
    outputs = [full(x, order) for x in _compiled(program, order)(consts, inputs)]
    series_out = [[x[k] * scale[k] for k in range(1, order + 1)] for x in outputs]
    value = jax.tree.unflatten(program.out_tree, [x[0] for x in outputs])
    return value, jax.tree.unflatten(program.out_tree, series_out)


def derivatives(f: Callable[[Any], Any], x: Any, order: int, direction: Any | None = None) -> Any:
    """The derivatives of `f` along a line, from order 0 up to `order`.

    Args:
        f: takes a pytree of arrays, returns a pytree of arrays.
        x: where to differentiate.
        order: the highest order, static.
        direction: like `x`; may be left out where `x` is a scalar, for 1.

    Returns:
        What `f` returns, with a new first axis of length `order + 1` in every array: entry `k` is
        the k-th derivative of `f(x + t direction)` with respect to `t` at `t = 0`.

    Raises:
        NotImplementedError: if an operation has no rule, with its name.
        TypeError: if `order` is not an integer.
        ValueError: if `order` is negative, or the direction is missing or not like `x`.

    Derivatives:
        As `jet`.

    Cost:
        As `jet`.

    Example:
        >>> from difflinalg.taylor import derivatives
        >>> print(derivatives(lambda x: x**3, 2.0, 4))
        [ 8. 12. 12.  6.  0.]

    References:
        Griewank and Walther, "Evaluating Derivatives" (2008), section 13.2.
    """
    order = taylor_checks.check_order("derivatives", order)
    direction = taylor_checks.check_direction(x, direction)

    def terms(leaf, slope):
        slope = jnp.asarray(slope, jnp.result_type(leaf))
        return [slope, *[jnp.zeros_like(slope)] * (order - 1)][:order]

    lists = jax.tree.map(terms, x, direction)
    value, series = jet(f, (x,), (lists,))
    return jax.tree.map(lambda x, own: jnp.stack([x, *own]), value, series)


@lru_cache(maxsize=256)
def _compiled(program: Program, order: int) -> Callable[..., Any]:
    """The program on series, under jit; found again for a program of the same structure."""
    return jax.jit(lambda consts, inputs: interpret(program.jaxpr, consts, inputs, order))


def _as_value(x: Any, terms: Any, scale: list[int]) -> Any:
    """The series of a primal and its terms; what is not a number of the continuum is constant."""
    if not terms or not jnp.issubdtype(x.dtype, jnp.inexact):
        return x
    own = [jnp.asarray(term, x.dtype) / s for term, s in zip(terms, scale[1:], strict=True)]
    return Series(jnp.stack([x, *own]))
