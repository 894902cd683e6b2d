"""Divided differences of a smooth function of unknown scale, at nodes that may coincide.

With F[x_0] = f(x_0), ascending nodes, and the k-th derivative f^(k), two expressions of the same
number are accurate in complementary regions:

    quotient    F[x_0..x_k] = (F[x_1..x_k] - F[x_0..x_(k-1)]) / (x_k - x_0)         (de Boor (1))
    integral    F[x_0..x_k] = integral of f^(k)(t_0 x_0 + ... + t_k x_k) over the
                              simplex t_i >= 0, sum t_i = 1       (Hermite-Genocchi, de Boor (50))

The quotient loses digits when the nodes are close, by an amount that rounding makes known:
`(error of both terms) / (x_k - x_0)`. The integral is done with Gauss-Jacobi rules of 6 and of 3
points per dimension; its error falls as `rho^(-2 q)` for q points, where rho grows with the
distance of the nearest singularity in units of the spread of the nodes, so that

    |error_6| ~ |error_3|^2 / integral of |f^(k)|,    |error_3| ~ |rule_3 - rule_6|.

For every set of nodes, and at every level of the table, the expression with the smaller estimate
is taken. No scale of f enters. The estimate of the integral is blind to a feature of f between
all of its points (a smoothed step), that of the quotient is not: the integral is taken only where
it agrees with the quotient to a multiple (`rounding_slack`) of the error of the latter, with f
taken to be as inaccurate as `eps max |f|` (`log(1 + x)` is).
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from scipy.special import roots_jacobi

from difflinalg._core.tolerances import epsilon, rounding_slack

Elementwise = Callable[[Array], Array]

FINE, COARSE = 6, 3  # Gauss points per dimension: the rule, and the rule that tells its error


def divided_difference(f: Elementwise, nodes: Array, guide: Elementwise | None = None) -> Array:
    """The divided difference `F[x_0, ..., x_k]` of an elementwise function.

    Args:
        f: the function, real or complex values of a real argument.
        nodes: `x_0 <= ... <= x_k` along the last axis, shape `(..., k + 1)`.
        guide: the function whose errors decide between the two expressions; default `f`. With a
            guide the result is linear in `f`, so that it can be transposed.

    Returns:
        The divided difference, shape `(...)`; where nodes coincide it holds derivatives of `f`.

    Derivatives:
        With respect to what `f` closes over. The nodes are taken as constants.

    Cost:
        `k (k + 1) / 2` levels; level j evaluates the j-th derivative of `f` at `6^j + 3^j` points
        for each set of nodes, one point at a time, so that memory does not grow with the points.

    Example:
        >>> import jax.numpy as jnp
        >>> print(divided_difference(lambda x: x**3, jnp.array([1.0, 1.0, 2.0])).round(3))
        4.0

    References:
        de Boor, "Divided differences", Surveys in Approximation Theory 1 (2005), (1), (50).
    """
    nodes = lax.stop_gradient(nodes)
    eps = epsilon(nodes.dtype)
    # The first function decides, the last one is the result; without a guide they are the same.
    functions = [f] if guide is None else [guide, f]
    tables = [function(nodes) for function in functions]
    # Two errors: what f has where it is computed to a rounding error, and what it may have.
    magnitude = jnp.abs(tables[0])
    finite = jnp.where(jnp.isfinite(magnitude), magnitude, 0.0)
    largest = jnp.max(finite, axis=tuple(range(-min(nodes.ndim, 2), 0)), keepdims=True, initial=0.0)
    error = eps * jnp.stack([magnitude, jnp.maximum(magnitude, largest)])
    for level in range(1, nodes.shape[-1]):
        functions = [derivative(function) for function in functions]
        width = nodes[..., level:] - nodes[..., :-level]
        windows = _windows(nodes, level)

        integral, integral_error = _integral_with_error(functions[0], windows)
        quotient = _quotient(tables[0], width)
        quotient_error = (error[..., 1:] + error[..., :-1]) / jnp.where(width > 0, width, 1.0)
        agrees = jnp.abs(integral - quotient) <= rounding_slack(nodes.dtype) * quotient_error[1]
        use_integral = (width == 0) | (agrees & (integral_error < quotient_error[0]))
        error = lax.stop_gradient(jnp.where(use_integral, integral_error, quotient_error))
        decided = [jnp.where(use_integral, integral, quotient)]
        if guide is not None:
            use_integral = lax.stop_gradient(use_integral)
            # An integral that is not used is moved to one point, away from what it would meet.
            windows = jnp.where(use_integral[..., None], windows, windows[..., -1:])
            integral = _integral(functions[1], windows)
            decided.append(jnp.where(use_integral, integral, _quotient(tables[1], width)))
        tables = decided
    return tables[-1][..., 0]


def derivative(f: Elementwise) -> Elementwise:
    """The derivative of an elementwise function, again elementwise."""

    def slope(x: Array) -> Array:
        return jax.jvp(f, (x,), (jnp.ones_like(x),))[1]

    return slope


@functools.cache
def simplex_rule(dimension: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Points (barycentric) and weights of a Gauss rule on the simplex, `size^dimension` of them.

    Point `(t s, 1 - t)` has the density `t^(dimension - 1)`, with s on the simplex of one
    dimension less: a product of Gauss-Jacobi rules, whose weights sum to `1 / dimension!`.
    """
    if dimension == 0:
        return np.ones((1, 1)), np.ones(1)
    roots, factors = roots_jacobi(size, 0, dimension - 1)
    t, factors = (1.0 + roots) / 2.0, factors / 2.0**dimension
    face, face_weights = simplex_rule(dimension - 1, size)
    points = np.concatenate(
        [
            np.einsum("p,sk->psk", t, face).reshape(-1, dimension),
            np.repeat(1.0 - t, len(face))[:, None],
        ],
        axis=1,
    )
    return points, np.outer(factors, face_weights).reshape(-1)


