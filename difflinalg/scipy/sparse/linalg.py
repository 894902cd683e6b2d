"""Counterpart of `scipy.sparse.linalg`: matrix-free solvers with derivatives of every order."""

from difflinalg._core.checks import NotConverged as NotConverged
from difflinalg._core.results import EigenInfo as EigenInfo
from difflinalg._krylov.eigsh import eigsh as eigsh
