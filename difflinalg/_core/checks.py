"""Checks of arguments at trace time. Every error text of the library stands in this file."""

import itertools
import math
from collections.abc import Sequence
from typing import NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike


class ShapeError(ValueError, TypeError):
    """An argument without the axes that it needs; JAX raises now the one type, now the other."""


def as_inexact(name: str, a: ArrayLike) -> Array:
    """`a` as an array of a floating or complex dtype; integers become the default float."""
    if not hasattr(a, "dtype") and not isinstance(a, (bool, int, float, complex, list, tuple)):
        msg = f"{name} needs an array, got {type(a).__name__}; convert it with jnp.asarray."
        raise TypeError(msg)
    array = jnp.asarray(a)
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        if not (jnp.issubdtype(array.dtype, jnp.integer) or array.dtype == jnp.bool_):
            msg = f"{name} needs real or complex numbers, got dtype {array.dtype}."
            raise TypeError(msg)
        # The float that JAX promotes these integers to; booleans become the default one.
        whole = array.dtype != jnp.bool_
        like = jax.eval_shape(jnp.sqrt, array).dtype if whole else jnp.result_type(float)
        array = array.astype(like)
    return array


def as_matrix(name: str, a: ArrayLike) -> Array:
    """`a` as a stack of matrices of a floating or complex dtype."""
    array = as_inexact(name, a)
    if array.ndim < 2:
        msg = (
            f"{name} needs a matrix, shape (..., m, n), got shape {array.shape}; "
            "give a vector a second axis, for example a[:, None]."
        )
        raise ShapeError(msg)
    return array


def as_factors(name: str, a: ArrayLike | tuple[ArrayLike, ...]) -> tuple[Array, ...]:
    """The factors of a product of matrices, of one dtype and with the same batch dimensions.

    A single matrix is its own factor.
    """
    if not isinstance(a, tuple):
        return (as_matrix(name, a),)
    if not a:
        msg = f"{name} needs at least one factor, got an empty tuple."
        raise ValueError(msg)
    factors = [as_matrix(name, factor) for factor in a]
    pairs = itertools.pairwise(factors)
    if any(left.shape[-1] != right.shape[-2] for left, right in pairs):
        refuse_shapes(name, *(factor.shape for factor in factors))
    dtype = jnp.result_type(*factors)
    batch = jnp.broadcast_shapes(*(factor.shape[:-2] for factor in factors))
    return tuple(
        jnp.broadcast_to(factor.astype(dtype), (*batch, *factor.shape[-2:])) for factor in factors
    )


def as_square(name: str, a: ArrayLike) -> Array:
    """`a` as a stack of square matrices of a floating or complex dtype."""
    array = as_matrix(name, a)
    if array.shape[-1] != array.shape[-2]:
        msg = (
            f"{name} needs square matrices, shape (..., n, n), got shape {array.shape}; "
            "for a rectangular matrix use svd or polar."
        )
        raise ShapeError(msg)
    return array


def is_lower(name: str, uplo: str | None) -> bool:
    """Whether `UPLO` names the lower triangle (`None` and 'L' do, as in NumPy)."""
    if uplo is None or uplo == "L":
        return True
    if uplo == "U":
        return False
    msg = f"UPLO must be one of None, 'L', or 'U', got {uplo!r} in {name}."
    raise ValueError(msg)


