"""Integration with the signature of `jax.experimental.ode.odeint`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from difflinalg._core import ode_checks
from difflinalg._ode.adjoints import Adjoint, Checkpointed
from difflinalg._ode.control import Control
from difflinalg._ode.methods import tableau
from difflinalg._ode.operations import Data, Meta
from difflinalg._ode.rules import integrate
from difflinalg._ode.system import convert


def odeint(
    func: Callable,
    y0: Any,
    t: Array,
    *args: Any,
    rtol: float = 1.4e-8,
    atol: float = 1.4e-8,
    mxstep: float = jnp.inf,
    hmax: float = jnp.inf,
    method: str = "Tsit5",
    adjoint: Adjoint = Checkpointed(),  # noqa: B008 (frozen)
) -> Any:
    """Integrate `dy/dt = func(y, t, *args)`; the signature is that of JAX.

    Args:
        func: the right-hand side. It returns what `y0` is, or as many numbers in another
            structure, and may close over traced values.
        y0: the state at `t[0]`, an array or a pytree of arrays, real or complex.
        t: shape `(m,)`, floating; increases or decreases throughout. Equal neighbours are allowed.
        *args: arrays, numbers, or pytrees of them. Integers and booleans have no derivative.
        rtol: tolerated error of a step relative to the state.
        atol: absolute part of the tolerated error.
        mxstep: how many steps may be tried between two times.
        hmax: largest step size.
        method: "Tsit5", "Dopri5" (that of JAX), "Dopri8" or the stiff "Esdirk43". The default has
            smaller error coefficients than "Dopri5" at the same cost (Tsitouras 2011).
        adjoint: how derivatives are computed; see the classes in `difflinalg.ode`.

    Returns:
        The states at all times: `y0` with a new leading axis of length `m`.

    Raises:
        TypeError: if `t` is not floating, an argument is not an array, `func` returns a dtype that
            the state cannot hold, or `adjoint` is not a derivative option.
        ValueError: if `t` is not a vector or turns back, `func` returns other shapes, or a
            tolerance or `hmax` is not a size.
        RuntimeError: if the steps are spent, the right-hand side is not finite, or the step size
            underflows; under jit and vmap the result is NaN, and so are its derivatives.

    Derivatives:
        With respect to `y0`, `t`, floating and complex `args`, and what `func` closes over;
        both modes, any nesting and order, for every method and derivative option. Those in `t`
        are the exact `func(y(t), t)`; the others are those of the steps taken (step sizes held
        fixed), and as accurate as the solution. Undefined where `func` is not differentiable.

    Cost:
        One evaluation of `func` per stage. See the derivative options for their costs.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg.ode import odeint
        >>> decay = lambda y, t, k: -k * y
        >>> final = lambda k: odeint(decay, jnp.array(1.0), jnp.array([0.0, 1.0]), k)[-1]
        >>> [round(float(f(1.0)), 4) for f in (final, jax.grad(final), jax.hessian(final))]
        [0.3679, -0.3679, 0.3679]

    References:
        Hairer, Norsett and Wanner, "Solving Ordinary Differential Equations I" (1993), sections
        II.4 (steps), II.5 and II.10 (methods), II.6 (interpolation).
    """
    rtol, atol, hmax = float(rtol), float(atol), float(hmax)
    tolerances = {"rtol": rtol, "atol": atol}
    ode_checks.check_options("odeint", tolerances, {"hmax": hmax}, adjoint, Adjoint)
    control = Control(tableau("odeint", method), rtol, atol, float(mxstep), jnp.inf, hmax)
    leaves, treedef = jax.tree.flatten(y0)
    y = [ode_checks.as_state("odeint", x) for x in leaves]
    times = ode_checks.as_times("odeint", t)
    system, p, q = convert("odeint", func, y, treedef, times[0], args)
    if times.shape[0] == 1 or not y:
        return jax.tree.unflatten(treedef, [x[None] for x in y])
    meta = Meta(control, system, adjoint)
    solution = integrate(meta, Data(y, p, q, times))
    ode_checks.raise_ode_failure("odeint", solution.status, solution.where, solution.counts)
    inner = solution.inner or [jnp.zeros((0, *x.shape), x.dtype) for x in y]
    rows = [
        jnp.concatenate([a[None], b, c[None]])
        for a, b, c in zip(y, inner, solution.final, strict=True)
    ]
    return jax.tree.unflatten(treedef, rows)
