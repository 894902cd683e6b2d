"""Linear operators: arrays, BCOO matrices and functions, on flat vectors and on rows of them.

Inside of the solvers a vector is a flat array of shape `(n,)` and a block of vectors is an array
of rows, shape `(b, n)`: a row is contiguous, and a Krylov basis grows by whole rows. What the
user's function closes over becomes the `smooth` (floating) and `fixed` arrays of `Linear`, which
is a pytree, so that derivatives flow to them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental.sparse import BCOO, BCSR

from difflinalg._core import krylov_checks
from difflinalg._core.algebra import HIGHEST
from difflinalg._core.program import Program, hoist


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["smooth", "fixed"],
    meta_fields=["program", "is_smooth"],
)
@dataclass(frozen=True)
class Linear:
    """A linear map of flat vectors."""

    smooth: tuple[Any, ...]
    fixed: tuple[Any, ...]
    program: Program
    is_smooth: tuple[bool, ...]

    def __call__(self, x: Array) -> Array:
        """The image of one vector."""
        parts = [iter(self.fixed), iter(self.smooth)]
        consts = [next(parts[smooth]) for smooth in self.is_smooth]
        return self.program(consts, x)

    def rows(self, x: Array) -> Array:
        """The images of the rows of `x`."""
        if x.shape[0] == 1:
            return self(x[0])[None]
        return jax.vmap(self)(x)

    def transpose(self, size: int, dtype: Any) -> "Linear":
        """The transpose (without conjugation) of the map, which takes vectors of `size`."""
        example = jax.ShapeDtypeStruct((size,), dtype)
        image = jax.eval_shape(self, example)
        return linear(lambda y: jax.linear_transpose(self, example)(y)[0], image)

    def rows_dot(self, tangent: "Linear", x: Array, apply: "Rows | None" = None) -> Array | None:
        """The rows of `A_dot x` for a tangent of what the map closes over; None if it is zero.

        Of another linear map that is made of this one, such as its adjoint, if `apply` is given.
        """
        moving = [i for i, leaf in enumerate(tangent.smooth) if leaf is not None]
        if not moving:
            return None

        def of_moving(leaves):
            smooth = list(self.smooth)
            for i, leaf in zip(moving, leaves, strict=True):
                smooth[i] = leaf
            moved = replace(self, smooth=tuple(smooth))
            return moved.rows(x) if apply is None else apply(moved, x)

        leaves = [self.smooth[i] for i in moving]
        return jax.jvp(of_moving, (leaves,), ([tangent.smooth[i] for i in moving],))[1]


Rows = Callable[[Linear, Array], Array]


def linear(f: Callable[[Array], Array], example: Any) -> Linear:
    """The linear map `f` of flat vectors like `example`."""
    program, consts = hoist(f, jax.ShapeDtypeStruct(example.shape, example.dtype))
    is_smooth = tuple(bool(jnp.issubdtype(c.dtype, jnp.inexact)) for c in consts)
    smooth = tuple(c for c, s in zip(consts, is_smooth, strict=True) if s)
    fixed = tuple(c for c, s in zip(consts, is_smooth, strict=True) if not s)
    return Linear(smooth, fixed, program, is_smooth)


@dataclass(frozen=True)
class VectorSpace:
    """Vectors of the user: pytrees of arrays, all of one floating or complex dtype."""

    treedef: Any
    shapes: tuple[tuple[int, ...], ...]
    dtype: Any

    @property
    def size(self) -> int:
        """The number of entries of a vector."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def example(self) -> jax.ShapeDtypeStruct:
        """The shape of a flat vector."""
        return jax.ShapeDtypeStruct((self.size,), self.dtype)

    def flatten(self, tree: Any) -> Array:
        """A vector as a flat array; a one-dimensional array stays as it is, with its sharding."""
        leaves = [jnp.asarray(leaf).astype(self.dtype) for leaf in jax.tree.leaves(tree)]
        leaves = [leaf if leaf.ndim == 1 else leaf.reshape(-1) for leaf in leaves]
        return leaves[0] if len(leaves) == 1 else jnp.concatenate(leaves)

    def unflatten(self, x: Array) -> Any:
        """The vector of a flat array."""
        return self._split(x, ())

    def columns(self, rows: Array) -> Any:
        """The vectors of rows `(k, n)`, with the last axis for the number of the vector."""
        return self._split(rows.T, (rows.shape[0],))

    def _split(self, x: Array, last: tuple[int, ...]) -> Any:
        leaves, start = [], 0
        for shape in self.shapes:
            size = math.prod(shape)
            part = x if size == x.shape[0] else x[start : start + size]
            leaves.append(part if len(shape) == 1 else part.reshape(*shape, *last))
            start += size
        return jax.tree.unflatten(self.treedef, leaves)

    def with_dtype(self, dtype: Any) -> "VectorSpace":
        """The same vectors of another dtype."""
        return replace(self, dtype=jnp.dtype(dtype))


