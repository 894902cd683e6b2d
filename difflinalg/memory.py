"""Loops whose reverse mode does not store every step.

- `scan`, `fori_loop` and `while_loop` are those of `jax.lax` with `checkpoints=`: `Nested(levels)`
  (any order, both modes), `Revolve(slots)` (optimal, known length), `Online(slots)` (unknown
  length).
- `reversible_scan` runs the steps backwards for the gradient; ready-made steps come as
  `Invertible` pairs, which `chain` and `repeat` put in sequence.
"""

from difflinalg._core.loop_checks import ReconstructionError as ReconstructionError
from difflinalg._core.loop_checks import StepLimitError as StepLimitError
from difflinalg._memory.coupling import additive_coupling as additive_coupling
from difflinalg._memory.coupling import affine_coupling as affine_coupling
from difflinalg._memory.gates import diagonal_gate as diagonal_gate
from difflinalg._memory.gates import involution_gate as involution_gate
from difflinalg._memory.gates import local_gate as local_gate
from difflinalg._memory.invertible import Invertible as Invertible
from difflinalg._memory.invertible import chain as chain
from difflinalg._memory.invertible import repeat as repeat
from difflinalg._memory.loops import fori_loop as fori_loop
from difflinalg._memory.loops import scan as scan
from difflinalg._memory.loops import while_loop as while_loop
from difflinalg._memory.momentum import MomentumInput as MomentumInput
from difflinalg._memory.momentum import MomentumState as MomentumState
from difflinalg._memory.momentum import momentum as momentum
from difflinalg._memory.momentum import momentum_start as momentum_start
from difflinalg._memory.one_step import mccallum_foster as mccallum_foster
from difflinalg._memory.one_step import reversible_heun as reversible_heun
from difflinalg._memory.one_step import reversible_heun_start as reversible_heun_start
from difflinalg._memory.policies import Nested as Nested
from difflinalg._memory.policies import Online as Online
from difflinalg._memory.policies import Revolve as Revolve
from difflinalg._memory.residual_block import residual_block as residual_block
from difflinalg._memory.reversible import reversible_scan as reversible_scan
from difflinalg._memory.splitting import drift as drift
from difflinalg._memory.splitting import kick as kick
from difflinalg._memory.splitting import leapfrog as leapfrog
from difflinalg._memory.splitting import splitting as splitting
from difflinalg._memory.splitting import yoshida4 as yoshida4
