"""Functions of general matrices against SciPy, high precision, closed forms and differences."""

import functools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.linalg
from jax import lax
from nested import check_nested

from difflinalg._core.linear_operation import LinearOperation
from difflinalg._dense import matrix_function
from difflinalg._dense.expm import Exponential
from difflinalg._dense.logm import Logarithm
from difflinalg._dense.signm import Sign
from difflinalg.scipy import linalg

# The precisions and the fields are independent; two dtypes cover them.
DTYPES = [np.float32, np.complex128]
COMPLEX_RESULT = ("sqrtm", "logm")
NAMES = ("expm", "sqrtm", "logm", "cosm", "sinm", "tanm", "coshm", "sinhm", "tanhm")
JORDAN = np.array([[2.0, 1.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]])


def gaussian(rng, *shape, dtype=complex):
    x = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return (x if np.issubdtype(dtype, np.complexfloating) else x.real).astype(dtype)


def close(x, y, rtol):
    assert np.max(np.abs(np.asarray(x) - y)) <= rtol * np.max(np.abs(y)), (x, y)


# Values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_are_those_of_scipy_for_stacks_of_every_dtype(dtype, rng):
    a = gaussian(rng, 2, 4, 4, dtype=dtype) + 3 * np.eye(4, dtype=dtype)
    wide = np.complex128 if np.iscomplexobj(a) else np.float64
    rtol = 1e-4 if np.finfo(dtype).bits == 32 else 1e-12
    for name in NAMES:
        got = getattr(linalg, name)(a)
        want = np.stack([getattr(scipy.linalg, name)(x.astype(wide)) for x in a])
        assert got.dtype == (
            np.result_type(dtype, np.complex64) if name in COMPLEX_RESULT else dtype
        )
        close(got, want, rtol * (10 if name.startswith("tan") else 1))
    w, v = np.linalg.eig(a.astype(wide) - 3 * np.eye(4))
    sign = (v * np.sign(w.real)[:, None, :]) @ np.linalg.inv(v)
    close(linalg.signm(a - 3 * np.eye(4, dtype=dtype)), sign, 100 * rtol)
    for t in (0.3, -1.4, 2, -1.0):
        want = [scipy.linalg.fractional_matrix_power(x.astype(wide), t) for x in a]
        close(linalg.fractional_matrix_power(a, t), np.stack(want), 10 * rtol)


def test_negative_eigenvalues_of_a_real_matrix_have_the_principal_root_and_logarithm(rng):
    v = gaussian(rng, 4, 4, dtype=float)
    a = v @ np.diag([-1.0, -2.0, -3.0, 5.0]) @ np.linalg.inv(v)
    close(linalg.sqrtm(a), scipy.linalg.sqrtm(a), 1e-12)
    close(linalg.logm(a), scipy.linalg.logm(a), 1e-12)


@pytest.mark.parametrize("name", [*NAMES, "signm", "fractional_matrix_power"])
def test_empty_and_one_by_one_matrices_have_values_and_gradients(name):
    args = (0.5,) if name == "fractional_matrix_power" else ()
    f = lambda a: jnp.sum(jnp.real(getattr(linalg, name)(a, *args)))  # noqa: E731
    assert jax.grad(f)(jnp.zeros((0, 0))).shape == (0, 0)
    want = {"sqrtm": 0.5, "logm": 1.0, "signm": 0.0, "fractional_matrix_power": 0.5}
    scalar = {"expm": np.exp(1.0), "tanm": 1 / np.cos(1.0) ** 2, "tanhm": 1 / np.cosh(1.0) ** 2,
              "cosm": -np.sin(1.0), "sinm": np.cos(1.0), "coshm": np.sinh(1.0),
              "sinhm": np.cosh(1.0)} | want  # fmt: skip
    np.testing.assert_allclose(jax.grad(f)(jnp.ones((1, 1))), scalar[name], atol=1e-12)


def test_no_root_or_sign_is_nan_and_the_root_of_zero_is_zero():
    nilpotent = jnp.array([[0.0, 1.0], [0.0, 0.0]])
    assert np.all(np.isnan(linalg.sqrtm(nilpotent)))
    assert np.all(linalg.sqrtm(jnp.zeros((2, 2))) == 0.0)
    rotation = jnp.array([[0.0, 1.0], [-1.0, 0.0]])
    assert not np.any(np.isfinite(linalg.signm(rotation)))
    assert not np.all(np.isfinite(linalg.logm(nilpotent)))
    assert not np.any(np.isfinite(jax.grad(lambda a: jnp.trace(linalg.signm(a)))(rotation)))