def check_choice(name: str, argument: str, value: object, choices: tuple[object, ...]) -> None:
    """Refuse a keyword whose value is none of `choices`."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        msg = f"{name} takes {argument} as one of {listed}, got {value!r}."
        raise ValueError(msg)


def check_rank(name: str, rank: object, limit: int) -> int:
    """`rank` as a static integer from 1 to `limit`."""
    if isinstance(rank, (bool, Tracer)) or not hasattr(rank, "__index__"):
        msg = (
            f"{name} needs `rank` as a Python integer, got {type(rank).__name__}; the rank fixes "
            "the shape of the result, so under jit mark it static (static_argnames='rank')."
        )
        raise TypeError(msg)
    value = rank.__index__()  # type: ignore[attr-defined]
    if not 1 <= value <= limit:
        msg = f"{name} needs 1 <= rank <= {limit} for this shape, got rank={value}."
        raise ValueError(msg)
    return value


def refuse_nonfinite(name: str, a: Array) -> None:
    """Refuse NaN and inf where the values can be seen, that is outside of any transformation."""
    if isinstance(a, Tracer) or a.size == 0:
        return
    if not bool(jnp.all(jnp.isfinite(a))):
        msg = (
            f"{name} got a matrix that contains NaN or inf (shape {a.shape}, dtype {a.dtype}); "
            "find its origin with jax.config.update('jax_debug_nans', True). Under jit the "
            "result would be NaN."
        )
        raise ValueError(msg)


def as_subset(name: str, subset: object, size: int, full_matrices: bool) -> slice:
    """`subset_by_index` as a slice of `size` values."""
    if full_matrices:
        msg = f"{name} takes subset_by_index with full_matrices=False only."
        raise ValueError(msg)
    if not (isinstance(subset, tuple) and len(subset) == 2):
        msg = f"{name} takes subset_by_index as a pair (start, end), got {subset!r}."
        raise ValueError(msg)
    start, end = subset
    if not 0 <= start < end <= size:
        msg = f"{name} needs 0 <= start < end <= {size} in subset_by_index, got {subset!r}."
        raise ValueError(msg)
    return slice(start, end)


def check_elementwise(name: str, f: object, scalar: jax.ShapeDtypeStruct) -> None:
    """Refuse `f` unless it takes one number to one number."""
    if not callable(f):
        msg = f"{name} needs a function of one number, got {type(f).__name__}."
        raise TypeError(msg)
    value = jax.eval_shape(f, scalar)
    if not isinstance(value, jax.ShapeDtypeStruct) or value.shape != ():
        msg = (
            f"{name} needs a function that takes one number to one number, got {value} for "
            "a scalar; for one function per matrix of a stack use jax.vmap."
        )
        raise ValueError(msg)


def refuse_iteration(name: str, which: str) -> None:
    """Refuse subspace iteration for another end of the spectrum than the largest magnitudes."""
    msg = f"{name} iterates for which='LM' only, got which={which!r}; leave out full=False."
    raise ValueError(msg)


def check_unsupported(name: str, argument: str, value: object) -> None:
    """Refuse an argument that stands in a signature only because JAX has it."""
    if value is not None:
        msg = f"{name} does not support {argument}; leave it None."
        raise NotImplementedError(msg)


def refuse_shapes(name: str, *shapes: tuple[int, ...]) -> NoReturn:
    """Refuse arguments whose shapes do not fit together."""
    msg = f"{name} got shapes that do not fit: {', '.join(str(shape) for shape in shapes)}."
    raise ValueError(msg)


def as_tridiagonal(name: str, d: ArrayLike, e: ArrayLike) -> tuple[Array, Array]:
    """The diagonal and the off-diagonal of a Hermitian tridiagonal matrix."""
    diagonal, off = as_inexact(name, d), as_inexact(name, e)
    if diagonal.ndim != 1 or off.ndim != 1 or off.shape[0] != max(diagonal.shape[0] - 1, 0):
        refuse_shapes(name, diagonal.shape, off.shape)
    if jnp.iscomplexobj(diagonal):
        msg = f"{name} needs a real diagonal, got dtype {diagonal.dtype}."
        raise TypeError(msg)
    refuse_nonfinite(name, diagonal)
    refuse_nonfinite(name, off)
    return diagonal, off


def as_selection(name: str, select: str, select_range: object, size: int) -> slice:
    """`select` and `select_range` of SciPy as a slice of `size` ascending values."""
    check_choice(name, "select", select, ("a", "i", "v"))
    if select == "v":
        msg = f"{name} with select='v' has no static shape; select by index, or mask the result."
        raise NotImplementedError(msg)
    if select == "a":
        return slice(None)
    if not (isinstance(select_range, (tuple, list)) and len(select_range) == 2):
        msg = f"{name} with select='i' needs select_range=(first, last), got {select_range!r}."
        raise ValueError(msg)
    first, last = (int(bound) for bound in select_range)
    if not 0 <= first <= last < size:
        msg = f"{name} needs 0 <= first <= last < {size} in select_range, got {select_range!r}."
        raise ValueError(msg)
    return slice(first, last + 1)


# Loops and reversible programs (_memory).


class ReconstructionError(ArithmeticError):
    """A carry that was computed backwards is not the one that was computed forwards.

    `error` is the largest relative difference.
    """

    def __init__(self, message: str, error: float):
        super().__init__(message)
        self.error = error


def refuse_reconstruction(name: str, error: Array, rtol: float) -> None:
    """Refuse a failed reconstruction where its error can be seen, outside of jit and vmap."""
    if isinstance(error, Tracer) or bool(error <= rtol):
        return
    msg = (
        f"{name} went back to a start that differs from the true one by {float(error):.2e} "
        f"(relative; rtol={rtol:.2e}, NaN if a carry is NaN). Either `inverse` is not the inverse "
        "of `step`, or rounding has grown on the way back: give refresh_every, use float64, or "
        "use scan. Under jit the gradient would be NaN."
    )
    raise ReconstructionError(msg, float(error))


def check_chain_input(x: object, count: int) -> None:
    """Refuse an input of a chain that is not one entry for each member."""
    if not isinstance(x, (tuple, list)) or len(x) != count:
        got = f"{len(x)} entries" if isinstance(x, (tuple, list)) else type(x).__name__
        msg = (
            f"chain of {count} steps needs x as a tuple of {count} entries, got {got}; give every "
            "member the same x with shared=True."
        )
        raise ValueError(msg)


def check_same_carry(name: str, given: object, returned: object) -> None:
    """Refuse a step that changes the structure, a shape or a dtype of the carry."""
    if jax.tree.structure(given) != jax.tree.structure(returned):
        msg = (
            f"{name} needs a step that keeps the structure of the carry, got "
            f"{jax.tree.structure(returned)} for {jax.tree.structure(given)}."
        )
        raise TypeError(msg)
    pairs = zip(jax.tree.leaves(given), jax.tree.leaves(returned), strict=True)
    for old, new in pairs:
        if old.shape != new.shape or old.dtype != new.dtype:
            msg = (
                f"{name} needs a step that keeps the shapes and dtypes of the carry, got "
                f"{new.dtype}{list(new.shape)} for {old.dtype}{list(old.shape)}; convert one of "
                "them."
            )
            raise TypeError(msg)


def scan_length(name: str, xs: object, length: int | None) -> int:
    """The number of steps from the leading axes of `xs` and from `length`."""
    leaves = jax.tree.leaves(xs)
    if any(jnp.ndim(leaf) == 0 for leaf in leaves):
        msg = f"{name} needs xs with a leading axis, got a scalar in it."
        raise ValueError(msg)
    sizes = {jnp.shape(leaf)[0] for leaf in leaves} | (
        {int(length)} if length is not None else set()
    )
    if len(sizes) != 1:
        msg = (
            f"{name} needs one number of steps, from the leading axes of xs or from length, got "
            f"{sorted(sizes)}."
        )
        raise ValueError(msg)
    return sizes.pop()


def check_positive(name: str, argument: str, value: object, least: int = 1) -> int:
    """`value` as a static integer that is `least` or more."""
    if isinstance(value, (bool, Tracer)) or not hasattr(value, "__index__"):
        msg = f"{name} needs {argument} as a Python integer, got {type(value).__name__}."
        raise TypeError(msg)
    number = value.__index__()  # type: ignore[attr-defined]
    if number < least:
        msg = f"{name} needs {argument} >= {least}, got {argument}={number}."
        raise ValueError(msg)
    return number


def check_splitting(kicks: Sequence[float], drifts: Sequence[float]) -> None:
    """Refuse a splitting whose kicks and drifts do not alternate from kick to kick."""
    if len(kicks) != len(drifts) + 1:
        msg = (
            f"splitting needs one drift between each two kicks, got {len(kicks)} kicks and "
            f"{len(drifts)} drifts; begin or end with a kick of 0.0 if need be."
        )
        raise ValueError(msg)


def check_coupling(coupling: float) -> None:
    """Refuse a coupling for which the pair cannot be inverted."""
    if not 0.0 < coupling <= 1.0:
        msg = f"mccallum_foster needs 0 < coupling <= 1, got coupling={coupling}."
        raise ValueError(msg)


def check_generator(matrix: np.ndarray, size: int) -> None:
    """Refuse a generator that is not a Hermitian matrix of this size."""
    if matrix.shape != (size, size):
        msg = f"local_gate needs a generator of shape {(size, size)}, got {matrix.shape}."
        raise ValueError(msg)
    if not np.allclose(matrix, matrix.conj().T, rtol=0.0, atol=1e-6 * np.abs(matrix).max()):
        msg = "local_gate needs a Hermitian generator; take (G + G^H) / 2."
        raise ValueError(msg)


def register_size(shape: tuple[int, ...], dim: int, sites: Sequence[int]) -> int:
    """The number of sites of a state, which must hold all of `sites`."""
    count = round(math.log(max(shape[0], 1), dim)) if len(shape) == 1 else -1
    if count < 0 or dim**count != shape[0]:
        msg = f"local_gate needs a state of shape (dim^n,) with dim={dim}, got {shape}."
        raise ValueError(msg)
    if len(set(sites)) != len(sites) or not all(0 <= site < count for site in sites):
        msg = f"local_gate needs distinct sites from 0 to {count - 1}, got {list(sites)}."
        raise ValueError(msg)
    return count


def check_lipschitz(bound: float) -> None:
    """Refuse a bound with which a residual block is not known to be invertible."""
    if isinstance(bound, Tracer) or not 0.0 <= bound < 1.0:
        msg = (
            f"residual_block needs a Python number 0 <= lipschitz < 1, got {bound}; scale the "
            "branch down, for example by its spectral norm."
        )
        raise ValueError(msg)


def as_exact_leaf(name: str, value: ArrayLike) -> Array:
    """`value` as a real floating array, which fixed-point arithmetic can hold."""
    array = as_inexact(name, value)
    if not jnp.issubdtype(array.dtype, jnp.floating) or jnp.finfo(array.dtype).bits < 32:
        msg = f"{name} needs float32 or float64, got {array.dtype}; split complex numbers."
        raise TypeError(msg)
    return array


def check_decay(decay: float) -> None:
    """Refuse a momentum coefficient for which no buffer is long enough."""
    if isinstance(decay, Tracer) or not 0.0 < decay <= 1.0:
        msg = f"momentum_start needs a Python number 0 < least_decay <= 1, got {decay}."
        raise ValueError(msg)


class StepLimitError(RuntimeError):
    """A loop has not come to its end within its bound; `carry` is its last carry."""

    def __init__(self, message: str, carry: object):
        super().__init__(message)
        self.carry = carry


def refuse_step_limit(name: str, more: Array, max_steps: int | None, carry: object) -> None:
    """Refuse an unfinished loop where that can be seen, outside of transformations."""
    if isinstance(more, Tracer) or not bool(more):
        return
    msg = (
        f"{name} has not come to its end within max_steps={max_steps}; raise max_steps, or look "
        "at the carry that this exception holds. Under jit the result would be NaN."
    )
    raise StepLimitError(msg, carry)


def check_bound(name: str, max_steps: object) -> int:
    """The bound of a loop with nested checkpoints."""
    if max_steps is None:
        msg = (
            f"{name} with Nested checkpoints needs max_steps, a Python integer; Online(slots) "
            "needs no bound."
        )
        raise ValueError(msg)
    return check_positive(name, "max_steps", max_steps, 0)


def check_kind(name: str, checkpoints: object, kinds: tuple[type, ...]) -> None:
    """Refuse checkpoints that a loop cannot follow."""
    if not isinstance(checkpoints, kinds):
        listed = " or ".join(kind.__name__ for kind in kinds)
        msg = f"{name} takes checkpoints={listed}, got {checkpoints!r}."
        raise TypeError(msg)


def as_condition(name: str, value: ArrayLike) -> Array:
    """The value of a loop condition, a Boolean scalar."""
    condition = jnp.asarray(value)
    if condition.shape != () or condition.dtype != jnp.bool_:
        msg = (
            f"{name} needs a condition that returns a Boolean scalar, got "
            f"{condition.dtype}{list(condition.shape)}."
        )
        raise TypeError(msg)
    return condition


# Ordinary differential equations.


def as_argument(name: str, x: object) -> Array:
    """One leaf of the arguments of a right-hand side as an array."""
    if not isinstance(x, (bool, int, float, complex)) and not hasattr(x, "dtype"):
        msg = (
            f"{name} takes arguments that are arrays, numbers or containers of them, got "
            f"{type(x).__name__}; let the function close over anything else."
        )
        raise TypeError(msg)
    return jnp.asarray(x)


def as_state(name: str, x: object) -> Array:
    """One leaf of the initial state as an array of a strong floating or complex dtype."""
    array = as_inexact(name, x)  # type: ignore[arg-type]
    return jax.lax.convert_element_type(array, array.dtype)


def as_times(name: str, t: object) -> Array:
    """The times as an array; where they can be seen they must be finite and monotone."""
    array = as_argument(name, t) if not isinstance(t, (list, tuple)) else jnp.asarray(t)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        msg = f"{name} needs times of a floating dtype, got {array.dtype}; use t.astype(float)."
        raise TypeError(msg)
    if array.ndim != 1 or array.shape[0] == 0:
        msg = f"{name} needs a vector of times, shape (m,) with m >= 1, got shape {array.shape}."
        raise ValueError(msg)
    if not isinstance(array, Tracer):
        values = np.asarray(array)
        steps = np.diff(values)
        if not np.all(np.isfinite(values)):
            msg = f"{name} got a time that is not finite: {array}."
            raise ValueError(msg)
        if not (np.all(steps >= 0) or np.all(steps <= 0)):
            turn = int(np.argmax(steps * np.sign(steps[np.flatnonzero(steps)[0]]) < 0))
            msg = (
                f"{name} needs times that increase or decrease throughout; t[{turn}] = "
                f"{float(values[turn])!r} and t[{turn + 1}] = {float(values[turn + 1])!r} turn "
                "back. Sort them, for example with jnp.sort."
            )
            raise ValueError(msg)
    return jax.lax.convert_element_type(array, array.dtype)


def match_field(name: str, out: object, y: list[Array], treedef: object) -> list[Array]:
    """The value of a right-hand side as leaves with the shapes and dtypes of the state.

    As in JAX's own integrator, a value of another structure counts if it has as many entries.
    """
    leaves = [jnp.asarray(x) for x in jax.tree.leaves(out)]
    same = jax.tree.structure(out) == treedef
    if [x.shape for x in leaves] != [x.shape for x in y]:
        total, needed = sum(x.size for x in leaves), sum(x.size for x in y)
        if same or total != needed:
            got = ", ".join(str(x.shape) for x in leaves)
            want = ", ".join(str(x.shape) for x in y)
            msg = (
                f"{name} needs a right-hand side that returns what the state is, shapes {want}; "
                f"got shapes {got}."
            )
            raise ValueError(msg)
        flat = jnp.concatenate([x.ravel() for x in leaves])
        ends = [0]
        for x in y:
            ends.append(ends[-1] + x.size)
        leaves = [flat[ends[i] : ends[i + 1]].reshape(x.shape) for i, x in enumerate(y)]
    matched = []
    for value, x in zip(leaves, y, strict=True):
        if jnp.result_type(value, x) != x.dtype:
            msg = (
                f"{name} got a right-hand side of dtype {value.dtype} for a state of dtype "
                f"{x.dtype}; convert the state to {jnp.result_type(value, x)}, or the value to "
                f"{x.dtype}."
            )
            raise TypeError(msg)
        matched.append(jax.lax.convert_element_type(value, x.dtype))
    return matched


ODE_FAILURES = {
    1: "the budget of steps is spent; allow more of them, loosen rtol and atol, or use a stiff "
    "method",
    2: "the right-hand side is not finite there; look for a division by zero or an overflow in it",
    3: "the step size underflows; the solution is probably singular there, or the problem stiff",
    4: "more steps are needed than the derivative method records; raise its max_steps",
    5: "the times do not increase or decrease throughout; sort them",
}


def ode_message(status: int) -> str:
    """What a status of an integration says."""
    if status == 0:
        return "The integration reached the end of the interval."
    if status == 6:
        return "A terminal event occurred."
    return f"The integration failed: {ODE_FAILURES[status]}."


def raise_ode_failure(name: str, status: Array, where: Array, counts: Array) -> None:
    """Refuse to go on after a failed integration, where its status can be seen."""
    if isinstance(status, Tracer) or int(status) in (0, 6):
        return
    t, h = (float(x) for x in where)
    accepted, rejected = (int(x) for x in counts)
    msg = (
        f"{name} stopped at t = {t!r} with step size {h:.3e} after {accepted} accepted and "
        f"{rejected} rejected steps: {ODE_FAILURES[int(status)]}. Under jit the result is NaN."
    )
    raise RuntimeError(msg)


def as_first_step(first_step: object, fixed: bool) -> float | None:
    """The size of the first step as a positive number, needed if all steps have it."""
    if first_step is None:
        if fixed:
            msg = "solve_ivp needs first_step, the size of all steps, for method='RK4'."
            raise ValueError(msg)
        return None
    size = float(first_step)  # type: ignore[arg-type]
    if not size > 0.0:
        msg = f"solve_ivp needs first_step > 0 (a size, without direction), got {first_step!r}."
        raise ValueError(msg)
    return size


def as_span(name: str, t_span: object) -> Array:
    """The two ends of an interval as one vector."""
    try:
        start, end = t_span  # type: ignore[misc]
    except (TypeError, ValueError) as error:
        msg = f"{name} needs t_span as a pair of times, got {t_span!r}."
        raise ValueError(msg) from error
    ends = [jnp.asarray(x) for x in (start, end)]
    dtype = jnp.result_type(*ends, float if all(_is_integer(x) for x in ends) else ends[0])
    return as_times(name, jnp.stack([x.astype(dtype) for x in ends]))


def _is_integer(x: Array) -> bool:
    return not jnp.issubdtype(x.dtype, jnp.inexact)


def as_evaluation_times(name: str, t_eval: object, span: Array) -> Array:
    """The times at which states are wanted; where they can be seen they lie in the span."""
    times = jnp.asarray(t_eval, span.dtype)
    if times.ndim != 1:
        msg = f"{name} needs t_eval as a vector, got shape {times.shape}."
        raise ValueError(msg)
    if isinstance(times, Tracer) or isinstance(span, Tracer):
        return times
    values, ends = np.asarray(times), np.sort(np.asarray(span))
    if np.any(values < ends[0]) or np.any(values > ends[1]):
        msg = f"{name} needs t_eval inside of t_span = {np.asarray(span)}, got {values}."
        raise ValueError(msg)
    as_times(name, jnp.concatenate([span[:1], times, span[1:]]))
    return times


def as_event_value(value: object, t: Array) -> Array:
    """The value of an event function as one real number."""
    array = jnp.asarray(value)
    if array.size != 1 or jnp.iscomplexobj(array):
        msg = (
            f"solve_ivp needs events that return one real number, got shape {array.shape} and "
            f"dtype {array.dtype}."
        )
        raise ValueError(msg)
    return array.reshape(()).astype(t.dtype)


def check_reconstruction(name: str, error: Array, rtol: float) -> None:
    """Refuse a reverse pass that did not find its way back, where this can be seen."""
    if not isinstance(error, Tracer) and not float(error) <= rtol:
        msg = (
            f"{name} rebuilt the first state with a relative error of {float(error):.1e}, more "
            f"than {rtol:.1e}; take smaller steps or adjoint=Checkpointed(). Under jit the "
            "gradient is NaN."
        )
        raise RuntimeError(msg)


class NotConverged(RuntimeError):
    """An iteration ended before the wanted accuracy; `found` is what it would have returned."""

    def __init__(self, message: str, found: object):
        super().__init__(message)
        self.found = found


def refuse_unconverged(name: str, what: str, found: object, remedy: str) -> NoReturn:
    """Report an iteration that did not converge, with what it found."""
    msg = (
        f"{name} has not converged: {what}. {remedy} The exception carries what was found in its "
        "attribute `found`; under jit the values that have not converged are NaN."
    )
    raise NotConverged(msg, found)


def refuse_not_hermitian(name: str, defect: float) -> NoReturn:
    """Refuse an operator that differs from its adjoint."""
    msg = (
        f"{name} needs a Hermitian operator; this one differs from its adjoint by {defect:.1e} of "
        "its norm. Use eigs, or check the operator."
    )
    raise ValueError(msg)


def check_vector_leaves(name: str, leaves: list) -> None:
    """Refuse a vector that is not made of numbers."""
    if not leaves:
        msg = f"{name} got an empty vector; it needs an array or a pytree of arrays."
        raise ValueError(msg)
    for leaf in leaves:
        if not hasattr(leaf, "dtype") and not isinstance(leaf, (bool, int, float, complex)):
            msg = f"{name} needs vectors made of arrays, got {type(leaf).__name__}."
            raise TypeError(msg)


def check_same_vectors(name: str, vector: object, image: object) -> None:
    """Refuse a function that does not map a space of vectors to itself."""
    got = jax.tree.map(jnp.shape, image), jax.tree.structure(image)
    want = jax.tree.map(jnp.shape, vector), jax.tree.structure(vector)
    if got != want:
        msg = (
            f"{name} needs an operator whose image has the structure of the vector: from shapes "
            f"{want[0]} it made {got[0]}."
        )
        raise ValueError(msg)


def require_example(name: str, argument: str) -> NoReturn:
    """Ask for the vector that says on what a function acts."""
    msg = (
        f"{name} cannot know the vectors that a function acts on: give {argument}, a vector or "
        "its shapes (jax.ShapeDtypeStruct)."
    )
    raise ValueError(msg)


def check_vector(name: str, argument: str, got: object, size: int) -> None:
    """Refuse a vector that does not fit the operator."""
    shape = getattr(got, "shape", type(got).__name__)
    if shape != (size,):
        msg = f"{name} needs {argument} of shape ({size},) for this operator, got {shape}."
        raise ValueError(msg)


def check_count(name: str, argument: str, value: object, low: int, high: int) -> int:
    """A static integer from `low` to `high`."""
    if isinstance(value, (bool, Tracer)) or not hasattr(value, "__index__"):
        msg = (
            f"{name} needs `{argument}` as a Python integer, got {type(value).__name__}; it fixes "
            "the shape of arrays, so under jit mark it static."
        )
        raise TypeError(msg)
    number = value.__index__()  # type: ignore[attr-defined]
    if not low <= number <= high:
        msg = f"{name} needs {low} <= {argument} <= {high} here, got {argument}={number}."
        raise ValueError(msg)
    return number


def refuse_argument(name: str, argument: str, reason: str) -> NoReturn:
    """Refuse an argument that does not go with the others."""
    msg = f"{name} cannot take {argument}: {reason}."
    raise ValueError(msg)


def check_square(name: str, shape: tuple[int, ...]) -> None:
    """Refuse a matrix that is not one square matrix."""
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] == 0:
        msg = (
            f"{name} needs one square matrix, shape (n, n), got shape {shape}; use jax.vmap for a "
            "stack, svds for a rectangular matrix."
        )
        raise ValueError(msg)


def check_fits(name: str, shape: tuple[int, ...], size: int) -> None:
    """Refuse a matrix that does not act on vectors of `size`."""
    if tuple(shape) != (size, size):
        msg = f"{name} needs matrices of shape ({size}, {size}) here, got shape {tuple(shape)}."
        raise ValueError(msg)


def refuse_operator(name: str, a: object) -> NoReturn:
    """Refuse what is neither a matrix nor a function."""
    msg = f"{name} needs an array, a BCOO matrix or a function, got {type(a).__name__}."
    raise TypeError(msg)


def check_matrix_shape(name: str, shape: tuple[int, ...]) -> None:
    """Refuse what is not one matrix."""
    if len(shape) != 2 or 0 in shape:
        msg = f"{name} needs one matrix, shape (m, n), got shape {shape}; use jax.vmap for a stack."
        raise ValueError(msg)


def check_flat(name: str, *shapes: tuple[int, ...]) -> None:
    """Refuse vectors that are not one-dimensional arrays."""
    if any(len(shape) != 1 for shape in shapes):
        msg = f"{name} needs functions from arrays (n,) to arrays (m,), got shapes {shapes}."
        raise ValueError(msg)


class NotConvergedError(ArithmeticError):
    """An iteration ended without a solution.

    Attributes:
        x: what was found.
        info: how far it came.
    """

    def __init__(self, message: str, x: object, info: object):
        super().__init__(message)
        self.x = x
        self.info = info


def refuse_unconverged_root(
    name: str, x: object, info: object, steps: int, residual: float
) -> NoReturn:
    """Report an iteration that has not converged, with what it found."""
    msg = (
        f"{name} has not converged after {steps} steps (relative residual {residual:.2e}); give a "
        "better x0, more max_steps, or a larger rtol. The exception carries x and info. Under jit "
        "the result would be NaN."
    )
    raise NotConvergedError(msg, x, info)


def as_unknown(name: str, leaf: object) -> Array:
    """A leaf of `x0`, the unknown of an equation, as a floating or complex array."""
    array = jnp.asarray(leaf)
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        msg = (
            f"{name} needs floating or complex leaves in x0, got dtype {array.dtype} (shape "
            f"{array.shape}); convert it with .astype(float), or pass it in params."
        )
        raise TypeError(msg)
    return array


def as_parameter(name: str, leaf: object) -> Array:
    """A leaf of `params` as an array."""
    if not hasattr(leaf, "dtype") and not isinstance(leaf, (bool, int, float, complex)):
        msg = (
            f"{name} needs arrays and numbers as leaves of params, got {type(leaf).__name__}; let "
            "the function close over anything else."
        )
        raise TypeError(msg)
    return jnp.asarray(leaf)


def check_same_avals(name: str, want: tuple, got: tuple) -> None:
    """Refuse a function whose value does not look like `x0`; pairs of tree and leaf types."""
    if want != got:
        msg = (
            f"{name} needs f(x, params) with the structure, shapes and dtypes of x0, {want[0]} of "
            f"{want[1]}, got {got[0]} of {got[1]}."
        )
        raise TypeError(msg)


def check_iteration(name: str, rtol: float, atol: float, max_steps: int) -> None:
    """Refuse tolerances and numbers of steps that make no sense."""
    if not (rtol >= 0.0 and atol >= 0.0):
        msg = f"{name} needs rtol >= 0 and atol >= 0, got rtol={rtol}, atol={atol}."
        raise ValueError(msg)
    if isinstance(max_steps, bool) or not hasattr(max_steps, "__index__") or max_steps < 1:
        msg = f"{name} needs max_steps as a positive integer, got {max_steps!r}."
        raise ValueError(msg)


def as_axes(name: str, axis: int | tuple[int, ...] | None, ndim: int) -> tuple[int, ...]:
    """`axis` as a tuple of distinct axes counted from the front; `None` is all of them."""
    if axis is None:
        return tuple(range(ndim))
    listed = axis if isinstance(axis, tuple) else (axis,)
    for one in listed:
        if not -ndim <= one < ndim:
            msg = f"{name} needs axes of an array with {ndim} of them, got axis={axis}."
            raise ValueError(msg)
    axes = tuple(one % ndim for one in listed)
    if len(set(axes)) != len(axes):
        msg = f"{name} needs distinct axes, got axis={axis} for {ndim} dimensions."
        raise ValueError(msg)
    return axes


def refuse_axes(name: str, axes: tuple[int, ...]) -> NoReturn:
    """Refuse a number of axes that is neither that of vectors nor that of matrices."""
    msg = (
        f"{name} with `ord` takes one axis for vectors or two for matrices, got {len(axes)}; "
        "give `axis`, or flatten the array."
    )
    raise ValueError(msg)


def refuse_order(name: str, ord: object, what: str) -> NoReturn:
    """Refuse an order that vectors or matrices do not have."""
    known = (
        "a number, inf or -inf" if what == "vectors" else "'fro', 'nuc', 1, -1, 2, -2, inf, -inf"
    )
    msg = f"{name} of {what} takes ord as {known}, got {ord!r}."
    raise ValueError(msg)


def check_alias(name: str, first: str, value: object, second: str, alias: object) -> None:
    """Refuse two names of one argument."""
    if value is not None and alias is not None:
        msg = f"{name} takes {first} or {second}, which mean the same; give one of them."
        raise ValueError(msg)


def check_least_squares(name: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    """Refuse shapes that are not those of one least-squares problem."""
    if a and b and a[0] != b[0]:
        msg = f"{name} needs as many rows in `b` as in `a`, got shapes {a} and {b}."
        raise ValueError(msg)
    if len(a) != 2 or len(b) not in (1, 2):
        msg = (
            f"{name} needs a matrix `a` and a vector or matrix `b`, got shapes {a} and {b}; "
            "for stacks use jax.vmap."
        )
        raise TypeError(msg)


def refuse_empty(name: str, a: Array) -> None:
    """Refuse matrices without entries."""
    if 0 in a.shape[-2:]:
        msg = f"{name} needs matrices with entries, got shape {a.shape}."
        raise ValueError(msg)


def refuse_blocks(name: str, blocksize: object) -> NoReturn:
    """Refuse a blocked algorithm, which JAX does not have either."""
    msg = f"{name} has no blocked version, got blocksize={blocksize!r}; leave it 1."
    raise NotImplementedError(msg)


def check_given_rank(name: str, rank: object, limit: int) -> int:
    """A `rank` that is given, as a static integer from 0 to `limit`."""
    if rank == 0 and not isinstance(rank, (bool, Tracer)):
        return 0
    return check_rank(name, rank, limit)


def refuse_unknown_rank(name: str, a: Array) -> None:
    """Refuse a matrix whose rank, and so the shape of the result, cannot be seen."""
    if isinstance(a, Tracer):
        msg = (
            f"{name} cannot see the values of its argument (shape {a.shape}) under jit or vmap, "
            "and their rank is the shape of the result; give the rank by keyword."
        )
        raise TypeError(msg)


def common_rank(name: str, ranks: np.ndarray) -> int:
    """The rank of all matrices of a stack."""
    if ranks.min() != ranks.max():
        msg = (
            f"{name} got a stack of matrices of ranks {ranks.min()} to {ranks.max()}, whose "
            "results differ in shape; give the rank by keyword, or treat them one by one."
        )
        raise ValueError(msg)
    return int(ranks.max())
