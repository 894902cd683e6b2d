"""A sixth derivative by Taylor mode against six nested first derivatives, in one run.

`f(t) = log det A(t) + c^T tanh(A(t)^-1 c)` with a matrix of size 20. Besides the time of a run
the table has the time to compile and the size of the program, as `extra_info`.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg import linalg
from difflinalg.taylor import derivatives

N, ORDER = 20, 6
RNG = np.random.default_rng(0)
TERMS = [jnp.asarray(RNG.normal(size=(N, N)) / np.sqrt(N)) for _ in range(3)]
C = jnp.asarray(RNG.normal(size=N))


def f(t):
    a = TERMS[0] + t * TERMS[1] + jnp.sin(t) * TERMS[2]
    a = a @ a.T + jnp.eye(N)
    return linalg.slogdet(a)[1] + C @ jnp.tanh(linalg.solve(a, C))


def taylor(t, order):
    return derivatives(f, t, order)


def nested(t, order):
    found = [f]
    for _ in range(order):
        found.append(jax.grad(found[-1]))
    return jnp.stack([g(t) for g in found])


MODES = {"taylor": taylor, "nested": nested}


@pytest.mark.parametrize("mode", MODES)
def test_sixth_derivative(benchmark, mode):
    benchmark.group = f"order {ORDER}, n = {N}"
    lowered = jax.jit(lambda t: MODES[mode](t, ORDER)).lower(0.3)
    size = len(lowered.as_text().splitlines())
    start = time.perf_counter()
    run = lowered.compile()
    benchmark.extra_info |= {"compile_s": time.perf_counter() - start, "lines": size}
    jax.block_until_ready(run(0.3))
    benchmark(lambda: jax.block_until_ready(run(0.3)))


def test_the_program_grows_no_faster_than_the_square_of_the_order():
    sizes = [
        len(jax.jit(lambda t, k=k: taylor(t, k)).lower(0.3).as_text().splitlines())
        for k in (4, 8, 16)
    ]
    assert sizes[2] - sizes[1] < 4.4 * (sizes[1] - sizes[0])
