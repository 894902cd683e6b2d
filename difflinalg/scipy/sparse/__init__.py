"""Counterpart of `jax.scipy.sparse`: `difflinalg.scipy.sparse.linalg`."""

from difflinalg.scipy.sparse import linalg as linalg