def test_error_estimates_come_with_disp_false(rng):
    a = gaussian(rng, 3, 3) + 3 * np.eye(3)
    logarithm, error = linalg.logm(a, disp=False)
    np.testing.assert_array_equal(logarithm, linalg.logm(a))
    assert error < 1e-13
    assert linalg.signm(a, disp=False)[1] < 1e-12


def test_wrong_arguments_are_refused_by_name():
    for name in (*NAMES, "signm"):
        with pytest.raises(ValueError, match=f"{name} needs square matrices"):
            getattr(linalg, name)(jnp.ones((2, 3)))
    with pytest.raises(NotImplementedError, match="blocksize=2"):
        linalg.sqrtm(jnp.eye(2), 2)
    with pytest.raises(ValueError, match="shapes that do not fit"):
        linalg.expm_frechet(jnp.eye(2), jnp.eye(3))
    with pytest.raises(ValueError, match="fractional_matrix_power got shapes"):
        linalg.fractional_matrix_power(jnp.eye(2), jnp.ones(2))


# The exponential of badly scaled matrices --------------------------------------------------------

BAD = np.array(
    [
        [-6.00094776e-02, -1.37334693e09, -1.16936523e19, 1.00100100e-12],
        [1.00100100e-12, 0, 0, 0],
        [0, 1.00100100e-12, 0, 0],
        [0, 0, 0, 0],
    ]
)


def exact_exponential(a):
    with mpmath.workdps(120):
        return np.array(mpmath.expm(mpmath.matrix(a.tolist()), method="taylor").tolist(), float)


def test_badly_scaled_exponential_and_derivatives_are_right_in_every_entry():
    """jax-ml/jax#26802, jax-ml/jax#17756: NaN, with a derivative of exactly zero."""
    a = BAD.astype(complex)
    exact = exact_exponential(BAD)
    f = lambda t: linalg.expm(t * a)  # noqa: E731
    value, first = jax.jvp(f, (1.0,), (1.0,))
    np.testing.assert_allclose(value, exact, rtol=1e-12, atol=1e-290)
    np.testing.assert_allclose(first, BAD @ exact, rtol=1e-9, atol=1e-290)
    second = jax.jacfwd(jax.jacrev(lambda t: linalg.expm(t * a).real))(1.0)
    np.testing.assert_allclose(second, BAD @ BAD @ exact, rtol=1e-6, atol=1e-280)


def test_large_norms_have_a_value_and_the_right_derivative():
    decay = jnp.array([[-1e6, 1.0], [0.0, -2e6]])
    value, tangent = jax.jvp(lambda t: linalg.expm(t * decay), (1.0,), (1.0,))
    assert np.all(value == 0.0)
    assert np.all(tangent == 0.0)
    # A Markov generator: exp(A) is the projector P on the constant vector, L(A, E) is about P E P.
    generator = 1e6 * jnp.array([[-1.0, 1.0], [1.0, -1.0]])
    np.testing.assert_allclose(linalg.expm(generator), 0.5, rtol=1e-9)
    gradient = jax.grad(lambda a: linalg.expm(a)[0, 1])(generator)
    np.testing.assert_allclose(gradient, 0.25, rtol=2e-6)
    # A limit that is given is kept, in the derivative too.
    limited = lambda t: linalg.expm(t * generator, max_squarings=8)  # noqa: E731
    value, tangent = jax.jvp(limited, (1.0,), (1.0,))
    assert np.all(np.isnan(value))
    assert np.all(np.isnan(tangent))


def test_upper_triangular_exponential_reads_the_upper_triangle_only(rng):
    a = gaussian(rng, 4, 4, dtype=float)
    f = lambda a: linalg.expm(a, upper_triangular=True)  # noqa: E731
    close(f(a), scipy.linalg.expm(np.triu(a)), 1e-13)
    gradient = jax.grad(lambda a: jnp.sum(jnp.cos(f(a))))(a)
    want = jax.grad(lambda a: jnp.sum(jnp.cos(linalg.expm(jnp.triu(a)))))(a)
    np.testing.assert_allclose(gradient, want, atol=1e-12)
    assert np.all(np.tril(gradient, -1) == 0.0)


