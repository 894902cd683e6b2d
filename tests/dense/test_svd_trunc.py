"""Truncated singular value decomposition: against the full one, and the truncation term."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg import linalg
from difflinalg.testing import random_matrix

RANK = 5
SHAPES = [(90, 70), (70, 90)]
DTYPES = [jnp.float32, jnp.float64, jnp.complex128]


def adjoint(x):
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def random_array(seed, shape, dtype=jnp.float64):
    return np.asarray(jax.random.normal(jax.random.key(seed), shape, dtype))


def along(gradient, d):
    """The directional derivative that belongs to a gradient in JAX's convention."""
    return jnp.real(jnp.sum(gradient * d))


def close(got, expected, rtol, scale=None):
    """All differences are small against the largest entry that is expected."""
    got, expected = np.asarray(got), np.asarray(expected)
    scale = np.max(np.abs(expected), initial=0.0) if scale is None else scale
    assert got.shape == expected.shape
    assert np.all(np.isfinite(got)), got
    error = np.max(np.abs(got - expected), initial=0.0)
    assert error <= rtol * scale, (error, scale)


def decaying(shape, dtype=jnp.float64, seed=0, ratio=0.7):
    """A matrix whose singular values fall off to a floor, none of them equal or tiny."""
    i = np.arange(min(shape))
    s = jnp.asarray(ratio**i + 0.03 * (1.0 - i / (2.0 * len(i))), jnp.finfo(dtype).dtype)
    return np.asarray(random_matrix(jax.random.key(seed), s, shape, dtype))


def rebuilt(result):
    return (result.U * result.S) @ result.Vh


def loss_of(u, s, vh, left, right):
    """Sees the kept spaces, the kept values and single kept vectors, free of the phases."""
    term = (u * jnp.sin(s)) @ vh
    single = jnp.abs(jnp.vdot(left[:, 0], u[:, 0])) ** 2 + jnp.abs(vh[1] @ right[0]) ** 2
    return jnp.real(jnp.sum(left * (term @ adjoint(right)))) + single


def trunc_loss(a, left, right, full, rank=RANK):
    u, s, vh, _ = linalg.svd_trunc(a, rank, full=full)
    return loss_of(u, s, vh, left, right)


def sliced_loss(a, left, right, _, rank=RANK):
    u, s, vh = linalg.svd(a, full_matrices=False)
    return loss_of(u[:, :rank], s[:rank], vh[:rank], left, right)


def derivatives(f):
    def numbers(a, left, right, d, full):
        def gradient(x):
            return jax.grad(f)(x, left, right, full)

        value, slope = jax.jvp(lambda x: f(x, left, right, full), (a,), (d,))
        first, forward = jax.jvp(gradient, (a,), (d,))
        reverse = jax.grad(lambda x: along(gradient(x), d))(a)
        return {"value": value, "fwd": slope, "rev": first, "fwd-rev": forward, "rev-rev": reverse}

    return jax.jit(numbers, static_argnums=4)


OF_TRUNC, OF_SLICE = derivatives(trunc_loss), derivatives(sliced_loss)


def weights(shape, dtype):
    m, n = shape
    left, right = random_array(1, (m, 3), dtype), random_array(2, (3, n), dtype)
    return left / np.linalg.norm(left), right / np.linalg.norm(right)


def tolerances(dtype):
    if dtype == jnp.float32:
        return {"value": 1e-5, "fwd": 1e-4, "rev": 1e-4, "fwd-rev": 3e-3, "rev-rev": 3e-3}
    return {"value": 1e-13, "fwd": 1e-12, "rev": 1e-12, "fwd-rev": 1e-10, "rev-rev": 1e-10}


