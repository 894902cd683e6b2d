"""How derivatives are computed: one frozen dataclass for each method.

Each of them knows two linear maps, `push` from tangents to those of the outputs and `pull`, its
transpose. All nestings of modes follow from the two (see `operations`).
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from difflinalg._core import checks
from difflinalg._ode import backward as backward_pass
from difflinalg._ode import forward as forward_pass
from difflinalg._ode.control import Control
from difflinalg._ode.forward import Record
from difflinalg._ode.lift import Lift
from difflinalg._ode.system import Leaves, System

Pair = tuple[Leaves, Leaves]
SMALL_STEPS = 2**16  # bytes for the stage values of one segment of steps


class Problem(NamedTuple):
    """An integration that is differentiated."""

    control: Control
    system: System
    lift: Lift
    y0: Leaves
    ts: Array
    record: Record  # of the steps taken

    def zeros(self, active: tuple[bool, ...]) -> Leaves:
        """Zero cotangents of the active `p`."""
        wanted = [x if a else None for x, a in zip(self.lift.p, active, strict=True)]
        return [jnp.zeros_like(x) for x in self.lift.spread(wanted, self.ts.shape[:-1])]


@dataclass(frozen=True)
class Adjoint:
    """The base of all derivative methods."""

    needs_outputs = False  # whether `pull` starts from the outputs
    max_steps = 0  # for how many accepted steps there is room in the record

    def push(self, problem: Problem) -> Pair:
        """The outputs of a tangent system."""
        return forward_pass.forward(*problem)

    def pull(self, problem: Problem, active: tuple[bool, ...], ys: Pair, cotangents: Pair) -> Pair:
        """The cotangents of `y0` and of the active `p` from those of the outputs."""
        raise NotImplementedError


@dataclass(frozen=True)
class Checkpointed(Adjoint):
    """Discretise, then optimise: the exact derivative of the steps taken, with checkpoints.

    Args:
        segment: how many steps are held in full at a time; by default 16, and as many as take
            64 kB, up to 512, where states are small.
        slots: how many other states are kept.
        max_steps: for how many accepted steps there is room in the record of times (8 bytes
            each); an integration that is differentiated and takes more of them fails.

    Cost:
        Memory of `slots` states and `segment` steps, whatever the number of steps. Reverse mode
        computes each step once more and reverses it up to `segment` steps, and twice more up to
        `segment * slots`; beyond, the number grows with the logarithm of the length.
    """

    segment: int | None = None
    slots: int = 32
    max_steps: int = 4096

    def __post_init__(self) -> None:
        for name in ("segment", "slots", "max_steps"):
            if name != "segment" or self.segment is not None:
                checks.check_positive("Checkpointed", name, getattr(self, name))

    def _segment(self, problem: Problem) -> int:
        """How many steps are held in full at a time."""
        if self.segment is not None:
            return self.segment
        size = forward_pass.stages_needed(problem.control, problem.ts)
        size *= max(sum(x.size * x.dtype.itemsize for x in problem.y0), 1)
        return min(max(SMALL_STEPS // size, 16), 512)

    def pull(self, problem: Problem, active: tuple[bool, ...], ys: Pair, cotangents: Pair) -> Pair:
        """The backward pass over the recorded steps."""
        del ys
        p_bar = problem.zeros(active)
        segment = self._segment(problem)
        return backward_pass.backward(*problem, active, p_bar, cotangents, segment, self.slots)
