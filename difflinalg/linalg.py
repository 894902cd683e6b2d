"""Counterpart of `jax.numpy.linalg`: the same names and calls, with derivatives that are right."""

from jax.numpy.linalg import cross as cross
from jax.numpy.linalg import diagonal as diagonal
from jax.numpy.linalg import inv as inv
from jax.numpy.linalg import matmul as matmul
from jax.numpy.linalg import matrix_power as matrix_power
from jax.numpy.linalg import matrix_rank as matrix_rank
from jax.numpy.linalg import matrix_transpose as matrix_transpose
from jax.numpy.linalg import multi_dot as multi_dot
from jax.numpy.linalg import outer as outer
from jax.numpy.linalg import solve as solve
from jax.numpy.linalg import tensordot as tensordot
from jax.numpy.linalg import tensorinv as tensorinv
from jax.numpy.linalg import tensorsolve as tensorsolve
from jax.numpy.linalg import trace as trace
from jax.numpy.linalg import vecdot as vecdot

from difflinalg._dense.cholesky import cholesky as cholesky
from difflinalg._dense.cond import cond as cond
from difflinalg._dense.det import det as det
from difflinalg._dense.det import slogdet as slogdet
from difflinalg._dense.eig import eig as eig
from difflinalg._dense.eig import eigvals as eigvals
from difflinalg._dense.eigh import eigh as eigh
from difflinalg._dense.eigh import eigvalsh as eigvalsh
from difflinalg._dense.eigh_trunc import eigh_trunc as eigh_trunc
from difflinalg._dense.funm_hermitian import funm_hermitian as funm_hermitian
from difflinalg._dense.leading_space import leading_space as leading_space
from difflinalg._dense.norm import matrix_norm as matrix_norm
from difflinalg._dense.norm import norm as norm
from difflinalg._dense.norm import vector_norm as vector_norm
from difflinalg._dense.pinv import lstsq as lstsq
from difflinalg._dense.pinv import pinv as pinv
from difflinalg._dense.qr import qr as qr
from difflinalg._dense.svd import svd as svd
from difflinalg._dense.svd import svdvals as svdvals
from difflinalg._dense.svd_trunc import svd_trunc as svd_trunc