def space_of(name: str, example: Any) -> VectorSpace:
    """The space of a vector of the user (arrays or their shapes)."""
    leaves, treedef = jax.tree.flatten(example)
    krylov_checks.check_vector_leaves(name, leaves)
    dtypes = [leaf.dtype if hasattr(leaf, "dtype") else jnp.asarray(leaf).dtype for leaf in leaves]
    dtype = jnp.result_type(*dtypes)
    if not jnp.issubdtype(dtype, jnp.inexact):
        dtype = jnp.result_type(float)
    shapes = tuple(tuple(jnp.shape(leaf)) for leaf in leaves)
    return VectorSpace(treedef, shapes, jnp.dtype(dtype))


def is_matrix(a: Any) -> bool:
    """Whether `a` is an array or a sparse matrix rather than a function.

    Raises:
        TypeError: if it is a matrix or operator of another library, which JAX cannot trace.
    """
    if isinstance(a, (BCOO, BCSR)):
        return True
    has_shape = hasattr(a, "dtype") and hasattr(a, "ndim")
    if has_shape and not hasattr(a, "__array__"):
        krylov_checks.refuse_foreign_matrix(a)
    return has_shape


def cast(a: Any, dtype: Any) -> Any:
    """A matrix of another dtype; BCSR becomes BCOO."""
    if isinstance(a, BCSR):
        a = a.to_bcoo()
    return a.astype(dtype) if isinstance(a, BCOO) else jnp.asarray(a, dtype)


def matrix_product(a: Any) -> Callable[[Array], Array]:
    """`x -> a x` at the highest precision, which JAX can batch and transpose in every order.

    The adjoint of the product of a BCOO matrix cannot be transposed under `vmap`: the product is
    written out.
    """
    if not isinstance(a, (BCOO, BCSR)):
        return lambda x: jnp.matmul(a, x, precision=HIGHEST)
    a = a.to_bcoo() if isinstance(a, BCSR) else a
    if a.n_batch or a.n_dense:
        return lambda x: a @ x
    rows, columns = a.indices[:, 0], a.indices[:, 1]

    def product(x: Array) -> Array:  # indices out of bounds are padding
        terms = a.data * x.at[columns].get(mode="fill", fill_value=0)
        return jnp.zeros((a.shape[0],), terms.dtype).at[rows].add(terms, mode="drop")

    return product


def on_flat(name: str, f: Callable[[Any], Any], space: VectorSpace) -> Linear:
    """A function on the user's vectors as a linear map of flat vectors of `space`."""
    tree = jax.eval_shape(space.unflatten, space.example)
    image = jax.eval_shape(f, tree)
    krylov_checks.check_same_vectors(name, tree, image)
    return linear(lambda x: space.flatten(f(space.unflatten(x))), space.example)


def image_dtype(f: Callable[[Any], Any], space: VectorSpace) -> Any:
    """The dtype that holds a vector of `space` and its image."""
    image = jax.eval_shape(f, jax.eval_shape(space.unflatten, space.example))
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(image)]
    return jnp.result_type(space.dtype, *dtypes)
