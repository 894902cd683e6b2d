"""Counterpart of `jax.numpy.linalg`: the same names and calls, with derivatives that are right."""

from difflinalg._dense.det import det as det
from difflinalg._dense.det import slogdet as slogdet
from difflinalg._dense.eigh import eigh as eigh
from difflinalg._dense.eigh import eigvalsh as eigvalsh
from difflinalg._dense.eigh_trunc import eigh_trunc as eigh_trunc
from difflinalg._dense.funm_hermitian import funm_hermitian as funm_hermitian
from difflinalg._dense.svd import svd as svd
from difflinalg._dense.svd import svdvals as svdvals
from difflinalg._dense.svd_trunc import svd_trunc as svd_trunc
