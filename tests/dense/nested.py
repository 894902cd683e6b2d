"""First and second derivatives of a function in every nesting, from one compiled program."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np


def directions(args, seed):
    rng = np.random.default_rng(seed)

    def draw(x):
        d = rng.normal(size=np.shape(x))
        if np.iscomplexobj(x):
            d = d + 1j * rng.normal(size=np.shape(x))
        return jnp.asarray(d, jnp.asarray(x).dtype)

    return tuple(draw(x) for x in args)


def pair(x, y):
    return sum(jnp.real(jnp.sum(a * b)) for a, b in zip(x, y, strict=True))


def derivatives(f, order, nestings, args, d_1, d_2):
    """`[g, g' d_1]` and the same by reverse mode; then `g'' d_1 d_2` in the nestings."""

    def g(*x):
        outputs = [jnp.ravel(y) for y in jax.tree.leaves(f(*x))]
        # A fixed weight, different for every entry, for the real and the imaginary part.
        y = jnp.concatenate([jnp.concatenate([y.real, y.imag]) for y in outputs])
        return jnp.sum(y * jnp.sin(1.0 + jnp.arange(y.size)))

    argnums = tuple(range(len(args)))
    gradient = jax.grad(g, argnums)

    def slope(*x):
        return jax.jvp(g, x, d_1)[1]

    value, forward = jax.jvp(g, args, d_1)
    result = {"value": value, "forward": forward, "reverse": pair(gradient(*args), d_1)}
    second = {
        "fwd-fwd": lambda: jax.jvp(slope, args, d_2)[1],
        "fwd-rev": lambda: pair(jax.jvp(gradient, args, d_2)[1], d_1),
        "rev-rev": lambda: pair(jax.grad(lambda *x: pair(gradient(*x), d_1), argnums)(*args), d_2),
    }
    return result | {key: second[key]() for key in nestings if order == 2}


NESTINGS = ("fwd-fwd", "fwd-rev", "rev-rev")


def check_nested(f, args, order=2, rtol=1e-6, step=1e-5, seed=0, nestings=NESTINGS):
    """Differences confirm forward mode; the other modes and nestings agree with it to 1e-10."""
    args = tuple(jnp.asarray(x) for x in args)
    d_1, d_2 = directions(args, seed), directions(args, seed + 1)
    program = jax.jit(partial(derivatives, f, order, nestings, d_1=d_1, d_2=d_2))

    def moved(d, h):
        return program(tuple(x + h * y for x, y in zip(args, d, strict=True)))

    def slope(key, d):
        near, far = (moved(d, h)[key] - moved(d, -h)[key] for h in (step, 2 * step))
        return (8 * near - far) / (12 * step)

    here = program(args)
    expected = slope("value", d_1)
    np.testing.assert_allclose(here["forward"], expected, rtol=rtol, atol=1e-9)
    np.testing.assert_allclose(here["reverse"], here["forward"], rtol=1e-10, atol=1e-12)
    if order == 2:
        expected = slope("forward", d_2)
        first = here[nestings[0]]
        np.testing.assert_allclose(first, expected, rtol=rtol, atol=1e-9)
        for nesting in nestings[1:]:
            np.testing.assert_allclose(here[nesting], first, rtol=1e-10, atol=1e-12)
