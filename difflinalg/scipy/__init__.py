"""Counterpart of `jax.scipy`: `difflinalg.scipy.linalg`."""

from difflinalg.scipy import linalg as linalg