def _windows(nodes: Array, level: int) -> Array:
    """All runs of `level + 1` consecutive nodes, shape `(..., k + 1 - level, level + 1)`."""
    count = nodes.shape[-1] - level
    return jnp.stack([nodes[..., i : i + level + 1] for i in range(count)], axis=-2)


def _quotient(table: Array, width: Array) -> Array:
    return (table[..., 1:] - table[..., :-1]) / jnp.where(width > 0, width, 1.0)


def _integral_with_error(f: Elementwise, windows: Array) -> tuple[Array, Array]:
    """The integral of `f` over the simplex spanned by the last axis, and its error."""
    dimension = windows.shape[-1] - 1
    fine, fine_weights = simplex_rule(dimension, FINE)
    coarse, coarse_weights = simplex_rule(dimension, COARSE)
    points = np.concatenate([fine, coarse])
    weights = np.zeros((len(points), 2))
    weights[: len(fine), 0], weights[len(fine) :, 1] = fine_weights, coarse_weights

    def step(f_value: Array, weight: Array) -> tuple[Array, Array, Array]:
        return weight[0] * f_value, weight[1] * f_value, weight[0] * jnp.abs(f_value)

    value, rough, size = _accumulate(f, windows, points, weights, step)
    difference = jnp.abs(value - rough)
    ratio = difference / jnp.where(size > 0, size, 1.0)
    return value, difference * ratio + epsilon(windows.dtype) * size


def _integral(f: Elementwise, windows: Array) -> Array:
    points, weights = simplex_rule(windows.shape[-1] - 1, FINE)
    return _accumulate(f, windows, points, weights, lambda value, weight: weight * value)


def _accumulate(f, windows, points, weights, step):
    """The sum of `step(f(x), weight)` over the points x of the simplex; traced once."""
    low, high = windows[..., 0], windows[..., -1]
    offsets = windows - low[..., None]

    def body(total, rule):
        point, weight = rule
        x = jnp.clip(low + jnp.sum(offsets * point, axis=-1), low, high)
        return jax.tree.map(jnp.add, total, step(f(x), weight)), None

    rules = (jnp.asarray(points, windows.dtype), jnp.asarray(weights, windows.dtype))
    terms = jax.eval_shape(lambda x, weight: step(f(x), weight), low, rules[1][0])
    start = jax.tree.map(lambda term: jnp.zeros(term.shape, term.dtype), terms)
    return lax.scan(body, start, rules)[0]