@pytest.mark.parametrize(
    ("shape", "dtype"), [*((SHAPES[0], dtype) for dtype in DTYPES), (SHAPES[1], jnp.float64)]
)
def test_iteration_full_path_and_sliced_decomposition_agree_to_second_order(shape, dtype):
    given = (decaying(shape, dtype), *weights(shape, dtype), random_array(3, shape, dtype))
    double = jnp.complex128 if dtype == jnp.complex128 else jnp.float64
    expected = OF_SLICE(*(x.astype(double) for x in given), None)
    for full in (True, False):
        got = OF_TRUNC(*given, full)
        for name, rtol in tolerances(dtype).items():
            reference = np.asarray(expected["rev" if name == "fwd" else name])
            close(got[name], expected[name], rtol, scale=np.linalg.norm(reference))


def test_decaying_tail_costs_the_truncated_rule_no_digits():
    """The rule never divides by the gaps of dropped values, be they below rounding."""
    s = 0.7 ** jnp.arange(70)
    a = np.asarray(random_matrix(jax.random.key(0), s, (90, 70)))
    left, right = weights(a.shape, a.dtype)
    d = random_array(3, a.shape)
    single = [x.astype(np.float32) for x in (a, left, right, d)]
    double = [x.astype(np.float64) for x in single]
    for full in (True, False):
        got, expected = OF_TRUNC(*single, full), OF_TRUNC(*double, full)
        for name in ("rev", "fwd-rev", "rev-rev"):
            close(got[name], expected[name], 1e-4)


@jax.jit
def projector_value_and_gradient(a, weight):
    def f(x):
        u, _, vh, _ = linalg.svd_trunc(x, 2)
        return jnp.real(jnp.sum(jnp.conj(weight) * (u @ vh)))

    return jax.value_and_grad(f)(a)


def numpy_projector(a, weight):
    u, _, vh = np.linalg.svd(a)
    return np.sum(np.conj(weight) * (u[:, :2] @ vh[:2])).real


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.complex128])
@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (4, 4)])
def test_truncation_term_agrees_with_differences(shape, dtype):
    s = jnp.array([2.0, 1.2, 0.9, 0.5])
    a = np.asarray(random_matrix(jax.random.key(4), s, shape, dtype))
    weight, d = random_array(5, shape, dtype), random_array(6, shape, dtype)
    value, gradient = projector_value_and_gradient(a, weight)
    close(value, numpy_projector(a, weight), 1e-13)
    h = 1e-3
    steps = [numpy_projector(a + k * h * d, weight) for k in (1, -1, 2, -2)]
    slope = (8 * (steps[0] - steps[1]) - (steps[2] - steps[3])) / (12 * h)
    close(along(gradient, d), slope, 1e-8)
    # Without the dropped part, `X = G_u / s`, the error is of the order of s[2] / s[1].
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    without = (u[:, :2] * s[:2]) @ vh[:2]
    _, naive = projector_value_and_gradient(without, weight)
    assert abs(along(naive, d) - slope) > 1e-3 * abs(slope)


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.complex128])
def test_forward_and_reverse_mode_are_transposes(dtype):
    a, d = decaying((70, 66), dtype), random_array(1, (70, 66), dtype)
    f = lambda x: tuple(linalg.svd_trunc(x, RANK, full=False)[:3])  # noqa: E731
    out, pull = jax.vjp(f, a)
    cotangents = tuple(random_array(10 + i, x.shape, x.dtype) for i, x in enumerate(out))
    tangents = jax.jvp(f, (a,), (d,))[1]
    left = sum(along(c, t) for c, t in zip(cotangents, tangents, strict=True))
    size = sum(float(np.sum(np.abs(c * t))) for c, t in zip(cotangents, tangents, strict=True))
    close(along(pull(cotangents)[0], d), left, 1e-12, scale=size)


# Spectra that the iteration cannot handle, and deficient ones.


