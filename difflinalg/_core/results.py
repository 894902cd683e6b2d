"""Named tuples that the decompositions return; fields are named as in `jax.numpy.linalg`."""

from typing import NamedTuple

from jax import Array


class SVDResult(NamedTuple):
    """`A = U diag(S) Vh`."""

    U: Array
    S: Array
    Vh: Array


class EighResult(NamedTuple):
    """`A = V diag(w) V^H` with `w = eigenvalues` and `V = eigenvectors`."""

    eigenvalues: Array
    eigenvectors: Array
