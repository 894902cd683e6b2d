"""Singular value decomposition: values against NumPy, derivatives against two oracles."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg import linalg
from difflinalg._core.tolerances import cluster_rtol
from difflinalg._dense.svd import svd_tangents, svdvals_tangents
from difflinalg.testing import check_derivatives, random_matrix, random_unitary, spectrum

SHAPES = {"tall": (4, 3), "square": (3, 3), "wide": (3, 4)}
DTYPES = [jnp.float32, jnp.float64, jnp.complex64, jnp.complex128]
BOTH = [jnp.float64, jnp.complex128]
KINDS = ("generic", "degenerate", "rank_deficient", "zero")


def adjoint(x):
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def random_array(seed, shape, dtype=jnp.float64):
    return np.asarray(jax.random.normal(jax.random.key(seed), shape, dtype))


def along(gradient, d):
    """The directional derivative that belongs to a gradient in JAX's convention."""
    return jnp.real(jnp.sum(gradient * d))


def inner(weight, x):
    return jnp.real(jnp.sum(jnp.conj(weight) * x))


def close(got, expected, rtol, scale=None):
    """All differences are small against the largest entry that is expected."""
    got, expected = np.asarray(got), np.asarray(expected)
    scale = np.max(np.abs(expected), initial=0.0) if scale is None else scale
    assert got.shape == expected.shape
    assert np.all(np.isfinite(got)), got
    error = np.max(np.abs(got - expected), initial=0.0)
    assert error <= rtol * scale, (error, scale, got, expected)


# Smooth functions of the matrix from its factors, and the same functions without any of them.


def nearest_unitary(a):
    """`U Vh` of a matrix of full rank, by Newton's iteration `X (I + (X^H X)^-1) / 2`."""
    if a.shape[0] < a.shape[1]:
        return adjoint(nearest_unitary(adjoint(a)))
    for _ in range(7):
        a = (a + a @ jnp.linalg.inv(adjoint(a) @ a)) / 2
    return a


def resolvent(a):
    return jnp.linalg.inv(jnp.eye(a.shape[1]) + adjoint(a) @ a)


def smooth_loss(a, weight, weight_n, polar):
    """`U S Vh`, `U s^3 Vh`, `I - V s^2 / (1 + s^2) V^H`, and `polar` times `U Vh`."""
    u, s, vh = linalg.svd(a, full_matrices=False)
    damped = jnp.eye(a.shape[1]) - (adjoint(vh) * (s**2 / (1 + s**2))) @ vh
    return (
        inner(weight, (u * s) @ vh)
        + inner(weight[::-1], (u * s**3) @ vh)
        + inner(weight_n, damped)
        + polar * inner(weight, u @ vh)
    )


def plain_loss(a, weight, weight_n, polar):
    """The same without any factor; `polar` is a number known to Python."""
    smooth = inner(weight, a) + inner(weight[::-1], a @ adjoint(a) @ a)
    smooth += inner(weight_n, resolvent(a))
    return smooth + (polar * inner(weight, nearest_unitary(a)) if polar else 0.0)


@jax.jit
def every_nesting(a, weight, weight_n, polar, d, e):
    """Gradient, its forward twin, and the Hessian times d in every nesting of modes."""

    def f(x):
        return smooth_loss(x, weight, weight_n, polar)

    def forward(x):
        return jax.jvp(f, (x,), (d,))[1]

    def reverse(x):
        return along(jax.grad(f)(x), d)

    return {
        "fwd": forward(a),
        "rev": jax.grad(f)(a),
        "fwd-fwd": jax.jvp(forward, (a,), (e,))[1],
        "fwd-rev": jax.jvp(jax.grad(f), (a,), (d,))[1],
        "rev-fwd": jax.grad(forward)(a),
        "rev-rev": jax.grad(reverse)(a),
    }


@partial(jax.jit, static_argnums=3)
def plain_derivatives(a, weight, weight_n, polar, d):
    """Gradient and Hessian times d of a function that JAX differentiates without trouble."""
    return jax.jvp(jax.grad(lambda x: plain_loss(x, weight, weight_n, polar)), (a,), (d,))


