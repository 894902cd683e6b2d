"""Linear solves, factorisations and implicit functions on series, by two oracles.

Nested forward mode to order 2 at generic points; and identities of the series themselves: the
product of the factors is the matrix, which needs no derivative at all.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from difflinalg import implicit, linalg
from difflinalg.scipy import linalg as scipy_linalg
from difflinalg.scipy.sparse import linalg as sparse_linalg
from difflinalg.taylor import derivatives

RNG = np.random.default_rng(1)
ORDER = 5
X = 0.4


def _matrices(m, n):
    """Coefficients of a curve of complex matrices."""
    return jnp.asarray(RNG.normal(size=(3, m, n)) + 1j * RNG.normal(size=(3, m, n)))


SQUARE, TALL, VECTOR = _matrices(4, 4), _matrices(5, 3), jnp.asarray(RNG.normal(size=4))


def _curve(c, t):
    return c[0] + t * c[1] + jnp.sin(t) * t * c[2]


def _positive(c, t):
    a = _curve(c, t)
    return a @ a.conj().T + jnp.eye(a.shape[0])


def _single(x):
    """A number that depends on all entries."""
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(x)]
    return sum(jnp.sum(jnp.cos(jnp.arange(y.size) + 1.0).reshape(y.shape) * (y.real + 2 * y.imag))
               for y in leaves)  # fmt: skip


def _fixed_point(t):
    f = lambda x, p: jnp.cos(p * x + jnp.array([1.0, 2.0]))  # noqa: E731
    return implicit.fixed_point(f, jnp.zeros(2), t, rtol=1e-14).x


def _root(t):
    f = lambda x, p: x**3 - p + x[::-1]  # noqa: E731
    return implicit.root(f, jnp.ones(2), jnp.array([1.0, 2.0]) * jnp.exp(t)).x


def _bands(t):
    return (
        jnp.array([0.0, 1.0, 2.0, t]),
        5.0 + jnp.array([t, t * t, 1.0, 2.0]),
        jnp.array([t, t * t, 3.0, 0.0]),
    )


REAL = SQUARE.real
PROGRAMS = {
    "solve": lambda t: linalg.solve(_curve(SQUARE, t), VECTOR * t),
    "solve with a constant matrix": lambda t: jnp.linalg.solve(REAL[0], VECTOR * jnp.exp(t)),
    "inv": lambda t: linalg.inv(_curve(REAL, t)),
    "cholesky": lambda t: linalg.cholesky(_positive(SQUARE, t)),
    "lu": lambda t: scipy_linalg.lu(_curve(SQUARE, t)),
    "lu of JAX, wide": lambda t: jax.scipy.linalg.lu(_curve(TALL, t).T),
    "qr": lambda t: linalg.qr(_curve(TALL, t)),
    "qr of JAX": lambda t: jnp.linalg.qr(_curve(TALL.real, t)),
    "det": lambda t: linalg.det(jnp.kron(_curve(REAL, t), _curve(REAL, t)[:2, :2]) / 4.0),
    "det of JAX": lambda t: jnp.linalg.det(_curve(REAL, t)),
    "slogdet": lambda t: linalg.slogdet(_curve(SQUARE, t)),
    "triangular": lambda t: scipy_linalg.solve_triangular(
        _curve(SQUARE, t), VECTOR * t, trans=2, lower=True
    ),
    "triangular, unit, right": lambda t: lax.linalg.triangular_solve(
        _curve(REAL, t), REAL[0] * t, unit_diagonal=True, transpose_a=True
    ),
    "tridiagonal": lambda t: lax.linalg.tridiagonal_solve(*_bands(t), VECTOR[:, None] * t),
    "cg": lambda t: sparse_linalg.cg(_positive(REAL, t), VECTOR * t, tol=1e-13)[0],
    "fixed point": _fixed_point,
    "norm": lambda t: jnp.sum(linalg.norm(_curve(TALL, t), axis=0)) + linalg.norm(_curve(REAL, t)),
    "mapped": lambda t: jax.vmap(lambda s: linalg.qr(_curve(TALL.real, t * s)))(
        jnp.array([1.0, 2.0])
    ),
}


def _nested(f, x):
    first = lambda x: jax.jvp(f, (x,), (1.0,))[1]  # noqa: E731
    return jnp.stack([f(x), first(x), jax.jvp(first, (x,), (1.0,))[1]])


def test_linear_algebra_agrees_with_nested_forward_mode():
    programs = [lambda t, f=f: _single(f(t)) for f in PROGRAMS.values()]
    found = jax.jit(lambda x: [derivatives(f, x, 2) for f in programs])(X)
    wanted = jax.jit(lambda x: [_nested(f, x) for f in programs])(X)
    for name, a, b in zip(PROGRAMS, found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=name)


def test_the_factors_multiply_to_the_matrix_in_every_order():
    """Residuals of the defining equations are series too, and vanish."""

    def residuals(t):
        a, tall, positive = _curve(SQUARE, t), _curve(TALL, t), _positive(SQUARE, t)
        p, lower, upper = scipy_linalg.lu(tall.T)
        q, r = linalg.qr(tall)
        full_q, full_r = linalg.qr(tall, mode="complete")
        factor = linalg.cholesky(positive)
        sign, log = linalg.slogdet(a)
        fixed, root, (low, middle, high) = _fixed_point(t), _root(t), _bands(t)
        banded = lax.linalg.tridiagonal_solve(low, middle, high, VECTOR[:, None])[:, 0]
        image = middle * banded + jnp.append(high[:-1] * banded[1:], 0.0)
        image = image + jnp.append(0.0, low[1:] * banded[:-1])
        return [
            a @ linalg.solve(a, VECTOR) - VECTOR,
            p @ lower @ upper - tall.T,
            q @ r - tall,
            q.conj().T @ q - jnp.eye(3),
            jnp.imag(jnp.diagonal(r)),
            full_q @ full_r - tall,
            full_q.conj().T @ full_q - jnp.eye(5),
            factor @ factor.conj().T - positive,
            sign * jnp.exp(log) - linalg.det(a),
            image - VECTOR,
            fixed - jnp.cos(t * fixed + jnp.array([1.0, 2.0])),
            root**3 - jnp.array([1.0, 2.0]) * jnp.exp(t) + root[::-1],
        ]

    for residual in jax.jit(lambda x: derivatives(residuals, x, ORDER))(X):
        np.testing.assert_allclose(residual, 0.0, atol=2e-8)


def test_determinant_at_a_singular_matrix():
    """Of `diag(1, 1, 1, t, t)` rotated on both sides: `t^2` with a constant factor."""
    u, v = (jnp.linalg.qr(jnp.asarray(RNG.normal(size=(5, 5))))[0] for _ in range(2))

    def f(t):
        return linalg.det(u @ jnp.diag(jnp.array([1.0, 1.0, 1.0, 0.0, 0.0]).at[3:].set(t)) @ v)

    wanted = np.array([0.0, 0.0, 2.0, 0.0]) * float(jnp.linalg.det(u) * jnp.linalg.det(v))
    np.testing.assert_allclose(derivatives(f, 0.0, 3), wanted, atol=1e-13)


def test_a_gradient_goes_through_solves_and_roots():
    def f(s):
        def program(t):
            return jnp.sum(linalg.inv(_curve(REAL, t * s)) + _root(t * s)[0])

        return derivatives(program, X, 2)[2]

    step = 1e-5
    difference = (f(1.0 + step) - f(1.0 - step)) / (2 * step)
    np.testing.assert_allclose(jax.grad(f)(1.0), difference, rtol=1e-6)
