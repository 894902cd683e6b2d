"""Checkpointed loops: gradients against `lax.scan`, evaluation counts, and what is loud."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from difflinalg import linalg, memory
from difflinalg._memory.treeverse import advances

NESTED = [memory.Nested(1), memory.Nested(2), memory.Nested(3)]
POLICIES = [*NESTED[1:], memory.Revolve(1), memory.Revolve(3), memory.Revolve(40)]
MATRIX = 0.3 * np.asarray(jax.random.normal(jax.random.key(0), (3, 3), jnp.float64))
START = (np.linspace(-1.0, 1.0, 3), np.array(0.3 - 0.2j), np.int64(2))
INPUTS = (np.linspace(0.2, 1.0, 13), np.arange(13))


def close(got, expected, rtol=1e-12):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * np.max(np.abs(b), initial=1e-300))


def objective(scan, matrix, shift, q, z, xs, reverse=False):
    """Real, complex and integer carries and inputs; an array and a number are closed over."""

    def step(carry, x):
        (q, z, n), (t, k) = carry, x
        q = jnp.tanh(matrix @ q) * n + shift * t
        z = z * jnp.exp(1j * t) * 0.9 + q[0] * shift
        return (q, z, (n + k) % 3 + 1), (q[1] * jnp.real(z), k + n)

    inputs = (xs, INPUTS[1][: xs.shape[0]])
    (q, z, n), (ys, ns) = scan(step, (q, z, START[2]), inputs, reverse=reverse)
    return jnp.sum(q) * n + jnp.abs(z) ** 2 + jnp.sum(jnp.sin(ys) * ns)


ARGS = (MATRIX, 0.2, START[0], START[1], INPUTS[0])


def with_policy(policy):
    return partial(memory.scan, checkpoints=policy)


@partial(jax.jit, static_argnums=(0, 1))
def derivatives(scan, reverse):
    return jax.value_and_grad(partial(objective, scan, reverse=reverse), range(5))(*ARGS)


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_value_and_gradient_agree_with_scan(policy):
    reverse = policy in (memory.Nested(2), memory.Revolve(3))
    close(derivatives(with_policy(policy), reverse), derivatives(lax.scan, reverse))


@partial(jax.jit, static_argnums=0)
def gradient_of_few(scan, args):
    return jax.grad(partial(objective, scan), (0, 2))(*args)


@pytest.mark.parametrize("policy", [memory.Nested(2), memory.Revolve(2)], ids=repr)
def test_few_steps_and_none(policy):
    scan = with_policy(policy)
    for count in (0, 1, 2):
        args = (*ARGS[:4], INPUTS[0][:count])
        close(gradient_of_few(scan, args), gradient_of_few(lax.scan, args))


def second_order(scan, matrix, d):
    """The second directional derivative in every nesting of modes."""
    f = lambda m: objective(scan, m, *ARGS[1:])  # noqa: E731
    forward = lambda g: lambda m: jax.jvp(g, (m,), (d,))[1]  # noqa: E731
    reverse = lambda g: lambda m: jnp.sum(jax.grad(g)(m) * d)  # noqa: E731
    nestings = [forward(reverse(f)), reverse(forward(f)), reverse(reverse(f)), forward(forward(f))]
    return [g(matrix) for g in nestings[: 1 if scan is not lax.scan and "Rev" in repr(scan) else 4]]


@pytest.mark.parametrize("policy", [memory.Nested(2), memory.Revolve(3)], ids=repr)
def test_second_derivatives_agree_with_scan(policy):
    d = np.cos(np.arange(9.0)).reshape(3, 3)
    got = jax.jit(second_order, static_argnums=0)(with_policy(policy), MATRIX, d)
    expected = jax.jit(second_order, static_argnums=0)(lax.scan, MATRIX, d)
    close(got, expected[: len(got)], 1e-10)


@pytest.mark.parametrize("policy", [memory.Nested(2), memory.Revolve(3)], ids=repr)
def test_vmap_over_carries_inputs_and_closures(policy):
    args = jax.tree.map(lambda leaf: np.stack([leaf, 0.5 * leaf]), ARGS)
    run = lambda scan: jax.jit(jax.vmap(jax.grad(partial(objective, scan), range(5))))(*args)  # noqa: E731
    close(run(with_policy(policy)), run(lax.scan))


@pytest.mark.parametrize("policy", [memory.Nested(2), memory.Revolve(3)], ids=repr)
def test_a_compiled_function_can_be_differentiated_from_outside(policy):
    run = lambda scan: jax.grad(jax.jit(partial(objective, scan)), (0, 2))(*ARGS)  # noqa: E731
    close(run(with_policy(policy)), run(lax.scan))


def test_forward_mode_of_revolve_is_refused():
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda q: objective(with_policy(memory.Revolve(2)), MATRIX, 0.2, q, *ARGS[3:]),
                (START[0],), (START[0],))  # fmt: skip


# Evaluations of the step, counted.


class Counter:
    def __init__(self):
        self.count = 0

    def tick(self):
        self.count += 1

    def __call__(self, function, *args):
        self.count = 0
        jax.block_until_ready(function(*args))
        jax.effects_barrier()
        return self.count


@pytest.mark.parametrize(
    ("steps", "slots", "expected"),
    [(10, 3, 25), (64, 4, 264), (100, 5, 416), (1000, 10, 4636), (1, 1, 1), (5, 1, 15)],
)
def test_revolve_evaluates_the_least_number_of_steps(steps, slots, expected):
    counter = Counter()

    def loss(c):
        def step(c, x):
            jax.debug.callback(counter.tick)
            return c + 0.1 * jnp.sin(c * x), None

        xs = jnp.linspace(0.0, 1.0, steps)
        return memory.scan(step, c, xs, checkpoints=memory.Revolve(slots))[0]

    assert counter(jax.jit(jax.grad(loss)), 0.3) == expected == advances(steps, slots) + steps
    if steps == 10:
        assert counter(jax.jit(loss), 0.3) == steps


@pytest.mark.parametrize(
    ("slots", "most"), [(10, {1000: 6469, 10: 20, 0: 0}), (3, {10: 29, 1: 2}), (4, {64: 325})]
)
def test_online_evaluates_at_most_as_many_as_said(slots, most):
    counter = Counter()

    def loss(c, steps):
        def body(state):
            jax.debug.callback(counter.tick)
            return state[0] + 0.1 * jnp.sin(state[0]), state[1] + 1

        start, policy = (c, 0), memory.Online(slots)
        return memory.while_loop(lambda s: s[1] < steps, body, start, checkpoints=policy)[0]

    gradient = jax.jit(jax.grad(loss))
    for steps, limit in most.items():
        got = counter(gradient, 0.3, steps)
        assert got <= limit
        assert got <= advances(steps, slots) + 2 * steps


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_nested_evaluates_each_step_once_for_each_level(levels):
    counter = Counter()

    @jax.custom_jvp
    def counted(c):
        def host(c):
            counter.tick()
            return c

        return jax.pure_callback(host, jax.ShapeDtypeStruct((), jnp.float64), c)

    counted.defjvp(lambda primals, tangents: (counted(*primals), tangents[0]))

    def loss(c):
        step = lambda c, _: (jnp.sin(counted(c)), None)  # noqa: E731
        return memory.scan(step, c, length=64, checkpoints=memory.Nested(levels))[0]

    evaluations = counter(jax.jit(jax.grad(loss)), 0.3)
    assert 64 * (levels - 0.5) < evaluations <= 64 * levels


@pytest.mark.parametrize(
    "policy", [memory.Nested(2), memory.Revolve(2), memory.Online(2)], ids=repr
)
def test_second_derivative_of_eigh_in_a_step_at_coinciding_values(policy):
    d = MATRIX + MATRIX.T

    def loss(a):
        def step(_, c):
            w, v = linalg.eigh(c)
            return 0.5 * (v * jnp.exp(w)) @ v.T

        return jnp.sum(MATRIX * fori_loop(step, a, policy))

    def plain(a):
        step = lambda c, _: (0.5 * jax.scipy.linalg.expm(c), None)  # noqa: E731
        return jnp.sum(MATRIX * lax.scan(step, a, length=4)[0])

    def fori_loop(step, a, policy):
        if not isinstance(policy, memory.Online):
            return memory.fori_loop(0, 4, step, a, checkpoints=policy)
        both = lambda c: (step(0, c[0]), c[1] + 1)  # noqa: E731
        return memory.while_loop(lambda c: c[1] < 4, both, (a, 0), checkpoints=policy)[0]

    at = 0.5 * jnp.eye(3)
    along = jax.jit(lambda f: jnp.sum(jax.jvp(jax.grad(f), (at,), (d,))[1] * d), static_argnums=0)
    np.testing.assert_allclose(along(loss), along(plain), rtol=1e-4)


# While loops.

WHILE = [*NESTED, memory.Online(1), memory.Online(3)]


@pytest.mark.parametrize("policy", WHILE, ids=repr)
def test_growth_to_a_bound_has_its_derivative(policy):
    def f(x):
        return memory.while_loop(
            lambda x: x < 100, lambda x: 1.5 * x, x, max_steps=50, checkpoints=policy
        )

    xs = np.array([20.0, 2.0, 90.0, 200.0])
    powers = 1.5 ** np.maximum(np.ceil(np.log(100 / xs) / np.log(1.5)), 0.0)
    close(jax.jit(jax.vmap(jax.value_and_grad(f)))(xs), (xs * powers, powers), 1e-14)
    gradient = jax.jit(jax.grad(f))
    close([gradient(x) for x in xs], list(powers), 1e-14)
    if policy == memory.Nested(2):
        close(jax.jit(jax.vmap(jax.jacfwd(f)))(xs), powers, 1e-14)


def newton(a, policy):
    """The square root of a; the body closes over a."""

    def unfinished(state):
        return jnp.abs(state[0] ** 2 - a) > 1e-13 * a

    def body(state):
        x, n = state
        return 0.5 * (x + a / x), n + 1

    x, n = memory.while_loop(unfinished, body, (0.5 + a, 0), max_steps=40, checkpoints=policy)
    return x + 0.0 * n


@pytest.mark.parametrize("policy", [memory.Nested(2), memory.Online(2)], ids=repr)
def test_newton_iteration_of_data_dependent_length(policy):
    a = np.array([0.04, 2.0, 900.0])
    slope, curvature = 0.5 / np.sqrt(a), -0.25 * a**-1.5
    f = partial(newton, policy=policy)
    close(jax.jit(jax.vmap(jax.grad(f)))(a), slope)
    # The iteration is differentiated, not its limit: the last steps converge quadratically.
    close(jax.jit(jax.grad(f))(2.0), slope[1], 1e-10)
    along = jax.jit(lambda a: jax.jvp(jax.grad(f), (a,), (1.0,))[1])(2.0)
    close(along, curvature[1], 1e-6)
    if isinstance(policy, memory.Nested):
        close(jax.jit(jax.vmap(jax.jacfwd(f)))(a), slope)
        close(jax.jit(jax.grad(jax.grad(f)))(2.0), along, 1e-12)


@pytest.mark.parametrize("policy", [memory.Nested(2), memory.Online(2)], ids=repr)
def test_loop_beyond_its_bound_is_loud(policy):
    def f(x, bound):
        return memory.while_loop(
            lambda s: s[0] < 100,
            lambda s: (1.5 * s[0], s[1] + 1, s[2] + 1),
            (x, 0, jnp.uint8(0)),
            max_steps=bound,
            checkpoints=policy,
        )

    assert f(20.0, 4)[1] == 4
    with pytest.raises(memory.StepLimitError, match="max_steps=3") as caught:
        f(20.0, 3)
    close(caught.value.carry[0], 20.0 * 1.5**3)
    x, n, m = jax.jit(f, static_argnums=1)(20.0, 3)
    assert np.isnan(x)
    assert n < -(2**30)
    assert m == 255
    assert np.isnan(jax.jit(lambda z: f(z, 3)[0])(jnp.float32(1.0)))
    assert np.isnan(jax.jit(jax.grad(lambda x: f(x, 3)[0]))(20.0))


def test_branch_stays_a_branch_under_vmap():
    counter = Counter()

    def f(x):
        def body(x):
            jax.debug.callback(counter.tick)
            return 1.5 * x

        return memory.while_loop(lambda x: x < 100, body, x, max_steps=1000)

    assert counter(jax.jit(jax.vmap(f)), np.array([20.0, 60.0])) <= 2 * 4


# Fori loops.


@pytest.mark.parametrize("policy", [memory.Nested(2), memory.Revolve(2)], ids=repr)
def test_fori_loop_with_known_bounds(policy):
    body = lambda i, c: c * jnp.cos(i) + i  # noqa: E731
    f = lambda c: memory.fori_loop(2, 9, body, c, checkpoints=policy)  # noqa: E731
    close(
        jax.value_and_grad(f)(0.3), jax.value_and_grad(lambda c: lax.fori_loop(2, 9, body, c))(0.3)
    )
    assert memory.fori_loop(5, 3, body, 1.0, checkpoints=policy) == 1.0


@pytest.mark.parametrize("policy", [memory.Nested(2), memory.Online(2)], ids=repr)
def test_fori_loop_with_traced_bounds(policy):
    body = lambda i, c: c * jnp.cos(i) + i  # noqa: E731
    f = jax.jit(lambda c, n: memory.fori_loop(2, n, body, c, max_steps=20, checkpoints=policy))
    for n in (1, 9):
        expected = jax.value_and_grad(lambda c, n=n: lax.fori_loop(2, n, body, c))(0.3)
        close(jax.value_and_grad(f)(0.3, n), expected)


# Memory and size of the program.


def test_residuals_are_the_slots():
    def kept(scan):
        _, pull = jax.vjp(
            lambda c: scan(lambda c, _: (jnp.sin(c), None), c, length=400)[0], np.ones(50)
        )
        return sum(leaf.size for leaf in jax.tree.leaves(pull)) / 50

    assert kept(lax.scan) >= 400
    assert kept(with_policy(memory.Nested(2))) < 25
    assert kept(with_policy(memory.Revolve(7))) < 10


@pytest.mark.parametrize("policy", [memory.Nested(2), memory.Revolve(5)], ids=repr)
def test_program_does_not_grow_with_the_number_of_steps(policy):
    def size(count):
        def f(c):
            step = lambda c, x: (jnp.sin(c) * x, None)  # noqa: E731
            return memory.scan(step, c, jnp.ones(count), checkpoints=policy)[0]

        return len(jax.jit(jax.grad(f)).lower(0.3).as_text().splitlines())

    assert size(100000) <= 1.1 * size(100)


# Keys, NaN, bodies that raise, arguments.


def test_random_keys_in_the_carry():
    def f(c, scan):
        def step(carry, _):
            key, c = carry
            key, now = jax.random.split(key)
            return (key, c * (1 + 0.1 * jax.random.normal(now))), None

        return scan(step, (jax.random.key(1), c), length=9)[0][1]

    gradient = jax.jit(jax.grad(f), static_argnums=1)
    for policy in (memory.Nested(2), memory.Revolve(2)):
        close(gradient(0.3, with_policy(policy)), gradient(0.3, lax.scan))


@pytest.mark.parametrize("policy", [memory.Nested(2), memory.Revolve(3)], ids=repr)
def test_nan_in_the_middle_stays_nan(policy):
    xs = np.where(np.arange(13) == 6, np.nan, INPUTS[0])
    gradient = jax.grad(partial(objective, with_policy(policy)), (0, 2))(*ARGS[:4], xs)
    assert all(np.all(np.isnan(leaf)) for leaf in gradient)


def test_body_that_raises_is_heard():
    def body(*_):
        msg = "from the body"
        raise RuntimeError(msg)

    for policy in (memory.Nested(2), memory.Revolve(2)):
        with pytest.raises(RuntimeError, match="from the body"):
            memory.scan(body, 1.0, length=5, checkpoints=policy)
    for policy in (memory.Nested(2), memory.Online(2)):
        with pytest.raises(RuntimeError, match="from the body"):
            memory.while_loop(lambda c: c < 3, body, 1.0, max_steps=5, checkpoints=policy)


def test_errors_name_the_function_and_the_remedy():
    step, grow, below = lambda c, _: (c, None), lambda c: c + 1, lambda c: c < 3
    with pytest.raises(TypeError, match=r"scan takes checkpoints=Nested or Revolve, got Online"):
        memory.scan(step, 1.0, length=3, checkpoints=memory.Online(2))
    with pytest.raises(TypeError, match=r"while_loop takes checkpoints=Nested or Online"):
        memory.while_loop(below, grow, 0, checkpoints=memory.Revolve(2))
    with pytest.raises(ValueError, match="needs max_steps, a Python integer; Online"):
        memory.while_loop(below, grow, 0)
    with pytest.raises(TypeError, match=r"Boolean scalar, got float64\[\]"):
        memory.while_loop(lambda c: c, grow, 0.0, max_steps=3)
    with pytest.raises(TypeError, match=r"scan needs a step that.*float64\[1\] for float64\[\]"):
        memory.scan(lambda c, _: (c[None], None), jnp.array(1.0), length=3)
    with pytest.raises(TypeError, match="structure of the carry"):
        memory.while_loop(below, lambda c: (c,), 0, max_steps=3)
    with pytest.raises(ValueError, match="Revolve needs slots >= 1, got slots=0"):
        memory.Revolve(0)
    with pytest.raises(TypeError, match="Nested needs levels as a Python integer, got float"):
        memory.Nested(1.5)
    with pytest.raises(ValueError, match=r"got \[2, 3\]"):
        memory.scan(step, 1.0, jnp.ones(2), length=3)
    with pytest.raises(ValueError, match="integer, zero or positive, got -1"):
        memory.scan(step, 1.0, length=-1)
    with pytest.raises(ValueError, match=r"got 2\.5"):
        memory.scan(step, 1.0, length=2.5)
    for policy in (memory.Nested(2), memory.Revolve(2)):
        with pytest.raises(TypeError, match=r"scan needs.*pair \(carry, y\), got one"):
            memory.scan(lambda c, _: c, 1.0, length=3, checkpoints=policy)
        with pytest.raises(TypeError, match=r"pair \(carry, y\), got 3 values"):
            memory.scan(lambda c, _: (c, c, c), 1.0, length=3, checkpoints=policy)
    body = lambda i, c: c + i  # noqa: E731
    for bound in (4.5, np.ones(2, int), 4.0):
        with pytest.raises(TypeError, match="fori_loop needs integer scalars as bounds"):
            memory.fori_loop(0, bound, body, 1.0)
        with pytest.raises(TypeError, match="fori_loop needs integer scalars as bounds"):
            jax.jit(lambda n: memory.fori_loop(0, n, body, 1.0, max_steps=9))(bound)
    with pytest.raises(ValueError, match="fori_loop has 4 steps, more than max_steps=3"):
        memory.fori_loop(0, 4, body, 1.0, max_steps=3)


def test_more_levels_or_slots_than_steps_do_no_harm():
    step, grow = lambda c, x: (jnp.sin(c) * x, None), lambda x: 1.5 * x
    xs = INPUTS[0][:6]
    expected = jax.grad(lambda c: lax.scan(step, c, xs)[0])(0.3)
    for policy in (memory.Nested(10**9), memory.Revolve(10**9)):
        got = jax.grad(lambda c, p=policy: memory.scan(step, c, xs, checkpoints=p)[0])(0.3)
        close(got, expected)
    for policy in (memory.Nested(10**9), memory.Online(10**9)):
        loop = partial(memory.while_loop, lambda x: x < 9, grow, max_steps=7, checkpoints=policy)
        close(jax.grad(loop)(1.0), 1.5**6)


def test_reverse_mode_twice_names_what_can_be_done_instead():
    scan = lambda c: memory.scan(lambda c, _: (c * c, None), c, length=4,  # noqa: E731
                                 checkpoints=memory.Revolve(2))[0]  # fmt: skip
    loop = lambda c: memory.while_loop(lambda c: c < 9, lambda c: c * c, c,  # noqa: E731
                                       checkpoints=memory.Online(2))  # fmt: skip
    for f, name in ((scan, "scan with Revolve"), (loop, "while_loop with Online")):
        with pytest.raises(TypeError, match=f"gradient of a {name}.*use Nested, or forward mode"):
            jax.grad(jax.grad(f))(1.2)
        batched = jax.jit(jax.vmap(jax.grad(lambda c, f=f: jnp.sin(jax.grad(f)(c)))))
        with pytest.raises(TypeError, match=f"gradient of a {name}"):
            batched(np.array([1.2, 1.3]))
        close(jax.jacfwd(jax.grad(f))(1.2), 16 * 15 * 1.2**14)