def test_flat_spectrum_falls_back_to_the_full_decomposition():
    s = 1.0 - 1e-3 * jnp.arange(66)
    a = np.asarray(random_matrix(jax.random.key(7), s, (70, 66)))
    left, right = weights(a.shape, a.dtype)
    u, values, vh, info = linalg.svd_trunc(a, RANK, full=False)
    expected = np.linalg.svd(a, full_matrices=False)
    close(values, expected[1][:RANK], 1e-12)
    close((u * values) @ vh, (expected[0][:, :RANK] * values) @ expected[2][:RANK], 1e-9)
    assert not info.cut
    gradient = jax.jit(jax.grad(trunc_loss), static_argnums=3)
    close(gradient(a, left, right, False), gradient(a, left, right, True), 1e-6)


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.complex128])
def test_rank_below_the_number_of_kept_values_has_the_gradient_of_what_is_kept(full, dtype):
    """All of a matrix of rank 2 is kept, so that the kept part is the matrix itself."""
    s = jnp.zeros(66).at[:2].set(jnp.array([2.0, 1.0]))
    a = np.asarray(random_matrix(jax.random.key(8), s, (70, 66), dtype))
    u, values, vh, info = linalg.svd_trunc(a, RANK, full=full)
    close(values, s[:RANK], 1e-13, scale=1.0)
    close((u * values) @ vh, a, 1e-13, scale=1.0)
    close(adjoint(u) @ u, np.eye(RANK), 1e-12)
    close(vh @ adjoint(vh), np.eye(RANK), 1e-12)
    assert not info.cut
    assert info.error < 1e-13
    weight = random_array(2, a.shape, dtype)

    @jax.jit
    def gradient(x):
        def f(y):
            u, s, vh, _ = linalg.svd_trunc(y, RANK, full=full)
            return jnp.real(jnp.sum(jnp.conj(weight) * ((u[:, :2] * s[:2]) @ vh[:2])))

        return jax.grad(f)(x)

    q, _, ph = np.linalg.svd(a)
    q, p = q[:, :2] @ np.conj(q[:, :2].T), np.conj(ph[:2].T) @ ph[:2]
    tangent_space = q @ weight + weight @ p - q @ weight @ p
    close(gradient(a), np.conj(tangent_space), 1e-11)


@pytest.mark.parametrize("full", [True, False])
def test_zero_matrix_has_orthonormal_factors_and_a_finite_gradient(full):
    a = jnp.zeros((70, 66))
    u, s, vh, info = linalg.svd_trunc(a, RANK, full=full)
    close(s, np.zeros(RANK), 0.0)
    close(u.T @ u, np.eye(RANK), 1e-12)
    close(vh @ vh.T, np.eye(RANK), 1e-12)
    assert not info.cut
    assert info.error == 0.0
    assert info.gap == 0.0
    gradient = jax.grad(lambda x: jnp.sum(rebuilt(linalg.svd_trunc(x, RANK, full=full))))(a)
    assert np.all(np.isfinite(gradient))


# Multiplets.

MULTIPLET = jnp.array([3.0, 2.0, 2.0, 2.0, 1.0, 0.5])


def space_loss(a, weight, rank, keep):
    """Sees a multiplet as a whole: projectors, and values through `U^H A V`."""
    u, _, vh, _ = linalg.svd_trunc(a, rank, keep_multiplets=keep)
    core = adjoint(u) @ a @ adjoint(vh)
    return jnp.real(jnp.sum(jnp.conj(weight) * (u @ core @ vh + u @ adjoint(u) @ weight)))


def projected_loss(a, weight, rank):
    """The same by projectors, from polynomials of A^H A: no decomposition is differentiated."""
    u, s, vh = np.linalg.svd(a)
    # Newton's iteration X (3 - X^2) / 2 for the sign of A A^H - threshold.
    threshold = (s[rank - 1] ** 2 + s[rank] ** 2) / 2
    del u, vh

    def f(x):
        def projector(gram):
            sign = (gram - threshold * jnp.eye(gram.shape[0])) / 10.0
            for _ in range(24):
                sign = sign @ (3 * jnp.eye(gram.shape[0]) - sign @ sign) / 2
            return (jnp.eye(gram.shape[0]) + sign) / 2

        p, q = projector(x @ adjoint(x)), projector(adjoint(x) @ x)
        return jnp.real(jnp.sum(jnp.conj(weight) * (p @ x @ q + p @ weight)))

    return f


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.complex128])
def test_rank_at_the_end_of_a_multiplet_has_right_derivatives(dtype):
    a = np.asarray(random_matrix(jax.random.key(9), MULTIPLET, (6, 6), dtype))
    weight, d = random_array(1, (6, 6), dtype), random_array(2, (6, 6), dtype)
    both = jax.jit(lambda f, x: jax.jvp(jax.grad(f), (x,), (d,)), static_argnums=0)
    got = both(lambda x: space_loss(x, weight, 4, False), a)
    expected = both(projected_loss(a, weight, 4), a)
    close(got[0], expected[0], 1e-9)
    close(got[1], expected[1], 1e-8)


