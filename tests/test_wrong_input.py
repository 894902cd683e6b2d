"""What is not a matrix, a rank, a tolerance or a function is named in the error, with a remedy."""

import importlib.util
from argparse import ArgumentTypeError
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg import linalg, testing
from difflinalg.scipy import linalg as scipy

A = jnp.diag(jnp.array([3.0, 2.0, 1.0]))
DECOMPOSITIONS = {
    "svd": linalg.svd,
    "svdvals": linalg.svdvals,
    "eigh": linalg.eigh,
    "eigvalsh": linalg.eigvalsh,
    "svd_trunc": lambda a, **options: linalg.svd_trunc(a, 2, **options),
    "eigh_trunc": lambda a, **options: linalg.eigh_trunc(a, 2, **options),
    "polar": scipy.polar,
    "funm_hermitian": lambda a: linalg.funm_hermitian(a, jnp.exp),
}


@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_decomposition_names_itself_at_wrong_input(name):
    f = DECOMPOSITIONS[name]
    for wrong in (np.array([[None]]), np.array([["a"]]), "abc", None, {}):
        with pytest.raises(TypeError, match=f"^{name} needs"):
            f(wrong)
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match=f"^{name} got a matrix that contains NaN or inf"):
            f(A.at[0, 0].set(value))


@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_half_precision_is_refused_where_nothing_decomposes_it(name):
    for dtype in (jnp.float16, jnp.bfloat16):
        text = rf"^{name} needs dtype float32.* got {jnp.dtype(dtype)}; .*astype\(jnp\.float32\)"
        with pytest.raises(TypeError, match=text):
            DECOMPOSITIONS[name](A.astype(dtype))


def test_half_precision_is_taken_where_products_or_a_complex_schur_form_do():
    half, key = A.astype(jnp.float16), jax.random.key(0)
    wrong = (
        lambda: linalg.det(jnp.eye(5, dtype=jnp.float16)),
        lambda: linalg.norm(half, 2),
        lambda: linalg.matrix_norm(half, ord="nuc"),
        lambda: linalg.lstsq(half, half[0]),
        lambda: scipy.schur(half),
        lambda: scipy.eigh_tridiagonal(half[0], half[0, :2], eigvals_only=True),
        lambda: scipy.solve_sylvester(half, half, half),
        lambda: testing.random_unitary(key, 2, jnp.float16),
        lambda: testing.random_matrix(key, half[0], (3, 3)),
    )
    for call in wrong:
        with pytest.raises(TypeError, match=r"needs dtype float32.* got float16"):
            call()
    for right in (linalg.det, linalg.norm):
        assert right(half).dtype == jnp.float16
    for right in (scipy.sqrtm, scipy.logm, scipy.cosm, lambda a: scipy.schur(a, "complex")[0]):
        value = np.asarray(right(half))
        np.testing.assert_allclose(value, right(A.astype(np.float32)), rtol=1e-6)


FLAGS = {
    "svd": ("full_matrices", "compute_uv", "hermitian"),
    "eigh": ("symmetrize_input",),
    "eigvalsh": ("symmetrize_input",),
    "svd_trunc": ("full", "keep_multiplets", "core"),
    "eigh_trunc": ("full", "keep_multiplets"),
}


@pytest.mark.parametrize("name", FLAGS)
def test_flag_is_a_static_truth_value(name):
    f = DECOMPOSITIONS[name]
    for flag in FLAGS[name]:
        for value in (jnp.array(False), np.False_):
            got, expected = (jax.tree.leaves(f(A, **{flag: x})) for x in (value, False))
            for x, y in zip(got, expected, strict=True):
                np.testing.assert_array_equal(x, y)
        with pytest.raises(TypeError, match=f"^{name} needs {flag} as True or False, got ndarray"):
            f(A, **{flag: np.array([True, False])})
        with pytest.raises(TypeError, match=f"^{name} needs {flag} as.*static_argnames='{flag}'"):
            jax.jit(lambda value, f=f, flag=flag: f(A, **{flag: value}))(True)


