"""Counterpart of `scipy.sparse.linalg`: matrix-free solvers with derivatives of every order.

Vectors over several devices, or several hosts. The solvers use vectors by whole-array operations
only, so that a vector that is sharded stays so, and with it the Krylov basis: each device holds its
part of every basis vector, and inner products are sums over devices. Give a sharded `v0` (of
`eigsh`) or `b`, one-dimensional, and an operator that keeps the sharding. On several hosts every
process runs the same program, after `jax.distributed.initialize`::

    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec
    from difflinalg.scipy.sparse.linalg import eigsh

    jax.distributed.initialize()  # before anything else; finds the other processes
    mesh = jax.make_mesh((jax.device_count(),), ("x",))  # the devices of all processes
    parts = NamedSharding(mesh, PartitionSpec("x"))

    def piece(index):  # of the starting vector; each process makes its own pieces only
        rows = range(*index[0].indices(size))
        return np.random.default_rng(rows.start).standard_normal(len(rows))

    v0 = jax.make_array_from_callback((size,), parts, piece)

    @jax.jit
    def energy(g, v0):
        return eigsh(hamiltonian(g), 1, which="SA", v0=v0, return_eigenvectors=False)[0]

    value, slope = jax.value_and_grad(energy)(1.0, v0)  # the same number in every process

What a single process may not do is to look at a whole vector: `np.asarray` of one that lives on
several hosts fails, so return numbers from the jitted function, or write the addressable shards.
Outside of jit a solver that has not converged raises; under jit it returns NaN and the info, in
every process alike. `tests/krylov/test_sharding.py` runs the same call on four devices of one host
and checks in the compiled program that no device holds a whole basis.
"""

from difflinalg._core.krylov_checks import NotConverged as NotConverged
from difflinalg._core.results import EigenInfo as EigenInfo
from difflinalg._core.results import FunctionInfo as FunctionInfo
from difflinalg._core.results import GeneralEigenInfo as GeneralEigenInfo
from difflinalg._core.results import LsmrResult as LsmrResult
from difflinalg._krylov.eigs import eigs as eigs
from difflinalg._krylov.eigsh import eigsh as eigsh
from difflinalg._krylov.linear_map import SolveInfo as SolveInfo
from difflinalg._krylov.lobpcg import lobpcg as lobpcg
from difflinalg._krylov.lobpcg import lobpcg_standard as lobpcg_standard
from difflinalg._krylov.lsmr import lsmr as lsmr
from difflinalg._krylov.multiply import expm_multiply as expm_multiply
from difflinalg._krylov.multiply import funm_multiply as funm_multiply
from difflinalg._krylov.solve import bicgstab as bicgstab
from difflinalg._krylov.solve import cg as cg
from difflinalg._krylov.solve import gmres as gmres
from difflinalg._krylov.solve import minres as minres
from difflinalg._krylov.svds import svds as svds