@pytest.mark.parametrize("rank", [2, 3])
def test_cut_multiplet_has_a_nan_derivative_and_says_so(rank):
    a = np.asarray(random_matrix(jax.random.key(9), MULTIPLET, (6, 6)))
    result = linalg.svd_trunc(a, rank)
    assert result.info.cut
    assert int(result.info.kept) == rank
    close(result.info.gap, 0.0, 1e-14, scale=1.0)
    close(result.S, MULTIPLET[:rank], 1e-13)
    gradient = jax.grad(space_loss)(a, random_array(1, (6, 6)), rank, False)
    assert np.any(np.isnan(gradient))


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.complex128])
def test_keep_multiplets_drops_the_cut_ones_and_has_right_derivatives(rank, dtype):
    a = np.asarray(random_matrix(jax.random.key(9), MULTIPLET, (6, 6), dtype))
    weight, d = random_array(1, (6, 6), dtype), random_array(2, (6, 6), dtype)
    u, s, vh, info = linalg.svd_trunc(a, rank, keep_multiplets=True)
    assert u.shape == (6, rank)
    assert not info.cut
    assert int(info.kept) == 1
    close(s, [3.0, *([0.0] * (rank - 1))], 1e-13)
    close(u[:, 1:], np.zeros((6, rank - 1)), 0.0, scale=1.0)
    close(vh[1:], np.zeros((rank - 1, 6)), 0.0, scale=1.0)
    close(info.error, np.linalg.norm(MULTIPLET[1:]), 1e-13)
    both = jax.jit(lambda f, x: jax.jvp(jax.grad(f), (x,), (d,)), static_argnums=0)
    got = both(lambda x: space_loss(x, weight, rank, True), a)
    expected = both(projected_loss(a, weight, 1), a)
    close(got[0], expected[0], 1e-9)
    close(got[1], expected[1], 1e-8)


def test_multiplet_tolerance_is_an_option():
    a = jnp.diag(jnp.array([2.0, 1.0, 1.0 - 1e-6, 0.1]))
    assert not linalg.svd_trunc(a, 2).info.cut
    assert linalg.svd_trunc(a, 2, multiplet_rtol=1e-5).info.cut
    kept = linalg.svd_trunc(a, 2, multiplet_rtol=1e-5, keep_multiplets=True)
    assert int(kept.info.kept) == 1


# Results and arguments.


@pytest.mark.parametrize("full", [True, False])
def test_info_says_what_was_dropped(full):
    a = decaying((90, 70))
    s = np.linalg.svd(a, compute_uv=False)
    info = linalg.svd_trunc(a, RANK, full=full).info
    close(info.error, np.linalg.norm(s[RANK:]), 1e-12)
    close(info.gap, (s[RANK - 1] - s[RANK]) / s[0], 1e-10)
    assert int(info.kept) == RANK
    assert not info.cut
    assert (int(info.rounds) > 0) != full
    assert info._fields == ("error", "kept", "gap", "cut", "rounds")


def test_all_values_can_be_kept():
    a = random_array(1, (4, 3))
    u, s, vh, info = linalg.svd_trunc(a, 3)
    close((u * s) @ vh, a, 1e-14)
    close(s, np.linalg.svd(a, compute_uv=False), 1e-14)
    assert not info.cut
    weight = random_array(2, (4, 3))
    gradient = jax.grad(lambda x: jnp.sum(weight * rebuilt(linalg.svd_trunc(x, 3))))(a)
    close(gradient, weight, 1e-12)


