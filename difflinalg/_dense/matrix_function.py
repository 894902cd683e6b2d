"""Primary matrix functions of general matrices, and their derivatives to any order.

The Frechet derivative L(A, E) of a matrix function f stands in f of a block matrix, for every
square A (Higham 2008, theorem 3.6; Mathias 1996):

    f([[A, E], [0, A]]) = [[f(A), L(A, E)], [0, f(A)]]

L is linear in E. Because `f(A^T) = f(A)^T`, its transpose takes W to `L(A^T, W) = L(A, W^T)^T`; the
second form is evaluated at the matrix of the value, so that a compiler finds what both have in
common. The derivative of L with respect to A in the direction D is the second one, symmetric in E
and D, hence again a first derivative, of a matrix of twice the size:

    L([[A, E], [0, A]], [[D, 0], [0, D]])  holds  L2(A, E, D)  in its upper right block

So two operations, f and L, are closed under differentiation. No eigenvalue gap is divided by:
repeated and defective eigenvalues are nothing special.
"""

from collections.abc import Callable
from typing import Protocol

import jax
import jax.numpy as jnp
from jax import Array

from difflinalg._core.linear_operation import LinearOperation
from difflinalg._core.operation import operation


class MatrixFunction(Protocol):
    """A matrix function: how to evaluate it and its derivative, for a single matrix.

    Hashable, because instances are keys of caches; so two functions must not be equal. Frozen
    dataclasses are equal within a class only, unlike named tuples.
    """

    def value(self, a: Array) -> Array:
        """`f(A)`, of the dtype of `a`."""
        ...

    def frechet(self, a: Array, e: Array) -> Array:
        """`L(A, E)`; need not be differentiable by JAX."""
        ...

    def of_blocks(self) -> "MatrixFunction":
        """The same function for the block matrices of the next order."""
        ...


def apply(f: MatrixFunction, a: Array) -> Array:
    """`f(A)` for a stack of matrices, differentiable to any order in both modes."""
    return _for_stacks(lambda a: matrix_function(a, f), a.ndim)(a)


def frechet(f: MatrixFunction, a: Array, e: Array) -> Array:
    """`L(A, E)` for stacks of matrices of one shape, differentiable like `apply`."""
    return _for_stacks(lambda a, e: frechet_derivative(a, e, f), a.ndim)(a, e)


def _for_stacks(f: Callable[..., Array], ndim: int) -> Callable[..., Array]:
    for _ in range(ndim - 2):
        f = jax.vmap(f)
    return f


@operation(statics=1)
def matrix_function(a: Array, f: MatrixFunction) -> Array:
    """`f(A)` of a single matrix."""
    return f.value(a)


@matrix_function.defjvp
def _matrix_function_jvp(f, primals, tangents):
    (a,), (a_dot,) = primals, tangents
    return matrix_function(a, f), frechet_derivative(a, a_dot, f)


def _frechet_derivative(a: Array, e: Array, f: MatrixFunction) -> Array:
    """`L(A, E)` of a single matrix."""
    return f.frechet(a, e)


frechet_derivative = LinearOperation(_frechet_derivative, statics=1)


@frechet_derivative.defjvp
def _frechet_derivative_jvp(f, primals, tangents):
    (a, e), (a_dot, e_dot) = primals, tangents
    n = a.shape[-1]
    block, direction = block_triangular(a, e), block_triangular(a_dot, None)
    second = frechet_derivative(block, direction, f.of_blocks())
    return frechet_derivative(a, e, f), second[:n, n:] + frechet_derivative(a, e_dot, f)


@frechet_derivative.deftranspose
def _frechet_derivative_transpose(f, a, cotangent):
    return frechet_derivative(a, cotangent.T, f).T


def block_triangular(a: Array, e: Array | None) -> Array:
    """`[[A, E], [0, A]]`, with E = 0 for None."""
    zero = jnp.zeros_like(a)
    return jnp.block([[a, zero if e is None else e], [zero, a]])
