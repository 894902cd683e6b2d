"""Counterpart of `jax.scipy.linalg`: the same calls, with derivatives that are right."""

from difflinalg._dense.eigh_generalized import eigh as eigh
from difflinalg._dense.eigh_generalized import eigh_tridiagonal as eigh_tridiagonal
from difflinalg._dense.expm import expm as expm
from difflinalg._dense.expm import expm_frechet as expm_frechet
from difflinalg._dense.hessenberg import hessenberg as hessenberg
from difflinalg._dense.logm import fractional_matrix_power as fractional_matrix_power
from difflinalg._dense.logm import logm as logm
from difflinalg._dense.lyapunov import solve_continuous_lyapunov as solve_continuous_lyapunov
from difflinalg._dense.lyapunov import solve_discrete_lyapunov as solve_discrete_lyapunov
from difflinalg._dense.polar import polar as polar
from difflinalg._dense.rsf2csf import rsf2csf as rsf2csf
from difflinalg._dense.schur import schur as schur
from difflinalg._dense.signm import signm as signm
from difflinalg._dense.sqrtm import sqrtm as sqrtm
from difflinalg._dense.sylvester import solve_sylvester as solve_sylvester
from difflinalg._dense.trigm import coshm as coshm
from difflinalg._dense.trigm import cosm as cosm
from difflinalg._dense.trigm import sinhm as sinhm
from difflinalg._dense.trigm import sinm as sinm
from difflinalg._dense.trigm import tanhm as tanhm
from difflinalg._dense.trigm import tanm as tanm

solve_lyapunov = solve_continuous_lyapunov