def test_exponential_of_jax_and_its_frechet_derivative_are_reproduced(rng):
    a, e = gaussian(rng, 2, 3, 3), gaussian(rng, 2, 3, 3)
    close(linalg.expm(a), jax.scipy.linalg.expm(a), 1e-13)
    both = linalg.expm_frechet(a, e)
    for k in range(2):
        want = scipy.linalg.expm_frechet(a[k], e[k])
        for x, y in zip(both, want, strict=True):
            close(x[k], y, 1e-13)
    np.testing.assert_array_equal(linalg.expm_frechet(a, e, compute_expm=False), both[1])
    integers = jnp.zeros((2, 2), jnp.int32)
    assert linalg.expm(integers).dtype == jax.scipy.linalg.expm(integers).dtype


# Derivatives ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["expm", "sqrtm", "logm", "signm", "tanm"])
def test_all_derivatives_are_those_of_differences(name, rng):
    a = gaussian(rng, 3, 3) + (0.3 if name == "signm" else 3.0) * np.eye(3)
    check_nested(getattr(linalg, name), (a if name != "tanm" else a / 8,))


@pytest.mark.parametrize("name", ["sqrtm", "logm"])
def test_repeated_and_defective_eigenvalues_of_real_matrices_are_nothing_special(name):
    check_nested(getattr(linalg, name), (JORDAN,), order=2 if name == "logm" else 1)


@pytest.mark.parametrize("names", [("cosm", "sinm"), ("coshm", "sinhm", "tanhm")])
def test_trigonometric_functions_of_a_defective_matrix_have_second_derivatives(names):
    f = lambda a: [getattr(linalg, name)(a) for name in names]  # noqa: E731
    check_nested(f, (JORDAN / 2,), nestings=("fwd-rev",))


def test_derivatives_of_expm_frechet_are_those_of_differences(rng):
    f = functools.partial(linalg.expm_frechet, compute_expm=False)
    check_nested(f, (gaussian(rng, 2, 2), gaussian(rng, 2, 2)))


def test_third_derivative_of_the_exponential_is_that_of_jax(rng):
    a, *d = gaussian(rng, 3, 2, 2, dtype=float)

    def third(expm):
        f = lambda a: jnp.sum(jnp.cos(expm(a)))  # noqa: E731
        second = lambda a: jnp.sum(jax.jvp(jax.grad(f), (a,), (d[0],))[1] * d[1])  # noqa: E731
        return jax.grad(second)(a)

    close(third(linalg.expm), third(jax.scipy.linalg.expm), 1e-12)


def test_real_power_is_differentiable_in_the_exponent(rng):
    a = gaussian(rng, 3, 3) + 3 * np.eye(3)
    value, slope = jax.jvp(lambda t: linalg.fractional_matrix_power(a, t), (0.3,), (1.0,))
    close(slope, scipy.linalg.logm(a) @ scipy.linalg.fractional_matrix_power(a, 0.3), 1e-12)
    close(value, scipy.linalg.fractional_matrix_power(a, 0.3), 1e-12)
    gradient = jax.grad(lambda a: jnp.trace(linalg.fractional_matrix_power(a, 1.5)).real)(a)
    close(gradient, 1.5 * scipy.linalg.sqrtm(a).T, 1e-11)  # jax gradients are conjugated


def test_root_and_logarithm_have_the_derivative_of_their_branch_at_negative_eigenvalues(rng):
    v = gaussian(rng, 3, 3, dtype=float)
    a = v @ np.diag([-1.0, -2.0, 5.0]) @ np.linalg.inv(v)
    for name in ("sqrtm", "logm"):
        check_nested(getattr(linalg, name), (a,), order=2 if name == "sqrtm" else 1)
    # Its second derivative would need the side of a double eigenvalue of which half is known.
    second = jax.hessian(lambda t: linalg.logm(t * a)[0, 0].real)(1.0)
    assert np.isnan(second)