@pytest.mark.parametrize("name", list(DECOMPOSITIONS)[:6])
def test_tolerance_is_a_static_number_that_is_not_negative(name):
    f = DECOMPOSITIONS[name]
    arguments = ["cluster_rtol"] + ["multiplet_rtol"] * name.endswith("_trunc")
    for argument in arguments:
        for wrong in (-1.0, np.nan):
            with pytest.raises(ValueError, match=f"^{name} needs {argument} >= 0"):
                f(A, **{argument: wrong})
        for wrong in ("x", True, np.ones(2), 1j):
            with pytest.raises(TypeError, match=f"^{name} needs {argument} as a Python number"):
                f(A, **{argument: wrong})
        with pytest.raises(TypeError, match=f"^{name} needs {argument}.*static"):
            jax.jit(lambda rtol, f=f, argument=argument: f(A, **{argument: rtol}))(1.0)
    f(A, cluster_rtol=jnp.asarray(0.0))


@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_matrix_may_be_a_constant_of_a_compiled_function(name):
    constant = jnp.asarray(np.diag([3.0, 2.0, 1.0]))
    jax.eval_shape(lambda x: jax.tree.leaves(DECOMPOSITIONS[name](constant))[0] * x, 1.0)


def test_multiplet_rtol_of_zero_is_not_the_default():
    a = jnp.diag(jnp.array([1.0, 1.0 - 1e-14, 0.5]))
    assert linalg.svd_trunc(a, 1).info.cut
    assert not linalg.svd_trunc(a, 1, multiplet_rtol=0.0).info.cut


@pytest.mark.parametrize("name", ["svd_trunc", "eigh_trunc"])
def test_rank_with_axes_is_refused_with_its_shape(name):
    for rank in (np.array([2]), jnp.array([1, 2])):
        with pytest.raises(TypeError, match=f"^{name} needs `rank`.*of shape"):
            getattr(linalg, name)(A, rank)


def test_function_of_numpy_is_refused():
    with pytest.raises(TypeError, match=r"written with JAX, got numpy\.exp"):
        linalg.funm_hermitian(A, np.exp)


def test_testing_functions_name_themselves_at_wrong_input():
    key = jax.random.key(0)
    wrong = {
        "spectrum needs n": lambda: testing.spectrum("generic", 1.5),
        "spectrum needs a real": lambda: testing.spectrum("generic", 3, int),
        "random_unitary needs n": lambda: testing.random_unitary(key, 1.5),
        "random_unitary needs a real": lambda: testing.random_unitary(key, 2, int),
        "random_matrix needs shape": lambda: testing.random_matrix(key, [1.0, 2.0], 3),
        "check_derivatives needs a function": lambda: testing.check_derivatives(3, (1.0,)),
        "check_gauge needs a function": lambda: testing.check_gauge(3, A),
    }
    for text, call in wrong.items():
        with pytest.raises(TypeError, match=f"^{text}"):
            call()
    with pytest.raises(ValueError, match=r"^random_unitary needs n >= 0"):
        testing.random_unitary(key, -1)
    with pytest.raises(ValueError, match=r"^check_gauge got a matrix that contains NaN"):
        testing.check_gauge(lambda *factors: jnp.sum(factors[1]), A * jnp.nan)


def test_example_refuses_its_arguments_early_and_knows_the_critical_point(tmp_path):
    path = Path(__file__).parents[1] / "examples" / "ising_trg.py"
    spec = importlib.util.spec_from_file_location("ising_trg_arguments", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    for text in ("inf", "nan", "-1", "0.4:inf:3", "0.4:0.5:0", "x"):
        with pytest.raises(ArgumentTypeError, match=r"couplings must be|expected start"):
            example.parse_couplings(text)
    for text, message in (("absent/x.csv", "no such directory"), ("x.foo", "neither .csv nor")):
        with pytest.raises(ArgumentTypeError, match=message):
            example.parse_output(str(tmp_path / text))
    log_z, energy, heat = example.onsager(0.5 * np.log(1.0 + np.sqrt(2.0)))
    assert abs(log_z - 0.9296953983416) < 1e-7
    assert (abs(energy + np.sqrt(2.0)) < 1e-12, heat) == (True, np.inf)
    assert example.parse_output(str(tmp_path / "x.PNG"))
