"""Second derivatives through a compiled loop, where reverse mode comes first."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from difflinalg import linalg

WEIGHT = np.random.default_rng(0).standard_normal((3, 3))
DIRECTION = WEIGHT + WEIGHT.T


def exponential(a):
    w, v = linalg.eigh(a)
    return (v * jnp.exp(w)) @ v.T


def hyperbolic_sine(a):
    u, s, vh = linalg.svd(a)
    return (u * jnp.sinh(s)) @ vh


def projected_svd(a):
    u = linalg.svd_trunc(a, 2).U
    return u @ (u.T @ a)


def projected_eigh(a):
    v = linalg.eigh_trunc(a, 2).eigenvectors
    return v @ (v.T @ a)


CASES = {
    "eigh": (exponential, [0.5, 0.5, 0.5]),
    "svd": (hyperbolic_sine, [0.5, 0.5, 0.5]),
    "svd_trunc": (projected_svd, [1.0, 1.0, 0.3]),
    "eigh_trunc": (projected_eigh, [1.0, 1.0, 0.3]),
}
GENERIC = [1.0, 0.6, 0.3]


def second_derivatives(name, values):
    f, _ = CASES[name]

    def loss(p):
        return jnp.sum(WEIGHT * lax.scan(lambda c, _: (0.5 * f(c), None), p, length=2)[0])

    def slope(p):
        return jax.jvp(loss, (p,), (DIRECTION,))[1]

    a = jnp.diag(jnp.array(values))
    reverse_first = jnp.sum(jax.jvp(jax.grad(loss), (a,), (DIRECTION,))[1] * DIRECTION)
    forward_only = jax.jvp(slope, (a,), (DIRECTION,))[1]
    return reverse_first, forward_only


@pytest.mark.parametrize("name", CASES)
def test_reverse_then_forward_through_a_scan_is_right_at_distinct_values(name):
    reverse_first, forward_only = second_derivatives(name, GENERIC)
    np.testing.assert_allclose(reverse_first, forward_only, rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_reverse_then_forward_through_a_scan_is_right_where_values_coincide(name):
    reverse_first, forward_only = second_derivatives(name, CASES[name][1])
    np.testing.assert_allclose(reverse_first, forward_only, rtol=1e-4)
