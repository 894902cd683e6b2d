"""The gradient-check suite: it catches wrong rules, and it passes right ones."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg.testing import (
    DerivativeError,
    InconclusiveError,
    check_derivatives,
    check_gauge,
    random_hermitian,
    random_matrix,
    random_unitary,
    spectrum,
)

DTYPES = [jnp.float32, jnp.float64, jnp.complex64, jnp.complex128]
X = jnp.array([0.3, -1.1, 0.8])


def with_rule(f, rule):
    """`f` whose JVP is `rule(x, x_dot)`."""
    wrapped = jax.custom_jvp(f)
    wrapped.defjvp(lambda primals, tangents: (f(*primals), rule(*primals, *tangents)))
    return wrapped


def matrix(seed, shape, dtype=jnp.float64):
    return jax.random.normal(jax.random.key(seed), shape, dtype)


# Wrong rules are caught.


def test_wrong_first_derivative_is_caught_and_the_message_says_all():
    f = with_rule(jnp.sin, lambda x, x_dot: 1.001 * jnp.cos(x) * x_dot)
    with pytest.raises(DerivativeError) as caught:
        check_derivatives(f, (X,))
    entry, message = caught.value.entry, str(caught.value)
    assert (entry.order, entry.nesting, entry.against) == (1, "fwd", "function")
    assert abs(entry.value / entry.reference - 1.001) < 1e-8
    for part in ("order 1", "fwd", "got", "expected", "error", "tolerance", "check_gauge"):
        assert part in message


@pytest.mark.parametrize("modes", [("fwd", "rev"), ("fwd",), ("rev",)])
def test_relative_error_of_one_millionth_is_caught_in_every_mode(modes):
    f = with_rule(jnp.sin, lambda x, x_dot: (1 + 1e-6) * jnp.cos(x) * x_dot)
    with pytest.raises(DerivativeError, match="order 1"):
        check_derivatives(f, (X,), 1, modes)


def test_wrong_second_derivative_behind_a_right_first_is_caught():
    f = with_rule(jnp.sin, lambda x, x_dot: jax.lax.stop_gradient(jnp.cos(x)) * x_dot)
    assert check_derivatives(f, (X,), order=1).max_error < 1e-8
    with pytest.raises(DerivativeError, match="order 2"):
        check_derivatives(f, (X,), order=2)


def test_wrong_third_derivative_behind_a_right_second_is_caught():
    cosine = with_rule(jnp.cos, lambda x, x_dot: -jax.lax.stop_gradient(jnp.sin(x)) * x_dot)
    f = with_rule(jnp.sin, lambda x, x_dot: cosine(x) * x_dot)
    assert check_derivatives(f, (X,), order=2).max_error < 1e-7
    with pytest.raises(DerivativeError, match="order 3"):
        check_derivatives(f, (X,), order=3)


def test_second_derivative_that_is_not_symmetric_is_caught():
    def rule(x, x_dot):
        curl = (x[0] - X[0]) * x_dot[1] - (x[1] - X[1]) * x_dot[0]
        return jnp.sum(jnp.cos(x) * x_dot) + curl

    f = with_rule(lambda x: jnp.sum(jnp.sin(x)), rule)
    check_derivatives(f, (X,), order=1)
    with pytest.raises(DerivativeError, match="order 2"):
        check_derivatives(f, (X,), order=2)


def test_custom_vjp_that_disagrees_is_caught_in_reverse_mode():
    f = jax.custom_vjp(jnp.sin)
    f.defvjp(lambda x: (jnp.sin(x), x), lambda x, bar: (jnp.cos(x) * bar + 1e-3,))
    with pytest.raises(DerivativeError, match=r"nesting rev "):
        check_derivatives(f, (X,), 1, ("rev",))


def test_function_without_forward_mode_is_refused_with_the_remedy():
    f = jax.custom_vjp(jnp.sin)
    f.defvjp(lambda x: (jnp.sin(x), x), lambda x, bar: (jnp.cos(x) * bar,))
    check_derivatives(f, (X,), 2, ("rev",))
    with pytest.raises(DerivativeError, match=r'(?s)nesting fwd .* modes=\("rev",\)') as caught:
        check_derivatives(f, (X,))
    assert isinstance(caught.value.__cause__, TypeError)


def test_wrong_transpose_too_small_for_differences_is_caught():
    def rule(x, x_dot):
        return jax.custom_derivatives.linear_call(
            lambda c, t: c * t, lambda c, bar: (1 + 1e-10) * c * bar, jnp.cos(x), x_dot
        )

    f = with_rule(jnp.sin, rule)
    with pytest.raises(DerivativeError, match="transpose of a linear map") as caught:
        check_derivatives(f, (X,), order=1)
    assert caught.value.entry.against == "nesting"
    check_derivatives(f, (X,), order=1, transpose_rtol=1e-9)


def test_svd_rule_without_the_imaginary_gauge_term_is_caught_for_complex_input():
    def factors(a):
        return tuple(jnp.linalg.svd(a, full_matrices=False))

    def rule(term):
        def tangents(a, a_dot):
            u, s, vh = factors(a)
            t = u.conj().T @ a_dot @ vh.conj().T
            gap = s[None, :] - s[:, None] + jnp.eye(len(s))
            off = 1.0 - jnp.eye(len(s))
            herm, anti = (t + t.conj().T) / 2, (t - t.conj().T) / 2
            phase = term * 0.5j * jnp.diag(jnp.imag(jnp.diag(t)) / s)
            k = off * (herm / gap + anti / (s[None, :] + s[:, None])) + phase
            n = off * (herm / gap - anti / (s[None, :] + s[:, None])) - phase
            return u @ k, jnp.real(jnp.diag(t)), (vh.conj().T @ n).conj().T

        return with_rule(factors, tangents)

    def loss(svd):
        return lambda a: jnp.einsum("ij,jk->ik", *svd(a)[::2])

    a = matrix(0, (2, 2), jnp.complex128)
    assert check_gauge(lambda u, _s, vh: jnp.real(jnp.sum(u @ vh)), a)
    check_derivatives(loss(rule(1.0)), (a,), order=1)
    with pytest.raises(DerivativeError, match="order 1"):
        check_derivatives(loss(rule(0.0)), (a,), order=1)


def test_derivative_that_is_not_finite_is_caught():
    f = with_rule(jnp.sin, lambda x, x_dot: jnp.where(x > 0, jnp.nan, jnp.cos(x)) * x_dot)
    with pytest.raises(DerivativeError, match="is not finite"):
        check_derivatives(f, (X,), order=1)
    with pytest.raises(DerivativeError, match="not finite"):
        check_derivatives(jnp.log, (jnp.array([0.0, 1.0]),))


# What is not smooth, or not resolved, is reported.


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (jnp.abs, jnp.zeros(1)),
        (jax.nn.relu, jnp.array([1.0, 0.0, -2.0])),
        (jnp.linalg.norm, jnp.zeros(3)),
        (lambda a: jnp.linalg.eigvalsh(a)[0], jnp.eye(3)),
    ],
    ids=["abs", "relu", "norm", "eigenvalue"],
)
def test_kink_is_reported_at_first_order(f, x):
    with pytest.raises(DerivativeError, match="function has a kink"):
        check_derivatives(f, (x,), order=1)


def test_kink_of_the_first_derivative_is_reported_at_second_order():
    def f(x):
        return x + x * jnp.abs(x)

    check_derivatives(f, (jnp.zeros(1),), order=1)
    with pytest.raises(DerivativeError, match="derivative of order 1 has a kink"):
        check_derivatives(f, (jnp.zeros(1),), order=2)


def test_function_that_ends_at_the_point_is_inconclusive():
    f = with_rule(lambda x: x * jnp.sqrt(x), lambda x, x_dot: 1.5 * jnp.sqrt(x) * x_dot)
    with pytest.raises(InconclusiveError, match="reference error inf"):
        check_derivatives(f, (jnp.zeros(1),), order=1)


def test_float32_noise_is_inconclusive_and_float64_resolves_it():
    def f(x):
        return 1e4 + jnp.sin(x)

    with pytest.raises(InconclusiveError, match=r"(?s)Inconclusive.*float64"):
        check_derivatives(f, (X.astype(jnp.float32),))
    check_derivatives(f, (X,))


def test_noise_of_an_unconverged_iteration_is_inconclusive():
    def f(x):
        return jnp.sin(x) + 1e-6 * jnp.sin(1e12 * jax.lax.stop_gradient(x))

    with pytest.raises(InconclusiveError):
        check_derivatives(f, (X,), order=1)
    check_derivatives(f, (X,), order=1, rtol=1e-3)


def test_tolerance_beyond_the_digits_of_differences_is_inconclusive():
    with pytest.raises(InconclusiveError):
        check_derivatives(jnp.sin, (X,), order=1, rtol=1e-16, atol=0.0)


# Right functions pass.


@pytest.mark.parametrize(
    ("f", "dtype"),
    [(jnp.sin, dtype) for dtype in DTYPES]
    + [(jnp.linalg.inv, dtype) for dtype in (jnp.float32, jnp.complex128)],
)
def test_right_function_passes_to_second_order(f, dtype):
    a = jnp.eye(3) + 0.3 * matrix(1, (3, 3), dtype)
    report = check_derivatives(f, (a.astype(dtype),))
    assert report.max_error < (1e-2 if jnp.finfo(dtype).bits == 32 else 1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.complex128])
def test_right_function_passes_to_third_order_in_all_nestings(dtype):
    report = check_derivatives(jnp.exp, (matrix(2, (3,), dtype),), order=3)
    nestings = {entry.nesting for entry in report.entries if entry.order == 3}
    assert len(nestings) == 8
    assert {entry.against for entry in report.entries} == {"function", "derivative", "nesting"}
    assert "rev-fwd-rev" in str(report)


def test_function_of_eigenvalues_passes():
    def f(a):
        w, v = jnp.linalg.eigh((a + a.conj().T) / 2)
        return (v * jnp.exp(w)) @ v.conj().T

    a = random_hermitian(jax.random.key(0), spectrum("generic", 3), jnp.complex128)
    check_derivatives(f, (a,))


def test_pytrees_mixed_dtypes_and_constants_pass():
    def f(params, count, *, scale=2.0):
        value = scale * params["z"] * jnp.sum(params["x"]) ** count
        return {"value": value, "count": jnp.arange(count), "pair": (jnp.cos(params["x"]), None)}

    params = {"x": X.astype(jnp.float32), "z": jnp.array([1.0 + 2.0j, 0.5j])}
    check_derivatives(f, (params, 3))


@pytest.mark.parametrize("modes", [("fwd",), ("rev",)])
def test_single_mode_passes(modes):
    report = check_derivatives(jnp.tanh, (X,), 2, modes)
    assert {entry.against for entry in report.entries} == {"function", "derivative"}


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.complex128])
@pytest.mark.parametrize(
    "f",
    [lambda x: 3 * x, lambda x: 0 * x + 1, lambda x: jnp.cos(x) ** 2 + jnp.sin(x) ** 2],
    ids=["linear", "constant", "constant but for rounding"],
)
def test_derivative_that_vanishes_passes(f, dtype):
    assert check_derivatives(f, (matrix(3, (3,), dtype),)).max_error < 1e-2


def test_function_that_vanishes_with_its_derivative_passes():
    check_derivatives(lambda x: x**2, (jnp.zeros(2),))


def test_step_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="positive step"):
        check_derivatives(jnp.sin, (X,), step=0.0)


def test_badly_scaled_arguments_and_outputs_pass():
    def f(x, y):
        return jnp.sin(1e8 * x) * 1e-20, jnp.exp(y / 1e8) * 1e20

    check_derivatives(f, (jnp.array([1e-8]), jnp.array([2e8])))


def test_argument_that_is_mere_rounding_is_moved_all_the_same():
    f = with_rule(lambda x: 1 + jnp.sin(x), lambda x, x_dot: 2 * jnp.cos(x) * x_dot)
    with pytest.raises(DerivativeError, match="order 1"):
        check_derivatives(f, (jnp.array([1e-20]),))


def test_step_sets_the_scale_of_a_tiny_argument():
    def f(x):
        return jnp.sin(1e20 * x)

    with pytest.raises(DerivativeError, match="pass `step`"):
        check_derivatives(f, (jnp.array([1e-20]),), order=1)
    check_derivatives(f, (jnp.array([1e-20]),), order=1, step=1e-21)


def test_function_with_a_narrow_feature_passes_because_steps_shrink():
    check_derivatives(lambda x: 1 / (x**2 + 1e-6), (jnp.array([1e-3, 2e-3, 1.0]),))


def test_function_that_branches_in_python_passes_without_jit():
    def f(x):
        return jnp.sin(x) if x.size and float(jax.lax.stop_gradient(jnp.sum(X))) < 1 else x

    assert check_derivatives(f, (X,), jit=False).max_error < 1e-6


def test_empty_arrays_pass():
    assert check_derivatives(jnp.sin, (jnp.zeros((0, 2)),)).max_error == 0.0


def test_check_is_reproducible():
    first, second = (check_derivatives(jnp.sin, (X,), seed=7) for _ in range(2))
    assert first == second
    assert first != check_derivatives(jnp.sin, (X,), seed=8)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ((jnp.sin, [X]), TypeError, r"write \(x,\)"),
        ((jnp.sin, (X,), 0), ValueError, "order of 1 or more"),
        ((jnp.sin, (X,), 1, ()), ValueError, "modes"),
        ((jnp.sin, (X,), 1, ("forward",)), ValueError, "forward"),
        ((jnp.sin, (3,)), ValueError, "floating or complex array in args"),
        ((lambda x: x > 0, (X,)), ValueError, "returns a floating or complex"),
    ],
)
def test_bad_arguments_of_check_derivatives_are_refused(arguments, error, match):
    with pytest.raises(error, match=match):
        check_derivatives(*arguments)


# The gauge.


@pytest.fixture(params=[jnp.float64, jnp.complex128], ids=lambda d: d.__name__)
def dtype(request):
    return request.param


@functools.cache
def with_spectrum(kind, shape, dtype):
    values = spectrum(kind, min(shape), dtype)
    return random_matrix(jax.random.key(1), values, shape, dtype)


@jax.jit
def real_loss(x):
    """A generic real function of a matrix."""
    weights = jnp.cos(jnp.arange(x.size, dtype=jnp.finfo(x.dtype).dtype)).reshape(x.shape)
    return jnp.sum(weights * jnp.real(x)) + jnp.sum(weights[::-1] * jnp.imag(x))


@pytest.mark.parametrize("kind", ["generic", "degenerate", "rank_deficient", "zero"])
@pytest.mark.parametrize("shape", [(5, 4), (4, 5)])
def test_matrix_function_of_the_svd_is_invariant(kind, shape, dtype):
    a = with_spectrum(kind, shape, dtype)
    report = check_gauge(lambda u, s, vh: real_loss((u * jnp.tanh(s)) @ vh), a)
    assert report.invariant, str(report)
    assert bool(report)
    assert "does not depend" in str(report)


def test_single_precision_has_its_own_tolerance():
    a = with_spectrum("degenerate", (5, 4), jnp.float32)
    report = check_gauge(lambda u, s, vh: real_loss((u * jnp.tanh(s)) @ vh), a)
    assert report.invariant, str(report)
    assert report.clusters == ((0, 1), (2, 3))
    assert report.tolerance == pytest.approx(3.5e-4, rel=0.02)


@pytest.mark.parametrize("shape", [(5, 4), (4, 5)])
def test_sum_of_the_singular_vectors_depends_on_phases_or_signs(shape, dtype):
    a = with_spectrum("generic", shape, dtype)
    for loss in (lambda u, _s, _vh: real_loss(u), lambda _u, _s, vh: real_loss(vh)):
        report = check_gauge(loss, a)
        assert not report
        assert report.columns == (0, 1, 2, 3)
        assert min(report.phase_residual, report.value_change) > 1e-2
        assert report.cluster_residual == report.cluster_change == 0.0
        assert report.clusters == ()
        assert "phases (signs)" in str(report)
        assert "cluster of" not in str(report)


def test_only_the_columns_that_matter_are_named(dtype):
    a = with_spectrum("generic", (5, 4), dtype)
    assert check_gauge(lambda u, _s, _vh: real_loss(u[:, 1:3]), a).columns == (1, 2)


def test_loss_that_cuts_a_multiplet_depends_on_the_cluster_alone(dtype):
    a = with_spectrum("degenerate", (5, 4), dtype)

    def truncated(rank):
        return lambda u, s, vh: real_loss((u[:, :rank] * s[:rank]) @ vh[:rank])

    assert check_gauge(truncated(2), a)
    report = check_gauge(truncated(3), a)
    assert not report
    assert report.clusters == ((0, 1), (2, 3))
    assert report.phase_residual < report.tolerance < report.cluster_residual
    assert report.cluster_change > report.tolerance
    assert "truncate between clusters" in str(report)
    assert "phases (signs)" not in str(report)


@pytest.mark.parametrize("shape", [(5, 4), (4, 5)])
def test_null_vectors_are_a_gauge_of_each_side(shape, dtype):
    a = with_spectrum("rank_deficient", shape, dtype)
    report = check_gauge(lambda u, _s, vh: real_loss(u @ vh), a)
    assert not report
    assert report.clusters == ((2, 3),)
    assert min(report.cluster_residual, report.cluster_change) > 1e-3
    assert check_gauge(lambda u, _s, vh: real_loss(u[:, :2] @ vh[:2]), a)


def test_single_null_vector_mixes_with_the_complement_of_a_thin_factor(dtype):
    a = with_spectrum("rank_deficient", (5, 2), dtype)
    report = check_gauge(lambda u, _s, _vh: real_loss(u @ u.conj().T), a)
    assert report.clusters == ((1,),)
    assert report.phase_residual < report.tolerance < report.cluster_residual


@pytest.mark.parametrize("kind", ["generic", "degenerate", "zero"])
def test_matrix_function_of_eigh_is_invariant_and_single_vectors_are_not(kind, dtype):
    a = random_hermitian(jax.random.key(6), spectrum(kind, 4, dtype), dtype)
    smooth = check_gauge(
        lambda w, v: real_loss((v * jnp.exp(w)) @ v.conj().T), a, decomposition="eigh"
    )
    assert smooth.invariant, str(smooth)
    density = check_gauge(lambda _w, v: real_loss(jnp.abs(v) ** 2), a, decomposition="eigh")
    assert density.invariant == (kind == "generic")
    assert density.phase_residual < density.tolerance
    vectors = check_gauge(lambda _w, v: real_loss(v), a, decomposition="eigh")
    assert max(vectors.phase_residual, vectors.phase_change) > 1e-2
    assert "eigenvectors" in str(vectors)


def test_loss_invariant_under_phases_to_first_order_only_is_found_by_the_finite_change():
    def loss(_w, v):
        return jnp.sum(jnp.real(v[0]) ** 2)

    report = check_gauge(loss, jnp.diag(jnp.array([1.0 + 0j, 2.0])), decomposition="eigh")
    assert report.phase_residual < report.tolerance < report.phase_change


@pytest.mark.parametrize("n", [0, 1])
def test_gauge_of_small_matrices(n):
    a = jnp.ones((n, n), complex)
    assert check_gauge(lambda u, s, vh: jnp.sum(jnp.real((u * s) @ vh)), a)
    assert check_gauge(lambda w, v: jnp.sum(w) + jnp.sum(jnp.abs(v)), a, decomposition="eigh")


@pytest.mark.parametrize(
    ("f", "a", "decomposition", "match"),
    [
        (lambda u, _s, _vh: u, jnp.eye(2), "svd", "finite real scalar"),
        (lambda _u, s, _vh: jnp.log(s[1]), jnp.zeros((2, 2)), "svd", "finite real scalar"),
        (lambda u, _s, _vh: u[0, 0], jnp.eye(2, dtype=complex), "svd", "finite real scalar"),
        (lambda w, _v: w[0], jnp.ones((2, 3)), "eigh", "square"),
        (lambda _u, s, _vh: s[0], jnp.ones((1, 2, 2)), "svd", "one matrix"),
        (lambda _u, s, _vh: s[0], jnp.eye(2), "qr", "'svd', 'eigh'"),
    ],
)
def test_bad_arguments_of_check_gauge_are_refused(f, a, decomposition, match):
    with pytest.raises(ValueError, match=match):
        check_gauge(f, a, decomposition=decomposition)


# Matrices.


@pytest.mark.parametrize("n", [0, 1, 2, 7])
@pytest.mark.parametrize(
    "kind", ["generic", "clustered", "degenerate", "rank_deficient", "zero", "graded"]
)
def test_spectrum_is_real_descending_and_not_negative(kind, n):
    values = np.asarray(spectrum(kind, n, jnp.complex64))
    assert values.dtype == np.float32
    assert values.shape == (n,)
    assert np.all(np.diff(values) <= 0)
    assert np.all(values >= 0)


def test_spectra_are_what_their_names_say():
    eps = np.finfo(float).eps
    assert len(np.unique(np.diff(spectrum("generic", 7)))) == 6
    assert np.max(np.diff(spectrum("generic", 7))) < -0.1
    multiplets = np.unique(np.asarray(spectrum("degenerate", 7)), return_counts=True)[1]
    assert multiplets.tolist() == [2, 3, 2]
    gaps = -np.diff(spectrum("clustered", 7))
    assert np.sum(np.isclose(gaps, eps**0.5, rtol=1e-6)) == 4
    assert np.count_nonzero(spectrum("rank_deficient", 7)) == 4
    assert np.count_nonzero(spectrum("zero", 7)) == 0
    assert np.allclose(spectrum("graded", 5)[jnp.array([0, -1])], [1, eps**0.5], rtol=1e-12)
    assert np.asarray(spectrum("rank_deficient", 1)).tolist() == [0.0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_random_matrices_have_the_prescribed_spectrum(dtype):
    key, tolerance = jax.random.key(8), 30 * jnp.finfo(dtype).eps
    s = spectrum("degenerate", 4, dtype)
    a, h = random_matrix(key, s, (6, 4), dtype), random_hermitian(key, -s, dtype)
    u = random_unitary(key, 4, dtype)
    assert a.dtype == h.dtype == u.dtype == dtype
    assert np.allclose(jnp.linalg.svd(a, compute_uv=False), s, rtol=0, atol=tolerance)
    assert np.allclose(jnp.linalg.eigvalsh(h), -s, rtol=0, atol=tolerance)
    assert np.array_equal(h, h.conj().T)
    assert np.allclose(u.conj().T @ u, np.eye(4), rtol=0, atol=tolerance)


def test_random_unitary_is_distributed_by_haar():
    u = jax.vmap(lambda key: random_unitary(key, 2, jnp.complex128))(
        jax.random.split(jax.random.key(9), 2000)
    )
    assert np.max(abs(np.mean(u, axis=0))) < 0.06
    assert np.max(abs(np.mean(abs(u) ** 4, axis=0) - 1 / 3)) < 0.03


def test_random_matrices_of_size_zero_exist():
    assert random_unitary(jax.random.key(0), 0).shape == (0, 0)
    assert random_matrix(jax.random.key(0), spectrum("generic", 0), (3, 0)).shape == (3, 0)


def test_bad_arguments_of_the_matrices_are_refused():
    key = jax.random.key(0)
    with pytest.raises(ValueError, match="generic, clustered"):
        spectrum("nice", 3)
    with pytest.raises(ValueError, match="n >= 0"):
        spectrum("zero", -1)
    with pytest.raises(ValueError, match="4 singular values"):
        random_matrix(key, jnp.ones(3), (4, 5))
    for values in (jnp.ones((2, 2)), jnp.ones(2, complex)):
        with pytest.raises(ValueError, match="real vector"):
            random_hermitian(key, values)
        with pytest.raises(ValueError, match="real vector"):
            random_matrix(key, values, (2, 2))
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match="random_hermitian got a vector of eigenvalues"):
            random_hermitian(key, [1.0, value])
        with pytest.raises(ValueError, match="random_matrix got a vector of singular_values"):
            random_matrix(key, [1.0, value], (2, 2))
    with pytest.raises(ValueError, match=r"random_matrix needs singular_values >= 0, got -2\.0"):
        random_matrix(key, [1.0, -2.0], (2, 2))
    with pytest.raises(TypeError, match="random_matrix needs a real or complex floating dtype"):
        random_matrix(key, [1.0, 2.0], (2, 2), int)
    with pytest.raises(TypeError, match="random_hermitian needs a real or complex floating dtype"):
        random_hermitian(key, [1.0, 2.0], int)
    seen_by_nobody = jax.jit(lambda s: random_matrix(key, s, (2, 2)))(jnp.array([1.0, -2.0]))
    assert np.all(np.isfinite(seen_by_nobody))
