"""Range, null space and angles against SciPy, closed forms of projectors, and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from nested import check_nested

from difflinalg._dense.range_null import subspaces_core
from difflinalg._dense.svd_trunc import svd_trunc
from difflinalg.scipy import linalg


def gaussian(rng, *shape, dtype=complex):
    x = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return (x if np.issubdtype(dtype, np.complexfloating) else x.real).astype(dtype)


def of_rank(rng, m, n, rank, dtype=complex):
    return gaussian(rng, m, rank, dtype=dtype) @ gaussian(rng, rank, n, dtype=dtype)


def projector(q):
    return q @ jnp.conj(jnp.swapaxes(q, -1, -2))


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
@pytest.mark.parametrize("shape", [(5, 3), (3, 3), (2, 4)])
def test_projectors_and_shapes_are_those_of_scipy(shape, dtype, rng):
    for rank in {1, min(shape)}:
        a = of_rank(rng, *shape, rank, dtype=dtype)
        for name in ("null_space", "orth"):
            got, want = getattr(linalg, name)(a), getattr(scipy.linalg, name)(a)
            assert got.dtype == dtype
            assert got.shape == want.shape
            np.testing.assert_allclose(projector(got), projector(want), atol=2e-6)


def test_angles_are_those_of_scipy(rng):
    for shapes in (((6, 3), (6, 2)), ((4, 3), (4, 3)), ((3, 1), (3, 2))):
        a, b = (gaussian(rng, *shape) for shape in shapes)
        got, want = linalg.subspace_angles(a, b), scipy.linalg.subspace_angles(a, b)
        np.testing.assert_allclose(got, want, atol=1e-12)
    np.testing.assert_allclose(linalg.subspace_angles(a, a), 0.0, atol=1e-12)


@pytest.mark.parametrize("dtype", [float, complex])
def test_null_projector_has_the_gradient_of_its_closed_form(dtype, rng):
    """jax-ml/jax#508, jax-ml/jax#17518: `d P = -A^+ A_dot P - (A^+ A_dot P)^H`."""
    a, d = (gaussian(rng, 2, 4, dtype=dtype) for _ in range(2))
    f = lambda a: projector(linalg.null_space(a))  # noqa: E731
    p, p_dot = jax.jvp(f, (a,), (d,))
    half = np.linalg.pinv(a) @ d @ p
    np.testing.assert_allclose(p_dot, -half - half.conj().T, atol=1e-12)
    # Forward, reverse and the second order, with a rank that is known under jit.
    check_nested(lambda a: projector(linalg.null_space(a, rank=2)), (a,))


def test_rank_deficient_subspaces_have_the_derivative_along_matrices_of_their_rank(rng):
    x, y = gaussian(rng, 4, 2), gaussian(rng, 2, 3)

    def f(x, y):
        a = x @ y
        return projector(linalg.orth(a, rank=2)), projector(linalg.null_space(a, rank=2))

    check_nested(f, (x, y), nestings=("fwd-rev",))


def test_equal_singular_values_are_nothing_special(rng):
    a = np.linalg.qr(gaussian(rng, 4, 2))[0]
    check_nested(lambda a: projector(linalg.orth(a, rank=2)), (a,))


def test_dominant_subspace_has_the_derivative_of_a_truncated_decomposition(rng):
    a, d = gaussian(rng, 4, 4), gaussian(rng, 4, 4)
    mine = jax.jvp(lambda a: projector(subspaces_core(a, 2).q), (a,), (d,))[1]
    theirs = jax.jvp(lambda a: projector(svd_trunc(a, 2).U), (a,), (d,))[1]
    np.testing.assert_allclose(mine, theirs, atol=1e-10)


def test_derivatives_of_angles_are_those_of_differences(rng):
    a, b = gaussian(rng, 5, 2), gaussian(rng, 5, 2)
    f = lambda a, b: linalg.subspace_angles(a, b, rank_a=2, rank_b=2)  # noqa: E731
    check_nested(f, (a, b), nestings=("fwd-rev",))
    # A small angle and one of 90 degrees: the angle of (1, t) with the axis is arctan t.
    line = lambda t: jnp.stack([jnp.ones_like(t), t])[:, None]  # noqa: E731
    axis = jnp.array([[1.0], [0.0]])
    for t in (1e-6, 0.5, 1e6):
        g = lambda t: linalg.subspace_angles(line(t), axis, rank_a=1, rank_b=1)[0]  # noqa: E731
        np.testing.assert_allclose(jax.grad(g)(t), 1 / (1 + t * t), rtol=1e-7)


def test_rank_must_be_given_where_it_cannot_be_seen(rng):
    a = gaussian(rng, 3, 4)
    with pytest.raises(TypeError, match="give the rank by keyword"):
        jax.jit(linalg.null_space)(a)
    with pytest.raises(ValueError, match="ranks 1 to 3"):
        linalg.orth(np.stack([a, of_rank(rng, 3, 4, 1)]))
    batch = np.stack([a, 2 * a])
    assert jax.jit(lambda a: linalg.null_space(a, rank=3))(batch).shape == (2, 4, 1)
    assert linalg.null_space(jnp.zeros((2, 3))).shape == (3, 3)
    assert linalg.orth(jnp.zeros((2, 3))).shape == (2, 0)
    assert linalg.null_space(jnp.zeros((0, 3))).shape == (3, 3)
    with pytest.raises(ValueError, match="rank=5"):
        linalg.orth(a, rank=5)
    with pytest.raises(ValueError, match="subspace_angles got shapes"):
        linalg.subspace_angles(a, gaussian(rng, 2, 2))
