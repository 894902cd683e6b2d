"""Programs inside of programs, structural operations, and what one can do with the result."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from difflinalg import memory
from difflinalg.taylor import derivatives, jet

X = 0.4


def nested(f, x, order):
    """Derivatives by nested forward mode."""
    found = [f]
    for _ in range(order):
        found.append(lambda x, g=found[-1]: jax.jvp(g, (x,), (1.0,))[1])
    return jnp.stack([g(x) for g in found])


@jax.custom_jvp
def _doubled(x):
    return jnp.sin(x)


_doubled.defjvp(lambda x, x_dot: (_doubled(*x), 2.0 * jnp.cos(x[0]) * x_dot[0]))


@jax.custom_vjp
def _backward_only(x):
    return jnp.exp(x)


_backward_only.defvjp(lambda x: (jnp.exp(x), None), lambda _, g: (g,))


def _scan(t):
    """Constant carries, carries that start constant and become series, reverse, and integers."""

    def step(carry, x):
        a, b, fixed, count = carry
        return (jnp.sin(a) + b * x, a * t, fixed * 0.5, count + 1), (a * x, fixed)

    start = (jnp.ones(2), jnp.zeros(2), jnp.ones(2), 0)
    xs = jnp.arange(6.0).reshape(3, 2) * t
    (a, b, fixed, count), (ys, _) = lax.scan(step, start, xs, reverse=True)
    return jnp.sum(a * b + fixed) * count + jnp.sum(ys[1] * ys[2])


def _loops(t):
    still = lax.fori_loop(0, 3, lambda i, c: c * t + i, 1.0)
    step = lambda s: (s[0] * (1 + t) + t, s[1] + 1)  # noqa: E731
    total, _ = lax.while_loop(lambda s: s[0] < 4.0, step, (t, 0))
    return still * total


def _branches(t):
    some = lax.cond(t > 0.3, lambda x: x * t, lambda x: x, 2.0)
    other = lax.switch(1, [lambda x: 0.0 * x, lambda x: x**3], t)
    return some + other + jnp.where(t > 1.0, jnp.nan, t * t)


def _calls(t):
    kept = jax.checkpoint(lambda x: jnp.exp(jnp.sin(x)))(t)
    return kept * jax.jit(jax.nn.relu)(t) * jax.nn.gelu(t) + jax.nn.logsumexp(jnp.array([t, 1.0]))


def _moves(t):
    x = jnp.outer(jnp.arange(1.0, 4.0), jnp.array([t, t * t, 1.0]))
    y = x.at[1].add(t).at[0, jnp.array([2, 0])].set(t**3)[jnp.array([2, 0, 0])]
    padded = jnp.pad(x[1:], ((1, 0), (0, 0)), constant_values=2.0)
    z = lax.dynamic_update_slice(y, x[:1] * t, (1, 0)) + padded
    w = jnp.concatenate([z, jnp.flip(x, 0).T], axis=1).reshape(2, 9)
    v = lax.dynamic_slice(w, (0, 3), (2, 4)) + jnp.take_along_axis(w, jnp.array([[0, 1, 2, 8]]), 1)
    u = jnp.cumsum(v, 1) * jnp.cumprod(v, 0) + lax.cummax(v, 1) + lax.cumlogsumexp(v, 1)
    picked = lax.top_k(u, 2)[0].prod() + jnp.diagonal(u).sum() + jnp.max(u) * jnp.prod(u[0, :3])
    return picked + jnp.sum(jnp.abs(jnp.fft.fft(u)) ** 2) + jnp.linalg.norm(u)


def _products(t):
    a = jnp.arange(12.0).reshape(2, 2, 3) * t + 1.0
    b = jnp.cos(jnp.arange(12.0) * t).reshape(2, 3, 2)
    image, kernel = a.reshape(1, 1, 12), b.reshape(1, 1, 12)[:, :, :3]
    smooth = lax.conv_general_dilated(image, kernel, (1,), "VALID")
    return jnp.sum(jnp.einsum("bij,bjk,bkl->bil", a, b, a[:, :, :1]) ** 2) + jnp.sum(smooth**3)


def _package_loops(t):
    return memory.scan(lambda c, x: (jnp.sin(c) * x, c), t, jnp.arange(1.0, 5.0) * t)[0]


PROGRAMS = [_scan, _loops, _branches, _calls, _moves, _products, _package_loops]


def test_programs_agree_with_nested_forward_mode():
    wanted = jax.jit(lambda x: [nested(f, x, 3) for f in PROGRAMS])(X)
    found = jax.jit(lambda x: [derivatives(f, x, 3) for f in PROGRAMS])(X)
    for f, a, b in zip(PROGRAMS, found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11, err_msg=f.__name__)


def test_functions_with_a_forward_rule_follow_it_and_those_with_a_backward_rule_their_body():
    def f(t):
        looped = memory.fori_loop(0, 3, lambda _, x: x * t, 1.0, checkpoints=memory.Revolve(2))
        return jnp.stack([_doubled(t), _backward_only(t), looped])

    sin, cos, e = jnp.sin(X), jnp.cos(X), jnp.exp(X)
    wanted = [[sin, e, X**3], [2 * cos, e, 3 * X**2], [-2 * sin, e, 6 * X], [-2 * cos, e, 6.0]]
    np.testing.assert_allclose(derivatives(f, X, 3), jnp.array(wanted), rtol=1e-12)


def test_a_result_can_be_compiled_mapped_and_differentiated():
    def third(x, a):
        return derivatives(lambda x: jnp.sin(a * x) * _scan(a * x) ** 0, x, 3)[3]

    x, a = jnp.array([0.3, 0.4]), 1.3
    u = a * x
    np.testing.assert_allclose(jax.jit(jax.vmap(third, (0, None)))(x, a), -(a**3) * jnp.cos(u))
    by_a = -3 * a**2 * jnp.cos(u) + a**3 * x * jnp.sin(u)
    np.testing.assert_allclose(jax.vmap(jax.grad(third, 1), (0, None))(x, a), by_a)
    forward = jax.jvp(lambda x: derivatives(lambda s: third(s, a), x, 2)[1], (x[0],), (1.0,))[1]
    np.testing.assert_allclose(forward, a**5 * jnp.cos(u[0]))


def test_trees_and_constants_go_in_and_out():
    def f(tree, n):
        return {"sum": tree["a"] * tree["b"], "whole": n + 1}, tree["b"]

    tree, series = {"a": 2.0, "b": jnp.ones(2)}, {"a": [1.0, 0.0], "b": None}
    (value, same), (terms, none) = jet(f, (tree, 3), (series, None))
    np.testing.assert_array_equal(value["sum"], [2.0, 2.0])
    np.testing.assert_array_equal(jnp.stack(terms["sum"]), [[1.0, 1.0], [0.0, 0.0]])
    assert value["whole"] == 4
    assert [float(t) for t in terms["whole"]] == [0.0, 0.0]
    np.testing.assert_array_equal(jnp.stack([same, *none]), [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    line = derivatives(lambda t: t["a"] @ t["a"], {"a": jnp.arange(3.0)}, 2, {"a": jnp.ones(3)})
    np.testing.assert_array_equal(line, [5.0, 6.0, 6.0])
    arguments = jnp.exp, (0.0,), ([1.0, 0.0],)
    plain, scaled = (jet(*arguments, factorial_scaled=s)[1] for s in (False, True))
    assert [float(x) for x in (*plain, *scaled)] == [1.0, 0.5, 1.0, 1.0]


def test_an_operation_without_a_rule_is_named():
    def f(x):
        return lax.scan(lambda c, _: (jax.scipy.special.i0e(c), None), x, None, length=2)[0]

    with pytest.raises(NotImplementedError, match="bessel_i0e"):
        derivatives(f, 1.0, 2)


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (TypeError, lambda: jet(jnp.sin, 1.0, ([1.0],))),
        (ValueError, lambda: jet(jnp.sin, (1.0,), ())),
        (ValueError, lambda: jet(jnp.add, (1.0, 1.0), ([1.0], [1.0, 0.0]))),
        (ValueError, lambda: jet(jnp.sin, (1.0,), ([jnp.ones(2)],))),
        (TypeError, lambda: jet(jnp.sin, (1.0,), (jnp.ones(2),))),
        (TypeError, lambda: jet(jnp.sin, (1.0,), ([1j],))),
        (ValueError, lambda: derivatives(jnp.sin, jnp.ones(2), 2)),
        (ValueError, lambda: derivatives(jnp.sin, jnp.ones(2), 2, jnp.ones(3))),
        (ValueError, lambda: derivatives(jnp.sin, 1.0, -1)),
        (TypeError, lambda: derivatives(jnp.sin, 1.0, 1.5)),
    ],
)
def test_bad_arguments_are_refused(error, call):
    with pytest.raises(error, match=r"jet|derivatives"):
        call()