def test_batch_and_vmap_equal_a_loop():
    stack = np.stack([decaying((70, 66), seed=seed, ratio=0.6 + 0.1 * seed) for seed in range(3)])
    left, right = weights((70, 66), jnp.float64)
    one = jax.value_and_grad(lambda x: trunc_loss(x, left, right, False))
    values, gradients = jax.jit(jax.vmap(one))(stack)
    alone = jax.jit(one)
    batch = linalg.svd_trunc(stack, RANK, full=False)
    assert batch.U.shape == (3, 70, RANK)
    assert batch.info.error.shape == (3,)
    for index, a in enumerate(stack):
        value, gradient = alone(a)
        close(values[index], value, 1e-12)
        close(gradients[index], gradient, 1e-10)
        result = linalg.svd_trunc(a, RANK, full=False)
        close(batch.S[index], result.S, 1e-12)
        product = (result.U * result.S) @ result.Vh
        close((batch.U[index] * batch.S[index]) @ batch.Vh[index], product, 1e-11)


def test_custom_rule_is_the_one_that_runs():
    assert "difflinalg_svd_trunc_core" in str(
        jax.make_jaxpr(lambda x: linalg.svd_trunc(x, 1))(jnp.eye(2))
    )


def test_integers_are_converted_and_scales_do_not_matter():
    assert linalg.svd_trunc([[2, 0], [0, 1]], 1).S.dtype == jnp.float64
    a, weight = np.diag([4.0, 2.0, 1.0, 0.5]), random_array(1, (4, 4))
    value, gradient = projector_value_and_gradient(a, weight)
    for power in (-400, 400):
        factor = 2.0**power
        scaled = projector_value_and_gradient(a * factor, weight)
        close(scaled[0], value, 1e-12)
        close(scaled[1] * factor, gradient, 1e-12)


def test_errors_name_the_function_the_value_and_the_remedy():
    a = jnp.ones((4, 3))
    for rank in (0, -1, 4):
        with pytest.raises(ValueError, match=rf"svd_trunc needs 1 <= rank <= 3.*rank={rank}"):
            linalg.svd_trunc(a, rank)
    for rank in (2.0, "2", None, True):
        with pytest.raises(TypeError, match=r"svd_trunc needs `rank` as a Python integer"):
            linalg.svd_trunc(a, rank)
    with pytest.raises(TypeError, match=r"svd_trunc needs `rank` as a Python integer.*static"):
        jax.jit(linalg.svd_trunc)(a, 2)
    with pytest.raises(ValueError, match=r"svd_trunc needs a matrix.*\(3,\)"):
        linalg.svd_trunc(jnp.ones(3), 1)
    with pytest.raises(ValueError, match="svd_trunc got a matrix that contains NaN"):
        linalg.svd_trunc(a.at[0, 0].set(jnp.nan), 1)
    with pytest.raises(ValueError, match="svd_trunc got an empty matrix"):
        linalg.svd_trunc(jnp.ones((0, 3)), 1)
    assert linalg.svd_trunc(a, np.int64(1)).S.shape == (1,)


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.complex128])
def test_product_of_factors_is_decomposed_like_its_product(dtype, full):
    left, right = random_array(1, (9, 7), dtype), random_array(2, (7, 8), dtype)
    directions = random_array(3, (9, 7), dtype), random_array(4, (7, 8), dtype)
    weight = random_array(5, (9, 8), dtype)

    def loss(decompose):
        def of_factors(left, right):
            u, s, vh, _ = decompose(left, right)
            return jnp.sum(jnp.abs(weight * ((u * jnp.sin(s)) @ vh)) ** 2)

        return of_factors

    def derivatives(f):
        gradient = jax.grad(lambda x: f(*x))
        return jax.jvp(gradient, ((left, right),), (directions,))

    def decompositions(product):
        def decompose(x, y):
            known = product and product(x, y)
            return linalg.svd_trunc((x, y), 3, full=full, product=known)

        return derivatives(loss(decompose))

    formed = jax.jit(
        lambda: derivatives(loss(lambda x, y: linalg.svd_trunc(x @ y, 3, full=full)))
    )()
    for product in (None, jnp.matmul, lambda x, y: jax.lax.stop_gradient(x @ y)):
        found = jax.jit(partial(decompositions, product))()
        for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(formed), strict=True):
            close(got, want, 1e-10)


