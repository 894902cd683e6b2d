"""Counterpart of `jax.scipy.linalg`: the same calls, with derivatives that are right."""

from difflinalg._dense.eigh_generalized import eigh as eigh
from difflinalg._dense.eigh_generalized import eigh_tridiagonal as eigh_tridiagonal
from difflinalg._dense.polar import polar as polar
