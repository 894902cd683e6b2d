"""Counterpart of `scipy.sparse.linalg`: matrix-free solvers with derivatives of every order."""

from difflinalg._core.krylov_checks import NotConverged as NotConverged
from difflinalg._core.results import EigenInfo as EigenInfo
from difflinalg._core.results import GeneralEigenInfo as GeneralEigenInfo
from difflinalg._krylov.eigs import eigs as eigs
from difflinalg._krylov.eigsh import eigsh as eigsh
from difflinalg._krylov.linear_map import SolveInfo as SolveInfo
from difflinalg._krylov.lobpcg import lobpcg as lobpcg
from difflinalg._krylov.lobpcg import lobpcg_standard as lobpcg_standard
from difflinalg._krylov.solve import bicgstab as bicgstab
from difflinalg._krylov.solve import cg as cg
from difflinalg._krylov.solve import gmres as gmres
from difflinalg._krylov.solve import minres as minres
from difflinalg._krylov.svds import svds as svds
