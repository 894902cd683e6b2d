"""Functions of a Hermitian matrix: block-triangular oracles, all nestings, closed-over values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from difflinalg import linalg

N = 3
SPECTRA = {"single": [1.5, 1.5, 1.5], "double": [1.0, 1.0, 2.0], "close": [1.0, 1.0 + 1e-9, 2.0]}


def hermitian(seed, dtype=np.float64):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((N, N))
    if np.issubdtype(dtype, np.complexfloating):
        a = a + 1j * rng.standard_normal((N, N))
    return ((a + a.conj().T) / 2).astype(dtype)


def with_spectrum(values, dtype=np.float64):
    q = np.linalg.qr(hermitian(5, dtype))[0]
    return (q * np.array(values)) @ q.conj().T


def second_derivative_by_blocks(function, a, e, f):
    zero = np.zeros_like(a)
    block = np.block([[a, e, f, zero], [zero, a, zero, f], [zero, zero, a, e], [zero] * 3 + [a]])
    return function(block)[:N, 3 * N :]


def derivatives(a, e, f):
    def loss(x):
        return jnp.real(jnp.sum(jnp.asarray(hermitian(9)) * linalg.funm_hermitian(x, jnp.exp)))

    def along(x):
        return jax.jvp(loss, (x,), (e,))[1]

    def paired(x):
        return jnp.real(jnp.sum(jax.grad(loss)(x) * e))

    def pair(g):
        return jnp.real(jnp.sum(g * f))

    return {
        "fwd": along(a),
        "rev": paired(a),
        "fwd-fwd": jax.jvp(along, (a,), (f,))[1],
        "fwd-rev": jax.jvp(paired, (a,), (f,))[1],
        "rev-fwd": pair(jax.grad(along)(a)),
        "rev-rev": pair(jax.grad(paired)(a)),
    }


run = jax.jit(derivatives)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("name", SPECTRA)
def test_exponential_has_exact_derivatives_at_repeated_eigenvalues_in_every_nesting(name, dtype):
    a, e, f = with_spectrum(SPECTRA[name], dtype), hermitian(1, dtype), hermitian(2, dtype)
    first = np.sum(hermitian(9) * scipy.linalg.expm_frechet(a, e, compute_expm=False)).real
    second = np.sum(hermitian(9) * second_derivative_by_blocks(scipy.linalg.expm, a, e, f)).real
    for nesting, value in run(a, e, f).items():
        expected = second if "-" in nesting else first
        np.testing.assert_allclose(value, expected, rtol=1e-12, err_msg=nesting)


def test_second_oracle_is_the_square_root_whose_square_is_known():
    a, e = with_spectrum(SPECTRA["double"]), hermitian(1)
    root, root_dot = jax.jvp(lambda x: linalg.funm_hermitian(x, jnp.sqrt), (a,), (e,))
    np.testing.assert_allclose(root @ root, a, atol=1e-14)
    np.testing.assert_allclose(root @ root_dot + root_dot @ root, e, atol=1e-13)


def test_derivative_with_respect_to_what_the_function_closes_over():
    a = with_spectrum(SPECTRA["double"])

    def trace(beta):
        return jnp.trace(linalg.funm_hermitian(a, lambda w: jnp.exp(-beta * w)))

    expected = -np.trace(a @ scipy.linalg.expm(-0.7 * a))
    np.testing.assert_allclose(jax.grad(trace)(0.7), expected, rtol=1e-13)
    np.testing.assert_allclose(jax.jvp(trace, (0.7,), (1.0,))[1], expected, rtol=1e-13)


def test_stack_gives_the_function_of_each_matrix():
    stack = np.stack([hermitian(1), hermitian(2)])
    batched = linalg.funm_hermitian(stack, jnp.sin)
    single = [linalg.funm_hermitian(a, jnp.sin) for a in stack]
    np.testing.assert_allclose(batched, np.stack(single), atol=1e-14)
    mapped = jax.vmap(lambda a: linalg.funm_hermitian(a, jnp.sin))(stack)
    np.testing.assert_allclose(mapped, batched, atol=1e-14)


def test_single_precision_keeps_its_dtype_and_digits():
    a = with_spectrum(SPECTRA["single"]).astype(np.float32)
    gradient = jax.grad(lambda x: jnp.sum(linalg.funm_hermitian(x, jnp.exp)))(a)
    assert gradient.dtype == jnp.float32
    np.testing.assert_allclose(gradient, np.exp(1.5) * np.ones((N, N)), rtol=2e-6)


def test_empty_and_scalar_matrices_are_allowed():
    assert linalg.funm_hermitian(jnp.zeros((0, 0)), jnp.exp).shape == (0, 0)
    np.testing.assert_allclose(linalg.funm_hermitian(jnp.ones((1, 1)), jnp.exp), [[np.e]])


def test_wrong_input_is_refused():
    with pytest.raises(ValueError, match="square"):
        linalg.funm_hermitian(jnp.ones((2, 3)), jnp.exp)
    with pytest.raises(TypeError):
        linalg.funm_hermitian(jnp.eye(2), 3.0)
