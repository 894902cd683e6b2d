"""`scan`, `fori_loop` and `while_loop` of JAX with a choice of what reverse mode keeps."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import Tracer
from jax.typing import ArrayLike

from difflinalg._core import loop_checks
from difflinalg._memory import closure
from difflinalg._memory.nested import nested_scan, nested_while
from difflinalg._memory.online import online_while
from difflinalg._memory.policies import Checkpoints, Nested, Online, Revolve
from difflinalg._memory.revolve import revolve_scan

Tree = Any
DEFAULT = Nested()


def scan(
    f: Callable[[Tree, Tree], tuple[Tree, Tree]],
    init: Tree,
    xs: Tree = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    *,
    checkpoints: Checkpoints = DEFAULT,
) -> tuple[Tree, Tree]:
    """`jax.lax.scan` with checkpoints for reverse mode.

    Args:
        f: `(carry, x) -> (new_carry, y)`; may close over traced values.
        init: the first carry, a pytree of arrays.
        xs: a pytree of arrays with a leading axis of `length`, or `None`.
        length: the number of steps, needed if `xs` is `None`.
        reverse: whether to go through `xs` from the end, and write `ys` from the end.
        unroll: as in `jax.lax.scan`, for the innermost loop of the forward pass.
        checkpoints: `Nested(levels)` (two levels by default) or `Revolve(slots)`.

    Returns:
        `(carry, ys)` as `jax.lax.scan`.

    Raises:
        TypeError: if the step changes the structure, a shape or a dtype of the carry, or
            `checkpoints` is of another kind.
        ValueError: if the number of steps is not unique or negative.

    Derivatives:
        With `Nested` any order of both modes. With `Revolve` reverse mode, because its backward
        pass is another program than its forward pass, and forward mode over reverse mode; forward
        mode alone and reverse mode twice are refused (`TypeError`).

    Cost:
        Of `N` steps `Nested(L)` evaluates `L N` in reverse mode and keeps about `L N^(1/L)`
        carries; `Revolve(s)` keeps s and evaluates the least number possible, `p(N, s) + N`:
        4636 for 1000 steps in 10 slots. The compiled program does not grow with `N`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg import memory
        >>> def loss(c):
        ...     step = lambda c, x: (c * x, None)
        ...     policy = memory.Revolve(3)
        ...     return memory.scan(step, c, jnp.arange(1.0, 6.0), checkpoints=policy)[0]
        >>> print(jax.grad(loss)(1.0))
        120.0

    References:
        Griewank and Walther, "Algorithm 799: revolve" (2000), equations 1 to 3.
        Chen, Xu, Zhang and Guestrin, "Training deep nets with sublinear memory cost" (2016),
        section 4.3; arXiv:1604.06174 (`Nested`).
    """
    count = loop_checks.scan_length("scan", xs, length)
    loop_checks.check_kind("scan", checkpoints, (Nested, Revolve))
    init, xs = jax.tree.map(jnp.asarray, (init, xs))
    if count == 0:
        return lax.scan(f, init, xs, length=0, reverse=reverse, unroll=unroll)
    x = closure.element(xs)
    returned = jax.eval_shape(f, init, x)
    loop_checks.check_pair("scan", returned, "(carry, y)")
    init = closure.strong_like(init, returned[0])
    loop_checks.check_same_carry("scan", init, jax.eval_shape(f, init, x)[0])
    if reverse:
        xs = jax.tree.map(lambda leaf: jnp.flip(leaf, 0), xs)
    if isinstance(checkpoints, Nested):
        carry, ys = nested_scan(f, init, xs, count, checkpoints.levels, unroll)
    else:
        carry, ys = revolve_scan(f, init, xs, count, checkpoints.slots, unroll)
    return carry, jax.tree.map(lambda leaf: jnp.flip(leaf, 0), ys) if reverse else ys


def while_loop(
    cond_fun: Callable[[Tree], ArrayLike],
    body_fun: Callable[[Tree], Tree],
    init_val: Tree,
    *,
    max_steps: int | None = None,
    checkpoints: Checkpoints = DEFAULT,
) -> Tree:
    """`jax.lax.while_loop` that can be differentiated in reverse mode.

    Args:
        cond_fun: `carry -> bool`; may close over traced values.
        body_fun: `carry -> carry`; may close over traced values.
        init_val: the first carry, a pytree of arrays.
        max_steps: a bound of the number of steps. `Nested` needs it; steps that are not taken
            cost next to nothing.
        checkpoints: `Nested(levels)` (two levels by default) or `Online(slots)`.

    Returns:
        The first carry for which `cond_fun` is false.

    Raises:
        StepLimitError: outside of transformations, if `cond_fun` is still true after `max_steps`;
            it holds the last carry. Otherwise the carry becomes NaN, or the lowest (unsigned: the
            highest) integer; Booleans and keys stay.
        TypeError: if the body changes the structure, a shape or a dtype of the carry, or
            `checkpoints` is of another kind.
        ValueError: if `Nested` has no `max_steps`.

    Derivatives:
        Those of the steps that are taken; the number of steps counts as constant. With `Nested`
        any order of both modes, with `Online` reverse mode, and forward over reverse mode.
        Under vmap the body is evaluated for finished members of the batch too, at their last
        carry, and thrown away: a body that is singular there gives NaN in the derivative of what
        it closes over.

    Cost:
        Of `N` steps `Nested(L)` evaluates about `L N` in reverse mode and keeps about
        `L max_steps^(1/L)` carries. `Online(s)` keeps s carries and evaluates at most `N` times
        more than the optimal schedule for a known number of steps: 5156 for 1000 in 10 slots.

    Example:
        >>> import jax
        >>> from difflinalg import memory
        >>> grow, policy = lambda x: 1.5 * x, memory.Online(4)
        >>> f = lambda x: memory.while_loop(lambda x: x < 100, grow, x, checkpoints=policy)
        >>> print(jax.grad(f)(20.0))
        5.0625

    References:
        Stumm and Walther, "New algorithms for optimal online checkpointing" (2010), section 2.
        Griewank and Walther, "Algorithm 799: revolve" (2000), equations 1 to 3.
    """
    loop_checks.check_kind("while_loop", checkpoints, (Nested, Online))
    if max_steps is not None or isinstance(checkpoints, Nested):
        max_steps = loop_checks.check_bound("while_loop", max_steps)
    init = jax.tree.map(jnp.asarray, init_val)
    init = closure.strong_like(init, jax.eval_shape(body_fun, init))
    loop_checks.check_same_carry("while_loop", init, jax.eval_shape(body_fun, init))

    def condition(carry: Tree) -> Array:
        return loop_checks.as_condition("while_loop", cond_fun(carry))

    if isinstance(checkpoints, Nested):
        assert max_steps is not None
        carry, more = nested_while(condition, body_fun, init, max_steps, checkpoints.levels)
    else:
        slots = checkpoints.slots
        carry, more = online_while(condition, body_fun, init, max_steps, slots)
        if max_steps is None:
            return carry
    loop_checks.refuse_step_limit("while_loop", more, max_steps, carry)
    return jax.tree.map(lambda leaf: _unless(more, leaf), carry)


def _unless(bad: Array, leaf: Array) -> Array:
    """The leaf, or the value of its dtype that nobody takes for a result.

    A factor and not a selection: the derivative has to be NaN too.
    """
    if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
        return lax.complex(_unless(bad, jnp.real(leaf)), _unless(bad, jnp.imag(leaf)))
    if closure.is_inexact(leaf):
        return leaf * jnp.where(bad, jnp.nan, 1.0).astype(leaf.dtype)
    if jnp.issubdtype(leaf.dtype, jnp.integer):
        info = jnp.iinfo(leaf.dtype)
        return jnp.where(bad, info.min if info.min < 0 else info.max, leaf)
    return leaf


def fori_loop(
    lower: ArrayLike,
    upper: ArrayLike,
    body_fun: Callable[[Array, Tree], Tree],
    init_val: Tree,
    *,
    unroll: int | bool | None = None,
    max_steps: int | None = None,
    checkpoints: Checkpoints = DEFAULT,
) -> Tree:
    """`jax.lax.fori_loop` with checkpoints for reverse mode, for traced bounds too.

    Args:
        lower: the first index.
        upper: one more than the last index.
        body_fun: `(i, carry) -> carry`; may close over traced values.
        init_val: the first carry, a pytree of arrays.
        unroll: as in `jax.lax.fori_loop`, for the innermost loop of the forward pass.
        max_steps: a bound of the number of steps; needed by `Nested` if a bound of the index is
            traced.
        checkpoints: `Nested(levels)` (two levels by default), `Revolve(slots)` for bounds known
            to Python, or `Online(slots)` for traced ones.

    Returns:
        The last carry.

    Raises:
        StepLimitError: as `while_loop`, for traced bounds.
        TypeError: if the body changes the structure, a shape or a dtype of the carry, a bound is
            not an integer scalar, or `checkpoints` is of another kind.
        ValueError: as `while_loop`, for traced bounds; for known ones if they are more than
            `max_steps` apart.

    Derivatives:
        Those of `scan` for bounds known to Python, of `while_loop` for traced ones.

    Cost:
        As `scan` or `while_loop`.

    Example:
        >>> import jax
        >>> from difflinalg import memory
        >>> f = lambda x, n: memory.fori_loop(0, n, lambda i, c: c * x, 1.0, max_steps=10)
        >>> print(jax.jit(jax.grad(f))(2.0, 3))
        12.0

    References:
        Griewank and Walther, "Algorithm 799: revolve" (2000), equations 1 to 3.
    """
    for bound in (lower, upper):
        loop_checks.check_index_bound(bound)
    if isinstance(lower, Tracer) or isinstance(upper, Tracer):
        loop_checks.check_kind("fori_loop with traced bounds", checkpoints, (Nested, Online))
        first = jnp.asarray(lower, jnp.result_type(lower, upper))
        return while_loop(
            lambda state: state[0] < upper,
            lambda state: (state[0] + 1, body_fun(*state)),
            (first, init_val),
            max_steps=max_steps,
            checkpoints=checkpoints,
        )[1]
    loop_checks.check_kind("fori_loop with known bounds", checkpoints, (Nested, Revolve))
    first, last = int(np.asarray(lower)), int(np.asarray(upper))
    loop_checks.check_within_bound(last - first, max_steps)
    indices = jnp.arange(first, last, dtype=jnp.result_type(lower, upper))
    return scan(
        lambda carry, i: (body_fun(i, carry), None),
        init_val,
        indices,
        unroll=unroll or 1,
        checkpoints=checkpoints,
    )[0]
