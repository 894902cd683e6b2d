"""Degenerate values are moved apart, by a distance that knows the order of differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg._core.spread import spread
from difflinalg._core.tolerances import cluster_rtol, spread_rtol

DTYPES = [jnp.float32, jnp.float64]
LEVELS = [0, 1, 2]


def scale_one(values):
    return jnp.ones_like(values[..., :1])


def moved(values, level=0, dtype=jnp.float64, **kwargs):
    values = jnp.asarray(values, dtype)
    return np.asarray(spread(values, scale_one(values), level, **kwargs))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("level", LEVELS)
def test_separated_values_do_not_move(dtype, level):
    values = np.array([-1.0, -0.25, 0.125, 0.5, 1.0], dtype)
    np.testing.assert_array_equal(moved(values, level, dtype), values)
    np.testing.assert_array_equal(moved(values[2:], level, dtype, from_zero=True), values[2:])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("values", "size"),
    [([1.0] * 4, 4), ([0.0, 0.0, 0.5, 0.5, 1.0], 2), ([-1.0, 1.0, 1.0, 1.0], 3)],
)
def test_members_of_a_cluster_end_up_the_named_distance_apart(values, size, level, dtype):
    got = moved(values, level, dtype)
    delta = spread_rtol(dtype, level, size)
    equal = np.diff(values) == 0.0
    rounding = 4 * jnp.finfo(dtype).eps
    np.testing.assert_allclose(np.diff(got)[equal], delta, rtol=0, atol=rounding)
    assert np.all(np.diff(got) > 0.0)
    assert np.max(np.abs(got - values)) <= len(values) * delta


@pytest.mark.parametrize("level", LEVELS)
def test_cluster_stays_centred_on_its_place(level):
    got = moved([-1.0, 0.5, 0.5, 0.5, 1.0], level)
    assert got[2] == 0.5
    np.testing.assert_allclose(got[1] + got[3], 1.0, rtol=1e-15)
    assert got[0] == -1.0
    assert got[4] == 1.0


@pytest.mark.parametrize("dtype", DTYPES)
def test_gap_above_the_tolerance_stays_and_one_below_is_widened(dtype):
    gap = cluster_rtol(dtype, 0)
    kept, spread_out = (moved([0.0, c * gap, 1.0], 0, dtype) for c in (2.0, 0.5))
    assert kept[1] - kept[0] >= 2.0 * gap * (1.0 - 1e-6)
    assert kept[1] - kept[0] < 0.5 * spread_rtol(dtype, 0)
    np.testing.assert_allclose(spread_out[1] - spread_out[0], spread_rtol(dtype, 0), rtol=1e-3)


@pytest.mark.parametrize("level", LEVELS)
def test_tolerance_grows_with_the_level_and_can_be_given(level):
    gap = 0.5 * cluster_rtol(jnp.float64, level)
    assert np.diff(moved([0.0, gap, 1.0], level))[0] > 1.9 * gap
    assert np.diff(moved([0.0, gap, 1.0], level, cluster_rtol=0.0))[0] == gap
    assert np.diff(moved([0.0, 0.0, 1.0], level, cluster_rtol=0.0))[0] > gap
    assert np.diff(moved([0.0, 1e-3, 1.0], level, cluster_rtol=1e-2))[0] >= 1e-3


def test_neighbour_of_a_cluster_is_not_overtaken():
    delta = spread_rtol(jnp.float64, 0)
    values = np.array([0.0, 0.0, 0.0, 0.5 * delta, 1.0, 1.0])
    got = moved(values)
    assert np.all(np.diff(got) > 0.4 * delta)


@pytest.mark.parametrize("level", LEVELS)
def test_zero_singular_values_and_their_images_are_equally_spaced_around_zero(level):
    delta, images = (spread_rtol(jnp.float64, level, size) for size in (2, 4))
    got = moved([0.0, 0.0, 0.5, 1.0], level, from_zero=True)
    np.testing.assert_allclose(got[:2], [0.5 * images, 1.5 * images], rtol=1e-12)
    np.testing.assert_array_equal(got[2:], [0.5, 1.0])
    positive = moved([0.5, 0.5, 1.0], level, from_zero=True)
    np.testing.assert_allclose(positive[1] - positive[0], delta, rtol=1e-6)
    assert np.max(np.abs(positive[:2] - 0.5)) <= delta * (1 + 1e-6)


@pytest.mark.parametrize("from_zero", [False, True])
def test_lower_level_finds_nothing_to_do_after_a_higher_one(from_zero):
    values = jnp.array([0.0, 0.0, 0.0, 0.5, 0.5, 1.0])
    once = spread(values, scale_one(values), 1, from_zero=from_zero)
    twice = spread(once, scale_one(values), 0, from_zero=from_zero)
    np.testing.assert_array_equal(once, twice)


def test_distance_grows_with_the_level_and_is_measured_on_the_scale():
    values = jnp.array([1.0, 1.0])
    widths = [np.diff(spread(values, jnp.array([s]), k))[0] for s in (1.0, 8.0) for k in LEVELS]
    np.testing.assert_allclose(widths[:3], np.finfo(float).eps ** (1 / np.array([2, 3, 4])))
    np.testing.assert_allclose(widths[3:], 8.0 * np.array(widths[:3]), rtol=1e-6)


@pytest.mark.parametrize("from_zero", [False, True])
def test_derivative_is_the_identity(from_zero):
    values = jnp.array([0.0, 0.0, 0.5, 0.5])
    f = lambda x: spread(x, scale_one(x), 0, from_zero=from_zero)  # noqa: E731
    np.testing.assert_array_equal(jax.jacfwd(f)(values), np.eye(4))
    np.testing.assert_array_equal(jax.jacrev(f)(values), np.eye(4))


@pytest.mark.parametrize("from_zero", [False, True])
def test_batch_and_vmap_treat_each_spectrum_alone(from_zero):
    stack = jnp.array([[0.0, 0.0, 1.0], [0.2, 0.5, 0.5], [0.0, 0.5, 1.0], [1.0, 1.0, 1.0]])
    together = spread(stack, scale_one(stack), 0, from_zero=from_zero)
    mapped = jax.vmap(lambda x: spread(x, scale_one(x), 0, from_zero=from_zero))(stack)
    np.testing.assert_array_equal(together, mapped)
    for row, got in zip(stack, together, strict=True):
        np.testing.assert_array_equal(moved(row, from_zero=from_zero), got)


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_empty_spectrum_is_returned(shape):
    values = jnp.zeros(shape)
    assert spread(values, jnp.ones((*shape[:-1], 1)), 0).shape == shape
    assert spread(values, jnp.ones((*shape[:-1], 1)), 0, from_zero=True).shape == shape


def test_single_value_does_not_move_unless_it_is_a_zero_singular_value():
    assert moved([0.0])[0] == 0.0
    assert moved([2.0], from_zero=True)[0] == 2.0
    assert moved([0.0], from_zero=True)[0] == 0.5 * spread_rtol(jnp.float64, 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype_is_kept(dtype):
    values = jnp.ones(3, dtype)
    assert spread(values, scale_one(values), 0).dtype == dtype
    assert spread(values, scale_one(values), 1, from_zero=True).dtype == dtype
