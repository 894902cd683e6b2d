"""`expm_multiply` and `funm_multiply`: functions of an operator times vectors."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.core import Tracer

from difflinalg._core import checks, krylov_checks
from difflinalg._core.program import hoist
from difflinalg._core.results import FunctionInfo
from difflinalg._krylov.exponential import Exponential
from difflinalg._krylov.function_rule import Family, Found, Spec, action
from difflinalg._krylov.krylov_function import STRIDE, KrylovFunction
from difflinalg._krylov.linear_map import as_function
from difflinalg._krylov.operator import VectorSpace, cast, image_dtype, is_matrix, space_of

BASIS = 64


def expm_multiply(
    A: Any,
    B: Any,
    start: Any = None,
    stop: Any = None,
    num: int | None = None,
    endpoint: bool | None = None,
    traceA: Any = None,
    *,
    return_info: bool = False,
) -> Any:
    """`exp(A) B`, or `exp(t A) B` at equally spaced times, without the exponential itself.

    Args:
        A: an array `(n, n)`, a BCOO matrix, or a linear function that may close over
            differentiated, batched or traced arrays.
        B: shape `(n,)` or `(n, k)`; where `A` is a function, one vector that it acts on, an array
            or a pytree of arrays.
        start: first time. If this and the next three are None, only `t = 1` is computed.
        stop: last time.
        num: how many times, a Python integer, 50 by default.
        endpoint: whether `stop` is among the times, true by default.
        traceA: the trace of `A`, or an estimate: its mean eigenvalue is taken out of `A`, which
            makes the norm smaller. Known for an array; else 0 by default.
        return_info: append a `FunctionInfo`.

    Returns:
        Like `B`, or, with times, with a first axis of `num`; then the info if asked for.

    Raises:
        ValueError: if shapes do not fit.
        NotConverged: outside of jit and other transformations, where a Taylor series has not
            ended; inside the result is NaN.

    Derivatives:
        Forward and reverse mode in any nesting, with respect to `A` or what it closes over, `B`,
        `start` and `stop`. A tangent is the same computation with the operator `[[A, A_dot], [0,
        A]]`; the reverse pass solves backwards with the transpose. Derivatives of every order have
        the accuracy of the value, or are NaN.

    Cost:
        About 7 products with `A` for each unit of `t |A|`, in double precision, and 10 for an
        estimate of the norm. A tangent costs about 3 times as much; a gradient 9 times (measured
        with 5 steps of time), and memory for 160 blocks like `B`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from difflinalg.scipy.sparse.linalg import expm_multiply
        >>> turn = jnp.array([[0.0, -1.0], [1.0, 0.0]])
        >>> x = lambda t: expm_multiply(t * turn, jnp.array([1.0, 0.0]))[1]
        >>> print(jax.grad(x)(0.0))
        1.0

    References:
        Al-Mohy and Higham, "Computing the action of the matrix exponential" (2011), algorithms 3.2
        and 5.2.
        Najfeld and Havel, "Derivatives of the matrix exponential and their computation" (1995),
        theorem 2.1.
    """
    name = "expm_multiply"
    product, rows, restore = _vectors(name, A, B)
    mean = _mean(A, traceA, rows)

    def evolve(t: Array, x: Array) -> Found:
        weight = t.astype(jnp.finfo(x.dtype).dtype)
        program, consts = hoist(
            lambda y: weight * (product(y) - mean * y), jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
        )
        found = action(tuple(consts), x, Spec(Family(program, len(consts)), Exponential()))
        return found._replace(y=found.y * jnp.exp(weight * mean))

    if start is None and stop is None and num is None and endpoint is None:
        found = evolve(jnp.ones(()), rows)
        return _result(name, found, restore(found.y), "the series", return_info)
    count = 50 if num is None else krylov_checks.check_count(name, "num", num, 1, 1 << 30)
    end = True if endpoint is None else bool(endpoint)
    first = jnp.asarray(0.0 if start is None else start, jnp.result_type(float))
    last = jnp.asarray(1.0 if stop is None else stop, first.dtype)
    step = (last - first) / max(count - 1 if end else count, 1)
    steps = jnp.concatenate([first[None], jnp.broadcast_to(step, (count - 1,))])

    def body(x: Array, t: Array):
        found = evolve(t, x)
        return found.y, found

    _, found = lax.scan(body, rows, steps)
    total = Found(found.y, jnp.min(found.converged), jnp.sum(found.products), jnp.sum(found.error))
    return _result(name, total, jax.vmap(restore)(found.y), "the series", return_info)


def funm_multiply(
    f: Callable[[Array], Array],
    A: Any,
    b: Any,
    *,
    assume_a: str = "general",
    t: Any = 1.0,
    atol: float = 0.0,
    rtol: float = 1e-6,
    ncv: int | None = None,
    return_info: bool = False,
) -> Any:
    """`f(t A) b` for a function `f` of matrices, from a Krylov space.

    Args:
        f: takes a small square matrix to its matrix function, for instance
            `jax.scipy.linalg.expm`. Derivatives apply it to matrices that are not Hermitian even
            if `A` is, with repeated eigenvalues.
        A: an array `(n, n)`, a BCOO matrix, or a linear function that may close over
            differentiated, batched or traced arrays.
        b: shape `(n,)`; where `A` is a function, a vector that it acts on, an array or a pytree.
        assume_a: `'general'`, or `'her'` for a Hermitian `A`.
        t: real or complex factor of `A`.
        atol: absolute, and
        rtol: relative bound on the change of the result over the last 8 steps, which is larger
            than its error.
        ncv: largest size of the Krylov space, 64 by default. It is not restarted.
        return_info: append a `FunctionInfo`.

    Returns:
        Like `b`; then the info if asked for.

    Raises:
        ValueError: if shapes do not fit.
        NotConverged: outside of jit and other transformations, where `ncv` is too small; inside
            the result is NaN.

    Derivatives:
        Forward and reverse mode in any nesting, with respect to `A` or what it closes over, `b`
        and `t`, from Krylov spaces of their own, judged in the same way; NaN where they are too
        small. Not with respect to what `f` closes over, which is refused.

    Cost:
        One product with `A` and `4 m n` operations for step `m`, and an `f` of size `ncv` for 8
        steps. A tangent costs about 3 times as much, a gradient 4 to 5 times, with an `f` of size
        `2 ncv`.

    Example:
        >>> import jax.numpy as jnp
        >>> from jax.scipy.linalg import expm
        >>> from difflinalg.scipy.sparse.linalg import funm_multiply
        >>> print(funm_multiply(expm, jnp.diag(jnp.array([0.0, 1.0])), jnp.ones(2)).round(3))
        [1.    2.718]

    References:
        Saad, "Analysis of some Krylov subspace approximations to the matrix exponential operator"
        (1992), equation 4.
        Kandolf, Koskela, Relton and Schweitzer, "Computing low-rank approximations of the Frechet
        derivative of a matrix function using Krylov subspace methods" (2021), algorithm 1.
    """
    name = "funm_multiply"
    checks.check_choice(name, "assume_a", assume_a, ("general", "her"))
    product, rows, restore = _vectors(name, A, b, one=True)
    factor = jnp.asarray(t)
    m = BASIS if ncv is None else krylov_checks.check_count(name, "ncv", ncv, 1, 1 << 30)
    # A second derivative is an operator of four times the size, whose space may be as large.
    m = -(-min(m, 4 * rows.shape[1]) // STRIDE) * STRIDE
    dtype = jnp.result_type(rows.dtype, factor.dtype)
    shape = jax.eval_shape(f, jax.ShapeDtypeStruct((m, m), dtype))
    krylov_checks.check_matrix_function(name, shape.shape, m)
    if jnp.issubdtype(shape.dtype, jnp.complexfloating) and rows.dtype != shape.dtype:
        product, rows, restore = _vectors(name, A, b, one=True, dtype=shape.dtype)
    factor = factor.astype(rows.dtype if jnp.iscomplexobj(factor) else jnp.finfo(rows.dtype).dtype)
    program, consts = hoist(
        lambda x: factor * product(x), jax.ShapeDtypeStruct(rows.shape[1:], rows.dtype)
    )
    small, small_consts = hoist(f, jax.ShapeDtypeStruct((m, m), rows.dtype))
    large, large_consts = hoist(f, jax.ShapeDtypeStruct((2 * m, 2 * m), rows.dtype))
    counts = len(small_consts), len(large_consts)
    hermitian = assume_a == "her" and not jnp.iscomplexobj(factor)
    method = KrylovFunction(small, large, counts, m, float(rtol), float(atol), hermitian)
    family = Family(program, len(consts), sum(counts))
    found = action((*consts, *small_consts, *large_consts), rows, Spec(family, method))
    return _result(name, found, restore(found.y), "the Krylov space", return_info)


def _vectors(name: str, A: Any, b: Any, one: bool = False, dtype: Any = None):
    """The product on flat vectors, the rows of `b`, and the way back."""
    if is_matrix(A):
        krylov_checks.check_square(name, A.shape)
        b = b if hasattr(b, "dtype") else jnp.asarray(b)
        if one:
            krylov_checks.check_vector(name, "b", b, A.shape[0])
        krylov_checks.check_block(name, b.shape, A.shape[0])
        wanted = jnp.result_type(A.dtype, b.dtype, *([] if dtype is None else [dtype]))
        wanted = wanted if jnp.issubdtype(wanted, jnp.inexact) else jnp.result_type(float)
        product = as_function(cast(A, wanted))
        b = jnp.asarray(b).astype(wanted)
        if b.ndim == 1:
            return product, b[None], lambda y: y[0]
        return product, b.T, lambda y: y.T
    if not callable(A):
        krylov_checks.refuse_operator(name, A)
    space = space_of(name, b)
    tree = jax.eval_shape(space.unflatten, space.example)
    krylov_checks.check_same_vectors(name, tree, jax.eval_shape(A, tree))
    space = space.with_dtype(image_dtype(A, space))
    if dtype is not None:
        space = space.with_dtype(jnp.result_type(space.dtype, dtype))
    return _flat(A, space), space.flatten(b)[None], lambda y: space.unflatten(y[0])


def _flat(f: Any, space: VectorSpace) -> Callable[[Array], Array]:
    return lambda x: space.flatten(f(space.unflatten(x)))


def _mean(A: Any, trace: Any, rows: Array) -> Array:
    """The mean eigenvalue, as far as it is known; any number is right."""
    if trace is None:
        if not is_matrix(A) or hasattr(A, "todense"):
            return jnp.zeros((), rows.dtype)
        trace = jnp.trace(A)
    return lax.stop_gradient(jnp.asarray(trace) / rows.shape[1]).astype(rows.dtype)


def _result(name: str, found: Found, y: Any, what: str, return_info: bool) -> Any:
    """Report what has not converged, and put the result together."""
    fixed = jax.tree.map(lax.stop_gradient, found._replace(y=()))
    info = FunctionInfo(fixed.converged > 0.0, fixed.error, fixed.products.astype(jnp.int32))
    if not isinstance(info.converged, Tracer) and not bool(info.converged):
        reason = f"{what} is too short after {int(info.products)} products"
        remedy = "Increase ncv or rtol, or split the function into steps."
        krylov_checks.refuse_unconverged(name, reason, (y, info), remedy)
    guard = jnp.where(info.converged, 1.0, jnp.nan)
    y = jax.tree.map(lambda x: x * guard.astype(jnp.finfo(x.dtype).dtype), y)
    return (y, info) if return_info else y
