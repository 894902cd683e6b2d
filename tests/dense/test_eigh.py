"""Hermitian eigendecomposition: values against NumPy, derivatives against two oracles."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from difflinalg import linalg
from difflinalg._core.tolerances import cluster_rtol
from difflinalg._dense.eigh import eigh_tangents, eigvalsh_tangents
from difflinalg.testing import check_derivatives, random_hermitian, random_unitary, spectrum

N = 4
BOTH = [jnp.float64, jnp.complex128]


def herm(x):
    return (x + np.conj(np.swapaxes(x, -1, -2))) / 2


def random_array(seed, shape=(N, N), dtype=jnp.float64):
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
    assert error <= rtol * scale, (error, scale, got, expected)


# A matrix function, built by hand from the factors, and its derivatives in closed form.


def exp_from_factors(a, weight):
    w, v = linalg.eigh(a)
    return jnp.sum(jnp.real(jnp.conj(weight) * ((v * jnp.exp(w)) @ jnp.conj(v.T))))


@jax.jit
def every_nesting(a, weight, d, e):
    """Gradient, Hessian times d in three nestings, and the forward-only numbers."""

    def f(x):
        return exp_from_factors(x, weight)

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


@jax.jit
def third_order(a, weight, d):
    def f(x):
        return exp_from_factors(x, weight)

    def forward(g):
        return lambda x: jax.jvp(g, (x,), (d,))[1]

    def reverse(g):
        return lambda x: along(jax.grad(g)(x), d)

    return jnp.stack([forward(forward(forward(f)))(a), reverse(forward(reverse(f)))(a)])


def frechet_of_exp(a, *directions):
    """The sum over one order of the directions: upper right block of exp of a block matrix."""
    n, count = len(a), len(directions) + 1
    blocks = np.kron(np.eye(count), a).astype(np.result_type(a, *directions))
    for k, direction in enumerate(directions):
        blocks[k * n : (k + 1) * n, (k + 1) * n : (k + 2) * n] = direction
    return scipy.linalg.expm(blocks)[:n, -n:]


def exp_gradient(a, weight):
    left = frechet_of_exp(herm(a), np.conj(weight.T))
    return herm(left).T


def exp_hessian_times(a, weight, d):
    w_h, d = np.conj(weight.T), herm(d)
    mixed = frechet_of_exp(herm(a), w_h, d) + frechet_of_exp(herm(a), d, w_h)
    return herm(mixed).T


Q = {dtype: np.asarray(random_unitary(jax.random.key(5), N, dtype)) for dtype in BOTH}
DEGENERATE = {
    "identity": lambda q: np.eye(N) + 0 * q,
    "zero": lambda q: 0 * q,
    "multiple of the identity": lambda q: 2.5 * np.eye(N) + 0 * q,
    "rotated multiple of the identity": lambda q: herm(q * 1.3 @ np.conj(q.T)),
    "two pairs": lambda q: np.diag([1.0, 1.0, 2.0, 2.0]) + 0 * q,
    "a triplet": lambda q: np.diag([1.0, 1.0, 1.0, 3.0]) + 0 * q,
    "rotated pairs": lambda q: herm(q * np.array([1.0, 1.0, -2.0, -2.0]) @ np.conj(q.T)),
    "rank one": lambda q: herm(np.outer(q[0], np.conj(q[0]))),
}


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("name", DEGENERATE)
def test_matrix_function_has_right_derivatives_at_degeneracy_in_every_nesting(name, dtype):
    a = DEGENERATE[name](Q[dtype])
    weight, d, e = (random_array(seed, dtype=dtype) for seed in (1, 2, 3))
    got = every_nesting(a, weight, d, e)
    gradient = exp_gradient(a, weight)
    close(got["rev"], gradient, 1e-7)
    close(got["fwd"], along(gradient, d), 1e-7, scale=np.linalg.norm(gradient))
    hessian_d = exp_hessian_times(a, weight, d)
    size = np.max(np.abs(hessian_d))
    for nesting in ("fwd-rev", "rev-fwd", "rev-rev"):
        close(got[nesting], hessian_d, 1e-4)
    close(got["fwd-fwd"], along(hessian_d, e), 1e-4, scale=size * np.linalg.norm(e))


@pytest.mark.parametrize("dtype", BOTH)
def test_matrix_function_has_right_derivatives_at_a_generic_matrix(dtype):
    a = herm(random_array(4, dtype=dtype))
    weight, d, e = (random_array(seed, dtype=dtype) for seed in (1, 2, 3))
    got = every_nesting(a, weight, d, e)
    close(got["rev"], exp_gradient(a, weight), 1e-12)
    hessian_d = exp_hessian_times(a, weight, d)
    for nesting in ("fwd-rev", "rev-fwd", "rev-rev"):
        close(got[nesting], hessian_d, 1e-11)
    close(got["fwd-fwd"], along(hessian_d, e), 1e-11, scale=np.linalg.norm(hessian_d))


@pytest.mark.parametrize("name", ["identity", "two pairs", "a triplet", "rotated pairs"])
def test_third_derivative_of_a_matrix_function_is_right_at_degeneracy(name):
    a, weight, d = DEGENERATE[name](Q[jnp.float64]), random_array(1), random_array(2)
    e = herm(d)
    expected = 6.0 * np.sum(weight * frechet_of_exp(a, e, e, e))
    close(third_order(a, weight, d), [expected, expected], 1e-2)


@jax.jit
def gradients_of_exp(stack, weight):
    return jax.vmap(jax.grad(exp_from_factors), (0, None))(stack, weight)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.complex64])
def test_single_precision_gradient_at_degeneracy_has_half_of_its_digits(dtype):
    double = jnp.complex128 if dtype == jnp.complex64 else jnp.float64
    names = [name for name in DEGENERATE if "rotated" not in name]
    weight = random_array(1, dtype=double)
    stack = np.stack([DEGENERATE[name](Q[double]) for name in names])
    got = gradients_of_exp(stack.astype(dtype), weight.astype(dtype))
    assert got.dtype == dtype
    for a, gradient in zip(stack, got, strict=True):
        close(gradient, exp_gradient(a, weight), 3e-3)


@pytest.mark.parametrize("margin", [0.5, 2.0, 1e3])
def test_gap_on_either_side_of_the_cluster_tolerance_leaves_a_smooth_gradient(margin):
    gap = margin * cluster_rtol(jnp.float64)
    a, weight = np.diag([1.0, 1.0 + gap, 2.0, 2.0 + gap]), random_array(1)
    close(gradients_of_exp(a[None], weight)[0], exp_gradient(a, weight), 3e-4)


@pytest.mark.parametrize("gap", [1e-5, 2e-6, 1e-6, 1e-7, 1e-8, 1e-10, 3e-12, 1e-13])
def test_second_derivative_has_digits_left_at_a_small_gap(gap):
    q, weight, d = Q[jnp.float64], random_array(1), random_array(2)
    a = herm((q * np.array([1.0, 1.0 + gap, 2.0, 2.0 + gap])) @ q.T)
    got = every_nesting(a, weight, d, d)
    close(got["rev-rev"], exp_hessian_times(a, weight, d), 2e-4)


@pytest.mark.parametrize("width", [1e-5, 1e-6, 1e-8, 1e-10, 1e-12, 1e-14])
def test_second_derivative_has_digits_left_close_to_a_multiple_of_the_identity(width):
    q, weight, d = Q[jnp.float64], random_array(1), random_array(2)
    a = herm((q * (1.3 + width * np.array([0.0, 0.3, 0.7, 1.0]))) @ q.T)
    got = every_nesting(a, weight, d, d)
    close(got["rev-rev"], exp_hessian_times(a, weight, d), 2e-4)


def test_second_derivative_that_resolves_a_small_gap_needs_the_keyword():
    gap, d = 1e-7, np.array([[0.0, 1.0], [1.0, 0.0]])

    def curvature(lowest):
        def along_d(t):
            return lowest(jnp.diag(jnp.array([0.0, gap, 1.0])).at[:2, :2].add(t * d))

        return jax.jvp(jax.grad(along_d), (0.0,), (1.0,))[1]

    exact = -2.0 / gap
    resolved = curvature(lambda a: linalg.eigh(a, cluster_rtol=0.0).eigenvalues[0])
    np.testing.assert_allclose(resolved, exact, rtol=1e-6)
    # Without it the pair is one cluster, and its spread gap counts.
    assert abs(curvature(lambda a: linalg.eigh(a).eigenvalues[0])) < 0.2 * abs(exact)
    # The rule of the values alone differentiates the vectors once less.
    np.testing.assert_allclose(curvature(lambda a: linalg.eigvalsh(a)[0]), exact, rtol=1e-6)


# The rule itself.


@pytest.mark.parametrize("dtype", BOTH)
def test_tangents_satisfy_the_differentiated_identities(dtype):
    a, a_dot = herm(random_array(1, dtype=dtype)), herm(random_array(2, dtype=dtype))
    (w, v), (w_dot, v_dot) = jax.jvp(lambda x: tuple(linalg.eigh(x)), (a,), (a_dot,))
    close(a_dot @ v + a @ v_dot, v_dot * w + v * w_dot, 1e-13, scale=10.0)
    k = np.conj(v.T) @ v_dot
    close(k + np.conj(k.T), np.zeros_like(k), 1e-13, scale=10.0)
    close(np.diagonal(k), np.zeros(N, k.dtype), 1e-13, scale=10.0)
    assert w_dot.dtype == w.dtype
    assert v_dot.dtype == v.dtype


@pytest.mark.parametrize("dtype", BOTH)
def test_rule_is_a_pure_function_of_the_factors(dtype):
    a, a_dot = herm(random_array(1, dtype=dtype)), herm(random_array(2, dtype=dtype))
    w, v = np.linalg.eigh(a)
    w_dot, v_dot = eigh_tangents(jnp.asarray(w), jnp.asarray(v), jnp.asarray(a_dot))
    close(a_dot @ v + a @ v_dot, v_dot * w + v * w_dot, 1e-13, scale=10.0)
    close(eigvalsh_tangents(jnp.asarray(v), jnp.asarray(a_dot)), w_dot, 1e-14, scale=10.0)


@pytest.mark.parametrize("dtype", BOTH)
def test_forward_and_reverse_mode_are_transposes(dtype):
    a, d = random_array(1, dtype=dtype), random_array(2, dtype=dtype)
    c_w, c_v = random_array(3, (N,)), random_array(4, dtype=dtype)

    def factors(x):
        return tuple(linalg.eigh(x))

    out, pull = jax.vjp(factors, a)
    _, (w_dot, v_dot) = jax.jvp(factors, (a,), (d,))
    assert out[0].dtype == jnp.float64
    left = np.sum(c_w * w_dot) + np.real(np.sum(c_v * v_dot))
    close(along(pull((c_w, c_v))[0], d), left, 1e-12, scale=np.linalg.norm(v_dot) * 10)


def projector_loss(a):
    w, v = linalg.eigh(a)
    top = v[:, 2:]
    weight = jnp.arange(16.0).reshape(4, 4).T
    overlap = jnp.sum(weight * jnp.real(top @ jnp.conj(top.T)))
    return overlap + jnp.sum(jnp.sin(w)) + jnp.abs(v[0, 1]) ** 2


@pytest.mark.parametrize("dtype", BOTH)
def test_gauge_invariant_loss_agrees_with_differences_of_itself(dtype):
    check_derivatives(projector_loss, (jnp.asarray(random_array(7, dtype=dtype)),), order=2)


def test_custom_rule_is_the_one_that_runs():
    jaxpr = str(jax.make_jaxpr(linalg.eigh)(jnp.eye(2)))
    assert "difflinalg_eigh_core" in jaxpr
    plain = jax.jacfwd(lambda x: jnp.linalg.eigh(x)[1])(jnp.eye(2))
    assert not np.all(np.isfinite(plain))
    assert np.all(np.isfinite(jax.jacfwd(lambda x: linalg.eigh(x).eigenvectors)(jnp.eye(2))))


def test_reverse_mode_keeps_the_factors_only():
    n = 12
    a = random_array(1, (n, n))
    _, pull = jax.vjp(lambda x: tuple(linalg.eigh(x)), a)
    kept = sum(leaf.size for leaf in jax.tree.leaves(pull))
    assert kept <= 4 * n * n  # V, its adjoint, the identity of the trace shift, vectors


# Eigenvalues.


@jax.jit
def power_sum(a):
    return jnp.sum(linalg.eigvalsh(a) ** 3)


def test_symmetric_function_of_eigenvalues_is_right_at_the_identity():
    a, d = jnp.eye(3), random_array(1, (3, 3))
    close(jax.grad(power_sum)(a), 3 * np.eye(3), 1e-12)
    hessian_d = 6 * herm(d)
    close(jax.jvp(jax.grad(power_sum), (a,), (d,))[1], hessian_d, 1e-4)
    close(jax.grad(lambda x: along(jax.grad(power_sum)(x), d))(a), hessian_d, 1e-4)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64, jnp.complex64, jnp.complex128])
def test_eigenvalues_have_the_derivative_of_the_trace_of_a_cube(dtype):
    a = herm(random_array(1, (3, 3), dtype))
    rtol = 1e-5 if jnp.finfo(dtype).bits == 32 else 1e-12
    close(jax.grad(power_sum)(a), 3 * (a @ a).T, rtol)


# Values and options.


@pytest.mark.parametrize("uplo", [None, "L", "U"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64, jnp.complex64, jnp.complex128])
@pytest.mark.parametrize("batch", [(), (2,), (2, 1)])
def test_values_agree_with_numpy(dtype, uplo, batch):
    a = random_array(1, (*batch, N, N), dtype)
    tolerance = 1e-5 if jnp.finfo(dtype).bits == 32 else 1e-13
    w, v = linalg.eigh(a, UPLO=uplo)
    close(w, np.linalg.eigvalsh(herm(a)), tolerance)
    close(v * w[..., None, :] @ np.conj(np.swapaxes(v, -1, -2)), herm(a), tolerance, scale=4.0)
    assert w.dtype == jnp.finfo(dtype).dtype
    assert v.dtype == dtype
    one = linalg.eigh(a, UPLO=uplo, symmetrize_input=False)
    close(one.eigenvalues, np.linalg.eigh(a, UPLO=uplo or "L")[0], tolerance)
    close(linalg.eigvalsh(a, uplo), w, tolerance)
    close(linalg.eigvalsh(a, uplo, symmetrize_input=False), one.eigenvalues, tolerance)


@pytest.mark.parametrize("uplo", ["L", "U"])
@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("function", ["eigh", "eigvalsh"])
def test_gradient_belongs_to_the_triangle_that_is_read(function, dtype, uplo):
    a, d = random_array(1, (3, 3), dtype), random_array(2, (3, 3), dtype)
    weight = np.array([1.0, -2.0, 0.5])

    def f(x):
        out = getattr(linalg, function)(x, UPLO=uplo, symmetrize_input=False)
        return jnp.sum(weight * (out if function == "eigvalsh" else out.eigenvalues))

    def reference(t):
        return np.sum(weight * np.linalg.eigvalsh(a + t * d, UPLO=uplo))

    gradient = np.asarray(jax.grad(f)(a))
    unread = np.triu(gradient, 1) if uplo == "L" else np.tril(gradient, -1)
    close(unread, 0 * unread, 0.0)
    close(np.imag(np.diagonal(gradient)), np.zeros(3), 1e-15, scale=1.0)
    h = 1e-3
    slope = (8 * (reference(h) - reference(-h)) - (reference(2 * h) - reference(-2 * h))) / (12 * h)
    close(along(gradient, d), slope, 1e-9)
    close(jax.jvp(f, (a,), (d,))[1], slope, 1e-9)


def test_entries_of_the_unread_triangle_do_not_matter():
    a = np.tril(random_array(1))
    with_nan = jnp.asarray(a).at[0, 2].set(np.inf)
    f = jax.jit(lambda x: linalg.eigh(x, symmetrize_input=False).eigenvalues)
    close(f(with_nan), f(a), 0.0)


def test_integers_are_converted_to_the_default_float():
    w, v = linalg.eigh(jnp.array([[2, 1], [1, 2]]))
    close(w, [1.0, 3.0], 1e-15)
    assert w.dtype == v.dtype == jnp.float64
    assert linalg.eigvalsh(jnp.array([[2, 1], [1, 2]])).dtype == jnp.float64


def test_fields_are_named_as_in_jax_numpy():
    result = linalg.eigh(jnp.eye(2))
    assert result._fields == type(jnp.linalg.eigh(jnp.eye(2)))._fields
    assert result.eigenvalues is result[0]
    assert result.eigenvectors is result[1]


@pytest.mark.parametrize("shape", [(0, 0), (3, 0, 0), (0, 2, 2)])
def test_empty_input_has_empty_output_and_gradient(shape):
    a = jnp.zeros(shape)
    w, v = linalg.eigh(a)
    assert w.shape == shape[:-1]
    assert v.shape == shape
    gradient = jax.grad(lambda x: jnp.sum(linalg.eigh(x)[0]) + jnp.sum(linalg.eigh(x)[1]))(a)
    assert gradient.shape == shape


@pytest.mark.parametrize("value", [0.0, -3.0, 1e200])
def test_single_entry_is_its_own_eigenvalue(value):
    a = jnp.array([[value]])
    w, _ = linalg.eigh(a)
    close(w, [value], 1e-15)
    close(jax.grad(lambda x: linalg.eigh(x)[0][0])(a), [[1.0]], 1e-15)
    close(jax.hessian(lambda x: linalg.eigvalsh(x)[0])(a), np.zeros((1, 1, 1, 1)), 0.0)


def test_batch_gives_the_derivative_of_each_matrix():
    stack = jnp.stack(
        [
            random_hermitian(jax.random.key(1), spectrum(kind, N))
            for kind in ("generic", "degenerate", "rank_deficient", "zero")
        ]
    )
    weight = random_array(1)
    together = gradients_of_exp(stack, weight)
    for a, gradient in zip(stack, together, strict=True):
        close(gradients_of_exp(a[None], weight)[0], gradient, 2e-7)
        close(gradient, exp_gradient(np.asarray(a), weight), 1e-7)


# Scales.


@jax.jit
def top_projector_gradient(a, weight):
    def f(x):
        v = linalg.eigh(x).eigenvectors[:, -2:]
        return jnp.sum(weight * (v @ v.T))

    return jax.grad(f)(a)


@pytest.mark.parametrize("power", [-500, 500])
def test_gradient_of_a_projector_scales_as_it_must(power):
    a, weight, factor = random_array(3), random_array(1), 2.0**power
    expected = top_projector_gradient(a, weight)
    close(top_projector_gradient(factor * a, weight) * factor, expected, 1e-11)


@pytest.mark.parametrize("power", [-66, 63])
def test_single_precision_derivatives_survive_bad_scales(power):
    a, weight = random_array(3).astype(np.float32), random_array(1).astype(np.float32)
    factor = np.float32(2.0**power)
    expected = top_projector_gradient(a, weight)
    close(top_projector_gradient(factor * a, weight) * factor, expected, 1e-4)
    hessian = jax.hessian(lambda x: linalg.eigvalsh(x)[0])
    close(hessian(factor * a[:2, :2]) * factor, hessian(a[:2, :2]), 1e-4)


def test_neighbouring_large_single_precision_numbers_are_not_degenerate():
    a = jnp.diag(jnp.array([2.0**24, 2.0**24 + 2, 2.0**24 + 4], jnp.float32))
    jacobian = jax.jacfwd(lambda x: linalg.eigh(x).eigenvectors)(a)
    # Half of 1 / gap, for one of the two entries (i, j) and (j, i).
    for i, j in ((0, 1), (1, 2), (0, 2)):
        close(abs(jacobian[i, j, i, j]), np.float32(0.5 / (2 * (j - i))), 1e-6)


def test_shift_by_a_large_multiple_of_the_identity_does_not_change_the_gradient():
    a, weight = np.diag([1.0, 2.0, 4.0, 8.0]), random_array(1)
    expected = top_projector_gradient(a, weight)
    close(top_projector_gradient(a + 2.0**50 * np.eye(4), weight), expected, 1e-11)


# Arguments and settings.


@pytest.mark.parametrize("function", [linalg.eigh, linalg.eigvalsh])
def test_errors_name_the_function_the_shape_and_the_remedy(function):
    name = function.__name__
    with pytest.raises(ValueError, match=rf"{name} needs a matrix.*shape \(3,\).*a\[:, None\]"):
        function(jnp.ones(3))
    with pytest.raises(ValueError, match=rf"{name} needs square.*shape \(2, 3\).*svd"):
        function(jnp.ones((2, 3)))
    with pytest.raises(ValueError, match=rf"None, 'L', or 'U', got 'X' in {name}"):
        function(jnp.eye(2), UPLO="X")
    with pytest.raises(ValueError, match=rf"{name} got a matrix that contains NaN.*float64"):
        function(jnp.array([[np.nan, 0.0], [0.0, 1.0]]))
    with pytest.raises(ValueError, match="NaN or inf"):
        function(jnp.array([[np.inf, 0.0], [0.0, 1.0]]))
    with pytest.raises(TypeError, match=rf"{name} needs an array, got str"):
        function("matrix")


def test_nan_under_jit_gives_nan_eigenvalues():
    a = jnp.array([[np.nan, 0.0], [0.0, 1.0]])
    assert np.all(np.isnan(jax.jit(linalg.eigvalsh)(a)))
    assert np.all(np.isnan(jax.jit(linalg.eigh)(a).eigenvalues))


def test_importing_the_library_changes_no_setting_of_jax():
    script = (
        "import jax; before = dict(jax.config.values); import difflinalg, difflinalg.testing; "
        "assert dict(jax.config.values) == before"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_second_derivative_of_eigh_after_eigh_at_a_multiple_of_the_identity():
    """The first decomposition moves the values apart, what follows shrinks the gaps."""
    weight, d = random_array(3), herm(random_array(1))

    def twice(exponential):
        inner = lambda x: jnp.sum(weight * exponential(x + 0.01 * exponential(x)))  # noqa: E731
        along = lambda s: inner(0.5 * jnp.eye(len(d)) + s * d)  # noqa: E731
        return jax.jit(jax.grad(jax.grad(along)))(0.0)

    def by_eigh(x):
        w, v = linalg.eigh(x)
        return (v * jnp.exp(w)) @ v.T

    close(twice(by_eigh), twice(jax.scipy.linalg.expm), 3e-4)
