"""Loops whose reverse mode does not store every step.

- `reversible_scan` runs the steps backwards for the gradient; ready-made steps come as
  `Invertible` pairs, which `chain` puts in sequence.
"""

from difflinalg._core.checks import ReconstructionError as ReconstructionError
from difflinalg._memory.coupling import additive_coupling as additive_coupling
from difflinalg._memory.coupling import affine_coupling as affine_coupling
from difflinalg._memory.gates import diagonal_gate as diagonal_gate
from difflinalg._memory.gates import involution_gate as involution_gate
from difflinalg._memory.gates import local_gate as local_gate
from difflinalg._memory.invertible import Invertible as Invertible
from difflinalg._memory.invertible import chain as chain
from difflinalg._memory.momentum import MomentumInput as MomentumInput
from difflinalg._memory.momentum import MomentumState as MomentumState
from difflinalg._memory.momentum import momentum as momentum
from difflinalg._memory.momentum import momentum_start as momentum_start
from difflinalg._memory.one_step import mccallum_foster as mccallum_foster
from difflinalg._memory.one_step import reversible_heun as reversible_heun
from difflinalg._memory.one_step import reversible_heun_start as reversible_heun_start
from difflinalg._memory.residual_block import residual_block as residual_block
from difflinalg._memory.reversible import reversible_scan as reversible_scan
from difflinalg._memory.splitting import drift as drift
from difflinalg._memory.splitting import kick as kick
from difflinalg._memory.splitting import leapfrog as leapfrog
from difflinalg._memory.splitting import splitting as splitting
from difflinalg._memory.splitting import yoshida4 as yoshida4
