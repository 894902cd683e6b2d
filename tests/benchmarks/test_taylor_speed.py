"""Sixth derivatives by Taylor mode against six nested first derivatives, in one run.

`exp`: `c^T exp(-A(t)) c` through `eigh`, n = 20, at a generic matrix and at one with a threefold
eigenvalue. `solve`: `log det A(t) + c^T tanh(A(t)^-1 c)`. Besides the time of a run the table has
the time to compile, the size of the program and the error against the exponential of a block
Toeplitz matrix, as `extra_info`.
"""

import math
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from difflinalg import linalg
from difflinalg.taylor import derivatives

N, ORDER = 20, 6
RNG = np.random.default_rng(0)
TERMS = [RNG.normal(size=(N, N)) / np.sqrt(N) for _ in range(3)]
C = RNG.normal(size=N)


def hermitian_series(name):
    """Coefficients of `A(t)`, the first with a threefold eigenvalue or not."""
    terms = [0.5 * (x + x.T) for x in TERMS]
    if name == "threefold":
        w, v = np.linalg.eigh(terms[0])
        w[4:7] = w[5]
        terms[0] = (v * w) @ v.T
    return terms


def exp_of(terms):
    def f(t):
        a = jnp.asarray(terms[0]) + t * terms[1] + t * t * terms[2]
        w, v = linalg.eigh(a)
        return jnp.sum(jnp.exp(-w) * (v.T @ C) ** 2)

    return f


def exact(terms):
    """The derivatives, from the exponential of the block Toeplitz matrix."""
    blocks = [*terms, *[np.zeros((N, N))] * (ORDER - 2)]
    zero = np.zeros((N, N))
    count = range(ORDER + 1)
    toeplitz = np.block([[blocks[j - i] if j >= i else zero for j in count] for i in count])
    first = scipy.linalg.expm(-toeplitz)[:N].reshape(N, -1, N)
    return np.einsum("i,ikj,j->k", C, first, C) * [math.factorial(k) for k in count]


def solve(t):
    a = TERMS[0] + t * TERMS[1] + jnp.sin(t) * TERMS[2]
    a = a @ a.T + jnp.eye(N)
    return linalg.slogdet(a)[1] + C @ jnp.tanh(linalg.solve(a, C))


FUNCTIONS = {
    "solve": (solve, 0.3, None),
    "exp, generic": (exp_of(hermitian_series("generic")), 0.0, hermitian_series("generic")),
    "exp, threefold": (exp_of(hermitian_series("threefold")), 0.0, hermitian_series("threefold")),
}


def taylor(f, t, order):
    return derivatives(f, t, order)


def nested(f, t, order):
    found = [f]
    for _ in range(order):
        found.append(jax.grad(found[-1]))
    return jnp.stack([g(t) for g in found])


MODES = {"taylor": taylor, "nested": nested}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_sixth_derivative(benchmark, function, mode):
    f, t, terms = FUNCTIONS[function]
    benchmark.group = f"{function}: order {ORDER}, n = {N}"
    lowered = jax.jit(lambda t: MODES[mode](f, t, ORDER)).lower(t)
    size = len(lowered.as_text().splitlines())
    start = time.perf_counter()
    run = lowered.compile()
    benchmark.extra_info |= {"compile_s": time.perf_counter() - start, "lines": size}
    found = np.asarray(jax.block_until_ready(run(t)))
    if terms is not None:
        error = np.max(np.abs(found / exact(terms) - 1.0))
        benchmark.extra_info["error"] = error
        assert mode == "nested" or error < 1e-8
    benchmark(lambda: jax.block_until_ready(run(t)))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_program_grows_no_faster_than_the_square_of_the_order(function):
    f, t, _ = FUNCTIONS[function]
    sizes = [
        len(jax.jit(lambda t, k=k: taylor(f, t, k)).lower(t).as_text().splitlines())
        for k in (4, 8, 16)
    ]
    assert sizes[2] - sizes[1] < 4.4 * (sizes[1] - sizes[0])
