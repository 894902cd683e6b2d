"""Counterpart of `scipy.sparse.linalg`: matrix-free solvers with derivatives of every order."""

from difflinalg._core.krylov_checks import NotConverged as NotConverged
from difflinalg._core.results import EigenInfo as EigenInfo
from difflinalg._core.results import LsmrResult as LsmrResult
from difflinalg._krylov.eigsh import eigsh as eigsh
from difflinalg._krylov.linear_map import SolveInfo as SolveInfo
from difflinalg._krylov.lsmr import lsmr as lsmr
from difflinalg._krylov.solve import bicgstab as bicgstab
from difflinalg._krylov.solve import cg as cg
from difflinalg._krylov.solve import gmres as gmres
from difflinalg._krylov.solve import minres as minres
from difflinalg._krylov.svds import svds as svds
