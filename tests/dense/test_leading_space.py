"""The leading space: its projector against the closed form, gaps inside, multiplets, failures."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg import linalg
from difflinalg.testing import random_hermitian

DTYPES = (jnp.float64, jnp.complex128)
VALUES = jnp.array([3.0, -2.5, 2.0, 1.2, -0.8, 0.3])
RANK = 3


def matrices(dtype, values=VALUES):
    """A matrix of given values, and two Hermitian directions."""
    keys = jax.random.split(jax.random.key(5), 3)
    ramp = jnp.linspace(-1.0, 1.0, values.size)
    return [
        np.asarray(random_hermitian(k, v, dtype))
        for k, v in zip(keys, (values, ramp, ramp), strict=True)
    ]


def projected(a):
    p = linalg.leading_space(a, RANK).frame
    return p @ p.conj().T


def projector_by_integral(a, radius, points=256):
    """The projector on the eigenvalues outside of a circle, 1 minus a contour integral."""
    n = a.shape[0]
    z = radius * np.exp(2j * np.pi * (np.arange(points) + 0.5) / points)
    resolvents = jax.vmap(lambda z: z * jnp.linalg.inv(z * jnp.eye(n) - a))(jnp.asarray(z))
    inside = jnp.mean(resolvents, axis=0)
    return jnp.eye(n) - (inside if jnp.iscomplexobj(a) else jnp.real(inside))


CLUSTERS = {
    "distinct": VALUES,
    "close": VALUES.at[2].set(3.0 - 1e-7),
    "closer": VALUES.at[2].set(3.0 - 1e-11),
    "equal": VALUES.at[2].set(3.0),
    "opposite": VALUES.at[1].set(-3.0),
}


@partial(jax.jit, static_argnums=0)
def derivatives(f, a, d, e, weight):
    def loss(a):
        return jnp.real(jnp.sum(weight * f(a)))

    def slope(a):
        return jax.jvp(loss, (a,), (d,))[1]

    def reverse(a):
        return jnp.real(jnp.sum(jax.grad(loss)(a) * d))

    seconds = [jax.jvp(g, (a,), (e,))[1] for g in (slope, reverse)]
    return jnp.stack([slope(a), reverse(a), *seconds, jnp.real(jnp.sum(jax.grad(reverse)(a) * e))])


def by_integral(a):
    return projector_by_integral(a, 1.55)


@pytest.mark.parametrize("case", CLUSTERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_projector_and_its_derivatives_are_those_of_the_contour_integral(case, dtype):
    a, d, e = matrices(dtype, CLUSTERS[case])
    weight = matrices(dtype)[0] @ d
    np.testing.assert_allclose(projected(a), by_integral(a), rtol=0, atol=1e-10)
    want = derivatives(by_integral, a, d, e, weight)
    np.testing.assert_allclose(derivatives(projected, a, d, e, weight), want, rtol=1e-7)


def by_eigh_trunc(a):
    w = linalg.eigh_trunc(a, RANK, cluster_rtol=np.inf).eigenvectors
    return w @ w.conj().T


def by_svd_trunc(a):
    u, _, vh, _ = linalg.svd_trunc(a, RANK, cluster_rtol=np.inf)
    return 0.5 * (u @ u.conj().T + vh.conj().T @ vh)


@partial(jax.jit, static_argnums=0)
def reverse_derivatives(f, a, d, e, weight):
    def reverse(a):
        gradient = jax.grad(lambda a: jnp.real(jnp.sum(weight * f(a))))(a)
        return jnp.real(jnp.sum(gradient * d))

    return jnp.stack(jax.jvp(reverse, (a,), (e,)))


@pytest.mark.parametrize("case", ["distinct", "closer", "opposite"])
def test_truncations_with_one_cluster_have_the_projectors_of_the_space(case):
    a, d, e = matrices(jnp.float64, CLUSTERS[case])
    weight = matrices(jnp.float64)[0] @ d
    want = derivatives(projected, a, d, e, weight)[jnp.array([1, 3])]
    for f in (by_eigh_trunc, by_svd_trunc):
        np.testing.assert_allclose(reverse_derivatives(f, a, d, e, weight), want, rtol=1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
def test_frame_does_not_turn_inside_of_the_space(dtype):
    a, d, _ = matrices(dtype)
    frame, moved = jax.jvp(lambda a: linalg.leading_space(a, RANK).frame, (a,), (d,))
    np.testing.assert_allclose(frame.conj().T @ moved, 0.0, atol=1e-14)
    np.testing.assert_allclose(np.abs(np.diag(frame.conj().T @ a @ frame)), [3.0, 2.5, 2.0])


def test_multiplet_at_the_cut_is_dropped_or_has_no_derivative():
    a, d, _ = matrices(jnp.float64, VALUES.at[3].set(2.0))

    def tangent(**options):
        def f(a):
            p = linalg.leading_space(a, RANK, **options).frame
            return p @ p.T

        return linalg.leading_space(a, RANK, **options), jax.jvp(f, (a,), (d,))[1]

    result, moved = tangent()
    assert int(result.kept) == RANK
    assert np.all(np.isnan(moved))
    result, moved = tangent(keep_multiplets=True)
    assert int(result.kept) == 2
    np.testing.assert_array_equal(result.frame[:, 2], 0.0)
    np.testing.assert_allclose(result.gap, 0.2, rtol=1e-12)
    w, v = np.linalg.eigh(a)
    leading = np.abs(w) > 2.2
    mixed = np.where(leading[:, None] != leading, 1.0, 0.0) / (w[:, None] - w + np.eye(w.size))
    sign = np.where(leading[:, None], 1.0, -1.0)
    np.testing.assert_allclose(moved, v @ (sign * mixed * (v.T @ d @ v)) @ v.T, atol=1e-13)


def test_approximate_multiplet_is_kept_whole_by_a_larger_tolerance():
    a, _, _ = matrices(jnp.float64, VALUES.at[3].set(1.99))
    assert int(linalg.leading_space(a, RANK, keep_multiplets=True).kept) == 3
    wide = linalg.leading_space(a, RANK, keep_multiplets=True, multiplet_rtol=1e-2)
    assert int(wide.kept) == 2


def test_stacks_small_sizes_and_single_precision():
    a, _, _ = matrices(jnp.float64)
    stack = linalg.leading_space(np.stack([a, 2 * a]).astype(np.float32), RANK)
    assert stack.frame.dtype == jnp.float32
    np.testing.assert_allclose(stack.values[1], 2 * stack.values[0], rtol=1e-5)
    one = linalg.leading_space(jnp.array([[-2.0]]), 1)
    np.testing.assert_allclose(abs(one.frame), 1.0)


def test_nan_is_refused_or_gives_nan_under_jit():
    bad = jnp.full((3, 3), jnp.nan)
    with pytest.raises(ValueError, match="NaN or inf"):
        linalg.leading_space(bad, 1)
    assert np.all(np.isnan(jax.jit(lambda a: linalg.leading_space(a, 1).frame)(bad)))
    with pytest.raises(ValueError, match="1 <= rank <= 3"):
        linalg.leading_space(jnp.eye(3), 4)