def compare(a, polar, gradient_rtol=1e-7, hessian_rtol=1e-4):
    weight, d, e = (random_array(seed, a.shape, a.dtype) for seed in (1, 2, 3))
    weight_n = random_array(4, (a.shape[1],) * 2, a.dtype)
    got = every_nesting(a, weight, weight_n, polar, d, e)
    gradient, hessian_d = plain_derivatives(a, weight, weight_n, polar, d)
    size = np.linalg.norm(gradient)
    close(got["rev"], gradient, gradient_rtol, scale=size)
    close(got["fwd"], along(gradient, d), gradient_rtol, scale=size * np.linalg.norm(d))
    size = max(np.linalg.norm(hessian_d), size)
    for nesting in ("fwd-rev", "rev-fwd", "rev-rev"):
        close(got[nesting], hessian_d, hessian_rtol, scale=size)
    close(got["fwd-fwd"], along(hessian_d, e), hessian_rtol, scale=size * np.linalg.norm(e))


def example(kind, shape, dtype):
    r = min(shape)
    values = {
        "degenerate": jnp.array([2.0, 2.0, 0.7]),
        "identity": jnp.ones(3),
        "rank_one": jnp.array([1.5, 0.0, 0.0]),
    }
    s = values[kind] if kind in values else spectrum(kind, r)
    return np.asarray(random_matrix(jax.random.key(8), s, shape, dtype))


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("shape", SHAPES)
def test_smooth_functions_have_right_derivatives_at_every_spectrum(shape, dtype):
    compare(example("generic", SHAPES[shape], dtype), 1.0, 1e-11, 1e-10)
    for kind in ("degenerate", "identity"):
        compare(example(kind, SHAPES[shape], dtype), 1.0)
    for kind in ("rank_one", "rank_deficient", "zero"):
        compare(example(kind, SHAPES[shape], dtype), 0.0)


@pytest.mark.parametrize(
    "a",
    [
        np.eye(3),
        2.5 * np.eye(3),
        np.diag([1.0, 1.0, 2.0]),
        np.diag([1.0, 3.0, 3.0]),
        np.asarray(random_unitary(jax.random.key(1), 3)),
        0.3 * np.asarray(random_unitary(jax.random.key(2), 3)),
    ],
)
def test_diagonal_matrices_and_rotations_have_right_derivatives(a):
    compare(a, 1.0)


@jax.jit
def third_order(a, weight, d):
    def f(x):
        return smooth_loss(x, weight, weight, 1.0)

    def forward(g):
        return lambda x: jax.jvp(g, (x,), (d,))[1]

    def reverse(g):
        return lambda x: along(jax.grad(g)(x), d)

    return jnp.stack([forward(forward(forward(f)))(a), reverse(forward(reverse(f)))(a)])


@pytest.mark.parametrize("kind", ["degenerate", "identity"])
def test_third_derivative_is_right_at_degeneracy(kind):
    a, weight, d = example(kind, (3, 3), jnp.float64), *(random_array(i, (3, 3)) for i in (1, 2))
    f = lambda t: plain_loss(a + t * d, weight, weight, 1.0)  # noqa: E731
    expected = jax.grad(jax.grad(jax.grad(f)))(0.0)
    close(third_order(a, weight, d), np.full(2, expected), 1e-2)


@jax.jit
def gradients(stack, weight, weight_n):
    return jax.vmap(jax.grad(smooth_loss), (0, None, None, None))(stack, weight, weight_n, 0.0)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.complex64])
@pytest.mark.parametrize("shape", ["tall", "wide"])
def test_single_precision_gradient_has_half_of_its_digits(shape, dtype):
    double = jnp.complex128 if dtype == jnp.complex64 else jnp.float64
    stack = np.stack([example(kind, SHAPES[shape], double) for kind in KINDS])
    weight, weight_n = (random_array(1, SHAPES[shape], double), np.eye(SHAPES[shape][1]))
    got = gradients(stack.astype(dtype), weight.astype(dtype), weight_n.astype(dtype))
    assert got.dtype == dtype
    for a, gradient in zip(stack, got, strict=True):
        expected = jax.grad(plain_loss)(a, weight, weight_n, 0.0)
        close(gradient, expected, 5e-3)


