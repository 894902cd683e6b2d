"""From the real Schur form to the complex one, by rotations that JAX can differentiate.

Value. From the last row to the first, where `T[m, m - 1]` is not zero, with mu an eigenvalue of the
2 x 2 block that ends there (Golub and Van Loan; SciPy and JAX do the same):

    G = [[conj(c), s], [-s, c]],    c = (mu - T[m, m]) / r,    s = T[m, m - 1] / r

and `T <- G T G^H`, `Z <- Z G^H`, r making G unitary. With the closed form of mu every step is
elementary, and the derivative is that of the steps.
"""

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from difflinalg._core import checks
from difflinalg._core.algebra import adjoint, mm
from difflinalg._core.tolerances import epsilon


def rsf2csf(T: ArrayLike, Z: ArrayLike, check_finite: bool = True) -> tuple[Array, Array]:
    """Convert a real Schur form to a complex one.

    Args:
        T: shape `(..., n, n)`, quasi-triangular.
        Z: shape `(..., n, n)`, the vectors; batch dimensions are broadcast.
        check_finite: ignored, as in JAX.

    Returns:
        `(T, Z)`, complex, with T upper triangular and the same product `Z T Z^H`.

    Raises:
        ValueError: if `T` or `Z` is not square, or the shapes differ.

    Derivatives:
        With respect to both, all orders, both modes in any nesting, within the block structure of
        `T`. Undefined where a 2 x 2 block has a repeated eigenvalue.

    Cost:
        n rotations, O(n^3) in the form that compiles to one loop.

    Example:
        >>> import jax.numpy as jnp
        >>> t, _ = rsf2csf(jnp.array([[0.0, -1.0], [1.0, 0.0]]), jnp.eye(2))
        >>> bool(jnp.allclose(jnp.sort(jnp.diagonal(t).imag), jnp.array([-1.0, 1.0])))
        True

    References:
        Golub and Van Loan, "Matrix Computations" (2013), section 7.4.
    """
    del check_finite
    t, z = (checks.as_square("rsf2csf", x, half=True) for x in (T, Z))
    if t.shape[-1] != z.shape[-1]:
        checks.refuse_shapes("rsf2csf", t.shape, z.shape)
    return jnp.vectorize(complex_form, signature="(n,n),(n,n)->(n,n),(n,n)")(t, z)


def complex_form(t: Array, z: Array) -> tuple[Array, Array]:
    """The complex Schur form of a single matrix, from a quasi-triangular or triangular one."""
    dtype = jnp.result_type(t.dtype, z.dtype, jnp.complex64)
    triangular = jnp.iscomplexobj(t)
    t, z = t.astype(dtype), z.astype(dtype)
    if triangular or t.shape[-1] < 2:
        return t, z
    rows = jnp.arange(t.shape[-1])

    def step(state, m):
        t, z = state
        g = _rotation(lax.dynamic_slice(t, (m - 1, m - 1), (2, 2)))
        strip = lax.dynamic_slice_in_dim(t, m - 1, 2, axis=0)
        strip = jnp.where(rows[None, :] >= m - 1, mm(g, strip), strip)
        t = lax.dynamic_update_slice_in_dim(t, strip, m - 1, axis=0)
        strip = lax.dynamic_slice_in_dim(t, m - 1, 2, axis=1)
        strip = jnp.where(rows[:, None] <= m, mm(strip, adjoint(g)), strip)
        t = lax.dynamic_update_slice_in_dim(t, strip, m - 1, axis=1)
        strip = mm(lax.dynamic_slice_in_dim(z, m - 1, 2, axis=1), adjoint(g))
        z = lax.dynamic_update_slice_in_dim(z, strip, m - 1, axis=1)
        return (t.at[m, m - 1].set(0.0), z), None

    return lax.scan(step, (t, z), rows[1:], reverse=True)[0]


def _rotation(block: Array) -> Array:
    """G of a 2 x 2 block, the identity for a triangular one."""
    (a, b), (c, d) = block
    active = jnp.abs(c) > epsilon(block.dtype) * (jnp.abs(a) + jnp.abs(d))
    half = 0.5 * (a - d)
    root = jnp.sqrt(jnp.where(active, half * half + b * c, 1.0))
    # The eigenvalue that JAX takes, the first one that `eigvals` returns.
    first = jnp.linalg.eigvals(lax.stop_gradient(block))[0] - lax.stop_gradient(d)
    minus = jnp.abs(half - root - first) < jnp.abs(half + root - first)
    shift = jnp.where(active, half + jnp.where(minus, -root, root), 1.0)
    lower = jnp.where(active, c, 0.0)
    size = jnp.sqrt(jnp.real(shift * jnp.conj(shift) + lower * jnp.conj(lower)))
    cosine, sine = shift / size, lower / size
    return jnp.stack(
        [jnp.stack([jnp.conj(cosine), sine]), jnp.stack([-sine, cosine])],
    )
