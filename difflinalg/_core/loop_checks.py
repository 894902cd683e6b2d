"""Checks and error texts of checkpointed loops and reversible programs."""

import math
import operator
from collections.abc import Sequence
from typing import NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from difflinalg._core.checks import as_inexact, check_positive


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
    sizes = {jnp.shape(leaf)[0] for leaf in leaves}
    if length is not None:
        count = int(length)
        if count != length or count < 0:
            msg = f"{name} needs length as an integer, zero or positive, got {length}."
            raise ValueError(msg)
        sizes.add(count)
    if len(sizes) != 1:
        msg = (
            f"{name} needs one number of steps, from the leading axes of xs or from length, got "
            f"{sorted(sizes)}."
        )
        raise ValueError(msg)
    return sizes.pop()


def check_splitting(kicks: Sequence[float], drifts: Sequence[float]) -> None:
    """Refuse a splitting whose kicks and drifts do not alternate, or do not make one step."""
    if len(kicks) != len(drifts) + 1:
        msg = (
            f"splitting needs one drift between each two kicks, got {len(kicks)} kicks and "
            f"{len(drifts)} drifts; begin or end with a kick of 0.0 if need be."
        )
        raise ValueError(msg)
    for name, shares in (("kicks", kicks), ("drifts", drifts)):
        if shares and abs(sum(shares) - 1.0) > 1e-6:
            msg = f"splitting needs {name} that sum to 1, got the sum {sum(shares)}."
            raise ValueError(msg)


def check_coupling(coupling: float) -> None:
    """Refuse a coupling for which the pair cannot be inverted."""
    if not 0.0 < coupling <= 1.0:
        msg = f"mccallum_foster needs 0 < coupling <= 1, got coupling={coupling}."
        raise ValueError(msg)


def check_generator(matrix: np.ndarray, size: int) -> None:
    """Refuse a generator that is not a finite Hermitian matrix of this size."""
    if matrix.shape != (size, size):
        msg = f"local_gate needs a generator of shape {(size, size)}, got {matrix.shape}."
        raise ValueError(msg)
    if not np.all(np.isfinite(matrix)):
        msg = "local_gate got a generator that contains NaN or inf."
        raise ValueError(msg)
    if not np.allclose(matrix, matrix.conj().T, rtol=0.0, atol=1e-6 * np.abs(matrix).max()):
        msg = "local_gate needs a Hermitian generator; take (G + G^H) / 2."
        raise ValueError(msg)


def as_sites(sites: object) -> tuple[int, ...]:
    """The sites of a gate, a sequence of integers."""
    try:
        return tuple(operator.index(site) for site in sites)  # type: ignore[attr-defined]
    except TypeError:
        msg = f"local_gate needs sites as a sequence of integers, such as [1], got {sites!r}."
        raise TypeError(msg) from None


def as_diagonals(diagonals: ArrayLike) -> Array | np.ndarray:
    """Real diagonals, shape `(K, n)` or `(n,)`; not an array of JAX unless they are traced."""
    table = diagonals if isinstance(diagonals, Tracer) else np.asarray(diagonals)
    if table.ndim not in (1, 2) or jnp.iscomplexobj(table):
        msg = (
            f"diagonal_gate needs real diagonals of shape (n,) or (K, n), got "
            f"{table.dtype}{list(table.shape)}; a generator is Hermitian."
        )
        raise (TypeError if jnp.iscomplexobj(table) else ValueError)(msg)
    return table


def as_angle(theta: ArrayLike) -> Array:
    """The angle of a gate, real."""
    angle = jnp.asarray(theta)
    if jnp.iscomplexobj(angle):
        msg = (
            f"a gate needs a real angle, got {angle.dtype}{list(angle.shape)}; take its real part."
        )
        raise TypeError(msg)
    return angle


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
    """`value` as a float64 array, which fixed-point arithmetic can hold.

    The product with `n / d` is exact but for `d` units of the grid, which in the 24 bits of
    float32 are as large as the numbers themselves.
    """
    array = as_inexact(name, value)
    if array.dtype != jnp.float64:
        msg = (
            f"{name} needs float64, got {array.dtype}; enable jax_enable_x64 and convert, or split "
            "complex numbers."
        )
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


def as_generator(generator: ArrayLike) -> np.ndarray:
    """A generator that is known when the gate is made."""
    if isinstance(generator, Tracer):
        msg = (
            "local_gate diagonalises its generator when it is made and needs a known matrix, got a "
            "traced one; put what is traced into the angle, or into involution_gate or "
            "diagonal_gate."
        )
        raise TypeError(msg)
    return np.asarray(generator)


def check_pair(name: str, returned: object, what: str) -> None:
    """Refuse a function that does not return a pair."""
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        got = type(returned).__name__
        got = f"{len(returned)} values" if isinstance(returned, (tuple, list)) else f"one {got}"
        msg = f"{name} needs a function that returns the pair {what}, got {got}."
        raise TypeError(msg)


def check_members(count: int) -> None:
    """Refuse a chain without steps."""
    if not count:
        msg = "chain needs at least one step."
        raise ValueError(msg)


def check_index_bound(value: ArrayLike) -> None:
    """Refuse a bound of a loop index that is not an integer scalar."""
    dtype, shape = jnp.result_type(value), jnp.shape(value)
    if shape != () or not jnp.issubdtype(dtype, jnp.integer):
        msg = f"fori_loop needs integer scalars as bounds, got {dtype}{list(shape)}."
        raise TypeError(msg)


def check_within_bound(count: int, max_steps: object) -> None:
    """Refuse a loop of known length that is longer than its bound."""
    if max_steps is None:
        return
    most = check_positive("fori_loop", "max_steps", max_steps, 0)
    if count > most:
        msg = f"fori_loop has {count} steps, more than max_steps={most}; raise max_steps."
        raise ValueError(msg)


def refuse_second_reverse(name: str) -> NoReturn:
    """Refuse reverse mode of a gradient whose backward pass is a loop of unknown length."""
    msg = (
        f"the gradient of a {name} has no reverse mode; use Nested, or forward mode over reverse "
        "mode: jax.jvp or jax.jacfwd of jax.grad."
    )
    raise TypeError(msg)


def check_slope(position: object, slope: object) -> None:
    """Refuse a gradient that is not like the parameters."""
    trees = [jax.tree.structure(tree) for tree in (position, slope)]
    shapes = [[jnp.shape(leaf) for leaf in jax.tree.leaves(tree)] for tree in (position, slope)]
    if trees[0] != trees[1] or shapes[0] != shapes[1]:
        msg = (
            "momentum needs a gradient with the structure and the shapes of the parameters, got "
            f"{trees[1]} of {shapes[1]} for {trees[0]} of {shapes[0]}."
        )
        raise TypeError(msg)
