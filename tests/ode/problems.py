"""Problems with closed solutions, for tests of all integrators."""

import jax
import jax.numpy as jnp
import numpy as np

Y0 = np.array([0.3, 0.4])
TIMES = np.array([0.1, 0.4, 0.9, 1.3])
PARAMETERS = np.array([1.2, -0.7])
D = {  # a direction for every argument
    "y0": np.array([0.7, -0.4]),
    "t": np.array([0.3, -0.2, 0.5, 0.4]),
    "p": np.array([-0.6, 0.9]),
}


def logistic(y, t, p):
    """Two growth laws with a rate that depends on time, `y' = (a + b t) y (1 - y)`."""
    return (p[0] + p[1] * t) * y * (1 - y)


def logistic_solution(y0, t, p):
    """`y / (1 - y)` grows by the exponential of the integrated rate."""
    s = t[:, None]
    grown = jnp.exp(p[0] * (s - t[0]) + 0.5 * p[1] * (s**2 - t[0] ** 2))
    return y0 * grown / (1 - y0 + y0 * grown)


def close(got, expected, rtol, scale=None):
    """All differences are small against the largest entry that is expected."""
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        size = np.max(np.abs(y), initial=0.0) if scale is None else scale
        assert x.shape == y.shape, (x.shape, y.shape)
        assert np.all(np.isfinite(x)), x
        error = np.max(np.abs(x - y), initial=0.0)
        assert error <= rtol * size, (error, size, x, y)


def every_nesting(loss, arguments, directions):
    """First derivatives by both modes, second ones along `directions` by all four nestings."""

    def along(gradient, d):
        return sum(jnp.sum(g * x) for g, x in zip(gradient, d, strict=True))

    def forward(*x):
        return jax.jvp(loss, x, directions)[1]

    every = tuple(range(len(arguments)))
    gradient = jax.grad(loss, every)
    return {
        "value": loss(*arguments),
        "fwd": forward(*arguments),
        "rev": gradient(*arguments),
        "fwd-fwd": jax.jvp(forward, arguments, directions)[1],
        "fwd-rev": jax.jvp(gradient, arguments, directions)[1],
        "rev-fwd": jax.grad(forward, every)(*arguments),
        "rev-rev": jax.grad(lambda *x: along(gradient(*x), directions), every)(*arguments),
    }
