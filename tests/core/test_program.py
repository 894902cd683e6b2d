"""Programs traced twice are equal, and different ones are not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from difflinalg import linalg
from difflinalg._core.program import hoist

X = jnp.ones(3)


def traced(scale=2.0, steps=3, power=2, function=jnp.sin):
    c = jnp.arange(3.0)

    def f(x):
        y = lax.fori_loop(0, steps, lambda _, z: function(z) * scale, x**power)
        return jnp.where(y > 0.0, y, c * x)

    return hoist(f, X)


def test_same_code_gives_the_same_program():
    (one, consts), (two, _) = traced(), traced()
    assert one is not two
    assert one == two
    assert hash(one) == hash(two)
    np.testing.assert_allclose(one(consts, X), two(consts, X))


@pytest.mark.parametrize(
    "change", [dict(scale=3.0), dict(steps=4), dict(power=3), dict(function=jnp.cos)]
)
def test_any_difference_is_seen(change):
    assert traced()[0] != traced(**change)[0]


def test_the_order_of_arguments_is_seen():
    one, _ = hoist(lambda x, y: x - y, X, X)
    two, _ = hoist(lambda x, y: y - x, X, X)
    assert one != two


def test_what_is_closed_over_is_differentiated():
    def f(t):
        program, consts = hoist(lambda x: t * x, X)
        return jnp.sum(program(consts, X))

    np.testing.assert_allclose(jax.grad(f)(2.0), 3.0)


def test_programs_take_and_return_trees():
    f = lambda tree, k: {"y": (tree["x"] * k, None), "n": k}  # noqa: E731
    program, consts = hoist(f, {"x": X}, 2)
    got = program(consts, {"x": X}, 3)
    assert jax.tree.structure(got) == jax.tree.structure(f({"x": X}, 3))
    np.testing.assert_allclose(got["y"][0], 3.0 * X)
    assert program != hoist(lambda tree, k: (tree["x"] * k, k), {"x": X}, 2)[0]


def test_operations_are_found_wherever_they_are():
    a = jnp.eye(2)
    inner = lambda a: lax.cond(a[0, 0] > 0.0, linalg.eigvalsh, jnp.diag, a)  # noqa: E731
    outer = lambda a: lax.fori_loop(0, 3, lambda _, a: jnp.diag(inner(a)), a)  # noqa: E731
    assert hoist(outer, a)[0].has_operations
    assert hoist(jax.checkpoint(jax.vmap(outer)), a[None])[0].has_operations
    assert not hoist(lambda a: lax.fori_loop(0, 3, lambda _, a: a @ a, a), a)[0].has_operations
