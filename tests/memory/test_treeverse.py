"""The optimal schedule: closed forms against dynamic programming, and the program that runs it."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg._memory import treeverse
from difflinalg._memory.online import thin

TABLE = {  # p(N, s) of Griewank and Walther's schedule
    (5, 1): 10, (10, 3): 15, (16, 4): 27, (32, 2): 140, (56, 3): 210, (64, 4): 200, (64, 8): 137,
    (100, 5): 316, (128, 6): 392, (1000, 5): 6284, (1000, 10): 3636, (4096, 10): 20208,
}  # fmt: skip


@cache
def least(steps, slots):
    """By dynamic programming over the place of the next checkpoint."""
    if steps <= 1:
        return 0
    if slots == 1:
        return steps * (steps - 1) // 2
    return min(m + least(steps - m, slots - 1) + least(m, slots) for m in range(1, steps))


def test_closed_form_is_the_least_number_of_evaluations():
    for slots in range(1, 7):
        for steps in range(1, 60):
            assert treeverse.advances(steps, slots) == least(steps, slots)
    for (steps, slots), expected in TABLE.items():
        assert treeverse.advances(steps, slots) == expected


def test_stride_of_arrays_is_optimal():
    stride = jax.jit(jax.vmap(treeverse.stride))
    cases = [(n, s) for n in range(2, 60) for s in range(2, 7)]
    steps, slots = (jnp.array(x, jnp.int32) for x in zip(*cases, strict=True))
    for (n, s), m in zip(cases, np.asarray(stride(steps, slots)), strict=True):
        m = int(m)
        assert m + least(n - m, s - 1) + least(m, s) == least(n, s)


def test_stride_stays_valid_where_integers_overflow():
    big = jnp.int32(2**31 - 2)
    with jax.enable_x64(False):
        m = jax.jit(treeverse.stride)(big, jnp.int32(2))
    assert 1 <= m < big


def simulate(steps, slots, positions):
    """Positions in the order in which they are reversed, and how many steps were taken."""
    stack = treeverse.new_stack(jnp.zeros((), jnp.int32), slots)
    for p in positions:
        stack = treeverse.push(stack, jnp.int32(p), jnp.int32(p), jnp.array(True))

    def back(state, target):
        stack, count = state
        advance = lambda c, i: (c[0] + 1, c[1] + (c[0] == i), c[2] + 1)  # noqa: E731
        # The carry is its own position; the second entry counts the steps that begin in place.
        carrier = stack._replace(slots=(stack.slots, stack.slots * 0, stack.slots * 0))
        (here, in_place, taken), carrier = treeverse.reach(advance, carrier, target)
        stack = carrier._replace(slots=carrier.slots[0])
        return (stack, count + taken), (here, in_place == taken)

    targets = jnp.arange(steps - 1, dtype=jnp.int32)
    (_, count), (reached, right) = jax.lax.scan(back, (stack, 0), targets, reverse=True)
    np.testing.assert_array_equal(reached, targets)
    assert np.all(right)
    return int(count)


@pytest.mark.parametrize(("steps", "slots"), [(2, 1), (7, 1), (10, 3), (13, 30), (64, 4)])
def test_every_step_is_reached_with_the_least_number_of_evaluations(steps, slots):
    positions = treeverse.first_positions(steps, slots)
    assert len(positions) <= slots
    assert sorted(set(positions)) == positions
    # The first sweep, to the last step, has been taken; the last step was taped then.
    count = simulate(steps, slots, positions)
    assert count == treeverse.advances(steps, slots) - (steps - 1)


def online_cost(steps, slots):
    """The least cost of the way back over the number of evenly spaced checkpoints that stay."""
    stride = 1
    while -(-steps // stride) > slots:
        stride *= 2
    positions = list(range(0, steps, stride))
    costs, before = [], 0
    for j, p in enumerate(positions):
        costs.append(before + treeverse.advances(steps - p, slots - j))
        before += treeverse.advances(min(stride, steps - p), slots - j)
    return positions, costs


@pytest.mark.parametrize("slots", [1, 2, 5, 10])
def test_cheapest_prefix_of_evenly_spaced_checkpoints_is_kept(slots):
    @jax.jit
    def sweep(steps):
        def body(state, i):
            stack, stride = thin(*state, i)
            new = treeverse.push(stack, jnp.zeros(()), i, i % stride == 0)
            keep = jax.tree.map(lambda a, b: jnp.where(i < steps, a, b), (new, stride), state)
            return keep, None

        start = treeverse.new_stack(jnp.zeros(()), slots), jnp.int32(1)
        stack = jax.lax.scan(body, start, jnp.arange(300, dtype=jnp.int32))[0][0]
        return stack, treeverse.cheapest(stack, steps)

    for steps in (1, 2, 9, 10, 11, 64, 100, 129, 300):
        stack, kept = sweep(jnp.int32(steps))
        positions, costs = online_cost(steps, slots)
        np.testing.assert_array_equal(stack.positions[: stack.used], positions)
        assert sorted(np.asarray(stack.order).tolist()) == list(range(slots))
        assert costs[int(kept.used) - 1] == min(costs)
        assert min(costs) <= treeverse.advances(steps, slots)