@pytest.mark.parametrize("margin", [0.5, 2.0, 1e3])
def test_gap_on_either_side_of_the_cluster_tolerance_leaves_a_smooth_gradient(margin):
    gap = margin * cluster_rtol(jnp.float64)
    weight = random_array(1, (3, 3))
    for a in (np.diag([1.0, 1.0 - gap, 0.4]), np.diag([1.0, gap, 0.0])):
        expected = jax.grad(plain_loss)(jnp.asarray(a), weight, weight, 0.0)
        close(gradients(a[None], weight, weight)[0], expected, 3e-4)


# The projector on a null space, and single vectors.


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("shape", ["tall", "wide"])
def test_null_space_of_full_matrices_has_right_derivatives(shape, dtype):
    a = example("generic", SHAPES[shape], dtype)
    m, n = a.shape
    weight, d = random_array(1, (4, 4), dtype), random_array(2, a.shape, dtype)

    def null_projector(x):
        u, _, vh = linalg.svd(x)
        null = u[:, n:] if m > n else adjoint(vh)[:, m:]
        return inner(weight, null @ adjoint(null))

    def plain(x):
        x = x if m > n else adjoint(x)
        return inner(weight, -x @ jnp.linalg.inv(adjoint(x) @ x) @ adjoint(x))

    derivatives = jax.jit(lambda f, x: jax.jvp(jax.grad(f), (x,), (d,)), static_argnums=0)
    for got, expected in zip(derivatives(null_projector, a), derivatives(plain, a), strict=True):
        close(got, expected, 1e-10)


@pytest.mark.parametrize("dtype", BOTH)
def test_gauge_invariant_loss_of_single_vectors_agrees_with_differences(dtype):
    a = example("generic", (4, 3), dtype)

    def loss(x):
        u, s, vh = linalg.svd(x, full_matrices=False)
        term = s[0] ** 2 * u[0, 0] * vh[0, 1] + jnp.sin(s[1]) * u[1, 1] * vh[1, 0]
        return jnp.real(term) + 2 * jnp.imag(term) + jnp.abs(u[2, 1]) ** 2 + jnp.abs(vh[2, 0]) ** 4

    check_derivatives(loss, (jnp.asarray(a),), order=2)


def test_complex_phase_term_is_part_of_the_rule():
    """Of a 1 x 1 matrix `U Vh = z / |z|`, which turns with the phase of z."""
    z = jnp.array([[3.0 + 4.0j]])

    def phase(x):
        u, _, vh = linalg.svd(x)
        return jnp.imag((u @ vh)[0, 0])

    # d(y / r) = (x^2 dy - x y dx) / r^3, and JAX's gradient is d/dx - i d/dy.
    close(jax.grad(phase)(z), [[(-12.0 - 9.0j) / 125.0]], 1e-14)
    tangent = jax.jvp(lambda x: jnp.matmul(*linalg.svd(x)[::2]), (z,), (1j * z,))[1]
    close(tangent, 1j * z / 5.0, 1e-14)


# The rule itself.


def identities(a_dot, factors, tangents):
    """Check `A = U S Vh` and the orthonormality of the factors, differentiated."""
    (u, s, vh), (u_dot, s_dot, vh_dot) = factors, tangents
    r = s.shape[0]
    product = (
        (u_dot[:, :r] * s) @ vh[:r] + (u[:, :r] * s_dot) @ vh[:r] + (u[:, :r] * s) @ vh_dot[:r]
    )
    close(product, a_dot, 1e-13, scale=20.0)
    for q, q_dot in ((u, u_dot), (adjoint(vh), adjoint(vh_dot))):
        change = adjoint(q) @ q_dot
        close(change + adjoint(change), 0 * change, 1e-13, scale=20.0)


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_tangents_satisfy_the_differentiated_identities(shape, full, dtype):
    a = random_array(1, SHAPES[shape], dtype)
    a_dot = random_array(2, a.shape, dtype)
    factors, tangents = jax.jvp(lambda x: tuple(linalg.svd(x, full)), (a,), (a_dot,))
    identities(a_dot, factors, tangents)
    assert [x.dtype for x in tangents] == [x.dtype for x in factors]
    same = np.linalg.svd(a, full_matrices=full)
    pure = svd_tangents(*map(jnp.asarray, same), jnp.asarray(a_dot))
    identities(a_dot, same, pure)
    thin = [jnp.asarray(x) for x in np.linalg.svd(a, full_matrices=False)]
    close(svdvals_tangents(thin[0], thin[2], jnp.asarray(a_dot)), pure[1], 1e-14, scale=10.0)


