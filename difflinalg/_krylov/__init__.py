"""Krylov processes and the solvers built on them: private, see `difflinalg.scipy.sparse.linalg`."""