def test_known_gradients_of_reports():
    """jax-ml/jax#16579, jax-ml/jax#38831 (sqrtm), jax-ml/jax#5469 (logm), #2645, #4106 (expm)."""
    a = np.array([[4.0, 1.0], [1.0, 3.0]])
    root = scipy.linalg.sqrtm(a).real
    want = scipy.linalg.solve_sylvester(root.T, root.T, np.ones((2, 2)))
    for dtype in DTYPES:
        rtol = 1e-5 if np.finfo(dtype).bits == 32 else 1e-13
        x = a.astype(dtype)
        total = lambda f: lambda a: jnp.sum(jnp.real(f(a)))  # noqa: E731
        close(jax.grad(total(linalg.sqrtm))(x), want, rtol)
        close(jax.grad(total(linalg.expm))(jnp.eye(2, dtype=dtype)), np.full((2, 2), np.e), rtol)
        close(jax.grad(total(linalg.expm))(jnp.zeros((3, 3), dtype)), np.ones((3, 3)), rtol)
    # tr(A log A) has the gradient (log A + I)^T.
    gradient = jax.grad(lambda a: jnp.trace(a @ linalg.logm(a)).real)(a)
    close(gradient, scipy.linalg.logm(a).T + np.eye(2), 1e-13)


# The mechanism ----------------------------------------------------------------------------------


def test_derivative_of_a_batch_with_a_shared_argument_is_the_sum_over_the_batch(rng):
    a, e = gaussian(rng, 2, 2, dtype=float), gaussian(rng, 2, 2, dtype=float)
    scales = jnp.array([0.5, 1.0, 2.0])

    def loss(a, e, mapped):
        f = lambda s, e: linalg.expm_frechet(s * a, e, compute_expm=False)  # noqa: E731
        parts = jax.vmap(f, (0, None))(scales, e) if mapped else [f(s, e) for s in scales]
        return jnp.sum(jnp.cos(jnp.stack(parts)))

    gradients = [jax.grad(loss, (0, 1))(a, e, mapped) for mapped in (True, False)]
    for x, y in zip(*gradients, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-12)
    # The linear argument mapped over its second axis.
    tall = jnp.stack([e, 2 * e], axis=1)
    f = jax.vmap(lambda e: linalg.expm_frechet(a, e, compute_expm=False), 1)
    gradient = jax.grad(lambda e: jnp.sum(jnp.cos(f(e))))(tall)
    single = lambda e: jnp.sum(jnp.cos(linalg.expm_frechet(a, e, compute_expm=False)))  # noqa: E731
    np.testing.assert_allclose(gradient[:, 1], jax.grad(single)(2 * e), atol=1e-12)


def test_second_derivatives_survive_reverse_mode_through_a_scan():
    a = jnp.asarray(JORDAN) / 4

    def loss(a):
        step = lambda x, _: (0.5 * linalg.expm(x) + linalg.sqrtm(x + a).real, None)  # noqa: E731
        return jnp.sum(jnp.sin(lax.scan(step, a, length=2)[0]))

    d = jnp.arange(9.0).reshape(3, 3)
    forward = jax.jvp(lambda a: jax.jvp(loss, (a,), (d,))[1], (a,), (d,))[1]
    reverse = jnp.sum(jax.jvp(jax.grad(loss), (a,), (d,))[1] * d)
    np.testing.assert_allclose(reverse, forward, rtol=1e-10)


def test_reverse_mode_uses_the_rule_and_keeps_only_the_matrix():
    a = jnp.eye(3)
    assert "difflinalg_matrix_function" in str(jax.make_jaxpr(linalg.expm)(a))
    residuals = jax.tree.leaves(jax.vjp(linalg.expm, a)[1])
    assert sum(x.size for x in residuals) <= a.size
    functions = [Exponential(), Logarithm(), Logarithm(True), Sign(), Exponential(True)]
    assert len(set(functions)) == len(functions)


def test_linear_operation_without_a_transpose_says_so():
    doubled = LinearOperation(lambda a, e: a * e)
    with pytest.raises(NotImplementedError, match="no transpose"):
        jax.linear_transpose(lambda e: doubled(1.0, e), 1.0)(1.0)
    f = lambda a: matrix_function.frechet_derivative(a, jnp.eye(2), Exponential())  # noqa: E731
    with pytest.raises(NotImplementedError, match="no transpose"):
        jax.linear_transpose(f, jnp.eye(2))(jnp.eye(2))