@pytest.mark.parametrize("full", [False, True])
def test_forward_and_reverse_mode_are_transposes(full):
    a, d = (random_array(seed, (4, 3), jnp.complex128) for seed in (1, 2))
    f = lambda x: tuple(linalg.svd(x, full))  # noqa: E731
    out, pull = jax.vjp(f, a)
    cotangents = tuple(random_array(10 + i, x.shape, x.dtype) for i, x in enumerate(out))
    tangents = jax.jvp(f, (a,), (d,))[1]
    left = sum(along(c, t) for c, t in zip(cotangents, tangents, strict=True))
    close(along(pull(cotangents)[0], d), left, 1e-12, scale=20.0)


def test_custom_rule_is_the_one_that_runs():
    assert "difflinalg_svd_core" in str(jax.make_jaxpr(linalg.svd)(jnp.eye(2)))
    assert "difflinalg_svdvals_core" in str(jax.make_jaxpr(linalg.svdvals)(jnp.eye(2)))
    plain = jax.jacfwd(lambda x: jnp.linalg.svd(x).U)(jnp.eye(2))
    assert not np.all(np.isfinite(plain))
    assert np.all(np.isfinite(jax.jacfwd(lambda x: linalg.svd(x).U)(jnp.eye(2))))


@pytest.mark.parametrize(("full", "size"), [(False, 12 * 7 + 7 + 49), (True, 144 + 7 + 49)])
def test_reverse_mode_keeps_the_factors_only(full, size):
    a = random_array(1, (12, 7))
    _, pull = jax.vjp(lambda x: tuple(linalg.svd(x, full)), a)
    assert sum(leaf.size for leaf in jax.tree.leaves(pull)) <= size


# Singular values.


@jax.jit
def sum_of_squares_hessian(a, d):
    def f(x):
        return jnp.sum(linalg.svdvals(x) ** 2) + jnp.sum(linalg.svdvals(x) ** 4)

    return jax.jvp(jax.grad(f), (a,), (d,)), jax.grad(lambda x: along(jax.grad(f)(x), d))(a)


@pytest.mark.parametrize("kind", ["generic", "degenerate", "identity", "rank_one", "zero"])
def test_even_symmetric_functions_of_singular_values_are_right(kind):
    a, d = example(kind, (4, 3), jnp.complex128), random_array(2, (4, 3), jnp.complex128)
    gram, mixed = np.conj(a.T) @ a, np.conj(a.T) @ d + np.conj(d.T) @ a
    gradient = np.conj(2 * a + 4 * a @ gram)
    hessian_d = np.conj(2 * d + 4 * d @ gram + 4 * a @ mixed)
    (first, forward), reverse = sum_of_squares_hessian(a, d)
    close(first, gradient, 1e-7, scale=max(np.max(np.abs(gradient)), 1.0))
    close(forward, hessian_d, 1e-4)
    close(reverse, hessian_d, 1e-4)


# Values and options.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [*SHAPES.values(), (2, 4, 3), (2, 1, 3, 3), (1, 4), (1, 1)])
def test_values_agree_with_numpy(shape, dtype):
    a = random_array(1, shape, dtype)
    tolerance = 1e-5 if jnp.finfo(dtype).bits == 32 else 1e-13
    expected = np.linalg.svd(a, compute_uv=False)
    r = min(shape[-2:])
    for full in (False, True):
        u, s, vh = linalg.svd(a, full_matrices=full)
        reference_u, _, reference_vh = np.linalg.svd(a, full_matrices=full)
        assert (u.shape, vh.shape) == (reference_u.shape, reference_vh.shape)
        close(s, expected, tolerance)
        close((u[..., :r] * s[..., None, :]) @ vh[..., :r, :], a, tolerance, scale=4.0)
        eye = np.broadcast_to(np.eye(u.shape[-1]), (*shape[:-2], *(u.shape[-1:] * 2)))
        close(adjoint(u) @ u, eye, tolerance, scale=4.0)
        assert (u.dtype, vh.dtype, s.dtype) == (dtype, dtype, jnp.finfo(dtype).dtype)
    close(linalg.svdvals(a), expected, tolerance)
    close(linalg.svd(a, compute_uv=False), expected, tolerance)


