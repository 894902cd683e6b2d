"""An operation keeps its rule under every transformation, and its value."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec

from difflinalg._core.operation import operation


@operation(statics=1)
def tripled(x, y, power):
    """A function whose rule is wrong on purpose, so that a lost rule shows."""
    return {"product": x**power * y, "sum": x + y}


@tripled.defjvp
def _tripled_jvp(power, primals, tangents):
    (x, y), (x_dot, y_dot) = primals, tangents
    value = tripled(x, y, power)
    slope = power * x ** (power - 1) * y * x_dot + x**power * y_dot
    return value, {"product": 3.0 * slope, "sum": 3.0 * (x_dot + y_dot)}


@operation()
def without_rule(x):
    return 2.0 * x


def product(x, y=2.0):
    return tripled(jnp.asarray(x), jnp.asarray(y), 2)["product"]


X = 1.5


@pytest.mark.parametrize(
    "wrap", [lambda f: f, jax.jit, jax.checkpoint, partial(jax.jit, inline=True)]
)
def test_rule_is_used_in_both_modes(wrap):
    f = wrap(product)
    np.testing.assert_allclose(f(X), X * X * 2.0)
    np.testing.assert_allclose(jax.jvp(f, (X,), (1.0,))[1], 3.0 * 4.0 * X)
    np.testing.assert_allclose(jax.grad(f)(X), 3.0 * 4.0 * X)


NESTINGS = {
    "fwd-fwd": lambda f: jax.jacfwd(jax.jacfwd(f)),
    "fwd-rev": lambda f: jax.jacfwd(jax.grad(f)),
    "rev-fwd": lambda f: jax.grad(jax.jacfwd(f)),
    "rev-rev": lambda f: jax.grad(jax.grad(f)),
}


@pytest.mark.parametrize("nesting", NESTINGS)
@pytest.mark.parametrize("loop", ["none", "scan", "fori_loop", "map"])
def test_rule_is_used_in_every_nesting_and_loop(nesting, loop):
    def once(x):
        # Of second order through the rule: its slope is itself an operation.
        return product(x, 1.0)

    def f(x):
        if loop == "scan":
            return lax.scan(lambda c, _: (once(c), None), x, length=1)[0]
        if loop == "fori_loop":
            return lax.fori_loop(0, 1, lambda _, c: once(c), x)
        if loop == "map":
            return jnp.sum(lax.map(once, x[None]))
        return once(x)

    # The slope of the rule is 6 x, written with jnp: its derivative is 6.
    np.testing.assert_allclose(NESTINGS[nesting](f)(jnp.asarray(X)), 6.0)


def test_rule_survives_reverse_mode_through_the_carry_of_a_scan():
    def f(x):
        return lax.scan(lambda c, _: (product(c, 1.0), None), x, length=2)[0]

    # f' = 6 c 6 x with c = x^2 differentiated by the rule, c' = 6 x: f'' = 36 (x^2 + x 6 x).
    want = 36.0 * (X * X + 6.0 * X * X)
    for nesting in NESTINGS.values():
        np.testing.assert_allclose(nesting(f)(jnp.asarray(X)), want)


def test_vmap_maps_value_and_rule_over_any_axes():
    x, y = jnp.arange(6.0).reshape(2, 3), jnp.arange(1.0, 5.0)
    f = jax.vmap(jax.vmap(jax.vmap(product, (0, None)), (1, None)), (None, 0))
    want = (x.T[None] ** 2) * y[:, None, None]
    np.testing.assert_allclose(f(x, y), want)
    tangent = jax.jvp(lambda x: f(x, y), (x,), (jnp.ones_like(x),))[1]
    np.testing.assert_allclose(tangent, 3.0 * 2.0 * x.T[None] * y[:, None, None])
    gradient = jax.vmap(jax.grad(product), (0, None))(y, 1.0)
    np.testing.assert_allclose(gradient, 6.0 * y)


def test_operation_is_visible_by_name_and_runs_without_jit():
    assert "difflinalg_tripled" in str(jax.make_jaxpr(product)(1.0))
    with jax.disable_jit():
        np.testing.assert_allclose(product(X), 2.0 * X * X)


def test_operation_runs_inside_of_shard_map():
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = PartitionSpec("i")
    f = jax.shard_map(product, mesh=mesh, in_specs=spec, out_specs=spec)
    x = jnp.arange(3.0)
    np.testing.assert_allclose(f(x), 2.0 * x * x)
    np.testing.assert_allclose(jax.grad(lambda x: jnp.sum(f(x)))(x), 12.0 * x)


def test_operation_without_a_rule_says_so():
    with pytest.raises(NotImplementedError, match="without_rule has no derivative rule"):
        jax.grad(without_rule)(1.0)
