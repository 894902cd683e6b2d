"""Wrong arguments raise the exception of JAX, and right ones have its shapes and dtypes.

Every argument of every name that is not JAX's own is replaced by each of a list of values. Nothing
is computed: the outcome is known when the call is traced.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from difflinalg import linalg
from difflinalg.scipy import linalg as scipy_linalg

A = 2 * np.eye(3) + 0.1
V = np.ones(3)
ARRAYS = {
    "number": np.float64(1.0),
    "vector": V,
    "short vector": V[:2],
    "wide": np.ones((2, 3)),
    "smaller": np.eye(2) + 1,
    "stack": np.stack([A, A]),
    "stack of wide": np.ones((2, 2, 3)),
    "without rows": np.zeros((0, 3)),
    "text": "a",
    "array of text": np.array(["a"]),
    "None": None,
    "object": object(),
    "booleans": A > 1,
    "list": [[1.0, 2.0], [3.0, 4.0]],
    "complex": A + 1j,
}
OPTIONS = {
    "text": "no",
    "fraction": 0.5,
    "negative": -1,
    "large": 7,
    "two": 2,
    "None": None,
    "True": True,
    "pair": (0, 1),
    "pair of large": (5, 6),
    "infinity": np.inf,
}
NUMPY = {
    "cholesky": ((A,), ("upper", "symmetrize_input")),
    "cond": ((A,), ("p",)),
    "det": ((A,), ()),
    "eig": ((A,), ()),
    "eigh": ((A,), ("UPLO", "symmetrize_input")),
    "eigvals": ((A,), ()),
    "eigvalsh": ((A,), ("UPLO",)),
    "lstsq": ((A[:, :2], V), ("rcond",)),
    "matrix_norm": ((A,), ("keepdims", "ord")),
    "norm": ((A,), ("ord", "axis", "keepdims")),
    "pinv": ((A,), ("rtol", "hermitian")),
    "qr": ((A,), ("mode",)),
    "slogdet": ((A,), ("method",)),
    "svd": ((A,), ("full_matrices", "compute_uv", "hermitian")),
    "svdvals": ((A,), ()),
    "vector_norm": ((V,), ("axis", "keepdims", "ord")),
}
SCIPY = {
    "cho_factor": ((A,), ("lower",)),
    "cholesky": ((A,), ("lower",)),
    "det": ((A,), ()),
    "eigh": ((A,), ("lower", "eigvals_only")),
    "eigh_tridiagonal": ((V, V[:2]), ("eigvals_only", "select")),
    "expm": ((A,), ("upper_triangular", "max_squarings")),
    "expm_frechet": ((A, A), ("method", "compute_expm")),
    "funm": ((A, jnp.exp), ("disp",)),
    "hessenberg": ((A,), ("calc_q", "overwrite_a")),
    "lu": ((A,), ("permute_l",)),
    "lu_factor": ((A,), ()),
    "polar": ((A,), ("side", "method")),
    "qr": ((A,), ("mode", "pivoting")),
    "rsf2csf": ((A, A), ("check_finite",)),
    "schur": ((A,), ("output",)),
    "solve": ((A, V), ("lower", "assume_a")),
    "solve_sylvester": ((A, A, A), ("method",)),
    "sqrtm": ((A,), ("blocksize",)),
    "svd": ((A,), ("full_matrices", "compute_uv")),
}
# What works here and is refused by JAX: stacks, wide matrices, numbers of other dtypes.
MORE = {
    ("eigh_tridiagonal", "complex"),
    ("expm_frechet", "booleans"),
    ("expm_frechet", "complex"),
    ("funm", "stack"),
    ("funm", "booleans"),
    ("hessenberg", "booleans"),
    ("hessenberg", "list"),
    ("lu", "stack"),
    ("lu", "stack of wide"),
    ("polar", "wide"),
    ("polar", "stack of wide"),
    ("polar", "without rows"),
    ("polar", "booleans"),
    ("schur", "booleans"),
    ("sqrtm", "stack"),
    ("sqrtm", "list"),
}
# JAX returns eigenvalues of an empty matrix of any width.
LESS = {("eigh_tridiagonal", "without rows")}
# Exceptions that JAX raises by accident, deep inside: here they are TypeError or ValueError.
ACCIDENTS = (IndexError, AttributeError, NameError, Warning)


def outcome(namespace, name, args, options):
    """The exception, or shapes and dtypes."""
    try:
        result = jax.eval_shape(lambda: [getattr(namespace, name)(*args, **options)])
    except Exception as error:
        return error
    return [(x.shape, x.dtype) for x in jax.tree.leaves(result)]


def variants(args, options):
    yield "unchanged", args, {}
    for i, arg in enumerate(args):
        if isinstance(arg, np.ndarray):
            for key, value in ARRAYS.items():
                yield key, (*args[:i], value, *args[i + 1 :]), {}
    for option in options:
        for key, value in OPTIONS.items():
            yield f"{option} {key}", args, {option: value}


def disagreement(name, key, got, expected):
    """What is not as in JAX, or None."""
    if not isinstance(expected, Exception):
        same = not isinstance(got, Exception) and got == expected
        return None if same or (name, key) in LESS else f"{got!r} in place of {expected}"
    if not isinstance(got, Exception):
        return None if (name, key) in MORE else f"a result in place of {expected!r}"
    wanted = (TypeError, ValueError) if isinstance(expected, ACCIDENTS) else type(expected)
    return None if isinstance(got, wanted) else f"{got!r} in place of {expected!r}"


@pytest.mark.parametrize(
    ("ours", "theirs", "name"),
    [(linalg, jnp.linalg, name) for name in NUMPY]
    + [(scipy_linalg, jax.scipy.linalg, name) for name in SCIPY],
)
def test_wrong_arguments_raise_the_exception_of_jax(ours, theirs, name):
    args, options = (NUMPY if ours is linalg else SCIPY)[name]
    wrong = []
    for key, some_args, some_options in variants(args, options):
        got, expected = (outcome(space, name, some_args, some_options) for space in (ours, theirs))
        text = disagreement(name, key, got, expected)
        wrong += [f"{key}: {text}"] if text else []
    assert not wrong, "\n".join(wrong)


def test_every_name_that_is_not_taken_from_jax_is_compared():
    for ours, theirs, calls in (
        (linalg, jnp.linalg, NUMPY),
        (scipy_linalg, jax.scipy.linalg, SCIPY),
    ):
        names = [name for name in dir(theirs) if not name.startswith("_")]
        assert {n for n in names if getattr(ours, n) is not getattr(theirs, n)} == set(calls)


def test_cutoff_of_the_pseudo_inverse_broadcasts_against_the_stack():
    a = jnp.diag(jnp.array([2.0, 1.0]))
    rtol = jnp.array([0.1, 0.9])
    np.testing.assert_array_equal(linalg.pinv(a, rtol), jnp.linalg.pinv(a, rtol))