def test_product_of_factors_broadcasts_and_maps_and_reports_the_error():
    left, right = random_array(1, (3, 6, 4)), random_array(2, (4, 5))
    u, s, vh, info = linalg.svd_trunc((left, right), 2)
    mapped = jax.vmap(lambda x: linalg.svd_trunc((x, right), 2))(left)
    close(s, mapped.S, 1e-13)
    rest = np.linalg.norm(left @ right - (u * s[:, None]) @ vh, axis=(-2, -1))
    close(info.error, rest, 1e-12)
    known = linalg.svd_trunc((left, right), 2, product=left @ right)
    close(known.S, s, 1e-13)
    close(known.info.error, rest, 1e-12)


@pytest.mark.parametrize(
    ("factors", "error"),
    [((), "at least one factor"), ((np.ones((2, 3)), np.ones((2, 3))), "shapes that do not fit")],
)
def test_factors_that_do_not_fit_are_refused(factors, error):
    with pytest.raises(ValueError, match=error):
        linalg.svd_trunc(factors, 1)


def test_list_is_a_stack_and_factors_are_a_tuple():
    left, right = np.ones((2, 3)), np.ones((3, 4))
    with pytest.raises(ValueError, match=r"\(2, 3\), \(3, 4\).*factors of a product as a tuple"):
        linalg.svd_trunc([left, right], 1)
    assert linalg.svd_trunc([left, left], 1).S.shape == (2, 1)
    assert linalg.svd_trunc((left, right), 1).S.shape == (1,)


@pytest.mark.parametrize("a", [np.ones((2, 2)), (np.ones((2, 3)), np.ones((3, 4)))])
def test_a_product_of_another_shape_and_of_one_matrix_are_refused(a):
    with pytest.raises(ValueError, match=r"the product that svd_trunc takes .* shape \(2, 2\)"):
        linalg.svd_trunc(a, 1, product=np.ones((2, 2)))


def test_a_complex_product_of_real_factors_and_nan_are_refused():
    factors = np.ones((2, 3)), np.ones((3, 2))
    with pytest.raises(TypeError, match="is complex, its factors are real"):
        linalg.svd_trunc(factors, 1, product=np.ones((2, 2), complex))
    with pytest.raises(ValueError, match="contains NaN"):
        linalg.svd_trunc(factors, 1, product=np.full((2, 2), np.nan))


def test_the_core_is_the_projected_matrix_to_third_order_inside_of_a_multiplet():
    values = jnp.array([3.0, 2.0, 2.0, 0.5, 0.1])
    a = random_matrix(jax.random.key(5), values, (6, 5), jnp.complex128)
    d = random_array(6, (6, 5), jnp.complex128)

    def powers(core):
        square = core.conj().T @ core
        return jnp.real(jnp.trace(square @ square @ square))

    def by_core(t):
        return powers(linalg.svd_trunc(a + t * d, 3, core=True).S)

    def by_divided_differences(t):
        x = a + t * d
        kept = linalg.funm_hermitian(x.conj().T @ x, lambda w: jnp.where(w > 1.0, w**3, 0.0))
        return jnp.real(jnp.trace(kept))

    def derivatives(f):
        second = jax.jacfwd(jax.jacfwd(f))
        return jnp.stack([f(0.0), jax.grad(f)(0.0), second(0.0), jax.jacfwd(second)(0.0)])

    found, divided = (
        jax.jit(derivatives, static_argnums=0)(f) for f in (by_core, by_divided_differences)
    )
    np.testing.assert_allclose(found, divided, rtol=1e-11)