@pytest.mark.parametrize("dtype", BOTH)
def test_hermitian_option_gives_the_decomposition_and_gradient_of_the_hermitian_part(dtype):
    a = random_array(1, (3, 3), dtype)
    a = (a + np.conj(a.T)) / 2
    weight = random_array(2, (3, 3), dtype)
    u, s, vh = linalg.svd(a, hermitian=True)
    close(s, np.linalg.svd(a, compute_uv=False), 1e-13)
    close((u * s) @ vh, a, 1e-13, scale=4.0)
    close(linalg.svd(a, hermitian=True, compute_uv=False), s, 1e-14)

    def loss(x):
        u, s, vh = linalg.svd(x, hermitian=True)
        return inner(weight, (u * s**3) @ vh)

    def plain(x):
        x = (x + adjoint(x)) / 2
        return inner(weight, x @ x @ x)

    close(jax.grad(loss)(a), jax.grad(plain)(jnp.asarray(a)), 1e-12)


@pytest.mark.parametrize("subset", [(0, 2), (1, 3), (2, 3)])
def test_subset_returns_the_slice_and_its_gradient(subset):
    a, (start, end) = random_array(1, (4, 3)), subset
    u, s, vh = linalg.svd(a, full_matrices=False)
    part = linalg.svd(a, full_matrices=False, subset_by_index=subset)
    close(part.U, u[:, start:end], 0.0)
    close(part.S, s[start:end], 0.0)
    close(part.Vh, vh[start:end], 0.0)
    only = linalg.svd(a, compute_uv=False, subset_by_index=subset)
    close(only, s[start:end], 1e-14)
    gradient = jax.grad(lambda x: jnp.sum(linalg.svd(x, compute_uv=False, subset_by_index=subset)))(
        a
    )
    close(gradient, u[:, start:end] @ vh[start:end], 1e-13)


def test_integers_are_converted_to_the_default_float():
    result = linalg.svd(jnp.array([[3, 0], [0, 4]]))
    close(result.S, [4.0, 3.0], 1e-15)
    assert result.U.dtype == result.S.dtype == result.Vh.dtype == jnp.float64
    booleans = jnp.array([[True, False]])
    assert linalg.svdvals(booleans).dtype == jnp.linalg.svdvals(booleans).dtype


def test_fields_are_named_as_in_jax_numpy():
    result = linalg.svd(jnp.eye(2))
    assert result._fields == type(jnp.linalg.svd(jnp.eye(2)))._fields == ("U", "S", "Vh")


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 0, 0), (0, 2, 2)])
def test_empty_input_has_empty_output_and_gradient(shape):
    a = jnp.zeros(shape)
    expected = np.linalg.svd(np.zeros(shape), full_matrices=False)
    result = linalg.svd(a, full_matrices=False)
    assert [x.shape for x in result] == [x.shape for x in expected]
    close(linalg.svd(a).U, np.linalg.svd(np.zeros(shape))[0], 0.0, scale=1.0)
    assert linalg.svdvals(a).shape == expected[1].shape

    def loss(x):
        u, s, vh = linalg.svd(x, full_matrices=False)
        return jnp.sum(s) + jnp.sum(u) + jnp.sum(vh)

    assert jax.grad(loss)(a).shape == shape


def test_vector_as_a_matrix_has_the_derivative_of_its_norm():
    x, d = random_array(1, (4, 1)), random_array(2, (4, 1))
    norm = np.linalg.norm(x)
    f = lambda y: linalg.svdvals(y)[0]  # noqa: E731
    close(jax.grad(f)(x), x / norm, 1e-14)
    hessian_d = (d - x * np.sum(x * d) / norm**2) / norm
    close(jax.jvp(jax.grad(f), (x,), (d,))[1], hessian_d, 1e-13)


