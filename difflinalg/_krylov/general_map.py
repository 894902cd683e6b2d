"""A general operator pencil on complex rows, seen from the right or from the left.

A real operator acts on the real and the imaginary part. Its adjoint comes from
`jax.linear_transpose` of what the user gave, so that a function needs no adjoint of its own.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from difflinalg._krylov.eigsh_rule import Operators
from difflinalg._krylov.operator import Linear, Rows
from difflinalg._krylov.orthogonal import combine, inner


def complex_rows(f: Linear, x: Array, dtype: Any) -> Array:
    """The images of rows under a map of vectors of `dtype`; a real one also takes complex rows."""
    return _on_parts(lambda f, x: f.rows(x), f, x, dtype)


def adjoint_rows(f: Linear, x: Array, dtype: Any) -> Array:
    """The images of rows under the adjoint of a map of vectors of `dtype`."""
    return _on_parts(lambda f, x: _adjoint(f, x, dtype), f, x, dtype)


def _adjoint(f: Linear, x: Array, dtype: Any) -> Array:
    transposed = jax.linear_transpose(f, jax.ShapeDtypeStruct(x.shape[1:], dtype))
    if x.shape[0] == 1:
        return jnp.conj(transposed(jnp.conj(x[0]))[0])[None]
    return jnp.conj(jax.vmap(lambda row: transposed(row)[0])(jnp.conj(x)))


def _on_parts(apply: Rows, f: Linear, x: Array, dtype: Any) -> Array:
    if not jnp.iscomplexobj(x) or jnp.issubdtype(dtype, jnp.complexfloating):
        return apply(f, x)
    both = apply(f, jnp.concatenate([x.real, x.imag]))
    return lax.complex(both[: x.shape[0]], both[x.shape[0] :])


@dataclass(frozen=True)
class Side:
    """`A r_j = w_j M r_j` with dual rows `dual`, or the same for the adjoints of A and M."""

    ops: Operators
    dtype: Any  # of the vectors that the operators take
    adjoined: bool
    w: Array  # (k,)
    r: Array  # (k, n), rows
    dual: Array  # (k, n), rows, with L^H M R = I

    def adjoint(self) -> "Side":
        """The side of the left vectors."""
        return replace(
            self, adjoined=not self.adjoined, w=jnp.conj(self.w), r=self.dual, dual=self.r
        )

    def _apply(self, f: Linear, x: Array) -> Array:
        return (adjoint_rows if self.adjoined else complex_rows)(f, x, self.dtype)

    def a(self, x: Array) -> Array:
        """Rows of `A x`."""
        return self._apply(self.ops.a, x)

    def m(self, x: Array) -> Array:
        """Rows of `M x`."""
        return x if self.ops.m is None else self._apply(self.ops.m, x)

    def inverse(self):
        """The function of rows that the iteration inverts by, if there is one."""
        f = self.ops.inverse
        return None if f is None else lambda x: self._apply(f, x)

    def moved(self, ops_dot: Operators) -> tuple[Array | None, Array | None]:
        """The rows `(A_dot - w_j M_dot) r_j` and `M_dot r_j`, None where they are zero."""
        b = self.ops.a.rows_dot(ops_dot.a, self.r, self._apply)
        if self.ops.m is None or ops_dot.m is None:
            return b, None
        m_dot_r = self.ops.m.rows_dot(ops_dot.m, self.r, self._apply)
        if m_dot_r is None:
            return b, None
        moved = -self.w[:, None] * m_dot_r
        return (moved if b is None else b + moved), m_dot_r

    def project(self, x: Array) -> Array:
        """Rows of `x - R L^H M x`."""
        return x - combine(inner(self.dual, self.m(x)).T, self.r)

    def project_image(self, x: Array) -> Array:
        """Rows of `x - M R L^H x`."""
        return x - combine(inner(self.dual, x).T, self.m(self.r))

    def kept(self, x: Array) -> Array:
        """Rows of `M R L^H M x`."""
        return combine(inner(self.dual, self.m(x)).T, self.m(self.r))

    def kept_inverse(self, x: Array) -> Array:
        """Rows of `R L^H x`, which undoes `kept` on the range of M R."""
        return combine(inner(self.dual, x).T, self.r)
