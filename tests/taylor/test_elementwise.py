"""Elementary functions of a series, against derivatives that mpmath computes, and at kinks."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
from jax import lax
from jax.experimental.jet import jet as jax_jet

from difflinalg.taylor import derivatives, jet

ORDER = 6


def _curve(t, lib):
    """A curve with all derivatives, in (0.3, 0.8) near 0."""
    return 0.55 + 0.2 * lib.sin(1.3 * t + 0.4)


# name: (the function, the same in mpmath)
FUNCTIONS = {
    "exp": (jnp.exp, mp.exp),
    "exp2": (jnp.exp2, lambda x: mp.mpf(2) ** x),
    "expm1": (jnp.expm1, lambda x: mp.expm1(x)),
    "log": (jnp.log, mp.log),
    "log1p": (jnp.log1p, mp.log1p),
    "sqrt": (jnp.sqrt, mp.sqrt),
    "rsqrt": (lax.rsqrt, lambda x: 1 / mp.sqrt(x)),
    "cbrt": (jnp.cbrt, mp.cbrt),
    "square": (jnp.square, lambda x: x * x),
    "sin": (jnp.sin, mp.sin),
    "cos": (jnp.cos, mp.cos),
    "tan": (jnp.tan, mp.tan),
    "sinh": (jnp.sinh, mp.sinh),
    "cosh": (jnp.cosh, mp.cosh),
    "tanh": (jnp.tanh, mp.tanh),
    "logistic": (jax.nn.sigmoid, lambda x: 1 / (1 + mp.exp(-x))),
    "asin": (jnp.arcsin, mp.asin),
    "acos": (jnp.arccos, mp.acos),
    "atan": (jnp.arctan, mp.atan),
    "asinh": (jnp.arcsinh, mp.asinh),
    "acosh": (lambda x: jnp.arccosh(1 + x), lambda x: mp.acosh(1 + x)),
    "atanh": (jnp.arctanh, mp.atanh),
    "erf": (lax.erf, mp.erf),
    "erfc": (lax.erfc, mp.erfc),
    "erf_inv": (lax.erf_inv, mp.erfinv),
    "lgamma": (lax.lgamma, mp.loggamma),
    "digamma": (lax.digamma, mp.digamma),
    "integer powers": (lambda x: x**5 - x**-3 + x**0, lambda x: x**5 - x**-3 + 1),
    "powers": (lambda x: x**2.5 + 2.0**x + x**x, lambda x: x ** mp.mpf(2.5) + 2**x + x**x),
    "atan2": (lambda x: jnp.arctan2(x, jnp.cos(x)), lambda x: mp.atan(x / mp.cos(x))),
    "quotients": (lambda x: (1 + x) / (2 + x * x) - 1 / x,) * 2,
    "rem": (lambda x: lax.rem(5 * x, x * x + 0.7), lambda x: mp.fmod(5 * x, x * x + 0.7)),
    "abs": (lambda x: jnp.abs(x - 1), lambda x: 1 - x),
    "complex": (
        lambda x: jnp.abs(jnp.exp((2 + 1j) * x) * jnp.sin(x + 1j) - jnp.sign(1j * x)),
        lambda x: abs(mp.exp((2 + 1j) * x) * mp.sin(x + 1j) - 1j),
    ),
}  # fmt: skip


def test_elementary_functions_agree_with_mpmath():
    def all_of_them(t):
        return jnp.stack([f(_curve(t, jnp)) for f, _ in FUNCTIONS.values()])

    found = derivatives(all_of_them, 0.3, ORDER)
    with mp.workdps(40):
        for i, (name, (_, reference)) in enumerate(FUNCTIONS.items()):
            series = mp.taylor(lambda t, f=reference: f(_curve(t, mp)), mp.mpf("0.3"), ORDER)
            wanted = np.array([float(c * mp.factorial(k)) for k, c in enumerate(series)])
            size = np.maximum(1.0, np.abs(wanted))
            np.testing.assert_array_less(np.abs(found[:, i] - wanted), 2e-12 * size, err_msg=name)


def test_series_of_arrays_agree_with_the_jet_of_jax():
    """In the tuple form, with a general inner series, on functions where JAX has it right."""

    def f(x, y):
        return jnp.tanh(x @ y) / (1.5 + jnp.cos(x)), jnp.sum(jnp.exp(-x * y) * jnp.log(2.0 + y))

    rng = np.random.default_rng(0)
    x, y, *terms = (jnp.asarray(rng.normal(size=(3, 3))) for _ in range(8))
    series = (terms[:3], [jnp.abs(term) for term in terms[3:]])
    arguments = (x, jnp.abs(y)), series
    ours, reference = jet(f, *arguments), jax_jet(f, *arguments)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), ours, reference)
    assert jax.tree.structure(ours) == jax.tree.structure(reference)


def test_at_a_kink_the_series_is_that_of_the_side_that_follows():
    def kinks(t):
        x = jnp.array([t, -t, t * t])
        ordered = jnp.sort(x)
        return jnp.stack([
            jnp.abs(t * (t - 2.0)), jnp.maximum(t, t * t), jnp.minimum(-t, t * t), jnp.max(x),
            jnp.min(x), ordered[0], ordered[1], ordered[2], jnp.clip(t, 0.0, 1.0),
            jnp.logaddexp(t, -t),
        ])  # fmt: skip

    found = derivatives(kinks, 0.0, 2)
    first = [2.0, 1.0, -1.0, 1.0, -1.0, -1.0, 0.0, 1.0, 1.0, 0.0]
    second = [-2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 1.0]
    np.testing.assert_allclose(found[1], first, atol=1e-14)
    np.testing.assert_allclose(found[2], second, atol=1e-14)


def test_powers_and_norms_at_zero():
    """Whole powers are polynomials; what is identically zero stays zero."""

    def f(t):
        still = jnp.abs(0.0 * (1.0 + 1.0j) * t)
        return jnp.stack([t**3, t**2 * jnp.exp(t), jnp.prod(jnp.array([t, t, 2.0])), still])

    found = derivatives(f, 0.0, 4)
    wanted = [[0, 0, 0, 6, 0], [0, 0, 2, 6, 12], [0, 0, 4, 0, 0], [0, 0, 0, 0, 0]]
    np.testing.assert_allclose(found.T, np.array(wanted, float), atol=1e-13)


def test_dtypes_are_kept():
    for dtype in (jnp.float32, jnp.complex64):
        x = jnp.asarray([0.3, 0.7], dtype)
        value, (first, second) = jet(lambda x: jnp.sin(x) / x, (x,), ([x, x],))
        assert {value.dtype, first.dtype, second.dtype} == {jnp.dtype(dtype)}