def test_batch_gives_the_derivative_of_each_matrix():
    stack = np.stack([example(kind, (4, 3), jnp.float64) for kind in KINDS])
    weight, weight_n = random_array(1, (4, 3)), random_array(2, (3, 3))

    def one_call(x):
        u, s, vh = linalg.svd(x, full_matrices=False)
        return jnp.sum(weight * ((u * (s**3)[..., None, :]) @ vh))

    together = jax.grad(one_call)(stack)
    for a, gradient in zip(stack, together, strict=True):
        expected = jax.grad(lambda x: inner(weight, x @ x.T @ x))(a)
        close(gradient, expected, 1e-7, scale=max(np.linalg.norm(expected), 1.0))
    for a, gradient in zip(stack, gradients(stack, weight, weight_n), strict=True):
        expected = jax.grad(plain_loss)(a, weight, weight_n, 0.0)
        close(gradient, expected, 1e-7, scale=np.linalg.norm(expected))


# Scales.


@jax.jit
def nuclear_and_polar(a, weight):
    def f(x):
        u, s, vh = linalg.svd(x, full_matrices=False)
        return jnp.sum(weight * (u @ vh)), jnp.sum(s)

    return jax.jacrev(f)(a)


@pytest.mark.parametrize("power", [-500, 500])
def test_gradient_scales_as_it_must(power):
    a, weight, factor = random_array(1, (4, 3)), random_array(2, (4, 3)), 2.0**power
    polar, nuclear = nuclear_and_polar(a, weight)
    scaled = nuclear_and_polar(factor * a, weight)
    close(scaled[0] * factor, polar, 1e-11)
    close(scaled[1], nuclear, 1e-11)


@pytest.mark.parametrize("power", [-66, 63])
def test_single_precision_derivatives_survive_bad_scales(power):
    a, weight = (random_array(seed, (4, 3)).astype(np.float32) for seed in (1, 2))
    factor = np.float32(2.0**power)
    polar, nuclear = nuclear_and_polar(a, weight)
    scaled = nuclear_and_polar(factor * a, weight)
    close(scaled[0] * factor, polar, 1e-4)
    close(scaled[1], nuclear, 1e-4)


# Arguments.


def test_errors_name_the_function_the_shape_and_the_remedy():
    for function in (linalg.svd, linalg.svdvals):
        name = function.__name__
        with pytest.raises(ValueError, match=rf"{name} needs a matrix.*shape \(3,\)"):
            function(jnp.ones(3))
        with pytest.raises(ValueError, match=rf"{name} got a matrix that contains NaN.*float64"):
            function(jnp.array([[np.nan, 0.0]]))
        with pytest.raises(TypeError, match=rf"{name} needs an array, got dict"):
            function({})
    with pytest.raises(ValueError, match=r"svd needs square matrices.*\(2, 3\)"):
        linalg.svd(jnp.ones((2, 3)), hermitian=True)
    with pytest.raises(ValueError, match="subset_by_index with full_matrices=False only"):
        linalg.svd(jnp.eye(3), subset_by_index=(0, 1))
    with pytest.raises(ValueError, match=r"as a pair \(start, end\), got \[0, 1\]"):
        linalg.svd(jnp.eye(3), False, subset_by_index=[0, 1])
    with pytest.raises(ValueError, match=r"0 <= start < end <= 3 in subset_by_index"):
        linalg.svd(jnp.eye(3), False, subset_by_index=(2, 4))
    for subset in ((0.0, 2.0), (0, None), (False, True)):
        with pytest.raises(TypeError, match="svd needs Python integers in subset_by_index"):
            linalg.svd(jnp.eye(3), False, subset_by_index=subset)
    assert linalg.svd(jnp.eye(3), False, subset_by_index=(np.int64(0), 2)).S.shape == (2,)


def test_nan_under_jit_gives_nan():
    a = jnp.array([[np.nan, 0.0], [0.0, 1.0]])
    assert all(np.all(np.isnan(x)) for x in jax.jit(linalg.svd)(a))
    assert np.all(np.isnan(jax.jit(linalg.svdvals)(a)))
