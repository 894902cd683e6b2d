"""Gradients of long loops: checkpoints against plain AD and equinox, circuits, compile times."""

import importlib.util
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from difflinalg import memory

STEPS, SIZE, SLOTS = 4096, 256, 16
RNG = np.random.default_rng(1)
DENSE = jnp.asarray(RNG.standard_normal((SIZE, SIZE)) / SIZE**0.5)
SPARSE = jnp.asarray(RNG.standard_normal(SIZE))
START = jnp.asarray(RNG.standard_normal(SIZE))


def dense_step(w, c):
    return c + 0.01 * jnp.tanh(w @ c)


def light_step(w, c):
    return c + 0.01 * jnp.tanh(w * c + jnp.roll(c, 1))


PROBLEMS = {"dense": (dense_step, DENSE), "light": (light_step, SPARSE)}


def by_scan(scan, step, w, c):
    return scan(lambda c, _: (step(w, c), None), c, length=STEPS)[0]


def by_online(step, w, c):
    def below(state):
        return state[1] < STEPS

    def body(state):
        return step(w, state[0]), state[1] + 1

    return memory.while_loop(below, body, (c, 0), checkpoints=memory.Online(SLOTS))[0]


def by_equinox(step, w, c):
    checkpointed = pytest.importorskip("equinox.internal").while_loop
    return checkpointed(
        lambda state: state[1] < STEPS,
        lambda state: (step(w, state[0]), state[1] + 1),
        (c, 0),
        kind="checkpointed",
        checkpoints=SLOTS,
        max_steps=None,
    )[0]


def by_equinox_scan(step, w, c):
    checkpointed = pytest.importorskip("equinox.internal").scan
    return checkpointed(
        lambda c, _: (step(w, c), None), c, None, STEPS, kind="checkpointed", checkpoints=SLOTS
    )[0]


RUNS = {
    "plain scan": partial(by_scan, lax.scan),
    "Nested(2)": partial(by_scan, memory.scan),
    "Revolve(16)": partial(by_scan, partial(memory.scan, checkpoints=memory.Revolve(SLOTS))),
    "Online(16)": by_online,
    "equinox while": by_equinox,
    "equinox scan": by_equinox_scan,
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_gradient(benchmark, problem, name):
    benchmark.group = f"gradient, {STEPS} steps of {SIZE} numbers, {problem}"
    step, w = PROBLEMS[problem]
    run = jax.jit(jax.grad(lambda w, c: jnp.sum(RUNS[name](step, w, c) ** 2), (0, 1)))
    got = jax.block_until_ready(run(w, START))
    plain = jax.jit(jax.grad(lambda w, c: jnp.sum(by_scan(lax.scan, step, w, c) ** 2), (0, 1)))
    for a, b in zip(got, plain(w, START), strict=True):
        assert jnp.max(jnp.abs(a - b)) < 1e-10 * jnp.max(jnp.abs(b))
    benchmark.pedantic(
        lambda: jax.block_until_ready(run(w, START)), rounds=3, iterations=1, warmup_rounds=0
    )


def load_example():
    path = Path(__file__).parents[2] / "examples" / "vqe_circuit.py"
    spec = importlib.util.spec_from_file_location("vqe_circuit", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_circuit_of_twelve_qubits(benchmark):
    short, long = load_example().compare(12, [10, 1000], 1.0, 3)
    benchmark.extra_info.update({"10": short, "1000": long})
    benchmark.pedantic(lambda: None, rounds=1)
    print(short, long)
    assert long["difference"] < 1e-11
    assert long["uncompute_ms"] <= 4.0 * long["value_ms"]


@pytest.mark.parametrize("policy", [memory.Nested(2), memory.Revolve(16)], ids=repr)
def test_compile_time_does_not_grow(benchmark, policy):
    def seconds(count):
        def loss(w, c):
            step = lambda c, _: (dense_step(w, c), None)  # noqa: E731
            return jnp.sum(memory.scan(step, c, length=count, checkpoints=policy)[0])

        start = time.perf_counter()
        jax.jit(jax.grad(loss)).lower(DENSE, START).compile()
        return time.perf_counter() - start

    seconds(50)
    few, many = (min(seconds(count + i) for i in range(2)) for count in (100, 100000))
    benchmark.extra_info.update({"100": few, "100000": many})
    benchmark.pedantic(lambda: None, rounds=1)
    print(few, many)
    assert many < 1.5 * few
