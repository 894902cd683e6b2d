"""Counterpart of `jax.scipy`: `difflinalg.scipy.linalg` and `difflinalg.scipy.sparse.linalg`."""

from difflinalg.scipy import linalg as linalg
from difflinalg.scipy import sparse as sparse
